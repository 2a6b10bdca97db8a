"""The output of a Responses stream: its items, from their first frames to their ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, ClassVar

import msgspec

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.events import SealedBy, ToolCall
from penstock.jsontext.portable import as_json_value
from penstock.wires.openai_responses.client_calls import arguments_of, checks_of, kind_of, runs_here, tool_of
from penstock.wires.openai_responses.facts import CLIENT_CALLS
from penstock.wires.openai_responses.item import (
    HOSTED_CUSTOM_CALL,
    CallItem,
    Item,
    Message,
    ReasoningItem,
    TextItem,
    Unknown,
    all_texts,
    id_of,
    type_of,
)
from penstock.wires.openai_responses.item_index import ItemIndex, is_same_call
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.indexes import as_index
from penstock.wires.shared.decode_response.loose import arguments_text

CONFIRMING = ("completed", "done", "")
"""The reasons that confirm what is in a response; a whole body may have none."""


class Output:
    """The items of one response, in the order of their first frames."""

    def __init__(
        self, answer: AnswerWriter, unknown: Unknown, is_declared: Callable[[str], bool], tools: Sequence[str]
    ) -> None:
        self.index = ItemIndex(is_declared)
        self.items = self.index.items
        self._tools = tools
        self._answer = answer
        self._unknown = unknown
        self._unnamed: dict[Item, None] = {}  # calls whose arguments came first

    @property
    def is_complete(self) -> bool:
        """Whether every item has ended."""
        return all(item.is_done for item in self.items)

    @property
    def client_work(self) -> str:
        """The type of the first item that the client must act on; items without a call come first."""
        hosted = [item for item in self.items if isinstance(item, HostedItem)]
        answered, calls = self._answered, [type_of(item.final) for item in hosted if item.is_for_client]
        for item in hosted:
            is_waiting = item.final.get("execution") == "client" and not item.is_for_client
            if is_waiting and id_of(item.final.get("call_id") or item.final.get("id")) not in answered:
                return type_of(item.final)
        return calls[0] if calls else ""

    @property
    def _answered(self) -> set[str]:
        """The ids of the calls whose outputs are in this response."""
        hosted = [item.final for item in self.items if isinstance(item, HostedItem)]
        return {id_of(data.get("call_id")) for data in hosted if type_of(data).endswith("_output")}

    def text_at(self, frame: dict[str, Any], type: str) -> TextItem:
        """The item that a text belongs to, created if need be."""
        item = self._item_at(frame, type)
        assert isinstance(item, TextItem)  # no other kind takes text
        return item

    def call_at(self, frame: dict[str, Any], type: str) -> CallItem:
        """The call that arguments belong to, created if need be."""
        count = len(self.items)
        item = self._item_at(frame, type)
        assert isinstance(item, CallItem)  # no other kind takes arguments
        if len(self.items) > count:
            self._unnamed[item] = None
        return item

    def hosted_at(self, frame: dict[str, Any]) -> HostedItem | CallItem | None:
        """The item of a frame of an unknown kind, if it is a hosted tool or a call."""
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self.index.find(index, id)
        if item is None and (index is not None or id):
            item = self._add(index, id, "")
        return item if isinstance(item, HostedItem | CallItem) else None

    def hosted_call_at(self, frame: dict[str, Any]) -> HostedItem | None:
        """The custom call of a frame, if the provider runs it."""
        item = self.index.find(index_of(frame, "output_index"), id_of(frame.get("item_id")))
        return item if isinstance(item, HostedItem) and item.type == HOSTED_CUSTOM_CALL else None

    def _item_at(self, frame: dict[str, Any], type: str) -> Item:
        index, id = index_of(frame, "output_index"), id_of(frame.get("item_id"))
        item = self.index.find(index, id) or self.index.last_open(index, type)
        if item is not None and not item.takes(type) and index is not None:
            item = self.index.at(index)
        if item is None or not item.takes(type):
            return self._add(index, id, type)
        self.index.bind(index, item)
        return item

    def begin(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """Adds an item. At an index that is taken it is another item, unless that one had not been added yet."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), self.index.type_of(data)
        item = self.index.item_for(index, data)
        if item is not None and item.is_done and is_same_call(item, data):
            return  # it has been added and ended before
        is_another = item is not None and item.data is not None and id != item.id and not is_same_call(item, data)
        if item is None or is_another or item.is_done:
            item = self._add(index, id, type)
        self._unnamed.pop(item, None)
        item.announce(data)
        self.index.announce(id, item)

    def end(self, frame: dict[str, Any], data: dict[str, Any]) -> None:
        """Ends an item."""
        index, id, type = index_of(frame, "output_index"), id_of(data.get("id")), self.index.type_of(data)
        item = self.index.item_for(index, data) or self.index.last_open(index, type)
        item = item or self.index.open_with_id(id, type)
        is_another = item is not None and item.is_done and id != item.id and not is_same_call(item, data)
        if item is None or is_another or not self.index.fits(item, data):
            item = self._add(index, id, type)
        self.index.bind(index, item)
        self.index.announce(id, item)
        self._end(item, data, "call_end", data.get("status") == "incomplete")

    def _end(self, item: Item, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        self._unnamed.pop(item, None)
        self._check_unnamed()
        item.end(data, sealed_by, is_cut)

    def reconcile(self, output: list[Any], reason: str | None) -> None:
        """Compares the items with the final output of the response: adds missing items and ends open ones.

        `reason` is the reason for the end of the response; None if it has not ended.
        """
        entries = [entry for entry in output if isinstance(entry, dict)]
        for entry in output:
            if not isinstance(entry, dict) and entry is not None:
                self._unknown(entry, "an item that is not an object")
        known = self.index.matched(entries)
        for index, (data, item) in enumerate(zip(entries, known, strict=True)):
            sealed_by: SealedBy = "finish" if item else "whole"
            item = item or self._add(index, id_of(data.get("id")), self.index.type_of(data))
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
                is_lost = isinstance(item, CallItem) and self.index.at(item.index) not in (None, item)
                item.close(is_confirmed and not is_lost)
        answered = self._answered
        for item in self.items:
            if isinstance(item, HostedItem) and is_confirmed:
                item.end_call(id_of(item.final.get("call_id")) in answered)

    def _check_unnamed(self) -> None:
        """Marks the answer as short if arguments came for an unknown call: another call may lack them."""
        while self._unnamed:
            item = next(reversed(self._unnamed))
            if isinstance(item, CallItem) and item.is_unnamed:
                self._answer.is_short = True
                return
            del self._unnamed[item]

    def _add(self, index: int | None, id: str, type: str) -> Item:
        item = make_item(self._answer, self._unknown, type, self._tools)
        self.index.add(item, index, id)
        return item


def index_of(frame: dict[str, Any], key: str) -> int | None:
    """An index in a frame; None if it has none."""
    return as_index(frame.get(key))


class HostedItem(TextItem):
    """Any other item, such as a hosted tool or a client-run vendor call. It must be sent back whole."""

    _FIELDS: ClassVar = {
        "code_interpreter_call_code": "code",
        "mcp_call_arguments": "arguments",
        "custom_tool_call_input": "input",
    }

    def __init__(self, answer: AnswerWriter, unknown: Unknown, type: str, tools: Sequence[str] = ()) -> None:
        super().__init__(answer, unknown, type)
        self._tools = tools
        self._streamed: dict[str, StringIO] = {}
        self._is_waiting = False  # the item has ended, but it is not known yet who runs the call
        self.is_for_client = False  # it is a call that the client must act on
        self.final: dict[str, Any] = {}  # the item as it ended

    def is_like(self, type: str) -> bool:
        return self.type == type or (not self.type and type not in _CLASSES)

    def takes(self, type: str) -> bool:
        return self.type == type or (type in ("message", "reasoning") and not self.is_done)

    def announce(self, data: dict[str, Any]) -> None:
        super().announce(data)
        self.type = self.type or type_of(data)

    def add(self, stem: str, text: str, is_whole: bool) -> None:
        """Adds a piece of its input, or all of it; `stem` is the name of its frames."""
        pieces = StringIO() if is_whole else self._streamed.get(stem, StringIO())
        self._streamed[stem] = pieces
        if pieces.tell() + len(text) <= MAX_ARGUMENTS:
            pieces.write(text)

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        streamed = {stem: pieces.getvalue() for stem, pieces in self._streamed.items()}
        fields = {self._FIELDS[stem]: text for stem, text in streamed.items() if stem in self._FIELDS}
        missing = {key: text for key, text in fields.items() if not data.get(key)}
        portable = as_json_value({**data, **missing})
        self.final = portable if isinstance(portable, dict) else {}  # text, if it is too deep
        self.answer.opaque(type_of(data) or "item", portable, self.last_block())
        if not is_cut:
            is_for_client = runs_here(self.final)
            self._is_waiting = is_for_client is None
            if is_for_client:
                self._call(sealed_by)
        texts = all_texts(data)
        for stem, text in streamed.items():
            if stem not in self._FIELDS and text not in texts:
                self.unknown({stem: text}, "pieces that the final item does not contain")

    def end_call(self, is_answered: bool) -> None:
        """The response is complete, and shows whether the provider has run the call itself (`is_answered`)."""
        is_waiting, self._is_waiting = self._is_waiting, False
        if is_waiting and not is_answered:
            self._call("finish")

    def _call(self, sealed_by: SealedBy) -> None:
        """Emits the call that the client must act on, together with its vendor state."""
        data, arguments = self.final, arguments_of(self.final)
        id, name = id_of(data.get(CLIENT_CALLS[type_of(data)].id)), tool_of(data, self._tools)
        call = ToolCall(id, name, arguments, arguments_text(arguments), "native", sealed_by, kind_of(data))
        self.answer.vendor_call(msgspec.structs.replace(call, safety_checks=tuple(checks_of(data))), self.last_block())
        self.is_for_client = True

    def close(self, is_confirmed: bool) -> None:
        is_call = self.data is not None and runs_here(self.data) is not False  # as it was added, perhaps in part
        if self.data is not None and is_confirmed and not is_call:
            self.finish(self.data, "finish", False)
        elif self.data is not None or self._streamed:
            streamed = {stem: pieces.getvalue() for stem, pieces in self._streamed.items()}
            self.unknown({**(self.data or {}), **streamed}, "an item that never ended")


_CLASSES: dict[str, type[Item]] = {
    "message": Message,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "custom_tool_call": CallItem,
}


def make_item(answer: AnswerWriter, unknown: Unknown, type: str, tools: Sequence[str]) -> Item:
    """Creates an item of this type; `tools` are the names of the declared tools."""
    known = _CLASSES.get(type)
    return HostedItem(answer, unknown, type, tools) if known is None else known(answer, unknown, type)
