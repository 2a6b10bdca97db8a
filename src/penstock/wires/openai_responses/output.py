"""The output of a Responses stream: its items, and the item that each frame belongs to.

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

from penstock.events import SealedBy
from penstock.wires.openai_responses.facts import CLIENT_ITEMS
from penstock.wires.openai_responses.item import (
    HOSTED_CUSTOM_CALL,
    CallItem,
    HostedItem,
    Item,
    TextItem,
    Unknown,
    id_of,
    make_item,
    type_of,
)
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.indexes import as_index

CONFIRMING = ("completed", "")
"""The reasons that confirm what is in a response; a whole body may have none."""


class Output:
    """The items of one response, in the order of their first frames."""

    def __init__(self, answer: AnswerWriter, unknown: Unknown, is_declared: Callable[[str], bool]) -> None:
        self._is_declared = is_declared
        self._answer = answer
        self._unknown = unknown
        self._by_index: dict[int | None, Item] = {}  # never by None
        self._by_id: dict[str, Item] = {}
        self.announced: dict[
            str, Item | None
        ] = {}  # by the ids with which items were added; None for an id that several have
        self._unnamed: dict[Item, None] = {}  # calls whose arguments came first
        self.items: list[Item] = []

    @property
    def is_complete(self) -> bool:
        """Whether every item has ended."""
        return all(item.is_done for item in self.items)

    @property
    def client_work(self) -> str:
        """The type of the first item that the client must act on; empty if there is none."""
        hosted = [item.final for item in self.items if isinstance(item, HostedItem)]
        answered = {id_of(data.get("call_id")) for data in hosted if type_of(data).endswith("_output")}
        for data in hosted:
            is_for_client = type_of(data) in CLIENT_ITEMS or data.get("execution") == "client"
            if is_for_client and id_of(data.get("call_id") or data.get("id")) not in answered:
                return type_of(data)
        return ""

    def text_at(self, frame: dict[str, Any], type: str) -> TextItem:
        """The item that a text belongs to, created if need be."""
        item = self._at(frame, type)
        assert isinstance(item, TextItem)  # no other kind takes text
        return item

    def call_at(self, frame: dict[str, Any], type: str) -> CallItem:
        """The call that arguments belong to, created if need be."""
        count = len(self.items)
        item = self._at(frame, type)
        assert isinstance(item, CallItem)  # no other kind takes arguments
        if len(self.items) > count:
            self._unnamed[item] = None
        return item

    def hosted_at(self, frame: dict[str, Any]) -> HostedItem | CallItem | None:
        """The item of a frame of an unknown kind, if it is a hosted tool or a call."""
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self._find(index, id)
        if item is None and (index is not None or id):
            item = self._add(index, id, "")
        return item if isinstance(item, HostedItem | CallItem) else None

    def hosted_call_at(self, frame: dict[str, Any]) -> HostedItem | None:
        """The custom call of a frame, if the provider runs it."""
        item = self._find(index_of(frame, "output_index"), id_of(frame.get("item_id")))
        return item if isinstance(item, HostedItem) and item.type == HOSTED_CUSTOM_CALL else None

    def _type(self, data: dict[str, Any]) -> str:
        """The type of an item. A custom call of a tool that nobody declared is one that the provider runs."""
        type = type_of(data)
        is_hosted = type == "custom_tool_call" and data.get("name") and not self._is_declared(str(data["name"]))
        return HOSTED_CUSTOM_CALL if is_hosted else type

    def leads_to(self, index: int | None, item: Item) -> bool:
        """Whether the item is at this index."""
        return item is self._by_index.get(index)

    def owner_of(self, id: str | None) -> Item | None:
        """The item that was added with this id, if it is the only one."""
        return self.announced.get(id) if id else None

    def _at(self, frame: dict[str, Any], type: str) -> Item:
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self._find(index, id) or self._last_open(index, type)
        if item is not None and not item.takes(type) and index is not None:
            item = self._by_index.get(index)
        if item is None or not item.takes(type):
            return self._add(index, id, type)
        self._bind(index, item)
        return item

    def begin(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """Adds an item. At an index that is taken it is another item, unless that one had not been added yet."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), self._type(data)
        item = self._item_for(index, data)
        if item is not None and item.is_done and _is_same_call(item, data):
            return  # it has been added and ended before
        is_another = item is not None and item.data is not None and id != item.id and not _is_same_call(item, data)
        if item is None or is_another or item.is_done:
            item = self._add(index, id, type)
        self._unnamed.pop(item, None)
        item.announce(data)
        self._announce(id, item)

    def end(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """Ends an item."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), self._type(data)
        item = self._item_for(index, data) or self._last_open(index, type)
        is_another = item is not None and item.is_done and id != item.id and not _is_same_call(item, data)
        if item is None or is_another or not self._fits(item, data):
            item = self._add(index, id, type)
        self._bind(index, item)
        self._announce(id, item)
        self._end(item, data, "call_end", data.get("status") == "incomplete")

    def _end(self, item: Item, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        self._unnamed.pop(item, None)
        self._check_unnamed()
        item.end(data, sealed_by, is_cut)

    def _item_for(self, index: int | None, data: dict[str, Any]) -> Item | None:
        """The item that `data` describes: by its id, if no other item has it, else by its index."""
        item = self._find(index, id_of(data.get("id")))
        if item is not None and index is not None and item.index not in (None, index):
            item = item if _is_same_call(item, data) else self._by_index.get(index)
        if item is not None and self._fits(item, data):
            self._bind(index, item)
            return item
        return None

    def reconcile(self, output: list[Any], reason: str | None) -> None:
        """Compares the items with the final output of the response: adds those that are missing and ends the open ones.

        `reason` is the reason for the end of the response; None if it has not ended.
        """
        entries = [entry for entry in output if isinstance(entry, dict)]
        for entry in output:
            if not isinstance(entry, dict) and entry is not None:
                self._unknown(entry, "an item that is not an object")
        known = self._matched(entries)
        for index, (data, item) in enumerate(zip(entries, known, strict=True)):
            sealed_by: SealedBy = "finish" if item else "whole"
            item = item or self._add(index, id_of(data.get("id")), self._type(data))
            status = data.get("status")
            if status == "in_progress" and reason is None:
                item.announce(data)
            else:
                is_whole = status == "completed" or (status != "incomplete" and reason in CONFIRMING)
                self._end(item, data, sealed_by, not is_whole)

    def close(self, is_confirmed: bool) -> None:
        """Ends the open items. A call that has lost its index to another item is not confirmed by the response."""
        self._check_unnamed()
        for item in self.items:
            if not item.is_done:
                item.is_done = True
                is_lost = isinstance(item, CallItem) and item is not self._by_index.get(item.index, item)
                item.close(is_confirmed and not is_lost)

    def _check_unnamed(self) -> None:
        """Marks the answer as short if arguments came for an unknown call: another call may lack them."""
        while self._unnamed:
            item = next(reversed(self._unnamed))
            if isinstance(item, CallItem) and item.is_unnamed:
                self._answer.is_short = True
                return
            del self._unnamed[item]

    def _find(self, index: int | None, id: str) -> Item | None:
        """The item of a frame with this index and id; see the table above."""
        item = self.owner_of(id)
        if item is not None:
            return item
        return self._by_id.get(id) if index is None else self._by_index.get(index)

    def _last_open(self, index: int | None, type: str) -> Item | None:
        """The last item, if it is open and either the frame or the item has no index."""
        last = self.items[-1] if self.items else None
        if last is None or last.is_done or not last.is_like(type):
            return None
        return last if index is None or last.index is None else None

    def _add(self, index: int | None, id: str, type: str) -> Item:
        item = make_item(self._answer, self._unknown, type)
        self.items.append(item)
        if index is not None:
            item.index = index
            self._by_index[index] = item
        if id:
            self._by_id[id] = item
        return item

    def _bind(self, index: int | None, item: Item) -> None:
        """Sets the index of an item that had none."""
        if item.index is None and index is not None and index not in self._by_index:
            item.index = index
            self._by_index[index] = item

    def _announce(self, id: str, item: Item) -> None:
        if id:
            self.announced[id] = item if self.announced.get(id, item) is item else None

    def _matched(self, entries: list[dict[str, Any]]) -> list[Item | None]:
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
            rest = by_type.get(self._type(data))
            if known[position] is None and rest and self._fits(rest[0], data):
                known[position] = rest.popleft()
        return known

    def _claim(self, left: dict[Item, None], item: Item | None, data: dict[str, Any]) -> Item | None:
        if item is not None and item in left and self._fits(item, data):
            del left[item]
            return item
        return None

    def _fits(self, item: Item, data: dict[str, Any]) -> bool:
        """Whether `data` may describe the item: it has its id, or at least not another call's."""
        id, call_id = id_of(data.get("id")), id_of(data.get("call_id"))
        is_known = bool(id) and self.announced.get(id) is item
        return item.is_like(self._type(data)) and (is_known or not item.call_id or call_id in ("", item.call_id))


def _is_same_call(item: Item, data: dict[str, Any]) -> bool:
    return bool(item.call_id) and item.call_id == id_of(data.get("call_id"))


def index_of(frame: dict[str, Any], key: str) -> int | None:
    """An index in a frame; None if it has none."""
    return as_index(frame.get(key))
