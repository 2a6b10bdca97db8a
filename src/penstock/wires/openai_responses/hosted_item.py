"""Output items that are vendor state as a whole: hosted tools, and calls of tools that the client runs."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any, ClassVar

import msgspec

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.events import SealedBy, ToolCall
from penstock.jsontext.portable import as_json_value
from penstock.wires.openai_responses.client_calls import arguments_of, checks_of, kind_of, runs_here, tool_of
from penstock.wires.openai_responses.facts import CLIENT_CALLS
from penstock.wires.openai_responses.item import (
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
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.loose import arguments_text


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
