"""What is odd about a stream: a fold over its events, for people who want to know why something went wrong."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from penstock.cli.screen.terminal import has_control, one_line
from penstock.events import (
    Error,
    Finish,
    FinishReason,
    Opaque,
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

MADE_UP = "made-up-"
"""How the ids begin that the readable view has the decoder make up, so that it is plain where they come from."""

Oddity = Literal[
    "unknown", "error", "retry", "invalid", "made_up", "repeated", "jump", "went_on", "changed", "control", "broken"
]
Found = tuple[Oddity, str]

COUNTED: dict[Oddity, tuple[str, str]] = {
    "unknown": ("unknown frame", "unknown frames"),
    "error": ("error", "errors"),
    "retry": ("restart: the answer was begun anew", "restarts: the answer was begun anew"),
    "invalid": ("call that must not run", "calls that must not run"),
    "made_up": ("call id was made up, as none was sent", "call ids were made up, as none were sent"),
    "repeated": ("call id was sent again for another call", "call ids were sent again for other calls"),
    "jump": ("jump between calls whose pieces are interleaved", "jumps between calls whose pieces are interleaved"),
    "went_on": ("call went on after the JSON of its arguments had closed", "calls went on after their JSON had closed"),
    "changed": ("call whose arguments were changed at its end", "calls whose arguments were changed at their end"),
    "control": ("piece with control characters, shown escaped", "pieces with control characters, shown escaped"),
    "broken": ("piece with a broken character (U+FFFD)", "pieces with broken characters (U+FFFD)"),
}
"""How each is told of one, and of several."""

_ANSWERS = {"text", "refusal", "tool_call", "tool_call_invalid", "error"}
_CUT = "the stream was cut: it ended before the model said why it stopped"
_SAID_AGAIN = re.compile(r"(.+)_\d+\Z", re.DOTALL)


class Oddities:
    """Counts what is odd, with the first example of each; `words` is what the wire takes finish reasons to mean."""

    def __init__(self, words: Mapping[str, FinishReason]) -> None:
        self._words = words
        self._types: set[str] = set()  # of the events that came
        self._counted: dict[Oddity, tuple[int, str]] = {}
        self._endings: list[str] = []
        self._calls = Calls()

    def add(self, event: StreamChunk) -> None:
        """Take one event in."""
        self._types.add(event.type)
        for oddity, example in self._found_in(event):
            count, first = self._counted.get(oddity, (0, example))
            self._counted[oddity] = (count + 1, first)
        if isinstance(event, Finish) and (ending := self._ending(event)):
            self._endings.append(f"choice {event.choice}: {ending}" if event.choice else ending)

    def build(self) -> list[str]:
        """What was odd, in a line each."""
        return [*self._endings, *self._missing(), *(_told(*item) for item in self._counted.items())]

    def _found_in(self, event: StreamChunk) -> Iterator[Found]:
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
                yield "unknown", (f"{event.note}: " if event.note else "") + one_line(event.raw, 80)
            case Error():
                yield "error", one_line(f"{event.code} {event.message}".strip(), 80)
            case Retry():
                yield "retry", one_line(event.reason, 80)
            case ToolCallStart() | Opaque() | Usage() | Finish():
                pass

    def _ending(self, finish: Finish) -> str:
        meant = self._words.get(finish.raw_reason or "")
        raw = one_line(finish.raw_reason or "", 40)
        match finish.reason:
            case "cut":
                return _CUT
            case "tool_calls" if finish.raw_reason is None:
                return "no finish reason was sent, only the end mark"
            case "tool_calls" if meant == "stop" and "tool_calls" in self._words.values():  # else it has no other word
                return f'the finish reason was "{raw}", although calls are present'
            case "other" if meant == "tool_calls":
                return f'the finish reason was "{raw}", although no calls are present'
            case "other":
                return f'the finish reason "{raw}" is not known'
            case _:
                return ""

    def _missing(self) -> Iterator[str]:
        is_cut = _CUT in self._endings
        if not self._types & _ANSWERS:
            yield "it has neither text nor calls"
        if not is_cut and not self._types & {"usage", "error"}:
            yield "usage missing"


class Seen(Struct):
    """What has come of a call."""

    checksum: int = 0
    size: int = 0
    is_closed: bool = False


class Calls:
    """What is odd about calls, which takes some memory: how their pieces came, and which ids there were."""

    def __init__(self) -> None:
        self._open: dict[int, Seen] = {}
        self._last = -1
        self._ids: set[str] = set()

    def delta(self, event: ToolCallDelta) -> Iterator[Found]:
        seen = self._open.setdefault(event.block, Seen())
        if seen.size and event.block != self._last:
            yield "jump", ""
        if seen.is_closed and event.piece.strip():
            seen.is_closed = False
            yield "went_on", one_line(event.piece, 40)
        self._last = event.block
        seen.size += len(event.piece)
        seen.checksum = _checksum(event.piece, seen.checksum)

    def closed(self, event: ToolCallClosed) -> None:
        self._open.setdefault(event.block, Seen()).is_closed = True

    def ended(self, event: ToolCall | ToolCallInvalid) -> Iterator[Found]:
        name = one_line(event.name, 40) or "(no name)"
        seen = self._open.pop(event.block, Seen())
        if isinstance(event, ToolCallInvalid):
            yield "invalid", f"{name} ({event.why})"
        elif seen.size and seen.checksum != _checksum(event.arguments_raw):
            yield "changed", name
        if event.id.startswith(MADE_UP):
            yield "made_up", f"{event.id} for {name}"
        elif (again := _SAID_AGAIN.match(event.id)) and again[1] in self._ids:
            yield "repeated", f"{one_line(again[1], 40)}, told apart as {one_line(event.id, 40)}"
        self._ids.add(event.id)


def _checksum(text: str, before: int = 0) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)


def _characters(text: str, where: str) -> Iterator[Found]:
    if has_control(text):
        yield "control", f"in the {where}"
    if "\ufffd" in text:
        yield "broken", f"in the {where}"


def _told(oddity: Oddity, counted: tuple[int, str]) -> str:
    count, first = counted
    one, many = COUNTED[oddity]
    if not first:
        return f"{count:,} {one if count == 1 else many}"
    return f"1 {one}: {first}" if count == 1 else f"{count:,} {many}; the first: {first}"
