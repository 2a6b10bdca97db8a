"""What a server sends of events, as the events that a local run has.

Fields that do not leave the server have their defaults: a tool's private data, vendor state, and the history in `Done`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.events import Retry, Text, Unknown
from penstock.messages import File, Image, ToolResult, user
from penstock.run.events import Done, Nested, OutputInvalid, RunStart, Said, StreamEvent, ToolEnd

HIDDEN = ("run_start", "taken", "waiting")
"""Events of a log that a local run does not have."""


def received_event(public: Mapping[str, Any]) -> StreamEvent | None:
    """The event of a run; None if a local run has no such event. What is not known is an `Unknown`."""
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
    result = public.get("result", {})
    media = [_medium(part) for part in result.get("media", ())]
    text = (Text(0, result["text"]),) if result.get("text") else ()
    content = ToolResult(public["call_id"], public["name"], (*text, *media), bool(result.get("is_error")))
    return ToolEnd(public["call_id"], content, public["ending"])


def _medium(part: Mapping[str, Any]) -> Image | File:
    kind = Image if part["type"] == "image" else File
    return kind(part["url"], part["media_type"])


def _done(public: Mapping[str, Any]) -> Done:
    return msgspec.convert({**public, "messages": ()}, Done)


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
