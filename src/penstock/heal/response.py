"""The healing of one response, without I/O: its stages, its report, and `HealedBody` for a body that is not streamed.

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
    StreamChunk,
    ToolCallStart,
    Unknown,
)
from penstock.framing import Body, Frames
from penstock.heal.requests import HealableRequest
from penstock.heal.same_events import is_same
from penstock.heal.tapped_decoder import TappedDecoder
from penstock.healing.decoding import HealedDecoding, response_context
from penstock.healing.report import Healed, RescuedCall
from penstock.healing.settings import Healing
from penstock.wires import find_response_frames, find_wire, wire_name
from penstock.wires.shared.decode_response.reports import KEEP_ALIVE
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_head import ResponseHead

MAX_KEPT = 32 * 1024 * 1024
"""How many bytes of a response are kept: of a whole one until its end, of a stream for a difference that comes later.

A response that is longer is passed on as it came.
"""
GENERATED = "call_healed_"
"""How ids begin that were generated for calls without one."""
TOKEN = "c0ffee00c0ffee00c0ffee00"
"""The id that encoders get; it is replaced by that of the server."""


class HealReport(Struct, frozen=True, kw_only=True):
    """What was healed in one response, by quirk number, and notes about what was left as it came.

    `rescued` are the calls that were found in the text: the model, or a text that it quotes, may not have meant them.
    `problem` says why a response could not be healed, and was passed on unchanged from there on.
    """

    path: str
    wire: str
    healed: tuple[Healed, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    rescued: tuple[RescuedCall, ...] = ()


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
        self.frames = find_response_frames(request.form)
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
        head = self.request.request.head(TOKEN, created if isinstance(created, int) else 0, has_custom_tools=True)
        model = fields.get("model") or fields.get("modelVersion") or head.model
        id = fields.get("id") or fields.get("responseId")
        return replace(head, model=str(model), keeps_raw_reasons=True), id if isinstance(id, str) else ""

    def build(self, path: str, problem: str = "") -> HealReport:
        return HealReport(
            path=path, wire=self.request.wire, healed=tuple(self.report.build()), notes=tuple(self.report.notes),
            problem=problem, rescued=tuple(self.report.rescued),
        )  # fmt: skip


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
        is_right = body.lstrip()[:1] == b"{" and healing.request.frame_rules().accepts_body(body)
        if is_right and not healing.report.build() and is_same(plain, chunks) and healing.is_right(plain):
            return body
        head, id = healing.head(body)
        encoded = encode_body(healing.frames, map(healing.expressed, chunks), head)
        if encoded.error is not None:
            return body
        written = re.search(rb'"[^"]*%b"' % TOKEN.encode(), encoded.body)
        return encoded.body.replace(written[0], msgspec.json.encode(id)) if id and written else encoded.body


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
