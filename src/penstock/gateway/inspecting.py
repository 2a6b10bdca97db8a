"""Shows the requests of a gateway in the inspector: received bytes, sent bytes, and healed quirks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from penstock.gateway.healed import HealedResponse
from penstock.gateway.watch.prompt_cache import CacheReport
from penstock.inspector.entries import Outcome
from penstock.inspector.exchange import InspectedExchange
from penstock.inspector.inspections import Inspections
from penstock.model.recording import FileRecorder
from penstock.transport.commands import HTTPRequest, HTTPResponseHead
from penstock.transport.exchange import Recorder

Target = str | Path | IO[bytes]
"""What a recording is written to."""


class InspectedCall:
    """One request as the inspector shows it; without an inspector, nothing is kept."""

    def __init__(self, inspections: Inspections | None, id: str, file: Target | None) -> None:
        self._exchange = None if inspections is None else inspections.open(id)
        self._file = file
        self._end: Outcome | None = None
        self._body = b""  # the body of the client's request, until `ask`

    @property
    def record(self) -> Any:
        """The recorder of the exchanges with upstreams."""
        if self._exchange is None:
            return self._file
        return self._exchange if self._file is None else TwoRecords(self._exchange, self._file)

    @property
    def keep(self) -> Callable[[bytes], None] | None:
        """The callback for the body of the client's request; None if nothing is inspected."""
        return None if self._exchange is None else self._keep

    def _keep(self, body: bytes) -> None:
        self._body = body

    def ask(self, wire: str, model: str, headers: Mapping[str, str]) -> None:
        """Record the client's request, whose body was kept."""
        body, self._body = self._body, b""
        if self._exchange is not None:
            self._exchange.asked(wire, model, body, headers)

    def send(self, data: bytes) -> None:
        """Record bytes sent to the client."""
        if self._exchange is not None:
            self._exchange.sent(data)

    @property
    def shows(self) -> Callable[[bytes], None] | None:
        """The callback for bytes sent to the client; None if nothing is inspected."""
        return None if self._exchange is None else self._exchange.sent

    def report_cache(self, report: CacheReport) -> None:
        """Record how the prompt compares with the previous one of its conversation."""
        if self._exchange is not None:
            self._exchange.cache(report.text, report.cached, report.total, is_changed=report.is_changed)

    def leave(self) -> None:
        """Record that the client disconnected."""
        self._end = "left"

    def end(self, response: HealedResponse, problem: str) -> None:
        """Record the end of the request."""
        if self._exchange is not None:
            for healed in response.healed:
                self._exchange.healed(healed.quirk, healed.what, healed.count)
            for note in response.notes:
                self._exchange.note(note)
            if response.dropped:
                self._exchange.note(f"left out of the request: {'; '.join(response.dropped)}")
            self._exchange.end(self._end or ("failed" if problem else "complete"), problem)


class TwoRecords(Struct, frozen=True):
    """The inspector and a file: both record the exchanges with an upstream."""

    exchange: InspectedExchange
    file: Target

    def recorder(self, wire: str, model: str, request: HTTPRequest) -> Recorder:
        file = FileRecorder(self.file, wire, model, request)
        return TwoRecorders((self.exchange.recorder(wire, model, request), file))


class TwoRecorders(Struct, frozen=True):
    """Recorders of one exchange."""

    recorders: tuple[Recorder, ...]

    def hide(self, headers: Mapping[str, str]) -> None:
        for recorder in self.recorders:
            recorder.hide(headers)

    def refuse(self, head: HTTPResponseHead, body: bytes) -> None:
        for recorder in self.recorders:
            recorder.refuse(head, body)

    def begin(self, head: HTTPResponseHead, start: float, now: float) -> None:
        for recorder in self.recorders:
            recorder.begin(head, start, now)

    def add(self, data: bytes, now: float) -> None:
        for recorder in self.recorders:
            recorder.add(data, now)

    def end(self, now: float) -> None:
        for recorder in self.recorders:
            recorder.end(now)

    def close(self) -> None:
        for recorder in self.recorders:
            recorder.close()
