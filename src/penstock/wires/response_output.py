"""The output of a Responses stream: its items, and which of them a frame speaks of.

Items are told apart by `output_index`, for some gateways give every frame of an item another id (QUIRKS 136). Where the
index is left out the id serves, and where that is left out too, the item that is being written.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.events import SealedBy
from penstock.wires.reply import Reply
from penstock.wires.response_item import CallItem, HostedItem, Item, Tell, TextItem, id_of, make_item, type_of

CONFIRMING = ("completed", "")
"""The reasons for a response's end that confirm what is in it; a whole body need not give one."""


class Output:
    """The items of one response, in the order in which they were first heard of."""

    def __init__(self, reply: Reply, tell: Tell) -> None:
        self._reply = reply
        self._tell = tell
        self._by_index: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}
        self.items: list[Item] = []

    @property
    def is_settled(self) -> bool:
        """Whether every item that began has ended."""
        return all(item.is_done for item in self.items)

    def text_at(self, frame: dict[str, Any], type: str) -> TextItem:
        """The item that a text belongs to; the text may come first."""
        item = self._at(frame, type)
        assert isinstance(item, TextItem)  # no other takes a text
        return item

    def call_at(self, frame: dict[str, Any], type: str) -> CallItem:
        """The call that arguments belong to; they may come first."""
        item = self._at(frame, type)
        assert isinstance(item, CallItem)  # no other takes arguments
        return item

    def hosted_at(self, frame: dict[str, Any]) -> HostedItem | None:
        """The item of another kind that a frame speaks of, if it says which."""
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self._find(index, id)
        if item is None and (index is not None or id):
            item = self._add(index, id, "")
        return item if isinstance(item, HostedItem) else None

    def _at(self, frame: dict[str, Any], type: str) -> Item:
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self._find(index, id)
        if item is None and index is None:
            item = self._being_written(type)
        return item if item is not None and item.takes(type) else self._add(index, id, type)

    def begin(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """An item was announced. At an index that is taken it is another one, unless it was not announced yet."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), type_of(data)
        item = self._find(index, id)
        is_announced = item is not None and item.data is not None and id != item.id
        if item is None or is_announced or item.is_done or not _fits(item, data):
            item = self._add(index, id, type)
        item.announce(data)

    def end(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """An item is done."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), type_of(data)
        item = self._find(index, id)
        if item is None and index is None:
            item = self._being_written(type)
        if item is None or not _fits(item, data) or (item.is_done and id != item.id):
            item = self._add(index, id, type)
        item.end(data, "call_end", data.get("status") == "incomplete")

    def conclude(self, output: list[Any], reason: str | None) -> None:
        """The response says what all items are; those that were not told, or not ended, are so now.

        `reason` is why it is over, and None if it is not.
        """
        entries = [entry for entry in output if isinstance(entry, dict)]
        for entry in output:
            if not isinstance(entry, dict) and entry is not None:
                self._tell(entry, "an item that is no object")
        known = self._matched(entries)
        for index, (data, item) in enumerate(zip(entries, known, strict=True)):
            sealed_by: SealedBy = "finish" if item else "whole"
            item = item or self._add(index, id_of(data.get("id")), type_of(data))
            status = data.get("status")
            if status == "in_progress" and reason is None:
                item.announce(data)
            else:
                is_whole = status == "completed" or (status != "incomplete" and reason in CONFIRMING)
                item.end(data, sealed_by, not is_whole)

    def close(self, is_confirmed: bool) -> None:
        """Nothing more will come."""
        for item in self.items:
            if not item.is_done:
                item.is_done = True
                item.abandon(is_confirmed)

    def _find(self, index: int | None, id: str) -> Item | None:
        return self._by_id.get(id) if index is None else self._by_index.get(index)

    def _being_written(self, type: str) -> Item | None:
        last = self.items[-1] if self.items else None
        return last if last is not None and last.is_like(type) and not last.is_done else None

    def _add(self, index: int | None, id: str, type: str) -> Item:
        item = make_item(self._reply, self._tell, type)
        self.items.append(item)
        if index is not None:
            self._by_index[index] = item
        if id:
            self._by_id[id] = item
        return item

    def _matched(self, entries: list[dict[str, Any]]) -> list[Item | None]:
        """For each entry the item that it is: by its ids, else by its place, else the next of its type."""
        known: list[Item | None] = [None] * len(entries)
        left = dict.fromkeys(self.items)
        by_call_id = {item.call_id: item for item in self.items if item.call_id}
        for place, data in enumerate(entries):
            item = by_call_id.get(id_of(data.get("call_id"))) or self._by_id.get(id_of(data.get("id")))
            known[place] = _taken(left, item, data)
        for place, data in enumerate(entries):
            known[place] = known[place] or _taken(left, self._by_index.get(place), data)
        by_type: dict[str, deque[Item]] = {}
        for item in left:
            by_type.setdefault(item.type, deque()).append(item)
        for place, data in enumerate(entries):
            rest = by_type.get(type_of(data))
            if known[place] is None and rest and _fits(rest[0], data):
                known[place] = rest.popleft()
        return known


def _taken(left: dict[Item, None], item: Item | None, data: dict[str, Any]) -> Item | None:
    if item is not None and item in left and _fits(item, data):
        del left[item]
        return item
    return None


def _fits(item: Item, data: dict[str, Any]) -> bool:
    """Whether the item may be the one that is stated."""
    call_id = id_of(data.get("call_id"))
    return item.is_like(type_of(data)) and (not item.call_id or not call_id or item.call_id == call_id)


def index_of(frame: dict[str, Any], key: str) -> int | None:
    """A number by which a frame says what it speaks of, if it does."""
    index = frame.get(key)
    return index if isinstance(index, int) and not isinstance(index, bool) else None
