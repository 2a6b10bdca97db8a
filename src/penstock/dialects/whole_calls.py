"""`WholeCalls`: finds calls in a text for readers that must not see half a call: other programs, in any language.

A call is emitted when it is whole. One that must not run becomes the text again that the model wrote, unless it can be
repaired: whoever reads a response cannot tell a call in its text from one that somebody else has written there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.dialects.provenance import Provenance
from penstock.dialects.stage import TextCalls
from penstock.events import (
    Finish,
    Reasoning,
    Refusal,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
)

Repair = Callable[[ToolCallInvalid], ToolCall | None]
"""Returns the call that an invalid one was meant to be, or None."""


class WholeCalls:
    """Finds whole calls of declared tools in the text of an event stream, for the events of one read at a time."""

    def __init__(
        self,
        dialects: Iterable[str],
        tools: Iterable[Any],
        *,
        reasoning: bool,
        inside_reasoning: bool,
        id_prefix: str,
        provenance: Provenance,
        repair: Repair,
    ) -> None:
        self._calls = TextCalls(
            dialects, tools, only_declared=True, reasoning=reasoning, inside_reasoning=inside_reasoning,
            id_prefix=id_prefix, provenance=provenance, restores=self._restores,
        )  # fmt: skip
        self._repair = repair
        self._repaired: dict[str, ToolCall] = {}  # by the ids of the calls

    def feed(self, chunks: Iterable[StreamChunk]) -> list[StreamChunk]:
        """The events, with the calls that were found in the text."""
        found: list[StreamChunk] = []
        for chunk in chunks:
            events = self._calls.feed(chunk)
            if isinstance(chunk, Text | Finish | Reasoning | Refusal):
                found += self._whole(events)
            else:  # a call of its own, which may end a text before it
                found += [*self._whole(events[:-1]), *events[-1:]]
        return found

    def close(self) -> list[StreamChunk]:
        return self._whole(self._calls.close())

    def _restores(self, event: ToolCallInvalid) -> bool:
        call = self._repair(event)
        if call is not None:
            self._repaired[event.id] = call
        return call is None

    def _whole(self, events: list[StreamChunk]) -> list[StreamChunk]:
        """The events of a text, without the pieces of its calls."""
        found: list[StreamChunk] = []
        for event in events:
            match event:
                case ToolCallStart() | ToolCallDelta() | ToolCallClosed():
                    pass
                case ToolCall() | ToolCallInvalid():
                    call = self._repaired.pop(event.id, event)
                    found += [ToolCallStart(event.block, event.id, event.name, event.choice), call]
                case _:
                    found.append(event)
        return found
