"""Compressed bodies: some servers and proxies compress although the request asks for `identity`.

A few kilobytes can become many megabytes, so a body is decompressed in small pieces and not by the HTTP client, which
would do it in one go. Each piece counts towards the size of the response, and an event loop can run between two pieces.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.errors import ConnectionFailed, UnexpectedReplyError

PIECE_BYTES = 16 * 1024
"""The size of the largest piece."""
_INPUT_BYTES = 4 * 1024  # how much is decompressed at once; what follows the end of a gzip member is copied


class Decompressor:
    """Decompresses a body: feed it bytes as they arrive, then read pieces until there are none."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        self._data = b""
        self._start = 0
        self._stream: Any = None
        self._has_output = False  # the last piece was as large as it can be: there may be more without more data

    def feed(self, data: bytes) -> None:
        self._data = self._data[self._start :] + data
        self._start = 0

    def read(self) -> bytes:
        """Returns the next piece; empty if more data is needed."""
        while self._has_output or self._start < len(self._data):
            try:
                piece = self._decompress()
            except zlib.error as error:
                raise ConnectionFailed(f"the compressed response cannot be read: {error}", retryable=True) from None
            if piece:
                return piece
        return b""

    def close(self) -> None:
        """Raises if the body is incomplete."""
        if self._stream is not None:
            raise ConnectionFailed("the compressed response ended before it was complete", retryable=True)

    def _decompress(self) -> bytes:
        data = self._data[self._start : self._start + _INPUT_BYTES]
        if self._stream is None:
            self._stream = self._begin(data[0])
        piece: bytes = self._stream.decompress(data, PIECE_BYTES)
        is_ended = self._stream.eof
        rest = self._stream.unused_data if is_ended else self._stream.unconsumed_tail
        self._start += len(data) - len(rest)
        self._has_output = len(piece) == PIECE_BYTES and not is_ended
        if is_ended:  # gzip may consist of several members
            self._stream = None
        return piece

    def _begin(self, first: int) -> Any:
        match self._encoding:
            case "gzip" | "x-gzip":
                return zlib.decompressobj(zlib.MAX_WBITS | 16)
            case "deflate":  # with the header of zlib, or, from some servers, without
                return zlib.decompressobj(zlib.MAX_WBITS if first & 0x0F == 8 else -zlib.MAX_WBITS)
        raise UnexpectedReplyError(
            f"the response is compressed with {self._encoding!r}, although the request asks for no compression"
        )


def decompressed(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yields the decompressed body."""
    decompressor = Decompressor(encoding)
    for data in pieces:
        decompressor.feed(data)
        while piece := decompressor.read():
            yield piece
    decompressor.close()


class DecompressedContent:
    """The body of an async response, decompressed, with the interface of aiohttp's."""

    def __init__(self, content: Any, encoding: str) -> None:
        self._content = content
        self._decompressor = Decompressor(encoding)

    async def readany(self) -> bytes:
        while not (piece := self._decompressor.read()):
            data: bytes = await self._content.readany()
            if not data:
                self._decompressor.close()
                return b""
            self._decompressor.feed(data)
        await asyncio.sleep(0)  # let others run, because a few bytes may become many pieces
        return piece

    def set_exception(self, error: Exception) -> None:
        self._content.set_exception(error)


def content_encoding(headers: Any) -> str:
    """The encoding of a body; empty if it is not compressed."""
    encoding: str = headers.get("content-encoding") or ""
    return "" if encoding.strip().lower() == "identity" else encoding.strip()
