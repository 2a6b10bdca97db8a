"""Converts received events to the events of a local run.

Fields that do not leave the server have their defaults: a tool's private data, instructions and vendor state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.events import Reasoning, Refusal, Retry, Text, ToolCall, ToolCallInvalid, Unknown
from penstock.messages import File, Image, Message, Part, ToolResult, user
from penstock.run.events import Done, Nested, OutputInvalid, RunStart, Said, StreamEvent, ToolEnd

HIDDEN = ("run_start", "taken", "waiting")
"""Events of a log that a local run does not have."""


def received_event(public: Mapping[str, Any]) -> StreamEvent | None:
    """The event of a run; None if a local run has no such event. Unknown types become `Unknown`."""
    type = public.get("type")
    if type in HIDDEN:
        return None
    try:
        if (make := _MAKERS.get(type or "")) is not None:
            return make(public)
        event: StreamEvent = msgspec.convert({**_DEFAULTS.get(type or "", {}), **_keyed(public)}, StreamEvent)
        return event
    except (msgspec.ValidationError, KeyError, TypeError):
        return Unknown(dict(public), "an event of the server that this version does not know")


def _keyed(public: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's execution has the key of its call: a server sends one execution of each."""
    return {"key": public["call_id"], **public} if "call_id" in public else dict(public)


_DEFAULTS: dict[str, dict[str, Any]] = {
    "tool_call_invalid": {"arguments_raw": ""},
    "history_replaced": {"splices": ()},
}


def _tool_end(public: Mapping[str, Any]) -> ToolEnd:
    result = _result(public["call_id"], public["name"], public.get("result", {}))
    return ToolEnd(public["call_id"], result, public["ending"])


def _result(call_id: str, name: str, result: Mapping[str, Any]) -> ToolResult:
    media = [_medium(part) for part in result.get("media", ())]
    text = (Text(0, result["text"]),) if result.get("text") else ()
    return ToolResult(call_id, name, (*text, *media), bool(result.get("is_error")))


def _medium(part: Mapping[str, Any]) -> Image | File:
    kind = Image if part["type"] == "image" else File
    return kind(part["url"], part["media_type"])


def _done(public: Mapping[str, Any]) -> Done:
    messages = received_messages(public.get("messages", ()))
    return replace(msgspec.convert({**public, "messages": ()}, Done), messages=messages)


def received_messages(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages of a run, without parts that this version does not know."""
    return tuple(Message(each["role"], tuple(filter(None, map(_part, each["parts"])))) for each in messages)


def _part(public: Mapping[str, Any]) -> Part | None:
    match public.get("type"):
        case "tool_result":
            return _result(public["call_id"], public["name"], public)
        case "image" | "file":
            return _medium(public)
        case _:
            event = received_event(public)
            return event if isinstance(event, Text | Reasoning | Refusal | ToolCall | ToolCallInvalid) else None


def _nested(public: Mapping[str, Any]) -> Nested:
    inner = public["event"]
    event = _start(inner) if inner["type"] == "run_start" else received_event(inner)
    if event is None or isinstance(event, Nested):
        raise KeyError("event")
    return Nested(tuple(public["path"]), event)


def _start(public: Mapping[str, Any]) -> RunStart:
    prompt = public.get("prompt", "")
    return RunStart((user(prompt),) if prompt else (), public.get("agent", ""))


_MAKERS: dict[str, Callable[[Mapping[str, Any]], StreamEvent]] = {
    "tool_end": _tool_end,
    "done": _done,
    "nested": _nested,
    "retry": lambda public: Retry(public.get("reason", "")),
    "said": lambda public: Said(user(public["text"])),
    "output_invalid": lambda public: OutputInvalid(public["problem"], user(public["problem"])),
}
