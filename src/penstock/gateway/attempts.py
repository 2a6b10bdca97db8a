"""The upstreams tried for a request, in order, and why some failed."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from penstock.gateway.routing import Candidate


class Attempt(Struct, frozen=True, omit_defaults=True):
    """An upstream that was tried or skipped; `failure` says why it did not answer."""

    upstream: str
    model: str
    failure: str = ""


class Attempts:
    """The attempts to answer one request so far."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Attempt] = []

    @property
    def answered(self) -> int:
        """How many requests got a response: more than one if the response to the client was continued."""
        return sum(not attempt.failure for attempt in self.entries)

    def ask(self, candidate: Candidate, failure: str = "") -> None:
        """Add a candidate that is tried, or skipped for this reason."""
        self.entries.append(Attempt(candidate.upstream.name, candidate.model, failure))

    def fail(self, failure: str) -> None:
        """Mark the last candidate as failed."""
        self.entries[-1] = replace(self.entries[-1], failure=failure)
