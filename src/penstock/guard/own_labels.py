"""Labels of a response that nobody has to read as the provider wrote them, replaced by our own."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.events import Retry, StreamChunk, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart, Usage

WITHDRAWN = "the response was withdrawn"
"""The reason of a `Retry`, which may be the words of a provider."""


class OwnLabels:
    """A stage: chunks of one response, with our own ids of calls and reasons of retries, and without raw token counts.

    Calls that are vendor state keep their ids, because the provider compares them. `prefix` begins the ids.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._ids: dict[tuple[int, int], str] = {}  # by choice and block

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """Add chunks; returns them with our labels."""
        return [self._with_label(chunk) for chunk in chunks]

    def _with_label(self, chunk: StreamChunk) -> StreamChunk:
        match chunk:
            case ToolCallStart() | ToolCallClosed() | ToolCall() | ToolCallInvalid():
                return self._with_id(chunk)
            case Retry():
                return Retry(WITHDRAWN, chunk.model)
            case Usage() if chunk.raw:
                return replace(chunk, raw={})
            case _:
                return chunk

    def _with_id(self, chunk: ToolCallStart | ToolCallClosed | ToolCall | ToolCallInvalid) -> StreamChunk:
        if isinstance(chunk, ToolCall | ToolCallInvalid) and chunk.kind in ("vendor", "approval"):
            return chunk
        place = chunk.choice, chunk.block
        return replace(chunk, id=self._ids.setdefault(place, f"{self._prefix}{len(self._ids)}"))
