"""Heals the body of one response, without I/O: bytes of a server to bytes for an SDK, both in one protocol.

What needs no healing is passed on **byte for byte**, with the ids and fields that only the server knows. A frame
is decoded, and healed. While both give the same events, and the calls in it are as the protocol says, the frame itself
is passed on. It is held while some of its text is held, which may begin a call. From the first difference on, the
healed events are encoded again.

If a stage fails, the bytes of the server go on as they came, and the fault is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.decoder import Decoder
from penstock.events import (
    Error,
    Finish,
    Retry,
    StreamChunk,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
)
from penstock.framing import Body, Frames
from penstock.heal.frame_cuts import FRAME_END, LINE_END, REASON, FrameCuts, is_readable
from penstock.heal.plain_calls import PlainCalls
from penstock.heal.requests import HealableRequest
from penstock.heal.same_events import DELTAS, is_same, is_same_piece, text_size
from penstock.heal.tapped_decoder import TappedDecoder
from penstock.healing.decoding import HealedDecoding, response_context
from penstock.healing.report import Healed
from penstock.healing.settings import Healing
from penstock.wires import find_habits, find_response_frames, find_wire, wire_name
from penstock.wires.shared.decode_response.reports import KEEP_ALIVE
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead

MAX_HELD_READS = 16
"""How many frames with held text are held; then the text is encoded, so that what is before it is not delayed."""
MAX_KEPT = 32 * 1024 * 1024
"""How many bytes of a response are kept: of a whole one until its end, of a stream for a difference that comes later.

A response that is longer is passed on as it came.
"""
MAX_HEAD = 64 * 1024
"""How many bytes are searched for the id and the model of a response."""
GENERATED = "call_healed_"
"""How ids begin that were generated for calls without one."""
_TOKEN = "c0ffee00c0ffee00c0ffee00"
_ENDS = (ToolCall, ToolCallInvalid, Finish, Error, Retry)
_PIECES = frozenset((*DELTAS, ToolCallDelta))
_CONTENT = (*DELTAS, *_ENDS, ToolCallStart, ToolCallDelta)


class HealReport(Struct, frozen=True, kw_only=True):
    """What was healed in one response, by quirk number, and notes about what was left as it came.

    `problem` says why a response could not be healed, and was passed on unchanged from there on.
    """

    path: str
    wire: str
    healed: tuple[Healed, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""


OnHealed = Callable[[HealReport], Any]


class ResponseHealing:
    """The stages of one response, and its report."""

    def __init__(self, request: HealableRequest, healing: Healing) -> None:
        self.request = request
        self._generated = f"{GENERATED}{request.digest}_"  # results of other responses must not answer these calls
        wire, settings = wire_name(request.wire), request.request.settings
        context = response_context(
            wire, settings.tools, request.request.messages, replace(healing, usage=False), fields=settings.extra,
            id_prefix=self._generated,
        )  # fmt: skip
        self.report = context.report
        self.decoder = TappedDecoder(Decoder(wire, settings.tools, id_prefix=self._generated))
        context = replace(context, client_wire=wire, calls_allowed=settings.tool_choice != "none")
        self.decoding = HealedDecoding(self.decoder, context)
        self.frames = find_response_frames(wire)
        self.framing = find_wire(wire).framing
        self._finish_reasons = find_wire(wire).FINISH
        self._has_ids = self.frames.format.has_text_arguments  # the other protocols have none

    def is_right(self, events: Iterable[StreamChunk]) -> bool:
        """Whether decoding had nothing to correct in these events that their frames do not show."""
        for event in events:
            match event:
                case ToolCallStart() if event.id.startswith(self._generated) and self._has_ids:
                    return False
                case Finish() if event.raw_reason is None or self._reason(event) != event.reason:
                    return False
                case Unknown(note=note) if note == KEEP_ALIVE:
                    return False
                case _:
                    pass
        return True

    def _reason(self, event: Finish) -> str | None:
        reason = self._finish_reasons.get(event.raw_reason or "")
        words = self.frames.format.finish_reasons
        has_word = words["tool_calls"] != words["stop"]  # or the protocol has no reason for calls: STOP is right
        return event.reason if event.reason == "tool_calls" and reason == "stop" and not has_word else reason

    def expressed(self, event: StreamChunk) -> StreamChunk:
        """An event for the encoder: an end with the server's own word for its reason, unless that was not right."""
        is_changed = isinstance(event, Finish) and self._reason(event) != event.reason
        return replace(event, raw_reason=None) if is_changed else event

    def head(self, body: bytes) -> tuple[ResponseHead, str]:
        """The head of a response that begins with these bytes, and its id as the server wrote it."""
        fields = _head_fields(body, self.framing)
        created = fields.get("created") or fields.get("created_at")
        head = self.request.request.head(_TOKEN, created if isinstance(created, int) else 0, has_custom_tools=True)
        model = fields.get("model") or fields.get("modelVersion") or head.model
        id = fields.get("id") or fields.get("responseId")
        return replace(head, model=str(model), keeps_raw_reasons=True), id if isinstance(id, str) else ""

    def build(self, path: str, problem: str = "") -> HealReport:
        return HealReport(
            path=path, wire=self.request.wire, healed=tuple(self.report.build()), notes=tuple(self.report.notes),
            problem=problem,
        )  # fmt: skip


