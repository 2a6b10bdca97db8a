"""Fallbacks: asks one upstream after the other, until one starts a response.

Circuits: an upstream that fails again and again is not asked for a while.

| state | meaning | next |
|---|---|---|
| closed | requests are sent | open, after FAILURES failures in a row |
| open | others are asked instead | half-open, after OPEN_SECONDS |
| half-open | one request is sent as a probe | closed if it succeeds, else open |

A response succeeds when it ends well. One that has begun lets requests through again, and the next failure opens the
circuit. A circuit only chooses between upstreams: the only upstream of a request is always asked.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailed,
    ContextLengthError,
    MissingKeyError,
    NotFoundError,
    ProviderError,
    UnexpectedReplyError,
    UsageError,
)
from penstock.gateway.asking import Caller
from penstock.gateway.attempts import Attempts
from penstock.gateway.routing import Candidate
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger

logger = get_logger("penstock.gateway")

T = TypeVar("T")
FAILURES = 3
OPEN_SECONDS = 15.0


class Circuit:
    """The circuit of one upstream."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether requests should go to another upstream."""
        return self._failures >= FAILURES and self._clock() < self._open_until

    def begin(self) -> None:
        """Count a request. In a half-open circuit it is the probe, and others go elsewhere meanwhile."""
        if self._failures >= FAILURES:
            self._open_until = self._clock() + OPEN_SECONDS

    def answers(self) -> None:
        """The upstream has started a response, which may still break off."""
        self._failures = min(self._failures, FAILURES - 1)

    def succeeded(self) -> None:
        """The upstream has answered."""
        self._failures = 0

    def failed(self, seconds: float | None = None) -> None:
        """The upstream has failed; `seconds` is the pause that it asked for, if any."""
        self._failures += 1
        if self._failures >= FAILURES:
            self._open_until = self._clock() + max(OPEN_SECONDS, seconds or 0.0)


class Circuits:
    """The circuits of all upstreams, by name. An upstream that got another URL begins with a closed circuit."""

    def __init__(self) -> None:
        self.clock = time.monotonic
        self._circuits: dict[str, tuple[str, Circuit]] = {}

    def of(self, candidate: Candidate) -> Circuit:
        """The circuit of the upstream of a candidate."""
        name, url = candidate.upstream.name, candidate.upstream.url
        known, circuit = self._circuits.get(name, ("", None))
        if circuit is None or known != url:
            circuit = Circuit(self.clock)
            self._circuits[name] = url, circuit
        return circuit

    def in_order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates in order; those with an open circuit only if there is no other."""
        return [candidate for candidate in candidates if not self.of(candidate).is_open] or list(candidates)


class MissingEndpoint(UsageError):
    """An upstream does not have the endpoint of a request; another one may have it."""


def choose(candidates: Sequence[Candidate], circuits: Circuits, attempts: Attempts) -> list[Candidate]:
    """The candidates to ask; the others are noted."""
    chosen = circuits.in_order(candidates)
    for candidate in candidates:
        if candidate not in chosen:
            attempts.ask(candidate, "not asked: it failed several times in a row")
    return chosen


async def first_response(
    candidates: Sequence[Candidate],
    open_one: Callable[[Candidate, bool], Awaitable[T]],
    caller: Caller,
    circuits: Circuits,
    attempts: Attempts,
) -> T:
    """The response of the first candidate that starts one; if none does, raises the last one's error.

    `open_one` gets a candidate, and whether there is a fallback for it.
    """
    for number, candidate in enumerate(candidates, 1):
        circuit, is_last = circuits.of(candidate), number == len(candidates)
        attempts.ask(candidate)
        try:
            response = await open_one(candidate, not is_last)
        except (ProviderError, MissingKeyError, MissingEndpoint) as error:
            if isinstance(error, ProviderError) and is_fault_of_upstream(error):
                circuit.failed(error.retry_after)
                if caller.servers is not None:  # it may come back with other settings
                    caller.servers.expire(candidate, caller.key)
            attempts.fail(str(error))
            if isinstance(error, UnexpectedReplyError) and error.location:
                logger.warning("request %s: %s redirects to %s", caller.id, candidate.upstream.name, error.location)
            if is_last or not may_fall_over(error):
                raise
            name, why = candidate.upstream.name, one_line(str(error))
            logger.warning("request %s: %s failed, another is asked: %s", caller.id, name, why)
        else:
            circuit.answers()
            return response
    raise ConnectionFailed("there is no upstream to ask")


def is_fault_of_upstream(error: ProviderError) -> bool:
    """Whether an error is the fault of the upstream, and not of the request."""
    return not isinstance(error, BadRequestError | AuthenticationError | NotFoundError)


def may_fall_over(error: ProviderError | UsageError) -> bool:
    """Whether a fallback may help: not for an invalid request, unless it is only too long for this upstream."""
    return not isinstance(error, BadRequestError) or isinstance(error, ContextLengthError)
