"""Frames of a response on a terminal, each with its events and oddities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from rich.console import Console
from rich.text import Text

from penstock.cli.screen.terminal import write_lines
from penstock.inspector.entries import Entry, EventEntry, FrameEntry, OddEntry
from penstock.inspector.excerpts import excerpt
from penstock.inspector.frame_reader import FrameReader
from penstock.jsontext.shown_text import escape

LINE_LENGTH = 400
"""How many characters of a frame or an event are shown."""


def show_frames(console: Console, wire: str, pieces: Iterable[bytes], *, as_json: bool) -> bool:
    """Shows frames as they arrive; returns whether the response ended well."""
    ended_well = False
    for entries in _batches(FrameReader(wire), pieces):
        if as_json:
            write_lines(map(msgspec.json.encode, entries))
        for entry in entries:
            if not as_json:
                console.print(_line(entry), soft_wrap=True)
            if isinstance(entry, EventEntry):
                ended_well = _ends_well(entry, ended_well)
    return ended_well


def _batches(reader: FrameReader, pieces: Iterable[bytes]) -> Iterator[list[Entry]]:
    for piece in pieces:
        yield list(reader.feed(piece, 0.0))
    yield list(reader.close(0.0))


def _line(entry: Entry) -> Text:
    match entry:
        case FrameEntry():
            name = f"{entry.name} " if entry.name else ""
            return Text.assemble(
                (f"{entry.frame:>5}  ", "dim"), (escape(name), "cyan"), escape(excerpt(entry.text, LINE_LENGTH))
            )
        case EventEntry():
            return Text(f"       {escape(excerpt(bytes(entry.event).decode(), LINE_LENGTH))}", "green")
        case OddEntry():
            number = f"quirk {entry.quirk}: " if entry.quirk else ""
            return Text(f"       {number}{escape(excerpt(entry.text, LINE_LENGTH))}", "yellow")
        case _:
            return Text()


def _ends_well(entry: EventEntry, ended_well: bool) -> bool:
    event = msgspec.json.decode(entry.event)
    if event["type"] == "error":
        return False
    return event["reason"] not in ("cut", "error") if event["type"] == "finish" else ended_well