class HealedStream:
    """Heals a streamed body: `feed` each read, and `close` at its end. `problem` says what failed, if anything did."""

    def __init__(self, healing: ResponseHealing, *, is_stream: bool = True) -> None:
        self._healing = healing
        self._encoder: ResponseEncoder | None = None  # from the first difference on
        self._id: tuple[bytes, bytes] | None = None  # the id as the encoder writes it, and as the server did
        self._server_id = ""
        self._first = b""
        self._size = 0
        self._sent: list[StreamChunk] = []  # the events of what was passed on
        self._raw: list[bytes] = []  # the reads that are held, and their events
        self._plain: list[StreamChunk] = []
        self._healed: list[StreamChunk] = []
        self._is_ending = False  # a reason for the end has come: it may have to be another one
        self._cuts = FrameCuts(LINE_END if healing.framing == "ndjson" else FRAME_END)
        self._calls = PlainCalls() if find_habits(healing.request.wire) is not None else None
        self._has_forwarded = False
        self._must_encode = not is_stream
        self.problem = ""

    def feed(self, data: bytes) -> bytes:
        """The bytes for the client."""
        if self.problem or not data:
            return data
        cuts = self._cuts
        if self._encoder is not None:
            return self._feed_safely(cuts.close() + data)
        if not cuts.size and data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2:  # as nearly all are
            return self._feed_safely(data)
        return self._feed_frames(cuts.feed(data))

    def _feed_frames(self, frames: list[bytes]) -> bytes:
        if self._cuts.size > MAX_KEPT:
            self.problem = f"a frame is longer than {MAX_KEPT} bytes"
            return b"".join([self.held(), *frames, self._cuts.close()])
        return b"".join(map(self._feed_safely, frames))

    def _feed_safely(self, data: bytes) -> bytes:
        if self.problem:
            return data
        try:
            return self._feed(data)
        except Exception as error:  # noqa: BLE001  # a fault in healing must not end the user's response
            return self._fail(error, data)

    def close(self) -> bytes:
        """The last bytes. A response that was cut ends with an error."""
        rest = self._feed_safely(self._cuts.close())
        if self.problem:
            return rest
        try:
            return rest + self._close()
        except Exception as error:  # noqa: BLE001  # see `feed`
            return rest + self._fail(error, b"")

    def held(self) -> bytes:
        """The reads that are held, as they came, for a connection that broke."""
        held, self._raw = b"".join(self._raw), []
        self._has_forwarded |= bool(held)
        return held

    def _fail(self, error: Exception, data: bytes) -> bytes:
        self.problem = f"{type(error).__name__}: {error}"
        return self.held() + data

    def _feed(self, data: bytes) -> bytes:
        if not data:
            return data
        healing = self._healing
        healed = healing.decoding.feed(data)
        if self._encoder is not None:
            return self._encode(healed)
        plain = healing.decoder.chunks
        if len(self._first) < MAX_HEAD:
            self._first += data
        self._size += len(data)
        if self._size > MAX_KEPT:
            self.problem = f"the response is longer than {MAX_KEPT} bytes"
            return self.held() + data
        if self._must_encode or not self._is_right(data, plain):
            return self._switch(healed)
        if not self._raw and not self._is_ending and is_same_piece(plain, healed):  # as nearly all frames are
            self._sent += healed
            self._has_forwarded = True
            return data
        self._raw.append(data)
        self._plain += plain
        self._healed += healed
        return self._resolve()

    def _is_right(self, frame: bytes, plain: list[StreamChunk]) -> bool:
        """Whether every client reads a frame as we do."""
        calls = self._calls
        if calls is not None:
            self._is_ending = self._is_ending or REASON.search(frame) is not None
            if not calls.accepts(frame):
                return False
        if len(plain) == 1 and type(plain[0]) in _PIECES:
            return True
        return (bool(plain) or all(map(is_readable, frame.splitlines()))) and self._healing.is_right(plain)

    def _resolve(self) -> bytes:
        """What can be sent of the held reads."""
        if is_same(self._plain, self._healed):
            awaited = Finish if self._is_ending else _CONTENT
            if not any(isinstance(event, awaited) for event in self._plain):
                return b""  # frames that may begin a block go with what is in it
            self._sent += self._healed
            self._plain, self._healed = [], []
            return self.held()
        has_ended = any(isinstance(event, _ENDS) for event in self._healed)
        has_differed = text_size(self._plain) == text_size(self._healed)
        if has_ended or has_differed or len(self._plain) > MAX_HELD_READS:
            return self._switch([])
        return b""

    def _switch(self, healed: list[StreamChunk]) -> bytes:
        """Encode from here on; the encoder gets what was passed on, and writes only what follows."""
        head, self._server_id = self._healing.head(self._first)
        encoder = ResponseEncoder(self._healing.frames(head))
        if self._has_forwarded:
            self._find_id(encoder.open() + encoder.feed([*self._sent, *_begun(self._sent)]))
        self._encoder = encoder
        events = [*self._healed, *healed]
        self._sent, self._healed, self._plain, self._raw = [], [], [], []
        return self._encode(events)

    def _encode(self, events: list[StreamChunk]) -> bytes:
        assert self._encoder is not None
        return self._with_id(self._encoder.feed(map(self._healing.expressed, events)))

    def _with_id(self, data: bytes) -> bytes:
        """The encoded bytes, with the id that the server gave the response."""
        if not self._server_id or not data:
            return data
        if self._id is None:
            self._find_id(data)
        return data if self._id is None else data.replace(*self._id)

    def _find_id(self, data: bytes) -> None:
        if self._server_id and (written := re.search(rb'"[^"]*%b"' % _TOKEN.encode(), data)):
            self._id = written[0], msgspec.json.encode(self._server_id)

    def _close(self) -> bytes:
        healing = self._healing
        healed = healing.decoding.close()
        if self._encoder is None:
            self._plain += healing.decoder.chunks
            self._healed += healed
            if not self._raw and is_same(self._plain, self._healed) and healing.is_right(self._plain):
                return b""
            if is_same(self._plain, self._healed) and healing.is_right(self._plain):
                return self.held()
            data = self._switch([])
        else:
            data = self._encode(healed)
        assert self._encoder is not None
        return data + self._with_id(self._encoder.close())


