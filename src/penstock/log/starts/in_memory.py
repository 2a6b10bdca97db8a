"""The requests of a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from msgspec.structs import replace

from penstock.log.starts.requests import StartRequest, StoredStart, key_taken


class MemoryStarts:
    """The requests of a store in memory, behind its lock."""

    def __init__(self, opened: Callable[[], AbstractContextManager[None]], clock: Callable[[], float]) -> None:
        self._opened = opened
        self._clock = clock
        self._starts: dict[str, StoredStart] = {}
        self._by_key: dict[tuple[str, str], str] = {}  # ids, by tenant and key
        self._by_caller: dict[tuple[str, str], dict[str, None]] = {}  # ids, by tenant and caller
        self._by_run: dict[str, list[str]] = {}

    # -- inside the lock of the store --------------------------------------------------------------------------------

    def check(self, run_id: str, *requests: StartRequest | StoredStart) -> None:
        """Raise a `KeyTakenError` if another run has the key of a request."""
        for request in requests:
            known = self._by_key.get((request.tenant, request.key)) if request.key else None
            if known is not None and self._starts[known].run_id != run_id:
                raise key_taken(request.key)

    def insert(self, request: StartRequest, run_id: str, seq: int) -> None:
        """Add a request, unless it is there."""
        if request.id in self._starts or (request.key and (request.tenant, request.key) in self._by_key):
            return
        now = self._clock()
        self.restore(StoredStart(
            id=request.id, tenant=request.tenant, key=request.key, caller=request.caller, body=request.body,
            run_id=run_id, seq=seq, at=now, open_until=now + request.seconds, answered=not request.seconds,
            is_open=False,
        ))  # fmt: skip

    def restore(self, *starts: StoredStart) -> None:
        """Add the rows of requests."""
        for start in starts:
            self._starts[start.id] = start
            if start.key:
                self._by_key[start.tenant, start.key] = start.id
            self._by_caller.setdefault((start.tenant, start.caller), {})[start.id] = None
            self._by_run.setdefault(start.run_id, []).append(start.id)

    def delete(self, run_id: str) -> None:
        """Delete the requests of a run."""
        for id in self._by_run.get(run_id, [])[:]:
            self._remove(id)

    def clear(self) -> None:
        for index in (self._starts, self._by_key, self._by_caller, self._by_run):
            index.clear()

    # -- the operations ------------------------------------------------------------------------------------------------

    def add(self, request: StartRequest, run_id: str, seq: int = 0) -> None:
        with self._opened():
            self.check(run_id, request)
            self.insert(request, run_id, seq)

    def find(self, id: str) -> StoredStart | None:
        with self._opened():
            return _row(self._starts, self._clock(), id)

    def find_key(self, tenant: str, key: str) -> StoredStart | None:
        with self._opened():
            return _row(self._starts, self._clock(), self._by_key.get((tenant, key), ""))

    def of_run(self, run_id: str) -> list[StoredStart]:
        with self._opened():
            rows = [
                row for id in self._by_run.get(run_id, ()) if (row := _row(self._starts, self._clock(), id)) is not None
            ]
        return sorted(rows, key=lambda row: (row.at, row.id))

    def unanswered(self, tenant: str, caller: str, limit: int = 20) -> list[StoredStart]:
        with self._opened():
            rows = [
                row
                for id in self._by_caller.get((tenant, caller), {})
                if (row := _row(self._starts, self._clock(), id)) is not None
            ]
        rows = [row for row in rows if not row.answered and not row.key]
        return sorted(rows, key=lambda row: (-row.at, row.id))[:limit]

    def renew(self, ids: Sequence[str], seconds: float) -> None:
        with self._opened():
            until = self._clock() + seconds
            for id in ids:
                row = self._starts.get(id)
                if row is not None and not row.answered:
                    self._starts[id] = replace(row, open_until=until)

    def reopen(self, start: StoredStart, seconds: float) -> bool:
        with self._opened():
            row = _row(self._starts, self._clock(), start.id)
            if row is None or row.answered or row.is_open or row.open_until != start.open_until:
                return False
            self._starts[row.id] = replace(row, open_until=self._clock() + seconds)
            return True

    def answer(self, id: str, *, only_lost: bool = False) -> bool:
        with self._opened():
            row = _row(self._starts, self._clock(), id)
            if row is None or row.answered or (only_lost and row.is_open):
                return False
            self._starts[id] = replace(row, answered=True)
            return True

    def remove(self, id: str) -> None:
        with self._opened():
            self._remove(id)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _remove(self, id: str) -> None:
        row = self._starts.pop(id, None)
        if row is None:
            return
        self._by_key.pop((row.tenant, row.key), None)
        _discard(self._by_caller, (row.tenant, row.caller), id)
        ids = self._by_run[row.run_id]
        ids.remove(id)
        if not ids:
            del self._by_run[row.run_id]


def _row(starts: Mapping[str, StoredStart], now: float, id: str) -> StoredStart | None:
    row = starts.get(id)
    return None if row is None else replace(row, is_open=row.open_until > now)


def _discard(index: dict[tuple[str, str], dict[str, None]], key: tuple[str, str], id: str) -> None:
    ids = index[key]
    del ids[id]
    if not ids:
        del index[key]
