"""Reads Chat Completions chunks and parts of them, as dicts or SDK objects; refuses chunks of other protocols."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.adapters.wire_detector import WireDetector
from penstock.errors import UsageError, type_name
from penstock.framing.sdk_objects import DERIVED_EVENTS, as_mapping
from penstock.wires.shared.decode_response.loose import items

Choice = Mapping[str, Any]
"""A choice of a chunk: its `delta`, `message` and `finish_reason`. Of the first two only the calls are kept."""

_CALLS = ("tool_calls", "function_call")
_DELTA = (*_CALLS, "content", "role", "refusal", "reasoning", "reasoning_content")
_ENTRY_TYPES = ("function", "custom", "", None)


def read_choices(item: Any) -> Iterator[Choice]:
    """Yields the first choice of a chunk. `item` is a chunk, a part of one, a list of these, or None."""
    if item is None:
        return
    value = as_mapping(item)
    if value is None:
        if isinstance(item, str | bytes) or not isinstance(item, Iterable):
            raise UsageError(f"deltas must be a list of dicts or SDK objects, not {type_name(item)}")
        for part in item:
            yield from read_choices(part)
    else:
        yield from _read_mapping(value)


def _read_mapping(value: Mapping[str, Any]) -> Iterator[Choice]:
    kind = value.get("type")
    match value:
        case {"choices": choices}:
            for choice in map(as_mapping, choices or ()):
                if choice and not choice.get("index"):  # only the first of several choices
                    yield _with_plain_calls(choice)
        case {"type": "chunk", "chunk": chunk}:  # openai's `chat.completions.stream`
            yield from read_choices(chunk)
        case {"data": data, **rest} if not rest:  # mistralai wraps each chunk
            yield from read_choices(data)
        case {"function": _} | {"custom": _}:
            yield {"delta": {"tool_calls": [_plain(value)]}}
        case {"id": _} if kind in _ENTRY_TYPES and not value.keys() & {"object", "role", "created"}:
            yield {"delta": {"tool_calls": [_plain(value)]}}
        case {"delta": _} | {"message": _, "finish_reason": _} if kind is None:
            yield _with_plain_calls(value)
        case _ if kind is None and any(key in value for key in _DELTA):
            yield {"delta": _calls_in(value)}
        case _ if not (_is_derived(kind) or value.keys() <= {"usage", "error"}):
            raise UsageError(_refusal(value))
        case _:
            pass


def _with_plain_calls(choice: Mapping[str, Any]) -> Choice:
    return {**choice, "delta": _calls_in(choice.get("delta")), "message": _calls_in(choice.get("message"))}


def _calls_in(delta: Any) -> dict[str, Any]:
    """The calls of a delta or a message, as dicts."""
    fields = as_mapping(delta) or {}
    calls = {"tool_calls": [_plain(entry) for entry in items(fields.get("tool_calls"))]}
    return {**calls, "function_call": _plain(fields.get("function_call"))}


def _plain(entry: Any) -> Any:
    """An entry as a dict of dicts, if it is an SDK object."""
    fields = as_mapping(entry)
    return entry if fields is None else {key: as_mapping(field) or field for key, field in fields.items()}


def _is_derived(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith(DERIVED_EVENTS)


def _refusal(value: Mapping[str, Any]) -> str:
    detector = WireDetector()
    wire = detector.feed(value) or detector.close()
    name = f'"{wire}"' if wire else "..."
    return f"this is not a Chat Completions chunk: pass the stream to penstock.decode(stream, wire={name})"
