"""The output of a Responses stream: its items, and which of them a frame speaks of.

An id by which an item was announced is that item's. Some gateways give every frame of an item another id (QUIRKS 136):
then the `output_index` tells. Where that is left out, any id serves, and without one the item that is being written.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.events import SealedBy
from penstock.wires.openai_responses.item import CallItem, HostedItem, Item, Tell, TextItem, id_of, make_item, type_of
from penstock.wires.shared.answer_writer import AnswerWriter

CONFIRMING = ("completed", "")
"""The reasons for a response's end that confirm what is in it; a whole body need not give one."""


class Output:
    """The items of one response, in the order in which they were first heard of."""

    def __init__(self, answer: AnswerWriter, tell: Tell) -> None:
        self._answer = answer
        self._tell = tell
        self._by_index: dict[int | None, Item] = {}  # never by None
        self._by_id: dict[str, Item] = {}
        self.announced: dict[str, Item | None] = {}  # by the ids that items gave themselves; None if several did
        self._unnamed: dict[Item, None] = {}  # calls of which arguments came first
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
        count = len(self.items)
        item = self._at(frame, type)
        assert isinstance(item, CallItem)  # no other takes arguments
        if len(self.items) > count:
            self._unnamed[item] = None
        return item

    def hosted_at(self, frame: dict[str, Any]) -> HostedItem | CallItem | None:
        """The item that a frame of a kind that we do not know speaks of, if it says which, and if it is no text."""
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self._find(index, id)
        if item is None and (index is not None or id):
            item = self._add(index, id, "")
        return item if isinstance(item, HostedItem | CallItem) else None

    def leads_to(self, index: int | None, item: Item) -> bool:
        """Whether the index is that of the item."""
        return item is self._by_index.get(index)

    def owner_of(self, id: str | None) -> Item | None:
        """The item that gave itself this id, if no other did."""
        return self.announced.get(id) if id else None

    def _at(self, frame: dict[str, Any], type: str) -> Item:
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self._find(index, id) or self._being_written(index, type)
        if item is not None and not item.takes(type) and index is not None:
            item = self._by_index.get(index)
        if item is None or not item.takes(type):
            return self._add(index, id, type)
        self._bind(index, item)
        return item

    def begin(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """An item was announced. At an index that is taken it is another one, unless it was not announced yet."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), type_of(data)
        item = self._stated(index, data)
        if item is not None and item.is_done and _is_same_call(item, data):
            return  # it was begun and ended
        is_another = item is not None and item.data is not None and id != item.id and not _is_same_call(item, data)
        if item is None or is_another or item.is_done:
            item = self._add(index, id, type)
        self._unnamed.pop(item, None)
        item.announce(data)
        self._announce(id, item)

    def end(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """An item is done."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), type_of(data)
        item = self._stated(index, data) or self._being_written(index, type)
        is_another = item is not None and item.is_done and id != item.id and not _is_same_call(item, data)
        if item is None or is_another or not self._fits(item, data):
            item = self._add(index, id, type)
        self._bind(index, item)
        self._announce(id, item)
        self._end(item, data, "call_end", data.get("status") == "incomplete")

    def _end(self, item: Item, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        self._unnamed.pop(item, None)
        self._mind_unnamed()
        item.end(data, sealed_by, is_cut)

    def _stated(self, index: int | None, data: dict[str, Any]) -> Item | None:
        """The item that is stated: by the id that it gave itself, unless others have it too, else by its index."""
        item = self._find(index, id_of(data.get("id")))
        if item is not None and index is not None and item.index not in (None, index):
            item = item if _is_same_call(item, data) else self._by_index.get(index)
        if item is not None and self._fits(item, data):
            self._bind(index, item)
            return item
        return None

    def conclude(self, output: list[Any], reason: str | None) -> None:
        """The response says what all items are; those that were not told, or not ended, are so now.

        `reason` is why it is over, and None if it is not.
        """
        entries = [entry for entry in output if isinstance(entry, dict)]
        for entry in output:
            if not isinstance(entry, dict) and entry is not None:
                self._tell(entry, "an item that is not an object")
        known = self._matched(entries)
        for index, (data, item) in enumerate(zip(entries, known, strict=True)):
            sealed_by: SealedBy = "finish" if item else "whole"
            item = item or self._add(index, id_of(data.get("id")), type_of(data))
            status = data.get("status")
            if status == "in_progress" and reason is None:
                item.announce(data)
            else:
                is_whole = status == "completed" or (status != "incomplete" and reason in CONFIRMING)
                self._end(item, data, sealed_by, not is_whole)

    def close(self, is_confirmed: bool) -> None:
        """Nothing more will come. A call that lost its index to another item was given up, and nothing confirms it."""
        self._mind_unnamed()
        for item in self.items:
            if not item.is_done:
                item.is_done = True
                is_lost = isinstance(item, CallItem) and item is not self._by_index.get(item.index, item)
                item.abandon(is_confirmed and not is_lost)

    def _mind_unnamed(self) -> None:
        """Arguments that belong to no call that is known may be those of a call that has none."""
        while self._unnamed:
            item = next(reversed(self._unnamed))
            if isinstance(item, CallItem) and item.is_unnamed:
                self._answer.is_short = True
                return
            del self._unnamed[item]

    def _find(self, index: int | None, id: str) -> Item | None:
        """The item of an id that was announced, else of the index, else of an id that was heard."""
        item = self.owner_of(id)
        if item is not None:
            return item
        return self._by_id.get(id) if index is None else self._by_index.get(index)

    def _being_written(self, index: int | None, type: str) -> Item | None:
        """The last item, if the frame does not say which it speaks of, or the item has not said where it is."""
        last = self.items[-1] if self.items else None
        if last is None or last.is_done or not last.is_like(type):
            return None
        return last if index is None or last.index is None else None

    def _add(self, index: int | None, id: str, type: str) -> Item:
        item = make_item(self._answer, self._tell, type)
        self.items.append(item)
        if index is not None:
            item.index = index
            self._by_index[index] = item
        if id:
            self._by_id[id] = item
        return item

    def _bind(self, index: int | None, item: Item) -> None:
        """Where the item is, if it had not said so."""
        if item.index is None and index is not None and index not in self._by_index:
            item.index = index
            self._by_index[index] = item

    def _announce(self, id: str, item: Item) -> None:
        if id:
            self.announced[id] = item if self.announced.get(id, item) is item else None

    def _matched(self, entries: list[dict[str, Any]]) -> list[Item | None]:
        """For each entry the item that it is: by its ids, else by its place, else the next of its type."""
        known: list[Item | None] = [None] * len(entries)
        left = dict.fromkeys(self.items)
        by_call_id = {item.call_id: item for item in self.items if item.call_id}
        for place, data in enumerate(entries):
            id = id_of(data.get("id"))
            item = by_call_id.get(id_of(data.get("call_id"))) or self.announced.get(id) or self._by_id.get(id)
            known[place] = self._taken(left, item, data)
        for place, data in enumerate(entries):
            known[place] = known[place] or self._taken(left, self._by_index.get(place), data)
        by_type: dict[str, deque[Item]] = {}
        for item in left:
            by_type.setdefault(item.type, deque()).append(item)
        for place, data in enumerate(entries):
            rest = by_type.get(type_of(data))
            if known[place] is None and rest and self._fits(rest[0], data):
                known[place] = rest.popleft()
        return known

    def _taken(self, left: dict[Item, None], item: Item | None, data: dict[str, Any]) -> Item | None:
        if item is not None and item in left and self._fits(item, data):
            del left[item]
            return item
        return None

    def _fits(self, item: Item, data: dict[str, Any]) -> bool:
        """Whether the item may be the one that is stated: it has its own id, or at least not another call's."""
        id, call_id = id_of(data.get("id")), id_of(data.get("call_id"))
        is_known = bool(id) and self.announced.get(id) is item
        return item.is_like(type_of(data)) and (is_known or not item.call_id or call_id in ("", item.call_id))


def _is_same_call(item: Item, data: dict[str, Any]) -> bool:
    return bool(item.call_id) and item.call_id == id_of(data.get("call_id"))


def index_of(frame: dict[str, Any], key: str) -> int | None:
    """A number by which a frame says what it speaks of, if it does."""
    index = frame.get(key)
    return index if isinstance(index, int) and not isinstance(index, bool) else None
