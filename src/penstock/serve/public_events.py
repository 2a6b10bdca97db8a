"""The public form of events: an allow-list of fields per event.

A tool's private `data`, vendor state, provider bodies, histories and the names of workers stay in the log. An event
that is not listed is not sent. Events keep their numbers, so a client may see gaps between them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.calls.sources import Sources
from penstock.errors import MissingKeyError
from penstock.events import (
    USAGE_COUNTS,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Retry,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.log.position import past_of
from penstock.messages import File, Image, Message, ToolResult
from penstock.run.events import (
    ApprovalRequest,
    Decision,
    Done,
    EndReason,
    HistoryReplaced,
    LogEvent,
    Nested,
    OutputInvalid,
    Reset,
    RunStart,
    Said,
    StepEnd,
    StepStart,
    Taken,
    ToolEnd,
    ToolPrepare,
    ToolProgress,
    ToolStart,
    Waiting,
)

PUBLIC_FIELDS: Mapping[type, tuple[str, ...]] = {
    Text: ("block", "text"),
    Reasoning: ("block", "text"),
    Refusal: ("block", "text"),
    ToolCallStart: ("block", "id", "name"),
    ToolCallDelta: ("block", "piece"),
    ToolCall: ("block", "id", "name", "arguments"),
    ToolCallInvalid: ("block", "id", "name", "why", "message"),
    Usage: (*USAGE_COUNTS, "cost"),
    Finish: ("reason", "model"),
    Error: ("code", "retryable"),
    Retry: (),
    StepStart: ("step",),
    StepEnd: ("step", "finish_reason"),
    ToolPrepare: ("call_id", "name"),
    ToolStart: ("call_id", "name", "arguments", "is_early", "order"),
    ToolProgress: ("call_id", "name", "data"),
    ToolEnd: ("call_id", "name", "ending", "started", "seconds"),
    ApprovalRequest: ("call_id", "name", "kind"),
    Decision: ("call_id", "approved", "reason"),
    Said: (),
    HistoryReplaced: (),
    OutputInvalid: ("problem",),
    Nested: ("path",),
    Done: ("reason", "output"),
    RunStart: ("agent",),
    Taken: ("epoch",),
    Waiting: (),
    Reset: (),
}
"""The fields of each event that a client may see; what is added to them is in `_MORE`."""

_ENDS: dict[EndReason, str] = {
    "error": "the run failed; the reason is in its log",
    "cut": "the answer was cut off before its end",
    "refused": "the model refused, or a filter ended its answer",
}

DAMAGED = "the log of the run is damaged; the operator of the server can repair it"
"""Why the stream of a run with a damaged log ends."""

PARKED = "the run could not be continued, and is parked; the operator of the server can retry it"
"""Why the stream of a parked run ends."""

NO_KEY = "the server has no API key for the provider of this agent: its operator must set it"
"""The message for a missing provider key of the server, which is not the client's key."""

SHORTENED = "… (shortened)"


def public_event(event: LogEvent) -> dict[str, Any] | None:
    """The public form of an event; None if clients do not see it."""
    if isinstance(event, Nested) and type(event.event) not in PUBLIC_FIELDS:
        return None
    fields = PUBLIC_FIELDS.get(type(event))
    if fields is None:
        return None
    public: dict[str, Any] = {"type": event.type}
    for name in fields:
        public[name] = getattr(event, name)
    if (more := _MORE.get(type(event))) is not None:
        public |= more(event)
    return public


def approval_hash(request: ApprovalRequest) -> str:
    """The hash of what a person was shown: a decision must name it, so that nobody approves something else."""
    shown = msgspec.json.encode([request.call_id, request.name, request.shown, request.kind], order="sorted")
    return hashlib.sha256(shown).hexdigest()[:32]


