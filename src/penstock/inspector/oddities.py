"""Finds oddities of a response, for people who want to know why something went wrong."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Literal, assert_never

from msgspec import Struct

from penstock.dialects.rescue import LEAKS
from penstock.dialects.stage import TextCalls
from penstock.events import (
    ArgumentDelta,
    Error,
    Finish,
    FinishReason,
    Opaque,
    OutputDelta,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.inspector.excerpts import excerpt
from penstock.jsontext.shown_text import has_hidden

GENERATED_ID = "generated-"
"""The prefix of generated call ids, so that people see where they come from."""

Oddity = Literal[
    "unknown",
    "error",
    "retry",
    "invalid",
    "generated_id",
    "repeated_id",
    "jump",
    "continued",
    "changed",
    "in_text",
    "control",
    "broken",
]
Finding = tuple[Oddity, str, int]
"""What is odd, an example, and the number of its quirk; 0 if it has none."""

COUNTED: dict[Oddity, tuple[str, str]] = {
    "unknown": ("unknown frame", "unknown frames"),
    "error": ("error", "errors"),
    "retry": ("retry: the response was withdrawn", "retries: the response was withdrawn"),
    "invalid": ("call that must not run", "calls that must not run"),
    "generated_id": ("call id was generated, as none was sent", "call ids were generated, as none were sent"),
    "repeated_id": ("call id was sent again for another call", "call ids were sent again for other calls"),
    "jump": ("jump between interleaved calls", "jumps between interleaved calls"),
    "continued": (
        "call continued after the JSON of its arguments had closed",
        "calls continued after their JSON had closed",
    ),
    "changed": ("call with arguments that changed at its end", "calls with arguments that changed at their end"),
    "in_text": ("call in the text", "calls in the text"),
    "control": ("piece with control characters, shown escaped", "pieces with control characters, shown escaped"),
    "broken": ("piece with a broken character (U+FFFD)", "pieces with broken characters (U+FFFD)"),
}
"""The singular and the plural of each."""

NO_ID, REPEATED_ID, INTERLEAVED, CONTINUED, RAW_CONTROLS, TRAILING_TEXT, CUT = 19, 21, 25, 39, 41, 44, 48
HALF_CHARACTERS, STOP_WITH_CALLS, CALLS_WITHOUT_CALL, NO_REASON, CALL_IN_TEXT, SECOND_START = 50, 53, 54, 55, 86, 123
INVALID_QUIRKS: dict[str, int] = {
    "unnamed": 17, "duplicated": 36, "cumulative": 37, "control_characters": RAW_CONTROLS, "double_encoded": 43,
    "trailing_text": TRAILING_TEXT, "malformed": 46, "not_an_object": 46, "cut": CUT,
}  # fmt: skip
"""The quirks of invalid calls, by why they must not run."""
UNKNOWN_QUIRKS = {"a piece of an item that has ended": 143, "a keep-alive sent as data": 104}
"""The quirks of unknown frames, by their notes."""

_CONTENT = {"text", "refusal", "tool_call", "tool_call_invalid", "error"}
_CUT = "the stream was cut: it ended without a finish reason"
_NUMBERED_ID = re.compile(r"(.+)_\d+\Z", re.DOTALL)


class Oddities:
    """Counts oddities, with the first example of each. `reasons` maps the wire's finish reasons to ours."""

    def __init__(self, reasons: Mapping[str, FinishReason]) -> None:
        self._reasons = reasons
        self._types: set[str] = set()  # the types of all events so far
        self._counted: dict[Oddity, tuple[int, str]] = {}
        self._endings: list[str] = []
        self._calls = CallOddities()
        self._text = TextCalls(LEAKS)

    def add(self, event: StreamChunk) -> list[tuple[str, int]]:
        """Adds an event; returns its oddities, each with the number of its quirk."""
        self._types.add(event.type)
        oddities: list[tuple[str, int]] = []
        for oddity, example, quirk in (*self._find(event), *self._in_text(event)):
            count, first = self._counted.get(oddity, (0, example))
            self._counted[oddity] = (count + 1, first)
            described = _describe(oddity, (1, example))
            oddities.append((described.removeprefix("1 ").removesuffix(f" (quirk {quirk})"), quirk))
        if isinstance(event, Finish):
            ending, quirk = self._ending(event)
            if ending:
                self._endings.append(f"choice {event.choice}: {ending}" if event.choice else ending)
                oddities.append((ending, quirk))
        return oddities

    def build(self) -> list[str]:
        """One line for each kind of oddity."""
        return [*self._endings, *self._missing(), *(_describe(*item) for item in self._counted.items())]

    def _find(self, event: StreamChunk) -> Iterator[Finding]:
        match event:
            case Text() | Reasoning() | Refusal():
                yield from _characters(event.text, event.type)
            case ToolCallDelta():
                yield from _characters(event.piece, "arguments")
                yield from self._calls.delta(event)
            case ToolCallClosed():
                self._calls.closed(event)
            case ToolCall() | ToolCallInvalid():
                yield from self._calls.ended(event)
            case Unknown():
                example = (f"{event.note}: " if event.note else "") + excerpt(event.raw, 80)
                yield "unknown", example, UNKNOWN_QUIRKS.get(event.note, 0)
            case Error():
                yield "error", excerpt(f"{event.code} {event.message}".strip(), 80), 0
            case Retry():
                yield "retry", excerpt(event.reason, 80), SECOND_START
            case ToolCallStart() | Opaque() | Usage() | Finish() | ArgumentDelta() | OutputDelta():
                pass
            case _:
                assert_never(event)

    def _in_text(self, event: StreamChunk) -> Iterator[Finding]:
        """Calls in the text, which the reader of the events has not asked for."""
        if not isinstance(event, Text | Finish | Retry):
            return
        for call in self._text.feed(event):
            if isinstance(call, ToolCall | ToolCallInvalid):
                dialect = call.origin.removeprefix("text:")
                advice = f'calls="{dialect}", rescue=True or `penstock gateway` finds it (quirk {CALL_IN_TEXT})'
                yield "in_text", f"{excerpt(call.name, 40)} as {dialect}; {advice}", CALL_IN_TEXT

    def _ending(self, finish: Finish) -> tuple[str, int]:
        known = self._reasons.get(finish.raw_reason or "")
        raw = excerpt(finish.raw_reason or "", 40)
        match finish.reason:
            case "cut":
                return _CUT, CUT
            case "tool_calls" if finish.raw_reason is None:
                return "no finish reason was sent, only the end mark", NO_REASON
            case "tool_calls" if (
                known == "stop" and "tool_calls" in self._reasons.values()
            ):  # others have no reason for calls
                return f'the finish reason was "{raw}", although calls are present', STOP_WITH_CALLS
            case "other" if known == "tool_calls":
                return f'the finish reason was "{raw}", although no calls are present', CALLS_WITHOUT_CALL
            case "other":
                return f'the finish reason "{raw}" is unknown', 0
            case _:
                return "", 0

    def _missing(self) -> Iterator[str]:
        is_cut = _CUT in self._endings
        if not self._types & _CONTENT:
            yield "it has neither text nor calls"
        if not is_cut and not self._types & {"usage", "error"}:
            yield "usage missing"


