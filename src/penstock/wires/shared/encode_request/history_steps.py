"""The steps that bring a history into the form that providers accept.

Agents and people keep a history as it happened: the results of one turn in several messages and in the order in which
the tools finished, calls that were cut, empty texts, hosted calls without a result. Providers refuse that.

`settle` takes the steps for a request, silently. `history.repair` takes the same steps and notes each change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_

from msgspec.structs import replace

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import File, Image, Message, Part, ToolResult, tool_results
from penstock.wires.shared.encode_request.hosted_calls import HostedCalls
from penstock.wires.shared.encode_request.pairing import CallResults, pair_results
from penstock.wires.shared.facts import WireFacts

ALLOWED: dict[str, tuple[type[Part], ...]] = {
    "system": (Text, Opaque),
    "user": (Text, Image, File, ToolResult, Opaque),
    "assistant": (Text, Reasoning, Refusal, ToolCall, ToolCallInvalid, Opaque, Image, File),
    "tool": (ToolResult,),
}
"""The parts that a message of each role may hold; results are also accepted in a user message."""


def empty_parts(message: Message, *, takes_blank: bool, marks: tuple[str, ...] = ()) -> set[int]:
    """The numbers of the texts, refusals and reasonings without text, and without vendor state.

    State of the kinds in `marks` does not count. Without `takes_blank`, white space is not text.
    """
    stateful = {part.block for part in message.parts if isinstance(part, Opaque) and part.kind not in marks}
    return {
        number
        for number, part in enumerate(message.parts)
        if isinstance(part, Text | Reasoning | Refusal)
        and part.block not in stateful
        and not (part.text if takes_blank else part.text.strip())
    }


class HistorySteps:
    """The steps, in their order, and the decisions in them about a call or a result, which subclasses make."""

    def __init__(self, facts: Mapping[str, WireFacts]) -> None:
        self._facts = facts

    # Decisions.

    def note(self, index: int, change: str) -> None:
        """Called with each change and the number of its message."""

    def hosted_orphan(self, index: int, message: Message, result: Opaque) -> Part | None:
        """The part that replaces a hosted result without a call; None leaves it out."""
        return result

    def fit_call(self, pair: CallResults) -> tuple[str, str]:
        """The id and the name of a call."""
        return pair.call.id, pair.call.name

    def fit_orphan(self, result: ToolResult) -> ToolResult:
        """A result without a call, with the id and the name that its call would have."""
        return result

    def call(self, pair: CallResults) -> ToolCall | ToolCallInvalid | None:
        """The part that replaces a call: a valid one for an invalid call with a result, None for one without."""
        return None if isinstance(pair.call, ToolCallInvalid) and pair.result is None else pair.valid_call

    def result(self, pair: CallResults) -> ToolResult | None:
        """The result of a call, which is named after it."""
        return pair.result and replace(pair.result, name=pair.call.name)

    def orphans(self, index: int, results: list[ToolResult]) -> Message:
        """The message for the results without a call, which may be in a history that the provider keeps."""
        return tool_results(*results)

    # Steps. Up to `place_results`, messages keep their numbers.

    def finish_hosted_calls(self, messages: Sequence[Message], *, is_continued: bool = False) -> list[Message]:
        """Leave out hosted calls that will never have a result, and replace hosted results that have no call.

        If the history `is_continued`, a hosted tool that made a call may be in the part that the provider keeps.
        """
        hosted = HostedCalls(messages, self._facts)
        if is_continued:
            hosted.lost_callers.clear()
        if not (hosted.unfinished or hosted.orphans or hosted.lost_callers):
            return list(messages)
        return [_with_parts(message, self._finished(index, message, hosted)) for index, message in enumerate(messages)]

    def _finished(self, index: int, message: Message, hosted: HostedCalls) -> Iterator[Part]:
        for number, part in enumerate(message.parts):
            place = index, number
            if call := hosted.unfinished.get(place):
                self.note(index, f"left out the {call.kind}, which has no result")
            elif result := hosted.orphans.get(place):
                orphan = self.hosted_orphan(index, message, result)
                if orphan is not None:
                    yield orphan
            elif place not in hosted.callers | hosted.lost_callers:
                yield part

    def remove_empty_parts(
        self, messages: Sequence[Message], *, takes_blank: bool, marks: tuple[str, ...] = ()
    ) -> list[Message]:
        """Leave out the parts without text, with the state on them."""
        return [self._without_empty(index, message, takes_blank, marks) for index, message in enumerate(messages)]

    def _without_empty(self, index: int, message: Message, takes_blank: bool, marks: tuple[str, ...]) -> Message:
        empty = empty_parts(message, takes_blank=takes_blank, marks=marks)
        blocks = {part.block for number, part in enumerate(message.parts) if number in empty and isinstance(part, Text)}
        kept = [
            part
            for number, part in enumerate(message.parts)
            if number not in empty and not (isinstance(part, Opaque) and part.block in blocks)
        ]
        if not kept:
            self.note(index, "left out an empty message")
        elif empty:
            self.note(index, "left out empty parts")
        return _with_parts(message, kept) if empty else message

    def place_results(self, messages: Sequence[Message]) -> list[Message]:
        """Give calls their ids and names, and put the results of a turn directly after it, in one message, in order.

        Results without a call stand where they stood, in a message of their own.
        """
        paired = pair_results(messages)
        placed: list[Message] = []
        for index, message in enumerate(messages):
            pairs = [self._fitted(pair) for pair in paired.calls[index]]
            orphans = self.orphans(index, [self.fit_orphan(result) for _, result in paired.orphans[index]])
            orphans = replace(orphans, is_example=True) if message.is_example else orphans
            results = self.results(index, pairs)
            if _are_examples(pairs, messages):
                results = replace(results, is_example=True)
            turn = [_with_parts(message, self._without_results(message, pairs)), results]
            placed += [*turn, orphans] if message.role == "assistant" else [orphans, *turn]
        return placed

    def results(self, index: int, pairs: list[CallResults]) -> Message:
        """The results of a turn."""
        return tool_results(*(result for pair in pairs if (result := self.result(pair)) is not None))

    def _fitted(self, pair: CallResults) -> CallResults:
        """The call and its results, with the id and the name that the call gets."""
        id, name = self.fit_call(pair)
        if (id, name) == (pair.call.id, pair.call.name):
            return pair
        fitted = CallResults(pair.place, replace(pair.call, id=id, name=name))
        for place, result in pair.results:
            own_name = name if result.name == pair.call.name else result.name
            fitted.results.append((place, replace(result, call_id=id, name=own_name)))
        return fitted

    def _without_results(self, message: Message, pairs: list[CallResults]) -> Iterator[Part]:
        """The parts without the results; if a call is left out, the state on it is too."""
        calls = {pair.place[1]: self.call(pair) for pair in pairs}
        kept = {call.block for call in calls.values() if call is not None}
        left_out = {pair.call.block for pair in pairs} - kept
        for number, part in enumerate(message.parts):
            if number in calls:
                call = calls[number]
                if call is not None:
                    yield call
            elif not isinstance(part, ToolResult) and not (isinstance(part, Opaque) and part.block in left_out):
                yield part


def _are_examples(pairs: Iterable[CallResults], messages: Sequence[Message]) -> bool:
    """Whether all messages with results of these calls are examples."""
    sources = {place[0] for pair in pairs for place, _ in pair.results}
    return bool(sources) and all(messages[index].is_example for index in sources)


def _with_parts(message: Message, parts: Iterable[Part]) -> Message:
    """The message with these parts; the same object if they did not change, so that its cached values are kept."""
    changed = tuple(parts)
    is_same = len(changed) == len(message.parts) and all(map(is_, changed, message.parts))
    return message if is_same else replace(message, parts=changed)
