"""Forks over HTTP: what a client may ask for, whose runs, and once per key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import penstock.serve
from penstock import Agent, Model, tool
from penstock.log import SQLiteStore
from penstock.log.store import Cutoff
from penstock.testing import Reply, Scripted, call
from tests.asgi_client import Browser, serving
from tests.log_stores import rows_of


class Desk:
    """A server with an agent that pays, and a run of it in a thread."""

    def __init__(self, browser: Browser, store: SQLiteStore, paid: list[int]) -> None:
        self.browser = browser
        self.store = store
        self.paid = paid

    async def start(self) -> str:
        reply = await self.browser.post("/runs", {"prompt": "Pay.", "thread": "t"})
        await self.end(reply.json["id"])
        return str(reply.json["id"])

    async def end(self, run_id: str) -> dict[str, Any]:
        await self.browser.get(f"/runs/{run_id}/events")
        state: dict[str, Any] = (await self.browser.get(f"/runs/{run_id}")).json
        assert state["state"] == "over"
        return state

    async def fork(self, run_id: str, body: Any, **headers: str) -> Any:
        return await self.browser.post(f"/runs/{run_id}/fork", body, **headers)


def run(folder: Path, test: Callable[[Desk], Coroutine[Any, Any, None]], **options: Any) -> None:
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def answer(request: Any) -> Any:
        return f"Done: {request.prompt}" if request.results else Reply("Paying.", call("pay", {"amount": 5}))

    other = Model("anthropic:other", via=Scripted(lambda request: "The other model."))
    agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay], name="desk", models={"other": other})

    async def main() -> None:
        store = SQLiteStore(folder / "runs.db")
        app = penstock.serve.app(agent, log=store, shutdown_seconds=0.1, **options)
        async with serving(app) as browser:
            await test(Desk(browser, store, paid))

    asyncio.run(main())


def test_a_fork_is_driven_and_its_parent_untouched(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        id = await desk.start()
        before = rows_of(desk.store, id)
        reply = await desk.fork(id, {"at": 3})
        assert reply.status == 201
        fork = reply.json["id"]
        assert reply.json == {"id": fork, "thread": fork, "events": f"/runs/{fork}/events"}
        assert (await desk.end(fork))["output"] == "Done: Pay."
        assert desk.paid == [5]
        assert rows_of(desk.store, id) == before
        runs = (await desk.browser.get("/threads/t")).json["runs"]
        assert [each["id"] for each in runs] == [id]
        again = await desk.browser.post("/runs", {"prompt": "And now?", "thread": fork})
        assert again.status == 201, "the fork is a conversation of its own"

    run(tmp_path, test)


def test_another_model_and_other_words(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        id = await desk.start()
        frames = (await desk.browser.get(f"/runs/{id}/events")).frames
        place = next(position.token for position, event in frames if event["type"] == "step_end")
        other = (await desk.fork(id, {"at": place, "model": "other"})).json["id"]
        assert (await desk.end(other))["output"] == "The other model."
        said = (await desk.fork(id, {"at": int(frames[-1][0]), "say": "Thank you."})).json["id"]
        assert (await desk.end(said))["state"] == "over"
        messages = (await desk.browser.get(f"/runs/{said}/messages")).json["messages"]
        assert "Thank you." in str(messages)

    run(tmp_path, test)


def test_a_key_makes_one_fork(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        id, key = await desk.start(), {"idempotency-key": "once"}
        first, second = await asyncio.gather(desk.fork(id, {"at": 3}, **key), desk.fork(id, {"at": 3}, **key))
        assert first.status == second.status == 201
        assert first.json["id"] == second.json["id"]
        assert (await desk.fork(id, {"at": 3}, **key)).headers["idempotent-replayed"] == "true"
        assert (await desk.fork(id, {"at": 4}, **key)).status == 409
        assert (await desk.browser.post("/runs", {"prompt": "Pay."}, **key)).status == 409
        await desk.end(first.json["id"])
        assert len(desk.store.list()) == 2

    run(tmp_path, test)


def test_a_key_joins_its_fork_after_the_parent_was_deleted(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        id, key = await desk.start(), {"idempotency-key": "once"}
        fork = (await desk.fork(id, {"at": 3}, **key)).json["id"]
        assert desk.store.delete([id], Cutoff(time.time() + 1)) == 1
        again = await desk.fork(id, {"at": 3}, **key)
        assert (again.status, again.json["id"], again.headers["idempotent-replayed"]) == (201, fork, "true")
        assert (await desk.fork(id, {"at": 4}, **key)).status == 409
        assert (await desk.fork(id, {"at": 3}, **{"idempotency-key": "another"})).status == 404
        await desk.end(fork)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"at": 99}, 400, "has no event 99"),
        ({"at": "x"}, 400, "at must be the number of an event"),
        ({}, 400, "missing field `at`"),
        ({"at": 3, "model": "openai:gpt-5"}, 400, "the agent has no model 'openai:gpt-5'; there are: other"),
        ({"at": 3, "results": {"call_1": 1}}, 400, "unknown field `results`"),
        ({"at": 3, "repeat_effects": True}, 400, "unknown field"),
        ({"at": 3, "say": " "}, 400, "the prompt is empty"),
    ],
)
def test_what_a_client_may_not_ask_for(tmp_path: Path, body: Any, status: int, words: str) -> None:
    async def test(desk: Desk) -> None:
        id = await desk.start()
        reply = await desk.fork(id, body)
        assert reply.status == status
        assert words in reply.json["error"]["message"]
        assert len(desk.store.list()) == 1

    run(tmp_path, test)


def test_runs_of_others_are_unknown(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        desk.browser.headers["x-tenant"] = "a"
        id = await desk.start()
        desk.browser.headers["x-tenant"] = "b"
        assert (await desk.fork(id, {"at": 3})).status == 404
        assert (await desk.fork("unknown", {"at": 3})).status == 404
        desk.browser.headers["x-tenant"] = "a"
        fork = (await desk.fork(id, {"at": 3})).json["id"]
        assert desk.store.find(fork).tenant == "a"  # type: ignore[union-attr]
        await desk.end(fork)

    def auth(scope: Any) -> str:
        return dict(scope["headers"])[b"x-tenant"].decode()

    run(tmp_path, test, auth=auth)
