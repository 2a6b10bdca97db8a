"""Decodes the OpenAI Responses API: SSE events, and whole responses.

Nearly all frames are deltas: they are decoded into a narrow struct and added to a text or call, which is remembered
from one delta to the next. All other frames are read as plain JSON.

The loose path is the reference for `_read_deltas`. `read_typed` has a short path for many deltas of one text or call,
`read_typed_one` for a single one. test_laws decodes every vector loosely, whole and frame by frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from penstock.events import Error, FinishReason
from penstock.wires.openai_responses.facts import USAGE
from penstock.wires.openai_responses.item import CallItem, Item, id_of
from penstock.wires.openai_responses.output import CONFIRMING, Output, index_of
from penstock.wires.openai_responses.text_part import Channel, TextPart, text_of
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.in_band_errors import bare_message, error_in
from penstock.wires.shared.indexes import Index
from penstock.wires.shared.loose import arguments_text, has_object_arguments, is_empty, items
from penstock.wires.shared.open_call import OpenCall
from penstock.wires.shared.wire import UNREADABLE, Wire


class Delta(Struct, gc=False, forbid_unknown_fields=True):
    """A frame that adds a piece. Its item id may differ each time (QUIRKS 136); the last three fields are ignored."""

    type: str = ""
    delta: str | None = None
    output_index: Index | None = None
    content_index: Index | None = None
    summary_index: Index | None = None
    item_id: str | None = None
    sequence_number: int | None = None
    obfuscation: str | None = None
    logprobs: Raw = Raw()


Place = tuple[str | None, int | None, int | None, int | None]
"""The type of a delta and its three indexes."""
# Where the last delta went: its place, the id of its item if the item was added with it (then the id decides, not the
# index), and what the delta was added to.
Target = tuple[Place, str | None, TextPart | OpenCall | None]
NO_TARGET: Target = ((None, None, None, None), None, None)

_TEXTS: dict[str, tuple[str, Channel]] = {
    "output_text": ("message", "text"),
    "refusal": ("message", "refusal"),
    "reasoning_text": ("reasoning", "reasoning"),
    "reasoning": ("reasoning", "reasoning"),
    "reasoning_summary_text": ("reasoning", "summary"),
    "reasoning_summary": ("reasoning", "summary"),
}
"""The names of text frames, with the type of their item and the kind of text."""

_CALLS = {"function_call_arguments": "function_call", "custom_tool_call_input": "custom_tool_call"}
_STATUSES = {"completed", "incomplete", "failed", "cancelled", "canceled"}
_ENDINGS = _STATUSES | {"done"}
_ADDRESS = {
    "type", "sequence_number", "event_id", "response_id", "item_id", "output_index", "content_index", "summary_index",
    "annotation_index", "command_index", "obfuscation", "logprobs", "snapshot", "parsed",
}  # fmt: skip
_KNOWN = _ADDRESS | {
    "delta", "text", "refusal", "arguments", "input", "name", "call_id", "part", "item", "response", "annotation",
    "usage", "error",
}  # fmt: skip


class OpenAIResponses(Wire):
    """The decoder of the Responses API. The end of its item confirms a call."""

    name = "openai-responses"
    USAGE = USAGE
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "completed": "stop",
        "failed": "error",
        "incomplete:max_output_tokens": "length",
        "incomplete:max_tokens": "length",
        "incomplete:length": "length",
        "incomplete:content_filter": "content_filter",
    }

    loose_events: ClassVar[frozenset[str]] = frozenset(
        f"response.{name}"
        for name in ("created", "in_progress", "output_item.added", "output_item.done", "content_part.added",
                     "content_part.done", "output_text.done", "function_call_arguments.done", "completed")
    )  # fmt: skip
    has_short_path: ClassVar[bool] = True
    decode = staticmethod(msgspec.json.Decoder(Delta).decode)

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._echoed: set[str] = set()  # the names of the tools that the response repeats
        self._has_echo = False
        self._output = Output(self.answer_for(), self.unknown, self._is_declared)
        self._sinks: dict[Place, TextPart | OpenCall] = {}
        self._target = NO_TARGET
        self._response_id: str | None = None

    def end(self, by_mark: bool = False) -> None:
        """Ends the answer. `[DONE]` is not part of this protocol and confirms no open item (QUIRKS 113)."""
        is_complete = self._output.is_complete
        self._output.close(self.answer_for().raw_reason in CONFIRMING)
        super().end(by_mark and is_complete)

    def client_work(self, answer: AnswerWriter) -> str:
        return self._output.client_work

    def read_typed(self, values: list[Delta], payloads: list[bytes], event: str) -> None:
        if len(values) > 1:  # mostly pieces of one text or call, and maybe the first of it
            if self._target is NO_TARGET:
                self._read_deltas(values[:1], payloads[:1], event)
                values, payloads = values[1:], payloads[1:]
            (type, output, content, summary), id, sink = self._target
            pieces = [
                delta.delta
                for delta in values
                if delta.delta and delta.item_id == id and delta.type == type and delta.output_index == output
                and delta.content_index == content and delta.summary_index == summary
            ]  # fmt: skip
            if sink and len(pieces) == len(values):
                sink.add_all(pieces)
                return
        self._read_deltas(values, payloads, event)

    def _read_deltas(self, values: list[Delta], payloads: list[bytes], event: str) -> None:
        (type, output, content, summary), id, sink = self._target
        pieces: list[str] = []  # for the present target
        for position, delta in enumerate(values):
            piece = delta.delta
            if delta.item_id == id:
                is_here = id or delta.output_index == output
            else:
                is_here = delta.output_index == output and delta.item_id not in self._output.announced
            is_next = is_here and delta.type == type and delta.content_index == content
            if piece and is_next and delta.summary_index == summary:
                pieces.append(piece)
            elif piece != "":
                if sink and pieces:
                    sink.add_all(pieces)
                    pieces = []
                self._read_elsewhere(delta, payloads[position], event)
                (type, output, content, summary), id, sink = self._target
        if sink and pieces:
            sink.add_all(pieces)

    def read_typed_one(self, value: Delta, payload: bytes, event: str) -> None:
        (type, output, content, summary), id, sink = self._target
        if value.item_id == id:
            is_here = id or value.output_index == output
        else:
            is_here = value.output_index == output and value.item_id not in self._output.announced
        is_next = is_here and value.type == type and value.content_index == content
        if sink and value.delta and is_next and value.summary_index == summary:
            sink.add(value.delta)
        else:
            self._read_deltas([value], [payload], event)

    def _read_elsewhere(self, delta: Delta, payload: bytes, event: str) -> None:
        """Reads a delta with another target than the last one: a known target, or it is read loosely."""
        place = (delta.type or event, delta.output_index, delta.content_index, delta.summary_index)
        owner = self._output.owner_of(delta.item_id)
        sink = self._sinks.get(place)
        if sink and owner is not None and not self._output.leads_to(delta.output_index, owner):
            sink = None
        self._target = (place, delta.item_id if owner else None, sink) if sink else NO_TARGET
        if sink and delta.delta is not None:
            sink.add(delta.delta)
        elif not self.is_ended:
            self.read_loose(payload, event)

    def read_loose(self, payload: bytes, event: str) -> None:
        try:
            frame = self.parse_loosely(payload) if has_object_arguments(payload) else msgspec.json.decode(payload)
        except UNREADABLE:
            frame = self.parse_loosely(payload)
        if isinstance(frame, dict):
            self._frame(frame, text_of(frame.get("type")) or event)
        else:
            self.report_no_object(frame)

    def _frame(self, frame: dict[str, Any], type: str) -> None:
        stem, _, verb = type.removeprefix("response.").rpartition(".")
        self.has_known_frames |= type.startswith("response.")
        if verb != "delta":
            self._target = NO_TARGET
            self._sinks.clear()  # the frame may end what they add to
        match stem, verb:
            case _, "delta" | "done" if stem in _TEXTS:
                self._text(frame, type, stem, verb)
            case _, "delta" | "done" if stem in _CALLS:
                self._call(frame, type, stem, verb)
            case "output_item", "added" | "done":
                self._item(frame, verb)
            case "content_part" | "reasoning_summary_part", "added" | "done":
                self._part(frame, stem, verb)
            case "output_text.annotation", "added":
                self._output.text_at(frame, "message").annotate(
                    frame.get("annotation"), index_of(frame, "content_index")
                )
            case "", "created":
                self._created(frame)
            case "", "in_progress" | "queued" | "keepalive" | "ping":
                self._read_echo(frame.get("response"))
            case "", _ if verb in _ENDINGS:
                self._ending(frame, verb)
                return
            case _:
                self._read_other(frame, type, stem, verb)
                return
        self._report_fields(frame)

    # Frames of items.

    def _text(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        item_type, channel = _TEXTS[stem]
        index = index_of(frame, "summary_index" if channel == "summary" else "content_index")
        item = self._output.text_at(frame, item_type)
        part = item.part(channel, index)
        text = _text_in(frame.get("delta" if verb == "delta" else "refusal" if channel == "refusal" else "text"))
        if text is None:
            self.unknown(frame, "a text field that is not text")
        elif verb == "done":
            item.set_final(channel, index, text)
        elif item.is_done or part.is_final:
            self._report_late(frame, text)
        elif text:
            part.add(text)
            self._remember(frame, type, item, part)

    def _call(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        hosted = self._output.hosted_call_at(frame) if stem == "custom_tool_call_input" else None
        if hosted is not None:
            text = arguments_text(frame.get("delta" if verb == "delta" else "input"))
            hosted.add(stem, text, is_whole=verb == "done")
            return
        item = self._output.call_at(frame, _CALLS[stem])
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

    def _remember(self, frame: dict[str, Any], type: str, item: Item, sink: TextPart | OpenCall) -> None:
        """Remembers where the next delta of this kind goes, if its index leads to the item."""
        index, content, summary = (index_of(frame, key) for key in ("output_index", "content_index", "summary_index"))
        if self._output.leads_to(index, item):
            self._sinks[type, index, content, summary] = sink

    def _report_late(self, frame: dict[str, Any], piece: str) -> None:
        if piece:
            self.unknown(frame, "a piece of an item that has ended")  # QUIRKS 143

    def _item(self, frame: dict[str, Any], verb: str) -> None:
        data = frame.get("item")
        if not isinstance(data, dict):
            self.unknown(frame, "an item that is not an object")
        elif verb == "added":
            self._output.begin(frame, data)
        else:
            self._output.end(frame, data)

    def _part(self, frame: dict[str, Any], stem: str, verb: str) -> None:
        part = frame.get("part")
        is_summary = stem == "reasoning_summary_part"
        is_reasoning = is_summary or (isinstance(part, dict) and part.get("type") == "reasoning_text")
        item = self._output.text_at(frame, "reasoning" if is_reasoning else "message")
        index = index_of(frame, "summary_index" if is_summary else "content_index")
        if verb == "added":
            item.begin_part(part, index)
        else:
            item.end_part(part, index)

    def _is_declared(self, name: str) -> bool:
        """Whether a custom tool is the client's: the response repeats the tools of the request."""
        return not self._has_echo or name in self._echoed or name in self.tools

    def _read_echo(self, response: Any) -> None:
        """Reads the tools that the response repeats."""
        tools = response.get("tools") if isinstance(response, dict) else None
        self._has_echo |= bool(tools) or (tools == [] and bool(self.tools))  # an empty one may just be a default
        for tool in items(tools):
            if isinstance(tool, dict):
                self._echoed.add(text_of(tool.get("name")))

    # Frames of the response.

    def _created(self, frame: dict[str, Any]) -> None:
        """Handles a second response in one stream: the first attempt is withdrawn (as in QUIRKS 123)."""
        response = frame.get("response")
        self._read_echo(response)
        id = id_of(response.get("id")) if isinstance(response, dict) else ""
        if self._response_id not in (None, id) and (self._output.items or self._errors):
            self.answer_for().withdraw()
            self.restart("the provider started the response again")
            self._output = Output(self.answer_for(), self.unknown, self._is_declared)
        self._response_id = id

    def _ending(self, frame: dict[str, Any], verb: str) -> None:
        response = frame.get("response")
        if isinstance(response, dict) or not isinstance(frame.get("output"), list):
            self._report_fields(frame)
        else:
            response = frame  # the response itself, without a wrapper
        if not isinstance(response, dict):
            if not is_empty(response):
                self.unknown(frame, "a response that is not an object")
            response = {}
        missing = {key: frame.get(key) for key in ("usage", "error") if not response.get(key)}
        self._response({**response, **missing}, verb)

    def _response(self, response: dict[str, Any], verb: str) -> None:
        """Reads a response; `verb` is the last word of its event's name, and empty for a body."""
        self.has_known_frames |= bool(verb) or response.get("object") == "response" or bool(self._output.items)
        self._read_echo(response)
        reason = _raw_reason(response, verb)
        self._output.reconcile(items(response.get("output")), reason)
        self._read_usage(response.get("usage"))
        self._failure(response.get("error"), reason)
        if reason is not None:
            self.answer_for().finish(reason)
            self.end()

    def _failure(self, raw: Any, reason: str | None) -> None:
        """Reads the error of the response; mostly an event has reported it before (QUIRKS 139)."""
        error = error_in({"error": raw}) if raw else None
        if error is None and reason == "failed" and not self._errors:
            error = Error("the response failed", "failed", raw=raw)
        if error is not None and self._errors and error.message not in self._errors:
            self.unknown({"error": raw}, "an error that was reported before in other words")
        elif error is not None:
            self.error(error)

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            if not is_empty(usage):
                self.unknown({"usage": usage}, "usage that is not an object")
            return
        self.usage(usage)

    # Other frames.

    def _read_other(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        """Reads an error, a whole response, or a frame of an unknown kind."""
        if verb == "error" and (self.report_error(frame) or self.report_error({"error": frame})):
            return
        is_body = frame.get("object") == "response" or (not type and isinstance(frame.get("output"), list))
        if is_body and not type.startswith("response."):  # an event may have a list called `output` too
            self._response(frame, "")
        elif type.startswith("response.") or (type and "error" not in frame):
            self._read_hosted(frame, stem, verb)
        elif error := error_in(frame) or bare_message(frame):
            self.error(error)
        elif not is_empty(frame):
            self.unknown(frame, "a frame without any known content")

    def _read_hosted(self, frame: dict[str, Any], stem: str, verb: str) -> None:
        """Reads a frame about a hosted tool; one with only an address has no content."""
        content = {key: value for key, value in frame.items() if key not in _ADDRESS and not is_empty(value)}
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
        self.unknown(frame, "a frame of an unknown kind")

    def _report_fields(self, frame: dict[str, Any]) -> None:
        for key, value in frame.items():
            if key not in _KNOWN and not is_empty(value):
                self.report_field(key, value, "an unknown field of the frame")


def _text_in(value: Any) -> str | None:
    """The text of a delta or a final text, empty if there is none; None if it is not text."""
    match value:
        case None:
            return ""
        case str(text) | {"text": str(text)}:
            return text
    return None


def _raw_reason(response: dict[str, Any], verb: str) -> str | None:
    """The reason for the end: the event's name, unless the status is worse; None if the response has not ended.

    For a body without a status it is empty.
    """
    status, details = text_of(response.get("status")), response.get("incomplete_details")
    reason = verb if verb in _STATUSES else ""
    if reason in ("", "completed") and status in _STATUSES:
        reason = status
    cause = text_of(details.get("reason")) if isinstance(details, dict) else ""
    if cause and reason in ("completed", "incomplete"):
        return f"incomplete:{cause}"
    return reason or verb or (None if status else "")
