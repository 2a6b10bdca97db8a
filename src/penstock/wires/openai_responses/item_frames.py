"""Frames about items of a response: their starts and ends, and the pieces of their texts and calls, as plain JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.wires.openai_responses.item import CallItem, Item, id_of
from penstock.wires.openai_responses.output import Output, index_of
from penstock.wires.openai_responses.text_part import Channel, TextPart, channel_and_text, text_of
from penstock.wires.shared.decode_response.loose import arguments_text, is_empty
from penstock.wires.shared.decode_response.open_call import OpenCall

Place = tuple[str | None, int | None, int | None, int | None]
"""The type of a delta and its three indexes."""

TEXTS: dict[str, tuple[str, Channel]] = {
    "output_text": ("message", "text"),
    "refusal": ("message", "refusal"),
    "reasoning_text": ("reasoning", "reasoning"),
    "reasoning": ("reasoning", "reasoning"),
    "reasoning_summary_text": ("reasoning", "summary"),
    "reasoning_summary": ("reasoning", "summary"),
}
"""The names of text frames, with the type of their item and the kind of text."""

CALLS = {"function_call_arguments": "function_call", "custom_tool_call_input": "custom_tool_call"}
"""The names of frames with pieces of calls, with the type of their item."""

ADDRESS = {
    "type", "sequence_number", "event_id", "response_id", "item_id", "output_index", "content_index", "summary_index",
    "annotation_index", "command_index", "obfuscation", "logprobs", "snapshot", "parsed",
}  # fmt: skip
"""The fields that say where a frame belongs, and have no content."""


class ItemFrames:
    """Reads the frames of items, and reports what is not known by `unknown`.

    `sinks` are where the next delta goes, by its place: the items of the last deltas, and their texts and calls.
    """

    def __init__(self, output: Output, unknown: Callable[[Any, str], None]) -> None:
        self.sinks: dict[Place, tuple[Item, TextPart | OpenCall]] = {}
        self._output = output
        self._unknown = unknown

    def text(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        """Reads a piece of a text, or the whole text at its end."""
        item_type, channel = TEXTS[stem]
        index = index_of(frame, "summary_index" if channel == "summary" else "content_index")
        item = self._output.text_at(frame, item_type)
        text = _text_in(frame.get("delta" if verb == "delta" else "refusal" if channel == "refusal" else "text"))
        if text is None:
            self._unknown(frame, "a text field that is not text")
        elif verb == "done":
            item.set_final(channel, item.streamed_index(channel, text, index), text)
        elif item.is_done or (part := item.part(channel, index)).is_final:
            self._report_late(frame, text)
        elif text:
            part.add(text)
            self._remember(frame, type, item, part)

    def call(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        """Reads a piece of the arguments of a call, or all of them at their end."""
        hosted = self._output.hosted_call_at(frame) if stem == "custom_tool_call_input" else None
        if hosted is not None:
            text = arguments_text(frame.get("delta" if verb == "delta" else "input"))
            hosted.add(stem, text, is_whole=verb == "done")
            return
        item = self._output.call_at(frame, CALLS[stem])
        if verb == "done":
            if not item.is_done:
                item.identify(id_of(frame.get("call_id")), text_of(frame.get("name")))
                item.set_arguments(
                    arguments_text(frame.get("input" if stem == "custom_tool_call_input" else "arguments"))
                )
            return
        piece = arguments_text(frame.get("delta"))
        if item.is_done or item.has_final_arguments:
            self._report_late(frame, piece)
        elif piece:
            item.call.add(piece)
            self._remember(frame, type, item, item.call)

    def item(self, frame: dict[str, Any], verb: str) -> None:
        """Reads the start or the end of an item."""
        data = frame.get("item")
        if not isinstance(data, dict):
            self._unknown(frame, "an item that is not an object")
        elif verb == "added":
            self._output.begin(frame, data)
        else:
            self._output.end(frame, data)

    def part(self, frame: dict[str, Any], stem: str, verb: str) -> None:
        """Reads the start or the end of a part of an item."""
        part = frame.get("part")
        is_summary = stem == "reasoning_summary_part"
        is_reasoning = is_summary or (isinstance(part, dict) and part.get("type") == "reasoning_text")
        item = self._output.text_at(frame, "reasoning" if is_reasoning else "message")
        index = index_of(frame, "summary_index" if is_summary else "content_index")
        if verb == "added":
            item.begin_part(part, index)
        else:
            read = channel_and_text(part)
            item.end_part(part, item.streamed_index(*read, index) if read else index)

    def annotation(self, frame: dict[str, Any]) -> None:
        """Reads an annotation of a text."""
        self._output.text_at(frame, "message").annotate(frame.get("annotation"), index_of(frame, "content_index"))

    def hosted(self, frame: dict[str, Any], stem: str, verb: str) -> None:
        """Reads a frame about a hosted tool; one with only an address has no content."""
        content = {key: value for key, value in frame.items() if key not in ADDRESS and not is_empty(value)}
        match verb, list(content.values()):
            case _, []:
                return
            case "delta" | "done", [str(text)]:
                item = self._output.hosted_at(frame)
                if isinstance(item, CallItem):
                    item.call.has_unknown_pieces = True
                elif item is not None:
                    item.add(stem, text, is_whole=verb == "done")
                    return
        self._unknown(frame, "a frame of an unknown kind")

    def _remember(self, frame: dict[str, Any], type: str, item: Item, sink: TextPart | OpenCall) -> None:
        """Remembers where the next delta of this kind goes, if its index leads to the item."""
        index, content, summary = (index_of(frame, key) for key in ("output_index", "content_index", "summary_index"))
        if self._output.index.leads_to(index, item):
            self.sinks[type, index, content, summary] = item, sink

    def _report_late(self, frame: dict[str, Any], piece: str) -> None:
        if piece:
            self._unknown(frame, "a piece of an item that has ended")  # QUIRKS 143


def _text_in(value: Any) -> str | None:
    """The text of a delta or a final text, empty if there is none; None if it is not text."""
    match value:
        case None:
            return ""
        case str(text) | {"text": str(text)}:
            return text
    return None
