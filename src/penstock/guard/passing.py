"""What is passed on for each cleared chunk: what the guard changed takes its copies and raw forms with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from msgspec.structs import replace

from penstock.events import (
    Error,
    Finish,
    Opaque,
    Reasoning,
    Refusal,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
)
from penstock.guard.checks import Check
from penstock.guard.held import Held
from penstock.guard.provider_words import with_checked_words
from penstock.wires import find_facts
from penstock.wires.shared.encode_request.states import facts_of

WITHHELD = "withheld_tool"
"""The name of an undeclared tool whose own name the guard did not pass."""


class Passing:
    """Tracks what the guard changed in a response, and leaves out vendor state that repeats or signs the original."""

    def __init__(self, declared: Collection[str] = ()) -> None:
        self._declared = declared
        self._blocks: set[tuple[int, int]] = set()  # that were changed, by choice
        self._kinds: set[str] = set()  # kinds of text that were changed
        self._unnamed: set[tuple[int, int]] = set()  # blocks of calls whose names were changed

    def through(self, held: Held) -> list[StreamChunk]:
        """The chunks to pass on for a cleared chunk."""
        if held.name_check is not None and held.name_check.is_changed:
            chunk: Any = held.chunk
            self._unnamed.add((chunk.choice, chunk.block))
        return [self._with_name(chunk) for chunk in self._cleared(held.chunk, held.check)]

    def _with_name(self, chunk: StreamChunk) -> StreamChunk:
        """The chunk of a call, without a name that the guard changed."""
        match chunk:
            case ToolCallStart() | ToolCallClosed() | ToolCall() | ToolCallInvalid():
                is_known = (chunk.choice, chunk.block) not in self._unnamed
                return chunk if is_known else replace(chunk, name=_undeclared(self._declared))
            case _:
                return chunk

    def _cleared(self, chunk: StreamChunk, check: Check | None) -> list[StreamChunk]:
        """The chunk to pass on for a cleared chunk; `check` is its own check."""
        is_changed = check is not None and check.is_changed
        match chunk:
            case Text() | Reasoning() | Refusal() if check is not None:
                if is_changed:
                    self._blocks.add((chunk.choice, chunk.block))
                    self._kinds.add(check.kind)
                return [type(chunk)(chunk.block, check.passed, chunk.choice)] if check.passed else []
            case Opaque() if check is not None and is_changed:
                return [replace(chunk, data=check.passed)] if isinstance(chunk.data, str) and check.passed else []
            case Opaque() if self._is_in(chunk):
                return []
            case ToolCallDelta() if is_changed:
                return []
            case ToolCallInvalid() if check is not None and is_changed:
                return [replace(chunk, arguments_raw=check.passed, message="", repaired=None)]
            case Unknown() if chunk.raw is not None:
                return [replace(chunk, raw=None)]
            case Finish() | Error():
                return [with_checked_words(chunk, check)]
            case _:
                return [chunk]

    def _is_in(self, state: Opaque) -> bool:
        """Whether this state belongs to text that was changed."""
        text = facts_of(state, find_facts(state.wire)).text
        repeats = bool(self._kinds) if text == "any" else text == "reasoning" and "reasoning" in self._kinds
        return repeats or (state.choice, state.block) in self._blocks


def _undeclared(declared: Collection[str]) -> str:
    name = WITHHELD
    while name in declared:
        name += "_"
    return name


def own_text(state: Opaque) -> str:
    """The model's text that only the vendor state contains; empty if there is none."""
    is_own = facts_of(state, find_facts(state.wire)).text == "own"
    return "\n".join(_texts(state.data)) if is_own else ""


def _texts(data: Any) -> Iterator[str]:
    match data:
        case str():
            yield data
        case dict():
            for key, value in data.items():
                if key != "type":
                    yield from _texts(value)
        case list():
            for value in data:
                yield from _texts(value)
        case _:
            pass
