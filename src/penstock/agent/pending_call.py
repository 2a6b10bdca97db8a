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
from penstock.transport.threads.loop_thread import close_coroutine
from penstock.transport.threads.worker_threads import in_own_thread


class PendingCall(Struct, frozen=True, kw_only=True, eq=False):
    """A call before anything of it runs. `before_call` returns one of its decisions, or None to let it run.

    - `id`, `name`: those of the call.
    - `arguments`: what the tool will get: converted to its types, with the defaults of those that the model omitted.
      Each hook has a copy.
    - `raw_arguments`: the JSON that the model wrote, or that a hook before changed.
    - `tool`: the tool of the agent; None if the provider defines it, and the client runs it.
    - `origin`: `native`, or `text:` and the dialect if the model wrote the call into its text.
    - `is_confirmed`: False if the response may still change the call: a tool that starts at `closed`.
    - `messages`: the history before the response with this call.
    - `deps`, `run_id`: what the program passed to the run, and its id.
    - `review`: what the hooks have decided so far.
    - `conversation`, `instructions`: where `sources` looks for the argument values.
    - `written`: `raw_arguments`, if `arguments` were converted.
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
    written: dict[str, Any] | None = None

    @property
    def raw_arguments(self) -> dict[str, Any]:
        """The arguments as JSON, before they were converted."""
        return self.arguments if self.written is None else self.written

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
        return conversation.find(self.messages, self.instructions, self.raw_arguments)

    async def asources(self) -> Sources:
        """`sources` for async hooks: they are found in a thread."""
        return await in_own_thread(lambda: self.sources, "sources")

    def with_arguments(self, arguments: Mapping[str, Any]) -> PendingCall:
        """Let it run with other arguments, which replace all of them; they are validated again.

        They are JSON values, or values of the tool's types: `{**call.arguments, "path": path}`. A person who is asked
        sees them, and the model reads them with the result.
        """
        values: Any = arguments
        if self.review.outcome is not None:
            return self
        try:
            if not isinstance(values, Mapping):
                raise TypeError
            copied = self._as_written(values)
        except (TypeError, ValueError, RecursionError):
            raise UsageError(
                f"call.with_arguments takes a dict that can be written as JSON, not {type_name(values)}"
            ) from None
        return replace(self, arguments=dict(values), written=copied, review=replace(self.review, arguments=copied))

    def refuse(self, why: str) -> PendingCall:
        """Do not run it. The model reads why, a sentence."""
        sentence = checked_text("why", why).strip().removesuffix(".")
        if not sentence:
            raise UsageError("call.refuse needs a sentence: the model reads why the call did not run")
        return self._ended("refuse", ToolOutput(not_run(sentence), is_error=True))

    def answer(self, value: Any) -> PendingCall:
        """Do not run it: this is its result, anything that a tool may return."""
        return self if self.review.verdict == "refuse" else self._ended("answer", value)

    def ask(self, why: str = "") -> PendingCall:
        """Ask a person, who sees why and the reasons of hooks before, before it runs.

        Later hooks may still refuse or answer it. A call that was refused or answered does not run, so nobody is asked.
        """
        reason = checked_text("why", why).strip()
        if self.review.outcome is not None:
            return self
        return replace(self, review=replace(self.review, verdict="ask", why=joined(self.review.why, reason)))

    def _ended(self, verdict: Any, value: Any) -> PendingCall:
        return replace(self, review=replace(self.review, verdict=verdict, outcome=as_outcome(value)))

    def _as_written(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """These arguments as JSON: as the model wrote those that are the same, and without defaults."""
        raw, written = self.raw_arguments, dict[str, Any]()
        shown = self._shown_arguments()
        for name, value in values.items():
            if name not in shown or not self._is_same(name, value, shown[name]):
                written[str(name)] = self._json_form(name, value)
            elif name in raw:
                written[name] = raw[name]
        return written

    def _shown_arguments(self) -> dict[str, Any]:
        """What the hook was shown; it may have changed its copy."""
        try:
            return {} if self.tool is None else self.tool.complete_arguments(deep_copy(self.raw_arguments))
        except Exception:  # noqa: BLE001  # validators are user code
            return {}

    def _is_same(self, name: str, value: Any, shown: Any) -> bool:
        try:
            return canonical_json(self._json_form(name, value)) == canonical_json(self._json_form(name, shown))
        except Exception:  # noqa: BLE001  # it has no JSON form, or its serializer raised, which is user code
            return value is self.arguments.get(name)

    def _json_form(self, name: str, value: Any) -> Any:
        return json.loads(canonical_json(value)) if self.tool is None else self.tool.json_form(name, value)


BeforeCall = Callable[[PendingCall], PendingCall | Awaitable[PendingCall | None] | None]
"""A hook that is called before each call."""
AfterCall = Callable[[PendingCall, ToolResult], Any]
"""A hook that is called with the result of each call that ran; it returns another result, or None."""


def joined(reasons: str, reason: str) -> str:
    """The reasons to ask a person, with one more unless it is among them."""
    if not reasons or not reason or reason in reasons:
        return reasons or reason
    return f"{reasons}{'' if reasons[-1] in '.!?…' else ';'} {reason}"


def decided(value: Any, call: PendingCall) -> PendingCall:
    """The call as a hook decided about it; a `HookError` if it returned something else.

    What the hooks before it decided stays, also if it returned a call without that.
    """
    if value is None:
        return call
    if not isinstance(value, PendingCall):
        close_coroutine(value)
        expected = "None, or what call.with_arguments(…), refuse(…), answer(…) or ask(…) returns"
        raise HookError(f"before_call must return {expected}, not {type_name(value)}")
    if (value.id, value.name) != (call.id, call.name):
        raise HookError("before_call returned another call: return a decision about the call that it was called with")
    before, review = call.review, value.review
    if not _is_sound(review):
        raise HookError("before_call returned a call with a review of its own: use call.refuse(…), ask(…) and others")
    if before.verdict == "ask" and review.outcome is None:
        why = review.why if review.why.startswith(before.why) else joined(before.why, review.why)
        review = replace(review, verdict="ask", why=why)
    changed = before.arguments if review.arguments is None else deep_copy(review.arguments)  # the hook may keep it
    written = call.raw_arguments if changed is None else changed
    return replace(call, written=written, review=replace(review, arguments=changed))


def _is_sound(review: Any) -> bool:
    """Whether a review is one that the methods of `PendingCall` make."""
    if not isinstance(review, CallReview):
        return False
    arguments: Any = review.arguments
    why: Any = review.why
    outcome: Any = review.outcome
    has_types = isinstance(arguments, dict | None) and isinstance(why, str) and isinstance(outcome, Outcome | None)
    return has_types and review.verdict in (("go", "ask") if outcome is None else ("refuse", "answer"))


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
            return Outcome(as_outcome(value).content, data, value.is_error, value.state)
        case _:
            close_coroutine(value)
            outcome = as_outcome(value)
            if outcome.is_error:  # it has no JSON form
                raise HookError(
                    f"after_call must return None or a result that a model can read, not {type_name(value)}"
                )
            return Outcome(outcome.content, data, result.is_error)
