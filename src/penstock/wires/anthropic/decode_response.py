"""Decodes Anthropic Messages: SSE events, whole messages, and events wrapped by AWS InvokeModelWithResponseStream.

Nearly all frames add a piece to a text, reasoning or call: these, and the usual start and stop of a call, are decoded
into narrow structs. All others are read as plain JSON. A block of type `tool_use` is a call for the client; hosted
tools, and other blocks that must be sent back as they came, are vendor state.

The loose path is the reference for `_read_deltas`, which remembers the block of the last piece. `read_typed` has a
short path for many pieces of one call, `read_typed_one` for a single one. test_laws decodes every vector loosely, whole
and frame by frame.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from penstock.events import FinishReason, Reasoning, Text
from penstock.wires.anthropic.block_frames import BlockFrames
from penstock.wires.anthropic.facts import USAGE
from penstock.wires.anthropic.frames import (
    BlockFrame,
    BlockStart,
    InputDelta,
    TextDelta,
    ThinkingDelta,
    decode_block_frame,
    kind_of_untyped,
)
from penstock.wires.shared.claude import PAUSES
from penstock.wires.shared.decode_response.in_band_errors import bare_exception, bare_message, error_in, named_error
from penstock.wires.shared.decode_response.loose import is_empty
from penstock.wires.shared.decode_response.numbered_blocks import Label, NumberedBlocks
from penstock.wires.shared.decode_response.open_block import OpenReasoning, OpenText, OpenTool, OpenVendor
from penstock.wires.shared.decode_response.open_call import OpenCall
from penstock.wires.shared.decode_response.wire import Wire

Target = tuple[Label, type[Struct] | None, int, OpenCall | None]
"""Where the next piece probably goes: label, type of delta, and the number of the block or the call."""
NO_TARGET: Target = (None, None, -1, None)

_KINDS = {"content_block_delta", "content_block_start", "content_block_stop", "message_start", "message_delta",
          "message_stop", "message"}  # fmt: skip
_DERIVED = {"text", "input_json", "thinking", "citation", "signature"}  # events that the SDK's helper stream adds
_MESSAGE_FIELDS = {"id", "type", "role", "model", "content", "usage", "stop_reason", "stop_sequence", "stop_details",
                   "container"}  # fmt: skip
_TYPED_FIELDS = {"usage": dict, "stop_details": dict, "stop_sequence": str}
_METRICS = "amazon-bedrock-invocationMetrics"


class Anthropic(Wire):
    """The decoder of Messages. A call is confirmed by the end of its block; `message_stop` ends the stream."""

    name = "anthropic"
    USAGE = USAGE
    PAUSES = PAUSES
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls",
        "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter",
    }  # fmt: skip

    loose_events: ClassVar[frozenset[str]] = frozenset({"message_start", "message_delta", "message_stop", "message"})
    has_short_path: ClassVar[bool] = True
    decode = staticmethod(decode_block_frame)

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._answer = self.answer_for()
        self._blocks = NumberedBlocks(self._answer, self.reports, self.FINISH)
        self._frames = BlockFrames(self._blocks, self._answer, self.reports)
        self._target = NO_TARGET
        self._message_id: Any = None
        self._container: Any = None

    def end(self, by_mark: bool = False) -> None:
        if self._container is not None:
            self._answer.opaque("container", self._container)
        self._blocks.end(by_mark)
        super().end(by_mark)

    def read_typed(self, values: list[BlockFrame], payloads: list[bytes], event: str) -> None:
        if len(values) > 1:  # mostly pieces of one call, and maybe the first of it
            if values[0].index != self._target[0]:
                self._read_deltas(values[:1])
                values = values[1:]
            label, delta_type, _, call = self._target
            if call is not None:
                pieces = [
                    delta.piece
                    for value in values
                    if (delta := value.delta) is not None and value.index == label and type(delta) is delta_type
                ]
                if len(pieces) == len(values):
                    call.add_all(pieces)
                    return
        self._read_deltas(values)

    def _read_deltas(self, values: list[BlockFrame]) -> None:
        self.reports.has_known_frames = True
        append = self.out.append
        label, delta_type, block, call = self._target
        pieces: list[str] = []  # pieces of the arguments of one call
        for value in values:
            delta = value.delta
            if delta is None:
                if pieces and call:
                    call.add_all(pieces)
                    pieces = []
                self._start_or_stop(value)
                label, delta_type, block, call = self._target
                continue
            piece = delta.piece
            if not piece:
                continue
            if value.index != label or type(delta) is not delta_type:
                if pieces and call:
                    call.add_all(pieces)
                    pieces = []
                self._first_delta(value.index, delta)
                self._target = label, delta_type, block, call = self._target_of(value.index)
            elif call:
                pieces.append(piece)
            else:
                append(Text(block, piece) if delta_type is TextDelta else Reasoning(block, piece))
        if pieces and call:
            call.add_all(pieces)

    def read_typed_one(self, value: BlockFrame, payload: bytes, event: str) -> None:
        label, delta_type, _, call = self._target
        delta = value.delta
        if call and delta is not None and delta.piece and value.index == label and type(delta) is delta_type:
            call.add(delta.piece)
        else:
            self._read_deltas([value])

    def _start_or_stop(self, value: BlockFrame) -> None:
        self._target = NO_TARGET
        if isinstance(value, BlockStart):
            self._blocks.begin_call(value.index, value.content_block.id, value.content_block.name)
        else:
            self._blocks.stop(value.index)

    def _target_of(self, label: Label) -> Target:
        """The target for more pieces of a block, if it is open and has begun."""
        match self._blocks.parts.get(label):
            case OpenText(block=block) if block >= 0:
                return label, TextDelta, block, None
            case OpenReasoning(block=block) if block >= 0:
                return label, ThinkingDelta, block, None
            case OpenTool(call=call, is_stopped=False) if not call.is_ended and self._answer.raw_reason is None:
                return label, InputDelta, -1, call
        return NO_TARGET

    def _first_delta(self, label: Label, delta: TextDelta | InputDelta | ThinkingDelta) -> None:
        if isinstance(delta, InputDelta):
            self._blocks.add_arguments(label, delta.piece)
        elif isinstance(self._blocks.parts.get(label), OpenVendor):
            self._blocks.add_state(label, "text" if isinstance(delta, TextDelta) else "thinking", delta.piece)
        else:
            self._blocks.add_content(label, OpenText if isinstance(delta, TextDelta) else OpenReasoning, delta.piece)

    def end_mark(self) -> None:
        """Ends the stream: some gateways send `[DONE]` instead of `message_stop`; it confirms no call (QUIRKS 113)."""
        self.end()

    # Frames of any shape.

    def read_loose(self, payload: bytes, event: str) -> None:
        self._target = NO_TARGET
        if event == "error" and not payload.startswith((b"{", b"[")):
            self.reports.error_in({"error": payload.decode("utf-8", "replace")})
            return
        if event not in _KINDS and (error := bare_exception(event, payload)):
            self.reports.error(error)
            return
        value = self.loose.parse(payload)
        if isinstance(value, dict):
            self._event(value.get("type") or event or kind_of_untyped(value), value, payload, event)
        else:
            self.reports.no_object(value)

    def _event(self, kind: Any, value: dict[str, Any], payload: bytes, event: str) -> None:
        self.reports.has_known_frames |= isinstance(kind, str) and kind in _KINDS
        match kind:
            case "content_block_delta":
                self._frames.delta(value)
            case "content_block_start":
                self._frames.start(value, payload)
            case "content_block_stop":  # the SDK's helper stream repeats the block here
                self._blocks.stop(self._blocks.label(value.get("index")))
                self.reports.fields(value, ("type", "index", "content_block"), "an unknown field of the event")
            case "message_start":
                self._message_start(value, payload)
            case "message_delta":
                self._message_delta(value)
            case "message_stop":
                self._message_stop(value)
            case "message":
                self._whole(value, payload)
            case "ping":  # QUIRKS 129
                pass
            case _:
                self._other_frame(kind, value, payload, event)

    # Messages.

    def _message_start(self, value: dict[str, Any], payload: bytes) -> None:
        message = value.get("message")
        if not isinstance(message, dict):
            self.reports.each_field(value, ("type",), "a message that is not an object")
            return
        id = message.get("id") or ""
        if self._message_id is not None and id and id != self._message_id:
            self._blocks.withdraw()
            self.restart("the provider started a new message before the last one had ended", message.get("model"))
            self._container = None
        self._message_id = id
        if self._blocks.parts:  # the same message again (QUIRKS 123)
            self.reports.each_field({"content": message.get("content")}, (), "content in a repeated message_start")
        else:
            self._frames.whole(message.get("content"), payload)  # QUIRKS 122
        self._message_fields(message)
        self.reports.fields(value, ("type", "message"), "an unknown field of the event")

    def _message_delta(self, value: dict[str, Any]) -> None:
        delta, usage = value.get("delta"), value.get("usage")
        fields = dict(delta) if isinstance(delta, dict) else {}
        if isinstance(usage, dict) and isinstance(fields.get("usage"), dict):
            usage = fields["usage"] | usage
        self._message_fields(fields if usage is None else fields | {"usage": usage})
        known = ("type", "usage", "delta") if isinstance(delta, dict) else ("type", "usage")
        self.reports.fields(value, known, "an unknown field of the event")

    def _message_stop(self, value: dict[str, Any]) -> None:
        if isinstance(value.get(_METRICS), dict):
            self.usage.add({_METRICS: value[_METRICS]})
        self.reports.fields(value, ("type", "message", _METRICS), "an unknown field of the event")
        self.end(by_mark=True)

    def _whole(self, message: dict[str, Any], payload: bytes) -> None:
        self.reports.has_known_frames = True
        if not self._blocks.parts:
            self._frames.whole(message.get("content"), payload)
        self._message_fields(message)
        self.end(by_mark=True)

    def _message_fields(self, message: dict[str, Any]) -> None:
        """Reads the fields of the message itself; usage comes as snapshots (QUIRKS 90)."""
        usage = message.get("usage")
        if isinstance(usage, dict):
            self.usage.add(usage)
        if not is_empty(message.get("container")):
            self._container = message["container"]
        self._ending(message)
        unread = {key for key, kind in _TYPED_FIELDS.items() if not isinstance(message.get(key), kind)}
        self.reports.fields(message, _MESSAGE_FIELDS - unread, "an unknown field of the message")

    def _ending(self, message: dict[str, Any]) -> None:
        """Reads the stop reason, with the explanation of a refusal or the stop sequence as its message."""
        explanation, details = message.get("stop_sequence"), message.get("stop_details")
        if isinstance(details, dict):
            key = next((key for key in ("explanation", "category") if details.get(key)), "")
            explanation = details.get(key) or explanation
            self.reports.each_field(details, ("type", key), "an unknown field of stop_details")
        if reason := message.get("stop_reason"):
            self._blocks.finish(reason, explanation)

    # Frames that are not events of this protocol.

    def _other_frame(self, kind: Any, value: dict[str, Any], payload: bytes, event: str) -> None:
        match value:
            case {"bytes": str(data)} if event == "chunk":
                self._chunk(data)
            case {"chunk": {"bytes": str(data)}}:  # as boto3 returns it
                self._chunk(data)
            case {"role": "assistant", "content": list() | str()}:
                self._whole(value, payload)
            case {"type": str()} if kind in _DERIVED and self._blocks.parts:
                pass
            case _:
                self._error_or_unknown_event(kind, value, event)

    def _chunk(self, data: str) -> None:
        try:
            payload = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.reports.hole(data, "a chunk that is not base64")
            return
        self.inner.append(payload)

    def _error_or_unknown_event(self, kind: Any, value: dict[str, Any], event: str) -> None:
        error = named_error(event, value)
        if error is None and (not value.get("type") or kind == "error" or "error" in value):
            error = error_in(value) or bare_message(value)
        self._blocks.add_unknown(value.get("index"))
        self.reports.error_or_unknown(error, value, "an unknown event")
