"""The app of a worker: metrics and probes, on a port of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.asgi.access import Access
from penstock.asgi.app import ASGIApp
from penstock.asgi.limits import ServerLimits
from penstock.asgi.metrics import CONTENT_TYPE, Metrics
from penstock.asgi.request import HTTPRequest
from penstock.asgi.response import respond, respond_json
from penstock.asgi.routes import Route, Routes
from penstock.asgi.sending import Sender
from penstock.log.store import Store
from penstock.runs.runs import Runs
from penstock.serve.operations.log_watch import LogWatch
from penstock.serve.operations.run_metrics import RunMetrics

LIMITS = ServerLimits(body=1024, connections=200)
"""Probes and scrapers are few, and send no bodies."""

Endpoint = Callable[[HTTPRequest, Sender], Awaitable[None]]


class WorkerApp(ASGIApp):
    """`/metrics` for those who have the token, `/healthz` and `/readyz` for everybody."""

    public_paths = ("/healthz", "/readyz")

    def __init__(self, store: Store, runs: Runs, *, token: str = "") -> None:
        super().__init__(Access(token=token), LIMITS, Metrics("penstock_worker"))
        self._watch = LogWatch(store)
        self.run_metrics = RunMetrics(store, runs, self._watch)
        self._routes: Routes[Endpoint] = Routes(
            Route("GET", "/healthz", self._show_health),
            Route("GET", "/readyz", self._show_readiness),
            Route("GET", "/metrics", self._show_metrics),
        )

    def drain(self) -> None:
        """Say that the worker is about to stop."""
        super().drain()
        self.run_metrics.is_draining = True

    async def route(self, request: HTTPRequest, send: Sender, tenant: str) -> None:
        route, _ = self._routes.find(request)
        await route.endpoint(request, send)

    async def _show_health(self, request: HTTPRequest, send: Sender) -> None:
        await respond_json(request, send, {"status": "ok"})

    async def _show_readiness(self, request: HTTPRequest, send: Sender) -> None:
        await self.readiness.respond(request, send, await self._watch.problem())

    async def _show_metrics(self, request: HTTPRequest, send: Sender) -> None:
        text = self.metrics.text() + await self.run_metrics.text()
        await respond(request, send, 200, text, CONTENT_TYPE)
