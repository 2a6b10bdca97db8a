"""Fuzzes the wires: they never raise, the events are sane, and cuts do not show.

The first byte of an input selects the wire, the second how the rest is cut. For Bedrock, whose checksums would fail
after any mutation, the rest consists of lines with an event name and a payload.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))
with atheris.instrument_imports(include=["penstock"]):
    from penstock.wires import ALIASES, WIRES, find_wire
    from tests.sanity import assert_sane
    from tests.support import aws_message, decode_pieces, joined, random_pieces, vectors

    NAMES = sorted(WIRES)
    for name in NAMES:
        find_wire(name)  # imported on first use: let that be here
        decode_pieces(name, [])


def body_of(wire: str, data: bytes) -> bytes:
    if wire != "bedrock" or not data.startswith(b"!"):
        return data
    messages = []
    for line in data[1:].split(b"\n"):
        event, _, payload = line.partition(b" ")
        messages.append(aws_message({":event-type": event[:40].decode("ascii", "replace")}, payload))
    return b"".join(messages)


def check(data: bytes) -> None:
    if len(data) < 2:
        return
    wire = NAMES[data[0] % len(NAMES)]
    body = body_of(wire, data[2:])
    whole = decode_pieces(wire, [body])
    assert_sane(whole)
    assert joined(decode_pieces(wire, random_pieces(body, data[1]))) == joined(whole)


def seed(folder: Path) -> None:
    """The vectors, as the initial corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, vector in enumerate(vectors()):
        wire = ALIASES.get(vector.wire, vector.wire)
        body = vector.body()
        if wire == "bedrock":
            frames = [frame for frame in vector.frames if isinstance(frame, dict)]
            lines = [f"{event} {json.dumps(payload)}" for frame in frames for event, payload in frame.items()]
            body = b"!" + "\n".join(lines).encode()
        (folder / f"vector-{number}").write_bytes(bytes([NAMES.index(wire), number % 256]) + body)


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    if folders and not any(folders[0].glob("vector-*")) and not folders[0].is_file():
        seed(folders[0])
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
