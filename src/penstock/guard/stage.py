"""The stage between decoder and run that holds a response back until the guard has cleared it. It does no I/O.

Chunks stand in a queue, in the order in which they came. Text is cut into pieces, and each piece has a check; a chunk
leaves the queue when everything before it has left and its own check is cleared. So no tool can start before all text
that came before its call is cleared.

| what comes | what happens |
|---|---|
| text of a kind that is checked | it grows the open piece; a sentence or window that is complete is due |
| a call, vendor state, the end, another block | the open piece of the choice is complete, and due |
| a piece of a call, if calls are checked, or may be in the text | it waits until the call has ended |
| vendor state that is a call which the client runs | it waits for the check of the call, if calls are checked |
| the name of a tool that is not declared | it is checked as text, and its call waits for it |
| the end, an error | its words are checked as text, unless they are known ones |
| token counts, unknown frames | they wait in the queue; the open piece stays open |
| a withdrawn attempt | everything in the queue is void |
| a verdict: text | the check is cleared, and the queue moves |
| a verdict: `StopRun` | the queue ends before the piece, with `Finish("content_filter")`; what is open is void |
| no verdict: the guard failed | the queue ends before the piece, and the response fails when the queue is empty |
"""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from penstock.errors import GuardError
from penstock.events import (
    ArgumentDelta,
    Error,
    Finish,
    Opaque,
    OutputDelta,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.guard.call_checks import CallChecks, CallChunk, NameChecks
from penstock.guard.checks import Check, CheckQueue
from penstock.guard.guard import Guard, StopRun
from penstock.guard.held import HeldQueue
from penstock.guard.passing import Passing, own_text
from penstock.guard.provider_words import words_to_check
from penstock.guard.text_pieces import TextChunk, TextPieces

MAX_HELD = 1_000_000
"""How many characters of a response are held back; then the stream waits for the checks that run.

If none runs, because whole answers are checked, the run ends with an error.
"""

STOPPED_BY = "guard"
"""The `raw_reason` of a response stopped by the guard."""


def stopped(verdict: StopRun) -> Finish:
    """The end of a response that the guard stopped."""
    return Finish("content_filter", STOPPED_BY, verdict.why)


class GuardStage:
    """Chunks of one response to those that the guard has cleared.

    After each method, start the checks that `take_due` returns, and pass the verdict on each to `settle`, or call
    `fail` if there is none: `failure` then ends the response once everything before the piece was passed on. With
    `has_text_calls`, calls may come from the text of the response; a damaged one is checked as text. `declared` are the
    names of the tools, if the others are to be checked, and `models` those of the models that may answer.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        has_text_calls: bool = False,
        declared: Collection[str] | None = None,
        models: Collection[str] = (),
    ) -> None:
        self._guard = guard
        self._declared = declared
        self._models = models
        self._queue = HeldQueue()
        self._checks = CheckQueue(guard.parallel)
        self._texts = TextPieces(guard, self._queue, self._checks)
        self._calls = CallChecks(guard, self._checks, has_text_calls=has_text_calls)
        self._names = NameChecks(declared, self._checks)
        self._passing = Passing(declared or ())
        self._is_closed = False
        self.is_stopped = False
        self.failure: GuardError | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held back."""
        return self._queue.is_empty

    @property
    def is_checking(self) -> bool:
        """Whether checks run or are due."""
        return self._checks.is_busy

    @property
    def is_full(self) -> bool:
        """Whether no more can be held back."""
        return self._queue.size > MAX_HELD

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """Add chunks of the provider; returns the chunks that can be passed on now."""
        for chunk in () if self.is_stopped else chunks:
            self._add(chunk)
        return self._release()

    def close(self) -> list[StreamChunk]:
        """End the response; returns the chunks that can be passed on now. Others may wait for their checks."""
        self._texts.close_all()
        self._calls.close()
        self._is_closed = True
        return self._release()

    def take_due(self) -> list[Check]:
        """The checks to start now, in order."""
        return self._checks.take()

    def settle(self, check: Check, verdict: str | StopRun | None) -> list[StreamChunk]:
        """Store the verdict of the guard; returns the chunks that can be passed on now. None passes a call."""
        self._checks.end()
        if check.state == "void":
            return []
        if isinstance(verdict, StopRun):
            self._stop(check, verdict)
        else:
            self._checks.clear(check, check.text if verdict is None else verdict)
        return self._release()

    def fail(self, check: Check, error: GuardError) -> list[StreamChunk]:
        """Store that the guard failed; returns the chunks that can be passed on now. Earlier chunks still follow."""
        self._checks.end()
        if check.state != "void":
            self._cut(check)
            self.failure = error
        return self._release()

    def _add(self, chunk: StreamChunk) -> None:
        match chunk:
            case Text() | Reasoning() | Refusal():
                self._add_text(chunk)
            case ToolCallStart() | ToolCallDelta() | ToolCallClosed() | ToolCall() | ToolCallInvalid():
                self._add_call(chunk)
            case Opaque():
                self._add_state(chunk)
            case Finish():
                self._texts.close(chunk.choice)
                self._add_words(chunk)
            case Error():
                self._texts.close_all()
                self._add_words(chunk)
            case Retry():
                self._restart()
                self._queue.add(chunk)
            case Usage():
                self._queue.add_usage(chunk)
            case Unknown():
                self._queue.add(chunk)
            case ArgumentDelta() | OutputDelta():
                pass  # they are derived from what was passed on
            case _:
                assert_never(chunk)

    def _add_text(self, chunk: TextChunk) -> None:
        if chunk.type in self._guard.kinds:
            self._texts.add(chunk)
        else:
            self._texts.close(chunk.choice)
            self._queue.add(chunk, size=len(chunk.text))

    def _add_call(self, chunk: CallChunk) -> None:
        check = self._calls.find(chunk)
        if isinstance(chunk, ToolCallDelta):
            self._queue.add(chunk, check, len(chunk.piece))
        else:
            self._texts.close(chunk.choice)
            self._queue.add(chunk, check, name_check=self._names.find(chunk))

    def _add_words(self, chunk: Finish | Error) -> None:
        """Add the end or an error, with a check of what the provider says in it."""
        check: Check | None = None
        if words := words_to_check(chunk, self._models):
            check = Check("provider")
            self._checks.add_text(check, words)
        self._queue.add(chunk, check)

    def _add_state(self, state: Opaque) -> None:
        self._texts.close(state.choice)
        check = self._calls.find_item(state)
        text = own_text(state)
        if check is None and text and "reasoning" in self._guard.kinds:
            check = Check("reasoning")
            self._checks.add_text(check, text)
        self._queue.add(state, check, max(1, len(text)))

    def _release(self) -> list[StreamChunk]:
        """The chunks at the head of the queue that can be passed on."""
        if self._guard.by == "answer" and not (self._is_closed or self.is_stopped):
            return []
        chunks: list[StreamChunk] = []
        for held in self._queue.take():
            chunks += self._passing.through(held)
        return chunks

    def _stop(self, check: Check, verdict: StopRun) -> None:
        """End the response at this check, and pass on nothing after it; later failures do not count."""
        self._cut(check)
        self.failure = None
        self._queue.add(stopped(verdict))

    def _cut(self, check: Check) -> None:
        """Drop everything from this check on; with `by="answer"`, everything. Token counts stay."""
        self.is_stopped = True
        usage = self._queue.cut(None if self._guard.by == "answer" else check)
        self._texts.restart()
        if usage is not None:
            self._queue.add(usage)

    def _restart(self) -> None:
        """Start the response again: all held chunks are void."""
        self._queue.cut(None)
        self._checks.restart()
        self._texts.restart()
        self._calls.restart()
        self._names.restart()
        self._passing = Passing(self._declared or ())
