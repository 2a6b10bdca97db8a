"""Lines of JSON-RPC from a server's standard output, with a size limit; oversized lines keep their request id."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from msgspec import Struct

_KEPT = 256
"""The bytes kept of each end of an oversized line, to find the id in them."""

_ID = rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("[^"\\]*"|\d+)'
_AT_START = re.compile(rb"\s*\{\s*" + _ID + rb"\s*,")
_AT_END = re.compile(rb"[,{]\s*" + _ID + rb"\s*\}\s*\Z")

_NOTIFICATION = 200
"""The bytes at the start of a line that are searched for the method of a notification."""
_REPLACEABLE = re.compile(
    rb'\A\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"method"\s*:\s*"(notifications/(?:progress|message|\w+/list_changed))"'
)
_TOKEN = re.compile(rb'"progressToken"\s*:\s*("[^"\\]*"|\d+)')


class TooLong(Struct, frozen=True):
    """A line over the size limit; `head` and `tail` are its two ends."""

    head: bytes
    tail: bytes

    @property
    def request_id(self) -> int | str | None:
        """The request id in this line; None if it is not near one of the ends."""
        return _request_id(self.head, self.tail)


def request_id(line: bytes) -> int | str | None:
    """The request id in an invalid line; None if it is not near one of the ends."""
    return _request_id(line[:_KEPT], line[-_KEPT:])


def without_superseded(lines: Iterable[bytes | TooLong]) -> list[bytes | TooLong]:
    """The lines of one read without notifications that the next line supersedes: older progress, an older list.

    A server may send more of them than the SDK can handle.
    """
    kept: list[bytes | TooLong] = []
    last: tuple[bytes, ...] | None = None
    for line in lines:
        kind = _replaceable(line) if isinstance(line, bytes) else None
        if kind is not None and kind == last:
            kept[-1] = line
        else:
            kept.append(line)
        last = kind
    return kept


def _replaceable(line: bytes) -> tuple[bytes, ...] | None:
    """The key by which later notifications replace earlier ones: method and progress token; None if not replaceable."""
    head = line[:_NOTIFICATION]
    if (method := _REPLACEABLE.search(head)) is None:
        return None
    token = _TOKEN.search(line)
    return (method.group(1),) if token is None else (method.group(1), token.group(1))


def _request_id(head: bytes, tail: bytes) -> int | str | None:
    match = _AT_START.match(head) or _AT_END.search(tail)
    if match is None:
        return None
    value = match.group(1).decode("utf-8", "replace")
    return value[1:-1] if value.startswith('"') else int(value)


class Lines:
    """Splits bytes into lines, in linear time; for a line over `limit`, only its two ends are kept."""

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
