"""Streams of any kind as events: ours, the chunks of a provider, and the chunks of ReqLLM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.adapters.wire_detector import ANY_WIRE, WireDetector
from penstock.decoder import decode
from penstock.errors import UsageError
from penstock.events import Event, StreamChunk
from penstock.framing.sdk_objects import as_mapping
from penstock.turn import check_iterable
from penstock.wires import WIRES, WireName


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
