"""Requests that are sent again: a request with the same `Idempotency-Key` joins the run that the first one started.

The key, a digest of the body and the run are in the log, so that keys hold for all servers of a log, and after a crash.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from penstock.asgi.access import shown_key
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.log.starts.requests import KeyTakenError, StartRequest, StoredStart
from penstock.log.store_retries import awith_retries
from penstock.serve.hosting import Host

KEY_HEADER = "idempotency-key"
MAX_KEY = 255
"""How many characters a key may have."""
JOINED = {"idempotent-replayed": "true"}
"""The header of a response that belongs to an earlier request."""


class Started(Struct, frozen=True):
    """The run of a request. It `is_joined` if an earlier request with the same key has started it."""

    run_id: str
    is_joined: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        return {"x-run-id": self.run_id, **(JOINED if self.is_joined else {})}


def read_key(request: HTTPRequest) -> str:
    """The key of a request; empty if it has none."""
    keys = request.values(KEY_HEADER)
    if not keys:
        return ""
    [key, *others] = keys
    if others or not 0 < len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        problem = f"send one Idempotency-Key of at most {MAX_KEY} printable ASCII characters"
        raise RejectedRequest(400, "invalid_key", problem)
    return key


def start_request(request: HTTPRequest, body: Any, tenant: str, seconds: float = 0.0) -> StartRequest:
    """What the log keeps of a request: bodies with the same JSON values are the same, whatever their layout."""
    text = msgspec.json.encode(
        [request.path, request.scope.get("query_string", b"").decode("latin-1"), body], order="sorted"
    )
    digest = hashlib.sha256(text).hexdigest()
    caller = hashlib.sha256(f"{digest} {shown_key(request)}".encode("utf-8", "surrogatepass")).hexdigest()
    return StartRequest(
        id=uuid.uuid4().hex, tenant=tenant, key=read_key(request), caller=caller, body=digest, seconds=seconds
    )


def keyed_request(request: HTTPRequest, body: Any, tenant: str) -> StartRequest | None:
    """What the log keeps of a request with a key; None if it has none."""
    return start_request(request, body, tenant) if read_key(request) else None


async def find_start(host: Host, request: StartRequest | None) -> StoredStart | None:
    """The earlier request with the key of this one; a `RejectedRequest` if its body was another."""
    if request is None or not request.key:
        return None
    start = await awith_retries(partial(host.store.starts.find_key, request.tenant, request.key))
    if start is not None and await awith_retries(partial(host.store.find, start.run_id)) is None:
        await awith_retries(partial(host.store.starts.remove, start.id))  # an earlier version has deleted its run
        return None
    if start is not None and start.body != request.body:
        why = "the Idempotency-Key was used for another request: send a new key, or the same body"
        raise RejectedRequest(409, "key_reused", why, {"x-run-id": start.run_id})
    return start


async def start_once(host: Host, request: StartRequest | None, start: Callable[[], Awaitable[str]]) -> Started:
    """The run with the key of a request, or else the one that `start` starts, which returns its id."""
    if (joined := await _join(host, request)) is not None:
        return joined
    try:
        return Started(await start())
    except (KeyTakenError, RejectedRequest) as error:
        # The same request may have been sent twice at once, and the other one have started the run meanwhile.
        if (joined := await _join(host, request)) is not None:
            return joined
        if isinstance(error, KeyTakenError):
            raise key_in_use() from None
        raise


async def _join(host: Host, request: StartRequest | None) -> Started | None:
    known = await find_start(host, request)
    if known is None:
        return None
    await resume_ready(host, known)
    return Started(known.run_id, is_joined=True)


async def resume_ready(host: Host, start: StoredStart) -> None:
    """Drive the run of a request if nobody does: the server that created it may have died since."""
    row = await host.find(start.run_id, start.tenant)
    if row.state == "ready":
        host.driven.drive(row.id, row.tenant)


def key_in_use() -> RejectedRequest:
    """The rejection of a key whose run is being deleted at this moment."""
    return RejectedRequest(409, "key_in_use", "the run with this Idempotency-Key is being deleted: try again")
