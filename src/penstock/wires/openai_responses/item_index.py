"""The items of a Responses stream by index and id: which item a frame belongs to, and an item of the final output.

| the frame has | it belongs to |
|---|---|
| an id with which exactly one item was added | that item |
| any other id, and an index | the item at the index: some gateways change the id in every frame (QUIRKS 136) |
| an id, and no index | the item of any frame with this id |
| neither | the last item, if it is open and of the right type |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.wires.openai_responses.item import HOSTED_CUSTOM_CALL, Item, id_of, type_of


class ItemIndex:
    """Finds the items of one response. `items` are in the order of their first frames.

    `announced` are those that were added with an id, by it; None for an id that several have.
    """

    def __init__(self, is_declared: Callable[[str], bool]) -> None:
        self.items: list[Item] = []
        self.announced: dict[str, Item | None] = {}
        self._is_declared = is_declared
        self._by_index: dict[int | None, Item] = {}  # never by None
        self._by_id: dict[str, Item] = {}

    def add(self, item: Item, index: int | None, id: str) -> None:
        """Adds an item."""
        self.items.append(item)
        if index is not None:
            item.index = index
            self._by_index[index] = item
        if id:
            self._by_id[id] = item

    def at(self, index: int | None) -> Item | None:
        """The item at this index."""
        return self._by_index.get(index)

    def leads_to(self, index: int | None, item: Item) -> bool:
        """Whether the item is at this index."""
        return item is self._by_index.get(index)

    def owner_of(self, id: str | None) -> Item | None:
        """The item that was added with this id, if it is the only one."""
        return self.announced.get(id) if id else None

    def find(self, index: int | None, id: str) -> Item | None:
        """The item of a frame with this index and id; see the table above."""
        item = self.owner_of(id)
        if item is not None:
            return item
        return self._by_id.get(id) if index is None else self._by_index.get(index)

    def last_open(self, index: int | None, type: str) -> Item | None:
        """The last item, if it is open and either the frame or the item has no index."""
        last = self.items[-1] if self.items else None
        if last is None or last.is_done or not last.is_like(type):
            return None
        return last if index is None or last.index is None else None

    def open_with_id(self, id: str, type: str) -> Item | None:
        """The open item of the frames with this id, if it was never added: their index may not be the item's."""
        item = self._by_id.get(id) if id else None
        return item if item and item.data is None and not item.is_done and item.is_like(type) else None

    def item_for(self, index: int | None, data: dict[str, Any]) -> Item | None:
        """The item that `data` describes: by its id, if no other item has it, else by its index."""
        item = self.find(index, id_of(data.get("id")))
        if item is not None and index is not None and item.index not in (None, index):
            item = item if is_same_call(item, data) else self._by_index.get(index)
        if item is not None and self.fits(item, data):
            self.bind(index, item)
            return item
        return None

    def bind(self, index: int | None, item: Item) -> None:
        """Sets the index of an item that had none."""
        if item.index is None and index is not None and index not in self._by_index:
            item.index = index
            self._by_index[index] = item

    def announce(self, id: str, item: Item) -> None:
        """Records the id with which an item was added."""
        if id:
            self.announced[id] = item if self.announced.get(id, item) is item else None

    def type_of(self, data: dict[str, Any]) -> str:
        """The type of an item. A custom call of an undeclared tool is run by the provider."""
        type = type_of(data)
        is_hosted = type == "custom_tool_call" and data.get("name") and not self._is_declared(str(data["name"]))
        return HOSTED_CUSTOM_CALL if is_hosted else type

    def fits(self, item: Item, data: dict[str, Any]) -> bool:
        """Whether `data` may describe the item: it has its id, or at least not another call's."""
        id, call_id = id_of(data.get("id")), id_of(data.get("call_id"))
        is_known = bool(id) and self.announced.get(id) is item
        return item.is_like(self.type_of(data)) and (is_known or not item.call_id or call_id in ("", item.call_id))

    def matched(self, entries: list[dict[str, Any]]) -> list[Item | None]:
        """The item of each entry: by its ids, else by its position, else the next one of its type."""
        known: list[Item | None] = [None] * len(entries)
        left = dict.fromkeys(self.items)
        by_call_id = {item.call_id: item for item in self.items if item.call_id}
        for position, data in enumerate(entries):
            id = id_of(data.get("id"))
            item = by_call_id.get(id_of(data.get("call_id"))) or self.announced.get(id) or self._by_id.get(id)
            known[position] = self._claim(left, item, data)
        for position, data in enumerate(entries):
            known[position] = known[position] or self._claim(left, self._by_index.get(position), data)
        by_type: dict[str, deque[Item]] = {}
        for item in left:
            by_type.setdefault(item.type, deque()).append(item)
        for position, data in enumerate(entries):
            rest = by_type.get(self.type_of(data))
            if known[position] is None and rest and self.fits(rest[0], data):
                known[position] = rest.popleft()
        return known

    def _claim(self, left: dict[Item, None], item: Item | None, data: dict[str, Any]) -> Item | None:
        if item is not None and item in left and self.fits(item, data):
            del left[item]
            return item
        return None


def is_same_call(item: Item, data: dict[str, Any]) -> bool:
    """Whether `data` describes the call of this item."""
    return bool(item.call_id) and item.call_id == id_of(data.get("call_id"))
