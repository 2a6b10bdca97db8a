"""The rules of a history, each of which says what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from penstock.events import Opaque, Reasoning, Text, ToolCallInvalid
from penstock.history.problem import Problem, ProblemKind
from penstock.history.read import Reading
from penstock.history.state_places import item_id, misplaced_states, signed_blocks
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, ToolResult
from penstock.providers import REFUSED_BY, speaking
from penstock.wires import all_facts, find_facts
from penstock.wires.shared.history_steps import ALLOWED, empty_parts
from penstock.wires.shared.hosted_calls import HostedCalls
from penstock.wires.shared.pairing import CallResults, Place, pair_results


class History:
    """A history as it was read, and which of its results answers which call.

    One that `is_ours`, made of messages of ours, is written anew for each provider; any other is judged as it stands,
    for it may be sent like that.
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
        """Where a part, or a message, stands in what was given."""
        if isinstance(place, int):
            return self.places[place].message
        return self.places[place[0]].parts[place[1]]

    def problem(
        self, kind: ProblemKind, place: Place | int, what: str, providers: frozenset[str] | None = None
    ) -> Problem:
        """A problem of a part, or of a message."""
        at, part = (place, None) if isinstance(place, int) else place
        refusing = REFUSED_BY[kind] if providers is None else providers
        return Problem(kind, self.where(place), what, tuple(sorted(refusing)), at, part)


Rule = Callable[[History], Iterator[Problem]]


# Calls and their results.


def calls_have_results(history: History) -> Iterator[Problem]:
    for pair in history.pairs:
        if not pair.results:
            what = f"the call {pair.call.id!r} of {pair.call.name!r} has no result"
            yield history.problem("call_without_result", pair.place, what)


def results_have_calls(history: History) -> Iterator[Problem]:
    """A result follows its call, unless the call is in an answer that the provider keeps."""
    if history.is_continued:
        return
    for orphans in history.paired.orphans:
        for place, result in orphans:
            yield history.problem("result_without_call", place, f"no call before it has the id {result.call_id!r}")


def hosted_calls_have_results(history: History) -> Iterator[Problem]:
    """The calls of a vendor's own tools too; in a history of ours, those without are left out when it is sent."""
    if history.is_ours:
        return
    for place, call in history.hosted.unfinished.items():
        yield history.problem("call_without_result", place, f"the {call.kind} has no result", speaking(call.wire))


def hosted_results_have_calls(history: History) -> Iterator[Problem]:
    if history.is_continued:
        return
    for place, result in history.hosted.orphans.items():
        yield history.problem("result_without_call", place, f"the {result.kind} has no call", speaking(result.wire))


def calls_have_one_result(history: History) -> Iterator[Problem]:
    for pair in history.pairs:
        for place, result in pair.results:
            if result is not pair.result:
                yield history.problem("duplicate_result", place, f"the call {result.call_id!r} has another result")


def results_are_named(history: History) -> Iterator[Problem]:
    """A result is named after its call; by most it need not be named at all."""
    for pair in history.pairs:
        for place, result in pair.results:
            if result.name != pair.call.name and (result.name or history.facts.named_results):
                what = f"the result is named {result.name!r}, and its call {pair.call.name!r}"
                yield history.problem("misnamed_result", place, what)


def results_follow(history: History) -> Iterator[Problem]:
    """The results of a turn stand directly after it, in one message, in the order of its calls."""
    for at, pairs in enumerate(history.paired.calls):
        places = [pair.result_place for pair in pairs if pair.result_place is not None]
        if not places:
            continue
        leading = {number: _leading(history, number) for number in range(at + 1, _last_results_after(history, at) + 1)}
        late = [place for place in places if place[1] > leading.get(place[0], -1)]
        for place in late:
            what = f"the result of {history.where(at)} is not directly after it"
            yield history.problem("results_not_after_call", place, what, _wanting_order(history))
        if not late and places[0][0] != places[-1][0]:
            what = f"the results of {history.where(at)} are in several messages"
            yield history.problem("split_results", max(places)[0], what)
        elif places != sorted(places):
            what = f"the results of {history.where(at)} are not in its order"
            yield history.problem("misordered_results", min(places)[0], what)


def _wanting_order(history: History) -> frozenset[str]:
    """The providers that want results directly after their calls."""
    lenient = speaking(history.wire) if history.facts.late_results else frozenset[str]()
    return REFUSED_BY["results_not_after_call"] - lenient


