"""The requests of a log in PostgreSQL. Each operation is one statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.log.postgres.statements import NOW
from penstock.log.starts.requests import FIELDS, StartRequest, StoredStart, key_taken, start_of

_VALUES = f"""
    SELECT %(start_id)s, %(start_tenant)s, %(key)s, %(caller)s, %(request_body)s, %(id)s, %(start_seq)s, at,
        at + %(seconds)s::float8, %(seconds)s::float8 = 0 FROM (SELECT {NOW} AS at) AS clock
"""
INSERT = f"""
INSERT INTO {{schema}}.starts ({FIELDS}) {_VALUES}
ON CONFLICT DO NOTHING
"""
STARTED = f"""
    started AS (
        {INSERT.replace("ON CONFLICT", "WHERE NOT EXISTS (SELECT FROM {schema}.runs WHERE id = %(id)s) ON CONFLICT")}
        RETURNING run_id
    ),
"""
"""The part of a statement that adds a request with a new run: not if another run has its key."""

_ROWS = f"SELECT {FIELDS}, open_until > {NOW} FROM {{schema}}.starts WHERE "
_FIND = f"{_ROWS} id = %(id)s"
_FIND_KEY = f"{_ROWS} tenant = %(tenant)s AND key = %(key)s AND key <> ''"
_OF_RUN = f"{_ROWS} run_id = %(id)s ORDER BY at, id"
_UNANSWERED = f"""
{_ROWS} tenant = %(tenant)s AND caller = %(caller)s AND NOT answered AND key = '' ORDER BY at DESC, id LIMIT %(limit)s
"""
_RENEW = f"""
UPDATE {{schema}}.starts SET open_until = {NOW} + %(seconds)s::float8 WHERE id = ANY (%(ids)s) AND NOT answered
"""
_REOPEN = f"""
UPDATE {{schema}}.starts SET open_until = {NOW} + %(seconds)s::float8
WHERE id = %(id)s AND NOT answered AND open_until = %(open_until)s AND open_until <= {NOW} RETURNING id
"""
_ANSWER = f"""
UPDATE {{schema}}.starts SET answered = true
WHERE id = %(id)s AND NOT answered AND (NOT %(only_lost)s::bool OR open_until <= {NOW}) RETURNING id
"""
_REMOVE = "DELETE FROM {schema}.starts WHERE id = %(id)s"


def values_of(request: StartRequest, seq: int = 0) -> dict[str, Any]:
    """The values of a request for `INSERT` and `STARTED`, without the id of its run."""
    return {
        "start_id": request.id, "start_tenant": request.tenant, "key": request.key, "caller": request.caller,
        "request_body": request.body, "start_seq": seq, "seconds": request.seconds,
    }  # fmt: skip


class PostgresStarts:
    """The requests of a database; `execute` is that of its store."""

    def __init__(self, execute: Callable[..., list[tuple[Any, ...]]]) -> None:
        self._execute = execute

    def add(self, request: StartRequest, run_id: str, seq: int = 0) -> None:
        self._execute(INSERT, id=run_id, **values_of(request, seq))
        if self.is_taken(request, run_id):
            raise key_taken(request.key)

    def is_taken(self, request: StartRequest | StoredStart, run_id: str) -> bool:
        """Whether another run has the key of a request."""
        known = self.find_key(request.tenant, request.key) if request.key else None
        return known is not None and known.run_id != run_id

    def find(self, id: str) -> StoredStart | None:
        return next(map(start_of, self._execute(_FIND, id=id)), None)

    def find_key(self, tenant: str, key: str) -> StoredStart | None:
        return next(map(start_of, self._execute(_FIND_KEY, tenant=tenant, key=key)), None)

    def of_run(self, run_id: str) -> list[StoredStart]:
        return [start_of(row) for row in self._execute(_OF_RUN, id=run_id)]

    def unanswered(self, tenant: str, caller: str, limit: int = 20) -> list[StoredStart]:
        return [start_of(row) for row in self._execute(_UNANSWERED, tenant=tenant, caller=caller, limit=limit)]

    def renew(self, ids: Sequence[str], seconds: float) -> None:
        self._execute(_RENEW, ids=[*ids], seconds=seconds)

    def reopen(self, start: StoredStart, seconds: float) -> bool:
        return bool(self._execute(_REOPEN, id=start.id, open_until=start.open_until, seconds=seconds))

    def answer(self, id: str, *, only_lost: bool = False) -> bool:
        return bool(self._execute(_ANSWER, id=id, only_lost=only_lost))

    def remove(self, id: str) -> None:
        self._execute(_REMOVE, id=id)
