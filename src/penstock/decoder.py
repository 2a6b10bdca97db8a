"""The decoder: bytes of a provider's response to events, by a framing and a wire."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Protocol, overload

from penstock.declarations import read_declarations, tool_names
from penstock.errors import AlreadyReadError, UsageError, type_name
from penstock.events import Progress, StreamChunk, Text, ToolCallDelta
from penstock.framing import Body, Frames
from penstock.framing.sdk_objects import payload_of
from penstock.framing.sniff import CLOSED
from penstock.wires import WireName, find_wire
from penstock.wires.shared.decode_response.open_call import OpenCall
from penstock.wires.shared.decode_response.piece_frames import PieceFrames, ReadPiece, ReadText
from penstock.wires.shared.decode_response.response_decoder import ResponseDecoder

if TYPE_CHECKING:
    from penstock.healing.settings import Healing
    from penstock.messages import Message


class Decoder:
    """Decodes one response of a provider, without I/O: feed it bytes as they arrive, close it when they end.

        decoder = Decoder("anthropic")
        for data in response:
            for event in decoder.feed(data): ...
        for event in decoder.close(): ...

    The events do not depend on how the bytes are cut. `tools` (names, or the tools that the request declared) helps
    where a server sends a tool's name in pieces. `id_prefix` is the prefix of the ids that are generated for calls
    without one.

    `feed` has a fast lane for a read that is exactly one frame (`Body.fast_lane`, `ResponseDecoder.feed_one`), and a
    faster one for frames that differ from the last one only in their piece of text or arguments (`PieceFrames`). The
    reference is `Body.feed` and `ResponseDecoder.feed`; test_laws cuts every vector frame by frame and elsewhere, and
    expects the same events.
    """

    def __init__(self, wire: WireName, tools: Iterable[Any] | None = None, *, id_prefix: str = "call_") -> None:
        kind = find_wire(wire)
        self._wire = kind(tool_names(tools), id_prefix)
        self._response = ResponseDecoder(self._wire)
        self._end_signs = self._wire.answers.end_signs
        self._body = Body(kind.framing)
        self._texts = PieceFrames(kind.text_key, Text) if kind.text_key else None
        self._pieces = PieceFrames(kind.arguments_key, ToolCallDelta) if kind.arguments_key else None
        self._call: OpenCall | None = None  # the call that `_pieces` has a template for
        self._is_closed = False
        self._last: list[StreamChunk] = []  # the events of the last read, once there is a sign that the response ends

    def feed(self, data: bytes) -> list[StreamChunk]:
        """Returns the events that these bytes complete."""
        texts = self._texts
        try:
            if texts is not None:
                if (text := texts.read(data)) is not None:
                    return [text]
                if self._call is not None and (piece := self._read_piece(data)) is not None:
                    return [piece]
            lane = self._body.fast_lane
            payload = lane.single_frame(data)
            if payload is not None:
                chunks = self._response.feed_one(payload, lane.event)
            elif texts is not None and (pieces := texts.read_several(data)) is not None:
                return [*pieces]
            else:
                chunks = self._response.feed(self._body.feed(data))
        except TypeError:
            if isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
                raise
            raise UsageError(f"feed takes bytes, not {type_name(data)}; feed_any also takes text and dicts") from None
        if self._end_signs.has_any:
            self._last = chunks
            self._forget_templates()
        elif texts is not None:
            wire = self._wire
            if wire.plain_text is not None:
                texts.learn(data, wire.plain_text, wire.plain_text.text)
                wire.plain_text = None
            elif texts.before:
                texts.clear()
            if self._call is not None or wire.plain_call is not None:
                self._learn_call(data, chunks)
        return chunks

    def _learn_call(self, data: bytes, chunks: list[StreamChunk]) -> None:
        """Makes a template from a read that was a piece of one call, or forgets the last one."""
        assert self._pieces is not None
        call, self._wire.plain_call = self._wire.plain_call, None
        piece = chunks[0] if call is not None and len(chunks) == 1 else None  # none: the call is held back
        if isinstance(piece, ToolCallDelta):
            self._pieces.learn(data, piece, piece.piece)
        else:
            self._pieces.clear()
        self._call = call if self._pieces.before else None

    def _forget_templates(self) -> None:
        self._call = None
        if self._texts is not None and self._texts.before:
            self._texts.clear()

    def _read_piece(self, data: bytes) -> ToolCallDelta | None:
        assert self._pieces is not None
        assert self._call is not None
        piece = self._pieces.read(data)
        return piece if piece is not None and self._call.takes(piece.piece) else None

    @property
    def read_text(self) -> ReadText | None:
        """A function that reads frames of plain text without parsing them; None if there is none at present.

        It returns the event that `feed` would return, or None for bytes that must be fed. It is valid until `feed` is
        called.
        """
        return None if self._texts is None or not self._texts.before else self._texts.read

    def read_texts(self, data: bytes) -> list[Text] | None:
        """Reads several frames of plain text without parsing them, as the function `read_text` reads one."""
        return None if self._texts is None else self._texts.read_several(data)

    @property
    def read_piece(self) -> ReadPiece | None:
        """A function that reads frames with a piece of one call's arguments; None if there is none at present.

        It returns the event that `feed` would return, and the bytes count as fed; or None for bytes that must be fed.
        It is valid until `feed` is called.
        """
        return None if self._call is None else self._read_piece

    @property
    def response_id(self) -> str:
        """The provider's id of the response, if its server remembers responses by it; else empty."""
        return self._wire.response_id or ""

    def progress(self) -> Progress:
        """How far the response is: ask after each `feed`, and stop reading when it has `ended`.

        A response that is `finished` has no end mark yet; not every provider sends one. Token counts may follow, so
        wait for a moment before you stop.
        """
        if not self._end_signs.has_any:
            return "open"
        chunks, self._last = self._last, []
        return self._wire.progress(chunks)

    def feed_object(self, item: Any) -> list[StreamChunk]:
        """Returns the events of one parsed frame: a dict, or an object of a vendor's SDK."""
        if self._is_closed:
            raise UsageError(CLOSED)
        payload = payload_of(item)
        self._forget_templates()
        return [] if payload is None else self._response.feed([Frames("", [payload], is_json=True)])

    def close(self) -> list[StreamChunk]:
        """Returns the events that were held back. The last one is a `Finish`, which says whether the stream was cut."""
        if self._is_closed:
            return []
        self._is_closed = True
        self._texts = self._call = None
        return self._response.close(self._body.close())

    def feed_any(self, item: Any) -> list[StreamChunk]:
        """Returns the events of bytes, text or a parsed frame."""
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
def decode(
    data: AsyncIterable[Any],
    wire: WireName,
    tools: Iterable[Any] | None = None,
    *,
    healing: Healing | None = None,
    messages: Sequence[Message] = (),
) -> AsyncIterator[StreamChunk]: ...
@overload
def decode(
    data: bytes | str | Iterable[Any] | Mapping[str, Any],
    wire: WireName,
    tools: Iterable[Any] | None = None,
    *,
    healing: Healing | None = None,
    messages: Sequence[Message] = (),
) -> Iterator[StreamChunk]: ...
def decode(
    data: Any,
    wire: WireName,
    tools: Iterable[Any] | None = None,
    *,
    healing: Healing | None = None,
    messages: Sequence[Message] = (),
) -> Any:
    """Yields the events of a response as its data arrives.

    `data` is a whole body, or an iterable of pieces: bytes (or text) cut anywhere, parsed dicts, or the objects that a
    vendor's SDK yields. For an async iterable the result is an async iterator. For one that is also a plain iterable,
    as litellm's are, the result is both. The events can be read once.

    `healing` repairs the calls of the response and finds calls in its text. `messages` are those of the request: a call
    in the text that repeats one of them may be injected, and does not count.
    """
    # here, so that a wrong name raises at once and not at the first event
    decoder = Decoder(wire, tools) if healing is None else _healed(wire, tools, healing, messages)
    if isinstance(data, AsyncIterable):
        return _SyncOrAsyncEvents(decoder, data) if isinstance(data, Iterable) else _AsyncEvents(decoder, data)
    is_one = isinstance(data, bytes | bytearray | memoryview | str | Mapping) or hasattr(data, "model_dump")
    if not is_one and not isinstance(data, Iterable):
        raise UsageError(_cannot_decode(data))
    return _Events(decoder, [data] if is_one else data)


