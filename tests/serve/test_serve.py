"""Agents that are served: our own protocol, threads, readers that come and go, and what may leave."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, get_args

import pytest

import penstock.serve
from penstock import Agent, Context, Limits, Model, Text, ToolOutput, UsageError, tool
from penstock.asgi.metrics import MAX_SERIES, Metrics
from penstock.log import SQLiteStore
from penstock.run.events import LogEvent
from penstock.serve import ServeApp, ServerLimits
from penstock.serve.feeds import feed
from penstock.serve.feeds import feeds as feed_source
from penstock.serve.public_events import DAMAGED, PUBLIC_FIELDS, EventFrames
from penstock.serve.runs import api as runs_api
from penstock.serve.runs.bodies import MAX_ID
from penstock.testing import Reply, Scripted, call, wait
from tests.asgi_client import Browser, serving

TWO_STEPS = (Reply("Let me look.", call("look", {"city": "Rome"})), "Sunny.")


@tool(read_only=True)
async def look(context: Context[Any], city: str) -> ToolOutput:
    """Look."""
    context.report({"percent": 50})
    return ToolOutput(f"{city} is sunny", data={"secret": "s3cret"})


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(deferred=True)
def ask_a_person(question: str) -> str:
    """Ask."""
    raise NotImplementedError


def agent_of(*answers: Any, name: str = "support", **options: Any) -> Agent[Any]:
    script = Scripted(answers[0] if len(answers) == 1 and callable(answers[0]) else list(answers))
    return Agent(Model("openai:gpt-5", via=script), tools=[look, pay, ask_a_person], name=name, **options)


def served(path: Path, *answers: Any, **options: Any) -> ServeApp:
    return penstock.serve.app(agent_of(*answers), log=SQLiteStore(path / "runs.db"), **options)


def run(
    path: Path, answers: tuple[Any, ...], test: Callable[[Browser], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def main() -> None:
        async with serving(served(path, *answers, **options)) as browser:
            await test(browser)

    asyncio.run(main())


async def started(browser: Browser, **body: Any) -> str:
    reply = await browser.post("/runs", {"prompt": "Weather in Rome?", **body})
    assert reply.status == 201, reply.body
    return str(reply.json["id"])


def test_a_run_is_started_and_followed_to_its_end(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        events = await browser.get(f"/runs/{run_id}/events")
        assert events.headers["content-type"].startswith("text/event-stream")
        numbers = [number for number, _ in events.frames]
        assert numbers == sorted(set(numbers))
        kinds = [event["type"] for _, event in events.frames]
        assert (kinds[0], kinds[-1]) == ("run_start", "done")
        assert {
            "text",
            "tool_call_start",
            "tool_call_delta",
            "tool_call",
            "tool_start",
            "tool_progress",
            "tool_end",
        } <= {*kinds}
        assert events.frames[-1][1]["output"] == "Sunny."
        state = (await browser.get(f"/runs/{run_id}")).json
        assert (state["state"], state["output"], state["done"]["reason"]) == ("over", "Sunny.", "answered")

    run(tmp_path, TWO_STEPS, test)


def test_a_reader_that_comes_back_at_any_event_misses_nothing_and_gets_nothing_twice(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        whole = (await browser.get(f"/runs/{run_id}/events")).frames
        for number, _ in whole:
            rest = [frame for frame in whole if frame[0] > number]
            assert (await browser.get(f"/runs/{run_id}/events?after={number}")).frames == rest
            by_header = await browser.request("GET", f"/runs/{run_id}/events", headers={"last-event-id": str(number)})
            assert by_header.frames == rest
        (_, reset), *rest = (await browser.get(f"/runs/{run_id}/events?after=99999")).frames
        assert (reset["type"], rest) == ("reset", whole)
        last = await browser.get(f"/runs/{run_id}/events", **{"last-event-id": str(whole[-1][0])})
        assert last.status == 204  # which tells a browser not to come back

    run(tmp_path, TWO_STEPS, test)


def test_a_lost_connection_does_not_end_the_run(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        connection = browser.connect("GET", f"/runs/{run_id}/events")
        await connection.reply.until("run_start")
        connection.leave()
        await asyncio.wait_for(connection.task, 10)
        events = await browser.get(f"/runs/{run_id}/events")
        assert events.frames[-1][1]["output"] == "Sunny."

    run(tmp_path, TWO_STEPS, test)


def test_private_data_vendor_state_and_instructions_do_not_leave(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser, thread="t")
        everything = (await browser.get(f"/runs/{run_id}/events")).body
        everything += (await browser.get(f"/runs/{run_id}")).body + (await browser.get("/threads/t")).body
        assert b"s3cret" not in everything
        assert b"Rome is sunny" in everything

    run(tmp_path, TWO_STEPS, test)


def test_every_event_of_a_log_is_listed_or_left_out_on_purpose() -> None:
    hidden = {"opaque", "unknown", "tool_call_closed", "tool_results", "call_reviewed", "tool_returned"}
    hidden |= {"forked"}  # which has results of the parent's tools
    hidden |= {"argument_delta", "output_delta"}  # which are derived for a reader, and are in no log
    types = {event.type for event in get_args(LogEvent)}
    public: set[Any] = {*PUBLIC_FIELDS}
    assert {event.type for event in public} | hidden == types


def test_an_event_that_is_too_large_is_shortened() -> None:
    frame = EventFrames(1000).frame(7, 1.0, Text(0, "x" * 5000))
    assert len(frame) < 1100
    assert b"is_shortened" in frame


def test_an_approval_names_what_was_shown(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        connection = browser.connect("GET", f"/runs/{run_id}/events")
        await connection.reply.until('"type":"waiting"')
        [request] = (await browser.get(f"/runs/{run_id}")).json["waiting"]
        assert (request["name"], request["arguments"]) == ("pay", {"amount": 7})
        body = {"call_id": request["call_id"], "approved": True}
        assert (await browser.post(f"/runs/{run_id}/decide", body)).status == 400
        forged = await browser.post(f"/runs/{run_id}/decide", {**body, "shown": "0" * 32})
        assert (forged.status, forged.json["error"]["code"]) == (409, "shown_something_else")
        other = await browser.post(f"/runs/{run_id}/decide", {**body, "call_id": "x", "shown": request["shown"]})
        assert other.json["error"]["code"] == "not_waiting"
        misfit = {**body, "shown": request["shown"], "arguments": {"amount": "much"}}
        refused = await browser.post(f"/runs/{run_id}/decide", misfit)
        assert (refused.status, refused.json["error"]["code"]) == (422, "arguments_do_not_fit")
        assert "amount" in refused.json["error"]["message"]
        assert (await browser.post(f"/runs/{run_id}/decide", {**body, "shown": request["shown"]})).json["is_new"]
        await connection.reply.until('"type":"done"')
        assert "paid 7" in connection.reply.body.decode()

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test)


def test_a_result_from_elsewhere_and_a_message_reach_the_run(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        connection = browser.connect("GET", f"/runs/{run_id}/events")
        await connection.reply.until('"type":"waiting"')
        assert (await browser.post(f"/runs/{run_id}/say", {"message": "Hurry.", "key": "k"})).json["is_new"]
        assert not (await browser.post(f"/runs/{run_id}/say", {"message": "Hurry.", "key": "k"})).json["is_new"]
        [request] = (await browser.get(f"/runs/{run_id}")).json["waiting"]
        assert (await browser.post(f"/runs/{run_id}/provide", {"call_id": request["call_id"], "value": "42"})).json[
            "is_new"
        ]
        await connection.reply.until('"type":"done"')
        assert '"text":"42"' in connection.reply.body.decode()
        assert connection.reply.frames[-1][1]["output"] == "You said: Hurry."

    def answer(request: Any) -> Reply | str:
        is_first = request.prompt == "Weather in Rome?"
        return Reply(call("ask_a_person", {"question": "?"})) if is_first else f"You said: {request.prompt}"

    run(tmp_path, (answer,), test)


def test_a_cancel_ends_the_run_and_may_be_repeated(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        connection = browser.connect("GET", f"/runs/{run_id}/events")
        await connection.reply.until('"type":"waiting"')
        assert (await browser.post(f"/runs/{run_id}/cancel")).json["is_new"]
        await connection.reply.until('"type":"done"')
        assert connection.reply.frames[-1][1]["reason"] == "cancelled"
        assert (await browser.post(f"/runs/{run_id}/cancel", {"why": "again"})).status == 200
        assert (await browser.post(f"/runs/{run_id}/say", {"message": "Hi"})).json["error"]["code"] == "run_over"

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test)


def test_a_thread_is_a_conversation_with_one_run_at_a_time(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        first = await started(browser, thread="t")
        connection = browser.connect("GET", f"/runs/{first}/events")
        await connection.reply.until('"type":"waiting"')
        both = await asyncio.gather(*(browser.post("/runs", {"prompt": "More", "thread": "t"}) for _ in range(3)))
        assert {(reply.status, reply.headers["x-run-id"]) for reply in both} == {(409, first)}
        assert (await browser.get("/threads/t")).json["active"] == first
        await browser.post(f"/runs/{first}/cancel")
        await connection.reply.until('"type":"done"')
        race = await asyncio.gather(*(browser.post("/runs", {"prompt": f"More {n}", "thread": "t"}) for n in range(3)))
        assert sorted(reply.status for reply in race) == [201, 409, 409]
        [second] = [reply.json["id"] for reply in race if reply.status == 201]
        await browser.get(f"/runs/{second}/events")
        thread = (await browser.get("/threads/t")).json
        assert [row["id"] for row in thread["runs"]] == [second, first]
        assert [message["role"] for message in thread["messages"]] == ["user", "assistant", "tool", "user", "assistant"]
        assert thread["active"] is None

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "More."), test)


def test_runs_are_listed(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser, thread="t")
        await browser.get(f"/runs/{run_id}/events")
        assert [row["id"] for row in (await browser.get("/runs?state=over&thread=t")).json["runs"]] == [run_id]
        assert (await browser.get("/runs?state=waiting")).json["runs"] == []
        assert (await browser.get("/runs?state=odd")).status == 400

    run(tmp_path, TWO_STEPS, test)


BAD = [
    (b"not json", 400, "not_json"),
    (b"[" * 100 + b"]" * 100, 400, "too_deep"),
    ({}, 400, "invalid_body"),
    ({"prompt": " "}, 400, "empty_prompt"),
    ({"prompt": "Hi", "base_url": "http://evil"}, 400, "invalid_body"),
    ({"prompt": "Hi", "agent": "other"}, 404, "unknown_agent"),
    ({"prompt": "Hi", "thread": "x" * (MAX_ID + 1)}, 400, "invalid_id"),
    ({"prompt": "Hi", "thread": "a/b"}, 400, "invalid_id"),
    ({"prompt": [{"type": "file", "url": "http://169.254.169.254/"}]}, 400, "url_refused"),
    ({"prompt": [{"type": "odd"}]}, 400, "invalid_body"),
    (b'{"prompt": "' + b"x" * 5_000_000 + b'"}', 413, "body_too_large"),
]


@pytest.mark.parametrize(("body", "status", "code"), BAD, ids=[code + str(n) for n, (_, _, code) in enumerate(BAD)])
def test_a_bad_body_is_refused_and_starts_nothing(tmp_path: Path, body: Any, status: int, code: str) -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post("/runs", body)
        assert (reply.status, reply.json["error"]["code"]) == (status, code)
        assert reply.json["error"]["request_id"] == reply.headers["x-request-id"]
        assert (await browser.get("/runs")).json["runs"] == []

    run(tmp_path, TWO_STEPS, test)


EXPLAINED: list[tuple[Any, str]] = [
    ({"promt": "Hi"}, "unknown field `promt`; the fields are: prompt, agent, thread, run_id"),
    ({}, "missing field `prompt`; the fields are: prompt, agent, thread, run_id"),
    ({"prompt": [{"type": "odd"}]}, "Invalid value 'odd' at `$.prompt[0].type`"),
    ({"prompt": "Hi"}, "the request must name an agent; there are: support, sales"),
    ({"prompt": "Hi", "agent": "x"}, "there is no agent 'x' here; there are: support, sales"),
]


def test_a_refusal_says_what_is_wrong_where_and_what_there_is() -> None:
    async def main() -> None:
        agents = [Agent("sim:fast", name=name) for name in ("support", "sales")]
        async with serving(penstock.serve.app(agents)) as browser:
            for body, message in EXPLAINED:
                assert (await browser.post("/runs", body)).json["error"]["message"] == message

    asyncio.run(main())


def test_a_length_with_thousands_of_digits_is_too_large(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post("/runs", {"prompt": "Hi"}, **{"content-length": "9" * 5000})
        assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")

    run(tmp_path, TWO_STEPS, test)


def test_paths_and_methods_that_do_not_exist_are_errors(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        assert (await browser.get("/nothing")).json["error"]["message"] == "there is nothing at /nothing"
        message = (await browser.post("/v1/runs", {})).json["error"]["message"]
        assert message == "there is nothing at /v1/runs; did you mean /runs?"
        reply = await browser.request("DELETE", "/runs")
        assert (reply.status, reply.headers["allow"]) == (405, "GET, POST")
        assert (await browser.request("POST", "/runs", b"{}", {"content-type": "text/plain"})).status == 415
        assert (await browser.get("/runs/unknown/events")).status == 404
        assert (await browser.get("/healthz")).json == {"status": "ok"}
        assert b"penstock_serve_requests" in (await browser.get("/metrics")).body

    run(tmp_path, TWO_STEPS, test)


def test_only_this_machine_is_served_without_a_token(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        assert (await browser.request("GET", "/runs", headers={"host": "evil.example"})).status == 421
        assert (await browser.request("GET", "/runs", headers={"origin": "http://evil.example"})).status == 403
        assert (await browser.request("GET", "/runs", headers={"origin": "http://localhost"})).status == 200
        browser.client = "10.1.2.3"
        assert (await browser.get("/runs")).json["error"]["code"] == "local_only"

    run(tmp_path, TWO_STEPS, test)


def test_a_token_or_its_cookie_is_required(tmp_path: Path) -> None:
    token = "a-long-secret-token"

    async def test(browser: Browser) -> None:
        browser.client = "10.1.2.3"
        assert (await browser.get("/runs")).status == 401
        assert (await browser.get("/runs", authorization="Bearer wrong")).status == 401
        assert (await browser.get("/runs", authorization=f"Bearer {token}")).status == 200
        session = await browser.post("/session", {}, authorization=f"Bearer {token}")
        cookie = session.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        value = cookie.partition(";")[0]
        assert (await browser.get("/runs", cookie=value)).status == 200
        assert (await browser.get("/runs", cookie=value[:-1] + ("0" if value[-1] != "0" else "1"))).status == 401
        name, expires, signature = value.partition("=")[2].split(".")
        later = f"penstock_session={name}.{int(expires) + 9999}.{signature}"
        assert (await browser.get("/runs", cookie=later)).status == 401
        other = await browser.post("/session", {}, authorization=f"Bearer {token}")
        ended = await browser.request("DELETE", "/session", headers={"cookie": value})
        assert (ended.status, "Max-Age=0" in ended.headers["set-cookie"]) == (200, True)
        assert (await browser.get("/runs", cookie=value)).status == 401
        assert (await browser.get("/runs", cookie=other.headers["set-cookie"].partition(";")[0])).status == 200
        assert (await browser.get("/healthz")).status == 200

    run(tmp_path, TWO_STEPS, test, token=token)


def test_a_tenant_sees_only_its_own_runs(tmp_path: Path) -> None:
    def auth(scope: Any) -> str | None:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None

    async def test(browser: Browser) -> None:
        assert (await browser.get("/runs")).status == 401
        browser.headers["x-user"] = "ada"
        run_id = await started(browser, thread="t")
        browser.headers["x-user"] = "bob"
        for path in (f"/runs/{run_id}", f"/runs/{run_id}/events", "/threads/t"):
            assert (await browser.get(path)).status == 404
        assert (await browser.post(f"/runs/{run_id}/cancel")).status == 404
        assert (await browser.get("/runs")).json["runs"] == []

    run(tmp_path, TWO_STEPS, test, auth=auth)


@pytest.mark.parametrize("own", [None, 0.2])
def test_a_run_that_does_not_end_is_ended(tmp_path: Path, own: float | None) -> None:
    """The limit of the server holds for agents that have none; that of the agent for the others."""

    async def main() -> None:
        agent = agent_of(Reply("Let me look.", wait(60)), limits=Limits(seconds=own))
        limits = ServerLimits(run_seconds=0.2 if own is None else 3600)
        app = penstock.serve.app(agent, log=SQLiteStore(tmp_path / "runs.db"), limits=limits)
        async with serving(app) as browser:
            run_id = await started(browser)
            last = (await browser.get(f"/runs/{run_id}/events")).frames[-1][1]
            assert (last["type"], last["reason"]) == ("done", "limit")

    asyncio.run(main())


def test_there_are_limits_to_runs_at_once(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        first = await started(browser)
        second = await browser.post("/runs", {"prompt": "Hi"})
        assert (second.status, second.headers["retry-after"]) == (429, "5")
        await browser.post(f"/runs/{first}/cancel")

    slow = Reply(call("look", {"city": "Rome"}), "…", penstock.testing.wait(30))
    run(tmp_path, (slow,), test, limits=ServerLimits(tenant_runs=1), shutdown_seconds=0.1)


@pytest.mark.parametrize("agents", [[], agent_of(name=""), [agent_of(), agent_of()], {"a": "b"}])
def test_what_cannot_be_served_is_refused(agents: Any) -> None:
    with pytest.raises(UsageError):
        penstock.serve.app(agents)


def test_weak_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 16"):
        penstock.serve.app(agent_of(), token="short")
    with pytest.raises(UsageError, match="token and auth cannot be combined"):
        penstock.serve.app(agent_of(), token="x" * 20, auth=lambda scope: "")


def test_metrics_have_a_bounded_number_of_series() -> None:
    metrics = Metrics("test")
    metrics.counter("requests", "Requests")
    for number in range(MAX_SERIES + 50):
        metrics.add("requests", path=f'/"{number}"')
    lines = metrics.text().decode().splitlines()
    assert len(lines) == MAX_SERIES + 3
    assert 'test_requests{path="other"} 50' in lines
    assert r'test_requests{path="/\"7\""} 1' in lines


def test_a_reader_that_is_far_behind_reads_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_KEPT", 3)
    monkeypatch.setattr(feed, "PAGE", 2)

    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        early = browser.connect("GET", f"/runs/{run_id}/events")
        await early.reply.until('"type":"done"')
        assert len(early.reply.frames) > 10
        assert (await browser.get(f"/runs/{run_id}/events")).frames == early.reply.frames

    run(tmp_path, TWO_STEPS, test)


def test_events_of_other_processes_come_without_a_doorbell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.doorbell.Doorbell.ring", lambda self, run_ids: None)
    monkeypatch.setattr("penstock.log.doorbell.Doorbell.ring_with", lambda self, batches: None)
    monkeypatch.setattr(feed_source, "MAX_POLL", 0.05)

    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        assert (await browser.get(f"/runs/{run_id}/events")).frames[-1][1]["output"] == "Sunny."

    run(tmp_path, TWO_STEPS, test)


def test_a_list_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_api, "MAX_LISTED", 2)

    async def test(browser: Browser) -> None:
        for _ in range(3):
            await started(browser)
        assert len((await browser.get("/runs")).json["runs"]) == 2

    run(tmp_path, ("a", "b", "c"), test)


@pytest.mark.parametrize("damage", ["an event is missing", "an event cannot be read"])
def test_the_stream_of_a_damaged_run_ends_and_says_so(damage: str, tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        run_id = await started(browser)
        path = f"/runs/{run_id}/events"
        early = browser.connect("GET", path)
        await early.reply.until('"type":"approval_request"')
        while len(browser.app.context.host.driven):  # noqa: ASYNC110  # until it waits, and nobody drives it
            await asyncio.sleep(0.01)
        with sqlite3.connect(tmp_path / "runs.db") as file:
            if damage == "an event is missing":
                file.execute("DELETE FROM events WHERE run_id = ? AND seq = 4", (run_id,))
            else:
                file.execute("UPDATE events SET body = x'00' WHERE run_id = ? AND seq = 4", (run_id,))
            file.execute("UPDATE runs SET state = 'damaged' WHERE id = ?", (run_id,))
        file.close()
        await early.reply.until('"type":"done"')
        late = await browser.get(path)
        position = early.reply.frames[-2][0]
        again = await browser.get(path, **{"last-event-id": str(position)})
        assert len(again.frames) == 1
        for reply in (early.reply, late, again):
            assert reply.frames[-1][1]["reason"] == "error"
            assert reply.frames[-1][1]["why"] == DAMAGED
            assert reply.frames[-1][0] == 0, "a client does not continue after it"
        assert late.frames[:1] == early.reply.frames[:1], "what is before the damage is read"

    run(tmp_path, (Reply("Let me pay.", call("pay", {"amount": 5})),), test)
