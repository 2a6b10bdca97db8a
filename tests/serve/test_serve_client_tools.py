"""Tools of clients that take an agent for a model: the ids of their calls name the run, and their results resume it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock.serve
from penstock import Message, ToolResult, Turn, collect, decode
from penstock.content import image
from penstock.declarations import ToolDeclaration
from penstock.log import SQLiteStore
from penstock.messages import result, user
from penstock.serve import ServeApp
from penstock.serve.hosting import read_events
from penstock.serve.models import runs as model_runs
from penstock.serve.models.client_calls import CallRef, read_call_id
from penstock.testing import Reply, call, wait
from penstock.wires import find_encoder
from penstock.wires.shared.request import Request
from tests.asgi_client import Browser, serving
from tests.asgi_client import Reply as Response
from tests.serve.test_serve import agent_of

WIRES: dict[str, Any] = {
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}
PATHS = [*WIRES]
PAINT = ToolDeclaration("paint", "Paint.", {"type": "object", "properties": {"color": {"type": "string"}}})
FETCH = ToolDeclaration("fetch", "Fetch.", {"type": "object", "properties": {"url": {"type": "string"}}})
every_path = pytest.mark.parametrize("path", PATHS)
every_way = pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])


class Client:
    """A stateless client: its history is all that it has."""

    def __init__(
        self, browser: Browser, path: str, *, is_streaming: bool = True, tools: Sequence[Any] = (PAINT, FETCH)
    ):
        self.browser = browser
        self.path = path
        self.is_streaming = is_streaming
        self.tools = tuple(tools)
        self.messages: list[Message] = []
        self.run_ids: list[str] = []

    async def send(self, *messages: Message) -> Turn:
        """Send the history with these messages; the answer is added to it."""
        reply = await self.post(*messages)
        assert reply.status == 200, reply.body
        turn = collect(decode(reply.body, WIRES[self.path]))
        self.messages += [*messages, Message("assistant", turn.parts)]
        self.run_ids.append(reply.headers["x-run-id"])
        return turn

    async def post(self, *messages: Message) -> Response:
        return await self.browser.post(self.path, self.body(*messages))

    def body(self, *messages: Message) -> dict[str, Any]:
        request = Request(
            model="support", messages=(*self.messages, *messages), tools=self.tools, is_streaming=self.is_streaming
        )
        return find_encoder(WIRES[self.path])(request, frozenset()).body


def results(turn: Turn, *values: Any) -> Message:
    parts = [result(call, value) for call, value in zip(turn.tool_calls, values, strict=True)]
    return Message("tool", tuple(parts))


def run(
    path: Path, answers: Sequence[Any], test: Callable[[Browser], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def main() -> None:
        async with serving(served(path, answers, **options)) as browser:
            await test(browser)

    asyncio.run(main())


def served(path: Path, answers: Sequence[Any], **options: Any) -> ServeApp:
    return penstock.serve.app(agent_of(*answers), log=SQLiteStore(path / "runs.db"), shutdown_seconds=0.1, **options)


async def rows(browser: Browser) -> list[Any]:
    found: list[Any] = (await browser.get("/runs")).json["runs"]
    return found


async def events_of(browser: Browser, run_id: str) -> list[dict[str, Any]]:
    return [event for _, event in (await browser.get(f"/runs/{run_id}/events")).frames]


@every_way
@every_path
def test_a_call_of_a_clients_tool_ends_the_response_and_its_result_resumes_the_run(
    tmp_path: Path, path: str, is_streaming: bool
) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path, is_streaming=is_streaming)
        first = await client.send(user("Paint it."))
        [painted] = first.tool_calls
        assert (first.text, first.finish_reason, painted.name) == ("I paint. ", "tool_calls", "paint")
        assert painted.arguments == {"color": "red"}
        assert read_call_id(painted.id) is not None
        assert len(painted.id) <= 40
        second = await client.send(results(first, "done"))
        assert (second.text, second.finish_reason) == ("Painted.", "stop")
        assert len({*client.run_ids}) == len(await rows(browser)) == 1
        ends = [event for event in await events_of(browser, client.run_ids[0]) if event["type"] == "tool_end"]
        assert [end["result"]["text"] for end in ends] == ["done"]
        assert first.usage is not None
        assert second.usage is not None
        state = (await browser.get(f"/runs/{client.run_ids[0]}")).json
        assert first.usage.output_tokens + second.usage.output_tokens == state["usage"]["output_tokens"]
        assert second.usage.output_tokens > 0

    run(tmp_path, (Reply("I paint. ", call("paint", {"color": "red"})), "Painted."), test)


TWO = Reply(call("look", {"city": "Rome"}), call("paint", {"color": "red"}), call("fetch", {"url": "a"}))


def results_of(request: Any) -> str:
    """What the model has read of its last calls."""
    return "; ".join(f"{one.name}: {one.text}" for one in request.results)


def two_calls(request: Any) -> Reply | str:
    return results_of(request) if request.results else TWO


@every_path
def test_calls_of_agent_and_client_in_one_answer_are_answered_together_in_any_order(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        assert [call.name for call in first.tool_calls] == ["paint", "fetch"]
        answers = results(first, "red paint", "a page")
        second = await client.send(Message("tool", answers.parts[::-1]))
        assert second.text == "look: Rome is sunny; paint: red paint; fetch: a page"
        kinds = [event["type"] for event in await events_of(browser, client.run_ids[0])]
        assert (kinds.count("tool_start"), kinds.count("step_start")) == (1, 2)
        assert len(await rows(browser)) == 1

    run(tmp_path, (two_calls,), test)


@every_path
def test_a_read_between_two_client_calls_sees_the_first_and_not_the_second(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        assert [call.name for call in first.tool_calls] == ["paint"]
        second = await client.send(results(first, "red"))
        assert [call.name for call in second.tool_calls] == ["fetch"]
        third = await client.send(results(second, "a page"))
        assert third.text == "paint: red; look: Rome is sunny; fetch: a page"
        events = await events_of(browser, client.run_ids[0])
        order = ("approval_request", "tool_start", "tool_end")
        kinds = [(event["type"], event["name"]) for event in events if event["type"] in order]
        look = [("tool_start", "look"), ("tool_end", "look")]
        paint, fetch = [[("approval_request", name), ("tool_end", name)] for name in ("paint", "fetch")]
        assert kinds == [*paint, *look, *fetch]
        assert [event["type"] for event in events].count("step_start") == 2

    calls = [call("paint", {"color": "red"}), call("look", {"city": "Rome"}), call("fetch", {"url": "a"})]
    run(tmp_path, (lambda request: results_of(request) if request.results else Reply(*calls),), test)


@every_path
def test_a_run_may_ask_its_client_again_and_again(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        turn = await client.send(user("Go."))
        for number in range(3):
            turn = await client.send(results(turn, f"coat {number}"))
        assert turn.text == "paint: coat 0; paint: coat 1; paint: coat 2"
        assert len(await rows(browser)) == 1
        await client.send(user("Thanks."))  # the calls are history now, and the run is another one
        assert len(await rows(browser)) == 2

    def answer(request: Any) -> Reply | str:
        return Reply(call("paint", {"color": "red"})) if len(request.results) < 3 else results_of(request)

    run(tmp_path, (answer,), test)


def test_a_failed_call_an_image_and_a_remark_of_the_user_reach_the_model(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, "/v1/messages")
        first = await client.send(user("Go."))
        [paint, fetch] = first.tool_calls
        pixel = image(b"\x89PNG\r\n\x1a\n0000", "image/png")
        answers = (
            ToolResult(paint.id, "paint", result(paint, "no paint").content, is_error=True),
            result(fetch, [pixel]),
        )
        second = await client.send(Message("tool", answers), user("Hurry!"))
        assert second.text == "Hurry! 1 image"
        events = await events_of(browser, client.run_ids[0])
        ends = {event["name"]: event["result"] for event in events if event["type"] == "tool_end"}
        assert (ends["paint"]["is_error"], ends["fetch"]["media"][0]["media_type"]) == (True, "image/png")
        assert [event["text"] for event in events if event["type"] == "said"] == ["Hurry!"]

    def answer(request: Any) -> Reply | str:
        return f"{request.prompt} {str(request.body).count('data:image/png')} image" if "!" in request.prompt else TWO

    run(tmp_path, (answer,), test)


@every_path
def test_results_that_come_twice_at_once_resume_the_run_once(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        body = client.body(results(first, "red", "a page"))
        connections = [browser.connect("POST", path, body) for _ in range(5)]
        async with asyncio.timeout(20):
            while sum(connection.task.done() for connection in connections) < 4:
                await asyncio.wait(
                    {one.task for one in connections if not one.task.done()}, return_when="FIRST_COMPLETED"
                )
        [resumed] = [connection for connection in connections if not connection.task.done()]
        await resumed.reply.until("begun")
        assert {one.reply.status for one in connections if one is not resumed} == {409}
        assert len(await rows(browser)) == 1
        resumed.leave()
        kinds = [event["type"] for event in await events_of(browser, client.run_ids[0])]
        assert kinds.count("step_start") == 2

    limits = penstock.serve.ServerLimits(retry_seconds=0)
    run(tmp_path, (lambda request: Reply("begun", wait(60)) if request.results else TWO,), test, limits=limits)


@every_path
def test_results_that_come_while_others_are_looked_up_resume_the_run_once(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_looking, may_read = threading.Event(), threading.Event()

    def read_late(*arguments: Any) -> Any:
        if not is_looking.is_set():
            is_looking.set()
            may_read.wait(20)
        return read_events(*arguments)

    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        body = client.body(results(first, "red", "a page"))
        monkeypatch.setattr(model_runs, "read_events", read_late)
        late = browser.connect("POST", path, body)
        await asyncio.to_thread(is_looking.wait, 20)
        resumed = browser.connect("POST", path, body)
        await resumed.reply.until("begun")
        may_read.set()
        async with asyncio.timeout(20):
            await late.task
        assert late.reply.status == 409
        assert len(await rows(browser)) == 1
        resumed.leave()

    limits = penstock.serve.ServerLimits(retry_seconds=0)
    run(tmp_path, (lambda request: Reply("begun", wait(60)) if request.results else TWO,), test, limits=limits)


@every_path
def test_results_for_a_run_that_has_gone_on_start_another_from_where_it_asked(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        again = Client(browser, path)
        again.messages = [*client.messages]
        await client.send(results(first, "red", "a page"))
        other = await again.send(results(first, "blue", "no page"))
        assert other.text == "look: Rome is sunny; paint: blue; fetch: no page"  # also what the client has not seen
        assert again.run_ids != client.run_ids[:1]
        looks = [event["type"] for row in await rows(browser) for event in await events_of(browser, row["id"])]
        assert looks.count("tool_start") == 1  # the agent's tool has not run again

    run(tmp_path, (two_calls,), test)


@every_path
def test_results_for_a_run_that_was_cancelled_start_another(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        await browser.post(f"/runs/{client.run_ids[0]}/cancel")
        assert (await events_of(browser, client.run_ids[0]))[-1]["reason"] == "cancelled"
        second = await client.send(results(first, "red", "a page"))
        assert second.text == "look: Rome is sunny; paint: red; fetch: a page"

    run(tmp_path, (two_calls,), test)


def with_ids(messages: Sequence[Message], ids: dict[str, str]) -> list[Message]:
    """The messages with other ids of calls."""
    return [msgspec.convert(_renamed(msgspec.to_builtins(message), ids), Message) for message in messages]


def _renamed(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(item, ids) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item, ids) for item in value]
    return ids.get(value, value) if isinstance(value, str) else value


@every_path
def test_forged_ids_and_those_of_other_tenants_are_unknown(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        browser.headers["x-user"] = "ada"
        client = Client(browser, path)
        first = await client.send(user("Go."))
        ids = [call.id for call in first.tool_calls]
        [ref, _] = [ref for id in ids if (ref := read_call_id(id))]
        history = [*client.messages, results(first, "red", "a page")]

        async def status(ids: dict[str, str]) -> tuple[int, Any]:
            client.messages = with_ids(history, ids)
            reply = await client.post()
            return reply.status, reply.json["error"]

        other_run = {id: CallRef("0" * 32, number).id for number, id in enumerate(ids, 1)}
        other_event = {ids[0]: CallRef(ref.run_id, 1).id, ids[1]: CallRef(ref.run_id, 99999).id}
        for forged in (other_run, other_event):
            found, error = await status(forged)
            assert found == 404
            assert "nobody here has asked" in error["message"]
        found, error = await status({ids[0]: CallRef("1" * 32, 5).id})
        assert (found, "one answer" in error["message"]) == (400, True)
        found, error = await status({ids[0]: "call_of_somebody_else"})
        assert found == 400
        browser.headers["x-user"] = "bob"
        assert (await status({}))[0] == 404
        assert await rows(browser) == []
        browser.headers["x-user"] = "ada"
        assert [row["state"] for row in await rows(browser)] == ["waiting"]
        client.messages = history
        assert (await client.post()).status == 200

    def auth(scope: Any) -> str | None:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None

    run(tmp_path, (two_calls,), test, auth=auth)


def test_vendor_state_of_a_client_does_not_reach_the_account_of_the_server(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        items = [
            {"role": "user", "content": "Hi", "vendor_field": "stolen"},
            {"type": "reasoning", "id": "rs_stolen", "summary": [], "encrypted_content": "stolen"},
            {"type": "item_reference", "id": "msg_stolen"},
            {"type": "message", "id": "msg_stolen", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
            {"type": "mcp_approval_response", "approval_request_id": "stolen", "approve": True},
            {"role": "user", "content": "And?"},
        ]  # fmt: skip
        reply = await browser.post("/v1/responses", {"model": "support", "input": items})
        assert reply.json["output"][0]["content"][0]["text"] == "none"

    def answer(request: Any) -> str:
        return "stolen" if "stolen" in str(request.body) else "none"

    run(tmp_path, (answer,), test)


@every_path
def test_a_history_from_elsewhere_starts_a_run(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        ids = {call.id: f"call_{number}" for number, call in enumerate(first.tool_calls)}
        client.messages = with_ids([*client.messages, results(first, "red", "a page")], ids)
        turn = await client.send()
        assert turn.text == "paint: red; fetch: a page"  # what the client knows, and no more
        assert len(await rows(browser)) == 2

    run(tmp_path, (two_calls,), test)


@pytest.mark.parametrize(
    ("path", "continued", "code"),
    [
        ("/v1/responses", {"previous_response_id": "resp_1"}, b"previous_response_not_found"),
        ("/v1/messages", {"thread": {"type": "continue", "previous_message_id": "msg_1"}}, b"thread_not_found"),
    ],
)
def test_results_alone_resume_the_run_of_a_client_that_counts_on_the_server(
    tmp_path: Path, path: str, continued: dict[str, Any], code: bytes
) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path, is_streaming=False)
        first = await client.send(user("Go."))
        client.messages = []
        body = client.body(results(first, "red", "a page")) | continued
        reply = await browser.post(path, body)
        assert "look: Rome is sunny; paint: red; fetch: a page" in reply.body.decode()
        unknown = await browser.post(path, client.body(user("Go on.")) | continued)
        assert unknown.status == 404  # the text of earlier answers is not kept
        assert code in unknown.body
        assert len(await rows(browser)) == 1

    run(tmp_path, (two_calls,), test)


@every_path
def test_a_call_without_its_result_is_refused_with_its_place(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        body = client.body(results(first, "red", "a page"))
        items = body["input" if "input" in body else "messages"]
        if path == "/v1/messages":
            items[-1]["content"].pop()
        else:
            items.pop()
        reply = await browser.post(path, body)
        assert reply.status == 400
        assert "has no result" in reply.json["error"]["message"]
        assert reply.json["error"]["message"].startswith(("messages[", "input["))
        assert [row["state"] for row in await rows(browser)] == ["waiting"]

    run(tmp_path, (two_calls,), test)


@every_path
def test_a_tool_with_the_name_of_one_of_the_agents_is_refused(tmp_path: Path, path: str) -> None:
    async def test(browser: Browser) -> None:
        for tools, why in (
            ([ToolDeclaration("look", "Mine.", {"type": "object"})], "'look'"),
            ([PAINT, PAINT], "another tool"),
            ([ToolDeclaration(f"f{number}", "", {"type": "object"}) for number in range(300)], "256 tools"),
        ):
            reply = await Client(browser, path, tools=tools).post(user("Go."))
            assert (reply.status, why in reply.json["error"]["message"]) == (400, True), reply.body
        hosted = (
            {"type": "web_search_20250305", "name": "web_search"} if path == "/v1/messages" else {"type": "web_search"}
        )
        reply = await browser.post(path, Client(browser, path).body(user("Go.")) | {"tools": [hosted]})
        assert reply.status == 400
        assert await rows(browser) == []

    run(tmp_path, (two_calls,), test)


def test_a_client_that_wants_no_calls_gets_none(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        body = Client(browser, PATHS[0]).body(user("Go."))
        reply = await browser.post(PATHS[0], body | {"tool_choice": "none", "stream": False})
        assert reply.json["choices"][0]["message"]["content"] == "look, pay, ask_a_person"
        reply = await browser.post(PATHS[0], body | {"tool_choice": "required"})
        assert (reply.status, reply.json["error"]["code"]) == (400, "tool_choice_refused")
        format = {"type": "json_object"}
        reply = await browser.post(PATHS[0], body | {"response_format": format})
        assert (reply.status, reply.json["error"]["code"]) == (400, "output_refused")
        for setting in ({"n": 2}, {"logprobs": True}, {"modalities": ["text", "audio"]}):
            reply = await browser.post(PATHS[0], body | setting)
            assert (reply.status, reply.json["error"]["code"]) == (400, "setting_refused")
            assert reply.json["error"]["message"].startswith(f"{next(iter(setting))}: an agent ")
        reply = await browser.post(PATHS[1], Client(browser, PATHS[1]).body(user("Go.")) | {"background": True})
        assert (reply.status, reply.json["error"]["code"]) == (400, "setting_refused")
        assert len(await rows(browser)) == 1
        reply = await browser.post(PATHS[0], body | {"n": 1, "logprobs": False, "tool_choice": "none"})
        assert reply.status == 200

    run(tmp_path, (lambda request: ", ".join(tool.name for tool in request.tools),), test)


@pytest.mark.parametrize(("approvals", "text"), [("decline", "cannot approve"), ("approve", "paid 7")])
@every_path
def test_an_approval_beside_a_call_of_the_client_is_decided_by_the_server(
    tmp_path: Path, path: str, approvals: str, text: str
) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path)
        first = await client.send(user("Go."))
        assert [call.name for call in first.tool_calls] == ["paint"]
        second = await client.send(results(first, "red"))
        assert text in second.text
        assert "paint: red" in second.text
        assert "ask_a_person: this client cannot" in second.text

    def answer(request: Any) -> Reply | str:
        calls = call("pay", {"amount": 7}), call("paint", {"color": "red"}), call("ask_a_person", {"question": "?"})
        return results_of(request) if request.results else Reply(*calls)

    run(tmp_path, (answer,), test, model_approvals=approvals)


def test_an_approval_can_wait_for_a_decision_from_elsewhere(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, PATHS[0], is_streaming=False)
        answering = asyncio.create_task(client.send(user("Go.")))
        while not (found := await rows(browser)):
            pass
        following = browser.connect("GET", f"/runs/{found[0]['id']}/events")
        await following.reply.until('"type":"waiting"')
        [request] = (await browser.get(f"/runs/{found[0]['id']}")).json["waiting"]
        body = {"call_id": request["call_id"], "approved": True, "shown": request["shown"]}
        assert (await browser.post(f"/runs/{found[0]['id']}/decide", body)).status == 200
        assert (await answering).text == "Paid."

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test, model_approvals="wait")


def test_a_damaged_call_is_repeated_to_the_model_and_not_to_the_client(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, PATHS[0])
        first = await client.send(user("Go."))
        assert [call.arguments for call in first.tool_calls] == [{"color": "blue"}]
        assert (await client.send(results(first, "blue"))).text == "Painted."

    broken = Reply("Hm. ", call("paint", '{"color": ]'))
    run(tmp_path, (broken, Reply(call("paint", {"color": "blue"})), "Painted."), test)


@every_way
@every_path
def test_a_client_that_leaves_cancels_the_run_that_it_has_resumed(
    tmp_path: Path, path: str, is_streaming: bool
) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, path, is_streaming=is_streaming)
        first = await client.send(user("Go."))
        connection = browser.connect("POST", path, client.body(results(first, "red", "a page")))
        following = browser.connect("GET", f"/runs/{client.run_ids[0]}/events")
        await following.reply.until("begun")
        connection.leave()
        async with asyncio.timeout(20):
            await connection.task
        await following.reply.until('"type":"done"')
        assert following.reply.frames[-1][1]["reason"] == "cancelled"
        again = await client.send(results(first, "red", "a page"))
        assert again.text == "Again."

    answers = iter((Reply("begun", wait(60)), "Again."))
    limits = penstock.serve.ServerLimits(retry_seconds=0.1)
    run(tmp_path, (lambda request: next(answers) if request.results else TWO,), test, limits=limits)


def test_a_client_that_leaves_after_the_last_piece_does_not_cancel_the_run(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        client = Client(browser, PATHS[0])
        connection = browser.connect("POST", PATHS[0], client.body(user("Go.")))
        await connection.reply.until("[DONE]")
        connection.leave()  # before the response has ended
        async with asyncio.timeout(20):
            await connection.task
        assert [row["state"] for row in await rows(browser)] == ["waiting"]

    run(tmp_path, (two_calls,), test)


@every_path
def test_another_process_resumes_the_run(tmp_path: Path, path: str) -> None:
    async def main() -> None:
        async with serving(served(tmp_path, (two_calls,))) as browser:
            client = Client(browser, path)
            first = await client.send(user("Go."))
        async with serving(served(tmp_path, (two_calls,))) as browser:
            client.browser = browser
            second = await client.send(results(first, "red", "a page"))
            assert second.text == "look: Rome is sunny; paint: red; fetch: a page"
            assert len(await rows(browser)) == 1

    asyncio.run(main())


def test_runs_that_continue_count_as_runs_at_once(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        one, other = Client(browser, PATHS[0]), Client(browser, PATHS[0])
        first = await one.send(user("Go."))
        await idle(browser)
        second = await other.send(user("Go."))
        await idle(browser)
        busy = browser.connect("POST", PATHS[0], one.body(results(first, "red", "a page")))
        await busy.reply.until("begun")
        refused = await other.post(results(second, "red", "a page"))
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        assert sorted(row["state"] for row in await rows(browser)) == ["running", "waiting"]
        busy.leave()

    def answer(request: Any) -> Reply:
        return Reply("begun", wait(60)) if request.results else TWO

    run(tmp_path, (answer,), test, limits=penstock.serve.ServerLimits(tenant_runs=1))


async def idle(browser: Browser) -> None:
    """Wait until the server drives no run: a response may end a moment before."""
    async with asyncio.timeout(20):
        while b"penstock_serve_runs 0" not in (await browser.get("/metrics")).body:
            pass


def test_a_custom_tool_is_called_with_free_text(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        tools = [{"type": "custom", "name": "shell", "description": "Run."}]
        body: dict[str, Any] = {"model": "support", "input": [{"role": "user", "content": "Go."}], "tools": tools}
        first = (await browser.post("/v1/responses", body)).json
        [item] = first["output"]
        assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "shell", "ls")
        answer = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "files"}
        body["input"] += [item, answer]
        second = (await browser.post("/v1/responses", body)).json
        assert second["output"][0]["content"][0]["text"] == "shell: files"
        assert first["id"] != second["id"]

    def reply(request: Any) -> Reply | str:
        return results_of(request) if request.results else Reply(call("shell", {"input": "ls"}))

    run(tmp_path, (reply,), test)


@pytest.mark.parametrize("id", ["call_x", "call_" + "A" * 22, "call_" + "A" * 22 + "_0", "call_" + "B" * 22 + "_1", ""])
def test_an_id_of_somebody_else_is_not_taken_for_ours(id: str) -> None:
    assert read_call_id(id) is None
    ours = CallRef("0123456789abcdef" * 2, 7)
    assert read_call_id(ours.id) == ours
