"""Which result answers which call, in a history of any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from penstock.events import ToolCall, ToolCallInvalid
from penstock.messages import Message, ToolResult

Place = tuple[int, int]
"""The position of a part: the number of its message, and its own number in that message."""


class CallResults:
    """A call and all results with its id, each with its place.

    The last result that is not an error counts: earlier ones are often placeholders, and so may a later error be.
    """

    def __init__(self, place: Place, call: ToolCall | ToolCallInvalid) -> None:
        self.place = place
        self.call = call
        self.results: list[tuple[Place, ToolResult]] = []

    @property
    def result(self) -> ToolResult | None:
        """The result that counts."""
        return None if self._counting is None else self._counting[1]

    @property
    def result_place(self) -> Place | None:
        """The place of that result."""
        return None if self._counting is None else self._counting[0]

    @property
    def _counting(self) -> tuple[Place, ToolResult] | None:
        successes = [placed for placed in self.results if not placed[1].is_error]
        return (successes or self.results)[-1] if self.results else None

    @property
    def is_repaired(self) -> bool:
        """Whether the call is invalid and has repaired arguments, with which it may have run."""
        call = self.call
        return isinstance(call, ToolCallInvalid) and call.repaired is not None and call.why != "cut"

    @property
    def valid_call(self) -> ToolCall:
        """The call; if it is invalid, a call with its repaired arguments, or with their text."""
        call = self.call
        if isinstance(call, ToolCall):
            return call
        repaired = {"input": call.arguments_raw} if call.kind == "custom" else call.repaired
        arguments = {"invalid_json": call.arguments_raw} if repaired is None else repaired
        return ToolCall(call.id, call.name, arguments, kind=call.kind, block=call.block)


class PairedResults(Struct, frozen=True):
    """The calls of each message with their results, and the results of each message that have no call."""

    calls: list[list[CallResults]]
    orphans: list[list[tuple[Place, ToolResult]]]


def pair_results(messages: Sequence[Message]) -> PairedResults:
    """All calls of a history, each with its results.

    A result belongs to the next unanswered call with its id that stands before it: ids may be used again in later turns
    (QUIRKS 22), and an interrupted turn may have left its calls unanswered. If all are answered, it is one more result
    of the last.
    """
    open_calls = _OpenCalls()
    paired = PairedResults([], [])
    for index, message in enumerate(messages):
        calls = [
            CallResults((index, number), part)
            for number, part in enumerate(message.parts)
            if isinstance(part, ToolCall | ToolCallInvalid)
        ]
        open_calls.add(calls)
        results = [((index, number), part) for number, part in enumerate(message.parts) if isinstance(part, ToolResult)]
        paired.calls.append(calls)
        paired.orphans.append([placed for placed in results if not open_calls.answer(*placed)])
    return paired


class _OpenCalls:
    def __init__(self) -> None:
        self._unanswered: dict[str, deque[CallResults]] = {}
        self._answered: dict[str, CallResults] = {}

    def add(self, calls: list[CallResults]) -> None:
        """Add the calls of a message; they are answered before older unanswered calls with the same id."""
        by_id: dict[str, list[CallResults]] = {}
        for call in calls:
            by_id.setdefault(call.call.id, []).append(call)
        for id, newer in by_id.items():
            self._unanswered.setdefault(id, deque()).extendleft(reversed(newer))

    def answer(self, place: Place, result: ToolResult) -> bool:
        """Give a result to its call; False if there is none."""
        if unanswered := self._unanswered.get(result.call_id):
            self._answered[result.call_id] = unanswered.popleft()
        call = self._answered.get(result.call_id)
        if call is not None:
            call.results.append((place, result))
        return call is not None
