"""An inspected exchange: raw bytes with their times, from which everything else is derived on demand.

Recording costs only the memory of the bytes. Frames, events and findings are computed when somebody reads them, and
secrets are masked then: nothing is read of what is kept but by `entries` and `recording`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from penstock.decoder import decode
from penstock.inspector.entries import (
    Asked,
    CacheEntry,
    Ended,
    Entry,
    HealedEntry,
    Note,
    OddEntry,
    Outcome,
    Requested,
    Responded,
    SentEntry,
    Summary,
    ToolEntry,
)
from penstock.inspector.frame_reader import GENERAL, FrameReader, shown_text
from penstock.model.recording import RECORDED_HEADERS, EndLine, Line, RequestLine, ResponseLine, data_line
from penstock.redaction import Mask, without_secrets
from penstock.transport.commands import HTTPRequest, HTTPResponseHead
from penstock.turn import Turn, collect
from penstock.wires import wire_name

MAX_EXCHANGE = 8 * 1024 * 1024
"""How many bytes of one exchange are kept; what comes after that is only counted."""

ERROR_STATUS = 400


class ClientRequest(msgspec.Struct, frozen=True):
    """A request of the client, with its body as it came."""

    at: float
    wire: str
    model: str
    body: bytes


class ProviderRequest(msgspec.Struct, frozen=True):
    """A request to the provider, with its body as it was sent."""

    at: float
    wire: str
    model: str
    url: str
    body: bytes


class Received(msgspec.Struct, frozen=True):
    """Bytes of the provider."""

    at: float
    data: bytes


class SentOn(msgspec.Struct, frozen=True):
    """Bytes for the client."""

    at: float
    data: bytes


class ResponseEnd(msgspec.Struct, frozen=True):
    """The end of a provider's response."""

    at: float


Kept = (
    ClientRequest
    | ProviderRequest
    | Responded
    | Received
    | ResponseEnd
    | SentOn
    | HealedEntry
    | ToolEntry
    | CacheEntry
    | Note
    | Ended
)


