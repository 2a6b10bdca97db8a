"""How an AG-UI stream ends: run finished, run waiting, server shutting down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, assert_never

import msgspec

from penstock.events import Usage
from penstock.run.events import ApprovalRequest, Done
from penstock.serve.ag_ui.messages import AGUIEvent
from penstock.serve.answers import approval_id
from penstock.serve.public_events import PARKED, public_end, public_sources

DECISION = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
"""The schema of the payload that answers an interrupt."""


class Head(Protocol):
    """The fields of a `RunHead` that the ends need."""

    @property
    def run_id(self) -> str: ...
    @property
    def thread_id(self) -> str: ...
    @property
    def client_run_id(self) -> str: ...
    @property
    def has_output(self) -> bool: ...


def finished(head: Head, event: Done) -> Iterator[AGUIEvent]:
    """The end of a run."""
    usage = [usage_of(event.usage)]
    match event.reason:
        case "error" | "cut" | "limit":
            yield {"type": "RUN_ERROR", "message": public_end(event), "code": event.reason, "usage": usage}
        case "cancelled":
            yield _run_finished(head, {"type": "cancelled"}, usage=usage)
        case "answered" | "length" | "refused" | "stopped" | "paused":
            output: Any = event.output
            if head.has_output and event.reason == "answered":
                output = msgspec.json.decode(event.output)
                yield {"type": "STATE_SNAPSHOT", "snapshot": {"output": output}}
            result = {"reason": event.reason, "output": output}
            yield _run_finished(head, {"type": "success"}, result=result, usage=usage)
        case _:
            assert_never(event.reason)


def paused(head: Head, requests: Sequence[ApprovalRequest]) -> AGUIEvent:
    """The end for a waiting run: approvals are interrupts, other calls are client tools."""
    interrupts = [_interrupt(head, request) for request in requests if request.kind == "approval"]
    if interrupts:
        return _run_finished(head, {"type": "interrupt", "interrupts": interrupts})
    calls = [request.call_id for request in requests]
    return _run_finished(head, {"type": "success", "pendingToolCallIds": calls})


def stopped() -> AGUIEvent:
    """The end for a server that shuts down before the run has finished."""
    return {"type": "RUN_ERROR", "message": "the server stopped; run the agent again to go on", "code": "stopped"}


def parked() -> AGUIEvent:
    """The end for a parked run."""
    return {"type": "RUN_ERROR", "message": PARKED, "code": "parked"}


def usage_of(usage: Usage) -> dict[str, int]:
    """Token counts in the form of AG-UI."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }


def _run_finished(head: Head, outcome: dict[str, Any], **fields: Any) -> AGUIEvent:
    names = {"threadId": head.thread_id, "runId": head.client_run_id}
    return {"type": "RUN_FINISHED", **names, "outcome": outcome, **fields}


def _interrupt(head: Head, request: ApprovalRequest) -> dict[str, Any]:
    return {
        "id": approval_id(head.run_id, request),
        "reason": "tool_call",
        "message": f"Approve the call of {request.name}?",
        "toolCallId": request.call_id,
        "responseSchema": DECISION,
        "metadata": {
            "toolName": request.name,
            "arguments": request.shown,
            "sources": public_sources(request.sources),
        },
    }
