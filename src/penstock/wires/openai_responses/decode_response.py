"""Decodes the OpenAI Responses API: SSE events, and whole responses.

Nearly all frames are deltas: they are decoded into a narrow struct and added to a text or call, which is remembered
from one delta to the next. All other frames are read as plain JSON.

The loose path is the reference for `_read_deltas`. `read_typed` has a short path for many deltas of one text or call,
`read_typed_one` for a single one. test_laws decodes every vector loosely, whole and frame by frame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from penstock.events import Error, FinishReason
from penstock.wires.openai_responses.facts import USAGE
from penstock.wires.openai_responses.item import id_of
from penstock.wires.openai_responses.item_frames import ADDRESS, CALLS, TEXTS, ItemFrames, Place
from penstock.wires.openai_responses.output import CONFIRMING, Output
from penstock.wires.openai_responses.text_part import TextPart, text_of
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.in_band_errors import bare_message, error_in
from penstock.wires.shared.decode_response.indexes import Index
from penstock.wires.shared.decode_response.loose import is_empty, items
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE
from penstock.wires.shared.decode_response.open_call import OpenCall
from penstock.wires.shared.decode_response.wire import Wire


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


# Where the last delta went: its place, the id of its item if the item was added with it (then the id decides, not the
# index), and what the delta was added to.
Target = tuple[Place, str | None, TextPart | OpenCall | None]
NO_TARGET: Target = ((None, None, None, None), None, None)

_STATUSES = {"completed", "incomplete", "failed", "cancelled", "canceled"}
_ENDINGS = _STATUSES | {"done"}
_KNOWN = ADDRESS | {
    "delta", "text", "refusal", "arguments", "input", "name", "call_id", "part", "item", "response", "annotation",
    "usage", "error",
}  # fmt: skip


class OpenAIResponses(Wire):
    """The decoder of the Responses API. The end of its item confirms a call."""

    name = "openai-responses"
    USAGE = USAGE
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "completed": "stop",
        "done": "stop",  # `response.done` without a status (QUIRKS 177)
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
    wraps_calls: ClassVar[bool] = True
    has_short_path: ClassVar[bool] = True
    decode = staticmethod(msgspec.json.Decoder(Delta).decode)

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._tools = EchoedTools(self.tools)
        self._target = NO_TARGET
        self._begin_output()

    def _begin_output(self) -> None:
        self._output = Output(self.answer_for(), self.reports.unknown, self._tools.is_declared, self.tools)
        self._index = self._output.index
        self._items = ItemFrames(self._output, self.reports.unknown)

    def end(self, by_mark: bool = False) -> None:
        """Ends the answer. `[DONE]` is not part of this protocol and confirms no open item (QUIRKS 113)."""
        is_complete = self._output.is_complete
        self._output.close(self.answer_for().raw_reason in CONFIRMING)
        super().end(by_mark and is_complete)

    def client_work(self, answer: AnswerWriter) -> str:
        return self._output.client_work

    def read_typed(self, values: list[Delta], payloads: list[bytes], event: str) -> None:
        if len(values) > 2:  # mostly pieces of one text or call, and maybe the first of it
            if self._target is NO_TARGET:  # the first piece may be read loosely; the second one finds where it went
                self._read_deltas(values[:2], payloads[:2], event)
                values, payloads = values[2:], payloads[2:]
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
                is_here = delta.output_index == output and delta.item_id not in self._index.announced
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
            is_here = value.output_index == output and value.item_id not in self._index.announced
        is_next = is_here and value.type == type and value.content_index == content
        if sink and value.delta and is_next and value.summary_index == summary:
            sink.add(value.delta)
        else:
            self._read_deltas([value], [payload], event)

    def _read_elsewhere(self, delta: Delta, payload: bytes, event: str) -> None:
        """Reads a delta with another target than the last one: a known target, or it is read loosely."""
        place = (delta.type or event, delta.output_index, delta.content_index, delta.summary_index)
        owner = self._index.owner_of(delta.item_id)
        item, sink = self._items.sinks.get(place, (None, None))
        if item and (item is not (owner or item) or not self._index.leads_to(delta.output_index, item)):
            sink = None
        self._target = (place, delta.item_id if owner else None, sink) if sink else NO_TARGET
        if sink and delta.delta is not None:
            sink.add(delta.delta)
        elif not self.is_ended:
            self.read_loose(payload, event)

    def read_loose(self, payload: bytes, event: str) -> None:
        self._target = NO_TARGET
        try:
            frame = msgspec.json.decode(payload)
        except UNREADABLE:
            frame = self.loose.parse(payload)
        if isinstance(frame, dict) and _has_object_arguments(frame):
            frame = self.loose.parse(payload)
        if isinstance(frame, dict):
            self._frame(frame, text_of(frame.get("type")) or event)
        else:
            self.reports.no_object(frame)

    def _frame(self, frame: dict[str, Any], type: str) -> None:
        stem, _, verb = type.removeprefix("response.").rpartition(".")
        self.reports.has_known_frames |= type.startswith("response.")
        if verb != "delta":
            self._items.sinks.clear()  # the frame may end what they add to
        match stem, verb:
            case _, "delta" | "done" if stem in TEXTS:
                self._items.text(frame, type, stem, verb)
            case _, "delta" | "done" if stem in CALLS:
                self._items.call(frame, type, stem, verb)
            case "output_item", "added" | "done":
                self._items.item(frame, verb)
            case "content_part" | "reasoning_summary_part", "added" | "done":
                self._items.part(frame, stem, verb)
            case "output_text.annotation", "added":
                self._items.annotation(frame)
            case "", "created":
                self._created(frame)
            case "", "in_progress" | "queued" | "keepalive" | "ping":
                self._tools.read(frame.get("response"))
            case "", _ if verb in _ENDINGS:
                self._ending(frame, verb)
                return
            case _:
                self._read_other(frame, type, stem, verb)
                return
        self.reports.fields(frame, _KNOWN, "an unknown field of the frame")

    # Frames of the response.

    def _created(self, frame: dict[str, Any]) -> None:
        """Handles a second response in one stream: the first attempt is withdrawn (as in QUIRKS 123)."""
        response = frame.get("response")
        self._tools.read(response)
        response = response if isinstance(response, dict) else {}
        id = id_of(response.get("id"))
        if self.response_id not in (None, id) and (self._output.items or self.reports.errors):
            self.answer_for().withdraw()
            self.restart("the provider started the response again", response.get("model"))
            self._begin_output()
        self.response_id = id

    def _ending(self, frame: dict[str, Any], verb: str) -> None:
        response = frame.get("response")
        if isinstance(response, dict) or not isinstance(frame.get("output"), list):
            self.reports.fields(frame, _KNOWN, "an unknown field of the frame")
        else:
            response = frame  # the response itself, without a wrapper
        if not isinstance(response, dict):
            if not is_empty(response):
                self.reports.unknown(frame, "a response that is not an object")
            response = {}
        missing = {key: frame.get(key) for key in ("usage", "error") if not response.get(key)}
        self._response({**response, **missing}, verb)

    def _response(self, response: dict[str, Any], verb: str) -> None:
        """Reads a response; `verb` is the last word of its event's name, and empty for a body."""
        self.reports.has_known_frames |= bool(verb) or response.get("object") == "response" or bool(self._output.items)
        self._tools.read(response)
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
        if error is None and reason == "failed" and not self.reports.errors:
            error = Error("the response failed", "failed", raw=raw)
        if error is not None and self.reports.errors and error.message not in self.reports.errors:
            self.reports.unknown({"error": raw}, "an error that was reported before in other words")
        elif error is not None:
            self.reports.error(error)

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            if not is_empty(usage):
                self.reports.unknown({"usage": usage}, "usage that is not an object")
            return
        self.usage.add(usage)

    # Other frames.

    def _read_other(self, frame: dict[str, Any], type: str, stem: str, verb: str) -> None:
        """Reads an error, a whole response, or a frame of an unknown kind."""
        if verb == "error" and (self.reports.error_in(frame) or self.reports.error_in({"error": frame})):
            return
        is_body = frame.get("object") == "response" or (not type and isinstance(frame.get("output"), list))
        if is_body and not type.startswith("response."):  # an event may have a list called `output` too
            self._response(frame, "")
        elif type.startswith("response.") or (type and "error" not in frame):
            self._items.hosted(frame, stem, verb)
        elif error := error_in(frame) or bare_message(frame):
            self.reports.error(error)
        elif not is_empty(frame):
            self.reports.unknown(frame, "a frame without any known content")