class _Decoding(Protocol):
    """What decodes the items of `decode`: a `Decoder`, or one that heals."""

    def feed_any(self, item: Any, /) -> list[StreamChunk]: ...
    def close(self) -> list[StreamChunk]: ...


def _healed(wire: WireName, tools: Iterable[Any] | None, healing: Healing, messages: Sequence[Message]) -> _Decoding:
    from penstock.healing.decoding import HealedDecoding, response_context

    declared = tuple(read_declarations(tools))
    return HealedDecoding(Decoder(wire, declared), response_context(wire, declared, messages, healing))


def _decode(decoder: _Decoding, items: Iterable[Any]) -> Generator[StreamChunk]:
    for item in items:
        yield from decoder.feed_any(item)
    yield from decoder.close()


async def _decode_async(decoder: _Decoding, items: AsyncIterable[Any]) -> AsyncGenerator[StreamChunk]:
    async for item in items:
        for event in decoder.feed_any(item):
            yield event
    for event in decoder.close():
        yield event


class _Events:
    """The events of `decode`. A loop that was left can be continued; when all were read, another one raises."""

    def __init__(self, decoder: _Decoding, items: Iterable[Any]) -> None:
        self._events = _decode(decoder, items)

    def __iter__(self) -> Iterator[StreamChunk]:
        _check_unread(self._events)
        return self._events

    def __next__(self) -> StreamChunk:
        return next(self._events)

    def close(self) -> None:
        """Stop reading."""
        self._events.close()


