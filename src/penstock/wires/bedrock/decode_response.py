"""Amazon Bedrock Converse: ConverseStream frames, the same events as boto3 gives them, and whole responses.

A frame's kind is only in its name; boto3 puts it around the event, as its one key. Text and reasoning blocks have no
start: their first delta begins them, so everything goes by `contentBlockIndex` (QUIRKS 161). The stream's end is the
end of the bytes, since `metadata` may come after `messageStop`, before it, or not at all (QUIRKS 162).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from penstock.events import FinishReason
from penstock.framing.sniff import FramingName
from penstock.wires.shared.in_band_errors import bare_message, error_in, named_error, wordless_error
from penstock.wires.shared.loose import is_empty, items, raw_of, text_of
from penstock.wires.shared.numbered_blocks import Label, NumberedWire
from penstock.wires.shared.open_block import OpenText, OpenThought, OpenVendor
from penstock.wires.shared.wire import UNREADABLE


class ToolPiece(Struct, gc=False, forbid_unknown_fields=True):
    input: str


class ReasoningPiece(Struct, gc=False, forbid_unknown_fields=True):
    text: str


class Delta(Struct, gc=False, forbid_unknown_fields=True):
    """What nearly all deltas are, one field of these at a time."""

    text: str | None = None
    toolUse: ToolPiece | None = None  # noqa: N815  # the wire's own names
    reasoningContent: ReasoningPiece | None = None  # noqa: N815


class BlockDelta(Struct, gc=False, forbid_unknown_fields=True):
    contentBlockIndex: int  # noqa: N815
    delta: Delta
    p: str = ""


class SpelledTool(Struct):
    """A call of which only the spelling of its input counts."""

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
_NOISE = ("p", "role", "usage", "stopReason", "metrics", "performanceConfig", "serviceTier", "ResponseMetadata")
_CLIENT_TOOLS = (None, "", "tool_use")


class Bedrock(NumberedWire):
    """Converse. A call is confirmed by the end of its block."""

    name = "bedrock"
    framing: ClassVar[FramingName] = "aws"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls",
        "max_tokens": "length", "model_context_window_exceeded": "length",
        "guardrail_intervened": "content_filter", "content_filtered": "content_filter",
        "malformed_model_output": "error", "malformed_tool_use": "error",
    }  # fmt: skip

    decode = staticmethod(msgspec.json.Decoder(BlockDelta).decode)

    def read_typed(self, values: list[BlockDelta], payloads: list[bytes], event: str) -> None:
        if event != "contentBlockDelta":  # only the event's name tells what a payload is
            for payload in payloads:
                self.read_loose(payload, event)
            return
        for value in values:
            self._typed_delta(value.contentBlockIndex, value.delta)

    def end_mark(self) -> None:
        """This protocol has no end mark: what follows may still be said."""

    def joined(self, field: str, pieces: list[Any]) -> Any:
        if field == "redactedContent" and len(pieces) > 1:
            return _joined_base64(pieces)
        return super().joined(field, pieces)

    def _typed_delta(self, label: int, delta: Delta) -> None:
        if delta.text is not None:
            self._text(label, delta.text)
        if delta.toolUse is not None:
            self.arguments(label, delta.toolUse.input)
        if delta.reasoningContent is not None:
            self.words(label, OpenThought, delta.reasoningContent.text)

    def _text(self, label: Label, piece: str) -> None:
        if isinstance(self.parts.get(label), OpenVendor):
            self.keep(label, "text", piece)
        else:
            self.words(label, OpenText, piece)

    def read_loose(self, payload: bytes, event: str) -> None:
        if error := wordless_error(event, payload):
            self.error(error)
            return
        value = self.parse_loosely(payload)
        if not isinstance(value, dict):
            if value is not None:
                self.unknown(value, "a frame that is no object")
        elif any(key in _EVENTS for key in value):
            for key, inner in value.items():
                self._wrapped(key, inner)
        elif event in _EVENTS:
            self._event(event, value)
        else:
            self._response(value, payload, event)

    def _wrapped(self, key: str, inner: Any) -> None:
        """An event with its name around it, as boto3 gives it."""
        if key in _EVENTS and isinstance(inner, dict):
            self._event(key, inner)
        elif key not in _NOISE and not is_empty(inner):
            self.harm(inner.get("contentBlockIndex") if isinstance(inner, dict) else None)
            self.unknown({key: inner}, "an event that we do not know")

    def _event(self, event: str, value: dict[str, Any]) -> None:
        self.has_known_frames = True
        known: tuple[str, ...] = ()
        match event:
            case "contentBlockDelta":
                known = ("contentBlockIndex", "delta")
                self._delta(self.label(value.get("contentBlockIndex")), value.get("delta"))
            case "contentBlockStart":
                known = ("contentBlockIndex", "start")
                self._start(value.get("contentBlockIndex"), value.get("start"))
            case "contentBlockStop":
                known = ("contentBlockIndex",)
                self.stop(self.label(value.get("contentBlockIndex")))
            case _:
                self._message_fields(value)
        self.leftover(value, (*known, *_NOISE), "a field of the event that we do not know")

    def _message_fields(self, value: dict[str, Any]) -> None:
        """What is said of the message as a whole, wherever it is said."""
        if reason := value.get("stopReason"):
            self.finish(reason)
        usage = value.get("usage")
        if isinstance(usage, dict):
            self.usage(
                usage,
                input_tokens=usage.get("inputTokens"),
                output_tokens=usage.get("outputTokens"),
                cached_tokens=usage.get("cacheReadInputTokens"),
            )

    # Blocks.

    def _start(self, number: Any, start: Any) -> None:
        match start:
            case {"toolUse": dict(tool), **rest} if tool.get("type") in _CLIENT_TOOLS:
                self.begin_call(number, tool.get("toolUseId"), tool.get("name"), text_of(raw_of(tool.get("input"))))
                self.leftover(tool, ("toolUseId", "name", "type", "input"), "a field of toolUse that we do not know")
            case {"toolUse": dict(body), **rest}:
                self.begin_vendor(number, "toolUse", body, is_state=True, wrap="toolUse")
            case {"toolResult": dict(body), **rest}:
                self.begin_vendor(number, "toolResult", body, is_state=True, wrap="toolResult")
            case {"text": str(text), **rest}:
                self.begin(number, OpenText({"text": text} if text else None))
            case _ if is_empty(start):
                return  # what the block is, its deltas will say (QUIRKS 161)
            case _:
                self.begin_vendor(number, "", {"start": start}, is_state=False)
                return
        self.leftover(rest, (), "a field of a block's start that we do not know")

    def _delta(self, label: Label, delta: Any) -> None:
        if not isinstance(delta, dict):
            self.strange_delta(label, {"delta": delta}, "a delta that is no object")
            return
        if isinstance(self.parts.get(label), OpenVendor):
            self._vendor_delta(label, delta)
            return
        for field, piece in delta.items():
            match field, piece:
                case "text", str():
                    self.words(label, OpenText, piece)
                case "toolUse", dict():
                    self.arguments(label, text_of(raw_of(piece.get("input"))))
                    self.leftover(piece, ("input",), "a field of toolUse that we do not know")
                case "reasoningContent", dict():
                    self._reasoning(label, piece)
                case "citation", dict():
                    self.keep(label, "citations", piece, OpenText)
                case _:
                    self.strange_delta(label, {field: piece}, "a delta of a type that we do not know")

    def _reasoning(self, label: Label, piece: dict[str, Any]) -> None:
        for field, value in piece.items():
            match field, value:
                case "text", str():
                    self.words(label, OpenThought, value)
                case "signature" | "redactedContent", _:
                    self.keep(label, field, value)
                case "reasoningText", dict():  # whole, as in a response
                    self._reasoning(label, value)
                case _:
                    self.leftover({field: value}, (), "a field of reasoningContent that we do not know")

    def _vendor_delta(self, label: Label, delta: dict[str, Any]) -> None:
        """A piece of a block that is none of ours goes into the field that it is for."""
        for field, piece in delta.items():
            match field, piece:
                case "toolUse", {"input": input}:
                    self.keep(label, "input", input)
                case "toolResult", list():
                    self.keep(label, "content", piece)
                case _:
                    self.keep(label, field, piece)

    # Responses that are no stream.

    def _response(self, value: dict[str, Any], payload: bytes, event: str) -> None:
        match value:
            case {"output": {"message": dict(message), **rest}}:
                self._content(message.get("content"), payload)
                self._message_fields(value)
                for fields in (value, rest, message):
                    self.leftover(fields, ("output", "content", *_NOISE), "a field of the response that we do not know")
            case _ if event == "initial-response":
                pass
            case _:
                self._perhaps_error(value, event)

    def _content(self, content: Any, payload: bytes) -> None:
        spelled = _spelled_inputs(payload)
        for at, block in enumerate(content if isinstance(content, list) else [content]):
            self._whole_block(at, block, spelled[at] if at < len(spelled) else "")
            self.stop(at, "whole")

    def _whole_block(self, at: int, block: Any, spelled: str) -> None:
        match block:
            case {"toolUse": dict(tool)}:
                is_spelled = spelled and tool.get("type") in _CLIENT_TOOLS
                self._start(at, {**block, "toolUse": {**tool, "input": spelled} if is_spelled else tool})
            case {"toolResult": dict()}:
                self._start(at, block)
            case {"citationsContent": dict(cited), **rest}:
                for piece in items(cited.get("content")):
                    self._delta(at, piece)
                for citation in items(cited.get("citations")):
                    self._delta(at, {"citation": citation})
                self.leftover({**cited, **rest}, ("content", "citations"), "a field of the block that we do not know")
            case {"text": str()} | {"reasoningContent": dict()}:
                self._delta(at, block)
            case _:
                self.leftover({"content": block}, (), "a block of a type that we do not know")

    def _perhaps_error(self, value: dict[str, Any], event: str) -> None:
        error = named_error(event, value) or error_in(value) or bare_message(_named(value))
        self.harm(value.get("contentBlockIndex"))
        self.error_or_unknown(error, value, "an event that we do not know")


def _named(value: dict[str, Any]) -> dict[str, Any]:
    """An error of AWS, whose type is its code, without the namespace; or, as boto3 keeps it, under `Error`."""
    match value:
        case {"Error": {"Message": message, **rest}}:
            return {"message": message, "code": rest.get("Code")}
        case {"__type": str(kind)}:
            return {**value, "code": kind.rpartition("#")[2]}
    return value


def _joined_base64(pieces: list[Any]) -> Any:
    """Bytes that came in pieces, each encoded on its own."""
    try:
        whole = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except (binascii.Error, ValueError, TypeError):
        return pieces
    return base64.b64encode(whole).decode()


def _spelled_inputs(payload: bytes) -> list[str]:
    """The inputs of a response's calls as they were spelled; none if the response is too odd to tell."""
    try:
        blocks = _decode_spelled(payload).output.message.content
    except UNREADABLE:
        return []
    return [text_of(block.toolUse.input) if block.toolUse else "" for block in blocks]
