"""How the calls of a model are asked for: natively, in its text, or, with `auto`, as its server turned out to need it.

With `auto`, calls are asked for natively first. If the server refuses tools, or its own parser fails, the calls of that
model are asked for in its dialect from then on, and if the parser fails in that text too, in XML, which it does not
look for. Until a way has given its first call, it is not proven, and responses are held back, so that a client gets
nothing of one that fails.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from penstock.errors import ProviderError, UsageError
from penstock.gateway.config.settings import AUTO, NATIVE
from penstock.gateway.routing import Candidate
from penstock.model.text_calls import dialect_of
from penstock.transport.error_responses import is_parser_failure, refuses_tools

LAST = "xml"
"""The dialect after the model's own: its marks are those of no parser of a local server."""
MAX_LEARNED = 1_000
"""For how many models the way to ask for calls is remembered."""


class Way(Struct, frozen=True):
    """A way to ask for calls: `native`, `raw` or a dialect; `reason` is the error that led to it."""

    calls: str = NATIVE
    is_proven: bool = False
    reason: str = ""


class LearnedCalls:
    """The ways to ask for calls that the models of all upstreams need, as far as they are known."""

    def __init__(self) -> None:
        self._ways: OrderedDict[tuple[str, str, str], Way] = OrderedDict()

    def of(self, candidate: Candidate) -> Way:
        """The way to ask a candidate for calls."""
        if candidate.calls != AUTO:
            return Way(candidate.calls, is_proven=True)
        return self._ways.get(_place(candidate), Way())

    def prove(self, candidate: Candidate, way: Way) -> None:
        """A candidate has made a call after a request that was sent in this way."""
        if candidate.calls == AUTO and self.of(candidate) == way:  # else another request has found a better one
            self._keep(candidate, Way(way.calls, is_proven=True, reason=way.reason))

    def fail(self, candidate: Candidate, way: Way, error: str) -> bool:
        """Learn from the error of a request that was sent in this way; returns whether there is another one.

        Raises a `UsageError` if the dialect of the model is needed and not known.
        """
        if candidate.calls != AUTO or not may_switch(error):
            return False
        if (current := self.of(candidate)).calls != way.calls:  # another request was faster
            return True
        if current.calls == LAST or (current.calls != NATIVE and not is_parser_failure(error)):
            return False
        self._keep(candidate, Way(dialect_of(candidate.model) if current.calls == NATIVE else LAST, reason=error))
        return True

    def _keep(self, candidate: Candidate, way: Way) -> None:
        self._ways[_place(candidate)] = way
        while len(self._ways) > MAX_LEARNED:
            self._ways.popitem(last=False)


def may_switch(error: str) -> bool:
    """Whether an error says that calls have to be asked for in another way."""
    return refuses_tools(error) or is_parser_failure(error)


def with_advice(error: ProviderError, advice: UsageError) -> ProviderError:
    """The error of a server, with what to do about it."""
    fields = {key: value for key, value in vars(error).items() if key != "message"}
    return type(error)(f"{error.message} ({advice})", **fields)


def _place(candidate: Candidate) -> tuple[str, str, str]:
    upstream = candidate.upstream
    return upstream.name, upstream.url, candidate.model
