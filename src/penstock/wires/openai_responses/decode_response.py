"""The OpenAI Responses API, and those who speak it: frames to events.

Nearly all frames are deltas, decoded into a narrow struct and handed to the text or call that they add to, which is
remembered from one delta to the next. All others, and whatever does not fit, are read as plain JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from penstock.events import Error, FinishReason
from penstock.wires.openai_responses.item import CallItem, Item, id_of
from penstock.wires.openai_responses.output import CONFIRMING, Output, index_of
from penstock.wires.openai_responses.text import Channel, Part, text_of
from penstock.wires.shared.in_band_errors import bare_message, error_in
from penstock.wires.shared.loose import arguments_text, is_empty, items
from penstock.wires.shared.open_call import OpenCall
from penstock.wires.shared.wire import UNREADABLE, Wire


class Delta(Struct, gc=False, forbid_unknown_fields=True):
    """A frame that adds a piece. The item's id may be another each time (QUIRKS 136); the last three mean nothing."""

    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    sequence_number: int | None = None
    obfuscation: str | None = None
    logprobs: Raw = Raw()


Place = tuple[str | None, int | None, int | None, int | None]
"""What deltas are called, and the indexes that they bear."""
# Where the last delta went: its place, the id of its item if that was announced (then it tells, and the index does
# not), and what the delta was added to.
Aim = tuple[Place, str | None, Part | OpenCall | None]
NOWHERE: Aim = ((None, None, None, None), None, None)

