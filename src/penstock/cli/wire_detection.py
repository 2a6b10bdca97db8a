"""Detects the wire of a response: its first bytes are decoded with every wire, until one of them understands them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from penstock.decoder import Decoder
from penstock.errors import UsageError
from penstock.events import Error, Finish, StreamChunk, Unknown
from penstock.wires import WIRES, WireName, wire_name

MAX_BYTES = 1_000_000
"""The number of bytes after which an undetected wire is reported."""
ANY_WIRE: WireName = "openai-chat"
"""The wire for error bodies, which read the same on every wire."""


def detect_wire(pieces: Iterable[bytes]) -> tuple[WireName, Iterator[bytes]]:
    """The wire of a response, and all of its pieces. Only as many pieces are read as are needed."""
    detector = WireDetector()
    rest = iter(pieces)
    read: list[bytes] = []
    for piece in rest:
        read.append(piece)
        if (wire := detector.feed(piece)) or detector.size > MAX_BYTES:
            break
    else:
        wire = detector.close()
    if not wire:
        raise UsageError("no wire understands this response: name its wire with --wire, as in --wire openai-chat")
    return wire, chain(read, rest)


class WireDetector:
    """Decodes a response with all wires at once; `feed` returns the wire as soon as exactly one understands it."""

    def __init__(self) -> None:
        self.size = 0
        self._decoders: dict[WireName, Decoder] = {wire: Decoder(wire) for wire in map(wire_name, WIRES)}
        self._understood: dict[WireName, int] = dict.fromkeys(self._decoders, 0)
        self._is_error = False

    def feed(self, piece: bytes) -> WireName | None:
        self.size += len(piece)
        for wire, decoder in self._decoders.items():
            self._count(wire, decoder.feed(piece))
        return self._best() if sum(map(bool, self._understood.values())) == 1 else None

    def close(self) -> WireName | None:
        """The wire that understands most of the response; `ANY_WIRE` for an error body."""
        for wire, decoder in self._decoders.items():
            self._count(wire, decoder.close())
        return self._best() or (ANY_WIRE if self._is_error else None)

    def _count(self, wire: WireName, events: list[StreamChunk]) -> None:
        self._understood[wire] += sum(map(is_understood, events))
        self._is_error = self._is_error or any(
            isinstance(event, Error) and event.code != "not_understood" for event in events
        )

    def _best(self) -> WireName | None:
        most = max(self._understood.values())
        wires: list[WireName] = [wire for wire, count in self._understood.items() if count == most]
        return wires[0] if len(wires) == 1 else None


def is_understood(event: StreamChunk) -> bool:
    """Whether an event shows that its wire is the right one."""
    is_bad_end = isinstance(event, Finish) and event.reason in ("cut", "error", "other")
    return not is_bad_end and not isinstance(event, Unknown | Error)
