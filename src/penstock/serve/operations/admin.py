"""The page of an operator: all runs of the log, who drives them, one run's timeline, cancel and retry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, cast, get_args

import msgspec

from penstock.asgi.access import Access
from penstock.asgi.page import Page
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.asgi.response import respond_json
from penstock.asgi.routes import Route, Routes
from penstock.asgi.sending import Sender
from penstock.log.store import RunPhase, RunRow, Store
from penstock.log.store_retries import awith_retries
from penstock.loggers import get_logger
from penstock.runs.bulk import RETRIABLE, retry_run
from penstock.runs.runs import Runs
from penstock.serve.operations.log_watch import COUNT_SECONDS, Cached
from penstock.serve.operations.timeline import timeline_of
from penstock.serve.runs.bodies import MAX_ID

logger = get_logger("penstock.serve")

PREFIX = "/admin"
COOKIE = "penstock_admin"
LISTED = 100
"""How many runs a list has."""

WHY = "an operator cancelled the run"

Endpoint = Callable[[HTTPRequest, Sender, Mapping[str, str]], Awaitable[None]]


@cache
def _page() -> Page:
    return Page(files("penstock.serve.operations") / "page", files("penstock.serve") / "page")


class Admin:
    """The paths below `/admin`, for those who have the token of operators. They see the runs of all tenants."""

    def __init__(self, store: Store, runs: Runs, access: Access) -> None:
        self._store = store
        self._runs = runs
        self._access = access
        self._summary = Cached(self._summarize, COUNT_SECONDS / 2)
        api = f"{PREFIX}/api"
        self._routes: Routes[Endpoint] = Routes(
            Route("POST", f"{PREFIX}/session", self._open_session),
            Route("DELETE", f"{PREFIX}/session", self._end_session),
            Route("GET", f"{api}/summary", self._show_summary),
            Route("GET", f"{api}/runs", self._list_runs),
            Route("GET", f"{api}/runs/{{id}}", self._show_run),
            Route("POST", f"{api}/runs/{{id}}/cancel", self._cancel_run),
            Route("POST", f"{api}/runs/{{id}}/retry", self._retry_run),
        )

    async def route(self, request: HTTPRequest, send: Sender) -> None:
        """Answer a request below `/admin`, or raise."""
        if request.path.rstrip("/") == PREFIX and request.method in ("GET", "HEAD"):
            self._access.check_place(request)
            await _page().respond(request, send)  # which has no data
            return
        await self._access.tenant_of(request)
        route, parts = self._routes.find(request)
        await route.endpoint(request, send, parts)

    async def _open_session(self, request: HTTPRequest, send: Sender, _: Mapping[str, str]) -> None:
        cookie = {"set-cookie": self._access.session_cookie(request)}
        await respond_json(request, send, {"status": "ok"}, headers=cookie)

    async def _end_session(self, request: HTTPRequest, send: Sender, _: Mapping[str, str]) -> None:
        cookie = {"set-cookie": self._access.end_session(request)}
        await respond_json(request, send, {"status": "ok"}, headers=cookie)

    async def _show_summary(self, request: HTTPRequest, send: Sender, _: Mapping[str, str]) -> None:
        """Counts, workers and the size of the log, a few seconds old."""
        try:
            summary = await self._summary.get()
        except TimeoutError:
            raise RejectedRequest(
                503, "store_failed", "the log of runs does not answer", {"retry-after": "5"}
            ) from None
        await respond_json(request, send, summary)

    async def _list_runs(self, request: HTTPRequest, send: Sender, _: Mapping[str, str]) -> None:
        """The newest runs, of all tenants or one, in a state, of an agent, or with the beginning of an id."""
        query = {name: value for name, value in request.query.items() if value}
        state = query.get("state")
        if state is not None and state not in get_args(RunPhase):
            raise RejectedRequest(400, "invalid_request", "state must be one of: " + ", ".join(get_args(RunPhase)))
        names: dict[str, Any] = {name: _text(query[name]) for name in ("agent", "tenant", "prefix") if name in query}
        rows = await awith_retries(
            partial(self._store.list, state=cast("RunPhase | None", state), limit=LISTED + 1, **names)
        )
        await respond_json(request, send, {"runs": rows[:LISTED], "has_more": len(rows) > LISTED})

    async def _show_run(self, request: HTTPRequest, send: Sender, parts: Mapping[str, str]) -> None:
        row = await self._find(parts["id"])
        timeline = await awith_retries(partial(timeline_of, self._store, row))
        await respond_json(request, send, {"run": row, "timeline": timeline})

    async def _cancel_run(self, request: HTTPRequest, send: Sender, parts: Mapping[str, str]) -> None:
        row = await self._find(parts["id"])
        if row.state == "over":
            raise RejectedRequest(409, "run_over", "the run is over")
        is_new = await self._runs.acancel(row.id, WHY)
        self._note("cancelled", row, request)
        await respond_json(request, send, {"changed": is_new}, 202)

    async def _retry_run(self, request: HTTPRequest, send: Sender, parts: Mapping[str, str]) -> None:
        row = await self._find(parts["id"])
        if row.state not in RETRIABLE:
            raise RejectedRequest(409, "not_parked", f"only a parked or damaged run can be retried: it is {row.state}")
        is_changed = await awith_retries(partial(retry_run, self._store, row))
        self._note("retried" if is_changed else "could not retry", row, request)
        if not is_changed:
            raise RejectedRequest(409, "still_damaged", "the log of the run cannot be read: restore it from a backup")
        await respond_json(request, send, {"changed": True}, 202)

    async def _find(self, run_id: str) -> RunRow:
        row = await awith_retries(partial(self._store.find, _text(run_id)))
        if row is None:
            raise RejectedRequest(404, "unknown_run", "there is no such run")
        return row

    def _note(self, verb: str, row: RunRow, request: HTTPRequest) -> None:
        fields = {"run": row.id, "tenant": row.tenant, "agent": row.agent, "client": request.client}
        logger.warning("operator at %s %s the run %s", request.client, verb, row.id, extra={"fields": fields})

    def _summarize(self) -> dict[str, Any]:
        survey = self._store.survey
        return {
            "counts": msgspec.to_builtins(survey.counts()),
            "workers": msgspec.to_builtins(survey.workers()),
            "size": survey.size(),
        }


def _text(value: str) -> str:
    """A name from a request; a `RejectedRequest` if no log has such a name."""
    if len(value) > MAX_ID or not value.isprintable():
        raise RejectedRequest(400, "invalid_request", f"names have at most {MAX_ID} printable characters")
    return value
