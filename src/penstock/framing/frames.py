"""The output of every framing: frames with their payloads, and bytes that are not a frame."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""How many bytes a frame may have (images come whole, up to about 20 MB). A larger one is skipped, and reported as an
`Error` with the code `frame_too_large`."""

MAX_COMMENT_BYTES = 1024 * 1024
"""How many bytes of comments, keep-alives and blank lines a response may have between its frames. Beyond it, the
response ends with the error `too_many_comments`."""


class Frames(Struct, gc=False):
    """Consecutive frames with the same event name: all those of one read, so that work is done per read.

    `is_ascii` if all payloads are known to be ASCII, so that they need not be checked for UTF-8. `is_json` if they are
    JSON values without a framing, so that each may be a whole body.
    """

    event: str
    data: list[bytes]
    is_ascii: bool = False
    is_json: bool = False


class Stray(Struct, gc=False):
    """Bytes that are not a frame.

    `code` names the fault if something was lost, and is empty if the bytes are merely unexpected. `is_foreign` says
    that nothing of this kind occurs in a stream with this framing, `is_ignored` that the framing's rules ignore it.
    With `ends_response`, nothing that follows is read.
    """

    data: bytes
    note: str
    code: str = ""
    is_foreign: bool = False
    is_ignored: bool = False
    ends_response: bool = False


Framed = Frames | Stray


class Framing(Protocol):
    """A stage from bytes to frames."""

    def feed(self, data: bytes) -> list[Framed]: ...

    def close(self) -> list[Framed]: ...


def add_frame(payload: bytes, out: list[Framed]) -> None:
    """Appends a frame without an event name, to the previous frames if they have none either."""
    last = out[-1] if out else None
    if isinstance(last, Frames) and not last.event:
        last.data.append(payload)
    else:
        out.append(Frames("", [payload]))


def missing_line_ends(data: bytes) -> Stray:
    """Reports a stream that was read line by line, which removed its line ends."""
    note = "the line ends are missing: use an iterator over bytes (iter_bytes), not over lines"
    return Stray(data[:300], note, "missing_line_ends")


def too_large(data: bytes) -> Stray:
    """Reports a frame that was skipped because it is larger than the cap."""
    return Stray(
        data[:200],
        f"a frame is longer than MAX_FRAME_BYTES ({MAX_FRAME_BYTES} bytes); it was skipped",
        "frame_too_large",
    )


class Comments:
    """Counts the bytes of a stream that are not part of a frame."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        self._size: int | None = 0  # None once it was reported that they are too many

    def add(self, size: int, out: list[Framed]) -> None:
        """Counts some more; reports it once if they are too many."""
        if self._size is None:
            return
        self._size += size
        if self._size > MAX_COMMENT_BYTES:
            self._size = None
            note = f"more than MAX_COMMENT_BYTES ({MAX_COMMENT_BYTES} bytes) of comments and blank lines"
            out.append(Stray(b"", note, "too_many_comments", ends_response=True))
