"""A run as the response of a model: the text of its steps, and then one end, or calls for the client.

The text of each step begins on a line of its own. An agent with structured output sends that alone.

Calls of the client's tools are written when the run waits for them, not while they grow: what the model withdraws or
gets wrong until then is repeated to the model, and no client has seen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from penstock.agent.reader_view import LineBreaks
from penstock.events import (
    USAGE_COUNTS,
    Error,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from penstock.log.store_retries import awith_retries
from penstock.run.events import (
    ApprovalRequest,
    Done,
    EndReason,
    LogEvent,
    StepStart,
    Waiting,
    innermost,
)
from penstock.serve.context import ModelApprovals
from penstock.serve.feeds.feed import Item
from penstock.serve.hosting import Host
from penstock.serve.models.client_calls import CallRef
from penstock.serve.models.runs import Answering
from penstock.serve.public_events import NO_KEY, PARKED, is_without_key, public_end

WITHDRAWN = "the model began its answer again"
DECLINED = "this client cannot approve calls"
_FINISH: dict[EndReason, FinishReason] = {
    "answered": "stop",
    "stopped": "stop",
    "length": "length",
    "refused": "content_filter",
}
"""The finish reasons for the ends of a run; any other end is an error response."""


PIECES = frozenset({Text, Reasoning, Refusal, ToolCallStart, ToolCallDelta})
"""Events that ask nobody, and end nothing."""


class ModelResponse:
    """The chunks of one response. It `is_over` when the run has finished, or waits for the client."""

    def __init__(self, host: Host, answering: Answering, approvals: ModelApprovals) -> None:
        self.is_over = False
        self._host = host
        self._run_id = answering.run_id
        self._tools = answering.tools
        self._approvals = approvals
        self._usage = answering.usage  # usage of earlier responses
        self._asked = dict(answering.asked)
        self._last_block = 0
        self._line_breaks = LineBreaks()
        self._has_text = False
        self._step = StepStart(1)
        self._is_withdrawable = True  # whether the client has nothing of the current attempt
        self._withdrawn = answering.withdrawn
        self._is_without_key = False  # whether that was the last error
        self._draft: list[StreamChunk] | None = None  # the text of a step that may not be the output
        if host.has_output(answering.agent):
            self._draft = []

    async def feed(self, items: Sequence[Item]) -> list[StreamChunk]:
        """The chunks for these events. Calls that need a person are answered by the server's setting."""
        chunks: list[StreamChunk] = []
        for item in items:
            event = item.event
            if item.seq in self._withdrawn:
                continue
            if isinstance(event, ApprovalRequest):
                self._asked[event.call_id] = item.seq
            if isinstance(request := innermost(event), ApprovalRequest):
                await self._answer(event, request)
            chunks += self._chunks(event)
            if isinstance(event, Waiting):
                chunks += await self._wait(item)
                if self.is_over:
                    break
        return chunks

    def feed_pieces(self, items: Sequence[Item]) -> list[StreamChunk] | None:
        """The chunks for these events, if all of them are pieces of the model's response; else None, and `feed` has to
        take them."""
        if any(type(item.event) not in PIECES for item in items):
            return None
        withdrawn = self._withdrawn
        return [chunk for item in items if item.seq not in withdrawn for chunk in self._chunks(item.event)]

    def _chunks(self, event: LogEvent) -> Sequence[StreamChunk]:
        match event:
            case Text():
                return self._text(event)
            case Reasoning() | Refusal():
                self._last_block = max(self._last_block, event.block)
                self._is_withdrawable = False
                return (event,)
            case StepStart():
                self._step = event
                self._begin_attempt()
                return ()
            case Error():
                self._is_without_key = is_without_key(event)
                return ()
            case Retry():
                is_unseen = self._is_withdrawable
                self._begin_attempt()
                return () if is_unseen else (Retry(WITHDRAWN),)  # its reason may be the words of a provider
            case Done():
                self.is_over = True
                return self._end(event)
            case _:
                return ()

    def _begin_attempt(self) -> None:
        """Begin the text of a step, or begin it again."""
        self._line_breaks.feed(self._step)
        self._is_withdrawable = True
        if self._draft is not None:
            self._draft = []  # what came before was not the output

    def _text(self, event: Text) -> Sequence[StreamChunk]:
        """The chunks for a piece of text. Each later step begins on its own line; structured output waits."""
        self._last_block = max(self._last_block, event.block)
        if self._draft is not None:
            self._draft.append(event)
            return ()
        self._is_withdrawable = False
        separated = self._line_breaks.feed(event)
        chunk = separated if self._has_text and isinstance(separated, Text) else event
        self._has_text = self._has_text or bool(event.text)
        return (chunk,)

    def _end(self, done: Done) -> Sequence[StreamChunk]:
        usage, draft = _difference(done.usage, self._usage), self._draft or ()
        if done.reason in _FINISH:
            return *draft, usage, Finish(_FINISH[done.reason])
        if self._is_without_key and done.reason == "error":
            return usage, Error(NO_KEY, "provider_key_missing"), Finish("error")
        code = "agent_failed" if done.reason == "error" else f"agent_{done.reason}"
        return usage, Error(public_end(done) or f"the run ended: {done.reason}", code), Finish("error")

    async def _wait(self, last: Item) -> Sequence[StreamChunk]:
        """The calls for the client, if the run cannot continue without their results, or has waited for them here."""
        row = await awith_retries(partial(self._host.store.find, self._run_id))
        if row is not None and row.state == "parked" and row.seq == last.seq:
            self.is_over = True
            return Error(PARKED, "agent_parked"), Finish("error")
        if row is None or (row.seq == last.seq and row.state != "waiting"):
            return ()
        run = await awith_retries(partial(self._host.read, row, last.seq))
        calls = [request for request in run.state.waiting if self._is_of_client(request)]
        if not calls or len(calls) < len(run.waiting):
            return ()
        self.is_over = True
        chunks = [self._call(request, self._last_block + number) for number, request in enumerate(calls, 1)]
        return *chunks, _difference(run.usage, self._usage), Finish("tool_calls")

    def _call(self, request: ApprovalRequest, block: int) -> ToolCall:
        id = CallRef(self._run_id, self._asked[request.call_id]).id
        raw = msgspec.json.encode(request.arguments).decode()
        return ToolCall(id, request.name, request.arguments, raw, block=block)

    def _is_of_client(self, request: ApprovalRequest) -> bool:
        return request.kind == "deferred" and request.name in self._tools

    async def _answer(self, event: LogEvent, request: ApprovalRequest) -> None:
        """Answer questions to a person; calls of client tools are left to the client."""
        row = await awith_retries(partial(self._host.store.find, self._run_id))
        if row is None or row.state == "over":
            return
        runs = self._host.runs
        if request.kind == "approval":
            if self._approvals == "wait":
                return
            is_approved = self._approvals == "approve"
            put = partial(runs.decide, row.id, request.call_id, is_approved, reason="" if is_approved else DECLINED)
        elif request is event and self._is_of_client(request):
            return
        else:
            put = partial(runs.provide, row.id, request.call_id, DECLINED, True)
        await self._host.put(row, put)
        self._host.driven.drive(row.id, row.tenant)


def _difference(usage: Usage, before: Usage) -> Usage:
    """The usage since an earlier usage."""
    return Usage(*(getattr(usage, name) - getattr(before, name) for name in USAGE_COUNTS))
