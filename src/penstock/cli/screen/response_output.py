"""How an answer is shown while it comes, to people or as JSON, and whether it ended well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console

from penstock.cli.screen.response_view import View
from penstock.cli.screen.terminal import write_lines
from penstock.decoder import Decoder
from penstock.events import Error, Finish, StreamChunk, encode


class Lines:
    """What `View` is for people, for scripts: an event a line, as JSON, and nothing else."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def add(self, event: StreamChunk) -> None:
        """Take one event in; it is written by `flush`."""
        self._pending.append(encode(event))

    def flush(self) -> None:
        """Write all that was taken in."""
        pending, self._pending = self._pending, []
        write_lines(pending)

    def cancel(self) -> None:
        """Nobody wants to see more: what was taken in stays unwritten."""

    def close(self) -> None:
        """The events are over: nothing is added to them."""


def show(console: Console, wire: str, batches: Iterable[Iterable[StreamChunk]], *, as_json: bool = False) -> bool:
    """Show the events as they come, those of a batch at once; whether the answer ended well."""
    out = Lines() if as_json else View(console, wire)
    ended_well = True
    try:
        for events in batches:
            for event in events:
                out.add(event)
                ended_well = ended_well and not _is_bad_end(event)
            out.flush()
    except KeyboardInterrupt:
        out.cancel()
        raise
    out.close()
    return ended_well


def one_by_one(events: Iterable[StreamChunk]) -> Iterator[list[StreamChunk]]:
    """Each event at once."""
    return ([event] for event in events)


def decoded(decoder: Decoder, pieces: Iterable[bytes]) -> Iterator[list[StreamChunk]]:
    """The events of each piece, and those of the end."""
    for piece in pieces:
        yield decoder.feed(piece)
    yield decoder.close()


def _is_bad_end(event: StreamChunk) -> bool:
    """Whether the event says that the stream was cut or went wrong."""
    return isinstance(event, Error) or (isinstance(event, Finish) and event.reason in ("cut", "error"))
