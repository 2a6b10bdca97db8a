"""The calls in a UI message: chunks for their arguments, their approval and their output.

A client refuses a chunk about a call that it does not know, so every call is remembered until its response is
withdrawn. Calls of tools that run on the server are marked with `providerExecuted`: a client runs the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal, assert_never

from msgspec import Struct

from penstock.events import ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart
from penstock.run.events import ApprovalRequest, Decision, ToolEnd, ToolProgress, ToolStart
from penstock.serve.ai_sdk.parts import output_of
from penstock.serve.answers import approval_id

Version = Literal[6, 7]
"""The version of the AI SDK. Version 6 ends a stream with an error at a chunk that only version 7 knows."""

Chunk = dict[str, Any]
"""A chunk of a UI message stream."""

WITHDRAWN = "the model withdrew this call"
NOT_RUN = "the run ended before this call did"


class _Call(Struct):
    """A call known to the client; its arguments are None while they stream."""

    name: str
    arguments: dict[str, Any] | None = None
    has_ended: bool = False
    is_of_client: bool = False
    approval: str = ""


class CallParts:
    """The calls of one run. Tools in `declared` have parts of their own type (`tool-NAME`), others are dynamic."""

    def __init__(self, run_id: str, version: Version, declared: Collection[str]) -> None:
        self._run_id = run_id
        self._version = version
        self._declared = declared
        self._calls: dict[str, _Call] = {}
        self._blocks: dict[int, str] = {}  # the calls of this step
        self._executions: dict[str, str] = {}  # the calls of tools that run, by the key of the execution

    def begin_step(self) -> None:
        """Begin a step; calls of the previous step can no longer be withdrawn."""
        self._blocks.clear()

    def withdraw(self) -> Iterator[Chunk]:
        """Withdraw the calls of this step; the chunks are for version 6, where they stay visible."""
        withdrawn = {id: self._calls.pop(id) for id in self._blocks.values() if id in self._calls}
        self._executions = {key: id for key, id in self._executions.items() if id in self._calls}
        self._blocks.clear()
        for id, call in withdrawn.items():
            if not call.has_ended:
                yield self._chunk("tool-input-error", id, call, input=call.arguments, errorText=WITHDRAWN)

    def abandon(self) -> Iterator[Chunk]:
        """End open calls of a finished run, except client calls: the client would send the message again."""
        for id, call in self._calls.items():
            if not call.has_ended and not call.is_of_client:
                yield {"type": "tool-output-error", "toolCallId": id, "errorText": NOT_RUN}

    # -- arguments -----------------------------------------------------------------------------------------------------

    def start(self, event: ToolCallStart) -> Iterator[Chunk]:
        call = self._calls[event.id] = _Call(event.name)
        self._blocks[event.block] = event.id
        yield self._chunk("tool-input-start", event.id, call, providerExecuted=True)

    def grow(self, event: ToolCallDelta) -> Iterator[Chunk]:
        id = self._blocks.get(event.block)
        if id is not None and event.piece and self._calls[id].arguments is None:
            yield {"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": event.piece}

    def complete(self, event: ToolCall) -> Iterator[Chunk]:
        self._blocks[event.block] = event.id
        yield from self._available(event.id, event.name, event.arguments)

    def refuse(self, event: ToolCallInvalid) -> Iterator[Chunk]:
        call = self._calls.setdefault(event.id, _Call(event.name))
        self._blocks[event.block] = event.id
        fields = {"input": event.arguments_raw, "errorText": event.message or event.why}
        yield self._chunk("tool-input-error", event.id, call, **fields, providerExecuted=True)

    def _available(self, id: str, name: str, arguments: dict[str, Any]) -> Iterator[Chunk]:
        """The chunks for known arguments: the call is complete, or its tool starts earlier, or with other arguments."""
        call = self._calls.setdefault(id, _Call(name))
        if call.arguments != arguments:
            call.arguments = arguments
            yield self._chunk("tool-input-available", id, call, input=arguments, providerExecuted=True)

    # -- approval ------------------------------------------------------------------------------------------------------

    def ask(self, event: ApprovalRequest) -> Iterator[Chunk]:
        call = self._calls.setdefault(event.call_id, _Call(event.name))
        match event.kind:
            case "approval":
                yield from self._available(event.call_id, event.name, event.shown)
                call.approval = approval_id(self._run_id, event)
                yield {"type": "tool-approval-request", "approvalId": call.approval, "toolCallId": event.call_id}
            case "deferred":
                call.arguments, call.is_of_client = event.arguments, True
                fields = {"input": event.arguments, "providerExecuted": False}
                yield self._chunk("tool-input-available", event.call_id, call, **fields)
            case "input":
                question = {"toolCallId": event.call_id, "toolName": event.name, "question": event.arguments}
                yield {"type": "data-question", "id": event.call_id, "data": question}
            case _:
                assert_never(event.kind)

    def decide(self, event: Decision) -> Iterator[Chunk]:
        call = self._calls.get(event.call_id)
        if call is None or not call.approval:
            return
        if self._version == 7:
            response = {"approvalId": call.approval, "approved": event.approved}
            yield {"type": "tool-approval-response", **response, **({"reason": event.reason} if event.reason else {})}
        else:  # so that a page that reads the stream again does not ask again
            yield self._chunk("tool-input-available", event.call_id, call, input=call.arguments)

    # -- output --------------------------------------------------------------------------------------------------------

    def run(self, event: ToolStart) -> Iterator[Chunk]:
        self._executions[event.key] = event.call_id
        yield from self._available(event.call_id, event.name, event.arguments)

    def report(self, event: ToolProgress) -> Iterator[Chunk]:
        if self._executions.get(event.key) in self._calls:
            output = {"toolCallId": event.call_id, "output": event.data}
            yield {"type": "tool-output-available", **output, "preliminary": True}

    def end(self, event: ToolEnd) -> Iterator[Chunk]:
        self._executions.pop(event.key, None)
        yield from self.settle(event)

    def settle(self, event: ToolEnd) -> Iterator[Chunk]:
        """Mark a call as finished, perhaps in an inner run, whose executions have their own keys."""
        call, id = self._calls.get(event.call_id), event.call_id
        if call is None or event.ending == "discarded":
            return
        call.has_ended = True
        if event.ending == "declined":
            yield {"type": "tool-output-denied", "toolCallId": id}
        elif event.ending == "done" and not event.result.is_error:
            yield {"type": "tool-output-available", "toolCallId": id, "output": output_of(event.result)}
        else:
            yield {"type": "tool-output-error", "toolCallId": id, "errorText": event.result.text}

    def _chunk(self, type: str, id: str, call: _Call, **fields: Any) -> Chunk:
        dynamic = {} if call.name in self._declared else {"dynamic": True}
        return {"type": type, "toolCallId": id, "toolName": call.name or "unknown", **dynamic, **fields}
