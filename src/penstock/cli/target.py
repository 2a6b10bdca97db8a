"""Which agent is meant by `file.py:name` or `module:name`."""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.agent import Agent
from penstock.errors import UsageError

EXAMPLE = 'agent = penstock.Agent("openai:gpt-5", tools=[…])'


def find_agent(target: str) -> Agent:
    """The agent that is meant; a mistake in the name, or in the file, is told with its place."""
    place, name = _split(target)
    module = _loaded(place)
    found = _named(module, name, place) if name else _only(module, place)
    if isfunction(found):
        found = _called(found, f"{place}:{name or 'agent'}")
    if not isinstance(found, Agent):
        raise UsageError(f"{target} is no Agent but of the type {type(found).__name__}: write {EXAMPLE}")
    return found


def _split(target: str) -> tuple[str, str]:
    """The file or module, and the name in it, which may be missing."""
    if Path(target).is_file():
        return target, ""
    place, _, name = target.rpartition(":")
    return (place, name) if place else (target, "")


def _loaded(place: str) -> ModuleType:
    path = Path(place)
    is_file = path.suffix == ".py" or path.is_file()
    if is_file and not path.is_file():
        raise UsageError(f"there is no file {place}")
    sys.path.insert(0, str(path.resolve().parent if is_file else Path.cwd()))
    try:
        return _from_file(path) if is_file else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and place.startswith(error.name):
            raise UsageError(f"there is no file or module {place}: give a path such as agent.py") from None
        raise _failed(place, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the file is a user's, and may do anything
        raise _failed(place, error) from None


def _from_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _failed(place: str, error: BaseException) -> UsageError:
    """What went wrong in the user's file, with the line of it."""
    if isinstance(error, SyntaxError):
        return UsageError(f"{error.filename or place}, line {error.lineno}: {error.msg}")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == Path(place).resolve()] or frames[-1:]
    where = f"{own[-1].filename}, line {own[-1].lineno}" if own else place
    return UsageError(f"{where}: {type(error).__name__}: {error}")


def _named(module: ModuleType, name: str, place: str) -> Any:
    if not hasattr(module, name):
        there = ", ".join(_agents(module)) or "none"
        raise UsageError(f"there is no {name!r} in {place}; agents there: {there}")
    return getattr(module, name)


def _only(module: ModuleType, place: str) -> Any:
    if hasattr(module, "agent"):
        return module.agent
    agents = _agents(module)
    match list(agents.values()):
        case [agent]:
            return agent
        case []:
            raise UsageError(f"there is no agent in {place}: write {EXAMPLE}")
        case _:
            raise UsageError(f"there are several agents in {place}: say which, as in {place}:{next(iter(agents))}")


def _agents(module: ModuleType) -> dict[str, Agent]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Agent)}


def _called(make: Any, place: str) -> Any:
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # the function is a user's
        raise _failed(place, error) from None
