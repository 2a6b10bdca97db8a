"""The policy of a tool: when its calls may start, and on which conditions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Literal

from msgspec import Struct

from penstock.calls.sources import Sources
from penstock.jsontext.values import deep_copy
from penstock.messages import Message
from penstock.results import Outcome, failure
from penstock.tools.interrupts import is_of_signal_handler
from penstock.tools.signature import count_required

StartPolicy = Literal["closed", "call", "turn"]
Approvals = Literal["pause", "wait"]
"""What a run does while its calls wait for approval: it ends as paused, or it keeps waiting."""
ToolExceptions = Literal["report", "raise"]
"""What an exception in a tool does: it is reported, and the model reads it, or it ends the run."""

DEFAULT_RETRIES = 3
"""How often a model may retry a tool after consecutive failures, unless the tool sets `retries`."""


class ToolPolicy(Struct, frozen=True, kw_only=True):
    """When the calls of a tool may start, and on which conditions.

    `check` returns the validated arguments or raises if they do not fit, and `json_form` the JSON form of one of them.
    `needs_approval` is True, or a predicate that
    is called with its result and, if it takes two parameters, with the sources of the arguments; it may be async.
    Calls of a tool that `is_deferred` run elsewhere; if it also `is_hosted`, mostly at its provider. A tool with the
    start policy `closed` is read-only. One that `is_idempotent` may run twice for one call, with the same effect as
    once. With `asks_if_in_text`, a call that was found in the text needs approval. `expires` is how many seconds a call
    waits for approval, or for its result. `new_run` is for a tool that is an agent: it makes the run of a call from its
    first messages. `parallel` is the place of its calls in the order of a response: None for that of reads and effects,
    False for a tool that runs alone, True for one that holds nobody and is held by nobody. A tool that `prepares` has a
    function without side effects that may run before it starts; if it `grows`, before the arguments are complete.
    """

    start: StartPolicy = "turn"
    needs_approval: Callable[..., Any] | bool = False
    check: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    json_form: Callable[[str, Any], Any] | None = None
    timeout: float | None = None
    expires: float | None = None
    retries: int | None = None
    parallel: bool | None = None
    is_deferred: bool = False
    is_hosted: bool = False
    is_read_only: bool = False
    is_idempotent: bool = False
    asks_if_in_text: bool = False
    new_run: Callable[[list[Message]], Any] | None = None
    prepares: bool = False
    grows: bool = False

    @property
    def may_have_effect(self) -> bool:
        """Whether the tool may have side effects."""
        return not self.is_read_only and self.start != "closed"

    @property
    def has_early_calls(self) -> bool:
        """Whether something of a call may run when its arguments have closed: the tool, or what prepares it."""
        return self.start == "closed" or self.prepares

    @property
    def may_run_again(self) -> bool:
        """Whether a call that was interrupted may run again, although it may have had its effect already.

        An agent continues where it was: its tools follow their own policies.
        """
        return self.is_idempotent or self.new_run is not None or not self.may_have_effect

    @property
    def takes_sources(self) -> bool:
        """Whether the approval predicate takes the sources of the arguments too."""
        return callable(self.needs_approval) and count_required(self.needs_approval) > 1

    def requires_approval(
        self, arguments: dict[str, Any], *, is_in_text: bool = False, sources: Sources | None = None
    ) -> bool | Outcome | Awaitable[Any]:
        """Whether a person must approve the call (also if the predicate raises), or the error of the arguments.

        The answer of an async predicate is to be awaited.
        """
        asks = is_in_text and self.asks_if_in_text
        if not self.needs_approval and not asks:
            return False
        checked = self.check_arguments(arguments)
        if isinstance(checked, Outcome):
            return checked
        if not callable(self.needs_approval):
            return True
        try:
            answer = self.needs_approval(checked, sources or {}) if self.takes_sources else self.needs_approval(checked)
            return answer if isawaitable(answer) else bool(answer)
        except BaseException as error:  # the predicate is user code
            if isinstance(error, KeyboardInterrupt) or is_of_signal_handler(error):
                raise
            return True

    def check_arguments(self, arguments: dict[str, Any]) -> dict[str, Any] | Outcome:
        """A validated copy of the arguments, or the error that they cause."""
        copied: dict[str, Any] = deep_copy(arguments)
        try:
            return copied if self.check is None else self.check(copied)
        except BaseException as error:  # validators are user code
            if isinstance(error, KeyboardInterrupt) or is_of_signal_handler(error):
                raise
            return failure(error)

    def shown_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the tool gets, as JSON for a person: converted, with defaults.

        A value without a JSON form is shown as the model wrote it; a default without one is not shown.
        """
        checked = self.check_arguments(arguments)
        shown: dict[str, Any] = {}
        if isinstance(checked, Outcome) or self.json_form is None:
            return {**deep_copy(arguments)}
        for name in dict.fromkeys((*arguments, *checked)):
            try:
                shown[name] = self.json_form(name, checked[name])
            except Exception:  # noqa: BLE001  # serializers are user code
                shown |= {name: deep_copy(arguments[name])} if name in arguments else {}
        return shown
