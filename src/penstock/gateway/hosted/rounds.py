"""Rounds of a response in which the gateway runs web tools: calls, results, and the next request to the model.

| a round ends | next |
|---|---|
| without a call of a web tool | the response ends as the round did |
| with such calls | they are shown and run, and their results are shown |
| with calls of the client's tools too | the response ends: the client has to answer these first |
| after `MAX_ROUNDS` | the model is asked without the web tools, so that it has to answer |
| by a limit, an error or a cut | nothing runs, and the response ends so |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import ProviderError, UsageError
from penstock.events import (
    Error,
    Finish,
    Opaque,
    StreamChunk,
    ToolCall,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.gateway.failures import in_band, rejection
from penstock.gateway.hosted.runners import WebTools
from penstock.gateway.hosted.uses import Uses, without_functions
from penstock.healing.report import HealingReport
from penstock.history.client_request import ClientRequest
from penstock.messages import Message, Part, tool_results
from penstock.run.limits import add_usage
from penstock.transport.commands import Take
from penstock.turn import TurnBuilder
from penstock.wires import find_web_form
from penstock.wires.shared.web_tools import (
    ARGUMENTS,
    TOO_MANY,
    WebCall,
    WebForm,
    WebResult,
    call_id,
    failed_result,
)

MAX_ROUNDS = 10
"""How many requests with web tools a response may take."""
RUNS = ("tool_calls", "stop")
"""The finish reasons after which calls run."""
Chunks = list[StreamChunk]


class Batches(Protocol):
    """The events of a response, one batch per network read."""

    async def next_batch(self, take: Take | None = None, /) -> Chunks | None: ...
    async def close(self) -> None: ...


class Begun(Protocol):
    """A response that has begun."""

    @property
    def first(self) -> Chunks: ...
    @property
    def stream(self) -> Batches: ...


Again = Callable[[ClientRequest], Awaitable[Begun]]
"""Asks the same upstream again."""


class RoundsContext(Struct, frozen=True, kw_only=True):
    """What the rounds of a response share."""

    id: str
    wire: str
    uses: Uses
    tools: WebTools
    report: HealingReport
    again: Again

    @property
    def form(self) -> WebForm:
        form = find_web_form(self.wire)
        assert form is not None, self.wire
        return form


class Rounds:
    """The events of all rounds as those of one response."""

    def __init__(self, begun: Begun, request: ClientRequest, context: RoundsContext) -> None:
        self._begun = begun
        self._batches = self._read(request, context)

    async def start(self) -> Chunks:
        """The first events."""
        return await anext(self._batches)

    async def next_batch(self, take: Take | None = None, /) -> Chunks | None:
        """The next events, of which there may be none; None at the end."""
        return await anext(self._batches, None)

    async def close(self) -> None:
        """Stop what runs, and close the connection to the upstream."""
        await self._batches.aclose()
        await self._begun.stream.close()

    async def _read(self, request: ClientRequest, context: RoundsContext) -> AsyncGenerator[Chunks]:
        shown, used = ShownEvents(context), Counter[str]()
        for number in range(1, MAX_ROUNDS + 2):
            events = Round(number, shown, context)
            yield events.feed(self._begun.first)
            while (chunks := await self._begun.stream.next_batch()) is not None:
                yield events.feed(chunks)
            await self._begun.stream.close()
            if not events.calls or events.end.reason not in RUNS or number > MAX_ROUNDS:
                yield events.close()
                return
            yield shown.calls(events.calls)
            results = await _run(events.calls, used, request, context)
            yield shown.results(events.calls, results)
            if events.has_other_calls:
                yield [replace(events.end, reason="tool_calls")]
                return
            request = _continued(request, events.message, [
                result.as_tool_result(call) for call, result in zip(events.calls, results, strict=True)
            ])  # fmt: skip
            try:
                self._begun = await context.again(
                    without_functions(request, context.uses) if number == MAX_ROUNDS else request
                )
            except (UsageError, ProviderError) as error:
                yield [in_band(rejection(error, is_client_key=False)), Finish("error")]
                return


def _continued(request: ClientRequest, message: Message, results: list[Any]) -> ClientRequest:
    """The request after a round. A call is not forced again: it has been made."""
    choice = request.settings.tool_choice
    settings = replace(request.settings, tool_choice=choice if choice in ("none", "auto") else "")
    return replace(request, messages=(*request.messages, message, tool_results(*results)), settings=settings)


async def _run(
    calls: list[WebCall], used: Counter[str], request: ClientRequest, context: RoundsContext
) -> list[WebResult]:
    """The results of the calls of a round, which run side by side."""

    async def run(call: WebCall) -> WebResult:
        use = context.uses[call.name]
        if use.max_uses is not None and used[call.name] >= use.max_uses:
            return failed_result(TOO_MANY)
        used[call.name] += 1
        result, why = await context.tools.run(use, call, request.messages)
        context.report.note(f"the gateway ran {call.name}")
        if why:
            context.report.note(f"{call.name} failed: {why}")
        return result

    return await asyncio.gather(*map(run, calls))


class ShownEvents:
    """The events that a client gets: with the blocks of all rounds numbered on, and their usage added up."""

    def __init__(self, context: RoundsContext) -> None:
        self._context = context
        self.offset = 0  # added to the numbers of the blocks of this round
        self._next = 0
        self._before = Usage()  # the usage of earlier rounds
        self._usage = Usage()

    def begin_round(self) -> None:
        self.offset, self._before = self._next, self._usage

    def add(self, chunk: StreamChunk) -> StreamChunk:
        """The event as the client gets it."""
        if isinstance(chunk, Usage):
            self._usage = replace(add_usage(self._before, chunk), raw=chunk.raw)
            return self._usage
        block: int | None = getattr(chunk, "block", None)
        if block is None:
            return chunk
        self._next = max(self._next, self.offset + block + 1)
        changed: Any = chunk
        return replace(changed, block=self.offset + block) if self.offset else chunk

    def calls(self, calls: list[WebCall]) -> Chunks:
        """The blocks of calls, in the protocols that have some."""
        blocks = [self._context.form.show_call(call) for call in calls]
        return [self._opaque(block) for block in blocks if block is not None]

    def results(self, calls: list[WebCall], results: list[WebResult]) -> Chunks:
        """The blocks of results."""
        show = self._context.form.show_result
        return [self._opaque(show(call, result)) for call, result in zip(calls, results, strict=True)]

    def _opaque(self, block: dict[str, Any]) -> Opaque:
        self._next += 1
        return Opaque(self._next - 1, self._context.wire, str(block["type"]), block)


class Round:
    """One response of the model: its calls of web tools are held back, all else is passed on."""

    def __init__(self, number: int, shown: ShownEvents, context: RoundsContext) -> None:
        self._number = number
        self._shown = shown
        self._context = context
        self._turn = TurnBuilder()
        self._held: set[int] = set()  # blocks of calls of web tools
        self.calls: list[WebCall] = []
        self.has_other_calls = False
        self.end = Finish("cut")
        shown.begin_round()

    def feed(self, chunks: Chunks) -> Chunks:
        """The events for the client."""
        return [self._shown.add(chunk) for chunk in chunks if self._is_shown(chunk)]

    def _is_shown(self, chunk: StreamChunk) -> bool:
        self._turn.add(chunk)
        match chunk:
            case ToolCallStart() if chunk.name in self._context.uses:
                self._held.add(chunk.block)
            case ToolCall() | ToolCallInvalid() if chunk.name in self._context.uses:
                self._held.add(chunk.block)
                self._add(chunk)
            case ToolCall() | ToolCallInvalid():
                self.has_other_calls = True
            case Finish():
                self.end = chunk
                return not self.calls
            case Error():
                return True
            case _:
                pass
        return getattr(chunk, "block", None) not in self._held

    def _add(self, chunk: ToolCall | ToolCallInvalid) -> None:
        arguments = chunk.arguments if isinstance(chunk, ToolCall) else {}
        value = arguments.get(ARGUMENTS[chunk.name])
        id = call_id(self._context.form, self._context.id, self._number, len(self.calls))
        self.calls.append(WebCall(id, chunk.name, value if isinstance(value, str) else ""))

    def close(self) -> Chunks:
        """The end of the response, if it was held back: its calls do not run."""
        if not self.calls:
            return []
        reason = self.end.reason if self.end.reason not in RUNS else "length"
        for call in self.calls:
            self._context.report.note(f"the call of {call.name!r} did not run: the response ended ({reason})")
        return [replace(self.end, reason=reason, raw_reason=None)]

    @property
    def message(self) -> Message:
        """The response as a message, with the calls as the client will send them back."""
        calls = iter(self.calls)
        parts: list[Part] = []
        for part in self._turn.build().parts:
            is_web = isinstance(part, ToolCall | ToolCallInvalid) and part.name in self._context.uses
            parts.append(next(calls).as_tool_call(part.block) if is_web else part)
        return Message("assistant", tuple(parts))
