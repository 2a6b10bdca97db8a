"""Decodes Google's Interactions: server-sent events, and whole interactions.

Nearly all frames add a piece to a text, a thought or a call: these are decoded into narrow structs, all others are read
as plain JSON. A call is confirmed by the end of its step, and `interaction.completed` ends the stream, whatever its
status. `[DONE]` alone is not an end.

The loose path is the reference for `read_typed`, which remembers the step of the last piece; `read_typed_one` is a
short path for a single one. test_laws decodes every vector loosely, whole and frame by frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.events import Error, FinishReason, Reasoning, Text
from penstock.wires.gemini_interactions.facts import CONTINUATION, OLD_EVENTS, USAGE
from penstock.wires.gemini_interactions.frames import (
    ArgumentsDelta,
    Delta,
    StepDelta,
    SummaryDelta,
    TextDelta,
    decode_step_delta,
)
from penstock.wires.gemini_interactions.step_frames import StepFrames
from penstock.wires.shared.decode_response.in_band_errors import bare_message, error_in, named_error
from penstock.wires.shared.decode_response.loose import is_empty, items
from penstock.wires.shared.decode_response.numbered_blocks import Label, NumberedBlocks
from penstock.wires.shared.decode_response.open_block import OpenReasoning, OpenText, OpenTool, OpenVendor
from penstock.wires.shared.decode_response.open_call import OpenCall
from penstock.wires.shared.decode_response.wire import Wire

Target = tuple[Label, type[Delta] | None, int, OpenCall | None]
"""Where the next piece probably goes: label, type of delta, and the number of the block or the call."""
NO_TARGET: Target = (None, None, -1, None)
_FIELDS: Mapping[type[Delta], str] = {TextDelta: "text", ArgumentsDelta: "arguments", SummaryDelta: "content"}
"""The fields of deltas that hold the piece."""

_STATUSES = {"interaction.created", "interaction.status_update", "interaction.in_progress",
             "interaction.requires_action"}  # fmt: skip
"""Events about the interaction before its end; their statuses do not end it."""
_COMPLETED = "interaction.completed"
_KINDS = {*_STATUSES, _COMPLETED, "step.start", "step.delta", "step.stop"}
_OPEN = ("queued", "in_progress")
_EVENT_FIELDS = ("event_type", "event_id", "interaction", "interaction_id", "status", "usage", CONTINUATION)
_INTERACTION_FIELDS = frozenset({
    "id", "object", "model", "agent", "status", "steps", "usage", "role", "created", "updated", "service_tier",
    "environment_id", "errors", "store", "output_text", "output_audio", "output_image", "output_video",
    "previous_interaction_id", "input", "tools", "system_instruction", "generation_config", "response_format",
    "response_modalities", "response_mime_type", "labels", "event_id", CONTINUATION,
})  # fmt: skip
"""Fields of an interaction that are read, repeat the request, or repeat a part of its steps."""
TOO_OLD = "this response is in a version of Interactions that Google withdrew in June 2026, which is not supported"


class GeminiInteractions(Wire):
    """The decoder of Interactions."""

    name = "gemini-interactions"
    USAGE = USAGE
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "completed": "stop", "requires_action": "tool_calls", "incomplete": "length",
        "requires_continuation": "length", "failed": "error", "cancelled": "other", "budget_exceeded": "other",
    }  # fmt: skip

    loose_events: ClassVar[frozenset[str]] = frozenset({*_STATUSES, _COMPLETED, "step.start", "step.stop"})
    ends_with_body: ClassVar[bool] = True
    has_short_path: ClassVar[bool] = True
    decode = staticmethod(decode_step_delta)

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._answer = self.answer_for()
        self._blocks = NumberedBlocks(self._answer, self.reports, self.FINISH)
        self._frames = StepFrames(self._blocks, self._answer, self.reports)
        self._target = NO_TARGET
        self._id: Any = None
        self._token: Any = None
        self._is_body = False  # the last frame was a whole interaction
        self._is_open = False  # that was not at its end

    def end(self, by_mark: bool = False) -> None:
        if self._token is not None:
            self._answer.opaque(CONTINUATION, self._token)
        self._blocks.end(by_mark)
        super().end(by_mark)

    def end_mark(self) -> None:
        """Ends the stream without confirming anything: only `interaction.completed` does."""
        self.end()

    def end_body(self) -> None:
        """Ends the answer after a whole interaction; without a status it is whole as it is (QUIRKS 176)."""
        if self._is_body:
            self.end(by_mark=not self._is_open)

    # Pieces.

    def read_typed(self, values: list[StepDelta], payloads: list[bytes], event: str) -> None:
        self.reports.has_known_frames = True
        append = self.out.append
        label, kind, block, call = self._target
        pieces: list[str] = []  # pieces of the arguments of one call
        for value in values:
            delta = value.delta
            piece = delta.piece
            if value.index != label or type(delta) is not kind:
                if pieces and call:
                    call.add_all(pieces)
                    pieces = []
                self._first_delta(value.index, delta)
                self._target = label, kind, block, call = self._target_of(value.index)
            elif call:
                pieces.append(piece)
            elif piece:
                append(Text(block, piece) if kind is TextDelta else Reasoning(block, piece))
        if pieces and call:
            call.add_all(pieces)

    def read_typed_one(self, value: StepDelta, payload: bytes, event: str) -> None:
        label, kind, _, call = self._target
        delta = value.delta
        if call and delta.piece and value.index == label and type(delta) is kind:
            call.add(delta.piece)
        else:
            self.read_typed([value], [payload], event)

    def _target_of(self, label: Label) -> Target:
        """The target for more pieces of a step, if it is open and has begun."""
        match self._blocks.parts.get(label):
            case OpenText(block=block) if block >= 0:
                return label, TextDelta, block, None
            case OpenReasoning(block=block) if block >= 0:
                return label, SummaryDelta, block, None
            case OpenTool(call=call, is_stopped=False) if not call.is_ended and self._answer.raw_reason is None:
                return label, ArgumentsDelta, -1, call
        return NO_TARGET

    def _first_delta(self, label: Label, delta: Delta) -> None:
        if isinstance(self._blocks.parts.get(label), OpenVendor):
            content: Any = {"type": "text", "text": delta.piece} if isinstance(delta, SummaryDelta) else delta.piece
            self._blocks.replace_state(label, {_FIELDS[type(delta)]: content})
        elif isinstance(delta, ArgumentsDelta):
            self._blocks.add_arguments(label, delta.piece)
        else:
            self._blocks.add_content(label, OpenText if isinstance(delta, TextDelta) else OpenReasoning, delta.piece)

    # Frames of any shape.

    def read_loose(self, payload: bytes, event: str) -> None:
        self._target = NO_TARGET
        if event == "error" and not payload.startswith((b"{", b"[")):
            self.reports.error_in({"error": payload.decode("utf-8", "replace")})
            return
        value = self.loose.parse(payload)
        if isinstance(value, dict):
            self._event(value.get("event_type") or event, value, payload, event)
        else:
            self.reports.no_object(value)

    def _event(self, kind: Any, value: dict[str, Any], payload: bytes, event: str) -> None:
        is_named = isinstance(kind, str)
        self.reports.has_known_frames |= is_named and kind in _KINDS
        match kind:
            case "step.delta":
                self._frames.delta(value)
            case "step.start":
                self._frames.start(value, payload)
            case "step.stop":
                self._frames.stop(value)
            case "interaction.completed":
                self._interaction(kind, value, payload)
                self.end(by_mark=self._answer.raw_reason is not None)
            case str() if kind in _STATUSES:
                self._interaction(kind, value, payload)
            case str() if kind in OLD_EVENTS:
                self._refuse_old(value)
            case _:
                self._other_frame(value, payload, event)

    def _interaction(self, kind: str, value: dict[str, Any], payload: bytes) -> None:
        """Reads an event about the interaction, which has it as a field, or only its id and status."""
        inner = value.get("interaction")
        interaction = inner if isinstance(inner, dict) else {}
        if kind == "interaction.created":
            self._created(interaction)
        token = interaction.get(CONTINUATION, value.get(CONTINUATION))
        if kind == _COMPLETED or not is_empty(token):  # the end without a token withdraws earlier ones
            self._token = None if is_empty(token) else token
        if kind == _COMPLETED and not self.answers.blocks.next_block:
            self._frames.whole(interaction.get("steps"), payload)
        self._fields(value | interaction if interaction else value, is_end=kind == _COMPLETED)
        self.reports.fields(value, _EVENT_FIELDS, "an unknown field of the event")
        self.reports.rest(inner if not isinstance(inner, dict) else None, "an interaction that is not an object")
        self.reports.fields(interaction, _INTERACTION_FIELDS, "an unknown field of the interaction")

    def _created(self, interaction: dict[str, Any]) -> None:
        id = interaction.get("id") or ""
        if self._id is not None and id and id != self._id:
            self._blocks.withdraw()
            self.restart("the provider began a new interaction before the last one ended", interaction.get("model"))
            self._token = None
        self._id = id

    def _fields(self, fields: dict[str, Any], *, is_end: bool) -> None:
        """Reads the counts, errors and status of an interaction."""
        usage, status = fields.get("usage"), fields.get("status")
        if isinstance(usage, dict):
            self.usage.add(usage)
        for error in items(fields.get("errors")):
            self.reports.error_or_unknown(error_in({"error": error}), error, "an error of an unknown form")
        if is_end and status and status not in _OPEN:
            self._blocks.finish(status)

    # Whole interactions, and frames that are not events of this protocol.

    def _other_frame(self, value: dict[str, Any], payload: bytes, event: str) -> None:
        match value:
            case {"steps": list()} | {"object": "interaction", "status": str()}:
                self._whole(value, payload)
            case {"object": "interaction", "outputs": list()} | {"outputs": list(), "status": str()}:
                self._refuse_old(value)
            case _:
                error = named_error(event, value) or error_in(value) or bare_message(value)
                self._blocks.add_unknown(value.get("index"))
                self.reports.error_or_unknown(error, value, "an unknown event")

    def _whole(self, value: dict[str, Any], payload: bytes) -> None:
        self.reports.has_known_frames = self._is_body = True
        self._is_open = value.get("status") in _OPEN
        self._frames.whole(value.get("steps"), payload, is_open=self._is_open)
        if not is_empty(value.get(CONTINUATION)):
            self._token = value[CONTINUATION]
        self._fields(value, is_end=True)
        self.reports.each_field(value, _INTERACTION_FIELDS, "an unknown field of the interaction")

    def _refuse_old(self, value: dict[str, Any]) -> None:
        self.reports.error(Error(TOO_OLD, "unsupported_version"))
        self.reports.unknown(value, "an event of an older version")
