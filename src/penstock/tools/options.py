"""The options of a tool, and the checks of their values."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypedDict, get_type_hints

from penstock.calls.sources import Sources
from penstock.errors import UnknownOptionError, UsageError
from penstock.tools.policy import StartPolicy

Prepare = Callable[..., Any] | None
Asks = bool | Awaitable[bool]
Approval = bool | Callable[[dict[str, Any]], Asks] | Callable[[dict[str, Any], Sources], Asks] | None


class Arguments(Protocol):
    """The arguments of a tool: their JSON Schema, and their validation."""

    parameters: dict[str, Any]

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the keyword arguments for the function, or raises an `ArgumentsError`."""
        ...

    def to_json(self, name: str, value: Any) -> Any:
        """The JSON form of one of them; raises if it has none."""
        ...


class ExecutionOptions(TypedDict, total=False):
    """The options that control how a tool runs; they are not sent to the model."""

    read_only: bool
    idempotent: bool
    start: StartPolicy | None
    approval: Approval
    expires: float | None
    timeout: float | None
    retries: int | None
    parallel: bool | None
    deferred: bool
    prepare: Prepare


class ToolOptions(ExecutionOptions, total=False):
    """The options of a tool, which `penstock.tool` explains."""

    name: str
    description: str
    strict: bool | None
    vendor: Mapping[str, Any]


def check_names(options: Mapping[str, Any]) -> None:
    """Raises an `UnknownOptionError` for an option that does not exist."""
    for option in options:
        if option not in _TYPES:
            raise UnknownOptionError(option, _TYPES, "a tool")


def check_options(options: Mapping[str, Any], label: str) -> None:
    """Raises a `UsageError` for an option that does not exist or has a wrong value."""
    check_names(options)
    for option, value in options.items():
        holds, expected = _RULES[_TYPES[option]]
        if not holds(value):
            raise UsageError(f"tool {label!r}: {option} must be {expected}, not {value!r}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_duration(value: Any) -> bool:
    return value is None or (_is_number(value) and value > 0)


def _is_approval(value: Any) -> bool:
    return value is None or isinstance(value, bool) or callable(value)


_TYPES = get_type_hints(ToolOptions)
_RULES: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (_is_text, "a string"),
    bool: (_is_bool, "True or False"),
    bool | None: (lambda value: value is None or _is_bool(value), "True, False or None"),
    int | None: (
        lambda value: value is None or (_is_number(value) and isinstance(value, int) and value >= 0),
        "a non-negative integer or None",
    ),
    float | None: (_is_duration, "a positive number of seconds or None"),
    StartPolicy | None: (lambda value: value in (None, "closed", "call", "turn"), "'closed', 'call' or 'turn'"),
    Prepare: (lambda value: value is None or callable(value), "a function, or None"),
    Approval: (_is_approval, "True, False or a function of the arguments, or of the arguments and their sources"),
    Mapping[str, Any]: (lambda value: isinstance(value, Mapping), "the provider's declaration of the tool, a dict"),
}
"""What a value must be, by the type of the option."""
