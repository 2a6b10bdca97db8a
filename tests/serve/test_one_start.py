"""One start, one run: keys, retries of SDKs, and lost connections; with bad keys and unlucky moments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import openai
import pytest

import penstock.serve
from penstock import Agent, Model, Retries, tool
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.log import SQLiteStore
from penstock.log.starts.requests import StartRequest
from penstock.serve import ServeApp, ServerLimits
from penstock.serve.models import retries
from penstock.serve.starts import MAX_KEY, read_key
from penstock.testing import Reply, Scripted, call, fail, wait
from tests.asgi_client import Browser, Connection, serving
from tests.gateways import openai_client
from tests.one_start import STARTS

ASK = [{"role": "user", "content": "Pay 5."}]
CHAT = {"model": "desk", "messages": ASK, "stream": True}
PATHS = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"model": "desk", "input": "Pay 5.", "stream": True},
    "/v1/messages": {**CHAT, "max_tokens": 100},
}
CHAT_PATH = "/v1/chat/completions"
RETRY = {"x-stainless-retry-count": "1"}
every_start = pytest.mark.parametrize(("path", "body"), STARTS.values(), ids=[*STARTS])
every_model = pytest.mark.parametrize(("path", "body"), PATHS.items(), ids=[*PATHS])


class Desk:
    """An agent that pays; its answers wait until the test opens the gate."""

    def __init__(self, folder: Path, **tool_options: Any) -> None:
        self.paid: list[int] = []
        self.gate = asyncio.Event()
        self.store = SQLiteStore(folder / "runs.db")

        @tool(**tool_options)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            await self.gate.wait()
            return "paid"

        def answer(request: Any) -> Any:
            return "Finished." if request.results else Reply("Paying.", call("pay", {"amount": 5}))

        self.agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay], name="desk")

    def app(self, **options: Any) -> ServeApp:
        return penstock.serve.app(self.agent, log=self.store, shutdown_seconds=0.1, **options)


def run(folder: Path, test: Callable[[Desk, Browser], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        desk = Desk(folder)
        async with serving(desk.app(**options)) as browser:
            await test(desk, browser)

    asyncio.run(main())


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # of another thread or task
            await asyncio.sleep(0.01)


async def lose(desk: Desk, browser: Browser, path: str = CHAT_PATH, body: Any = CHAT, **headers: str) -> str:
    """A request that loses its connection after the effect; returns the id of its run."""
    connection = browser.connect("POST", path, body, headers)
    await until(lambda: bool(desk.paid))
    await leave(connection)
    return str((await browser.get("/runs")).json["runs"][0]["id"])


async def leave(connection: Connection) -> None:
    connection.leave()
    async with asyncio.timeout(20):
        await asyncio.gather(connection.task, return_exceptions=True)


async def rows(browser: Browser) -> list[Any]:
    found: list[Any] = (await browser.get("/runs")).json["runs"]
    return found


# -- keys --------------------------------------------------------------------------------------------------------------


@every_start
def test_requests_with_one_key_have_one_run_and_the_whole_answer(tmp_path: Path, path: str, body: Any) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        key = {"idempotency-key": "k1"}
        connections = [browser.connect("POST", path, body, key) for _ in range(5)]
        await until(lambda: bool(desk.paid))
        await leave(connections[0])
        desk.gate.set()
        await asyncio.gather(*(connection.task for connection in connections[1:]))
        later = await browser.post(path, body, **key)
        replies = [later, *(connection.reply for connection in connections[1:])]
        assert len({reply.status for reply in replies}) == 1, [reply.body for reply in replies]
        assert len({reply.headers["x-run-id"] for reply in replies}) == 1
        assert later.headers["idempotent-replayed"] == "true"
        if path != "/runs":
            assert all(b"Finished." in reply.body for reply in replies)
        assert (desk.paid, len(await rows(browser))) == ([5], 1)
        other = await browser.post(path, {**body, "agent": "another"}, **key)
        assert other.status == 409, other.body
        assert len(await rows(browser)) == 1

    run(tmp_path, test)


@pytest.mark.parametrize("key", ["x" * (MAX_KEY + 1), "é", "a\tb", "\x7f"], ids=repr)
def test_a_bad_key_is_refused_and_starts_nothing(tmp_path: Path, key: str) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        replies = [await browser.post(path, body, **{"idempotency-key": key}) for path, body in STARTS.values()]
        assert {reply.status for reply in replies} == {400}
        assert await rows(browser) == []

    run(tmp_path, test)


@pytest.mark.parametrize("values", [[b""], [b"k1", b"k2"]], ids=["empty", "two"])
def test_an_empty_key_and_two_keys_are_refused(values: list[bytes]) -> None:
    scope = {"method": "POST", "path": "/runs", "headers": [(b"idempotency-key", value) for value in values]}
    with pytest.raises(RejectedRequest) as refused:
        read_key(HTTPRequest(scope, asyncio.Queue().get, ServerLimits(), "r1"))
    assert refused.value.status == 400


def test_a_key_with_the_longest_length_is_accepted(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        desk.gate.set()
        ids = [
            (await browser.post("/runs", {"prompt": "Pay."}, **{"idempotency-key": "~" * MAX_KEY})).json["id"]
            for _ in range(2)
        ]
        assert len({*ids}) == 1

    run(tmp_path, test)


def test_a_body_with_the_same_values_in_another_layout_is_the_same_body(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        desk.gate.set()
        key = {"idempotency-key": "k1"}
        bodies = [b'{"prompt":"Pay.","agent":"desk"}', b'{ "agent" : "desk",\n "prompt": "\\u0050ay." }']
        replies = [await browser.post("/runs", body, **key) for body in bodies]
        assert len({reply.json["id"] for reply in replies}) == 1
        assert (await browser.post("/runs", {"prompt": "Pay!", "agent": "desk"}, **key)).status == 409

    run(tmp_path, test)


def test_a_key_of_another_tenant_is_another_key(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        desk.gate.set()
        for path, body in (("/runs", {"prompt": "Pay."}), (CHAT_PATH, CHAT)):
            ids = [
                (await browser.post(path, body, tenant=tenant, **{"idempotency-key": path})).headers["x-run-id"]
                for tenant in ("one", "two", "one")
            ]
            assert ids[0] == ids[2] != ids[1]
        other = await browser.post("/runs", {"prompt": "Other."}, tenant="two", **{"idempotency-key": "/runs"})
        assert other.status == 409

    run(tmp_path, test, auth=lambda scope: dict(scope["headers"]).get(b"tenant", b"").decode())


def test_a_run_id_names_one_run_and_another_body_is_refused(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        desk.gate.set()
        body = {"prompt": "Pay 5.", "run_id": "order 17"}
        replies = await asyncio.gather(*(browser.post("/runs", body) for _ in range(5)))
        assert {(reply.status, reply.json["id"]) for reply in replies} == {(201, "order 17")}
        assert replies[0].json["events"] == "/runs/order%2017/events"
        assert (await browser.post("/runs", {**body, "prompt": "Pay 6."})).status == 409
        for bad in ({"run_id": "a/b"}, {"run_id": "x" * 300}, {"run_id": "x", "thread": "t"}, {"run_id": 5}):
            assert (await browser.post("/runs", {"prompt": "Pay.", **bad})).status == 400
        assert len(await rows(browser)) == 1

    run(tmp_path, test)


def test_a_key_is_deleted_with_its_run(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        desk.gate.set()
        key = {"idempotency-key": "k1"}
        first = await browser.post(CHAT_PATH, CHAT, **key)
        await until(lambda: desk.store.list(state="over") != [])
        assert desk.store.prune(before=time.time() + 60) == 1
        assert desk.store.starts.find_key("", "k1") is None
        assert (await browser.post(CHAT_PATH, CHAT, **key)).headers["x-run-id"] != first.headers["x-run-id"]

    run(tmp_path, test)


def test_the_key_of_a_run_that_an_earlier_version_deleted_is_free(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        desk.gate.set()
        desk.store.starts.add(StartRequest(id="s", key="k1", body="other"), "deleted")
        for _ in range(2):
            assert (await browser.post("/runs", {"prompt": "Pay."}, **{"idempotency-key": "k1"})).status == 201
        assert len(await rows(browser)) == 1

    run(tmp_path, test)


def test_a_key_joins_a_run_that_waits_for_approval(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path, approval=True)
        desk.gate.set()
        async with serving(desk.app(model_approvals="wait")) as browser:
            connections = [browser.connect("POST", CHAT_PATH, CHAT, {"idempotency-key": "k1"}) for _ in range(2)]
            await until(lambda: [row.state for row in desk.store.list()] == ["waiting"])
            connections.append(browser.connect("POST", CHAT_PATH, CHAT, {"idempotency-key": "k1"}))
            await connections[-1].reply.until("Paying.")
            [row] = await rows(browser)
            [request] = (await browser.get(f"/runs/{row['id']}")).json["waiting"]
            answer = {"call_id": request["call_id"], "approved": True, "shown": request["shown"]}
            assert (await browser.post(f"/runs/{row['id']}/decide", answer)).status == 200
            await asyncio.gather(*(connection.task for connection in connections))
            assert all(b"Finished." in connection.reply.body for connection in connections)
            assert desk.paid == [5]

    asyncio.run(main())


# -- retries of SDKs, and lost connections -----------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_a_retry_takes_over_the_response_of_a_lost_connection(
    tmp_path: Path, path: str, body: Any, is_streaming: bool
) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        body["stream"] = is_streaming
        run_id = await lose(desk, browser, path, body)
        again = browser.connect("POST", path, body, RETRY)  # which is lost too
        await until(lambda: len(desk.store.starts.unanswered("", caller(desk))) == 1)
        await asyncio.sleep(0.1)
        await leave(again)
        third = browser.connect("POST", path, body, {"x-stainless-retry-count": "2"})
        await asyncio.sleep(0.1)
        desk.gate.set()
        await third.task
        assert third.reply.headers["x-run-id"] == run_id
        assert b"Paying." in third.reply.body
        assert b"Finished." in third.reply.body
        assert desk.paid == [5]
        assert (await browser.post(path, body, **RETRY)).headers["x-run-id"] != run_id  # that was answered

    body = dict(body)
    run(tmp_path, test)


def caller(desk: Desk) -> str:
    """The digest of the only sender, from the log."""
    found = desk.store._file.read(lambda connection: connection.execute("SELECT caller FROM starts").fetchall())
    [[digest]] = {*found}
    return str(digest)


def test_a_lost_response_is_taken_over_once_and_the_newest_first(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        lost = []
        for number in (1, 2):
            connection = browser.connect("POST", CHAT_PATH, CHAT)
            await until(lambda number=number: len(desk.paid) == number)  # type: ignore[misc]
            await leave(connection)
            lost.append(connection.reply.headers["x-run-id"])
        desk.gate.set()
        ids = [(await browser.post(CHAT_PATH, CHAT, **RETRY)).headers["x-run-id"] for _ in range(3)]
        assert ids[:2] == lost[::-1]
        assert ids[2] not in lost

    run(tmp_path, test)


def test_a_retry_may_come_before_the_server_has_noticed_the_lost_connection(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        first = browser.connect("POST", CHAT_PATH, CHAT)
        await until(lambda: bool(desk.paid))
        retry = browser.connect("POST", CHAT_PATH, CHAT, RETRY)
        await asyncio.sleep(0.3)
        assert len(await rows(browser)) == 1
        await leave(first)
        desk.gate.set()
        await retry.task
        assert retry.reply.headers["x-run-id"] == first.reply.headers["x-run-id"]
        assert desk.paid == [5]

    run(tmp_path, test)


def test_a_retry_beside_an_equal_request_that_is_being_answered_is_a_new_run(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        first = browser.connect("POST", CHAT_PATH, CHAT)
        await until(lambda: bool(desk.paid))
        second = browser.connect("POST", CHAT_PATH, CHAT, RETRY)
        await until(lambda: len(desk.paid) == 2)
        desk.gate.set()
        await asyncio.gather(first.task, second.task)
        assert first.reply.headers["x-run-id"] != second.reply.headers["x-run-id"]

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (CHAT, {}),
        (CHAT, {"x-stainless-retry-count": "0"}),
        (CHAT, {"x-stainless-retry-count": "many"}),
        (CHAT, {**RETRY, "authorization": "Bearer another-token"}),
        (CHAT, {**RETRY, "tenant": "another"}),
        ({**CHAT, "user": "u"}, RETRY),
    ],
    ids=["no mark", "first try", "odd mark", "other token", "other tenant", "other body"],
)
def test_any_other_request_is_a_new_run(tmp_path: Path, body: Any, headers: dict[str, str]) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        run_id = await lose(desk, browser)
        desk.gate.set()
        assert (await browser.post(CHAT_PATH, body, **headers)).headers["x-run-id"] != run_id
        assert len(desk.paid) == 2

    run(tmp_path, test, auth=lambda scope: dict(scope["headers"]).get(b"tenant", b"").decode())


def test_a_key_takes_over_a_lost_response_without_one_and_joins_it_again(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        run_id = await lose(desk, browser)
        desk.gate.set()
        for _ in range(2):
            assert (await browser.post(CHAT_PATH, CHAT, **{"idempotency-key": "k1"})).headers["x-run-id"] == run_id
        assert (await browser.post(CHAT_PATH, CHAT, **{"idempotency-key": "k2"})).headers["x-run-id"] != run_id

    run(tmp_path, test)


def test_a_run_is_cancelled_when_nobody_comes_back_and_a_later_retry_is_a_new_one(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        run_id = await lose(desk, browser)
        assert desk.store.find(run_id).state == "running"  # type: ignore[union-attr]
        await until(lambda: desk.store.find(run_id).state == "over")  # type: ignore[union-attr]
        assert (await browser.get(f"/runs/{run_id}/events")).frames[-1][1]["reason"] == "cancelled"
        desk.gate.set()
        assert (await browser.post(CHAT_PATH, CHAT, **RETRY)).headers["x-run-id"] != run_id

    run(tmp_path, test, limits=ServerLimits(retry_seconds=0.5))


def test_a_client_that_comes_back_and_leaves_again_has_another_time_to_come_back(tmp_path: Path) -> None:
    async def test(desk: Desk, browser: Browser) -> None:
        run_id = await lose(desk, browser)
        for _ in range(3):
            again = browser.connect("POST", CHAT_PATH, CHAT, RETRY)
            await again.reply.until("Paying.")
            await asyncio.sleep(0.6)  # longer than the time after the first loss
            assert desk.store.find(run_id).state == "running"  # type: ignore[union-attr]
            await leave(again)
        await until(lambda: desk.store.find(run_id).state == "over")  # type: ignore[union-attr]

    run(tmp_path, test, limits=ServerLimits(retry_seconds=0.5))


@pytest.mark.parametrize("seconds", [retries.JOIN_SECONDS, 0.0])
def test_a_finished_run_can_be_joined_for_a_while(
    tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "JOIN_SECONDS", seconds)

    async def test(desk: Desk, browser: Browser) -> None:
        run_id = await lose(desk, browser)
        desk.gate.set()
        await until(lambda: desk.store.find(run_id).state == "over")  # type: ignore[union-attr]
        await asyncio.sleep(1.6)  # the time to come back is over as well
        again = await browser.post(CHAT_PATH, CHAT, **RETRY)
        assert (again.headers["x-run-id"] == run_id) == bool(seconds)
        assert len(desk.paid) == (1 if seconds else 2)

    run(tmp_path, test, limits=ServerLimits(retry_seconds=1.5))


def test_a_server_that_stops_leaves_the_run_to_the_next_one_and_the_retry_finds_it(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        async with serving(desk.app()) as browser:
            first = browser.connect("POST", CHAT_PATH, CHAT)
            await until(lambda: bool(desk.paid))
        await first.task
        desk.gate.set()
        async with serving(desk.app()) as browser:
            again = await browser.post(CHAT_PATH, CHAT, **RETRY)
            assert again.headers["x-run-id"] == first.reply.headers["x-run-id"]
            assert desk.paid == [5]

    asyncio.run(main())


def test_a_response_of_a_dead_server_is_lost_when_its_row_is_not_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "OPEN_SECONDS", 0.6)

    async def test(desk: Desk, browser: Browser) -> None:
        desk.gate.set()
        first = await browser.post(CHAT_PATH, CHAT)
        run_id = first.headers["x-run-id"]

        def revive(connection: Any) -> None:  # as if the server had died before the end of the response
            connection.execute("UPDATE starts SET answered = 0, open_until = ?", (time.time() + 2.0,))

        desk.store._file.write(revive, durable=True)
        again = await browser.post(CHAT_PATH, CHAT, **RETRY)
        assert again.headers["x-run-id"] == run_id

    run(tmp_path, test)


def test_a_response_that_another_server_renews_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "OPEN_SECONDS", 0.6)
    monkeypatch.setattr(retries, "NOTICE_SECONDS", 0.1)

    async def main() -> None:
        desk = Desk(tmp_path)
        async with serving(desk.app()) as one, serving(desk.app()) as other:
            first = one.connect("POST", CHAT_PATH, CHAT)
            await until(lambda: bool(desk.paid))
            second = other.connect("POST", CHAT_PATH, CHAT, RETRY)
            await until(lambda: len(desk.paid) == 2)
            desk.gate.set()
            await asyncio.gather(first.task, second.task)

    asyncio.run(main())


def test_results_of_client_tools_are_joined_by_a_retry(tmp_path: Path) -> None:
    paint = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object", "properties": {}}}}

    async def main() -> None:
        desk = Desk(tmp_path)

        def answer(request: Any) -> Any:
            names = [each.name for each in request.results]
            if "pay" in names:
                return "Finished."
            return Reply("Paying.", call("pay", {"amount": 5})) if names else Reply("Look.", call("paint"))

        agent = Agent(
            Model("openai:gpt-5", via=Scripted(answer)), tools=[*desk.agent.config.tools.values()], name="desk"
        )
        app = penstock.serve.app(agent, log=desk.store, shutdown_seconds=0.1)
        async with serving(app) as browser:
            body = {**CHAT, "stream": False, "tools": [paint]}
            first = await browser.post(CHAT_PATH, body, **{"idempotency-key": "k1"})
            message = first.json["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "red"}
            more = {**body, "messages": [*ASK, message, result]}
            run_id = await lose(desk, browser, CHAT_PATH, more)
            retry = browser.connect("POST", CHAT_PATH, more, RETRY)
            await asyncio.sleep(0.1)
            desk.gate.set()
            await retry.task
            assert retry.reply.json["choices"][0]["message"]["content"] == "Paying.\nFinished."
            assert (desk.paid, [row["id"] for row in await rows(browser)]) == ([5], [run_id])
            # The first request again: its answer ended where the client was asked.
            again = await browser.post(CHAT_PATH, body, **{"idempotency-key": "k1"})
            assert again.json["choices"] == first.json["choices"]

    asyncio.run(main())


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_who_joins_gets_nothing_that_the_model_has_withdrawn(tmp_path: Path, is_streaming: bool) -> None:
    body = {**CHAT, "stream": is_streaming}
    asked = []

    def answer(request: Any) -> Any:
        if not request.results:
            return Reply("Looking.", call("look"))
        asked.append(request)
        return Reply("Half", fail("server_error", "x")) if len(asked) == 1 else Reply("Whole.", wait(0.2))

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    async def main() -> None:
        model = Model("openai:gpt-5", via=Scripted(answer), retries=Retries(after_start=True))
        agent = Agent(model, tools=[look], name="desk")
        app = penstock.serve.app(agent, log=SQLiteStore(tmp_path / "runs.db"), shutdown_seconds=0.1)
        async with serving(app) as browser:
            key = {"idempotency-key": "k1"}
            first = await browser.post(CHAT_PATH, {**CHAT, "stream": False}, **{"idempotency-key": "k0"})
            assert first.json["choices"][0]["message"]["content"] == "Looking.\nWhole."
            asked.clear()
            connection = browser.connect("POST", CHAT_PATH, body, key)
            await connection.reply.until("Looking") if is_streaming else await asyncio.sleep(0.1)
            await leave(connection)
            run_id = connection.reply.headers.get("x-run-id") or (await rows(browser))[0]["id"]
            await until(lambda: len(asked) == 2)
            again = await browser.post(CHAT_PATH, body, **key)
            assert again.headers["x-run-id"] == run_id
            assert b"Half" not in again.body
            assert b"Whole." in again.body

    asyncio.run(main())


@pytest.mark.parametrize(("is_read_only", "runs"), [(False, 1), (True, 3)])
def test_an_sdk_does_not_repeat_a_failed_run_that_had_effects(tmp_path: Path, is_read_only: bool, runs: int) -> None:
    @tool(read_only=is_read_only)
    def act() -> str:
        """Act."""
        return "done"

    def answer(request: Any) -> Any:
        return Reply(fail("server_error", "x")) if request.results else Reply(call("act"))

    async def main() -> None:
        agent = Agent(
            Model("openai:gpt-5", via=Scripted(answer), retries=Retries(attempts=0)), tools=[act], name="desk"
        )
        app = penstock.serve.app(agent, log=SQLiteStore(tmp_path / "runs.db"), shutdown_seconds=0.1)
        async with serving(app) as browser:
            client = openai_client(browser).with_options(max_retries=2)
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model="desk", messages=cast("Any", ASK))
            assert len(await rows(browser)) == runs

    asyncio.run(main())


def test_ten_thousand_keys_are_found_by_an_index(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    now = time.time()
    values = [(f"s{n}", "", f"k{n}", f"c{n}", "b", f"r{n}", 0, now, 0.0, 1) for n in range(10_000)]

    def fill(connection: Any) -> list[str]:
        connection.executemany(f"INSERT INTO starts VALUES ({', '.join('?' * 10)})", values)
        plans = []
        for where in ("tenant = '' AND key = 'k5' AND key <> ''", "run_id = 'r5'",
                      "tenant = '' AND caller = 'c5' AND answered = 0 AND key = '' ORDER BY at DESC, id"):  # fmt: skip
            plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM starts WHERE {where}").fetchall()
            plans.append(" ".join(str(line[3]) for line in plan))
        return plans

    plans = store._file.write(fill, durable=False)
    assert all("USING INDEX starts_" in plan and "SCAN" not in plan for plan in plans), plans
    found = store.starts.find_key("", "k777")
    assert found is not None
    assert found.run_id == "r777"
