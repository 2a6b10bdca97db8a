"""Which result answers which call, in a history of whatever order: of the tools that we run, and of a vendor's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from penstock.events import Opaque, ToolCall, ToolCallInvalid
from penstock.messages import Message, ToolResult

Place = tuple[int, int]
"""Where a part stands: the number of its message, and its own in that message."""


class Pair:
    """A call, and the results that name it, each with its place.

    The last that is no error counts: what comes first is often a stand-in, and what comes later may be one too.
    """

    def __init__(self, place: Place, call: ToolCall | ToolCallInvalid) -> None:
        self.place = place
        self.call = call
        self.results: list[tuple[Place, ToolResult]] = []

    @property
    def answer(self) -> ToolResult | None:
        """The result that counts."""
        return None if self._counting is None else self._counting[1]

    @property
    def answer_place(self) -> Place | None:
        """Where that stands."""
        return None if self._counting is None else self._counting[0]

    @property
    def _counting(self) -> tuple[Place, ToolResult] | None:
        good = [found for found in self.results if not found[1].is_error]
        return (good or self.results)[-1] if self.results else None

    @property
    def whole(self) -> ToolCall:
        """The call as an ordinary one; of one that is cut or malformed, with what was meant, or what was written."""
        call = self.call
        if isinstance(call, ToolCall):
            return call
        meant = {"input": call.arguments_raw} if call.kind == "custom" else call.repaired
        arguments = {"invalid_json": call.arguments_raw} if meant is None else meant
        return ToolCall(call.id, call.name, arguments, kind=call.kind, block=call.block)


class Pairing:
    """All calls of a history, each with its results.

    A result belongs to the next unanswered call of its id, wherever it stands after that call: ids may come again in
    later turns (QUIRKS 22), and an interrupted turn may have left its own open. A result whose call is answered is one
    more result of it. `of` holds the pairs of each message, `orphans` the results of each message without any call.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.of: list[list[Pair]] = []
        self.orphans: list[list[tuple[Place, ToolResult]]] = []
        self._waiting: dict[str, deque[Pair]] = {}
        self._answered: dict[str, Pair] = {}
        for at, message in enumerate(messages):
            self.of.append(self._calls(at, message))
            results = [
                ((at, number), part) for number, part in enumerate(message.parts) if isinstance(part, ToolResult)
            ]
            self.orphans.append([found for found in results if not self._take(*found)])

    def _calls(self, at: int, message: Message) -> list[Pair]:
        """The calls of a message; they come before older ones of the same id, which were never answered."""
        pairs = [
            Pair((at, number), part)
            for number, part in enumerate(message.parts)
            if isinstance(part, ToolCall | ToolCallInvalid)
        ]
        newer: dict[str, list[Pair]] = {}
        for pair in pairs:
            newer.setdefault(pair.call.id, []).append(pair)
        for id, found in newer.items():
            self._waiting.setdefault(id, deque()).extendleft(reversed(found))
        return pairs

    def _take(self, place: Place, result: ToolResult) -> bool:
        """Give a result to the call that it answers; whether there is such a call."""
        if waiting := self._waiting.get(result.call_id):
            self._answered[result.call_id] = waiting.popleft()
        pair = self._answered.get(result.call_id)
        if pair is not None:
            pair.results.append((place, result))
        return pair is not None


# The vendors' own tools.

_ITEMS = ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
"""The calls among the items of Responses whose outputs are items too; all others hold what they gave back."""
_Key = tuple[str, str]


class Hosted:
    """The calls of tools that a vendor runs, or describes, itself, as far as they and their results are apart.

    Both are states of the vendor's. `calls` are those whose result never came: an answer was cut between the two. As
    long as the user has said nothing after it, the vendor may still go on with one: it pauses, or waits for results of
    ours. `results` are those whose call is gone, and `callers` are the states of our calls that name one of `calls`.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.results: dict[Place, Opaque] = {}
        waiting: dict[_Key, list[tuple[Place, Opaque]]] = {}
        states = list(_states(messages))
        for place, state in states:
            if key := _called(state):
                waiting.setdefault(key, []).append((place, state))
            elif (key := _answered(state)) and waiting.get(key):
                waiting[key].pop()
            elif key:
                self.results[place] = state
        last = max((at for at, message in enumerate(messages) if _is_spoken(message)), default=-1)
        self.calls = {place: state for found in waiting.values() for place, state in found if place[0] < last}
        gone = {state.data["id"] for state in self.calls.values() if state.wire == "anthropic"}
        self.callers = {place for place, state in states if state.kind == "caller" and _caller(state) in gone}


def _states(messages: Sequence[Message]) -> Iterator[tuple[Place, Opaque]]:
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, Opaque):
                yield (at, number), part


def _called(state: Opaque) -> _Key | None:
    """What the result of this call is known by; none if it is no call."""
    match state.wire, state.data:
        case "anthropic", {"type": "server_tool_use" | "mcp_tool_use", "id": str(id)}:
            return state.wire, id
        case "bedrock", {"toolUse": {"toolUseId": str(id)}}:
            return state.wire, id
        case "openai-responses", {"type": str(kind), "call_id": str(id)} if kind in _ITEMS:
            return kind, id
        case _:
            return None


def _answered(state: Opaque) -> _Key | None:
    """What the call of this result is known by; none if it is no result."""
    match state.wire, state.data:
        case "anthropic", {"type": str(kind), "tool_use_id": str(id)} if kind.endswith("_tool_result"):
            return state.wire, id
        case "bedrock", {"toolResult": {"toolUseId": str(id)}}:
            return state.wire, id
        case "openai-responses", {"type": str(kind), "call_id": str(id)} if kind.removesuffix("_output") in _ITEMS:
            return kind.removesuffix("_output"), id
        case _:
            return None


def _caller(state: Opaque) -> object:
    return state.data.get("tool_id") if isinstance(state.data, dict) else None


def _is_spoken(message: Message) -> bool:
    """Whether the user says something in it, and does not only give results."""
    return message.role == "user" and any(not isinstance(part, ToolResult) for part in message.parts)
