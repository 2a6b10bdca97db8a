"""Heals native calls: damaged arguments are repaired, or passed on as they came; the end says that there are calls.

While the arguments are strict JSON they flow on. From the first deviation the rest of the call is held, because what is
sent cannot be taken back: at its end the rest is sent, repaired or as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from penstock.calls.arguments import strict_object
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
from penstock.healing.finish_reasons import FinishReasons
from penstock.healing.ids import CallIds
from penstock.healing.names import ToolNames
from penstock.healing.repairs import repair_arguments
from penstock.healing.report import HealingReport
from penstock.healing.settings import Repair
from penstock.healing.wrapped import WRAPPED, unwrapped, wrapping_keys
from penstock.jsontext.strict import MAX_HELD, StrictObject

T = TypeVar("T", ToolCall, ToolCallInvalid)

_CONCERNED = {ToolCallStart, ToolCallDelta, ToolCallClosed, ToolCall, ToolCallInvalid, Finish, Retry}


class CallHealing:
    """The stage that heals native calls, one network read at a time."""

    def __init__(
        self, repair: Repair, report: HealingReport, reasons: FinishReasons, names: ToolNames, ids: CallIds
    ) -> None:
        self._repair: Repair = repair
        self._ids = ids
        self._names = names
        self._report = report
        self._reasons = reasons
        self._open: dict[int, _SentArguments] = {}  # by block

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events, healed."""
        if _CONCERNED.isdisjoint(map(type, chunks)):
            return chunks
        if len(chunks) == 1 and isinstance(first := chunks[0], ToolCallDelta):  # as nearly all reads of a call are
            piece = self._delta(first)
            return chunks if piece is first else [] if piece is None else [piece]
        healed: list[StreamChunk] = []
        for chunk in chunks:
            if (event := self._heal(chunk)) is None:
                continue
            if isinstance(event, ToolCall) and (call := self._open.pop(event.block, None)) is not None:
                healed += call.rest(event)
            healed.append(event)
        return healed

    def _heal(self, event: StreamChunk) -> StreamChunk | None:
        match event:
            case ToolCallStart():
                name, quirk = self._declared_name(event.name)
                keys = wrapping_keys(self._names.schema(name)) if self._repair != "off" else frozenset[str]()
                self._open[event.block] = _SentArguments(keys)
                event = self._ids.unique(event)
                return replace(event, name=name) if quirk else event
            case ToolCallDelta():
                return self._delta(event)
            case ToolCallClosed():
                call = self._open.get(event.block)
                return None if call is not None and call.is_holding else self._ids.unique(event)
            case ToolCall():
                self._reasons.add_call(event)
                return self._unwrapped(self._named(self._ids.unique(event)))
            case ToolCallInvalid():
                healed = self._invalid(self._named(self._ids.unique(event)))
                return self._unwrapped(healed) if isinstance(healed, ToolCall) else healed
            case Finish():
                return self._reasons.heal(event)
            case Retry():
                self._open.clear()
                self._ids.clear()
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

    def _unwrapped(self, event: ToolCall) -> ToolCall:
        """The call with the arguments that are inside another object."""
        if self._repair == "off" or event.kind != "function" or len(event.arguments) > MAX_WRAPPING:
            return event
        raw = unwrapped(event.arguments_raw, event.name, self._names.schema(event.name))
        if raw is None or (arguments := strict_object(raw)) is None:
            return event
        self._report.add(WRAPPED)
        return replace(event, arguments=arguments, arguments_raw=raw, quirks=(*event.quirks, WRAPPED))

    def _declared_name(self, name: str) -> tuple[str, int]:
        """The declared name for the name of a call, and its quirk; 0 if the name is unchanged."""
        return (name, 0) if self._repair == "off" else self._names.declared_name(name)

    def _delta(self, event: ToolCallDelta) -> ToolCallDelta | None:
        call = self._open.get(event.block)
        if call is None:
            return event
        piece = call.feed(event.piece)
        if piece == event.piece:
            return event
        return replace(event, piece=piece) if piece else None

    def _invalid(self, event: ToolCallInvalid) -> ToolCall | ToolCallInvalid:
        call = self._open.get(event.block)
        if event.kind == "function" and (repaired := self.repaired(event, call.size if call else 0)) is not None:
            return repaired
        self._open.pop(event.block, None)
        if event.why != "cut":
            self._reasons.add_damaged(event.choice)
        if event.why != "withdrawn":
            self._report.note_call(event.name, event.why)
        return event

    def taking(self, block: int) -> Callable[[str], str] | None:
        """What reads a piece of an open call and returns the text that can be sent; None if there is no such call."""
        call = self._open.get(block)
        return None if call is None else call.feed

    def repaired(self, event: ToolCallInvalid, sent: int = 0) -> ToolCall | None:
        """The call with repaired arguments; None if there is no repair that continues the characters already sent."""
        repair = repair_arguments(event, self._repair, event.arguments_raw[:sent])
        if repair is None:
            return None
        self._reasons.add_damaged(event.choice)
        for quirk in repair.quirks:
            self._report.add(quirk)
        return ToolCall(
            event.id, event.name, repair.arguments, repair.text, event.origin, "whole", event.kind, event.block,
            event.choice, quirks=repair.quirks,
        )  # fmt: skip


