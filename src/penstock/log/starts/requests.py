"""The requests that start runs: what a store keeps of them, and its operations.

A store has one row per request, in the table `starts`. The row is added with the run, in one transaction, and deleted
with it. A server that writes the response of a request keeps its row open; when the connection is lost, or the server
dies, the row is no longer open, and the next request of the same client may take the response over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.errors import UsageError


class StartRequest(Struct, frozen=True, kw_only=True):
    """A request that starts a run, or continues one.

    A tenant has one run per `key`. `body` is a digest of the request, `caller` one of the request and its sender. A
    server that writes the response at once keeps the row open for `seconds` at a time; 0 if there is no such response.
    """

    id: str
    tenant: str = ""
    key: str = ""
    caller: str = ""
    body: str = ""
    seconds: float = 0.0


class StoredStart(Struct, frozen=True, kw_only=True):
    """The row of a request. Its response has the events of the run after the number `seq`.

    `open_until` is in seconds since 1970, by the clock of the store, which also says whether the row `is_open`. The
    request was `answered` when its client got the whole response, or nobody may take it over any more.
    """

    id: str
    tenant: str
    key: str
    caller: str
    body: str
    run_id: str
    seq: int
    at: float
    open_until: float
    answered: bool
    is_open: bool


def stored_start(request: StartRequest) -> StoredStart:
    """The row of a request without a response, for `Store.add`, which sets its run."""
    return StoredStart(
        id=request.id, tenant=request.tenant, key=request.key, caller=request.caller, body=request.body, run_id="",
        seq=0, at=time.time(), open_until=0.0, answered=True, is_open=False,
    )  # fmt: skip


COLUMNS = tuple(name for name in StoredStart.__struct_fields__ if name != "is_open")
FIELDS = ", ".join(COLUMNS)
"""The columns of a row, as SQL."""


def start_of(values: Sequence[Any]) -> StoredStart:
    """The row with the values of `FIELDS`, and whether it is open."""
    *others, answered, is_open = values
    row = dict(zip(StoredStart.__struct_fields__, others, strict=False))
    return StoredStart(**row, answered=bool(answered), is_open=bool(is_open))


class KeyTakenError(UsageError):
    """The tenant has another run with the same key."""


def key_taken(key: str) -> KeyTakenError:
    """The error for a key that another run has."""
    return KeyTakenError(f"another run was started with the key {key!r}")


class Starts(Protocol):
    """The requests in a store. All operations raise a `StoreError` if the store fails."""

    def add(self, request: StartRequest, run_id: str, seq: int = 0) -> None:
        """Add a request that an existing run answers after an event; a `KeyTakenError` if another run has its key."""
        ...

    def find(self, id: str) -> StoredStart | None:
        """The request with this id."""
        ...

    def find_key(self, tenant: str, key: str) -> StoredStart | None:
        """The request of a tenant with this key."""
        ...

    def of_run(self, run_id: str) -> list[StoredStart]:
        """The requests of a run."""
        ...

    def unanswered(self, tenant: str, caller: str, limit: int = 20) -> list[StoredStart]:
        """The requests of a caller without a key that were not answered, the newest first."""
        ...

    def renew(self, ids: Sequence[str], seconds: float) -> None:
        """Keep rows that were not answered open for some seconds; 0 if their connections are lost."""
        ...

    def reopen(self, start: StoredStart, seconds: float) -> bool:
        """Open a row for another connection; False if it is open, was answered, or has changed since it was read."""
        ...

    def answer(self, id: str, *, only_lost: bool = False) -> bool:
        """Mark a request as answered; False if it was. With `only_lost`, it stays as it is while its row is open."""
        ...

    def remove(self, id: str) -> None:
        """Remove a request that has no run."""
        ...
