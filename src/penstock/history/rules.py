"""The rules of a history. Each yields the problems that break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from penstock.events import Opaque, Reasoning, Text, ToolCallInvalid
from penstock.history.problem import Problem
from penstock.history.read import Reading
from penstock.history.state_places import item_id, misplaced_states, signed_blocks
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, ToolResult
from penstock.providers import REFUSED_BY, ProblemKind, speaking
from penstock.wires import all_facts, find_facts
from penstock.wires.shared.encode_request.history_steps import ALLOWED, empty_parts
from penstock.wires.shared.encode_request.hosted_calls import HostedCalls
from penstock.wires.shared.encode_request.pairing import CallResults, Place, pair_results


class CheckedHistory:
    """A history as it was read, with its calls and results paired.

    A history that `is_ours` is encoded for each provider; any other may be sent as it is, so more rules apply to it.
    """

    def __init__(self, reading: Reading) -> None:
        self.messages = reading.messages
        self.is_ours = reading.is_ours
        self.is_continued = reading.is_continued
        self.wire = reading.wire
        self.places = reading.places
        self.facts = find_facts(reading.wire)
        self.paired = pair_results(reading.messages)
        self.hosted = HostedCalls(reading.messages, all_facts())

    @property
    def pairs(self) -> Iterator[CallResults]:
        """All calls, in order."""
        return (pair for pairs in self.paired.calls for pair in pairs)

    def where(self, place: Place | int) -> str:
        """The place of a part, or of a message, in the history that was passed."""
        if isinstance(place, int):
            return self.places[place].message
        return self.places[place[0]].parts[place[1]]

    def problem(
        self, kind: ProblemKind, place: Place | int, what: str, providers: frozenset[str] | None = None
    ) -> Problem:
        """A problem of a part, or of a message; without `providers`, those that refuse this kind."""
        index, part = (place, None) if isinstance(place, int) else place
        refusing = REFUSED_BY[kind] if providers is None else providers
        return Problem(kind, self.where(place), what, tuple(sorted(refusing)), index, part)


Rule = Callable[[CheckedHistory], Iterator[Problem]]


# Calls and their results.


def calls_have_results(history: CheckedHistory) -> Iterator[Problem]:
    for pair in history.pairs:
        if not pair.results:
            what = f"the call {pair.call.id!r} of {pair.call.name!r} has no result"
            yield history.problem("call_without_result", pair.place, what)


def results_have_calls(history: CheckedHistory) -> Iterator[Problem]:
    """A result follows its call, unless the provider keeps the call."""
    if history.is_continued:
        return
    for orphans in history.paired.orphans:
        for place, result in orphans:
            yield history.problem("result_without_call", place, f"no call before it has the id {result.call_id!r}")


def hosted_calls_have_results(history: CheckedHistory) -> Iterator[Problem]:
    """Hosted calls have results too; in our own messages, encoders leave out calls without one."""
    if history.is_ours:
        return
    for place, call in history.hosted.unfinished.items():
        yield history.problem("call_without_result", place, f"the {call.kind} has no result", speaking(call.wire))


def hosted_results_have_calls(history: CheckedHistory) -> Iterator[Problem]:
    """Hosted results have calls too; in our own messages, encoders leave out results without one."""
    if history.is_continued:
        return
    for place, result in history.hosted.orphans.items():
        if history.is_ours and history.messages[place[0]].role == "assistant":
            continue
        yield history.problem("result_without_call", place, f"the {result.kind} has no call", speaking(result.wire))


def calls_have_one_result(history: CheckedHistory) -> Iterator[Problem]:
    for pair in history.pairs:
        for place, result in pair.results:
            if result is not pair.result:
                yield history.problem("duplicate_result", place, f"the call {result.call_id!r} has another result")


def results_are_named(history: CheckedHistory) -> Iterator[Problem]:
    """A result is named after its call; on most wires it need not be named."""
    for pair in history.pairs:
        for place, result in pair.results:
            if result.name != pair.call.name and (result.name or history.facts.results_need_names):
                what = f"the result is named {result.name!r}, and its call {pair.call.name!r}"
                yield history.problem("misnamed_result", place, what)


def results_follow(history: CheckedHistory) -> Iterator[Problem]:
    """The results of a turn are directly after it, in one message, in the order of its calls."""
    for index, pairs in enumerate(history.paired.calls):
        places = [pair.result_place for pair in pairs if pair.result_place is not None]
        if not places:
            continue
        leading = {
            number: _leading(history, number) for number in range(index + 1, _last_results_after(history, index) + 1)
        }
        late = [place for place in places if place[1] > leading.get(place[0], -1)]
        for place in late:
            what = f"the result of {history.where(index)} is not directly after it"
            yield history.problem("results_not_after_call", place, what, _wanting_order(history))
        if not late and places[0][0] != places[-1][0]:
            what = f"the results of {history.where(index)} are in several messages"
            yield history.problem("split_results", max(places)[0], what)
        elif places != sorted(places):
            what = f"the results of {history.where(index)} are not in its order"
            yield history.problem("misordered_results", min(places)[0], what)


def _wanting_order(history: CheckedHistory) -> frozenset[str]:
    """The providers that want results directly after their calls."""
    lenient = speaking(history.wire) if history.facts.results_may_come_late else frozenset[str]()
    return REFUSED_BY["results_not_after_call"] - lenient


def _last_results_after(history: CheckedHistory, index: int) -> int:
    """The last of the consecutive result messages after this one."""
    number = index
    while number + 1 < len(history.messages) and history.messages[number + 1].results:
        number += 1
    return number


def _leading(history: CheckedHistory, index: int) -> int:
    """The number of the last result before any other part of a message."""
    parts = history.messages[index].parts
    return next((number for number, part in enumerate(parts) if not isinstance(part, ToolResult)), len(parts)) - 1


def calls_are_whole(history: CheckedHistory) -> Iterator[Problem]:
    """Arguments are JSON objects; in our own messages, an error result or repaired arguments are enough."""
    for pair in history.pairs:
        is_sendable = history.is_ours and (pair.result is None or pair.result.is_error or pair.is_repaired)
        if isinstance(pair.call, ToolCallInvalid) and pair.call.kind == "function" and not is_sendable:
            what = f"the arguments of the call {pair.call.id!r} are not a JSON object ({pair.call.why})"
            yield history.problem("invalid_call", pair.place, what)


def ids_are_unique(history: CheckedHistory) -> Iterator[Problem]:
    """Ids are unique in a turn; one provider wants them unique in a history that is sent as it is."""
    earlier: set[str] = set()
    for pairs in history.paired.calls:
        seen: set[str] = set()
        for pair in pairs:
            if not pair.call.id:
                yield history.problem("empty_id", pair.place, f"the call of {pair.call.name!r} has no id")
            elif pair.call.id in seen or pair.call.id in earlier:
                what = f"another call also has the id {pair.call.id!r}"
                once = None if pair.call.id in seen else REFUSED_BY["repeated_id_of_earlier_turn"]
                yield history.problem("repeated_id", pair.place, what, once)
            seen.add(pair.call.id)
        earlier |= set() if history.is_ours else seen


def items_come_once(history: CheckedHistory) -> Iterator[Problem]:
    """An item occurs once; in our own messages, encoders leave out repetitions."""
    if history.is_ours:
        return
    seen: set[str] = set()
    for index, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            id = item_id(part) if isinstance(part, Opaque) else ""
            if id in seen:
                yield history.problem(
                    "repeated_id", (index, number), f"another item also has the id {id!r}", REFUSED_BY["repeated_item"]
                )
            seen |= {id} if id else set()


# Parts and messages.


def parts_are_in_place(history: CheckedHistory) -> Iterator[Problem]:
    for index, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            if not isinstance(part, ALLOWED[message.role]):
                what = f"{type(part).__name__} is not allowed in a message of the role {message.role}"
                yield history.problem("misplaced_part", (index, number), what)


def parts_have_text(history: CheckedHistory) -> Iterator[Problem]:
    for index, message in enumerate(history.messages):
        for number in sorted(empty_parts(message, takes_blank=history.is_ours, marks=(PART_FIELDS, MESSAGE_FIELDS))):
            part = message.parts[number]
            is_blank = isinstance(part, Text | Reasoning) and bool(part.text)
            what = f"the {type(part).__name__.lower()} is {'white space' if is_blank else 'empty'}"
            yield history.problem("empty_part", (index, number), what, REFUSED_BY["blank_part"] if is_blank else None)


def messages_have_parts(history: CheckedHistory) -> Iterator[Problem]:
    """A message is not empty; one provider accepts an empty assistant message at the end."""
    for index, message in enumerate(history.messages):
        if not message.parts:
            is_begun = message.role == "assistant" and index == len(history.messages) - 1
            refusing = REFUSED_BY["empty_last_answer" if is_begun else "empty_message"]
            yield history.problem("empty_message", index, f"the message of the {message.role} is empty", refusing)


def states_are_on_their_parts(history: CheckedHistory) -> Iterator[Problem]:
    """State is on its part; in our own messages, encoders leave out misplaced state."""
    for index, message in enumerate(history.messages):
        for number in sorted(misplaced_states(message)):
            state = message.parts[number]
            if isinstance(state, Opaque) and not (history.is_ours and state.kind != PART_FIELDS):
                what = f"the {state.kind} of {state.wire} is not on the part that it belongs to"
                yield history.problem(
                    "misplaced_state",
                    (index, number),
                    what,
                    None if state.kind == PART_FIELDS else speaking(state.wire),
                )


# Roles.


def roles_alternate(history: CheckedHistory) -> Iterator[Problem]:
    """User and assistant messages alternate."""
    for (_, before), (index, message) in pairwise(enumerate(history.messages)):
        if before.role == message.role and message.role in ("user", "assistant"):
            yield history.problem("roles_do_not_alternate", index, f"two {message.role} messages follow each other")


def user_comes_first(history: CheckedHistory) -> Iterator[Problem]:
    others = ((index, message) for index, message in enumerate(history.messages) if message.role != "system")
    index, first = next(others, (0, None))
    if first is not None and first.role == "assistant":
        what = "the first message is an assistant message, not a user message"
        refusing = REFUSED_BY["begins_with_call"] if history.paired.calls[index] else None
        yield history.problem("does_not_begin_with_user", index, what, refusing)


RULES: tuple[Rule, ...] = (
    calls_have_results, results_have_calls, hosted_calls_have_results, hosted_results_have_calls,
    calls_have_one_result, results_are_named, results_follow, calls_are_whole, ids_are_unique, items_come_once,
    parts_are_in_place, parts_have_text, messages_have_parts, states_are_on_their_parts, roles_alternate,
    user_comes_first,
)  # fmt: skip


# Rules for a history that is sent to a provider as it is.


def results_are_answered(history: CheckedHistory) -> Iterator[Problem]:
    for (_, before), (index, message) in pairwise(enumerate(history.messages)):
        if before.role == "tool" and message.role == "user":
            what = "a user message follows results, without an assistant message between them"
            yield history.problem("user_after_results", index, what)


def system_comes_first(history: CheckedHistory) -> Iterator[Problem]:
    """System messages come first; on some wires, in a field of the request."""
    has_begun = False
    for index, message in enumerate(history.messages):
        field = history.facts.system_field
        is_beside = bool(field) and not history.where(index).startswith(field)
        if message.role == "system" and (has_begun or is_beside):
            refusing = speaking(history.wire) if is_beside else None
            yield history.problem("misplaced_system", index, "a system message is not at the beginning", refusing)
        has_begun = has_begun or message.role != "system"


def results_have_text(history: CheckedHistory) -> Iterator[Problem]:
    for pair in history.pairs:
        for place, result in pair.results:
            is_blank = any(isinstance(part, Text) and not part.text.strip() for part in result.content)
            if is_blank or (result.is_error and not result.content):
                what = f"the result of the call {result.call_id!r} has no text"
                yield history.problem("empty_part", place, what, REFUSED_BY["blank_result"])


def reasoning_is_signed(history: CheckedHistory) -> Iterator[Problem]:
    """Reasoning keeps its signature."""
    for index, message in enumerate(history.messages):
        signed = signed_blocks(message)
        for number, part in enumerate(message.parts):
            if isinstance(part, Reasoning) and part.block not in signed:
                what = "the reasoning has lost its signature"
                yield history.problem("missing_signature", (index, number), what, REFUSED_BY["unsigned_reasoning"])


def first_calls_are_signed(history: CheckedHistory) -> Iterator[Problem]:
    """The first call of each response in the current turn keeps its signature (QUIRKS 147)."""
    last_user = max((index for index, message in enumerate(history.messages) if message.role == "user"), default=-1)
    if not any(signed_blocks(message) for message in history.messages):
        return  # the model does not sign
    for pairs in history.paired.calls[last_user + 1 :]:
        if pairs and pairs[0].call.block not in signed_blocks(history.messages[pairs[0].place[0]]):
            what = f"the call {pairs[0].call.id!r} has lost its signature"
            yield history.problem("missing_signature", pairs[0].place, what, REFUSED_BY["unsigned_first_call"])


def reasoning_items_are_followed(history: CheckedHistory) -> Iterator[Problem]:
    """A reasoning item is followed by the item that it belongs to."""
    for index, message in enumerate(history.messages):
        last = message.parts[-1] if message.parts else None
        if isinstance(last, Opaque) and last.kind == "reasoning" and item_id(last):
            what = "the reasoning item is not followed by the item that it belongs to"
            yield history.problem(
                "misplaced_state", (index, len(message.parts) - 1), what, REFUSED_BY["reasoning_at_the_end"]
            )


AS_IT_STANDS: tuple[Rule, ...] = (
    results_are_answered, system_comes_first, results_have_text, reasoning_is_signed, first_calls_are_signed,
    reasoning_items_are_followed,
)  # fmt: skip
