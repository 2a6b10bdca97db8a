"""Detects the wire of a response on standard input, or explains why that is impossible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from penstock.adapters.wire_detector import WireDetector
from penstock.errors import UsageError
from penstock.model.recording import FILE_START
from penstock.wires import WIRES, WireName

MAX_BYTES = 1_000_000
"""The number of bytes after which an undetected wire is reported."""
QUOTED_BYTES = 60
"""The number of bytes of a response that are quoted if no wire understands it."""


def detect_wire(pieces: Iterable[bytes]) -> tuple[WireName | None, Iterator[bytes]]:
    """The wire of a response, and all of its pieces. Only as many pieces are read as are needed.

    None is the wire of an error body that reads the same on every wire, so that any of them can decode it.
    """
    detector = WireDetector()
    rest = iter(pieces)
    read: list[bytes] = []
    size = 0
    wire: WireName | None = None
    for piece in rest:
        read.append(piece)
        size += len(piece)
        if (wire := detector.feed(piece)) or size > MAX_BYTES:
            break
    else:
        wire = detector.close()
    if problem := _find_problem(b"".join(read), wire or detector.is_error):
        raise UsageError(problem)
    return wire, chain(read, rest)


def _find_problem(start: bytes, is_detected: object) -> str:
    """Why a response cannot be decoded, from its start; the empty string if it can."""
    if start.startswith(FILE_START):
        return "this is a recording, not a response: play it with penstock replay FILE"
    if is_detected:
        return ""
    if not start.strip():
        return "the input is empty"
    quoted = start[:QUOTED_BYTES].decode("utf-8", "replace")
    return (
        f"no wire understands this response, which begins with {quoted!r}; "
        f"name its wire with --wire, one of: {', '.join(WIRES)}"
    )
