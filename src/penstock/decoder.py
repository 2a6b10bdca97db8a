"""Bytes to events: a framing and a wire, put together."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, NoReturn, overload

from penstock.declarations import tool_names
from penstock.errors import UsageError
from penstock.events import StreamChunk
from penstock.framing import Body, Frames
from penstock.framing.sdk_objects import payload_of
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
        self._wire = kind(tool_names(tools), id_prefix)
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
        rest = self._body.close()
        self._body.stream, self._body.feed = None, _refuse
        return self._wire.close(rest)

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
    vendor's SDK yields. An async iterable gives an async iterator; one that is both, as litellm's are, gives both.
    """
    decoder = Decoder(wire, tools)  # a wrong name is told at once, not at the first event
    if isinstance(data, AsyncIterable):
        return _EitherWay(decoder, data) if isinstance(data, Iterable) else _decode_async(decoder, data)
    is_one = isinstance(data, bytes | bytearray | memoryview | str | Mapping) or hasattr(data, "model_dump")
    if not is_one and not isinstance(data, Iterable):
        raise UsageError(_cannot_decode(data))
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


class _EitherWay:
    """The events of a stream that can be read in plain code or in async code."""

    def __init__(self, decoder: Decoder, items: Any) -> None:
        self._decoder = decoder
        self._items = items

    def __iter__(self) -> Iterator[StreamChunk]:
        return _decode(self._decoder, self._items)

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        return _decode_async(self._decoder, self._items)


def _refuse(data: bytes) -> NoReturn:
    raise UsageError("this decoder is closed: make a new one for each response")


def _cannot_decode(data: Any) -> str:
    hints = {
        "iter_bytes": "its iter_bytes(), or aiter_bytes(),",
        "iter_any": "its content.iter_any()",
        "__await__": "what it gives when it is awaited",
        "__enter__": "what `with` makes of it",
    }
    hint = next((hint for name, hint in hints.items() if hasattr(data, name)), "bytes")
    what = f"cannot decode an object of type {type(data).__name__}"
    return f"{what}: give {hint} or an iterable of bytes, dicts or SDK objects"
