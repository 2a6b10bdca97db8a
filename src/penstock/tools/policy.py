"""What a run knows about a tool: when it may start, and under what conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from penstock.jsontext.values import deep_copy
from penstock.tools.outcome import Outcome, failure

StartPolicy = Literal["closed", "call", "turn"]

DEFAULT_RETRIES = 3
"""How often a model may try a tool again after failures in a row, unless the tool says otherwise."""


class ToolPolicy(Struct, frozen=True, kw_only=True):
    """What the machine knows of a tool: when it may start, and under what conditions.

    `check` gives what the tool will get of the arguments, or raises if they do not fit; `needs_approval` is asked of
    that. The calls of one that `is_deferred` run elsewhere. What starts as `closed` is read-only.
    """

    start: StartPolicy = "turn"
    needs_approval: Callable[[dict[str, Any]], bool] | None = None
    check: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    timeout: float | None = None
    retries: int | None = None
    is_parallel: bool = True
    is_deferred: bool = False
    is_read_only: bool = False

    @property
    def may_have_effect(self) -> bool:
        """Whether it matters that it ran, or ran in part."""
        return not self.is_read_only and self.start != "closed"

    def requires_approval(self, arguments: dict[str, Any]) -> bool | Outcome:
        """Whether a person is to be asked, also if that cannot be told; or what is wrong with the arguments."""
        if self.needs_approval is None:
            return False
        given = self.check_arguments(arguments)
        if isinstance(given, Outcome):
            return given
        try:
            return bool(self.needs_approval(given))
        except (Exception, SystemExit):  # noqa: BLE001  # the predicate is a user's code
            return True

    def check_arguments(self, arguments: dict[str, Any]) -> dict[str, Any] | Outcome:
        """What the tool will get of the arguments, all of it copies; or what is wrong with them."""
        given: dict[str, Any] = deep_copy(arguments)
        try:
            return given if self.check is None else self.check(given)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # checking runs a user's validators
            return failure(error)
