"""Runs as files: lines of JSON, with the row of each run, its events as they were stored, and a checksum.

| line of a run | what it has |
|---|---|
| first | the row of the run, its inputs that nobody has taken, and the keys of the requests that started it |
| one per event | its time, and the event |
| last | the id, the number of events, and the SHA-256 of all lines before it |

A file has any number of runs, and may be compressed with gzip. It is complete with its last line: a file that was cut
or changed is refused before anything of the run concerned is added.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

import msgspec
from msgspec import Struct

from penstock.errors import PenstockError
from penstock.log.bodies import event_of
from penstock.log.starts.requests import StoredStart
from penstock.log.store import VERSION, DamagedRunError, Input, InputKind, Row, RunRow, Store
from penstock.log.take_up import PAGE, hole

FORMAT = 1
"""The version of the files. A later one is refused."""

MAX_LINE = 256 * 1024 * 1024
"""How many bytes a line has at most."""

_MAGIC = b"\x1f\x8b"


class RunFileError(PenstockError):
    """A file of runs cannot be read: it was cut or changed, or is of a later version."""


class FileInput(Struct, frozen=True):
    """An input that nobody has taken yet."""

    kind: InputKind
    key: str
    body: str
    at: float


class FileStart(Struct, frozen=True):
    """A request with a key that started the run: the same request again joins it."""

    id: str
    key: str
    caller: str
    body: str
    seq: int
    at: float


class RunHead(Struct, frozen=True, tag_field="type", tag="run"):
    """The first line of a run in a file."""

    format: int
    run: RunRow
    inputs: tuple[FileInput, ...] = ()
    starts: tuple[FileStart, ...] = ()


class RunEvent(Struct, frozen=True, tag_field="type", tag="event"):
    """The line of an event."""

    at: float
    event: msgspec.Raw


class RunTail(Struct, frozen=True, tag_field="type", tag="end"):
    """The last line of a run in a file."""

    id: str
    events: int
    sha256: str


class FiledRun(Struct, frozen=True):
    """A run in a file."""

    row: RunRow
    events: Sequence[Row]
    inputs: Sequence[Input] = ()
    starts: Sequence[StoredStart] = ()

    @property
    def is_finished(self) -> bool:
        return self.row.state == "over"


_line: msgspec.json.Decoder[RunHead | RunEvent | RunTail] = msgspec.json.Decoder(RunHead | RunEvent | RunTail)


def lines_of(store: Store, row: RunRow) -> Iterator[bytes]:
    """The lines of a run in a file; a `DamagedRunError` if its log lacks events.

    An unfinished run is written as far as `row` knows it, without its owner.
    """
    digest = hashlib.sha256()
    for line in _content(store, row):
        digest.update(line)
        yield line
    yield _encode(RunTail(row.id, row.seq, digest.hexdigest()))


def read_runs(file: IO[bytes], name: str) -> Iterator[FiledRun]:
    """The runs in a file, plain or compressed; a `RunFileError` that says where the file is wrong."""
    number = 0
    head: RunHead | None = None
    events: list[Row] = []
    digest = hashlib.sha256()
    for number, text in enumerate(_lines(file, name), 1):
        line = _decode(text, name, number)
        match line:
            case RunHead() if head is None:
                _check_format(line, name)
                head, events, digest = line, [], hashlib.sha256(text)
            case RunEvent() if head is not None:
                digest.update(text)
                events.append((len(events) + 1, line.at, bytes(line.event)))
            case RunTail() if head is not None:
                yield _filed_run(head, events, line, digest.hexdigest(), name)
                head = None
            case _:
                raise RunFileError(f"line {number} of {name} is out of place: the file was changed")
    if head is not None:
        raise RunFileError(f"{name} was cut: the run {head.run.id} has no last line")
    if not number:
        raise RunFileError(f"{name} is empty")


def _content(store: Store, row: RunRow) -> Iterator[bytes]:
    state = "ready" if row.state == "running" else row.state
    inputs = [
        FileInput(input.kind, input.key, base64.b64encode(input.body).decode(), input.at)
        for input in (() if row.state == "over" else store.inputs([row.id]))
    ]
    kept = msgspec.structs.replace(row, state=state, owner="", lease_until=0.0)
    starts = [
        FileStart(start.id, start.key, start.caller, start.body, start.seq, start.at)
        for start in store.starts.of_run(row.id)
        if start.key
    ]
    yield _encode(RunHead(FORMAT, kept, tuple(inputs), tuple(starts)))
    seq = 0
    while seq < row.seq:
        page = store.read(row.id, seq, min(PAGE, row.seq - seq))
        for number, at, body in page:
            if number != seq + 1:
                break
            seq = number
            yield b'{"type":"event","at":%s,"event":%s}\n' % (msgspec.json.encode(at), body)
        if not page or page[-1][0] != seq:
            raise hole(row.id, seq + 1)


def _encode(line: RunHead | RunTail) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    source: Any = file
    magic = source.peek(2)[:2] if hasattr(source, "peek") else b""
    if magic == _MAGIC:
        source = gzip.GzipFile(fileobj=file)
    try:
        while line := cast(bytes, source.readline(MAX_LINE)):
            if not line.endswith(b"\n"):
                raise RunFileError(f"{name} was cut, or has a line of more than {MAX_LINE:,} bytes")
            yield line
    except (EOFError, gzip.BadGzipFile, OSError, ValueError) as error:
        raise RunFileError(f"{name} cannot be read: {error}") from None


def _decode(text: bytes, name: str, number: int) -> RunHead | RunEvent | RunTail:
    try:
        return _line.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RunFileError(
            f"line {number} of {name} is not that of a run: {error}; such files are made by `penstock runs export`"
        ) from None


def _check_format(head: RunHead, name: str) -> None:
    if head.format > FORMAT or head.run.version > VERSION:
        raise RunFileError(f"{name} was written by a later version of penstock: upgrade this one")


def _filed_run(head: RunHead, events: list[Row], tail: RunTail, sha256: str, name: str) -> FiledRun:
    """The run, if its lines are those that were written."""
    row = head.run
    if (tail.id, tail.events, tail.sha256) != (row.id, len(events), sha256) or row.seq != len(events):
        raise RunFileError(f"the run {row.id} in {name} was changed or cut: its checksum differs")
    try:
        for seq, _, body in events:
            event_of(row.id, seq, body)
        inputs = [
            Input(row.id, input.kind, input.key, base64.b64decode(input.body, validate=True), at=input.at)
            for input in head.inputs
        ]
    except (DamagedRunError, ValueError) as error:
        raise RunFileError(f"{name}: {error}") from None
    starts = [
        StoredStart(
            id=start.id, tenant=row.tenant, key=start.key, caller=start.caller, body=start.body, run_id=row.id,
            seq=start.seq, at=start.at, open_until=0.0, answered=True, is_open=False,
        )
        for start in head.starts
    ]  # fmt: skip
    return FiledRun(row, events, inputs, starts)
