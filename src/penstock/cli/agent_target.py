"""Which agent is meant by `file.py:name` or `module:name`."""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from sysconfig import get_path
from types import ModuleType
from typing import Any

import penstock
from penstock.agent.agent import Agent
from penstock.errors import UsageError

_FOREIGN = {Path(penstock.__file__).resolve().parent} | {
    Path(get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
}
EXAMPLE = 'agent = penstock.Agent("openai:gpt-5", tools=[…])'


def find_agent(target: str) -> Agent:
    """The agent that is meant; a mistake in the name, or in the file, is told with its place."""
    place, name = _split(target)
    module = _loaded(place)
    found = _named(module, name, place) if name else _only(module, place)
    if isfunction(found):
        return _made(found, place, name or "agent")
    if not isinstance(found, Agent):
        raise UsageError(f"{target} is no Agent but of the type {type(found).__name__}: write {EXAMPLE}")
    return found


def _split(target: str) -> tuple[str, str]:
    """The file or module, and the name in it, which may be missing."""
    if _is_file(Path(target)):
        return target, ""
    place, _, name = target.rpartition(":")
    return (place, name) if place else (target, "")


def _loaded(place: str) -> ModuleType:
    path = Path(place)
    is_file = path.suffix == ".py" or _is_file(path)
    _check(path, is_file, place)
    sys.path.insert(0, str(path.resolve().parent if is_file else Path.cwd()))
    try:
        return _from_file(path) if is_file else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and f"{place}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no file or module {place}: give a path such as agent.py") from None
        raise _failed(place, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the file is a user's, and may do anything
        raise _failed(place, error) from None


def _check(path: Path, is_file: bool, place: str) -> None:
    """Find what is wrong with the name, before anything is imported."""
    if is_file and not _is_file(path):
        raise UsageError(f"there is no file {place}")
    if is_file and path.suffix != ".py":
        raise UsageError(f"{place} is no Python file")
    if not is_file and not all(part.isidentifier() for part in place.split(".")):
        what = "a folder" if place and path.is_dir() else "neither a file nor the name of a module"
        raise UsageError(f"{place!r} is {what}: give a Python file or a module, such as agent.py")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long for one
        return False


def _from_file(path: Path) -> ModuleType:
    name = f"penstock_run_{path.stem}"  # not the stem alone, which may be that of a module of Python's
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _failed(place: str, error: BaseException) -> UsageError:
    """What went wrong in the user's code, with the last line that is theirs."""
    if isinstance(error, SyntaxError):
        return UsageError(f"{error.filename or place}, line {error.lineno}: {error.msg}")
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    where = f"{own[-1].filename}, line {own[-1].lineno}" if own else place
    is_relative = isinstance(error, ImportError) and "relative import" in str(error)
    hint = "; name it as a module, as in package.module" if is_relative else ""
    return UsageError(f"{where}: {type(error).__name__}: {error}{hint}")


def _is_theirs(filename: str) -> bool:
    """Whether a file is the user's: neither ours, nor Python's, nor that of another package that is installed."""
    path = Path(filename).resolve()
    return path.is_file() and not any(path.is_relative_to(folder) for folder in _FOREIGN)


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


def _made(make: Any, place: str, name: str) -> Agent:
    try:
        found = make()
    except Exception as error:  # noqa: BLE001  # the function is a user's
        raise _failed(f"{place}:{name}", error) from None
    if not isinstance(found, Agent):
        given = "None" if found is None else f"something of the type {type(found).__name__}"
        raise UsageError(f"{name}() in {place} gave {given}: have it return a penstock.Agent")
    return found
