"""The fast path of text and arguments through a gateway, from the bytes of an upstream to those of a client.

Nearly all reads of a long answer are one frame with a piece of text in which nothing has to be healed, or several such
frames; those of a call are one frame with a piece of its arguments. Such a read is neither parsed nor fed to the
stages: each piece is cut out of its frame and put into a frame of the client's protocol.
The stages are the reference: they get all other reads, and any of them may end the fast path at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec.structs import replace

from penstock.events import StreamChunk, Text, ToolCallDelta
from penstock.healing.decoding import CallFlow, HealedDecoding
from penstock.transport.commands import Take
from penstock.wires.shared.encode_response.json_writing import quote
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder

Note = Callable[[StreamChunk], None]
Show = Callable[[bytes], None]


class Writer(Protocol):
    """Writes to a client: at once, or, if that returns False, when it is awaited."""

    def write_now(self, piece: bytes) -> bool: ...
    async def write(self, piece: bytes) -> None: ...


class PieceLane:
    """The fast path of one response, while it is open.

    `note` gets the events, if they are remembered, and `show` the bytes for the client, if they are inspected.
    """

    __slots__ = (
        "_after",
        "_before",
        "_call",
        "_encoder",
        "_note",
        "_output",
        "_read",
        "_read_several",
        "_show",
        "_take_text",
        "_take_texts",
        "_write",
        "_write_now",
        "left",
        "taken",
    )

    def __init__(self, encoder: ResponseEncoder, writer: Writer, note: Note | None, show: Show | None) -> None:
        self._encoder = encoder
        self._write, self._write_now = writer.write, writer.write_now
        self._note = note
        self._show = show
        self._before = self._after = b""
        self._call: CallFlow
        self.taken = 0  # reads that were passed on
        self.left = 0  # reads that were not, although the path was open

    def open_after(self, chunks: list[StreamChunk], decoding: HealedDecoding) -> Take | None:
        """Open the fast path after these events; None if the next bytes have to be decoded."""
        last = chunks[-1] if chunks else None
        if isinstance(last, ToolCallDelta) and len(chunks) == 1 and (call := decoding.call_flow(last)) is not None:
            self._call = call
            return self._take_piece
        if not isinstance(last, Text) or (flow := decoding.text_flow()) is None:
            return None
        self._read, self._read_several = flow.read, flow.read_several
        self._take_text, self._take_texts, self._output = flow.take, flow.take_several, flow.output
        if (frame := self._encoder.text_frame(last.block)) is None:
            self._before = self._after = b""
            return self._encode
        self._before, self._after = frame
        return self._take

    def _take(self, data: bytes) -> Awaitable[None] | bool:
        """Sends the text in these bytes; False if they are anything but text."""
        event = self._read(data)
        if event is None and (events := self._read_several(data)) is not None:
            return self._take_several(events)
        if event is None or (text := self._take_text(event.text)) is None:
            self.left += 1
            return False
        self.taken += 1
        self._output.size += len(text)
        if not text:
            return True
        if self._note is not None:
            self._note(event if text == event.text else replace(event, text=text))
        piece = self._before + quote(text) + self._after
        if self._show is not None:
            self._show(piece)
        return self._write_now(piece) or self._write(piece)

    def _encode(self, data: bytes) -> Awaitable[None] | bool:
        """`_take` for protocols whose frames differ in more than the text; a frame may end the response."""
        if self._encoder.error is not None:
            self.left += 1
            return False
        event = self._read(data)
        if event is None and (events := self._read_several(data)) is not None:
            return self._take_several(events)
        if event is None or (text := self._take_text(event.text)) is None:
            self.left += 1
            return False
        self.taken += 1
        self._output.size += len(text)
        if not text:
            return True
        event = event if text == event.text else replace(event, text=text)
        if self._note is not None:
            self._note(event)
        piece = self._encoder.feed([event])
        if self._show is not None:
            self._show(piece)
        return self._write_now(piece) or self._write(piece)

    def _take_piece(self, data: bytes) -> Awaitable[None] | bool:
        """Sends the piece of arguments in these bytes; False if they are anything else."""
        call = self._call
        if self._encoder.error is not None or (event := call.read(data)) is None:
            self.left += 1
            return False
        self.taken += 1
        call.skip(len(data))
        if not (text := call.take(event.piece)):
            return True
        event = ToolCallDelta(call.block, text, event.choice)
        if self._note is not None:
            self._note(event)
        piece = self._encoder.feed([event])
        if not piece:  # a protocol that sends calls whole
            return True
        if self._show is not None:
            self._show(piece)
        return self._write_now(piece) or self._write(piece)

    def _take_several(self, events: list[Text]) -> Awaitable[None] | bool:
        """Sends the pieces of text of one read; False if one of them has to be decoded."""
        if (texts := self._take_texts([event.text for event in events])) is None:
            self.left += 1
            return False
        self.taken += 1
        self._output.size += sum(map(len, texts))
        sent = [replace(event, text=text) for event, text in zip(events, texts, strict=True) if text]
        if self._note is not None:
            for event in sent:
                self._note(event)
        if self._before:
            piece = b"".join([self._before + quote(event.text) + self._after for event in sent])
        else:
            piece = self._encoder.feed(sent)
        if not piece:
            return True
        if self._show is not None:
            self._show(piece)
        return self._write_now(piece) or self._write(piece)