def _last_results_after(history: History, at: int) -> int:
    """The last of the messages after this one that hold results, up to the first that does not."""
    number = at
    while number + 1 < len(history.messages) and history.messages[number + 1].results:
        number += 1
    return number


def _leading(history: History, at: int) -> int:
    """The number of the last of the results with which a message begins."""
    parts = history.messages[at].parts
    return next((number for number, part in enumerate(parts) if not isinstance(part, ToolResult)), len(parts)) - 1


def calls_are_whole(history: History) -> Iterator[Problem]:
    """Arguments are JSON; of calls in a history of ours that are not, it is enough that the result says so."""
    for pair in history.pairs:
        is_told = history.is_ours and (pair.result is None or pair.result.is_error)
        if isinstance(pair.call, ToolCallInvalid) and pair.call.kind == "function" and not is_told:
            what = f"the arguments of the call {pair.call.id!r} are no JSON object ({pair.call.why})"
            yield history.problem("invalid_call", pair.place, what)


def ids_are_unique(history: History) -> Iterator[Problem]:
    """Ids come once in a turn; for one provider, in a history that is to be sent as it stands, once at all."""
    earlier: set[str] = set()
    for pairs in history.paired.calls:
        seen: set[str] = set()
        for pair in pairs:
            if not pair.call.id:
                yield history.problem("empty_id", pair.place, f"the call of {pair.call.name!r} has no id")
            elif pair.call.id in seen or pair.call.id in earlier:
                what = f"another call has the id {pair.call.id!r} too"
                once = None if pair.call.id in seen else REFUSED_BY["repeated_id_of_earlier_turn"]
                yield history.problem("repeated_id", pair.place, what, once)
            seen.add(pair.call.id)
        earlier |= set() if history.is_ours else seen


def items_come_once(history: History) -> Iterator[Problem]:
    seen: set[str] = set()
    for at, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            id = item_id(part) if isinstance(part, Opaque) else ""
            if id in seen:
                yield history.problem(
                    "repeated_id", (at, number), f"another item has the id {id!r} too", REFUSED_BY["repeated_item"]
                )
            seen |= {id} if id else set()


# Parts and messages.


def parts_are_in_place(history: History) -> Iterator[Problem]:
    for at, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            if not isinstance(part, ALLOWED[message.role]):
                what = f"a message of the role {message.role} holds no {type(part).__name__}"
                yield history.problem("misplaced_part", (at, number), what)


def parts_say_something(history: History) -> Iterator[Problem]:
    for at, message in enumerate(history.messages):
        for number in sorted(empty_parts(message, takes_blank=history.is_ours, marks=(PART_FIELDS, MESSAGE_FIELDS))):
            part = message.parts[number]
            is_blank = isinstance(part, Text | Reasoning) and bool(part.text)
            what = f"the {type(part).__name__.lower()} is {'white space' if is_blank else 'empty'}"
            yield history.problem("empty_part", (at, number), what, REFUSED_BY["blank_part"] if is_blank else None)


def messages_say_something(history: History) -> Iterator[Problem]:
    """A message is not empty; Anthropic lets the last one be, for the model to begin it."""
    for at, message in enumerate(history.messages):
        if not message.parts:
            is_begun = message.role == "assistant" and at == len(history.messages) - 1
            refusing = REFUSED_BY["empty_last_answer" if is_begun else "empty_message"]
            yield history.problem("empty_message", at, f"the message of the {message.role} is empty", refusing)


def states_are_on_their_parts(history: History) -> Iterator[Problem]:
    for at, message in enumerate(history.messages):
        for number in sorted(misplaced_states(message)):
            state = message.parts[number]
            if isinstance(state, Opaque):
                what = f"the {state.kind} of {state.wire} is not on the part that it belongs to"
                yield history.problem(
                    "misplaced_state", (at, number), what, None if state.kind == PART_FIELDS else speaking(state.wire)
                )


# Roles.


def roles_alternate(history: History) -> Iterator[Problem]:
    """The user and the model take turns; to Gemini it matters only where the model calls."""
    for (_, before), (at, message) in pairwise(enumerate(history.messages)):
        if before.role == message.role and message.role in ("user", "assistant"):
            what = f"two messages of the {message.role} follow each other"
            has_calls = message.role == "assistant" and bool(history.paired.calls[at])
            refusing = REFUSED_BY["call_after_assistant"] if has_calls else None
            yield history.problem("roles_do_not_alternate", at, what, refusing)


