"""Recorded streams as frames, where the corpus is at hand: more seeds for `make fuzz`."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from penstock.framing import Body, Frames
from penstock.wires import find_wire

MAX_BYTES = 30_000
MAX_FRAMES = 60


@cache
def recordings(wire: str) -> list[tuple[str, list[Any]]]:
    """The recordings of a wire that are not long, by name."""
    from tests.wires.test_corpus import SPOKEN  # here, because it reads the whole corpus

    name = find_wire(wire).name
    found = [(case.meta["id"], frames_of(wire, case.body())) for case in SPOKEN if case.wire == name]
    return [(id, frames[:MAX_FRAMES]) for id, frames in found if frames]


def frames_of(wire: str, data: bytes) -> list[Any]:
    """The frames of a body, as a vector has them."""
    body = Body(find_wire(wire).framing)
    framed = [*body.feed(data[:MAX_BYTES]), *body.close()]
    return [frame_of(wire, item.event, payload) for item in framed if isinstance(item, Frames) for payload in item.data]


def frame_of(wire: str, event: str, payload: bytes) -> Any:
    try:
        value = json.loads(payload)
    except ValueError:
        return f"data: {payload.decode('utf-8', 'replace')}\n\n"
    return {event: value} if wire == "bedrock" and event else value
