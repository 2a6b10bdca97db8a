"""Bytes to events: a framing and a wire, put together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.events import StreamChunk
from penstock.framing import Body, Stray
from penstock.wires import find_wire


class Decoder:
    """Decodes one response of a provider, without I/O: feed it bytes as they come, close it when they are over.

        decoder = Decoder("anthropic")
        for data in response:
            for event in decoder.feed(data): ...
        for event in decoder.close(): ...

    However the bytes are cut, the events are the same. `tools` (names, or the tools that the request declared) helps where
    a server sends a tool's name in pieces. `id_prefix` begins the ids that are made up for calls that came without one.
    """

    def __init__(self, wire: str, tools: Iterable[Any] | None = None, *, id_prefix: str = "call_") -> None:
        kind = find_wire(wire)
        self._wire = kind(tuple(tool_name(tool) for tool in tools or ()), id_prefix)
        self._body = Body(kind.framing)
        self._is_closed = False

    def feed(self, data: bytes) -> list[StreamChunk]:
        """The events that these bytes complete."""
        framed = self._body.feed(data)
        if len(framed) == 1 and type(framed[0]) is not Stray:
            return self._wire.feed(framed[0])  # type: ignore[arg-type]  # one of two types, and not the other
        return self._events(framed)

    def close(self) -> list[StreamChunk]:
        """The events that were still held back; the last of all is a `Finish`, which says if the stream was cut."""
        if self._is_closed:
            return []
        self._is_closed = True
        return self._events(self._body.close()) + self._wire.close()

    def _events(self, framed: Any) -> list[StreamChunk]:
        events: list[StreamChunk] = []
        for item in framed:
            events += self._wire.stray(item) if isinstance(item, Stray) else self._wire.feed(item)
        return events


def tool_name(tool: Any) -> str:
    """The name of a tool, however it is given: a name, a function, or a declaration in any provider's shape."""
    match tool:
        case str():
            return tool
        case {"function": {"name": str(name)}} | {"toolSpec": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            return name
        case {"name": str(name)}:
            return name
    name = getattr(tool, "name", None) or getattr(tool, "__name__", "")
    return name if isinstance(name, str) else ""
