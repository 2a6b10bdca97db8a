"""The page of an operator: its token, its data, cancel and retry; the page itself is tested in Chromium."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import penstock.serve
from penstock import Agent, Model, Runs, UsageError
from penstock.log import SQLiteStore
from penstock.log.in_memory import MemoryStore
from penstock.log.store import Batch
from penstock.log.suspects import park
from penstock.serve.operations import log_watch, timeline
from penstock.testing import Reply, Scripted, call
from tests.asgi_client import Browser, serving

ADMIN = "the-token-of-operators"
TOKEN = "a-long-secret-token"
BEARER = {"authorization": f"Bearer {ADMIN}"}
FOLDER = files("penstock.serve.operations") / "page"


@penstock.tool
def lookup(secret: str) -> str:
    """Look it up."""
    return f"found {secret}"


def answer(request: Any) -> Reply | str:
    return "All secret words." if request.results else Reply("Some secret words.", call("lookup", {"secret": "words"}))


AGENT = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[lookup], name="desk")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteStore]:
    monkeypatch.setattr(log_watch, "COUNT_SECONDS", 0.0)
    store = SQLiteStore(tmp_path / "runs.db")
    yield store
    store.close()


def use(store: Any, test: Callable[[Browser], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        app = penstock.serve.app(AGENT, log=store, **{"admin_token": ADMIN, **options})
        async with serving(app) as browser:
            await test(browser)

    asyncio.run(main())


def parked(store: SQLiteStore, run_id: str = "p", tenant: str = "acme") -> str:
    """A parked run of an agent that the server does not have."""
    Runs(store, {"other": AGENT}).start("other", "Hi", run_id=run_id, tenant=tenant)
    claim = store.claim("a worker", run_id=run_id)
    assert claim is not None
    assert park(store, claim, "6 workers died")
    return run_id


def test_without_a_token_of_operators_there_is_no_page(store: SQLiteStore) -> None:
    async def test(browser: Browser) -> None:
        for path in ("/admin", "/admin/", "/admin/api/summary"):
            assert (await browser.get(path)).status == 404

    use(store, test, admin_token="")


def test_the_page_has_no_data_and_a_strict_policy(store: SQLiteStore) -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.get("/admin")
        assert reply.status == 200
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        html = reply.body.decode()
        assert re.findall(r"https?:|//[a-z]+\.|@import|url\(", html) == []
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", html)
        for path in FOLDER.iterdir():
            assert path.name == "index.html" or path.read_text(encoding="utf-8") in html
        assert (
            await browser.request("GET", "/admin", headers={"host": "evil.example:99", "origin": "http://x"})
        ).status in (403, 421)

    use(store, test)


@pytest.mark.parametrize("path", ["/admin/api/summary", "/admin/api/runs", "/admin/api/runs/p", "/admin/nothing"])
def test_data_needs_the_token_of_operators(store: SQLiteStore, path: str) -> None:
    parked(store)

    async def test(browser: Browser) -> None:
        assert (await browser.get(path)).status == 401
        assert (await browser.get(path, authorization=f"Bearer {TOKEN}")).status == 401, "that of clients"
        expected = 404 if path.endswith("nothing") else 200
        assert (await browser.get(path, **BEARER)).status == expected
        cookie = (await browser.post("/session", {}, authorization=f"Bearer {TOKEN}")).headers["set-cookie"]
        assert (await browser.get(path, cookie=cookie.partition(";")[0])).status == 401, "the session of clients"
        admin = (await browser.post("/admin/session", {}, **BEARER)).headers["set-cookie"]
        assert "HttpOnly; SameSite=Strict" in admin
        session = admin.partition(";")[0]
        assert (await browser.get(path, cookie=session)).status == expected
        assert (await browser.get("/runs", cookie=session)).status == 401, "operators are no clients"
        assert (await browser.get("/runs", **BEARER)).status == 401
        assert (await browser.request("DELETE", "/admin/session", headers={"cookie": session})).status == 200
        assert (await browser.get(path, cookie=session)).status == 401

    use(store, test, token=TOKEN)


def test_the_summary_has_counts_workers_and_the_size(store: SQLiteStore) -> None:
    parked(store)

    async def test(browser: Browser) -> None:
        async with asyncio.timeout(20):
            while True:
                summary = (await browser.get("/admin/api/summary", **BEARER)).json
                if summary["workers"]:
                    break
                await asyncio.sleep(0.05)
        assert summary["counts"]["runs"] == {"parked": 1}
        assert [(each["kind"], each["agents"], each["is_alive"]) for each in summary["workers"]] == [
            ("serve", ["desk"], True)
        ]
        assert summary["size"] > 1000

    use(store, test)


def test_runs_of_all_tenants_are_listed_and_filtered(store: SQLiteStore) -> None:
    parked(store, "a1", "acme")
    parked(store, "a2", "acme")
    parked(store, "z1", "zoo")

    async def test(browser: Browser) -> None:
        async def ids(query: str) -> list[str]:
            return sorted(run["id"] for run in (await browser.get(f"/admin/api/runs{query}", **BEARER)).json["runs"])

        assert await ids("") == ["a1", "a2", "z1"]
        assert await ids("?tenant=acme") == ["a1", "a2"]
        assert await ids("?state=parked&prefix=a&agent=other") == ["a1", "a2"]
        assert await ids("?state=over") == []
        assert (await browser.get("/admin/api/runs?state=asleep", **BEARER)).status == 400
        assert (await browser.get(f"/admin/api/runs?tenant={'x' * 1000}", **BEARER)).status == 400
        assert (await browser.get("/admin/api/runs/unknown", **BEARER)).status == 404

    use(store, test)


def test_a_timeline_has_names_and_times_and_no_words_of_the_conversation(store: SQLiteStore) -> None:
    runs = Runs(store, {"desk": AGENT})
    runs.start("desk", "My secret words", run_id="r")
    runs.drive("r")

    async def test(browser: Browser) -> None:
        reply = await browser.get("/admin/api/runs/r", **BEARER)
        assert b"words" not in reply.body
        entries = reply.json["timeline"]["entries"]
        assert [entry["type"] for entry in entries][:3] == ["run_start", "taken", "step_start"]
        assert "lookup" in {entry["text"] for entry in entries if entry["type"] == "tool_call"}
        assert entries[-1]["type"] == "done"
        texts = [entry for entry in entries if entry["type"] == "text"]
        assert len(texts) == 2
        assert sum(entry["count"] for entry in entries) == reply.json["run"]["seq"]

    use(store, test)


def test_a_long_timeline_is_cut_at_its_beginning(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(store, {"desk": AGENT})
    runs.start("desk", "Hi", run_id="r")
    runs.drive("r")
    row = runs.find("r")
    whole = timeline.timeline_of(store, row)
    monkeypatch.setattr(timeline, "MAX_ENTRIES", 3)
    monkeypatch.setattr(timeline, "MAX_NAME", 4)
    cut = timeline.timeline_of(store, row)
    assert len(cut.entries) == 3
    assert cut.left_out == len(whole.entries) - 3
    assert max(len(entry.text) for entry in cut.entries) == 4


def test_a_damaged_run_shows_its_damage(store: SQLiteStore) -> None:
    Runs(store, {"desk": AGENT}).start("desk", "Hi", run_id="r")
    claim = store.claim("w", run_id="r")
    assert claim is not None
    store.append([Batch("r", claim.epoch, claim.seq, [b"not json"], "damaged")], durable=True)
    found = timeline.timeline_of(store, Runs(store, {"desk": AGENT}).find("r"))
    assert [entry.type for entry in found.entries] == ["run_start", "taken"]
    assert "cannot be read" in found.damage


def test_an_operator_cancels_and_retries(store: SQLiteStore, caplog: pytest.LogCaptureFixture) -> None:
    parked(store, "p")
    parked(store, "q")

    async def test(browser: Browser) -> None:
        assert (await browser.post("/admin/api/runs/p/retry", {}, **BEARER)).status == 202
        row = store.find("p")
        assert row is not None
        assert row.state == "ready"
        reply = await browser.post("/admin/api/runs/p/retry", {}, **BEARER)
        assert (reply.status, reply.json["error"]["code"]) == (409, "not_parked")
        assert (await browser.post("/admin/api/runs/q/cancel", {}, **BEARER)).json == {"changed": True}
        assert (await browser.post("/admin/api/runs/q/cancel", {}, **BEARER)).json == {"changed": False}
        assert [input.body for input in store.inputs(["q"])] == [b"an operator cancelled the run"]
        assert (await browser.get("/admin/api/runs/q/cancel", **BEARER)).status == 405
        foreign = {**BEARER, "origin": "http://evil.example"}
        assert (await browser.post("/admin/api/runs/p/cancel", {}, **foreign)).status == 403

    use(store, test)
    assert "operator at 127.0.0.1 retried the run p" in caplog.messages


def test_a_finished_run_cannot_be_cancelled(store: SQLiteStore) -> None:
    runs = Runs(store, {"desk": AGENT})
    runs.start("desk", "Hi", run_id="r")
    runs.drive("r")

    async def test(browser: Browser) -> None:
        assert (await browser.post("/admin/api/runs/r/cancel", {}, **BEARER)).status == 409

    use(store, test)


@pytest.mark.parametrize(
    ("options", "problem"), [({"admin_token": "short"}, "too short"), ({"token": ADMIN}, "must differ")]
)
def test_a_token_of_operators_that_is_none_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        penstock.serve.app(AGENT, log=MemoryStore(), **{"admin_token": ADMIN, **options})  # type: ignore[arg-type]