_TEXTS: dict[str, tuple[str, Channel]] = {
    "output_text": ("message", "text"),
    "refusal": ("message", "refusal"),
    "reasoning_text": ("reasoning", "reasoning"),
    "reasoning": ("reasoning", "reasoning"),
    "reasoning_summary_text": ("reasoning", "summary"),
    "reasoning_summary": ("reasoning", "summary"),
}
"""What frames of texts are called, the items that they belong to, and how they speak."""

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
    """Responses events, or a whole response. An item's own end confirms a call."""

    name = "openai-responses"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "completed": "stop",
        "failed": "error",
        "incomplete:max_output_tokens": "length",
        "incomplete:max_tokens": "length",
        "incomplete:length": "length",
        "incomplete:content_filter": "content_filter",
    }

    decode = staticmethod(msgspec.json.Decoder(Delta).decode)

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._output = Output(self.answer_for(), self.unknown)
        self._sinks: dict[Place, Part | OpenCall] = {}
        self._aim = NOWHERE
        self._response_id: str | None = None

    def end(self, by_mark: bool = False) -> None:
        """End the answer. A `[DONE]` is no word of this protocol: it confirms nothing that is open (QUIRKS 113)."""
        is_settled = self._output.is_settled
        self._output.close(self.answer_for().raw_reason in CONFIRMING)
        super().end(by_mark and is_settled)

    def read_typed(self, values: list[Delta], payloads: list[bytes], event: str) -> None:
        (type, output, content, summary), id, sink = self._aim
        pieces: list[str] = []  # of the one that is being written
        for at, delta in enumerate(values):
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
                self._elsewhere(delta, payloads[at], event)
                (type, output, content, summary), id, sink = self._aim
        if sink and pieces:
            sink.add_all(pieces)

    def read_typed_one(self, value: Delta, payload: bytes, event: str) -> None:
        (type, output, content, summary), id, sink = self._aim
        if value.item_id == id:
            is_here = id or value.output_index == output
        else:
            is_here = value.output_index == output and value.item_id not in self._output.announced
        is_next = is_here and value.type == type and value.content_index == content
        if sink and value.delta and is_next and value.summary_index == summary:
            sink.add(value.delta)
        else:
            self.read_typed([value], [payload], event)

    def _elsewhere(self, delta: Delta, payload: bytes, event: str) -> None:
        """A delta that does not go where the last one went: where some went before, or it is looked at closely."""
        place = (delta.type or event, delta.output_index, delta.content_index, delta.summary_index)
        owner = self._output.owner_of(delta.item_id)
        sink = self._sinks.get(place)
        if sink and owner is not None and not self._output.leads_to(delta.output_index, owner):
            sink = None
        self._aim = (place, delta.item_id if owner else None, sink) if sink else NOWHERE
        if sink and delta.delta is not None:
            sink.add(delta.delta)
        elif self.is_ended:
            self._late(payload)
        else:
            self.read_loose(payload, event)

    def read_loose(self, payload: bytes, event: str) -> None:
        try:
            frame = msgspec.json.decode(payload)
        except UNREADABLE:
            frame = self.parse_loosely(payload)
        if isinstance(frame, dict):
            self._frame(frame, text_of(frame.get("type")) or event)
        elif frame is not None:
            self.unknown(frame, "a frame that is not an object")

    def _frame(self, frame: dict[str, Any], type: str) -> None:
        stem, _, verb = type.removeprefix("response.").rpartition(".")
        self.has_known_frames |= type.startswith("response.")
        if verb != "delta":
            self._aim = NOWHERE
            self._sinks.clear()  # the frame may settle what they add to
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
                pass
            case "", _ if verb in _ENDINGS:
                self._ending(frame, verb)
                return
            case _:
                self._foreign(frame, stem, verb)
                return
        self._tell_more(frame)

    # What an item says.

    def _text(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        item_type, channel = _TEXTS[stem]
        index = index_of(frame, "summary_index" if channel == "summary" else "content_index")
        item = self._output.text_at(frame, item_type)
        part = item.part(channel, index)
        said = _text_in(frame.get("delta" if verb == "delta" else "refusal" if channel == "refusal" else "text"))
        if said is None:
            self.unknown(frame, "a text that is none")
        elif verb == "done":
            item.settle(channel, index, said)
        elif item.is_done or part.is_settled:
            self._tell_late(frame, said)
        elif said:
            part.add(said)
            self._remember(frame, type, item, part)

    def _call(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        item = self._output.call_at(frame, _CALLS[stem])
        if verb == "done":
            if not item.is_done:
                item.introduce(id_of(frame.get("call_id")), text_of(frame.get("name")))
                item.state(arguments_text(frame.get("input" if stem == "custom_tool_call_input" else "arguments")))
            return
        piece = arguments_text(frame.get("delta"))
        if item.is_done or item.is_stated:
            self._tell_late(frame, piece)
        elif piece:
            item.call.add(piece)
            self._remember(frame, type, item, item.call)

    def _remember(self, frame: dict[str, Any], type: str, item: Item, sink: Part | OpenCall) -> None:
        """Where the next delta of this kind goes, if the index says so."""
        index, content, summary = (index_of(frame, key) for key in ("output_index", "content_index", "summary_index"))
        if self._output.leads_to(index, item):
            self._sinks[type, index, content, summary] = sink

    def _tell_late(self, frame: dict[str, Any], piece: str) -> None:
        if piece:
            self.unknown(frame, "a piece of something that has ended")  # QUIRKS 143

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

    # What the response says.

    def _created(self, frame: dict[str, Any]) -> None:
        """A second response in one stream: the first attempt was given up (as in QUIRKS 123)."""
        response = frame.get("response")
        id = id_of(response.get("id")) if isinstance(response, dict) else ""
        if self._response_id not in (None, id) and (self._output.items or self._errors):
            self.answer_for().withdraw()
            self.restart("the provider began the answer anew")
            self._output = Output(self.answer_for(), self.unknown)
        self._response_id = id

    def _ending(self, frame: dict[str, Any], said: str) -> None:
        response = frame.get("response")
        if isinstance(response, dict) or not isinstance(frame.get("output"), list):
            self._tell_more(frame)
        else:
            response = frame  # the event's name is all that was put around it
        if not isinstance(response, dict):
            if not is_empty(response):
                self.unknown(frame, "a response that is not an object")
            response = {}
        missing = {key: frame.get(key) for key in ("usage", "error") if not response.get(key)}
        self._response({**response, **missing}, said)

    def _response(self, response: dict[str, Any], said: str) -> None:
        """The response as it stands; `said` is what the frame is called, and empty for a body."""
        reason = _raw_reason(response, said)
        self._output.conclude(items(response.get("output")), reason)
        self._usage_of(response.get("usage"))
        self._failure(response.get("error"), reason)
        if reason is not None:
            self.answer_for().finish(reason)
            self.end()

    def _failure(self, said: Any, reason: str | None) -> None:
        """The response's own error; mostly it has been told in a frame of its own before (QUIRKS 139)."""
        error = error_in({"error": said}) if said else None
        if error is None and reason == "failed" and not self._errors:
            error = Error("the response failed", "failed", raw=said)
        if error is not None and self._errors and error.message not in self._errors:
            self.unknown({"error": said}, "the error that was told before, in other words")
        elif error is not None:
            self.error(error)

    def _usage_of(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            if not is_empty(usage):
                self.unknown({"usage": usage}, "a usage that is not an object")
            return
        read, written = usage.get("input_tokens_details"), usage.get("output_tokens_details")
        self.usage(
            usage,
            input_tokens=usage.get("input_tokens", usage.get("prompt_tokens")),
            output_tokens=usage.get("output_tokens", usage.get("completion_tokens")),
            cached_tokens=read.get("cached_tokens") if isinstance(read, dict) else None,
            reasoning_tokens=written.get("reasoning_tokens") if isinstance(written, dict) else None,
        )

    # What else may arrive.

    def _foreign(self, frame: dict[str, Any], stem: str, verb: str) -> None:
        """An error, a body, or a frame that we have no word for."""
        if verb == "error" and (self.report_error(frame) or self.report_error({"error": frame})):
            return
        type = text_of(frame.get("type"))
        if frame.get("object") == "response" or isinstance(frame.get("output"), list):
            self._response(frame, "")
        elif type.startswith("response.") or (type and "error" not in frame):
            self._strange(frame, stem, verb)
        elif error := error_in(frame) or bare_message(frame):
            self.error(error)
        elif not is_empty(frame):
            self.unknown(frame, "a frame without any known content")

    def _strange(self, frame: dict[str, Any], stem: str, verb: str) -> None:
        """A frame about a tool that the provider runs: with nothing in it but its address it says nothing."""
        content = {key: value for key, value in frame.items() if key not in _ADDRESS and not is_empty(value)}
        match verb, list(content.values()):
            case _, []:
                return
            case "delta" | "done", [str(text)]:
                item = self._output.hosted_at(frame)
                if isinstance(item, CallItem):
                    item.call.damage()  # it may have been a piece of the arguments
                elif item is not None:
                    item.add(stem, text, is_whole=verb == "done")
                    return
        self.unknown(frame, "a frame of an unknown kind")

    def _tell_more(self, frame: dict[str, Any]) -> None:
        for key, value in frame.items():
            if key not in _KNOWN and not is_empty(value):
                self.unknown({key: value}, "an unknown field of the frame")


def _text_in(value: Any) -> str | None:
    """The text that a delta or a statement holds, empty if it holds nothing; None if it is something else."""
    match value:
        case None:
            return ""
        case str(text) | {"text": str(text)}:
            return text
    return None


def _raw_reason(response: dict[str, Any], said: str) -> str | None:
    """Why the response is over: what the frame is called, unless its status says worse; None if it is not over.

    A body that has no status is over, but does not say why.
    """
    status, details = text_of(response.get("status")), response.get("incomplete_details")
    reason = said if said in _STATUSES else ""
    if reason in ("", "completed") and status in _STATUSES:
        reason = status
    cause = text_of(details.get("reason")) if isinstance(details, dict) else ""
    if cause and reason in ("completed", "incomplete"):
        return f"incomplete:{cause}"
    return reason or said or (None if status else "")
