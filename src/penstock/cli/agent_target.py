"""Finds the agent that `file.py:name` or `module:name` refers to."""

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

_INSTALLED = {Path(penstock.__file__).resolve().parent} | {
    Path(get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
}
EXAMPLE = 'agent = penstock.Agent("openai:gpt-5", tools=[…])'


def find_agent(target: str, *, is_one_of_many: bool = False) -> Agent:
    """The agent. Errors in the target or in the user's code name the place.

    `is_one_of_many` if the command takes any number of agents.
    """
    place, name = _split(target)
    module = _load(place)
    value = _attribute(module, name, place) if name else _only_agent(module, place, is_one_of_many)
    if isfunction(value):
        return _call_factory(value, place, name or "agent")
    if not isinstance(value, Agent):
        raise UsageError(f"{target} is not an Agent but a value of type {type(value).__name__}: write {EXAMPLE}")
    return value


def find_named_agent(target: str, *, is_one_of_many: bool = False) -> Agent:
    """The agent, which must have a name: runs in a log find it by that."""
    agent = find_agent(target, is_one_of_many=is_one_of_many)
    if not agent.name:
        raise UsageError(
            f"the agent in {target} needs a name, which connects it with its runs: Agent(…, name='support')"
        )
    return agent


def _split(target: str) -> tuple[str, str]:
    """The file or module, and the name in it, which may be empty."""
    if _is_file(Path(target)):
        return target, ""
    place, _, name = target.rpartition(":")
    is_named = place and (not name or name.isidentifier())  # the colon of C:\agents.py is not followed by a name
    return (place, name) if is_named else (target, "")


def _load(place: str) -> ModuleType:
    path = Path(place)
    is_file = path.suffix == ".py" or _is_file(path)
    _check_place(path, is_file, place)
    sys.path.insert(0, str(path.resolve().parent if is_file else Path.cwd()))
    try:
        return _load_file(path) if is_file else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and f"{place}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no file or module {place}: use a path such as agent.py") from None
        raise _user_error(place, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # user code may raise anything
        raise _user_error(place, error) from None


def _check_place(path: Path, is_file: bool, place: str) -> None:
    """Checks the file or module name before anything is imported."""
    if is_file and not _is_file(path):
        raise UsageError(f"there is no file {place}")
    if is_file and path.suffix != ".py":
        raise UsageError(f"{place} is not a Python file")
    if not is_file and not all(part.isidentifier() for part in place.split(".")):
        kind = "a directory" if place and path.is_dir() else "neither a file nor a module name"
        raise UsageError(f"{place!r} is {kind}: use a Python file or a module, such as agent.py")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def _load_file(path: Path) -> ModuleType:
    name = f"penstock_run_{path.stem}"  # the stem alone may be the name of another module
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _user_error(place: str, error: BaseException) -> UsageError:
    """The error in the user's code, with the last line of that code."""
    if isinstance(error, SyntaxError):
        return UsageError(f"{error.filename or place}, line {error.lineno}: {error.msg}")
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_user_file(frame.filename)]
    where = f"{own[-1].filename}, line {own[-1].lineno}" if own else place
    is_relative = isinstance(error, ImportError) and "relative import" in str(error)
    hint = "; run it as a module, as in package.module" if is_relative else ""
    return UsageError(f"{where}: {type(error).__name__}: {error}{hint}")


def _is_user_file(filename: str) -> bool:
    """Whether a file is the user's, and not part of penstock, Python or an installed package."""
    path = Path(filename).resolve()
    return path.is_file() and not any(path.is_relative_to(folder) for folder in _INSTALLED)


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    if not hasattr(module, name):
        agents = ", ".join(_agents(module)) or "none"
        raise UsageError(f"there is no {name!r} in {place}; its agents are: {agents}")
    return getattr(module, name)


def _only_agent(module: ModuleType, place: str, is_one_of_many: bool) -> Any:
    if hasattr(module, "agent"):
        return module.agent
    agents = _agents(module)
    match list(agents.values()):
        case [agent]:
            return agent
        case []:
            raise UsageError(f"there is no agent in {place}: write {EXAMPLE}")
        case _:
            examples = [f"{place}:{name}" for name in agents][: 2 if is_one_of_many else 1]
            choice = f"name {'those that you want' if is_one_of_many else 'one'}, as in {' '.join(examples)}"
            raise UsageError(f"there are several agents in {place} ({', '.join(agents)}): {choice}")


def _agents(module: ModuleType) -> dict[str, Agent]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Agent)}


def _call_factory(factory: Any, place: str, name: str) -> Agent:
    try:
        agent = factory()
    except Exception as error:  # noqa: BLE001  # user code
        raise _user_error(f"{place}:{name}", error) from None
    if not isinstance(agent, Agent):
        value = "None" if agent is None else f"a value of type {type(agent).__name__}"
        raise UsageError(f"{name}() in {place} returned {value}: it must return a penstock.Agent")
    return agent
