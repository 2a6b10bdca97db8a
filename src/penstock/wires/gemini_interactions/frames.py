"""The narrow shapes of the frames of Interactions: pieces of steps, and arguments as they were spelled."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from penstock.wires.shared.decode_response.indexes import Index
from penstock.wires.shared.decode_response.loose import text_of
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE


class TextDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="text"):
    piece: str = field(name="text")


class ArgumentsDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="arguments_delta"):
    piece: str = field(name="arguments")


class SummaryText(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: str


class SummaryDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="thought_summary"):
    content: SummaryText

    @property
    def piece(self) -> str:
        """The piece of reasoning."""
        return self.content.text


Delta = TextDelta | ArgumentsDelta | SummaryDelta


class StepDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="event_type", tag="step.delta"):
    """The shape of nearly all frames. An `event_id` is on those of interactions that Google stores."""

    index: Index
    delta: Delta
    event_id: str = ""


class SpelledStep(Struct):
    """A step, of which only the spelling of its arguments is read."""

    arguments: msgspec.Raw = msgspec.Raw()


class SpelledFrame(Struct):
    """A frame with steps: the start of a step, or a whole interaction."""

    step: SpelledStep | None = None
    steps: list[SpelledStep] = []


decode_step_delta = msgspec.json.Decoder(StepDelta).decode
_decode_spelled = msgspec.json.Decoder(SpelledFrame).decode


def spelled_arguments(payload: bytes) -> list[str]:
    """The arguments of the frame's steps as they were spelled; none if the frame has another shape."""
    try:
        frame = _decode_spelled(payload)
    except UNREADABLE:
        return []
    return [text_of(step.arguments) for step in frame.steps or [frame.step or SpelledStep()]]