class OpenCall(Struct):
    """The part of a call that has arrived."""

    checksum: int = 0
    size: int = 0
    is_closed: bool = False


class CallOddities:
    """Finds oddities of calls: how their pieces arrive, and their ids."""

    def __init__(self) -> None:
        self._open: dict[int, OpenCall] = {}
        self._last = -1
        self._ids: set[str] = set()

    def delta(self, event: ToolCallDelta) -> Iterator[Finding]:
        call = self._open.setdefault(event.block, OpenCall())
        if call.size and event.block != self._last:
            yield "jump", "", INTERLEAVED
        if call.is_closed and event.piece.strip():
            call.is_closed = False
            yield "continued", excerpt(event.piece, 40), CONTINUED
        self._last = event.block
        call.size += len(event.piece)
        call.checksum = _checksum(event.piece, call.checksum)

    def closed(self, event: ToolCallClosed) -> None:
        self._open.setdefault(event.block, OpenCall()).is_closed = True

    def ended(self, event: ToolCall | ToolCallInvalid) -> Iterator[Finding]:
        name = excerpt(event.name, 40) or "(no name)"
        call = self._open.pop(event.block, OpenCall())
        if isinstance(event, ToolCallInvalid):
            yield "invalid", f"{name} ({event.why})", INVALID_QUIRKS.get(event.why, 0)
        elif call.size and call.checksum != _checksum(event.arguments_raw):
            yield "changed", name, TRAILING_TEXT
        if event.id.startswith(GENERATED_ID):
            yield "generated_id", f"{event.id} for {name}", NO_ID
        elif (again := _NUMBERED_ID.match(event.id)) and again[1] in self._ids:
            yield "repeated_id", f"{excerpt(again[1], 40)}, renamed to {excerpt(event.id, 40)}", REPEATED_ID
        self._ids.add(event.id)


def _checksum(text: str, before: int = 0) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)


def _characters(text: str, where: str) -> Iterator[Finding]:
    if has_hidden(text):
        yield "control", f"in the {where}", RAW_CONTROLS if where == "arguments" else 0
    if "\ufffd" in text:
        yield "broken", f"in the {where}", HALF_CHARACTERS


def _describe(oddity: Oddity, counted: tuple[int, str]) -> str:
    count, first = counted
    singular, plural = COUNTED[oddity]
    if not first:
        return f"{count:,} {singular if count == 1 else plural}"
    return f"1 {singular}: {first}" if count == 1 else f"{count:,} {plural}; the first: {first}"
