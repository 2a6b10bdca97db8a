"""Makes the chunks to pass on: text as the guard returned it, and no data that may repeat changed text."""

from __future__ import annotations

from collections.abc import Iterator
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
    ToolCallDelta,
    ToolCallInvalid,
    Unknown,
)
from penstock.guard.checks import Check
from penstock.wires import find_facts
from penstock.wires.shared.encode_request.states import facts_of


class Passing:
    """Tracks what the guard changed in a response, and leaves out vendor state that repeats or signs the original."""

    def __init__(self) -> None:
        self._blocks: set[tuple[int, int]] = set()  # that were changed, by choice
        self._kinds: set[str] = set()  # kinds of text that were changed

    def through(self, chunk: StreamChunk, check: Check | None) -> list[StreamChunk]:
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
                return [replace(chunk, arguments_raw=check.passed, repaired=None)]
            case Unknown() | Error() if chunk.raw is not None:
                return [replace(chunk, raw=None)]
            case Finish() if chunk.message and chunk.reason != "content_filter":  # it may quote a malformed call
                return [replace(chunk, message="")]
            case _:
                return [chunk]

    def _is_in(self, state: Opaque) -> bool:
        """Whether this state belongs to text that was changed."""
        text = facts_of(state, find_facts(state.wire)).text
        repeats = bool(self._kinds) if text == "any" else text == "reasoning" and "reasoning" in self._kinds
        return repeats or (state.choice, state.block) in self._blocks


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
