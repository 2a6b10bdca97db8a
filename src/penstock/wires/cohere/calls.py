"""The open calls of a response, by index: which call a piece belongs to."""

from __future__ import annotations

from penstock.events import SealedBy
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.open_call import OpenCall


class IndexedCalls:
    """The `open` calls of an answer, by index. Some servers send no index, or an unknown one (QUIRKS 160)."""

    def __init__(self, answer: AnswerWriter) -> None:
        self.open: dict[int | None, OpenCall] = {}
        self._answer = answer
        self._ended: set[int | None] = set()  # the indexes of calls that have ended

    def at(self, index: int | None) -> OpenCall | None:
        """The open call that a piece with this index belongs to."""
        return self.open.get(self._label(index))

    def begin(self, index: int | None, provider_id: str, name: str) -> OpenCall:
        """Opens a call."""
        call = self.open[index] = self._answer.call(provider_id, name)
        self._ended.discard(index)
        return call

    def repeated(self, index: int | None, provider_id: str, name: str) -> OpenCall | None:
        """The call of this index if its start is repeated; any other call of this index cannot be completed."""
        call = None if index is None else self.open.get(index)
        if call is None:
            return None
        if not call.size and provider_id in ("", call.id) and name == call.name:
            return call
        call.fail("cut", "another call took the index of the call before the call ended")
        del self.open[index]
        self._ended.add(index)
        return None

    def end(self, index: int | None, sealed_by: SealedBy) -> None:
        """Ends a call as the protocol did."""
        label = self._label(index)
        if label not in self.open:
            return
        call = self.open.pop(label)
        self._ended.add(label)
        self._answer.seal(call, sealed_by)

    def cut(self, message: str) -> None:
        """Fails all open calls."""
        for call in self.open.values():
            call.fail("cut", message)

    def _label(self, index: int | None) -> int | None:
        """The index, or, if no call ever had it, the index of the only open call.

        After a loss, the index may be that of a call whose start was lost.
        """
        is_new = index not in self.open and index not in self._ended and not self._answer.has_loss
        return next(iter(self.open)) if is_new and len(self.open) == 1 else index
