"""The rules of a history, each of which says what breaks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCallInvalid
from penstock.history.problem import CLAUDE, REFUSED_BY, Problem, ProblemKind
from penstock.history.states import belongs, wearers
from penstock.messages import Message, ToolResult
from penstock.pairing import Pairing, Place
from penstock.requests.history import ALLOWED


class History:
    """A history, and which of its results answers which call.

    `is_ours` says that it is made of messages of ours, which are written anew for each provider; any other is judged as
    it stands, for it may be sent like that.
    """

    def __init__(self, messages: list[Message], *, is_ours: bool = True) -> None:
        self.messages = messages
        self.is_ours = is_ours
        self.pairing = Pairing(messages)


Rule = Callable[[History], Iterator[Problem]]


def found(kind: ProblemKind, place: Place | int, what: str, providers: frozenset[str] | None = None) -> Problem:
    """A problem of a part, or of a message."""
    at, part = (place, None) if isinstance(place, int) else place
    return Problem(kind, at, part, what, tuple(sorted(REFUSED_BY[kind] if providers is None else providers)))


# Calls and their results.


def calls_have_results(history: History) -> Iterator[Problem]:
    for pairs in history.pairing.of:
        for pair in pairs:
            if not pair.results:
                what = f"the call {pair.call.id!r} of {pair.call.name!r} has no result"
                yield found("call_without_result", pair.place, what)


def results_have_calls(history: History) -> Iterator[Problem]:
    for orphans in history.pairing.orphans:
        for place, result in orphans:
            yield found("result_without_call", place, f"no call before it has the id {result.call_id!r}")


def calls_have_one_result(history: History) -> Iterator[Problem]:
    for pairs in history.pairing.of:
        for pair in pairs:
            for place, result in pair.results[:-1]:
                yield found("duplicate_result", place, f"the call {result.call_id!r} has another result later")


def results_are_named(history: History) -> Iterator[Problem]:
    for pairs in history.pairing.of:
        for pair in pairs:
            for place, result in pair.results:
                if result.name and result.name != pair.call.name:
                    what = f"the result is named {result.name!r}, and its call {pair.call.name!r}"
                    yield found("misnamed_result", place, what)


def results_follow(history: History) -> Iterator[Problem]:
    """The results of a turn stand directly after it, in one message, in the order of its calls."""
    for at, pairs in enumerate(history.pairing.of):
        places = [pair.results[-1][0] for pair in pairs if pair.results]
        if not places:
            continue
        after = _results_after(history, at)
        for place in places:
            if place[0] not in after or place[1] > _leading(history.messages[place[0]]):
                what = f"the result of messages[{at}] is not directly after it"
                yield found("results_not_after_call", place, what)
        if len({place[0] for place in places}) > 1 and all(place[0] in after for place in places):
            yield found("split_results", max(places)[0], f"the results of messages[{at}] are in several messages")
        elif places != sorted(places):
            yield found("misordered_results", min(places)[0], f"the results of messages[{at}] are not in its order")


def _results_after(history: History, at: int) -> set[int]:
    """The messages after this one that hold results, up to the first that does not."""
    numbers: set[int] = set()
    for number in range(at + 1, len(history.messages)):
        if not history.messages[number].results:
            break
        numbers.add(number)
    return numbers


def _leading(message: Message) -> int:
    """The number of the last of the results with which a message begins."""
    count = 0
    while count < len(message.parts) and isinstance(message.parts[count], ToolResult):
        count += 1
    return count - 1


def calls_are_whole(history: History) -> Iterator[Problem]:
    """Arguments are JSON; of calls in a history of ours that are not, it is enough that the result says so."""
    for pairs in history.pairing.of:
        for pair in pairs:
            is_told = history.is_ours and (pair.answer is None or pair.answer.is_error)
            if isinstance(pair.call, ToolCallInvalid) and pair.call.kind == "function" and not is_told:
                what = f"the arguments of the call {pair.call.id!r} are no JSON object ({pair.call.why})"
                yield found("invalid_call", pair.place, what)


def ids_are_unique(history: History) -> Iterator[Problem]:
    """Ids come once: in a turn, and in a history that is to be sent as it stands, at all."""
    seen: Counter[str] = Counter()
    for pairs in history.pairing.of:
        if history.is_ours:
            seen.clear()
        for pair in pairs:
            seen[pair.call.id] += 1
            if not pair.call.id:
                yield found("empty_id", pair.place, f"the call of {pair.call.name!r} has no id")
            elif seen[pair.call.id] > 1:
                yield found("repeated_id", pair.place, f"another call has the id {pair.call.id!r} too")


# Parts and messages.


def parts_are_in_place(history: History) -> Iterator[Problem]:
    for at, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            if not isinstance(part, ALLOWED[message.role]):
                what = f"a message of the role {message.role} holds no {type(part).__name__}"
                yield found("misplaced_part", (at, number), what)


def parts_say_something(history: History) -> Iterator[Problem]:
    for at, message in enumerate(history.messages):
        if not message.parts:
            yield found("empty_message", at, f"the message of the {message.role} is empty")
        for number, part in enumerate(message.parts):
            if is_empty(part, message, takes_blank=history.is_ours):
                yield found("empty_part", (at, number), f"the {type(part).__name__.lower()} is empty")


def is_empty(part: object, message: Message, *, takes_blank: bool = True) -> bool:
    """Whether a part says nothing, and carries no state; white space says something if it is taken."""
    if not isinstance(part, Text | Reasoning | Refusal) or (part.text if takes_blank else part.text.strip()):
        return False
    return all(other.block != part.block for other in message.parts if isinstance(other, Opaque))


def states_are_on_their_parts(history: History) -> Iterator[Problem]:
    for at, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, Opaque) and message.role == "assistant" and not belongs(part, message):
                what = f"the {part.kind} of {part.wire} is not on the part that it belongs to"
                yield found("misplaced_state", (at, number), what, wearers(part.wire))


# Roles.


def roles_alternate(history: History) -> Iterator[Problem]:
    for (_, before), (at, message) in pairwise(enumerate(history.messages)):
        if before.role == message.role and message.role in ("user", "assistant"):
            yield found("roles_do_not_alternate", at, f"two messages of the {message.role} follow each other")


def user_begins(history: History) -> Iterator[Problem]:
    spoken = ((at, message) for at, message in enumerate(history.messages) if message.role != "system")
    at, first = next(spoken, (0, None))
    if first is not None and first.role == "assistant":
        yield found("does_not_begin_with_user", at, "the first message is the assistant's, not the user's")


RULES: tuple[Rule, ...] = (
    calls_have_results, results_have_calls, calls_have_one_result, results_are_named, results_follow, calls_are_whole,
    ids_are_unique, parts_are_in_place, parts_say_something, states_are_on_their_parts, roles_alternate, user_begins,
)  # fmt: skip


# What holds for a provider alone, of a history that is to be sent as it stands.


def users_wait_for_answers(history: History) -> Iterator[Problem]:
    for (_, before), (at, message) in pairwise(enumerate(history.messages)):
        if before.role == "tool" and message.role == "user":
            yield found("user_after_results", at, "the user speaks after results, before the model has answered")


def thoughts_are_signed(history: History) -> Iterator[Problem]:
    for at, message in enumerate(history.messages):
        signed = {part.block for part in message.parts if isinstance(part, Opaque) and part.wire in CLAUDE}
        for number, part in enumerate(message.parts):
            if isinstance(part, Reasoning) and part.block not in signed:
                yield found("missing_signature", (at, number), "the reasoning has lost its signature")


AS_IT_STANDS: tuple[Rule, ...] = (users_wait_for_answers, thoughts_are_signed)
