"""Bytes to events: a framing and a wire, put together."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, overload

from penstock.errors import UsageError
from penstock.events import StreamChunk
from penstock.framing import Body, Frames
from penstock.objects import payload_of
from penstock.wires import find_wire


class Decoder:
    """Decodes one response of a provider, without I/O: feed it bytes as they come, close it when they are over.

        decoder = Decoder("anthropic")
        for data in response:
            for event in decoder.feed(data): ...
        for event in decoder.close(): ...

    However the bytes are cut, the events are the same. `tools` (names, or the tools that the request declared) helps
    where a server sends a tool's name in pieces. `id_prefix` begins the ids that are made up for calls that came
    without one.
    """

    def __init__(self, wire: str, tools: Iterable[Any] | None = None, *, id_prefix: str = "call_") -> None:
        kind = find_wire(wire)
        self._wire = kind(tuple(tool_name(tool) for tool in tools or ()), id_prefix)
        self._body = Body(kind.framing)
        self._is_closed = False

    def feed(self, data: bytes) -> list[StreamChunk]:
        """The events that these bytes complete."""
        stream = self._body.stream
        if stream is not None and (payload := stream.one(data)) is not None:
            return self._wire.feed_one(payload, stream.event)
        return self._wire.feed(self._body.feed(data))

    def feed_object(self, item: Any) -> list[StreamChunk]:
        """The events of one frame that is parsed already: a dict, or an object of a vendor's SDK."""
        payload = payload_of(item)
        return [] if payload is None else self._wire.feed([Frames("", [payload])])

    def close(self) -> list[StreamChunk]:
        """The events that were still held back; the last of all is a `Finish`, which says if the stream was cut."""
        if self._is_closed:
            return []
        self._is_closed = True
        return self._wire.feed(self._body.close()) + self._wire.close()

    def feed_any(self, item: Any) -> list[StreamChunk]:
        """The events of a piece of whatever kind: bytes, text, or a parsed frame."""
        match item:
            case bytes():
                return self.feed(item)
            case bytearray() | memoryview():
                return self.feed(bytes(item))
            case str():
                return self.feed(item.encode("utf-8", "surrogatepass"))
            case _:
                return self.feed_object(item)


@overload
def decode(data: AsyncIterable[Any], wire: str, tools: Iterable[Any] | None = None) -> AsyncIterator[StreamChunk]: ...
@overload
def decode(
    data: bytes | str | Iterable[Any] | Mapping[str, Any], wire: str, tools: Iterable[Any] | None = None
) -> Iterator[StreamChunk]: ...
def decode(data: Any, wire: str, tools: Iterable[Any] | None = None) -> Any:
    """The events of a response, as its data comes.

    `data` is a whole body, or an iterable of pieces: bytes (or text) cut anywhere, parsed dicts, or the objects that a
    vendor's SDK yields. An async iterable gives an async iterator.
    """
    decoder = Decoder(wire, tools)  # a wrong name is told at once, not at the first event
    if isinstance(data, AsyncIterable):
        return _decode_async(decoder, data)
    is_one = isinstance(data, bytes | bytearray | memoryview | str | Mapping) or hasattr(data, "model_dump")
    if not is_one and not isinstance(data, Iterable):
        raise UsageError(
            f"cannot decode a {type(data).__name__}: give bytes, or an iterable of bytes, dicts or SDK objects"
        )
    return _decode(decoder, [data] if is_one else data)


def _decode(decoder: Decoder, items: Iterable[Any]) -> Iterator[StreamChunk]:
    for item in items:
        yield from decoder.feed_any(item)
    yield from decoder.close()


async def _decode_async(decoder: Decoder, items: AsyncIterable[Any]) -> AsyncIterator[StreamChunk]:
    async for item in items:
        for event in decoder.feed_any(item):
            yield event
    for event in decoder.close():
        yield event


def tool_name(tool: Any) -> str:
    """The name of a tool, however it is given: a name, a function, or a declaration in any provider's shape."""
    match tool:
        case str():
            return tool
        case {"function": {"name": str(name)}} | {"toolSpec": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            return name
        case {"name": str(name)}:
            return name
    named: Any = getattr(tool, "name", None) or getattr(tool, "__name__", "")
    return named if isinstance(named, str) else ""
