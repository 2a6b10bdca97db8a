"""Doubtful ends: a response without an answer is asked for once more, before the client sees its end.

| the response has | after | the reason is | switch |
|---|---|---|---|
| nothing, or only white space | a tool result | `stop` or the one for calls | `empty_answers` |
| reasoning, and else only white space | any message | `stop` or the one for calls | `reasoning_only` |

Reasoning and white space of the first response are passed on at once. Its end, and vendor state, which belongs to a
response that the client may never see, are held back until there is content, or until it is clear that there is none.
Of the second response everything is held back so: if it fails, the client sees nothing of it.

| state | text, refusal or call | end | error |
|---|---|---|---|
| doubtful | done: all passes from here | ask once more, if a row above fits; else pass it on | done |
| asked again | done: all passes from here | pass on the second end | pass on the first end |
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from penstock.errors import ProviderError, UsageError
from penstock.events import Error, Finish, FinishReason, Opaque, Reasoning, Retry, StreamChunk, Text, Unknown, Usage
from penstock.gateway.answer import Answer, Upstreams, ask_again
from penstock.gateway.asking import Caller, wire_of
from penstock.gateway.attempts import Attempts
from penstock.gateway.config.settings import Watch
from penstock.gateway.watch.continued import ContinuedAnswer
from penstock.gateway.watch.reminders import is_reminder, reminder
from penstock.healing.report import ESTIMATED, HealingReport
from penstock.history.client_request import ClientRequest
from penstock.messages import Message
from penstock.wires import find_wire

EMPTY = "Your last response was empty. Go on with the task: write the answer, or call the next tool."
REASONING = "Your last response had only reasoning, which nobody else can see. Write the answer, or call the next tool."
ENDS = ("stop", "tool_calls")
"""The reasons after which a response should have content."""
MAX_SECOND = 50_000
"""How many events of the second response are held back; with more, it is passed on as it comes."""


def watch_answer(
    request: ClientRequest, answer: Answer, caller: Caller, upstreams: Upstreams, attempts: Attempts
) -> ContinuedAnswer | None:
    """The answer to a request, with what continues it if its end is doubtful; None if no switch is on.

    A response in rounds, for which the gateway runs tools, is not watched: it is continued already.
    """
    watch, upstream = answer.candidate.watch, answer.candidate.upstream
    if answer.rounds is not None or not (watch.empty_answers or watch.reasoning_only):
        return None
    end = DoubtfulEnd(watch, request, answer.upstream_request.report, find_wire(wire_of(upstream)).FINISH)
    return ContinuedAnswer(answer, end, lambda last, again: ask_again(last, again, caller, upstreams, attempts))


class DoubtfulEnd:
    """Watches the end of one response. Its states are in the table above; `reasons` are those of the upstream."""

    def __init__(
        self, watch: Watch, request: ClientRequest, report: HealingReport, reasons: Mapping[str, FinishReason]
    ) -> None:
        self._watch = watch
        self._request = request
        self._report = report
        self._reasons = reasons
        self._current = _End()
        self._first: _End | None = None  # the end that was not passed on, once the model was asked again
        self._has_failed = False  # the second response
        self._notes = 0  # those of the first response
        self.is_done = False

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events that the client gets now."""
        passed: list[StreamChunk] = []
        for chunk in chunks:
            if self.is_done:
                passed.append(chunk)
            elif not self._has_failed:
                passed += self._read(chunk)
        return passed

    def _read(self, chunk: StreamChunk) -> list[StreamChunk]:
        end, is_second = self._current, self._first is not None
        match chunk:
            case Reasoning():
                end.has_reasoning = end.has_reasoning or bool(chunk.text.strip())
            case Text() if not chunk.text.strip():
                pass
            case Usage():
                end.has_usage = True
                return end.hold(chunk) if end.reason or is_second else [chunk]
            case Finish(reason="cut" | "error") | Error() if is_second:
                self._has_failed = True
                self._report.note("the second response failed: the first end was passed on")
                return []
            case Finish():
                end.reason = chunk.client_work or self._reason(chunk)
                return end.hold(chunk)
            case Opaque():
                return end.hold(chunk)
            case Unknown() | Retry():
                return end.hold(chunk) if is_second else [chunk]
            case _:
                self.is_done = True
        self.is_done = self.is_done or len(end.held) >= MAX_SECOND
        return end.hold(chunk) if is_second and not self.is_done else end.release(chunk)

    def _reason(self, finish: Finish) -> str:
        """The reason of an end; without calls, the reason for calls is `other`."""
        sent = self._reasons.get(finish.raw_reason or "")
        return "tool_calls" if finish.reason == "other" and sent == "tool_calls" else finish.reason

    async def follow_up(self) -> ClientRequest | None:
        """The same request with a reminder, if the response has no answer and was not asked for twice."""
        if self._first is not None or self._current.reason not in ENDS:
            return None
        if self._current.has_reasoning:
            is_due, text, what = self._watch.reasoning_only, REASONING, "had only reasoning"
        else:
            is_due = self._watch.empty_answers and ends_with_result(self._request.messages)
            text, what = EMPTY, "was empty after a tool result"
        if not is_due:
            return None
        self._report.note(f"the response {what}: the model was asked once more")
        self._first, self._current, self._notes = self._current, _End(), len(self._report.notes)
        return replace(self._request, messages=(*self._request.messages, reminder(text)))

    def fail(self, error: ProviderError | UsageError) -> None:
        """The second request failed: the first end counts."""
        self._has_failed = True
        self._report.note(f"the second request failed, and the first end was passed on: {error}")

    def close(self) -> list[StreamChunk]:
        """The end of the response."""
        if self._first is None or not self._has_failed:
            return self._current.held
        if is_estimate := ESTIMATED in self._report.notes[self._notes :]:
            self._report.notes.remove(ESTIMATED)  # nobody gets this response
        usage = [chunk for chunk in self._current.held if isinstance(chunk, Usage) and not is_estimate]
        if not usage:
            return self._first.held
        return _with_usage(self._first.held, usage[-1])


class _End:
    """What is known of the end of one response. `held` may be dropped: the end, and vendor state before it."""

    __slots__ = ("has_reasoning", "has_usage", "held", "reason")

    def __init__(self) -> None:
        self.has_reasoning = self.has_usage = False
        self.reason = ""
        self.held: list[StreamChunk] = []

    def hold(self, chunk: StreamChunk) -> list[StreamChunk]:
        """Keep an event for the end."""
        self.held.append(chunk)
        return []

    def release(self, chunk: StreamChunk) -> list[StreamChunk]:
        """All events up to this one, in order."""
        released, self.held = [*self.held, chunk], []
        return released


def _with_usage(held: list[StreamChunk], usage: Usage) -> list[StreamChunk]:
    """The end of a response with another token count: the sum of both responses."""
    kept = [chunk for chunk in held if not isinstance(chunk, Usage)]
    place = next((place for place, chunk in enumerate(kept) if isinstance(chunk, Finish)), len(kept))
    return [*kept[:place], usage, *kept[place:]]


def ends_with_result(messages: tuple[Message, ...]) -> bool:
    """Whether the last message, apart from reminders of the client, has results of tools."""
    for message in reversed(messages):
        if message.results:
            return True
        if message.role == "assistant" or not is_reminder(message):
            return False
    return False