class InspectedExchange:
    """One exchange. As `record=` of a `Model`, it takes the responses of the provider.

    `changed` is called after every addition. Entries may be added by one thread and read by another.
    """

    def __init__(
        self,
        id: str,
        *,
        changed: Callable[[InspectedExchange, int], None] = lambda exchange, size: None,
    ) -> None:
        self.id = id
        self.began = time.time()
        self.size = 0  # bytes received and sent
        self.kept_size = 0  # bytes kept, with the bodies of requests
        self.mask = Mask({})
        self.use_clock(time.monotonic)
        self._changed = changed
        self._kept: list[Kept] = []
        self._read = 0  # how many of `_kept` are in `_entries`
        self._entries: list[Entry] = []
        self._reader = FrameReader(GENERAL, self.mask)

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Uses another clock for the exchange from now on."""
        self._clock, self._start = clock, clock()

    # What happens.

    def asked(self, wire: str, model: str, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """Adds the client's request, in its protocol; the secrets in its headers are masked everywhere.

        Its body is a JSON value, or the bytes of one, which are kept as they are.
        """
        self.mask.learn(headers or {})
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.add(ClientRequest(self.now(), wire, model, data))

    def recorder(self, wire: str, model: str, request: HTTPRequest) -> ExchangeRecorder:
        """Records the response to a request of a `Model`."""
        return ExchangeRecorder(self, wire, model, request)

    def received(self, data: bytes) -> None:
        """Adds bytes of the provider."""
        self.add(Received(self.now(), data))

    def sent(self, data: bytes) -> None:
        """Adds bytes for the client."""
        if data:
            self.add(SentOn(self.now(), data))

    def healed(self, quirk: int, text: str, count: int = 1) -> None:
        """Adds a healed quirk."""
        self.add(HealedEntry(self.now(), 0, quirk, text, count))

    def note(self, text: str) -> None:
        """Adds a remark for the reader, for example about omitted fields."""
        self.add(Note(self.now(), text))

    def cache(self, text: str, cached: int | None, total: int | None, *, is_changed: bool) -> None:
        """Adds how the prompt compares with the previous one, and the cached tokens as the server reported them."""
        self.add(CacheEntry(self.now(), text, is_changed, cached, total))

    def tool(self, id: str, name: str, seconds: float, *, is_error: bool = False) -> None:
        """Adds a finished tool that ran for this many seconds."""
        now = self.now()
        self.add(ToolEntry(now, now - seconds, id, name, is_error))

    def end(self, outcome: Outcome, text: str = "") -> None:
        """Ends the exchange."""
        if not self.is_over:
            self.add(Ended(self.now(), outcome, text))

    def add(self, entry: Kept) -> None:
        """Adds an entry, at its own time."""
        match entry:
            case Received() | SentOn():
                self._add_bytes(entry)
            case ClientRequest() | ProviderRequest():
                self._add_request(entry)
            case _:
                self._keep(0, entry)

    def _add_bytes(self, entry: Received | SentOn) -> None:
        before, self.size = self.size, self.size + len(entry.data)
        if before >= MAX_EXCHANGE:
            self._keep(0)
        elif self.size < MAX_EXCHANGE:
            self._keep(len(entry.data), entry)
        else:
            note = Note(entry.at, "the exchange is too large: the rest of its bytes is not kept")
            self._keep(len(entry.data), entry, note)

    def _add_request(self, entry: ClientRequest | ProviderRequest) -> None:
        if len(entry.body) > MAX_EXCHANGE:
            note = b'"a body of %d bytes, which is too large to be kept"' % len(entry.body)
            entry = msgspec.structs.replace(entry, body=note)
        self._keep(len(entry.body), entry)

    def _keep(self, size: int, *entries: Kept) -> None:
        """Keeps entries of this many bytes."""
        self.kept_size += size
        self._kept += entries
        self._changed(self, size)

    def now(self) -> float:
        """The seconds since the exchange began."""
        return round(self._clock() - self._start, 5)

    # What is read.

    @property
    def is_over(self) -> bool:
        """Whether the exchange has ended."""
        return bool(self._kept) and isinstance(self._kept[-1], Ended)

    def entries(self, size: float = math.inf) -> list[Entry]:
        """The entries so far, in order. Reads at most about this many more bytes: `has_news` if there are more."""
        while self._read < len(self._kept) and size > 0:
            entry = self._kept[self._read]
            self._entries += self._derive(entry)
            self._read += 1
            size -= _size(entry)
        return self._entries

    def is_long(self, size: int) -> bool:
        """Whether the next entry has more bytes than this, so that to read it takes long: do so in a thread."""
        return self.has_news() and _size(self._kept[self._read]) > size

    def has_news(self) -> bool:
        """Whether there is anything that `entries` has not returned yet."""
        return self._read < len(self._kept)

    def turn(self) -> Turn:
        """The last response of the provider, assembled."""
        wire, pieces = GENERAL, list[bytes]()
        for entry in self._kept:
            if isinstance(entry, ProviderRequest | Responded):
                pieces.clear()
            if isinstance(entry, ProviderRequest):
                wire = entry.wire
            elif isinstance(entry, Received):
                pieces.append(entry.data)
        return collect(decode(b"".join(pieces), wire_name(wire)))

    def _derive(self, kept: Kept) -> Iterable[Entry]:
        match kept:
            case ProviderRequest():
                self._reader = FrameReader(kept.wire, self.mask)
                return (Requested(kept.at, kept.wire, kept.model, kept.url, self._masked(kept.body)),)
            case Received():
                return self._reader.feed(kept.data, kept.at)
            case ResponseEnd():
                return self._reader.close(kept.at)
            case SentOn():
                return (SentEntry(kept.at, self._reader.number, shown_text(kept.data, self.mask), len(kept.data)),)
            case ClientRequest():
                return (Asked(kept.at, kept.wire, kept.model, self._masked(kept.body)),)
            case HealedEntry():
                return (msgspec.structs.replace(kept, frame=self._reader.number),)
            case _:
                return (kept,)

    def _masked(self, body: bytes) -> msgspec.Raw:
        """The body of a request with the secrets masked; one that is not JSON as a text."""
        try:
            value = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            value = body.decode("utf-8", "replace")
        return msgspec.Raw(msgspec.json.encode(self.mask.value(value)))

    def summary(self) -> Summary:
        """The exchange in a list."""
        asked = [entry for entry in self._kept if isinstance(entry, ClientRequest)]
        requests = [entry for entry in self._kept if isinstance(entry, ProviderRequest)]
        responses = [entry for entry in self._kept if isinstance(entry, Responded)]
        last = self._kept[-1] if self._kept else None
        is_read = self.is_over and self._read == len(self._kept)
        return Summary(
            id=self.id,
            began=self.began,
            seconds=last.at if last is not None else 0.0,
            wire=requests[-1].wire if requests else "",
            client_wire=asked[-1].wire if asked else "",
            model=(requests or asked)[-1].model if requests or asked else "",
            status=responses[-1].status if responses else 0,
            size=self.size,
            outcome=last.outcome if isinstance(last, Ended) else None,
            odd=sum(isinstance(entry, OddEntry) for entry in self._entries) if is_read else None,
            healed=sum(entry.count for entry in self._kept if isinstance(entry, HealedEntry)),
        )

    def recording(self) -> bytes:
        """The exchanges with the provider as a recording, which `replay:` models play, without error responses."""
        return b"".join(msgspec.json.encode(line) + b"\n" for line in self._lines())

    def _lines(self) -> Iterator[Line]:
        masked = self.mask.pieces([entry.data for entry in self._kept if isinstance(entry, Received)])
        request: RequestLine | None = None
        is_recorded = False
        for entry in self._kept:
            match entry:
                case ProviderRequest():
                    request = RequestLine(entry.wire, entry.model, entry.url, self._masked(entry.body))
                case Responded():
                    is_recorded = request is not None and entry.status < ERROR_STATUS
                    if is_recorded and request is not None:
                        yield request
                        yield ResponseLine(entry.at, entry.status, entry.headers)
                case Received():
                    line = data_line(entry.at, next(masked))
                    if is_recorded:
                        yield line
                case ResponseEnd() if is_recorded:
                    yield EndLine(entry.at)
                case _:
                    pass


class ExchangeRecorder:
    """Records the responses to one request and its retries, with the secrets of the request masked."""

    def __init__(self, exchange: InspectedExchange, wire: str, model: str, request: HTTPRequest) -> None:
        self._exchange = exchange
        exchange.mask.learn(request.headers, request.url)
        url = exchange.mask.text(without_secrets(request.url))
        self._request = ProviderRequest(exchange.now(), wire, model, url, request.body)
        self.status = 0  # HTTP status of the last response
        exchange.add(self._request)

    def hide(self, headers: Mapping[str, str]) -> None:
        """Mask the secrets of these headers too."""
        self._exchange.mask.learn(headers)

    def refuse(self, head: HTTPResponseHead, body: bytes) -> None:
        """Adds the provider's error response."""
        self.begin(head, 0, 0)
        self.add(body, 0)
        self._exchange.add(ResponseEnd(self._exchange.now()))

    def begin(self, head: HTTPResponseHead, start: float, now: float) -> None:
        """A response begins."""
        if self.status:
            self._exchange.add(msgspec.structs.replace(self._request, at=self._exchange.now()))
        self.status = head.status
        headers = {
            name.lower(): self._exchange.mask.text(value)
            for name, value in head.headers.items()
            if name.lower() in RECORDED_HEADERS
        }
        self._exchange.add(Responded(self._exchange.now(), head.status, headers))

    def add(self, data: bytes, now: float) -> None:
        """The response continues."""
        self._exchange.received(data)

    def end(self, now: float) -> None:
        """The response has ended."""
        self._exchange.add(ResponseEnd(self._exchange.now()))

    def close(self) -> None:
        """Ends the recording: no other response comes."""


def _size(entry: Kept) -> int:
    """How many bytes have to be read for an entry."""
    match entry:
        case Received() | SentOn():
            return len(entry.data)
        case ClientRequest() | ProviderRequest():
            return len(entry.body)
        case _:
            return 0
