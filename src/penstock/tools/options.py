"""What can be said of a tool beside what its function says, and whether it makes sense."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from penstock.errors import UnknownOptionError, UsageError
from penstock.tools.policy import StartPolicy

Approval = bool | Callable[[dict[str, Any]], bool]


class RunOptions(TypedDict, total=False):
    """How a tool is run: the part of `ToolOptions` that no model is told."""

    read_only: bool
    start: StartPolicy | None
    approval: Approval
    timeout: float | None
    retries: int | None
    parallel: bool
    deferred: bool


class ToolOptions(RunOptions, total=False):
    """What can be said of a tool.

    A `read_only` tool changes nothing, and so may start before its call is confirmed. `start` says when a call starts:
    as its arguments are `closed`, when the `call` is confirmed, or after the `turn`. `approval` asks a person first:
    always, or if a function of the arguments says so; it is given what the tool would get, converted and with its
    defaults, as a copy. `timeout` is in seconds. `retries` is how often the model may try again after failures in a
    row; None sets no bound. With `parallel=False` it does not run beside other tools. A `deferred` tool runs elsewhere:
    its function only declares it, and a run waits for what it is told by `provide`. `strict` asks the provider to hold
    the model to the schema.
    """

    name: str
    description: str
    strict: bool | None


def check_names(options: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for an option that there is not."""
    for option in options:
        if option not in _RULES:
            raise UnknownOptionError(option, _RULES, "a tool")


def check_options(options: Mapping[str, Any], label: str) -> None:
    """Raise a `UsageError` for an option that there is not, or whose value makes no sense."""
    check_names(options)
    for option, (holds, wanted) in _RULES.items():
        if option in options and not holds(options[option]):
            raise UsageError(f"the tool {label!r}: {option} is {options[option]!r}: give {wanted}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_approval(value: Any) -> bool:
    if not callable(value):
        return isinstance(value, bool)
    return not any(map(inspect.iscoroutinefunction, (value, type(value).__call__)))


_Rule = tuple[Callable[[Any], bool], str]
_RULES: dict[str, _Rule] = {
    "name": (_is_text, "a text"),
    "description": (_is_text, "a text"),
    "strict": (lambda value: value is None or _is_bool(value), "True, False or None"),
    "read_only": (_is_bool, "True or False"),
    "start": (lambda value: value in (None, "closed", "call", "turn"), "'closed', 'call' or 'turn'"),
    "approval": (_is_approval, "True, False or a plain function of the arguments"),
    "timeout": (lambda value: value is None or (_is_number(value) and value > 0), "seconds, or None"),
    "retries": (
        lambda value: value is None or (_is_number(value) and isinstance(value, int) and value >= 0),
        "a whole number of 0 or more, or None",
    ),
    "parallel": (_is_bool, "True or False"),
    "deferred": (_is_bool, "True or False"),
}
