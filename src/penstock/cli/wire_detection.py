"""Detects the wire of a response: its first bytes are decoded with every wire, until one of them understands them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from penstock.decoder import Decoder
from penstock.errors import UsageError
from penstock.events import Error, Finish, StreamChunk, Unknown
from penstock.model.recording import FILE_START
from penstock.wires import WIRES, WireName, wire_name

MAX_BYTES = 1_000_000
"""The number of bytes after which an undetected wire is reported."""
QUOTED_BYTES = 60
"""The number of bytes of a response that are quoted if no wire understands it."""
ANY_WIRE: WireName = "openai-chat"
"""The wire for error bodies, which read the same on every wire."""


def detect_wire(pieces: Iterable[bytes]) -> tuple[WireName | None, Iterator[bytes]]:
    """The wire of a response, and all of its pieces. Only as many pieces are read as are needed.

    None is the wire of an error body that reads the same on every wire, so that any of them can decode it.
    """
    detector = WireDetector()
    rest = iter(pieces)
    read: list[bytes] = []
    wire: WireName | None = None
    for piece in rest:
        read.append(piece)
        if (wire := detector.feed(piece)) or detector.size > MAX_BYTES:
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


class WireDetector:
    """Decodes a response with all wires at once; `feed` returns the wire as soon as exactly one understands it."""

    def __init__(self) -> None:
        self.size = 0
        self.is_error = False
        self._decoders: dict[WireName, Decoder] = {wire: Decoder(wire) for wire in map(wire_name, WIRES)}
        self._understood: Counter[WireName] = Counter(dict.fromkeys(self._decoders, 0))
        self._unknown: Counter[WireName] = Counter()
        self._errors: Counter[WireName] = Counter()

    def feed(self, piece: bytes) -> WireName | None:
        self.size += len(piece)
        for wire, decoder in self._decoders.items():
            self._count(wire, decoder.feed(piece))
        return self._best() if sum(map(bool, self._understood.values())) == 1 else None

    def close(self) -> WireName | None:
        """The wire that understands most of the response, or else the only one without an unknown frame."""
        for wire, decoder in self._decoders.items():
            self._count(wire, decoder.close())
        return self._best() or self._only_without_unknown()

    def _count(self, wire: WireName, events: list[StreamChunk]) -> None:
        errors = [event for event in events if isinstance(event, Error)]
        self._understood[wire] += sum(map(is_understood, events))
        self._unknown[wire] += sum(isinstance(event, Unknown) for event in events)
        self._errors[wire] += len(errors)
        if wire == ANY_WIRE and any(error.code != "not_understood" for error in errors):
            self.is_error = True

    def _best(self) -> WireName | None:
        most = max(self._understood.values())
        wires: list[WireName] = [wire for wire, count in self._understood.items() if count == most]
        return wires[0] if len(wires) == 1 else None

    def _only_without_unknown(self) -> WireName | None:
        """The wire of a response without content, such as one that fails at once."""
        wires: list[WireName] = [
            wire for wire in self._decoders if not self._unknown[wire] and (self.is_error or not self._errors[wire])
        ]
        return wires[0] if len(wires) == 1 else None


def is_understood(event: StreamChunk) -> bool:
    """Whether an event shows that its wire is the right one."""
    is_bad_end = isinstance(event, Finish) and event.reason in ("cut", "error", "other")
    return not is_bad_end and not isinstance(event, Unknown | Error)
