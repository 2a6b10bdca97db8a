"""Recordings: the exact bytes of responses with their timing, and the requests, without API keys.

A file holds one exchange after another as lines of JSON: the request, the head of the response, each piece of data with
the seconds since the request, and the end. Text is stored as text, so that people can read it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from penstock.errors import UsageError
from penstock.redaction import Mask, without_secrets
from penstock.transport.commands import HTTPRequest, HTTPResponseHead
from penstock.transport.exchange import Recorder

VERSION = 2
FILE_START = b'{"type":"request","wire":'
"""The first bytes of every file of recordings."""
RECORDED_HEADERS = (
    "content-type", "date", "retry-after", "request-id", "x-request-id", "openai-processing-ms", "server",
)  # fmt: skip
"""The headers of a response that are recorded; others may identify the account."""


class RequestLine(Struct, frozen=True, tag="request"):
    """A request: its wire, the name of the model, the URL and the body."""

    wire: str
    model: str
    url: str
    body: Any
    penstock: int = VERSION


class ResponseLine(Struct, frozen=True, tag="response"):
    """The status of a response, and some of its headers."""

    at: float
    status: int
    headers: dict[str, str] = {}


class DataLine(Struct, frozen=True, tag="data", omit_defaults=True):
    """A piece of the response: as text if it is UTF-8, else as base64."""

    at: float
    text: str = ""
    base64: str = ""

    @property
    def data(self) -> bytes:
        return base64.b64decode(self.base64) if self.base64 else self.text.encode()


class EndLine(Struct, frozen=True, tag="end"):
    """The end of a response. An exchange without this line was interrupted."""

    at: float


Line = RequestLine | ResponseLine | DataLine | EndLine


class FileRecorder:
    """Records one exchange, and appends it to a file as a whole at its end: others may write to the same file."""

    def __init__(self, target: str | Path | IO[bytes], wire: str, model: str, request: HTTPRequest) -> None:
        self._target = target
        self._mask = Mask(request.headers, request.url)
        body = self._mask.value(json.loads(request.body))
        self._request = RequestLine(wire, model, self._mask.text(without_secrets(request.url)), body)
        self._start = 0.0
        self._lines: list[Line] = []
        self._pieces: list[tuple[float, bytes]] = []  # not masked yet: a key may be split across two
        self._write(b"")  # raises before anything is sent if the file cannot be written

    def hide(self, headers: Mapping[str, str]) -> None:
        """Mask the secrets of these headers too."""
        self._mask.learn(headers)

    def refuse(self, head: HTTPResponseHead, body: bytes) -> None:
        """Does nothing: error responses are not recorded."""

    def begin(self, head: HTTPResponseHead, start: float, now: float) -> None:
        self._add_pieces()
        self._start = start
        headers = {
            name.lower(): self._mask.text(value)
            for name, value in head.headers.items()
            if name.lower() in RECORDED_HEADERS
        }
        self._lines += [self._request, ResponseLine(self._since(now), head.status, headers)]

    def add(self, data: bytes, now: float) -> None:
        self._pieces.append((self._since(now), data))

    def end(self, now: float) -> None:
        self._add_pieces()
        self._lines.append(EndLine(self._since(now)))

    def close(self) -> None:
        """Write the exchange, whether it ended or was interrupted."""
        self._add_pieces()
        lines, self._lines = self._lines, []
        self._write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    def _add_pieces(self) -> None:
        """Add the pieces to the lines, with the API key masked."""
        pieces, self._pieces = self._pieces, []
        masked = self._mask.pieces([data for _, data in pieces])
        self._lines += [data_line(at, data) for (at, _), data in zip(pieces, masked, strict=True)]

    def _since(self, now: float) -> float:
        return round(now - self._start, 4)

    def _write(self, data: bytes) -> None:
        if not isinstance(self._target, str | Path):
            self._target.write(data)
            return
        try:
            with open(self._target, "ab", opener=open_private) as file:
                file.write(data)
        except OSError as error:
            raise UsageError(f"cannot write the recording {str(self._target)!r}: {error.strerror}") from None


def recorder_of(target: Any, wire: str, model: str, request: HTTPRequest) -> Recorder | None:
    """The recorder of one exchange: of a file, or of an object that makes recorders; None without a target."""
    if target is None:
        return None
    make = getattr(target, "recorder", None)
    recorder: Recorder = FileRecorder(target, wire, model, request) if make is None else make(wire, model, request)
    return recorder


def open_private(path: str, flags: int) -> int:
    """An opener for `open`: a file that it creates can be read and written by its owner only."""
    return os.open(path, flags, 0o600)


def data_line(at: float, data: bytes) -> DataLine:
    try:
        return DataLine(at, text=data.decode())
    except UnicodeDecodeError:
        return DataLine(at, base64=base64.b64encode(data).decode())


class Recording(Struct, frozen=True):
    """One recorded exchange; `is_whole` unless it was interrupted."""

    request: RequestLine
    response: ResponseLine
    pieces: tuple[DataLine, ...]
    is_whole: bool

    @property
    def body(self) -> bytes:
        """All bytes of the response."""
        return b"".join(piece.data for piece in self.pieces)


_decoder = msgspec.json.Decoder(Line)


def read_recordings(path: str | Path) -> list[Recording]:
    """The exchanges in a file."""
    try:
        lines, _, rest = Path(path).read_bytes().rpartition(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read the recording {str(path)!r}: {error.strerror}") from None
    last = [rest] if rest.endswith(b"}") else []  # a line that was cut off is left out
    return list(_exchanges(path, [*lines.splitlines(), *last]))


def _exchanges(path: str | Path, lines: Iterable[bytes]) -> Iterator[Recording]:
    request: RequestLine | None = None
    response: ResponseLine | None = None
    pieces: list[DataLine] = []
    for number, text in enumerate(lines, 1):
        match _read_line(path, number, text):
            case RequestLine() as line:
                if request is not None and response is not None:
                    yield Recording(request, response, tuple(pieces), False)
                request, response, pieces = line, None, []
            case ResponseLine() as line:
                response = line
            case DataLine() as line:
                pieces.append(line)
            case EndLine() if request is not None and response is not None:
                yield Recording(request, response, tuple(pieces), True)
                request, response, pieces = None, None, []
            case _:
                raise UsageError(f"{path}, line {number}: the end of an exchange that has no beginning")
    if request is not None and response is not None:
        yield Recording(request, response, tuple(pieces), False)


def _read_line(path: str | Path, number: int, text: bytes) -> Line:
    try:
        line: Line = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise UsageError(f"line {number} of {path} does not belong to a recording: {error}") from None
    if isinstance(line, RequestLine) and line.penstock > VERSION:
        raise UsageError(
            f"{path} was written by a newer version of penstock (format {line.penstock}, this version reads {VERSION})"
        )
    return line
