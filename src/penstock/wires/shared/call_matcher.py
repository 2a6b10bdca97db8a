"""Who answers which call, where that is told by the tool's name and the order alone."""

from __future__ import annotations

from collections import defaultdict, deque

from penstock.calls.numbering import UniqueIds


class _Call:
    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.is_answered = False


class _Waiting:
    """Calls that wait for their results: the newest turn's first, for an older one was interrupted; within it in order.

    Those that were answered in the meantime are let go of when they come to be the first, so that nothing is searched.
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
    """The calls of a history so far."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._free = UniqueIds()
        self._turn = 0
        self._with_id: defaultdict[str, _Waiting] = defaultdict(_Waiting)
        self._of_tool: defaultdict[str, _Waiting] = defaultdict(_Waiting)  # those of any tool are under no name

    def add(self, id: str, name: str) -> None:
        """A call was made."""
        call = _Call(id, name)
        self._names[id] = name
        self._free.add(id)
        self._with_id[id].add(call, self._turn)
        for tool in {name, ""}:
            self._of_tool[tool].add(call, self._turn)

    def end_turn(self) -> None:
        """Somebody else spoke: calls that come now are another turn's."""
        self._turn += 1

    def new_id(self, name: str) -> str:
        """An id for a call that has none, which no call before it has."""
        return self._free.take(f"call_{name}")

    def next_call_id(self, name: str) -> str:
        """The id of the call of this tool, or of any if there is no name, that is the next to be answered."""
        waiting = self._of_tool[name].first()
        return waiting.id if waiting else self.new_id(name)

    def answer(self, id: str) -> str:
        """The name of the tool whose result has come."""
        waiting = self._with_id[id].first()
        if waiting:
            waiting.is_answered = True
        return waiting.name if waiting else self._names.get(id, "")
