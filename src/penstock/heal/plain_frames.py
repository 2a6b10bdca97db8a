"""Whether frames are as their protocol says, so that every SDK reads them as we do: events do not show everything.

Only such frames are passed on as they came. This is stricter than it has to be: what is not, is decoded and encoded.
Chat Completions, with the most habits, has its own module (`plain_calls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

Fields = Mapping[str, Any]


class FrameRules(Protocol):
    """The rules of a protocol, for one response."""

    @property
    def waits_for_end(self) -> bool:
        """Whether the frames from here on are held until it is known how the response ends."""
        ...

    def accepts(self, frame: bytes, /) -> bool:
        """Whether a frame of a stream is right after those before."""
        ...

    def accepts_body(self, body: bytes, /) -> bool:
        """Whether a body that is not streamed is right."""
        ...


class JSONRules:
    """The rules of a protocol whose frames are checked by their values; they are read once more for it."""

    @property
    def waits_for_end(self) -> bool:
        return False

    def accepts(self, frame: bytes) -> bool:
        lines = [line[5:] for line in frame.splitlines() if line.startswith(b"data:")]
        return not lines or self._reads(b"\n".join(lines))

    def accepts_body(self, body: bytes) -> bool:
        return self._reads(body)

    def _reads(self, data: bytes) -> bool:
        try:
            return self.is_right(msgspec.json.decode(data))
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False

    def is_right(self, value: Any) -> bool:
        """Whether a frame or a body has this value; it may raise what a wrong shape raises."""
        raise NotImplementedError


class ResponsesRules(JSONRules):
    """Responses: items are counted, calls have an id, and their arguments are text."""

    def __init__(self) -> None:
        self._count = 0  # items so far

    def is_right(self, value: Any) -> bool:
        kind = value.get("type", "")
        is_part = kind.startswith(("response.output_", "response.content_", "response.function_"))
        if is_part and not self._has_place(kind, value["output_index"]):
            return False
        response = value.get("response", value)
        return isinstance(value.get("arguments", ""), str) and all(map(_is_item, _items(value, response)))

    def _has_place(self, kind: str, index: Any) -> bool:
        if kind == "response.output_item.added":
            self._count += 1
            return bool(index == self._count - 1)
        return type(index) is int and 0 <= index < self._count


def _items(value: Fields, response: Fields) -> Iterator[Any]:
    if "item" in value:
        yield value["item"]
    yield from response.get("output") or ()


def _is_item(item: Any) -> bool:
    if item["type"] != "function_call":
        return True
    return _is_text(item["call_id"]) and _is_text(item["name"]) and isinstance(item["arguments"], str)


class MessagesRules(JSONRules):
    """Messages: blocks are counted, calls have an id, and their input is an object."""

    def __init__(self) -> None:
        self._count = 0  # blocks so far

    def is_right(self, value: Any) -> bool:
        match value["type"]:
            case "content_block_start":
                self._count += 1
                return bool(value["index"] == self._count - 1) and _is_block(value["content_block"])
            case "content_block_delta" | "content_block_stop":
                return type(value["index"]) is int and 0 <= value["index"] < self._count
            case "message":
                return all(map(_is_block, value["content"]))
            case _:
                return True


def _is_block(block: Any) -> bool:
    if block["type"] != "tool_use":
        return True
    return _is_text(block["id"]) and _is_text(block["name"]) and isinstance(block["input"], dict)


class GeminiRules(JSONRules):
    """Gemini: the arguments of a call are an object."""

    def is_right(self, value: Any) -> bool:
        for candidate in value.get("candidates") or ():
            for part in (candidate.get("content") or {}).get("parts") or ():
                call = part.get("functionCall")
                if call is not None and not isinstance(call.get("args") or {}, dict):
                    return False
        return True


class OllamaRules(JSONRules):
    """Ollama: every line is an object, and the arguments of a call are one."""

    def accepts(self, frame: bytes) -> bool:
        return self._reads(frame)

    def is_right(self, value: Any) -> bool:
        calls = (value.get("message") or {}).get("tool_calls") or ()
        return all(isinstance(call["function"].get("arguments"), dict) for call in calls)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
