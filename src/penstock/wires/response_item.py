"""One output item of a Responses stream: what of it has been told, and what its end still adds.

A Responses stream says everything several times: in deltas, when a part is done, when its item is done, when the response
is. Whatever comes first is told; a repetition adds only what was not told before (QUIRKS 135, 137, 141).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from penstock.events import CallKind, Reasoning, Refusal, SealedBy, Text
from penstock.wires.call import OpenCall
from penstock.wires.reply import Reply
from penstock.wires.text import heal, plain

Channel = Literal["text", "refusal", "reasoning", "summary"]
Tell = Callable[[Any, str], None]

CALLS: dict[str, CallKind] = {"function_call": "function", "custom_tool_call": "custom"}
"""The items that the client must run, and that are calls in our sense."""

_EVENTS: dict[Channel, type[Text | Refusal | Reasoning]] = {
    "text": Text, "refusal": Refusal, "reasoning": Reasoning, "summary": Reasoning,
}  # fmt: skip
_TOLD = {"id", "type", "status", "role", "content", "arguments", "input", "call_id", "name", "parsed_arguments"}
_BODY = {"content", "arguments", "input", "parsed_arguments"}
_STREAMED = {"code_interpreter_call_code": "code", "mcp_call_arguments": "arguments"}


class Part:
    """A text of an item. How much was told, and the last piece of it, show whether a final text goes on from there."""

    __slots__ = ("_event", "_last", "_out", "annotations", "block", "is_mended", "is_settled", "size")

    def __init__(self, reply: Reply, block: int, channel: Channel) -> None:
        self._out = reply.out
        self._event = _EVENTS[channel]
        self._last = ""
        self.block = block
        self.size = 0
        self.annotations = 0
        self.is_settled = False
        self.is_mended = False  # half characters were told, so that lengths say nothing

    def add(self, piece: str) -> None:
        self.size += len(piece)
        self._last = piece
        self._out.append(self._event(self.block, piece))

    def settle(self, text: str) -> bool:
        """Tell what the final text adds to what was told; whether the two agree."""
        self.is_settled = True
        if self.is_mended:
            return True
        if not text.startswith(self._last, self.size - len(self._last)):
            return False
        if len(text) > self.size:
            self.add(text[self.size :])
        return True


class Item:
    """An output item. Its place among the blocks is where it was first heard of."""

    __slots__ = ("_parts", "_reply", "_tell", "block", "call", "call_id", "data", "id", "index", "is_done", "is_stated",
                 "name", "streamed", "type")  # fmt: skip

    def __init__(self, reply: Reply, tell: Tell, index: int | None, id: str, type: str) -> None:
        self._reply = reply
        self._tell = tell
        self._parts: dict[tuple[str, int | None], Part] = {}
        self.index = index
        self.id = id
        self.type = type
        self.call_id = ""
        self.name = ""
        self.data: dict[str, Any] = {}  # the item as it was announced
        self.streamed: dict[str, str] = {}  # the input of a tool that the provider runs, by the name of its frames
        self.is_done = False
        self.is_stated = False  # a call's arguments were stated whole
        self.call: OpenCall | None = None
        self.block = -1
        if type in CALLS:
            self._open_call("")
        else:
            self.block = reply.new_block()

    # What the frames of an item say.

    def part(self, channel: Channel, index: int | None) -> Part:
        """The text of this number; a frame without a number means the one that came last, or the only one."""
        parts = self._parts
        part = parts.get((channel, index))
        if part is None and index is None:
            part = next((part for (kind, _), part in reversed(parts.items()) if kind == channel), None)
        if part is None and (channel, None) in parts:
            part = parts[channel, index] = parts.pop((channel, None))
        if part is None:
            block = self._reply.new_block() if parts else self.block
            part = parts[channel, index] = Part(self._reply, block, channel)
        return part

    def announce(self, data: dict[str, Any]) -> None:
        """The item as it begins; what it holds already counts only if nothing else is said (QUIRKS 142)."""
        self.data = data
        self._identify(data)

    def _identify(self, data: dict[str, Any]) -> None:
        self.type = self.type or type_of(data)
        self.id = self.id or text_of(data.get("id"))
        if self.type in CALLS:
            self.introduce(text_of(data.get("call_id")), text_of(data.get("name")))

    def introduce(self, call_id: str, name: str) -> None:
        """What a call is called; it is announced when both its id and its name are known."""
        call = self.call or self._open_call(call_id)
        if call_id and not self.call_id:
            self.call_id = call.id = call_id
        self.name = self.name or name
        if self.call_id and self.name and not call.is_started:
            call.name = self.name
            call.start()
