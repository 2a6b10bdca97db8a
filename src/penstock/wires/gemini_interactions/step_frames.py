"""Frames about the steps of an interaction: their starts and deltas, and steps that came whole, as plain JSON."""

from __future__ import annotations

from typing import Any

from penstock.wires.gemini_interactions.facts import ANNOTATIONS, MEDIA, SIGNATURE, STATE_ENDINGS
from penstock.wires.gemini_interactions.frames import spelled_arguments
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.loose import is_empty, items, raw_of, text_of
from penstock.wires.shared.decode_response.numbered_blocks import Label, NumberedBlocks
from penstock.wires.shared.decode_response.open_block import OpenReasoning, OpenText, OpenVendor
from penstock.wires.shared.decode_response.reports import Reports

DELTAS = {"text": "text", "thought_summary": "content", "thought_signature": SIGNATURE,
          "arguments_delta": "arguments", "text_annotation_delta": ANNOTATIONS}  # fmt: skip
"""The types of deltas, with the field that holds the piece."""
INPUTS = ("user_input", "function_result")
"""The types of steps that a client sends; an interaction that is fetched again contains them."""
_EVENT_FIELDS = ("event_type", "event_id", "index", "metadata", "usage", "step_usage")
"""Fields of the frames themselves; their counts are those of one step, or so far."""


