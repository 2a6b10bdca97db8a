"""Heals native calls: damaged arguments are repaired, or passed on as they came; the end says that there are calls.

While the arguments are strict JSON they flow on. From the first deviation the rest of the call is held, because what is
sent cannot be taken back: at its end the rest is sent, repaired or as it came.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from penstock.events import (
    Finish,
    Retry,
    StreamChunk,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
)
from penstock.gateway.config.settings import Repair
from penstock.gateway.healing.finish_reasons import FinishReasons
from penstock.gateway.healing.names import ToolNames
from penstock.gateway.healing.repair import repair_arguments
from penstock.gateway.healing.report import HealingReport
from penstock.jsontext.strict import StrictObject

T = TypeVar("T", ToolCall, ToolCallInvalid)

_CONCERNED = {ToolCallStart, ToolCallDelta, ToolCallClosed, ToolCall, ToolCallInvalid, Finish, Retry}


class CallHealing:
    """The stage that heals native calls, one network read at a time."""

    def __init__(self, repair: Repair, report: HealingReport, reasons: FinishReasons, names: ToolNames) -> None:
        self._repair: Repair = repair
        self._names = names
        self._report = report
        self._reasons = reasons
        self._open: dict[int, _SentArguments] = {}  # by block

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events, healed."""
        if _CONCERNED.isdisjoint(map(type, chunks)):
            return chunks
        return [healed for chunk in chunks if (healed := self._heal(chunk)) is not None]

    def _heal(self, event: StreamChunk) -> StreamChunk | None:
        match event:
            case ToolCallStart():
                self._open[event.block] = _SentArguments()
                name, quirk = self._declared_name(event.name)
                return replace(event, name=name) if quirk else event
            case ToolCallDelta():
                return self._delta(event)
            case ToolCall():
                self._open.pop(event.block, None)
                self._reasons.add_call(event)
                return self._named(event)
            case ToolCallInvalid():
                return self._invalid(self._named(event))
            case Finish():
                return self._reasons.heal(event)
            case Retry():
                self._open.clear()
                self._reasons.clear()
                return event
            case _:
                return event

    def _named(self, event: T) -> T:
        """The call with the name of the declared tool it means; an undeclared name is noted."""
        name, quirk = self._declared_name(event.name)
        if quirk:
            self._report.add(quirk)
            return replace(event, name=name)
        if event.kind == "function" and not self._names.has(name):
            self._report.note_undeclared(name)
        return event

    def _declared_name(self, name: str) -> tuple[str, int]:
        """The declared name for the name of a call, and its quirk; 0 if the name is unchanged."""
        return (name, 0) if self._repair == "off" else self._names.declared_name(name)

    def _delta(self, event: ToolCallDelta) -> ToolCallDelta | None:
        call = self._open.get(event.block)
        if call is None:
            return event
        piece = call.json.feed(event.piece)
        call.size += len(piece)
        if piece == event.piece:
            return event
        return replace(event, piece=piece) if piece else None

    def _invalid(self, event: ToolCallInvalid) -> ToolCall | ToolCallInvalid:
        sent = self._open.pop(event.block, _SentArguments())
        if event.kind == "function" and (repaired := self.repaired(event, sent.size)) is not None:
            return repaired
        if event.why != "cut":
            self._reasons.add_damaged(event.choice)
        if event.why != "withdrawn":
            self._report.note_call(event.name, event.why)
        return event

    def repaired(self, event: ToolCallInvalid, sent: int = 0) -> ToolCall | None:
        """The call with repaired arguments; None if there is no repair that continues the characters already sent."""
        repair = repair_arguments(event, self._repair)
        if repair is None or not repair.text.startswith(event.arguments_raw[:sent]):
            return None
        self._reasons.add_damaged(event.choice)
        for quirk in repair.quirks:
            self._report.add(quirk)
        return ToolCall(
            event.id, event.name, repair.arguments, repair.text, event.origin, "whole", event.kind, event.block,
            event.choice,
        )  # fmt: skip


class _SentArguments:
    """The arguments of an open call, and how many characters of them were sent."""

    __slots__ = ("json", "size")

    def __init__(self) -> None:
        self.json = StrictObject()
        self.size = 0
