"""Recent reports of healing, by request id."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from penstock.gateway.attempts import Attempt
from penstock.healing.report import Healed, RescuedCall

MAX_KEPT = 1_000
"""How many requests are remembered."""


class HealedResponse(Struct, frozen=True, kw_only=True):
    """The report of a request: its upstreams, and what was healed, passed on unchanged, or dropped.

    `upstream` and `answered_by` are the upstream and the model that answered, and `calls` how it was asked for calls;
    `problem` says why it failed. `rescued` are the calls that were found in the text.
    """

    id: str
    path: str
    model: str
    upstream: str = ""
    answered_by: str = ""
    calls: str = ""
    status: int = 0
    problem: str = ""
    asked: Sequence[Attempt] = ()
    healed: Sequence[Healed] = ()
    notes: Sequence[str] = ()
    dropped: Sequence[str] = ()
    rescued: Sequence[RescuedCall] = ()


class HealedResponses:
    """The last requests."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, HealedResponse] = OrderedDict()

    def add(self, response: HealedResponse) -> None:
        self._kept[response.id] = response
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def find(self, id: str) -> HealedResponse | None:
        return self._kept.get(id)

    def last(self, count: int) -> list[HealedResponse]:
        """The last requests, the newest first."""
        return [*reversed(self._kept.values())][:count]
