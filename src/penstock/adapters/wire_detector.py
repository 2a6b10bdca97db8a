"""Detects the wire of a response: it is decoded with every wire, until only one of them understands it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.decoder import Decoder
from penstock.events import Error, Finish, StreamChunk, Unknown
from penstock.wires import WIRES, WireName, wire_name

ANY_WIRE: WireName = "openai-chat"
"""The wire for error bodies, which read the same on every wire."""


class WireDetector:
    """Decodes a response with all wires at once; `feed` returns the wire as soon as exactly one understands it."""

    def __init__(self) -> None:
        self.is_error = False
        self._decoders: dict[WireName, Decoder] = {wire: Decoder(wire) for wire in map(wire_name, WIRES)}
        self._understood: Counter[WireName] = Counter(dict.fromkeys(self._decoders, 0))
        self._unknown: Counter[WireName] = Counter()
        self._errors: Counter[WireName] = Counter()

    def feed(self, piece: Any) -> WireName | None:
        """The only wire that understands what it has read: bytes, text, dicts or SDK objects."""
        for wire, decoder in self._decoders.items():
            self._count(wire, decoder.feed_any(piece))
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
