"""Finds the habits of a server in the chunks of a Chat Completions response: how it identifies calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

NO_INDEX, SAME_INDEX, ID_AGAIN, NAME_AGAIN, NAME_IN_PIECES, LATE_NAME, NO_ID = 1, 3, 13, 14, 15, 16, 19
NUMBER_AS_ID, ONE_CALL, OBJECT, LEGACY = 20, 26, 35, 52


def find_habits(frames: Iterable[Any]) -> Counter[int]:
    """The quirks of the calls in these chunks, and how often each was seen."""
    counts: Counter[int] = Counter()
    calls = _Calls(counts)
    for frame in frames:
        for delta in _deltas(frame):
            if isinstance(delta.get("function_call"), dict):
                counts[LEGACY] += 1
            calls.add(delta.get("tool_calls"))
    calls.end()
    return counts


def _deltas(frame: Any) -> Iterator[dict[str, Any]]:
    choices = frame.get("choices") if isinstance(frame, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        delta = (choice.get("delta") or choice.get("message")) if isinstance(choice, dict) else None
        if isinstance(delta, dict):
            yield delta


class _Calls:
    """The fragments of calls so far."""

    def __init__(self, counts: Counter[int]) -> None:
        self._counts = counts
        self._ids: dict[Any, Any] = {}  # the last id by index
        self._names: dict[Any, str] = {}  # the name by index
        self._early: set[Any] = set()  # the indexes that had arguments before a name
        self._without_id = 0
        self._with_id = 0

    def add(self, fragments: Any) -> None:
        if isinstance(fragments, dict):
            self._counts[ONE_CALL] += 1
            fragments = [fragments]
        for fragment in fragments if isinstance(fragments, list) else ():
            if isinstance(fragment, dict):
                self._fragment(fragment)

    def end(self) -> None:
        if self._without_id:
            self._counts[NO_ID] += self._without_id

    def _fragment(self, fragment: dict[str, Any]) -> None:
        counts, index, id = self._counts, fragment.get("index"), fragment.get("id")
        function: Any = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = function.get("name"), function.get("arguments")
        if index is None:
            counts[NO_INDEX] += 1
        if isinstance(id, int) and not isinstance(id, bool):
            counts[NUMBER_AS_ID] += 1
        if isinstance(arguments, dict):
            counts[OBJECT] += 1
        is_new = bool(id) and id != self._ids.get(index)
        if is_new and index is not None and index in self._ids:
            counts[SAME_INDEX] += 1
        elif id and not is_new:
            counts[ID_AGAIN] += 1
        if is_new:
            self._names.pop(index, None)
            self._ids[index] = id
        self._name(index, name, arguments, has_id=bool(id) or index in self._ids)

    def _name(self, index: Any, name: Any, arguments: Any, *, has_id: bool) -> None:
        known = self._names.get(index)
        if not isinstance(name, str) or not name:
            if known is None and arguments:
                self._early.add(index)
            return
        if known is None:
            self._counts[LATE_NAME] += index in self._early
            self._without_id += not has_id
            self._names[index] = name
        elif name == known:
            self._counts[NAME_AGAIN] += 1
        elif index is not None:
            self._counts[NAME_IN_PIECES] += 1
