"""Anthropic Messages: SSE events, whole messages, and the same events wrapped by AWS InvokeModelWithResponseStream.

Nearly all frames add a piece to a text, a thought or a call: these are decoded into narrow structs. All others are
read as plain JSON. A block's own `type` says whose it is: `tool_use` is a call for the client; tools that Anthropic
runs, and other blocks that must be sent back as they came, are vendor state.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from penstock.events import FinishReason, Reasoning, Text
from penstock.wires.anthropic.frames import (
    BlockDelta,
    InputDelta,
    TextDelta,
    ThinkingDelta,
    decode_delta,
    spelled_inputs,
)
from penstock.wires.shared.in_band_errors import bare_message, error_in, named_error, wordless_error
from penstock.wires.shared.loose import is_empty, raw_of, text_of
from penstock.wires.shared.numbered_blocks import Label, NumberedWire
from penstock.wires.shared.open_block import OpenText, OpenThought, OpenTool, OpenVendor
from penstock.wires.shared.open_call import OpenCall

Aim = tuple[Label, type[Struct] | None, int, OpenCall | None]
"""A block, the deltas that it takes, and where they go: its number if it is words, else the call."""
NOWHERE: Aim = (None, None, -1, None)

_KINDS = {"content_block_delta", "content_block_start", "content_block_stop", "message_start", "message_delta",
          "message_stop", "message"}  # fmt: skip
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
           "signature_delta": "signature", "citations_delta": "citation"}  # fmt: skip
_STATE_BLOCKS = {"redacted_thinking", "compaction", "container_upload", "fallback", "mcp_tool_listing"}
_STATE_ENDINGS = ("_tool_use", "_tool_result")
_DERIVED = {"text", "input_json", "thinking", "citation", "signature"}  # events that the SDK's helper stream makes up
_MESSAGE_FIELDS = {"id", "type", "role", "model", "content", "usage", "stop_reason", "stop_sequence", "stop_details",
                   "container"}  # fmt: skip
_TYPED_FIELDS = {"usage": dict, "stop_details": dict, "stop_sequence": str}
_METRICS = "amazon-bedrock-invocationMetrics"


class Anthropic(NumberedWire):
    """Messages. A call is confirmed by the end of its block; `message_stop` ends the stream."""

    name = "anthropic"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls",
        "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter",
    }  # fmt: skip

    decode = staticmethod(decode_delta)

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._aim = NOWHERE
        self._message_id: Any = None
        self._container: Any = None
        self._told: dict[str, Any] = {}  # fields of the message that we have no word for, which come more than once

    def end(self, by_mark: bool = False) -> None:
        if self._container is not None:
            self.answer.opaque("container", self._container)
        super().end(by_mark)

    def read_typed(self, values: list[BlockDelta], payloads: list[bytes], event: str) -> None:
        append = self.out.append
        label, wanted, block, call = self._aim
        pieces: list[str] = []  # of the arguments that are being written
        for value in values:
            delta = value.delta
            piece = delta.piece
            if not piece:
                continue
            if value.index != label or type(delta) is not wanted:
                if pieces and call:
                    call.add_all(pieces)
                    pieces = []
                self._first_delta(value.index, delta)
                self._aim = label, wanted, block, call = self._aim_at(value.index)
            elif call:
                pieces.append(piece)
            else:
                append(Text(block, piece) if wanted is TextDelta else Reasoning(block, piece))
        if pieces and call:
            call.add_all(pieces)

    def read_typed_one(self, value: BlockDelta, payload: bytes, event: str) -> None:
        label, wanted, _, call = self._aim
        delta = value.delta
        if call and delta.piece and value.index == label and type(delta) is wanted:
            call.add(delta.piece)
        else:
            self.read_typed([value], [payload], event)

    def _aim_at(self, label: Label) -> Aim:
        """Where more pieces of a block go without further ado, if it has begun and is open."""
        match self.parts.get(label):
            case OpenText(block=block) if block >= 0:
                return label, TextDelta, block, None
            case OpenThought(block=block) if block >= 0:
                return label, ThinkingDelta, block, None
            case OpenTool(call=call) if not call.is_ended:
                return label, InputDelta, -1, call
        return NOWHERE

    def _first_delta(self, label: Label, delta: TextDelta | InputDelta | ThinkingDelta) -> None:
        if isinstance(delta, InputDelta):
            self.arguments(label, delta.piece)
        elif isinstance(self.parts.get(label), OpenVendor):
            self.keep(label, "text" if isinstance(delta, TextDelta) else "thinking", delta.piece)
        else:
            self.words(label, OpenText if isinstance(delta, TextDelta) else OpenThought, delta.piece)

    def end_mark(self) -> None:
        """A gateway's `[DONE]` in place of `message_stop` (QUIRKS 113): it confirms nothing that is open."""
        self.end()

    # The loose way: everything but the pieces.

    def read_loose(self, payload: bytes, event: str) -> None:
        self._aim = NOWHERE
        if event == "error" and not payload.startswith((b"{", b"[")):
            self.report_error({"error": payload.decode("utf-8", "replace")})
            return
        if error := wordless_error(event, payload):
            self.error(error)
            return
        value = self.parse_loosely(payload)
        if isinstance(value, dict):
            self._event(value.get("type") or event, value, payload, event)
        elif value is not None:
            self.unknown(value, "a frame that is no object")

    def _event(self, kind: Any, value: dict[str, Any], payload: bytes, event: str) -> None:
        self.has_known_frames |= isinstance(kind, str) and kind in _KINDS
        match kind:
            case "content_block_delta":
                self._loose_delta(value)
            case "content_block_start":
                self._block_start(value, payload)
            case "content_block_stop":  # the SDK's helper stream repeats the block here
                self.stop(self.label(value.get("index")))
                self.leftover(value, ("type", "index", "content_block"), "a field of the event that we do not know")
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
                self._odd(kind, value, payload, event)

    def _loose_delta(self, value: dict[str, Any]) -> None:
        label, delta = self.label(value.get("index")), value.get("delta")
        if not isinstance(delta, dict):
            fields = {key: field for key, field in value.items() if key not in ("type", "index")}
            self.strange_delta(label, fields, "a delta that is no object")
            return
        if isinstance(self.parts.get(label), OpenVendor):
            self._vendor_delta(label, delta)
        else:
            self._delta(label, delta)
        self.leftover(value, ("type", "index", "delta"), "a field of the event that we do not know")

    def _delta(self, label: Label, delta: dict[str, Any]) -> None:
        kind = delta.get("type") or next((kind for kind, field in _DELTAS.items() if field in delta), "")
        field = _DELTAS.get(kind, "") if isinstance(kind, str) else ""
        match field, delta.get(field):
            case _, None if field:
                pass
            case "text", str(piece):
                self.words(label, OpenText, piece)
            case "thinking", str(piece):
                self.words(label, OpenThought, piece)
            case "partial_json", piece:
                self.arguments(label, text_of(raw_of(piece)))
            case "signature", piece:
                self.keep(label, "signature", piece)
            case "citation", citation:
                self.keep(label, "citations", citation, OpenText)
            case _:
                self.strange_delta(label, {"delta": delta}, "a delta of a type that we do not know")  # QUIRKS 130
                return
        self.leftover(delta, ("type", field, "estimated_tokens"), "a field of the delta that we do not know")

    def _vendor_delta(self, label: Label, delta: dict[str, Any]) -> None:
        """A piece of a vendor's block goes into the field that it names."""
        names = {"partial_json": "input", "citation": "citations"}
        for field, piece in delta.items():
            if field != "type":
                self.keep(label, names.get(field, field), [piece] if field == "citation" else piece)

    # Blocks.

    def _block_start(self, value: dict[str, Any], payload: bytes) -> None:
        block = value.get("content_block")
        if isinstance(block, dict):
            spelled = spelled_inputs(payload) if block.get("input") else []
            self._begin(value.get("index"), block, spelled[0] if spelled else "")
        else:
            self.leftover(value, ("type", "index"), "a block that is no object")
        self.leftover(value, ("type", "index", "content_block"), "a field of the event that we do not know")

    def _begin(self, number: Any, block: dict[str, Any], spelled: str) -> None:
        kind = block.get("type") or ("thinking" if "thinking" in block else "text" if "text" in block else "")
        match kind:
            case "text" | "thinking":
                self._begin_words(number, kind, block)
            case "tool_use":
                self._begin_tool(number, block, spelled)
            case str() if kind in _STATE_BLOCKS or kind.endswith(_STATE_ENDINGS):
                self.begin_vendor(number, kind, block, is_state=True)
            case _ if is_empty(block):
                pass  # what the block is, its pieces will say
            case _:
                self.begin_vendor(number, "", block, is_state=False)

    def _begin_words(self, number: Any, kind: str, block: dict[str, Any]) -> None:
        given = {"text": block.get(kind), "signature": block.get("signature")}
        words = OpenText if kind == "text" else OpenThought
        self.begin(number, words({field: said for field, said in given.items() if said and isinstance(said, str)}))
        citations = block.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self.keep(self.label(number), "citations", citation)
        known = {"type", *(key for key in (kind, "signature") if isinstance(block.get(key), str))}
        known |= {"citations"} if isinstance(citations, list) else set()
        self.leftover(block, known, f"a field of a {kind} block that we do not know")

    def _begin_tool(self, number: Any, block: dict[str, Any], spelled: str) -> None:
        given = block.get("input")
        input = spelled or (text_of(raw_of(given)) if given else "")
        part = self.begin_call(number, block.get("id"), block.get("name"), input)
        if part is None:
            return  # told before
        for field in ("caller", "toolset_name"):
            if not is_empty(block.get(field)) and block[field] != {"type": "direct"}:
                self.answer.opaque(field, block[field], part.block)
        known = ("type", "id", "name", "input", "caller", "toolset_name")
        self.leftover(block, known, "a field of a tool_use block that we do not know")

    def _content(self, content: Any, payload: bytes) -> None:
        """Blocks that came whole."""
        spelled = spelled_inputs(payload)
        for at, block in enumerate(content if isinstance(content, list) else [content]):
            if isinstance(block, dict):
                self._begin(at, block, spelled[at] if at < len(spelled) else "")
                self.stop(at, "whole")
            elif isinstance(block, str):
                self.words(at, OpenText, block)
            else:
                self.leftover({"content": block}, (), "a block that is no object")

    # Messages.

    def _message_start(self, value: dict[str, Any], payload: bytes) -> None:
        message = value.get("message")
        if not isinstance(message, dict):
            self.leftover(value, ("type",), "a message that is no object")
            return
        id = message.get("id") or ""
        if self._message_id is not None and id and id != self._message_id:
            self.withdraw("the provider began a new message before it had ended the last")
            self._container = None
            self._told.clear()
        self._message_id = id
        if self.parts:  # the same message again (QUIRKS 123)
            self.leftover({"content": message.get("content")}, (), "content in a second start of the message")
        else:
            self._content(message.get("content"), payload)  # QUIRKS 122
        self._message_fields(message)
        self.leftover(value, ("type", "message"), "a field of the event that we do not know")

    def _message_delta(self, value: dict[str, Any]) -> None:
        delta, usage = value.get("delta"), value.get("usage")
        fields = dict(delta) if isinstance(delta, dict) else {}
        if isinstance(usage, dict) and isinstance(fields.get("usage"), dict):
            usage = fields["usage"] | usage
        self._message_fields(fields if usage is None else fields | {"usage": usage})
        known = ("type", "usage", "delta") if isinstance(delta, dict) else ("type", "usage")
        self._tell_once(value, known)

    def _message_stop(self, value: dict[str, Any]) -> None:
        if isinstance(value.get(_METRICS), dict):
            self.usage({_METRICS: value[_METRICS]})
        self.leftover(value, ("type", "message", _METRICS), "a field of the event that we do not know")
        self.end(by_mark=True)

    def _whole(self, message: dict[str, Any], payload: bytes) -> None:
        if not self.parts:
            self._content(message.get("content"), payload)
        self._message_fields(message)
        self.end(by_mark=True)

    def _message_fields(self, message: dict[str, Any]) -> None:
        """What is said of a message as a whole; usage is told in snapshots (QUIRKS 90)."""
        usage = message.get("usage")
        if isinstance(usage, dict):
            details = usage.get("output_tokens_details")
            self.usage(
                usage,
                input_tokens=usage.get("input_tokens"),
                output_tokens=usage.get("output_tokens"),
                cached_tokens=usage.get("cache_read_input_tokens"),
                reasoning_tokens=details.get("thinking_tokens") if isinstance(details, dict) else None,
            )
        if not is_empty(message.get("container")):
            self._container = message["container"]
        self._ending(message)
        odd = {key for key, kind in _TYPED_FIELDS.items() if not isinstance(message.get(key), kind)}
        self._tell_once(message, _MESSAGE_FIELDS - odd)

    def _ending(self, message: dict[str, Any]) -> None:
        """Why it stopped, in the provider's words: the explanation of a refusal, or the stop sequence that was met."""
        words, told = message.get("stop_sequence"), ""
        details = message.get("stop_details")
        if isinstance(details, dict):
            told = next((key for key in ("explanation", "category") if details.get(key)), "")
            words = details.get(told) or words
            self.leftover(details, ("type", told), "more about why it stopped")
        if reason := message.get("stop_reason"):
            self.finish(reason, words)

    def _tell_once(self, value: dict[str, Any], known: Any) -> None:
        fresh = {key: field for key, field in value.items() if key not in known and self._told.get(key) != field}
        self._told |= fresh
        self.leftover(fresh, (), "a field of the message that we do not know")

    # What is no event of this protocol.

    def _odd(self, kind: Any, value: dict[str, Any], payload: bytes, event: str) -> None:
        match value:
            case {"bytes": str(data)} if event == "chunk":
                self._chunk(data, value)
            case {"chunk": {"bytes": str(data)}}:  # as boto3 has it
                self._chunk(data, value)
            case {"role": "assistant", "content": list() | str()}:
                self._whole(value, payload)
            case {"type": str()} if kind in _DERIVED and self.parts:
                pass
            case _:
                self._perhaps_error(kind, value, event)

    def _chunk(self, data: str, value: dict[str, Any]) -> None:
        try:
            payload = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.unknown(value, "a chunk that is not base64")
            return
        self.read_one(payload, "")

    def _perhaps_error(self, kind: Any, value: dict[str, Any], event: str) -> None:
        error = named_error(event, value)
        if error is None and (not value.get("type") or kind == "error" or "error" in value):
            error = error_in(value) or bare_message(value)
        self.harm(value.get("index"))
        self.error_or_unknown(error, value, "an event that we do not know")
