"""Heals native calls: damaged arguments are repaired, or passed on as they came; the end says that there are calls.

While the arguments are strict JSON they flow on. From the first deviation the rest of the call is held, because what is
sent cannot be taken back: at its end the rest is sent, repaired or as it came.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import Struct
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
from penstock.gateway.config.settings import Repair
from penstock.gateway.healing.finish_reasons import FinishReasons
from penstock.gateway.healing.names import ToolNames
from penstock.gateway.healing.report import HealingReport
from penstock.jsontext.controls import escape_controls
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


# Repairs damaged arguments of calls.
#
# A safe repair is the only one that is possible, and changes no value: a comma too many, a code fence around the
# arguments, raw control characters in strings, arguments that were sent twice or as a JSON string, brackets or quotes
# after the end. All others are guesses: quotes and literals of Python, text after the end. Arguments that are cut are
# never repaired: what is missing is not known.


MAX_REPAIRED = 4 * 1024 * 1024
"""How many characters of arguments are looked at; longer ones are passed on as they came."""

COMMA, FENCE, CONTROL, SENT_AGAIN, CUMULATIVE, AS_STRING, TRAILING, PYTHON, OTHER = (
    171,
    172,
    41,
    36,
    37,
    43,
    44,
    173,
    46,
)
"""The numbers of the quirks that are repaired."""

_NEVER = ("cut", "unnamed", "too_large", "withdrawn", "quoted", "ambiguous")
_FENCE = re.compile(r"\s*```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?```\s*", re.DOTALL)
_TOKEN = re.compile(r'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<comma>,(?=\s*[}\]]))|[^",]++|.', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_CLOSERS = re.compile(r"[\s}\]\"]*")
_PYTHON = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\'[^\'\\]*+(?:\\.[^\'\\]*+)*+\'|\b(?:True|False|None)\b', re.DOTALL)
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_FAULTS = {"duplicated": SENT_AGAIN, "cumulative": CUMULATIVE, "double_encoded": AS_STRING}


class RepairedArguments(Struct, frozen=True):
    """Repaired arguments: their JSON text, their value, and the numbers of the quirks."""

    text: str
    arguments: dict[str, Any]
    quirks: tuple[int, ...]


def repair_arguments(call: ToolCallInvalid, mode: Repair) -> RepairedArguments | None:
    """The arguments of an invalid call, repaired; None if that is not possible, or not allowed."""
    raw = call.arguments_raw
    if mode == "off" or call.why in _NEVER or len(raw) > MAX_REPAIRED:
        return None
    for text, quirks in _safe(call) if mode == "safe" else _guesses(call):
        if (arguments := strict_object(text)) is not None and text.strip():
            return RepairedArguments(text, arguments, quirks)
    return None


def _safe(call: ToolCallInvalid) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The candidates of a safe repair, the least changed first."""
    raw, quirks = call.arguments_raw, []
    if fence := _FENCE.fullmatch(raw):
        raw, quirks = fence[1], [FENCE]
    mended = _mended(raw, quirks)
    if quirks:
        yield mended, tuple(quirks)
    if call.why in _FAULTS and call.repaired is not None:
        yield _first_value(call.arguments_raw, call.repaired), (_FAULTS[call.why],)
    if call.why == "trailing_text" and call.repaired is not None:
        end = _end_of(call.arguments_raw)
        if _CLOSERS.fullmatch(call.arguments_raw, end):
            yield call.arguments_raw[:end], (TRAILING,)


def _guesses(call: ToolCallInvalid) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _safe(call)
    quirks = [PYTHON]
    yield _mended(_PYTHON.sub(_as_json, call.arguments_raw), quirks), tuple(quirks)
    if call.repaired is not None:
        end = _end_of(call.arguments_raw)
        yield call.arguments_raw[:end], (TRAILING,)
        yield json.dumps(call.repaired, ensure_ascii=False), (OTHER,)


def _mended(text: str, quirks: list[int]) -> str:
    """The text without commas before closing brackets, and with control characters in strings escaped."""

    def mend(token: re.Match[str]) -> str:
        piece = token[0]
        if token.lastgroup == "comma":
            quirks.append(COMMA)
            return ""
        if token.lastgroup == "string" and _CONTROL.search(piece):
            quirks.append(CONTROL)
            return escape_controls(piece)
        return piece

    mended = _TOKEN.sub(mend, text)
    quirks[:] = dict.fromkeys(quirks)
    return mended


def _as_json(token: re.Match[str]) -> str:
    """A string or a literal of Python as JSON."""
    piece = token[0]
    if piece[0] != "'":
        return _LITERALS.get(piece, piece)
    try:
        return json.dumps(ast.literal_eval(escape_controls(piece)), ensure_ascii=False)
    except (ValueError, SyntaxError):
        return piece


def _first_value(raw: str, arguments: dict[str, Any]) -> str:
    """The text of the arguments if the raw text begins with it, so that the part already sent stays valid."""
    end = _end_of(raw)
    return raw[:end] if strict_object(raw[:end]) == arguments else json.dumps(arguments, ensure_ascii=False)


def _end_of(raw: str) -> int:
    """The position after the first JSON value of a text."""
    start = len(raw) - len(raw.lstrip())
    try:
        return json.JSONDecoder().raw_decode(raw, start)[1]
    except (ValueError, RecursionError):
        return len(raw)
