"""Call ids that are unique in a conversation: clients take a call with the id of an earlier one for a copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from penstock.calls.numbering import UniqueIds
from penstock.events import ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.healing.report import REPEATED_ID, HealingReport
from penstock.messages import Message

T = TypeVar("T", ToolCallStart, ToolCallClosed, ToolCall, ToolCallInvalid)


class CallIds:
    """The ids of one response. A call whose id is in the history gets another one (QUIRKS 22)."""

    __slots__ = ("_ids", "_messages", "_report", "_used")

    def __init__(self, messages: Sequence[Message], report: HealingReport) -> None:
        self._messages = messages
        self._report = report
        self._used: UniqueIds | None = None  # until the first call: most responses have none
        self._ids: dict[tuple[int, str], str] = {}  # by block and the provider's id, which may come after the start

    def unique(self, event: T) -> T:
        """The event with the id that its call has for the client."""
        key = event.block, event.id
        id = self._ids.get(key)
        if id is None:
            id = self._ids[key] = self._take(event.id)
        return event if id == event.id else replace(event, id=id)

    def clear(self) -> None:
        """Another attempt begins."""
        self._used = None
        self._ids.clear()

    def _take(self, id: str) -> str:
        if self._used is None:
            self._used = UniqueIds()
            for message in self._messages:
                for part in message.parts:
                    if isinstance(part, ToolCall | ToolCallInvalid):
                        self._used.add(part.id)
        unique = self._used.take(id)
        if unique != id:
            self._report.add(REPEATED_ID)
        return unique
