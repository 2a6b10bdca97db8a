"""The answers (choices) of a response, and what a loss of data does to the calls in them."""

from __future__ import annotations

from penstock.calls.numbering import Numbering, ResponseLimit
from penstock.events import StreamChunk
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter, EndSigns
from penstock.wires.shared.decode_response.open_call import OpenCall

MAX_CHOICES = 256
"""How many answers (choices) a response may have; with one more, it ends with the error `too_many_choices`."""


class Answers:
    """The writers of all answers by choice. They share the numbers of blocks, and write to `out`."""

    def __init__(self, out: list[StreamChunk], wire: str, id_prefix: str) -> None:
        self.out = out
        self.writers: dict[int, AnswerWriter] = {}
        self.blocks = Numbering(id_prefix)
        self.end_signs = EndSigns()
        self._wire = wire
        self._at_risk: list[OpenCall] = []  # open calls, which a lost frame may damage
        self._is_unlimited = False
        self._has_loss = False  # something was lost that may have been a piece of any call

    def writer(self, choice: int = 0) -> AnswerWriter:
        """The writer of this answer."""
        answer = self.writers.get(choice)
        if answer is None:
            if len(self.writers) >= MAX_CHOICES and not self._is_unlimited:
                raise ResponseLimit(
                    "too_many_choices", f"the response has more than {MAX_CHOICES} choices, and was ended there"
                )
            answer = self.writers[choice] = AnswerWriter(
                self.out, choice, self.blocks, self._wire, self._at_risk, self.end_signs
            )
            answer.has_loss = self._has_loss
        return answer

    def lift_limits(self) -> None:
        """Lets the response end, although a limit was reached."""
        self._is_unlimited = True
        self.blocks.lift_limit()

    def damage_calls(self) -> None:
        """Marks the open calls as damaged: a part of the stream could not be read."""
        self._has_loss = True
        for answer in self.writers.values():
            answer.has_loss = True
        for call in self._at_risk:  # once for each: a closed call does not open again
            if not self.writers[call.choice].is_sealed(call):
                call.damage()
        self._at_risk.clear()

    def end_bytes(self) -> None:
        """The bytes have ended: an incomplete frame at the end is a cut, and not a loss."""
        self._at_risk.clear()

    @property
    def has_reason(self) -> bool:
        """Whether the provider gave a reason for the end of an answer."""
        return any(answer.raw_reason is not None for answer in self.writers.values())

    @property
    def in_order(self) -> list[AnswerWriter]:
        """All answers by their number; the first one if none has begun."""
        return [answer for _, answer in sorted(self.writers.items())] or [self.writer()]