def user_begins(history: History) -> Iterator[Problem]:
    spoken = ((at, message) for at, message in enumerate(history.messages) if message.role != "system")
    at, first = next(spoken, (0, None))
    if first is not None and first.role == "assistant":
        what = "the first message is the assistant's, not the user's"
        refusing = REFUSED_BY["begins_with_call"] if history.paired.calls[at] else None
        yield history.problem("does_not_begin_with_user", at, what, refusing)


RULES: tuple[Rule, ...] = (
    calls_have_results, results_have_calls, hosted_calls_have_results, hosted_results_have_calls,
    calls_have_one_result, results_are_named, results_follow, calls_are_whole, ids_are_unique, items_come_once,
    parts_are_in_place, parts_say_something, messages_say_something, states_are_on_their_parts, roles_alternate,
    user_begins,
)  # fmt: skip


# What is looked for when a provider is named, in a history that is to be sent as it stands.


def users_wait_for_answers(history: History) -> Iterator[Problem]:
    for (_, before), (at, message) in pairwise(enumerate(history.messages)):
        if before.role == "tool" and message.role == "user":
            what = "the user speaks after results, before the model has answered"
            yield history.problem("user_after_results", at, what)


def system_speaks_first(history: History) -> Iterator[Problem]:
    """The system speaks before all others; with some, in a field of its own."""
    has_begun = False
    for at, message in enumerate(history.messages):
        field = history.facts.system_field
        is_beside = bool(field) and not history.where(at).startswith(field)
        if message.role == "system" and (has_begun or is_beside):
            refusing = speaking(history.wire) if is_beside else None
            yield history.problem("misplaced_system", at, "the system speaks among the messages", refusing)
        has_begun = has_begun or message.role != "system"


def results_say_something(history: History) -> Iterator[Problem]:
    for pair in history.pairs:
        for place, result in pair.results:
            is_blank = any(isinstance(part, Text) and not part.text.strip() for part in result.content)
            if is_blank or (result.is_error and not result.content):
                what = f"the result of the call {result.call_id!r} says nothing"
                yield history.problem("empty_part", place, what, REFUSED_BY["blank_result"])


def reasoning_is_signed(history: History) -> Iterator[Problem]:
    """What Claude thought goes back signed."""
    for at, message in enumerate(history.messages):
        signed = signed_blocks(message)
        for number, part in enumerate(message.parts):
            if isinstance(part, Reasoning) and part.block not in signed:
                what = "the reasoning has lost its signature"
                yield history.problem("missing_signature", (at, number), what, REFUSED_BY["unsigned_reasoning"])


def first_calls_are_signed(history: History) -> Iterator[Problem]:
    """Gemini signs the first call of each answer, and looks for it in the turn that it is in (QUIRKS 147)."""
    last_user = max((at for at, message in enumerate(history.messages) if message.role == "user"), default=-1)
    if not any(signed_blocks(message) for message in history.messages):
        return  # of a model that does not sign
    for pairs in history.paired.calls[last_user + 1 :]:
        if pairs and pairs[0].call.block not in signed_blocks(history.messages[pairs[0].place[0]]):
            what = f"the call {pairs[0].call.id!r} has lost its signature"
            yield history.problem("missing_signature", pairs[0].place, what, REFUSED_BY["unsigned_first_call"])


def reasonings_are_followed(history: History) -> Iterator[Problem]:
    """In the items of Responses, what was reasoned about follows the reasoning."""
    for at, message in enumerate(history.messages):
        last = message.parts[-1] if message.parts else None
        if isinstance(last, Opaque) and last.kind == "reasoning" and item_id(last):
            what = "the reasoning is not followed by what was reasoned about"
            yield history.problem(
                "misplaced_state", (at, len(message.parts) - 1), what, REFUSED_BY["reasoning_at_the_end"]
            )


AS_IT_STANDS: tuple[Rule, ...] = (
    users_wait_for_answers, system_speaks_first, results_say_something, reasoning_is_signed, first_calls_are_signed,
    reasonings_are_followed,
)  # fmt: skip
