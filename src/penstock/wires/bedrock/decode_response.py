"""Decodes Amazon Bedrock Converse: ConverseStream frames, the same events as boto3 returns them, and whole responses.

InvokeModelWithResponseStream has the same events for Nova. What models without tools send there: `invoked_text.py`.

The type of a frame is only in its event name; boto3 makes it the only key of the event. Text and reasoning blocks have
no start: their first delta begins them, so blocks are found by `contentBlockIndex` (QUIRKS 161). The stream ends with
its bytes, because `metadata` may come after `messageStop`, before it, or not at all (QUIRKS 162).

The loose path is the reference for `read_typed`; test_laws decodes every vector by both.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from penstock.events import FinishReason, Progress, StreamChunk
from penstock.framing.sniff import FramingName
from penstock.wires.bedrock.facts import METRICS, USAGE
from penstock.wires.bedrock.invoked_text import REASONS, chunk_of, read_text
from penstock.wires.shared.claude import PAUSES
from penstock.wires.shared.decode_response.in_band_errors import bare_exception, bare_message, error_in, named_error
from penstock.wires.shared.decode_response.indexes import Index
from penstock.wires.shared.decode_response.loose import is_empty, items, raw_of, text_of
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE
from penstock.wires.shared.decode_response.numbered_blocks import Label, NumberedBlocks, join_state
from penstock.wires.shared.decode_response.open_block import OpenReasoning, OpenText, OpenVendor
from penstock.wires.shared.decode_response.wire import Wire


class ToolPiece(Struct, gc=False, forbid_unknown_fields=True):
    input: str


class ReasoningPiece(Struct, gc=False, forbid_unknown_fields=True):
    text: str


class Delta(Struct, gc=False, forbid_unknown_fields=True):
    """The shape of nearly all deltas, with one of these fields each."""

    text: str | None = None
    toolUse: ToolPiece | None = None  # noqa: N815  # the names of the API
    reasoningContent: ReasoningPiece | None = None  # noqa: N815


class BlockDelta(Struct, gc=False, forbid_unknown_fields=True):
    contentBlockIndex: Index  # noqa: N815
    delta: Delta
    p: str = ""


class SpelledTool(Struct):
    """A call, of which only the spelling of its input is read."""

    input: msgspec.Raw = msgspec.Raw()


class SpelledBlock(Struct):
    toolUse: SpelledTool | None = None  # noqa: N815


class SpelledMessage(Struct):
    content: list[SpelledBlock] = []


class SpelledOutput(Struct):
    message: SpelledMessage


class SpelledResponse(Struct):
    output: SpelledOutput


_decode_spelled = msgspec.json.Decoder(SpelledResponse).decode

_EVENTS = ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
_IGNORED = ("p", "role", "usage", "stopReason", "metrics", "performanceConfig", "serviceTier", "ResponseMetadata",
            METRICS)  # fmt: skip
_CLIENT_TOOLS = (None, "", "tool_use")


class Bedrock(Wire):
    """The decoder of Converse. A call is confirmed by the end of its block."""

    name = "bedrock"
    USAGE = USAGE
    PAUSES = PAUSES
    framing: ClassVar[FramingName] = "aws"
    ends_with_body: ClassVar[bool] = True
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls",
        "max_tokens": "length", "model_context_window_exceeded": "length",
        "guardrail_intervened": "content_filter", "content_filtered": "content_filter",
        "malformed_model_output": "error", "malformed_tool_use": "error", **REASONS,
    }  # fmt: skip

    decode = staticmethod(msgspec.json.Decoder(BlockDelta).decode)

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._answer = self.answer_for()
        self._blocks = NumberedBlocks(self._answer, self.reports, self.FINISH, _join_state)
        self._has_metadata = False
        self._is_body = False  # the last frame was a whole response

    def read_typed(self, values: list[BlockDelta], payloads: list[bytes], event: str) -> None:
        if event != "contentBlockDelta":  # only the event name says what a payload is
            for payload in payloads:
                self.read_loose(payload, event)
            return
        self.reports.has_known_frames = True
        for value in values:
            self._typed_delta(value.contentBlockIndex, value.delta)

    def end(self, by_mark: bool = False) -> None:
        """Ends the answer; after the reason, the metadata is its last event."""
        by_mark = by_mark or (self._has_metadata and self._answer.raw_reason is not None)
        self._blocks.end(by_mark)
        super().end(by_mark)

    def end_body(self) -> None:
        """Ends the answer if it was a whole response without a reason (QUIRKS 176)."""
        if self._is_body and self._answer.raw_reason is None:
            self.end(by_mark=True)

    def end_mark(self) -> None:
        """Does nothing: this protocol has no end mark."""

    def progress(self, chunks: Sequence[StreamChunk]) -> Progress:
        progress = super().progress(chunks)
        return "ended" if progress == "finished" and self._has_metadata else progress

    def _typed_delta(self, label: int, delta: Delta) -> None:
        if delta.text is not None:
            self._text(label, delta.text)
        if delta.toolUse is not None:
            self._blocks.add_arguments(label, delta.toolUse.input)
        if delta.reasoningContent is not None:
            self._blocks.add_content(label, OpenReasoning, delta.reasoningContent.text)

    def _text(self, label: Label, piece: str) -> None:
        if isinstance(self._blocks.parts.get(label), OpenVendor):
            self._blocks.add_state(label, "text", piece)
        else:
            self._blocks.add_content(label, OpenText, piece)

    def read_loose(self, payload: bytes, event: str) -> None:
        if error := bare_exception(event, payload):
            self.reports.error(error)
            return
        value = self.loose.parse(payload)
        if not isinstance(value, dict):
            self.reports.no_object(value)
        elif any(key in _EVENTS for key in value):
            for key, inner in value.items():
                self._wrapped(key, inner)
        elif event in _EVENTS:
            self._event(event, value)
        else:
            self._response(value, payload, event)

    def _wrapped(self, key: str, inner: Any) -> None:
        """Reads an event under its name, as boto3 returns it."""
        if key in _EVENTS and isinstance(inner, dict):
            self._event(key, inner)
        elif key not in _IGNORED and not is_empty(inner):
            self._blocks.add_unknown(inner.get("contentBlockIndex") if isinstance(inner, dict) else None)
            self.reports.unknown({key: inner}, "an unknown event")

    def _event(self, event: str, value: dict[str, Any]) -> None:
        self.reports.has_known_frames = True
        known: tuple[str, ...] = ()
        match event:
            case "contentBlockDelta":
                known = ("contentBlockIndex", "delta")
                self._delta(self._blocks.label(value.get("contentBlockIndex")), value.get("delta"))
            case "contentBlockStart":
                known = ("contentBlockIndex", "start")
                self._start(value.get("contentBlockIndex"), value.get("start"))
            case "contentBlockStop":
                known = ("contentBlockIndex",)
                self._blocks.stop(self._blocks.label(value.get("contentBlockIndex")))
            case _:
                self._message_fields(value)
                self._has_metadata |= event == "metadata"
        self.reports.fields(value, (*known, *_IGNORED), "an unknown field of the event")

    def _message_fields(self, value: dict[str, Any]) -> None:
        """Reads the fields of the message itself, in whichever event they come."""
        if reason := value.get("stopReason"):
            self._blocks.finish(reason)
        usage = value.get("usage")
        if isinstance(usage, dict):
            self.usage.add(usage)

    # Blocks.

    def _start(self, number: Any, start: Any) -> None:
        match start:
            case {"toolUse": dict(tool), **rest} if tool.get("type") in _CLIENT_TOOLS:
                input = text_of(raw_of(tool.get("input")))
                self._blocks.begin_call(number, tool.get("toolUseId"), tool.get("name"), input)
                self.reports.each_field(tool, ("toolUseId", "name", "type", "input"), "an unknown field of toolUse")
            case {"toolUse": dict(body), **rest}:
                self._blocks.begin_vendor(number, "toolUse", body, is_state=True, wrap="toolUse")
            case {"toolResult": dict(body), **rest}:
                self._blocks.begin_vendor(number, "toolResult", body, is_state=True, wrap="toolResult")
            case {"text": str(text), **rest}:
                self._blocks.begin(number, OpenText({"text": text} if text else None))
            case _ if is_empty(start):
                return  # the deltas will show what it is (QUIRKS 161)
            case _:
                self._blocks.begin_vendor(number, "", {"start": start}, is_state=False)
                return
        self.reports.each_field(rest, (), "an unknown field of a block's start")

    def _delta(self, label: Label, delta: Any) -> None:
        if not isinstance(delta, dict):
            self._blocks.misshapen_delta(label, {"delta": delta}, "a delta that is not an object")
            return
        if isinstance(self._blocks.parts.get(label), OpenVendor):
            self._vendor_delta(label, delta)
            return
        for field, piece in delta.items():
            match field, piece:
                case "text", str():
                    self._blocks.add_content(label, OpenText, piece)
                case "toolUse", dict():
                    self._blocks.add_arguments(label, text_of(raw_of(piece.get("input"))))
                    self.reports.each_field(piece, ("input",), "an unknown field of toolUse")
                case "reasoningContent", dict():
                    self._reasoning(label, piece)
                case "citation", dict():
                    self._blocks.add_state(label, "citations", piece, OpenText)
                case "text" | "toolUse" | "reasoningContent", _:
                    self._blocks.misshapen_delta(label, {field: piece}, "a delta of another type than expected")
                case _:
                    self._blocks.unknown_delta(label, {field: piece}, "a delta of an unknown type")

    def _reasoning(self, label: Label, piece: dict[str, Any]) -> None:
        for field, value in piece.items():
            match field, value:
                case "text", str():
                    self._blocks.add_content(label, OpenReasoning, value)
                case "signature" | "redactedContent", _:
                    self._blocks.add_state(label, field, value)
                case "reasoningText", dict():  # whole, as in a response
                    self._reasoning(label, value)
                case _:
                    self.reports.each_field({field: value}, (), "an unknown field of reasoningContent")

    def _vendor_delta(self, label: Label, delta: dict[str, Any]) -> None:
        """Adds a piece to a block of the vendor's, in the field that it names."""
        for field, piece in delta.items():
            match field, piece:
                case "toolUse", {"input": input}:
                    self._blocks.add_state(label, "input", input)
                case "toolResult", list():
                    self._blocks.add_state(label, "content", piece)
                case _:
                    self._blocks.add_state(label, field, piece)

    # Whole responses, and errors.

    def _response(self, value: dict[str, Any], payload: bytes, event: str) -> None:
        match value:
            case {"output": {"message": dict(message), **rest}}:
                self.reports.has_known_frames = self._is_body = True
                self._content(message.get("content"), payload)
                self._message_fields(value)
                known = ("output", "content", *_IGNORED)
                for fields in (value, rest, message):
                    self.reports.each_field(fields, known, "an unknown field of the response")
            case _ if event == "initial-response":
                pass
            case {"chunk": {"bytes": str(data)}}:  # as boto3 returns it
                self._chunk(data)
            case {"bytes": str(data)} if event == "chunk":
                self._chunk(data)
            case _:
                self._text_or_error(value, event)

    def _chunk(self, data: str) -> None:
        """Reads a chunk that the framing has not read: an event, or the text of an agent."""
        event = chunk_of(data)
        if event is None:
            self.reports.hole(data, "a chunk that is neither an event nor text")
        elif event.startswith(b"{"):
            self.inner.append(event)
        else:
            self.reports.has_known_frames = True
            self._answer.text(event.decode())

    def _text_or_error(self, value: dict[str, Any], event: str) -> None:
        text = read_text(value)
        if text is None:
            self._error_or_unknown_event(value, event)
            return
        self.reports.has_known_frames = True
        for choice, piece in text.pieces:
            self.answer_for(choice).text(piece)
        if text.reason:
            for answer in self.answers.in_order:
                answer.finish(text.reason)
        if text.counts:
            self.usage.add({METRICS: text.counts})
        if text.error:
            self.reports.error_in({"error": text.error})
        self.reports.fields(text.rest, (), "an unknown field of the chunk")

    def _content(self, content: Any, payload: bytes) -> None:
        spelled = _spelled_inputs(payload)
        for number, block in enumerate(content if isinstance(content, list) else [content]):
            self._whole_block(number, block, spelled[number] if number < len(spelled) else "")
            self._blocks.stop(number, "whole")

    def _whole_block(self, number: int, block: Any, spelled: str) -> None:
        match block:
            case {"toolUse": dict(tool)}:
                is_spelled = spelled and tool.get("type") in _CLIENT_TOOLS
                self._start(number, {**block, "toolUse": {**tool, "input": spelled} if is_spelled else tool})
            case {"toolResult": dict()}:
                self._start(number, block)
            case {"citationsContent": dict(cited), **rest}:
                for piece in items(cited.get("content")):
                    self._delta(number, piece)
                for citation in items(cited.get("citations")):
                    self._delta(number, {"citation": citation})
                self.reports.each_field({**cited, **rest}, ("content", "citations"), "an unknown field of the block")
            case {"text": str()} | {"reasoningContent": dict()}:
                self._delta(number, block)
            case _:
                self.reports.each_field({"content": block}, (), "a block of an unknown type")

    def _error_or_unknown_event(self, value: dict[str, Any], event: str) -> None:
        error = named_error(event, value) or error_in(value) or bare_message(_normalized_error(value))
        self._blocks.add_unknown(value.get("contentBlockIndex"))
        self.reports.error_or_unknown(error, value, "an unknown event")


def _normalized_error(value: dict[str, Any]) -> dict[str, Any]:
    """An AWS error with its type, without the namespace, as its code; boto3 keeps it under `Error`."""
    match value:
        case {"Error": {"Message": message, **rest}}:
            return {"message": message, "code": rest.get("Code")}
        case {"__type": str(kind)}:
            return {**value, "code": kind.rpartition("#")[2]}
    return value


def _join_state(field: str, pieces: list[Any]) -> Any:
    return _join_base64(pieces) if field == "redactedContent" and len(pieces) > 1 else join_state(field, pieces)


def _join_base64(pieces: list[Any]) -> Any:
    """Joins bytes that came in pieces, each encoded separately."""
    try:
        whole = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except (binascii.Error, ValueError, TypeError):
        return pieces
    return base64.b64encode(whole).decode()


def _spelled_inputs(payload: bytes) -> list[str]:
    """The inputs of a response's calls as they were spelled; none if the response has another shape."""
    try:
        blocks = _decode_spelled(payload).output.message.content
    except UNREADABLE:
        return []
    return [text_of(block.toolUse.input) if block.toolUse else "" for block in blocks]