def _has_object_arguments(frame: dict[str, Any]) -> bool:
    """Whether the arguments of a call are an object where others send text: it may have a key twice."""
    response = frame.get("response")
    output = response.get("output") if isinstance(response, dict) else frame.get("output")
    for call in (frame, frame.get("item"), *items(output)):
        if isinstance(call, dict) and (isinstance(call.get("arguments"), dict) or isinstance(call.get("input"), dict)):
            return True
    return False


def _raw_reason(response: dict[str, Any], verb: str) -> str | None:
    """The reason for the end: the event's name, unless the status is worse; None if the response has not ended.

    For a body without a status it is empty.
    """
    status, details = text_of(response.get("status")), response.get("incomplete_details")
    reason = verb if verb in _STATUSES else ""
    if reason in ("", "completed") and status in _STATUSES:
        reason = status
    cause = text_of(details.get("reason")) if isinstance(details, dict) else ""
    if cause and (reason or verb) in ("completed", "incomplete", "done"):
        return f"incomplete:{cause}"
    if not reason and verb == "done" and status:
        return status
    return reason or verb or (None if status else "")


class EchoedTools:
    """The names of the tools that the response repeats; `tools`: the caller's declared tools."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._echoed: set[str] = set()
        self._has_echo = False
        self._answers: dict[str, bool] = {}  # cached results of `is_declared`

    def is_declared(self, name: str) -> bool:
        """Whether a custom tool is the client's. The first answer stands: the tools may be repeated after the call."""
        is_declared = not self._has_echo or name in self._echoed or name in self._tools
        return self._answers.setdefault(name, is_declared)

    def read(self, response: Any) -> None:
        """Reads the tools that the response repeats."""
        tools = response.get("tools") if isinstance(response, dict) else None
        self._has_echo |= bool(tools) or (tools == [] and bool(self._tools))  # an empty one may just be a default
        for tool in items(tools):
            if isinstance(tool, dict):
                self._echoed.update(_names(tool))


def _names(tool: dict[str, Any]) -> Iterator[str]:
    """The name of a tool, and of the tools in it if it is a namespace."""
    yield text_of(tool.get("name"))
    for inner in items(tool.get("tools")):
        if isinstance(inner, dict):
            yield text_of(inner.get("name"))