def public_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The public form of a history: texts, media, calls and results, without instructions and vendor state."""
    return [
        {"role": message.role, "parts": [part for part in map(_public_part, message.parts) if part is not None]}
        for message in messages
        if message.role != "system"
    ]


def _public_part(part: object) -> dict[str, Any] | None:
    match part:
        case ToolResult():
            return {"type": "tool_result", "call_id": part.call_id, "name": part.name, **public_result(part)}
        case Image() | File():
            return {"type": part.type, "url": part.url, "media_type": part.media_type}
        case Text() | Reasoning() | Refusal() | ToolCall() | ToolCallInvalid():
            return public_event(part)
        case _:
            return None


def public_result(result: ToolResult) -> dict[str, Any]:
    """The content of a result, as the model reads it."""
    media = [
        {"type": part.type, "url": part.url, "media_type": part.media_type}
        for part in result.content
        if isinstance(part, Image | File)
    ]
    return {"text": result.text, "is_error": result.is_error} | ({"media": media} if media else {})


def public_sources(sources: Sources) -> dict[str, list[dict[str, str]]]:
    """The sources of argument values, by path; that a value is in the instructions stays on the server."""
    return {
        path: [{"kind": source.kind, "name": source.name} for source in found if source.kind != "instructions"]
        for path, found in sources.items()
        if any(source.kind != "instructions" for source in found)
    }


def _public_error(event: Error) -> dict[str, Any]:
    words = "the provider reported an error; its words are in the log of the run"
    return {"message": NO_KEY if is_without_key(event) else words}


def is_without_key(event: Error) -> bool:
    """Whether the server has no key for the provider of a model."""
    return event.code == MissingKeyError.__name__


def public_end(event: Done) -> str:
    """Why a run has ended, for a client. Reasons that may quote a provider stay in the log."""
    return DAMAGED if event.why == DAMAGED else _ENDS.get(event.reason, event.why)


def _public_start(event: RunStart) -> dict[str, Any]:
    """The message that a run answers; earlier messages are in the thread."""
    last = event.messages[-1] if event.messages else None
    return {"prompt": last.text} if last is not None and last.role == "user" else {}


def _public_end(event: Done) -> dict[str, Any]:
    why = public_end(event)
    return {"usage": public_event(event.usage)} | ({"why": why} if why else {})


_MORE: dict[type, Callable[[Any], dict[str, Any]]] = {
    ToolEnd: lambda event: {"result": public_result(event.result)},
    ApprovalRequest: lambda event: {
        "shown": approval_hash(event),
        "arguments": event.shown,
        "sources": public_sources(event.sources),
    },
    Said: lambda event: {"text": event.message.text},
    RunStart: _public_start,
    Error: _public_error,
    Nested: lambda event: {"event": public_event(event.event)},
    Done: _public_end,
}


class EventFrames:
    """Writes public events as frames of server-sent events, each with its position."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._encoder = msgspec.json.Encoder()

    def frame(self, seq: int | None, at: float, event: LogEvent) -> bytes:
        """The frame of an event, with its time and its position; empty if clients do not see the event."""
        public = public_event(event)
        if public is None:
            return b""
        public["at"] = round(at, 3)
        body = self._encoder.encode(public)
        if len(body) > self._most:
            body = self._encoder.encode(_fitting(public, self._most))
        return b"%bdata: %b\n\n" % (b"" if seq is None else b"id: %d-%x\n" % (seq, past_of(at)), body)

    def reset(self) -> bytes:
        """The frame that tells a client to forget what it has received of the run."""
        return b"id: 0\n" + self.frame(None, time.time(), Reset())


def _fitting(public: dict[str, Any], most: int) -> dict[str, Any]:
    """An oversized public event, shortened; events of inner runs keep their path."""
    if public["type"] == Nested.type:
        return public | {"event": shortened(public["event"], most)}
    fitting: dict[str, Any] = shortened(public, most)
    return fitting


def shortened(value: Any, most: int) -> Any:
    """An oversized event, with its texts truncated and large list items removed.

    Empty lists stay: clients reject events without a required field.
    """
    match value:
        case str():
            return value if len(value) <= most // 16 else value[: most // 16] + SHORTENED
        case list():
            return [item for item in value[:16] if len(msgspec.json.encode(item)) <= most // 16]
        case dict():
            fields = {key: item for key, item in value.items() if len(str(key)) < 200}
            fields |= {key: shortened(item, most) for key, item in fields.items() if isinstance(item, list)}
            if len(msgspec.json.encode(fields)) > most:
                fields = {key: shortened(item, most // 4) for key, item in [*fields.items()][:16]}
            return fields | {"is_shortened": True}
        case _:
            return value
