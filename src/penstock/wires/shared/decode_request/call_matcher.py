"""Matches results with calls by the name of the tool and their order, where they have no ids."""

from __future__ import annotations

from collections import defaultdict, deque

from penstock.calls.numbering import UniqueIds


class _Call:
    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.is_answered = False


class _OpenCalls:
    """Calls without a result. The newest turn is answered first, as an older one was interrupted; within it, in order.

    An answered call is dropped when it becomes the first, so that nothing is searched.
    """

    def __init__(self) -> None:
        self._turns: list[tuple[int, deque[_Call]]] = []

    def add(self, call: _Call, turn: int) -> None:
        if not self._turns or self._turns[-1][0] != turn:
            self._turns.append((turn, deque()))
        self._turns[-1][1].append(call)

    def first(self) -> _Call | None:
        while self._turns:
            _, calls = self._turns[-1]
            while calls and calls[0].is_answered:
                calls.popleft()
            if calls:
                return calls[0]
            self._turns.pop()
        return None


class CallMatcher:
    """The calls of a history so far, for the results that follow."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._ids = UniqueIds()
        self._turn = 0
        self._with_id: defaultdict[str, _OpenCalls] = defaultdict(_OpenCalls)
        self._of_tool: defaultdict[str, _OpenCalls] = defaultdict(_OpenCalls)  # the calls of all tools are under ""

    def add(self, id: str, name: str) -> None:
        """Add a call."""
        call = _Call(id, name)
        self._names[id] = name
        self._ids.add(id)
        self._with_id[id].add(call, self._turn)
        for tool in {name, ""}:
            self._of_tool[tool].add(call, self._turn)

    def knows(self, id: str) -> bool:
        """Whether there is a call with this id."""
        return id in self._names

    def end_turn(self) -> None:
        """Start another turn: a message that is not the assistant's."""
        self._turn += 1

    def new_id(self, name: str) -> str:
        """A new id for a call that has none."""
        return self._ids.take(f"call_{name}")

    def next_call_id(self, name: str) -> str:
        """The id of the next call of this tool, or of any tool without a name, that has no result; a new id if none."""
        call = self._of_tool[name].first()
        return call.id if call else self.new_id(name)

    def answer(self, id: str) -> str:
        """Add the result of the call with this id; returns the name of its tool."""
        call = self._with_id[id].first()
        if call:
            call.is_answered = True
        return call.name if call else self._names.get(id, "")
