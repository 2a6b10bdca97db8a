"""Metrics of servers and workers: the format, the access, and runs that were taken over."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import penstock.gateway
import penstock.serve
from penstock import Agent, Model, Runs
from penstock.asgi.limits import ServerLimits
from penstock.log import SQLiteStore
from penstock.log.in_memory import MemoryStore
from penstock.log.retention.survey import RunCounts, WorkerRow
from penstock.log.store import StoreError
from penstock.serve.operations import log_watch
from penstock.serve.operations.log_watch import Cached
from penstock.serve.operations.worker_app import WorkerApp
from penstock.testing import Reply, Scripted, wait
from tests.asgi_client import Browser, serving

TOKEN = "a-long-secret-token"
AGENT = Agent(Model("openai:gpt-5", via=Scripted(lambda request: "Hello.")), name="desk")
SLOW = Agent(Model("openai:gpt-5", via=Scripted(lambda request: Reply("One ", wait(3), "two."))), name="desk")


def samples(body: bytes) -> dict[str, float]:
    """The samples as Prometheus reads them, by name and label."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in found
            found[name] = sample.value
    return found


async def until(browser: Browser, name: str, value: float) -> dict[str, float]:
    async with asyncio.timeout(30):
        while True:
            found = samples((await browser.get("/metrics")).body)
            if found.get(name) == value:
                return found
            await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and probes are not kept."""
    monkeypatch.setattr(log_watch, "COUNT_SECONDS", 0.0)
    monkeypatch.setattr(log_watch, "PING_SECONDS", 0.0)


def test_a_server_shows_runs_commits_and_claims() -> None:
    async def main() -> None:
        store = MemoryStore()
        store.survey.beat(WorkerRow(owner="other"))
        async with serving(penstock.serve.app(AGENT, log=store)) as browser:
            await browser.post("/runs", {"prompt": "Hi"})
            found = await until(browser, "penstock_ended_runs_total{answered}", 1)
        assert found["penstock_claims_total{started}"] == 1
        assert found["penstock_claims_total{taken_over}"] == 0
        assert found["penstock_runs{ready}"] == found["penstock_runs{parked}"] == found["penstock_runs{damaged}"] == 0
        assert found["penstock_log_up"] == 1
        assert found["penstock_commit_seconds_count"] >= 1
        assert found["penstock_commit_seconds_bucket{+Inf}"] == found["penstock_commit_seconds_count"]
        assert 0 < found["penstock_commit_seconds_sum"] < 30
        assert found["penstock_commit_backlog"] == found["penstock_oldest_ready_seconds"] == 0
        assert found["penstock_workers"] == 2, "the other one, and this server"
        assert found["penstock_serve_requests_total{POST,201}"] == 1

    asyncio.run(main())


def test_runs_that_were_taken_over_count_for_metrics_and_limits(tmp_path: Path) -> None:
    async def main() -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        started = Runs(store, {"desk": SLOW})
        for tenant in ("", "", "", "acme", "acme"):
            started.start("desk", "Hi", tenant=tenant)
        app = penstock.serve.app(SLOW, log=store, limits=ServerLimits(runs=6, tenant_runs=4), shutdown_seconds=0)
        async with serving(app) as browser:
            found = await until(browser, "penstock_serve_runs", 5)
            assert found["penstock_driven_runs"] == 5
            assert found["penstock_runs{running}"] == 5
            assert (await browser.post("/runs", {"prompt": "Hi"})).status == 201
            assert (await browser.post("/runs", {"prompt": "Hi"})).status == 429
        store.close()

    asyncio.run(main())


def test_a_server_claims_no_more_runs_than_its_limit(tmp_path: Path) -> None:
    async def main() -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        started = Runs(store, {"desk": SLOW})
        app = penstock.serve.app(SLOW, log=store, limits=ServerLimits(runs=3), shutdown_seconds=0)
        async with serving(app) as browser:
            for _ in range(2):
                assert (await browser.post("/runs", {"prompt": "Hi"})).status == 201
            for _ in range(4):
                started.start("desk", "Hi")
            await until(browser, "penstock_serve_runs", 3)
            await asyncio.sleep(1.2)  # the server looks for runs once a second
            assert samples((await browser.get("/metrics")).body)["penstock_serve_runs"] == 3
        store.close()

    asyncio.run(main())


def test_runs_that_were_taken_over_may_end_when_the_server_stops(tmp_path: Path) -> None:
    async def main() -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        run_id = Runs(store, {"desk": SLOW}).start("desk", "Hi")
        async with serving(penstock.serve.app(SLOW, log=store, shutdown_seconds=20)) as browser:
            await until(browser, "penstock_serve_runs", 1)
            browser.app.drain()
            await asyncio.sleep(0.2)  # a claim may be under way
            later = Runs(store, {"desk": SLOW}).start("desk", "Hi")
        assert {row.id: row.state for row in store.list()} == {run_id: "over", later: "ready"}
        store.close()

    asyncio.run(main())


def test_metrics_need_the_token(tmp_path: Path) -> None:
    async def main() -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        apps: list[Any] = [
            penstock.serve.app(AGENT, log=store, token=TOKEN),
            WorkerApp(store, Runs(store, {"desk": AGENT}), token=TOKEN),
            penstock.gateway.app("http://127.0.0.1:9/v1", key=TOKEN),
        ]
        for app in apps:
            async with serving(app) as browser:
                assert (await browser.get("/metrics")).status == 401
                reply = await browser.get("/metrics", authorization=f"Bearer {TOKEN}")
                assert reply.status == 200
                assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert samples(reply.body)
                assert (await browser.get("/healthz")).status == 200
                assert (await browser.get("/readyz")).status == 200
                assert (await browser.get("/nothing", authorization=f"Bearer {TOKEN}")).status == 404
        store.close()

    asyncio.run(main())


def test_a_log_that_is_away_is_shown_and_the_rest_still_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = MemoryStore()
        async with serving(penstock.serve.app(AGENT, log=store)) as browser:

            def fail() -> RunCounts:
                raise StoreError("away", is_temporary=True)

            monkeypatch.setattr(store, "find", lambda run_id: fail())
            monkeypatch.setattr(store.survey, "counts", fail)
            app: Any = browser.app
            app.context.watch._counts._ask = fail
            found = samples((await browser.get("/metrics")).body)
            assert found["penstock_log_up"] == 0
            assert "penstock_runs{ready}" not in found
            assert found["penstock_driven_runs"] == 0
            reply = await browser.get("/readyz")
            assert (reply.status, reply.json["reason"]) == (503, "the log of runs cannot be reached")
            assert (await browser.get("/healthz")).status == 200

    asyncio.run(main())


def test_a_log_that_does_not_answer_does_not_hold_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_watch, "PATIENCE", 0.05)

    async def main() -> None:
        asked: list[float] = []

        def hang() -> str:
            asked.append(time.monotonic())
            time.sleep(0.5)
            return "late"

        cached = Cached(hang, 60.0)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await cached.get()
        assert len(asked) == 1, "a question that is under way is not asked again"
        await asyncio.sleep(0.6)
        assert await cached.get() == "late"
        assert len(asked) == 1

    asyncio.run(main())


def test_counts_are_looked_up_once_in_a_while() -> None:
    async def main() -> None:
        asked: list[int] = []
        cached = Cached(lambda: asked.append(1), 60.0)
        await asyncio.gather(*(cached.get() for _ in range(20)))
        await cached.get()
        assert len(asked) == 1

    asyncio.run(main())


def test_the_page_names_every_metric_of_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    table = set(re.findall(r"^\| `(penstock_\w+)`", page, re.MULTILINE))
    store = MemoryStore()
    assert table == set(WorkerApp(store, Runs(store, {"desk": AGENT})).run_metrics.metrics.names)