class _AsyncEvents:
    """`_Events` in async code."""

    def __init__(self, decoder: _Decoding, items: AsyncIterable[Any]) -> None:
        self._events = _decode_async(decoder, items)

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        _check_unread(self._events)
        return self._events

    async def __anext__(self) -> StreamChunk:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Stop reading."""
        await self._events.aclose()


class _SyncOrAsyncEvents:
    """The events of a stream that can be iterated in sync or async code, in one of them."""

    def __init__(self, decoder: _Decoding, items: Any) -> None:
        self._sync = _decode(decoder, items)
        self._async = _decode_async(decoder, items)

    def __iter__(self) -> Iterator[StreamChunk]:
        _check_unread(self._async)
        _check_unread(self._sync)
        return self._sync

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        _check_unread(self._sync)
        _check_unread(self._async)
        return self._async


def _check_unread(events: Generator[Any] | AsyncGenerator[Any]) -> None:
    """Raise an `AlreadyReadError` if the generator has ended."""
    if getattr(events, "gi_frame" if isinstance(events, Generator) else "ag_frame") is None:
        raise AlreadyReadError("the events of decode can be read only once; keep them in a list")


def _cannot_decode(data: Any) -> str:
    hints = {
        "iter_bytes": "pass its iter_bytes() or aiter_bytes()",
        "iter_any": "pass its content.iter_any()",
        "__await__": "did you forget `await`?",
        "__enter__": "pass the object that `with` returns",
    }
    hint = next((hint for name, hint in hints.items() if hasattr(data, name)), None)
    return f"cannot decode an object of type {type(data).__name__}: {hint or 'pass bytes, dicts or SDK objects'}"