_EMPTY = re.compile(r"\s*+\{\s*+\}")
_FIRST_KEY = re.compile(r'\s*+\{\s*+"([a-z_]{0,16}+)("?)')
MAX_WRAPPING = 5
"""How many fields an object around the arguments may have."""
_MAY_BE_EMPTY = re.compile(r"\s*+(?:\{\s*+(?:\}\s*+)?)?")
"""The beginning of arguments that may still turn out to be an empty object."""


class _SentArguments:
    """The arguments of an open call, and how many characters of them were sent.

    An empty object is held: the arguments may follow it in another one (QUIRKS 180). So is an object that begins with
    one of the `wrapping` keys: the arguments may be inside it (QUIRKS 182).
    """

    __slots__ = ("_json", "_received", "_start", "_wrapping", "size")

    def __init__(self, wrapping: frozenset[str]) -> None:
        self._json = StrictObject()
        self._wrapping = wrapping
        self._start: str | None = ""  # the text so far, while it may be an empty object, or one around the arguments
        self._received = 0
        self.size = 0

    @property
    def is_holding(self) -> bool:
        """Whether some of the arguments was not sent."""
        return self.size < self._received

    def rest(self, call: ToolCall) -> list[StreamChunk]:
        """What was not sent of the arguments, when they are known."""
        if not self.is_holding or (self.size and not call.quirks):  # other arguments at the end replace the pieces
            return []
        rest = call.arguments_raw[self.size :]
        is_object = self.size or rest.lstrip().startswith("{")  # or `null`, which stands for no arguments
        return [ToolCallDelta(call.block, rest, call.choice)] if is_object and rest else []

    def feed(self, piece: str) -> str:
        """Reads a piece; returns the text that can be sent now."""
        self._received += len(piece)
        if self._start is not None:
            piece = self._start + piece
            key = _FIRST_KEY.match(piece) if self._wrapping else None
            if len(piece) <= MAX_HELD and (_MAY_BE_EMPTY.fullmatch(piece) or self._may_wrap(key)):
                self._start = piece
                return ""
            self._start = None
            if _EMPTY.match(piece) or (key is not None and key[2] and key[1] in self._wrapping):
                self._json.is_deviating = True
        sent = self._json.feed(piece)
        self.size += len(sent)
        return sent

    def _may_wrap(self, key: re.Match[str] | None) -> bool:
        """Whether the text so far may be the beginning of a key of an object around the arguments."""
        if key is None or key[2] or key.end() < len(key.string):
            return False
        return any(word.startswith(key[1]) for word in self._wrapping)
