"""A call that is about to run: what `before_call` sees, and what it may decide; and what `after_call` sees."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.calls.call_sources import CallSources
from penstock.calls.sources import Sources
from penstock.errors import HookError, UsageError, type_name
from penstock.jsontext.values import canonical_json, deep_copy
from penstock.messages import Message, ToolResult
from penstock.results import Outcome, ToolOutput, as_outcome
from penstock.run.commands import CallReview
from penstock.run.input_checks import checked_text
from penstock.sentences import not_run
from penstock.tools.tool import Tool
from penstock.transport.threads.worker_threads import in_own_thread


class PendingCall(Struct, frozen=True, kw_only=True, eq=False):
    """A call before anything of it runs. `before_call` returns one of its decisions, or None to let it run.

    - `id`, `name`, `arguments`: the call, with the JSON arguments that the model wrote and the hooks before changed.
    - `tool`: the tool of the agent; None if the provider defines it, and the client runs it.
    - `origin`: `native`, or `text:` and the dialect if the model wrote the call into its text.
    - `is_confirmed`: False if the response may still change the call: a tool that starts at `closed`.
    - `messages`: the history before the response with this call.
    - `deps`, `run_id`: what the program passed to the run, and its id.
    - `review`: what the hooks have decided so far.
    - `conversation`, `instructions`: where `sources` looks for the argument values.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    tool: Tool[..., Any] | None = None
    origin: str = "native"
    is_confirmed: bool = True
    deps: Any = None
    messages: tuple[Message, ...] = ()
    run_id: str = ""
    review: CallReview = CallReview()
    conversation: CallSources | None = None
    instructions: str = ""

    @property
    def is_in_text(self) -> bool:
        """Whether the model wrote the call into its text."""
        return self.origin.startswith("text:")

    @property
    def sources(self) -> Sources:
        """Which messages contain each string and number of the arguments, by its path: `to`, `items[0].price`.

        It is found when it is asked for, which takes time for what is new in the history: use `asources` in async code.
        """
        conversation = self.conversation or CallSources()
        return conversation.find(self.messages, self.instructions, self.arguments)

    async def asources(self) -> Sources:
        """`sources` for async hooks: they are found in a thread."""
        return await in_own_thread(lambda: self.sources, "sources")

    def with_arguments(self, arguments: Mapping[str, Any]) -> PendingCall:
        """Let it run with other arguments, which replace all of them; they are validated again.

        A person who is asked sees them, and the model reads them with the result.
        """
        values: Any = arguments
        try:
            if not isinstance(values, Mapping):
                raise TypeError
            copied: dict[str, Any] = json.loads(canonical_json(dict(values)))
        except (TypeError, ValueError, RecursionError):
            raise UsageError(
                f"call.with_arguments takes a dict that can be written as JSON, not {type_name(values)}"
            ) from None
        return replace(self, arguments=copied, review=replace(self.review, arguments=copied))

    def refuse(self, why: str) -> PendingCall:
        """Do not run it. The model reads why, a sentence."""
        sentence = checked_text("why", why).strip().removesuffix(".")
        if not sentence:
            raise UsageError("call.refuse needs a sentence: the model reads why the call did not run")
        return self._ended("refuse", ToolOutput(not_run(sentence), is_error=True))

    def answer(self, value: Any) -> PendingCall:
        """Do not run it: this is its result, anything that a tool may return."""
        return self._ended("answer", value)

    def ask(self, why: str = "") -> PendingCall:
        """Ask a person, who sees why, before it runs. Later hooks may still refuse or answer it."""
        return replace(self, review=replace(self.review, verdict="ask", why=checked_text("why", why).strip()))

    def _ended(self, verdict: Any, value: Any) -> PendingCall:
        return replace(self, review=replace(self.review, verdict=verdict, outcome=as_outcome(value)))


BeforeCall = Callable[[PendingCall], PendingCall | Awaitable[PendingCall | None] | None]
"""A hook that is called before each call."""
AfterCall = Callable[[PendingCall, ToolResult], Any]
"""A hook that is called with the result of each call that ran; it returns another result, or None."""


def decided(value: Any, call: PendingCall) -> PendingCall:
    """The call as a hook decided about it; a `HookError` if it returned something else."""
    if value is None:
        return call
    if not isinstance(value, PendingCall):
        expected = "None, or what call.with_arguments(…), refuse(…), answer(…) or ask(…) returns"
        raise HookError(f"before_call must return {expected}, not {type_name(value)}")
    if (value.id, value.name) != (call.id, call.name):
        raise HookError("before_call returned another call: return a decision about the call that it was called with")
    arguments = deep_copy(call.arguments if value.review.arguments is None else value.review.arguments)
    return replace(call, arguments=arguments, review=value.review)  # the hook may have changed its copy


def revised(value: Any, result: ToolResult, data: Any) -> Outcome | None:
    """The outcome that `after_call` returned; None if it leaves the result as it is.

    A plain value replaces what the model reads: whether the call failed, and what the program keeps, stays.
    """
    match value:
        case None:
            return None
        case Outcome() | ToolOutput():
            return as_outcome(value)
        case ToolResult():
            return Outcome(value.content, data, value.is_error, value.state)
        case _:
            outcome = as_outcome(value)
            if outcome.is_error:  # it has no JSON form
                raise HookError(
                    f"after_call must return None or a result that a model can read, not {type_name(value)}"
                )
            return Outcome(outcome.content, data, result.is_error)
