"""Recordings: the exact bytes of an answer with their timing, and the request that they answer, without its key.

A file holds one exchange after another, as lines of JSON: the request, how the answer began, each piece of it with the
seconds since the request, and its end. Text is kept as text, so that a person can read it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from penstock.errors import UsageError
from penstock.redaction import Mask, without_secrets
from penstock.transport.commands import HTTPRequest, ResponseHead

VERSION = 1
SHOWN_HEADERS = ("content-type", "date", "retry-after", "request-id", "x-request-id", "openai-processing-ms", "server")
"""The headers of an answer that are kept; others may tell who asked."""


class Asked(Struct, frozen=True, tag="asked"):
    """A request: to whom it went, where to, and what it said."""

    wire: str
    model: str
    url: str
    body: Any
    penstock: int = VERSION


class Began(Struct, frozen=True, tag="began"):
    """How the answer began."""

    at: float
    status: int
    headers: dict[str, str] = {}


class Came(Struct, frozen=True, tag="came", omit_defaults=True):
    """A piece of the answer: as text if it is text, else as base64."""

    at: float
    text: str = ""
    base64: str = ""

    @property
    def data(self) -> bytes:
        return base64.b64decode(self.base64) if self.base64 else self.text.encode()


class Ended(Struct, frozen=True, tag="ended"):
    """The answer was read to its end; one without this line was broken off."""

    at: float


Line = Asked | Began | Came | Ended


class FileRecorder:
    """Keeps one exchange, and writes it when it is over, in one piece: others may write to the same file."""

    def __init__(self, target: str | Path | IO[bytes], wire: str, model: str, request: HTTPRequest) -> None:
        self._target = target
        self._mask = Mask(request.headers, request.url)
        body = self._mask.value(json.loads(request.body))
        self._asked = Asked(wire, model, without_secrets(request.url), body)
        self._started = 0.0
        self._lines: list[Line] = []
        self._pieces: list[tuple[float, bytes]] = []  # what came, as it came: a key may be cut in two
        self._write(b"")  # a file that cannot be written is told before anything is asked

    def begin(self, head: ResponseHead, start: float, now: float) -> None:
        self._settle()
        self._started = start
        kept = {name.lower(): value for name, value in head.headers.items() if name.lower() in SHOWN_HEADERS}
        self._lines += [self._asked, Began(self._since(now), head.status, kept)]

    def add(self, data: bytes, now: float) -> None:
        self._pieces.append((self._since(now), data))

    def end(self, now: float) -> None:
        self._settle()
        self._lines.append(Ended(self._since(now)))

    def close(self) -> None:
        """Nothing more comes of this exchange, whether it ended or was broken off."""
        self._settle()
        lines, self._lines = self._lines, []
        self._write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    def _settle(self) -> None:
        """Take what came into the lines, without the key."""
        pieces, self._pieces = self._pieces, []
        masked = self._mask.pieces([data for _, data in pieces])
        self._lines += [_came(at, data) for (at, _), data in zip(pieces, masked, strict=True)]

    def _since(self, now: float) -> float:
        return round(now - self._started, 4)

    def _write(self, written: bytes) -> None:
        if not isinstance(self._target, str | Path):
            self._target.write(written)
            return
        try:
            with Path(self._target).open("ab") as file:
                file.write(written)
        except OSError as error:
            raise UsageError(f"cannot write the recording {str(self._target)!r}: {error.strerror}") from None


def _came(at: float, data: bytes) -> Came:
    try:
        return Came(at, text=data.decode())
    except UnicodeDecodeError:
        return Came(at, base64=base64.b64encode(data).decode())


class Recording(Struct, frozen=True):
    """One recorded exchange."""

    asked: Asked
    began: Began
    pieces: tuple[Came, ...]
    is_whole: bool

    @property
    def body(self) -> bytes:
        """All bytes of the answer."""
        return b"".join(piece.data for piece in self.pieces)


_decoder = msgspec.json.Decoder(Line)


def read_recordings(path: str | Path) -> list[Recording]:
    """The exchanges in a file."""
    try:
        whole, _, rest = Path(path).read_bytes().rpartition(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read the recording {str(path)!r}: {error.strerror}") from None
    return list(_exchanges(path, [*whole.splitlines(), *([rest] if rest.endswith(b"}") else [])]))  # it may be cut


def _exchanges(path: str | Path, lines: Iterable[bytes]) -> Iterator[Recording]:
    asked: Asked | None = None
    began: Began | None = None
    pieces: list[Came] = []
    for number, line in enumerate(lines, 1):
        match _line(path, number, line):
            case Asked() as found:
                if asked is not None and began is not None:
                    yield Recording(asked, began, tuple(pieces), False)
                asked, began, pieces = found, None, []
            case Began() as found:
                began = found
            case Came() as found:
                pieces.append(found)
            case Ended() if asked is not None and began is not None:
                yield Recording(asked, began, tuple(pieces), True)
                asked, began, pieces = None, None, []
            case _:
                raise UsageError(f"{path}, line {number}: an end without a beginning")
    if asked is not None and began is not None:
        yield Recording(asked, began, tuple(pieces), False)


def _line(path: str | Path, number: int, line: bytes) -> Line:
    try:
        found: Line = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}, line {number}, is no recording: {error}") from None
    if isinstance(found, Asked) and found.penstock > VERSION:
        raise UsageError(
            f"{path} was written by a later version of penstock ({found.penstock}, this one reads {VERSION})"
        )
    return found
