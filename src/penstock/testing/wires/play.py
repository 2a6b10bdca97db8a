"""Plays replies as the bytes that a provider sends, streamed or whole; the habits of each vendor are in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, assert_never, cast

import msgspec

from penstock.calls.arguments import WITHOUT_ARGUMENTS
from penstock.errors import UsageError
from penstock.events import (
    USAGE_PARTS,
    Error,
    Finish,
    FinishReason,
    Opaque,
    Reasoning,
    Refusal,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.testing.reply import Drop, Fail, Refuse, Reply, Say, ScriptedCall, Think, VendorItem, Wait
from penstock.testing.request import JSONParts, ReceivedRequest
from penstock.testing.wires.habits import VendorHabits
from penstock.testing.wires.randomness import Randomness
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body, encode_error
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_frames import ResponseFrames
from penstock.wires.shared.encode_response.response_head import EncodedResponse, ResponseHead


def play(reply: Reply, request: ReceivedRequest) -> PlayedReply:
    """A reply to a request on its wire."""
    return PlayedReply(reply, request, *_parts_of(request.wire))


@cache
def _parts_of(wire: str) -> tuple[type[ResponseFrames], type[VendorHabits]]:
    frames = find_response_frames(wire)
    habits: type[VendorHabits] = import_module(f"penstock.testing.wires.{wire.replace('-', '_')}.play").HABITS
    return frames, habits


def frames(wire: str, reply: Reply, is_streaming: bool = True, request: ReceivedRequest | None = None) -> list[bytes]:
    """The body of the response that the provider would send, one entry per frame, without pauses.

    `request` is the request, of which providers repeat some fields.
    """
    played = play(reply, request or ReceivedRequest(wire))
    if is_streaming:
        return [action for action in played.stream() if isinstance(action, bytes)]
    body = played.whole().body
    is_dropped = any(isinstance(part, Drop) for part in reply.parts)
    return [body[: len(body) // 2] if is_dropped else body]


__all__ = ["PlayedReply", "SendAction", "frames", "play"]


SendAction = bytes | Wait | Drop
"""A step of sending a response: bytes, a pause, or the end of the connection."""
CREATED = 1_767_225_600
"""The creation time of every reply: 1 January 2026."""
SEED_BYTES = 65_536
"""The last bytes of a request that the ids of its response depend on."""


class PlayedReply:
    """A reply to a request, written by an encoder of responses."""

    def __init__(
        self,
        reply: Reply,
        request: ReceivedRequest,
        frames: type[ResponseFrames],
        habits: type[VendorHabits] = VendorHabits,
    ) -> None:
        size, end = _size_and_end(request)
        self._reply = reply
        self._frames = frames
        self._habits = habits(Randomness(reply, end))
        self._usage = reply.usage or _counted(reply, size)
        self._head = ResponseHead(
            id=self._habits.response_id(),
            model=request.model,
            created=CREATED,
            has_usage=_wants_usage(request),
            echo=request.head,
            keeps_raw_reasons=True,
        )

    @property
    def content_type(self) -> str:
        """The content type of the stream."""
        return self._frames.format.content_type

    def stream(self) -> Iterator[SendAction]:
        """The stream, one action per frame or pause."""
        encoder, with_vendor_frames = ResponseEncoder(self._frames(self._head)), self._habits.with_vendor_frames
        events = self._begin()
        for block, part in enumerate(self._reply.parts):
            if isinstance(part, (Wait, Drop)):
                yield from with_vendor_frames(encoder.feed_frames(events))
                yield part
                if isinstance(part, Drop):
                    return
                events.clear()
            else:
                events += self._part(block, part)
        yield from with_vendor_frames(encoder.feed_frames(events + self._end()) + encoder.close_frames())

    def whole(self) -> EncodedResponse:
        """The response that is not streamed; an HTTP error if the reply fails."""
        fail = self._reply.failure
        if fail is not None:
            status = next(
                (status for status, code in self._frames.format.error_codes.items() if code == fail.code), 500
            )
            return encode_error(self._frames, status, fail.message, fail.code, self._head)
        events = self._begin()
        for block, part in enumerate(self._reply.parts):
            if not isinstance(part, (Wait, Drop)):
                events += self._part(block, part)
        return encode_body(self._frames, events + self._end(), self._head)

    def _begin(self) -> list[StreamChunk]:
        """The counts of the input, which are known before there is any output."""
        usage = self._usage
        parts = [part.field for part in USAGE_PARTS if part.whole == "input_tokens"]
        return [Usage(usage.input_tokens, **{name: getattr(usage, name) for name in parts})]

    def _part(self, block: int, part: Say | Think | Refuse | ScriptedCall | VendorItem | Fail) -> list[StreamChunk]:
        """The events of a part; its place in the reply is its block."""
        pieces = self._habits.random.text_pieces
        match part:
            case Say():
                return [Text(block, piece) for piece in pieces(part.text)]
            case Think():
                thoughts = (Reasoning(block, piece) for piece in pieces(part.text))
                return [*thoughts, *self._habits.reasoning_states(block, part.text)]
            case Refuse():
                words = pieces(part.text) if self._habits.has_refusal_text else ()
                return [Refusal(block, piece) for piece in words]
            case ScriptedCall():
                return self._call(block, part)
            case VendorItem():
                return [self._item(block, msgspec.json.decode(part.data))]
            case Fail():
                return [Error(part.message, part.code)]
            case _:
                assert_never(part)

    def _call(self, block: int, call: ScriptedCall) -> list[StreamChunk]:
        id = call.id or self._habits.call_id(call.name)
        pieces = self._habits.random.argument_pieces(call.arguments)
        events: list[StreamChunk] = [ToolCallStart(block, id, call.name), *self._habits.call_states(block)]
        if self._habits.has_empty_pieces:
            events.append(ToolCallDelta(block, ""))
        events += [ToolCallDelta(block, piece) for piece in pieces]
        if not self._reply.is_cut_at(block):
            events.append(self._call_end(block, call, id))
        return events

    def _call_end(self, block: int, call: ScriptedCall, id: str) -> StreamChunk:
        if call.is_whole or call.arguments.strip() in WITHOUT_ARGUMENTS:
            return ToolCall(id, call.name, {}, call.arguments or "{}", sealed_by="call_end", block=block)
        if not self._frames.format.has_text_arguments:
            raise UsageError(
                f"the arguments of {call.name} are {call.arguments!r}, but this response needs a JSON object: "
                "use complete arguments, or stream and add a drop()"
            )
        is_cut = self._frames.format.marks_cut_calls and self._reason in ("length", "content_filter")
        return ToolCallInvalid(block, id, call.name, call.arguments, "cut" if is_cut else "malformed")

    def _item(self, block: int, data: dict[str, Any]) -> Opaque:
        if not self._habits.has_items:
            raise UsageError(f"the wire {self._frames.format.wire} has no items of its own: leave out item(…)")
        return Opaque(block, self._frames.format.wire, str(data.get("type")), data)

    @property
    def _reason(self) -> str:
        """The finish reason: ours, or the provider's if the script has one."""
        reply = self._reply
        return reply.finish or ("tool_calls" if reply.calls else self._habits.REFUSED if reply.refusal else "stop")

    def _end(self) -> list[StreamChunk]:
        reason = self._reason
        states = self._habits.last_states(len(self._reply.parts))
        end: Finish | Error | None = self._habits.failed_end() if reason == "error" else None
        if end is None and reason in ("stop", "tool_calls", "length", "content_filter"):
            message = "" if self._habits.has_refusal_text else self._reply.refusal
            end = Finish(cast("FinishReason", reason), message=message)
        return [*states, self._usage, end or Finish("other", self._habits.REASONS.get(reason, reason))]


def _wants_usage(request: ReceivedRequest) -> bool:
    """Whether usage is streamed on wires where it is optional: if the request asks for it, or there is no request."""
    options = request.head.get("stream_options")
    return not request.head or (isinstance(options, dict) and bool(options.get("include_usage")))


def _size_and_end(request: ReceivedRequest) -> tuple[int, bytes]:
    """The size of a request and its last bytes, which contain what is new, so that each request has its own ids."""
    content = request.content
    parts = content if isinstance(content, JSONParts) else JSONParts((msgspec.json.encode(content),))
    return parts.size, parts.end(SEED_BYTES)


def _counted(reply: Reply, size: int) -> Usage:
    """A plausible usage: four characters per token."""
    thought = sum(_tokens(part.text) for part in reply.parts if isinstance(part, Think))
    text = sum(_tokens(part.text) for part in reply.parts if isinstance(part, Say | Refuse))
    called = sum(_tokens(part.name + part.arguments) for part in reply.calls)
    return Usage(-(-size // 4), thought + text + called, 0, thought)


def _tokens(text: str) -> int:
    return -(-len(text) // 4)