class HealedBody:
    """Heals a body that is not streamed: it is held until its end. One that needs no healing is not changed."""

    def __init__(self, healing: ResponseHealing) -> None:
        self._healing = healing
        self._pieces: list[bytes] = []
        self._size = 0
        self.problem = ""

    def feed(self, data: bytes) -> bytes:
        """The bytes for the client."""
        if self.problem:
            return data
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_KEPT:
            self.problem = f"the response is longer than {MAX_KEPT} bytes"
            return self.held()
        return b""

    def close(self) -> bytes:
        """The body."""
        body = self.held()
        if self.problem or not body:
            return body
        try:
            return self._heal(body)
        except Exception as error:  # noqa: BLE001  # see `HealedStream.feed`
            self.problem = f"{type(error).__name__}: {error}"
            return body

    def held(self) -> bytes:
        """What is held, as it came."""
        held, self._pieces = b"".join(self._pieces), []
        return held

    def _heal(self, body: bytes) -> bytes:
        healing = self._healing
        plain, chunks = [], healing.decoding.feed(body)
        plain += healing.decoder.chunks
        chunks += healing.decoding.close()
        plain += healing.decoder.chunks
        if any(isinstance(chunk, Error) for chunk in chunks):
            return body
        is_json = body.lstrip()[:1] == b"{"
        if is_json and not healing.report.build() and is_same(plain, chunks) and healing.is_right(plain):
            return body
        head, id = healing.head(body)
        encoded = encode_body(healing.frames, map(healing.expressed, chunks), head)
        if encoded.error is not None:
            return body
        written = re.search(rb'"[^"]*%b"' % _TOKEN.encode(), encoded.body)
        return encoded.body.replace(written[0], msgspec.json.encode(id)) if id and written else encoded.body


def _begun(events: list[StreamChunk]) -> list[StreamChunk]:
    """An empty piece for each call that has begun and has no piece: an encoder may wait with the start of a call."""
    begun: dict[int, ToolCallStart] = {}
    for event in events:
        match event:
            case ToolCallStart():
                begun[event.block] = event
            case ToolCallDelta() | ToolCall() | ToolCallInvalid():
                begun.pop(event.block, None)
            case _:
                pass
    return [ToolCallDelta(call.block, "", call.choice) for call in begun.values()]


def _payloads(framed: Iterable[Any]) -> list[bytes]:
    return [payload for frames in framed if isinstance(frames, Frames) for payload in frames.data]


def _head_fields(body: bytes, framing: Any) -> dict[str, Any]:
    """The fields of the first frame that has an id or a model; also of the object inside it."""
    reader = Body(framing)
    for payload in _payloads(reader.feed(body) + reader.close()):
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        for fields in (value, *(value.values() if isinstance(value, dict) else ())):
            if isinstance(fields, dict) and ("id" in fields or "responseId" in fields or "model" in fields):
                return fields
    return {}
