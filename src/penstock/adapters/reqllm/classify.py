"""The functions of ReqLLM: classify a stream, extract its calls, and stream a response."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from penstock.adapters.responses import find_error
from penstock.adapters.wire_detector import ANY_WIRE, WireDetector
from penstock.agent.config import checked_model
from penstock.decoder import decode
from penstock.errors import ProviderError, UsageError
from penstock.events import Error, Event, FinishReason, StreamChunk, ToolCall, Usage
from penstock.framing.sdk_objects import as_mapping
from penstock.model.model import Model
from penstock.model.options import RequestOptions
from penstock.model.stream import Stream
from penstock.turn import Turn, check_iterable, collect
from penstock.wires import WIRES, WireName


class StreamResult(TypedDict):
    """A classified response. `error` is why it is an "error": the request or the stream failed, or a call is broken."""

    type: Literal["tool_calls", "final_answer", "error"]
    text: str
    tool_calls: list[ToolCall]
    finish_reason: FinishReason | None
    error: ProviderError | Error | None


def classify(chunks: Iterable[Any], wire: WireName | None = None) -> StreamResult:
    """Classifies a stream: Penstock's events, ReqLLM's chunks as dicts, or, with `wire`, a provider's own chunks."""
    return _result(collect(read_events(chunks, wire)))


def extract(chunks: Iterable[Any], wire: WireName | None = None) -> list[ToolCall]:
    """The complete calls of a stream, with parsed arguments."""
    return classify(chunks, wire)["tool_calls"]


def stream_text_and_classify(
    model: Model | str, messages: Any, *, tools: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
) -> StreamResult:
    """Sends a request and classifies the response; a provider's failure is a result of the type "error"."""
    try:
        with checked_model(model).stream(messages, tools, **options) as stream:
            return _result(collect(stream))
    except ProviderError as error:
        return StreamResult(type="error", text="", tool_calls=[], finish_reason="error", error=error)


def _result(turn: Turn) -> StreamResult:
    """The turn in the three types that there are here: what is neither calls to run nor an answer is an error."""
    error = find_error(turn)
    kind: Any = turn.type if error is None else "error"
    return StreamResult(
        type=kind, text=turn.text, tool_calls=turn.tool_calls, finish_reason=turn.finish_reason, error=error
    )


class StreamResponse:
    """A response that is being streamed: iterate over `stream`; the other properties are None until they are known."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __repr__(self) -> str:
        return f"StreamResponse({self.stream!r})"

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the model stopped; None while it streams."""
        return self.stream.finish_reason

    @property
    def model(self) -> str | None:
        """The model that answered, as the provider names it."""
        return self.stream.model or None

    @property
    def usage(self) -> Usage | None:
        """The token counts."""
        return self.stream.usage


def stream_text(
    model: Model | str, messages: Any, *, tools: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
) -> StreamResponse:
    """Sends a request; a failure before the first event is raised by reading the stream."""
    return StreamResponse(checked_model(model).stream(messages, tools, **options))


def read_events(chunks: Iterable[Any], wire: WireName | None) -> Iterable[StreamChunk]:
    """The events of a stream of any kind; without `wire`, that of a provider's chunks is detected."""
    if wire is not None:
        return decode(chunks, wire)
    check_iterable(chunks, "stream")
    items: list[Any] = [chunks] if isinstance(chunks, str | bytes | Mapping) else list(chunks)
    if all(isinstance(item, Event) for item in items):
        return items
    fields = [None if isinstance(item, str | bytes) else as_mapping(item) for item in items]
    if all(chunk and chunk.get("type") in _CHUNK_TYPES for chunk in fields):
        end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}  # unless a chunk has a finish reason
        return decode([*({"choices": [_choice(chunk or {})]} for chunk in fields), end], "openai-chat")
    return decode(items, _detect(items))


def _detect(items: list[Any]) -> WireName:
    detector = WireDetector()
    for item in items:
        if wire := detector.feed(item):
            return wire
    wire = detector.close() or (ANY_WIRE if detector.is_error else None)
    if wire is None:
        raise UsageError(f"no wire understands these chunks; pass wire=, one of: {', '.join(WIRES)}")
    return wire


_CHUNK_TYPES = ("content", "thinking", "tool_call", "tool_call_complete", "meta")
"""The types of ReqLLM's own chunks."""


def _choice(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """A chunk of ReqLLM as a choice of Chat Completions."""
    metadata: Any = chunk.get("metadata") or {}
    piece: Any = metadata.get("tool_call_args")
    match chunk["type"]:
        case "content":
            return {"delta": {"content": chunk.get("text")}}
        case "thinking":
            return {"delta": {"reasoning": chunk.get("text")}}
        case "tool_call":
            return _call(metadata.get("index"), metadata.get("id"), chunk.get("name"), chunk.get("arguments"))
        case "tool_call_complete":
            call = msgspec.to_builtins(chunk["tool_call"])  # a ToolCall, or a dict
            return _call(None, call.get("id"), call.get("name"), call.get("arguments"))
        case _ if piece:
            return _call(piece["index"], None, None, piece["fragment"])
        case _:
            return {"delta": {}, "finish_reason": metadata.get("finish_reason")}


def _call(index: Any, id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
    return {"delta": {"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": text}}]}}
