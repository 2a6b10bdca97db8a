"""The options of a tool, and the checks of their values."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict

from penstock.errors import UnknownOptionError, UsageError
from penstock.tools.policy import StartPolicy

Approval = bool | Callable[[dict[str, Any]], bool | Awaitable[bool]] | None


class ExecutionOptions(TypedDict, total=False):
    """The options that control how a tool runs; they are not sent to the model."""

    read_only: bool
    idempotent: bool
    start: StartPolicy | None
    approval: Approval
    expires: float | None
    timeout: float | None
    retries: int | None
    parallel: bool
    deferred: bool


class ToolOptions(ExecutionOptions, total=False):
    """The options of a tool.

    - `read_only`: the tool has no side effects, so it may start before its call is confirmed.
    - `idempotent`: running the tool twice for one call has the effect of running it once. It runs again if its process
      ended while it ran.
    - `start`: when a call starts: when its arguments are `closed`, when the `call` is confirmed, or after the `turn`.
    - `approval`: asks a person first: always (True), or if a function returns True for the arguments. The function gets
      a copy of the converted arguments with their defaults, and may be async. By default (None), a person is asked only
      about calls with side effects that `rescue` found in the text; False never asks.
    - `expires`: how many seconds a call waits for the person, or a deferred call for its result. Then it counts as
      declined, or as failed.
    - `timeout`: how many seconds a call may take.
    - `retries`: how often the model may retry after consecutive failures; None means no limit.
    - `parallel`: False if the tool must not run at the same time as others.
    - `deferred`: the tool runs elsewhere. Its function only declares it, and the run waits for a result (`provide`).
    - `strict`: asks the provider to enforce the schema.
    - `vendor`: the provider's own declaration of a tool that it defines and the function runs, such as
      `{"type": "bash_20250124", "name": "bash"}`. Name, description and schema are then the provider's.
    """

    name: str
    description: str
    strict: bool | None
    vendor: Mapping[str, Any]


def check_names(options: Mapping[str, Any]) -> None:
    """Raises an `UnknownOptionError` for an option that does not exist."""
    for option in options:
        if option not in _RULES:
            raise UnknownOptionError(option, _RULES, "a tool")


def check_options(options: Mapping[str, Any], label: str) -> None:
    """Raises a `UsageError` for an option that does not exist or has a wrong value."""
    check_names(options)
    for option, (holds, expected) in _RULES.items():
        if option in options and not holds(options[option]):
            raise UsageError(f"tool {label!r}: {option} must be {expected}, not {options[option]!r}")


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


_Rule = tuple[Callable[[Any], bool], str]
_RULES: dict[str, _Rule] = {
    "name": (_is_text, "a string"),
    "description": (_is_text, "a string"),
    "strict": (lambda value: value is None or _is_bool(value), "True, False or None"),
    "read_only": (_is_bool, "True or False"),
    "idempotent": (_is_bool, "True or False"),
    "start": (lambda value: value in (None, "closed", "call", "turn"), "'closed', 'call' or 'turn'"),
    "approval": (_is_approval, "True, False or a function of the arguments"),
    "expires": (_is_duration, "a positive number of seconds or None"),
    "timeout": (_is_duration, "a positive number of seconds or None"),
    "retries": (
        lambda value: value is None or (_is_number(value) and isinstance(value, int) and value >= 0),
        "a non-negative integer or None",
    ),
    "parallel": (_is_bool, "True or False"),
    "deferred": (_is_bool, "True or False"),
    "vendor": (lambda value: isinstance(value, Mapping), "the provider's declaration of the tool, a dict"),
}
