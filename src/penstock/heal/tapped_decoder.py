"""A decoder that keeps the events of its last read, beside the stages that change them."""

from __future__ import annotations

from typing import Any

from penstock.decoder import Decoder
from penstock.events import Progress, StreamChunk, Text
from penstock.wires.shared.decode_response.piece_frames import ReadPiece, ReadText


class TappedDecoder:
    """A decoder that keeps the events of its last read."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.chunks: list[StreamChunk] = []

    @property
    def read_text(self) -> ReadText | None:
        return self._decoder.read_text

    def read_texts(self, data: bytes) -> list[Text] | None:
        return self._decoder.read_texts(data)

    @property
    def read_piece(self) -> ReadPiece | None:
        return self._decoder.read_piece

    def feed(self, data: bytes) -> list[StreamChunk]:
        self.chunks = chunks = self._decoder.feed(data)
        return chunks

    def feed_any(self, item: Any) -> list[StreamChunk]:
        self.chunks = chunks = self._decoder.feed_any(item)
        return chunks

    def close(self) -> list[StreamChunk]:
        self.chunks = chunks = self._decoder.close()
        return chunks

    def progress(self) -> Progress:
        return self._decoder.progress()