class StepFrames:
    """Reads the frames of steps, and reports what is not known."""

    def __init__(self, blocks: NumberedBlocks, answer: AnswerWriter, reports: Reports) -> None:
        self._blocks = blocks
        self._answer = answer
        self._reports = reports

    # Starts and ends.

    def start(self, value: dict[str, Any], payload: bytes) -> None:
        """Reads the start of a step."""
        step = value.get("step")
        if isinstance(step, dict):
            spelled = spelled_arguments(payload) if step.get("arguments") else []
            self._begin(value.get("index"), step, spelled[0] if spelled else "")
        else:
            self._reports.each_field(value, _EVENT_FIELDS, "a step that is not an object")
        self._reports.fields(value, (*_EVENT_FIELDS, "step"), "an unknown field of the event")

    def stop(self, value: dict[str, Any]) -> None:
        """Reads the end of a step."""
        self._blocks.stop(self._blocks.label(value.get("index")))
        self._reports.fields(value, _EVENT_FIELDS, "an unknown field of the event")

    def whole(self, steps: Any, payload: bytes, *, is_open: bool = False) -> None:
        """Reads steps that came whole: those after the last one of the client. If it `is_open`, the last may grow."""
        listed = items(steps)
        spelled = spelled_arguments(payload) if listed else []
        kinds = [step.get("type") if isinstance(step, dict) else None for step in listed]
        first = max((number + 1 for number, kind in enumerate(kinds) if kind in INPUTS), default=0)
        for number, step in enumerate(listed[first:], start=first):
            if isinstance(step, dict):
                self._begin(number, step, spelled[number] if number < len(spelled) else "")
                if not is_open or number < len(listed) - 1:
                    self._blocks.stop(number, "whole")
            else:
                self._reports.each_field({"steps": step}, (), "a step that is not an object")

    def _begin(self, number: Any, step: dict[str, Any], spelled: str) -> None:
        kind: Any = step.get("type")
        match kind:
            case "thought":
                self._begin_thought(number, step)
            case "model_output":
                self._begin_output(number, step)
            case "function_call":
                self._begin_call(number, step, spelled)
            case str() if kind.endswith(STATE_ENDINGS):
                self._blocks.begin_vendor(number, kind, dict(step), is_state=True)
            case _ if is_empty(step):
                pass  # the deltas will show what it is
            case _:
                self._blocks.begin_vendor(number, "", dict(step), is_state=False)

    def _begin_thought(self, number: Any, step: dict[str, Any]) -> None:
        self._blocks.begin(number, OpenReasoning())
        label = self._blocks.label(number)
        for part in items(step.get("summary")):
            self._summary(label, part)
        self._blocks.add_state(label, SIGNATURE, step.get(SIGNATURE))
        self._reports.each_field(step, ("type", "summary", SIGNATURE), "an unknown field of a thought")

    def _begin_output(self, number: Any, step: dict[str, Any]) -> None:
        self._blocks.begin(number, OpenText())
        for part in items(step.get("content")):
            self._content(self._blocks.label(number), part)
        if not is_empty(error := step.get("error")):
            self._reports.error_in({"error": error})
        self._reports.each_field(step, ("type", "content", "error"), "an unknown field of an output")

    def _begin_call(self, number: Any, step: dict[str, Any], spelled: str) -> None:
        arguments = spelled or (text_of(raw_of(step["arguments"])) if step.get("arguments") else "")
        part = self._blocks.begin_call(number, step.get("id"), step.get("name"), arguments)
        if part is None:
            return  # a repeated start
        if not is_empty(step.get(SIGNATURE)):
            self._answer.opaque(SIGNATURE, step[SIGNATURE], part.block)
        known = ("type", "id", "name", "arguments", SIGNATURE)
        self._reports.each_field(step, known, "an unknown field of a call")

    # Deltas.

    def delta(self, value: dict[str, Any]) -> None:
        """Reads a delta of a step."""
        label, delta = self._blocks.label(value.get("index")), value.get("delta")
        if not isinstance(delta, dict):
            self._blocks.misshapen_delta(label, {"delta": delta}, "a delta that is not an object")
        elif isinstance(self._blocks.parts.get(label), OpenVendor):
            self._blocks.replace_state(label, {key: field for key, field in delta.items() if key != "type"})
        else:
            self._add(label, delta)
        self._reports.fields(value, (*_EVENT_FIELDS, "delta"), "an unknown field of the event")

    def _add(self, label: Label, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        field = DELTAS.get(kind, "") if isinstance(kind, str) else ""
        match kind, delta.get(field):
            case _, None if field:
                self._blocks.add_unknown(label)
            case ("text", str()) | (("image" | "audio" | "video" | "document"), _):
                self._content(label, delta)
                return
            case "thought_summary", part:
                self._summary(label, part)
            case "thought_signature", signature:
                self._blocks.add_state(label, SIGNATURE, signature)
            case "arguments_delta", piece:
                self._blocks.add_arguments(label, text_of(raw_of(piece)))
            case "text_annotation_delta", annotations:
                self._annotations(label, annotations)
            case "text", _:
                self._blocks.misshapen_delta(label, {"delta": delta}, "a text of another type than expected")
                return
            case _:
                self._blocks.unknown_delta(label, {"delta": delta}, "a delta of an unknown type")
                return
        known = ["type", field]
        if kind == "arguments_delta":  # which may repeat the id, and sign the call
            known += ["id", SIGNATURE]
            self._blocks.add_state(label, SIGNATURE, delta.get(SIGNATURE))
        self._reports.each_field(delta, known, "an unknown field of the delta")

    def _summary(self, label: Label, part: Any) -> None:
        match part:
            case {"type": "text", "text": str(text), **rest}:
                self._blocks.add_content(label, OpenReasoning, text)
                self._reports.each_field(rest, ("annotations",), "an unknown field of a summary")
            case _:
                self._reports.each_field({"summary": part}, (), "a summary that is not text")

    def _content(self, label: Label, part: Any) -> None:
        match part:
            case {"type": "text", "text": str(text)}:
                self._blocks.add_content(label, OpenText, text)
                self._annotations(label, part.get(ANNOTATIONS))
                self._reports.each_field(part, ("type", "text", ANNOTATIONS), "an unknown field of a text")
            case {"type": str(kind)} if kind in MEDIA:
                self._blocks.begin_vendor(label, kind, dict(part), is_state=True)
                self._blocks.stop(label)
            case _:
                self._reports.each_field({"content": part}, (), "content of an unknown type")

    def _annotations(self, label: Label, annotations: Any) -> None:
        for annotation in items(annotations):
            self._blocks.add_state(label, ANNOTATIONS, annotation, OpenText)
