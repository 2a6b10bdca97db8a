"""What a transport does with an exchange, without I/O: whether its response is healed, how, and the report of it."""

from __future__ import annotations

from typing import Any

from penstock.heal.requests import read_request
from penstock.heal.response import HealedBody, HealReport, OnHealed, ResponseHealing
from penstock.heal.stream import HealedStream
from penstock.healing.report import RESCUED_HEADER, rescued_ids
from penstock.healing.settings import Healing
from penstock.loggers import get_logger
from penstock.wires import find_response_frames

_logger = get_logger("penstock.heal")

EVENT_STREAM = "text/event-stream"
_STREAMS = (EVENT_STREAM, "application/x-ndjson", "application/ndjson", "application/jsonl")
_WHOLE = "application/json"


class Healer:
    """The settings of a transport: what is healed, and who gets the reports."""

    def __init__(self, healing: Healing | None = None, on_healed: OnHealed | None = None) -> None:
        self.healing = healing or Healing()
        self._on_healed = on_healed

    def begin(
        self,
        method: str,
        path: str,
        query: str,
        body: bytes | None,
        status: int,
        content_type: str,
        user_agent: str = "",
    ) -> HealedExchange | None:
        """The healing of a response; None if the response passes unchanged."""
        kind = content_type.partition(";")[0].strip().lower()
        if status != 200 or body is None or kind not in (*_STREAMS, _WHOLE):
            return None
        try:
            if (request := read_request(method, path, query, body, user_agent)) is None:
                return None
            return HealedExchange(self, ResponseHealing(request, self.healing), path, kind)
        except Exception as error:  # noqa: BLE001  # a fault in healing must not end the user's response
            self.report(failure(path, error))
            return None

    def report(self, report: HealReport) -> None:
        """Pass on a report, if there is anything to report."""
        if report.problem:
            _logger.warning("a response of %s was passed on as it came: %s", report.path, report.problem)
        if self._on_healed is not None and (report.healed or report.problem):
            try:
                self._on_healed(report)
            except Exception:  # the callback is the user's
                _logger.exception("on_healed failed")


def failure(path: str, error: Exception) -> HealReport:
    """The report of a fault outside of the stages."""
    return HealReport(path=path, wire="", problem=f"{type(error).__name__}: {error}")


class HealedExchange:
    """One response that is healed: a stage from bytes to bytes."""

    def __init__(self, healer: Healer, healing: ResponseHealing, path: str, content_type: str) -> None:
        self._healer = healer
        self._healing = healing
        self._path = path
        self._is_reported = False
        is_stream = content_type in _STREAMS or content_type == self._stream_type
        self.is_streaming = healing.request.is_streaming
        self.stage: HealedStream | HealedBody = (
            HealedStream(healing, is_stream=is_stream) if self.is_streaming else HealedBody(healing)
        )

    @property
    def _stream_type(self) -> str:
        return find_response_frames(self._healing.request.wire).format.content_type.partition(";")[0]

    @property
    def content_type(self) -> str:
        """The content type of the healed response."""
        return self._stream_type if self.is_streaming else _WHOLE

    @property
    def rescued(self) -> str:
        """The ids of the calls that were found in the text so far."""
        return rescued_ids(self._healing.report)

    def end(self) -> list[bytes]:
        """The last bytes of the body, which has ended, if there are any."""
        rest = self.stage.close()
        self.report()
        return [rest] if rest else []

    def break_off(self) -> list[bytes]:
        """What is held of a body whose connection broke, as it came, if there is anything."""
        held = self.stage.held()
        return [held] if held else []

    def report(self) -> None:
        """Report what was healed, once."""
        if self._is_reported:
            return
        self._is_reported = True
        try:
            report = self._healing.build(self._path, self.stage.problem)
        except Exception as error:  # noqa: BLE001  # see `Healer.begin`
            report = failure(self._path, error)
        self._healer.report(report)


DROPPED = (b"content-length", b"content-encoding", b"content-type")
"""The headers of a healed response that do not hold for its new body."""


def healed_headers(headers: list[tuple[bytes, bytes]], exchange: HealedExchange) -> list[tuple[bytes, bytes]]:
    """The headers of a healed response: those of the server, except for what describes its body.

    One that is not streamed also names the calls that were found in its text.
    """
    kept = [(name, value) for name, value in headers if name.lower() not in DROPPED[:2]]
    if rescued := exchange.rescued:
        kept.append((RESCUED_HEADER.encode(), rescued.encode()))
    types = [value for name, value in kept if name.lower() == DROPPED[2]]
    if any(value.partition(b";")[0].strip().lower() == exchange.content_type.encode() for value in types):
        return kept
    return [(name, value) for name, value in kept if name.lower() != DROPPED[2]] + [
        (DROPPED[2], exchange.content_type.encode())
    ]


def body_of(request: Any, library: Any) -> bytes | None:
    """The body of a request, if it is in memory as it was written; that of a redirected one is not read yet."""
    if request.headers.get("content-encoding"):
        return None
    try:
        content: bytes = request.content
    except library.RequestNotRead:
        return b"".join(request.stream) if isinstance(request.stream, library.ByteStream) else None
    return content
