"""Lines of JSON-RPC from a server's standard output, with a cap."""

from __future__ import annotations

import re
from collections import deque

from msgspec import Struct

_KEPT = 256
"""How many bytes of each end of a line that is too long are kept, to find the id in them."""

_ID = rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("[^"\\]*"|\d+)'
_AT_START = re.compile(rb"\s*\{\s*" + _ID + rb"\s*,")
_AT_END = re.compile(rb"[,{]\s*" + _ID + rb"\s*\}\s*\Z")


class TooLong(Struct, frozen=True):
    """A line that is longer than the limit; `head` and `tail` are its ends."""

    head: bytes
    tail: bytes

    @property
    def request_id(self) -> int | str | None:
        """The id of the request that this line answers; None if it is not at one of the ends."""
        match = _AT_START.match(self.head) or _AT_END.search(self.tail)
        if match is None:
            return None
        value = match.group(1).decode("utf-8", "replace")
        return value[1:-1] if value.startswith('"') else int(value)


class Lines:
    """Splits bytes into lines, in time linear in their number; of a line over `limit` only the ends are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._head = b""

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for piece in ended:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            self._head = self._head or b"".join(self._parts)[:_KEPT]
            kept = sum(map(len, self._parts))
            while len(self._parts) > 1 and kept - len(self._parts[0]) >= _KEPT:
                kept -= len(self._parts.popleft())

    def _take(self) -> bytes | TooLong:
        whole, head, size = b"".join(self._parts), self._head, self._size
        self._parts.clear()
        self._size, self._head = 0, b""
        return TooLong(head, whole[-_KEPT:]) if size > self._limit else whole
