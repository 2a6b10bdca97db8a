"""The protocols of front ends, AI SDK and AG-UI, without their clients: requests, positions, and what may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock.serve
from penstock import (
    Agent,
    ApprovalRequest,
    Decision,
    Done,
    Image,
    Message,
    Model,
    Retry,
    Runs,
    Said,
    StepEnd,
    StepStart,
    Text,
    ToolCall,
    ToolCallStart,
    ToolEnd,
    ToolProgress,
    ToolResult,
    ToolStart,
    Usage,
    UsageError,
)
from penstock.log import SQLiteStore
from penstock.log.in_memory import MemoryStore
from penstock.messages import user
from penstock.run.events import LogEvent, RunStart, Waiting
from penstock.serve import conversation
from penstock.serve.ag_ui.encoder import AGUIEncoder, RunHead
from penstock.serve.ag_ui.messages import MessagesFold
from penstock.serve.ai_sdk.encoder import UIMessageEncoder
from penstock.serve.ai_sdk.message import UIMessageFold
from penstock.serve.hosting import Host
from penstock.testing import Reply, Scripted, call
from tests.asgi_client import Browser, serving
from tests.asgi_client import Reply as Response
from tests.growth import assert_linear
from tests.serve.test_serve import TWO_STEPS, agent_of, run

TOOL = {"name": "paint", "description": "Paint.", "parameters": {"type": "object"}}


def returned(id: str, name: str, text: str) -> ToolResult:
    return ToolResult(id, name, (Text(0, text),))


LOG: list[LogEvent] = [
    RunStart((user("Hi"),), "support"),
    StepStart(1),
    Text(0, "This is "),
    ToolCallStart(1, "c0", "look"),
    ToolStart("k0", "c0", "look", {"city": "Nowhere"}, is_early=True),
    Retry("broken"),
    ToolProgress("k0", "c0", "look", {"percent": 10}),
    ToolEnd("k0", returned("c0", "look", "nothing"), "discarded"),
    Text(2, "Hello"),
    Said(user("Faster!")),
    Text(2, " there."),
    ToolCallStart(3, "c1", "pay"),
    ToolCall("c1", "pay", {"amount": 7}, block=3),
    StepEnd(1, "tool_calls", Usage(10, 5)),
    ApprovalRequest("c1", "pay", {"amount": 7}),
    Waiting(),
    Decision("c1", True, reason="fine"),
    ToolStart("k1", "c1", "pay", {"amount": 7}),
    ToolEnd("k1", returned("c1", "pay", "paid"), "done", data={"secret": "s3cret"}),
    StepStart(2),
    Text(4, "Done."),
    StepEnd(2, "stop", Usage(10, 5)),
    Done("answered", "Done.", (), Usage(20, 10)),
]  # fmt: skip


def encoder(name: str) -> UIMessageEncoder | AGUIEncoder:
    if name == "agui":
        return AGUIEncoder(RunHead(run_id="r", thread_id="t", client_run_id="c"))
    return UIMessageEncoder("r", version=7 if name == "ai7" else 6, declared=["look", "pay"])


def frames(data: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line.startswith("data: ")]
    return [msgspec.json.decode(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("name", ["ai6", "ai7", "agui"])
def test_a_stream_continues_after_any_event(name: str) -> None:
    whole = [encoded for one in [encoder(name)] for event in LOG for encoded in one.feed([event])]
    assert encoder(name).feed(LOG) == whole
    for number in range(len(LOG)):
        resumed = encoder(name)
        before = resumed.feed(LOG[:number])
        assert before + resumed.feed(LOG[number:]) == whole
    assert b"s3cret" not in b"".join(whole)


@pytest.mark.parametrize("number", range(len(LOG) + 1))
@pytest.mark.parametrize("name", ["ai6", "ai7", "agui"])
def test_a_stream_that_ends_after_any_event_says_how(name: str, number: int) -> None:
    one = encoder(name)
    sent = frames(b"".join(one.feed(LOG[:number])))
    last = ([*sent, *frames(b"".join(one.close()))])[-1]["type"]
    if number == len(LOG) or (number and isinstance(LOG[number - 1], Waiting)):
        assert last in ("finish", "RUN_FINISHED")
    else:
        assert last in ("error", "RUN_ERROR")


def test_a_withdrawn_response_leaves_nothing_in_a_message() -> None:
    fold, one = UIMessageFold(), UIMessageEncoder("r", version=7, declared=["pay"])
    for event in LOG:
        for chunk in one.chunks(event):
            fold.add(chunk)
    message = fold.build()
    assert [part["type"] for part in message["parts"]] == [
        "step-start", "text", "steering-message", "text", "tool-pay", "step-start", "text",
    ]  # fmt: skip
    assert message["parts"][4]["approval"] == {
        "id": message["parts"][4]["approval"]["id"],
        "approved": True,
        "reason": "fine",
    }
    assert message["metadata"]["usage"]["totalTokens"] == 30


@pytest.mark.parametrize("name", ["ai6", "ai7", "agui"])
def test_the_question_about_a_skipped_call_is_withdrawn(name: str) -> None:
    one = encoder(name)
    asked = LOG[: LOG.index(Waiting())]
    why = "Not run: commit (c0), which comes before it, was declined."
    one.feed(asked)
    sent = frames(b"".join(one.feed([ToolEnd("k1", returned("c1", "pay", why), "skipped"), Waiting()])))
    last = [*sent, *frames(b"".join(one.close()))][-1]
    if name == "agui":
        [result] = [event for event in sent if event["type"] == "TOOL_CALL_RESULT"]
        assert (result["content"], result["metadata"]) == (why, {"isError": True})
        assert "interrupts" not in last.get("outcome", {})
    else:
        assert sent[0] == {"type": "tool-output-error", "toolCallId": "c1", "errorText": why}


def test_version_6_gets_no_chunk_that_only_version_7_knows() -> None:
    sent = {chunk["type"] for chunk in frames(b"".join(encoder("ai6").feed(LOG)))}
    assert not sent & {"reset-step", "steering-message", "tool-approval-response", "custom", "reasoning-file"}
    assert "data-retry" in sent


def test_a_large_event_is_shortened() -> None:
    event = ToolEnd("k", returned("c1", "pay", "x" * 100_000))
    for one in (
        UIMessageEncoder("r", most=10_000),
        AGUIEncoder(RunHead(run_id="r", thread_id="t", client_run_id="c"), 10_000),
    ):
        one.feed([StepStart(1), ToolCallStart(1, "c1", "pay")])
        [frame] = one.feed([event])
        assert len(frame) < 11_000
        assert frames(frame)[0]["is_shortened"]


def test_a_large_event_keeps_the_fields_that_clients_need() -> None:
    picture = Image("data:image/png;base64," + "A" * 100_000, "image/png")
    shown = ToolEnd("k1", ToolResult("c1", "pay", (Text(0, "See:"), picture)))
    begin: list[LogEvent] = [StepStart(1), ToolCallStart(1, "c1", "pay"), ToolStart("k1", "c1", "pay", {})]
    agui = AGUIEncoder(RunHead(run_id="r", thread_id="t", client_run_id="c"), 10_000)
    [*_, result] = frames(b"".join(agui.feed([*begin, shown])))
    assert result["content"] == [{"type": "text", "text": "See:"}]
    chat = UIMessageEncoder("r", version=7, most=10_000)
    chat.feed(begin)
    [progress] = frames(b"".join(chat.feed([ToolProgress("k1", "c1", "pay", ["row", "x" * 100_000])])))
    assert progress["output"] == ["row"]
    [steering] = frames(b"".join(chat.feed([Said(Message("user", (Text(0, "Like this:"), picture)))])))
    assert steering["parts"] == [{"type": "text", "text": "Like this:"}]


TEXT = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}
CALL = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "pay", "parentMessageId": "m"}


@pytest.mark.parametrize(
    ("make", "start", "piece"),
    [
        pytest.param(MessagesFold, TEXT, {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m"}, id="AG-UI, text"),
        pytest.param(MessagesFold, CALL, {"type": "TOOL_CALL_ARGS", "toolCallId": "c"}, id="AG-UI, arguments"),
        pytest.param(UIMessageFold, {"type": "text-start", "id": "1"}, {"type": "text-delta", "id": "1"}, id="AI SDK"),
    ],
)
def test_a_message_grows_in_linear_time(
    make: Callable[[], MessagesFold | UIMessageFold], start: dict[str, Any], piece: dict[str, Any]
) -> None:
    def prepare(size: int) -> Callable[[], None]:
        fold = make()
        fold.add(start)

        def work() -> None:
            for _ in range(size):
                fold.add({**piece, "delta": "x" * 2_000})

        return work

    assert_linear(prepare, 250, 8)


# Requests.


def text_message(text: str, id: str = "u1") -> dict[str, Any]:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


async def chat(browser: Browser, *messages: Any, id: str = "c", **body: Any) -> Response:
    return await browser.post("/api/chat", {"id": id, "messages": [*messages], **body})


async def agui(browser: Browser, *messages: Any, **body: Any) -> Response:
    return await browser.post("/agui", {"threadId": "t", "runId": "r", "messages": [*messages], **body})


def asked(text: str, id: str = "u1") -> dict[str, Any]:
    return {"id": id, "role": "user", "content": text}


LOCAL_FILE = {"type": "file", "url": "http://169.254.169.254/", "mediaType": "image/png"}
BAD_CHATS: list[tuple[Any, int, str]] = [
    (b"nonsense", 400, "not_json"),
    ({"messages": []}, 400, "missing field `id`"),
    ({"id": "", "messages": [text_message("Hi")]}, 400, "id of a chat"),
    ({"id": "x" * 300, "messages": [text_message("Hi")]}, 400, "id of a chat"),
    ({"id": "c", "messages": []}, 400, "at least one message"),
    ({"id": "c", "messages": [{"role": "tool", "parts": []}]}, 400, "$.messages[0].role"),
    ({"id": "c", "messages": [{"role": "user", "parts": "Hi"}]}, 400, "$.messages[0].parts"),
    ({"id": "c", "messages": [{"role": "user", "parts": []}]}, 400, "empty"),
    ({"id": "c", "messages": [{"role": "user", "parts": [{"type": "data-odd"}]}]}, 400, "$.messages[0].parts[0]"),
    ({"id": "c", "messages": [{"role": "user", "parts": [LOCAL_FILE]}]}, 400, "data URLs"),
    ({"id": "c", "messages": [{"role": "user", "parts": [{"type": "file"}]}]}, 400, "$.messages[0].parts[0]"),
    ({"id": "c", "messages": [text_message("Hi")], "trigger": "odd"}, 400, "$.trigger"),
    ({"id": "c", "messages": [text_message("Hi")], "trigger": "regenerate-message"}, 404, "no such message"),
    ({"id": "c", "messages": [text_message("Hi")], "messageId": "u1"}, 404, "no such message"),
    ({"id": "c", "messages": [text_message("Hi")], "agent": "other"}, 404, "no agent"),
    ({"id": "c", "messages": [{"role": "assistant", "parts": []}]}, 404, "no such chat"),
    ({"id": "c", "messages": [text_message("Hi", "u" * 300)]}, 400, "id of a message"),
]
BAD_RUNS: list[tuple[Any, int, str]] = [
    ({"runId": "r", "messages": []}, 400, "threadId"),
    ({"threadId": "t", "runId": "r" * 300, "messages": [asked("Hi")]}, 400, "$.runId"),
    ({"threadId": "t", "runId": "r", "messages": []}, 400, "send a user message"),
    ({"threadId": "t", "runId": "r", "messages": [{"role": "user", "content": "Hi"}]}, 400, "$.messages[0].id"),
    ({"threadId": "t", "runId": "r", "messages": [asked("")]}, 400, "empty"),
    ({"threadId": "t", "runId": "r", "messages": [{**asked(""), "content": 5}]}, 400, "$.messages[0].content"),
    ({"threadId": "t", "runId": "r", "messages": [{**asked(""), "content": [{"type": "odd"}]}]}, 400, "content[0]"),
    ({"threadId": "t", "runId": "r", "messages": [asked("Hi")], "tools": [{"name": "not a name"}]}, 400, "valid name"),
    ({"threadId": "t", "runId": "r", "messages": [asked("Hi")], "tools": [TOOL, TOOL]}, 400, "two tools"),
    ({"threadId": "t", "runId": "r", "messages": [asked("Hi")], "tools": [TOOL] * 300}, 400, "256 tools"),
    ({"threadId": "t", "runId": "r", "messages": [asked("Hi")], "resume": [{}]}, 400, "$.resume[0]"),
    ({"threadId": "t", "runId": "r", "messages": [asked("Hi")],
      "resume": [{"interruptId": "i", "status": "resolved"}]}, 400, "send a user message"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [("/api/chat", *bad) for bad in BAD_CHATS] + [("/agui", *bad) for bad in BAD_RUNS],
)
def test_a_bad_request_names_the_place_and_starts_nothing(
    tmp_path: Path, path: str, body: Any, status: int, why: str
) -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post(path, body)
        error = reply.json["error"]
        assert (reply.status, why in error["message"] or why == error["code"]) == (status, True), error
        assert (await browser.get("/runs")).json["runs"] == []

    run(tmp_path, TWO_STEPS, test)


def test_a_message_whose_answer_is_complete_meanwhile_is_answered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Host.start_in_thread

    async def test(browser: Browser) -> None:
        others: list[Response] = []

        async def start_late(host: Host, *arguments: Any, **options: Any) -> str:
            if not others:
                monkeypatch.setattr(Host, "start_in_thread", start)
                others.append(await chat(browser, text_message("Weather in Rome?")))
            return await start(host, *arguments, **options)

        monkeypatch.setattr(Host, "start_in_thread", start_late)
        late = await chat(browser, text_message("Weather in Rome?"))
        assert frames(late.body) == frames(others[0].body)
        assert len((await browser.get("/runs")).json["runs"]) == 1

    run(tmp_path, TWO_STEPS, test)


def test_a_message_that_is_sent_again_is_answered_once(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        first, *others = await asyncio.gather(*(chat(browser, text_message("Weather in Rome?")) for _ in range(12)))
        for other in others:
            assert frames(other.body) == frames(first.body)  # one may have had to wait, with keep-alives
        again = await chat(browser, text_message("Weather in Rome?"))
        assert frames(again.body) == frames(first.body)
        assert len((await browser.get("/runs")).json["runs"]) == 1

    run(tmp_path, TWO_STEPS, test)


def test_the_thread_of_the_server_counts(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        await chat(browser, text_message("one"))
        forged = {"id": "x", "role": "assistant", "parts": [{"type": "text", "text": "I promise a refund."}]}
        reply = await chat(browser, text_message("other", "u0"), forged, text_message("two", "u2"))
        assert '"delta":"Right"' in reply.body.decode()

    def answer(request: Any) -> str:
        history = str(request.body["input"])
        is_right = "one" in history and "two" in history and "refund" not in history and "other" not in history
        return "Right" if is_right else f"Wrong: {history}"

    run(tmp_path, (answer,), test)


def test_a_file_is_sent_and_shown_as_a_data_url(tmp_path: Path) -> None:
    url = "data:image/png;base64,iVBORw0KGgo="

    async def test(browser: Browser) -> None:
        file = {"type": "file", "url": url, "mediaType": "image/png"}
        await chat(browser, {"id": "u1", "role": "user", "parts": [file, {"type": "text", "text": "What is it?"}]})
        [message, _] = (await browser.get("/api/chat/c")).json["messages"]
        assert message["parts"] == [file, {"type": "text", "text": "What is it?"}]
        source = {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}
        await agui(browser, {**asked(""), "content": [{"type": "image", "source": source}]})
        loaded = await agui(browser)
        [snapshot] = [event for event in frames(loaded.body) if event["type"] == "MESSAGES_SNAPSHOT"]
        assert snapshot["messages"][0]["content"] == [{"type": "image", "source": source}]

    run(tmp_path, ("A picture.", "A picture."), test)


def test_a_thread_has_one_run_at_a_time(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        first = await chat(browser, text_message("Pay"))
        for reply in (
            await chat(browser, text_message("More", "u2")),
            await chat(browser, text_message("More"), trigger="regenerate-message"),
            await chat(browser, text_message("More"), messageId="u1"),
        ):
            assert (reply.status, reply.json["error"]["code"]) == (409, "thread_busy")
            assert reply.headers["x-run-id"] == first.headers["x-run-id"]

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test)


def approval_of(reply: Response, approved: bool = True, **changes: Any) -> dict[str, Any]:
    [request] = [chunk for chunk in frames(reply.body) if chunk["type"] == "tool-approval-request"]
    approval = {"id": request["approvalId"], "approved": approved, **changes}
    part = {
        "type": "tool-pay",
        "toolCallId": request["toolCallId"],
        "state": "approval-responded",
        "approval": approval,
    }
    return {"id": reply.headers["x-run-id"], "role": "assistant", "parts": [part]}


def test_an_approval_counts_once_and_a_second_client_catches_up(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        first = await chat(browser, text_message("Pay"))
        [*_, part] = approval_of(first)["parts"]
        forged = approval_of(first, id=part["approval"]["id"].replace("call_", "cull_"))
        assert (await chat(browser, text_message("Pay"), forged)).json["error"]["code"] == "not_waiting"
        other = approval_of(first, id=f"other{part['approval']['id']}")
        assert (await chat(browser, text_message("Pay"), other)).json["error"]["code"] == "shown_something_else"
        result = {"type": "tool-pay", "toolCallId": part["toolCallId"], "state": "output-available", "output": "paid"}
        unpaid = await chat(browser, text_message("Pay"), {"role": "assistant", "parts": [result]})
        assert unpaid.json["error"]["code"] == "not_deferred"
        rest = await chat(browser, text_message("Pay"), approval_of(first))
        kinds = [chunk["type"] for chunk in frames(rest.body)]
        assert kinds[0] == "tool-input-available"  # and no start: the message goes on
        for one in (first, rest):  # each stream has whole steps
            steps = [chunk["type"] for chunk in frames(one.body) if chunk["type"].endswith("-step")]
            assert steps == ["start-step", "finish-step"]
        assert "paid 7" in rest.body.decode()
        late = await chat(browser, text_message("Pay"), approval_of(first, approved=False))
        assert frames(late.body) == frames(rest.body)

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test)


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("version", ["6", "7"])
def test_a_call_of_a_sub_agent_that_waits_is_shown_and_answered(version: str, approved: bool, tmp_path: Path) -> None:
    clerk = agent_of(Reply(call("pay", {"amount": 7}), call("look", {"city": "Rome"})), "The clerk has paid.")
    script = Scripted([Reply(call("ask_clerk", {"prompt": "Pay 7."})), "All is paid."])
    desk: Agent[Any] = Agent(
        Model("openai:gpt-5", via=script), tools=[clerk.as_tool("ask_clerk", "Ask.")], name="support"
    )

    async def main() -> None:
        async with serving(penstock.serve.app(desk, log=SQLiteStore(tmp_path / "runs.db"))) as browser:
            headers = {"x-ai-sdk-version": version}
            body = {"id": "c", "messages": [text_message("Pay")]}
            first = await browser.post("/api/chat", body, **headers)
            [shown] = [chunk for chunk in frames(first.body) if chunk.get("toolName") == "pay"]
            assert (shown["type"], shown["input"]) == ("tool-input-available", {"amount": 7})
            assert shown["dynamic"]
            assert "Rome" not in first.body.decode()
            rest = await browser.post(
                "/api/chat", {**body, "messages": [text_message("Pay"), approval_of(first, approved)]}, **headers
            )
            ends = {chunk["toolCallId"]: chunk["type"] for chunk in frames(rest.body) if "tool-output" in chunk["type"]}
            assert ends.pop(shown["toolCallId"]) == f"tool-output-{'available' if approved else 'denied'}"
            assert [*ends.values()] == ["tool-output-available"]  # that of the sub-agent itself
            [_, message] = (await browser.get("/api/chat/c")).json["messages"]
            states = {part["toolCallId"]: part["state"] for part in message["parts"] if "toolCallId" in part}
            assert states[shown["toolCallId"]] == ("output-available" if approved else "output-denied")

    asyncio.run(main())


def test_answers_that_nobody_waits_for_are_refused(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        first = await chat(browser, text_message("Weather in Rome?"))
        reply = await chat(browser, {"id": first.headers["x-run-id"], "role": "assistant", "parts": []})
        assert (reply.status, reply.json["error"]["code"]) == (409, "not_waiting")

    run(tmp_path, TWO_STEPS, test)


def test_a_client_that_leaves_detaches(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        body = {"id": "c", "messages": [text_message("Weather in Rome?")]}
        connection = browser.connect("POST", "/api/chat", body)
        await connection.reply.until("start")
        connection.leave()
        await asyncio.wait_for(connection.task, 10)
        run_id = connection.reply.headers["x-run-id"]
        assert (await browser.get(f"/runs/{run_id}/events")).frames[-1][1]["output"] == "Sunny."
        assert (await browser.get("/api/chat/c/stream")).status == 204
        [_, answer] = (await browser.get("/api/chat/c")).json["messages"]
        assert answer["parts"][-1]["text"] == "Sunny."

    run(tmp_path, TWO_STEPS, test)


def test_a_chat_shows_a_limited_number_of_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_RUNS", 2)

    async def test(browser: Browser) -> None:
        for number in range(3):
            await chat(browser, text_message(f"Message {number}", f"u{number}"))
        messages = (await browser.get("/api/chat/c")).json["messages"]
        assert [message["id"] for message in messages if message["role"] == "user"] == ["u1", "u2"]

    run(tmp_path, ("a", "b", "c"), test)


def test_a_run_that_waits_is_streamed_again(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        assert (await browser.get("/api/chat/c/stream")).status == 204
        first = await chat(browser, text_message("Pay"))
        assert frames((await browser.get("/api/chat/c/stream")).body) == frames(first.body)
        seven = await browser.get("/api/chat/c/stream", **{"x-ai-sdk-version": "7.0.1"})
        assert seven.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert (await browser.get("/api/chat/c/stream", **{"x-ai-sdk-version": "5"})).status == 400
        stored = (await browser.get("/api/chat/c")).json
        assert (stored["active"], len(stored["messages"])) == (first.headers["x-run-id"], 1)

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test)


def test_a_tenant_sees_only_its_own_chats(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        browser.headers["x-user"] = "ada"
        first = await chat(browser, text_message("Pay"))
        browser.headers["x-user"] = "bob"
        assert (await browser.get("/api/chat/c")).json["messages"] == []
        assert (await browser.get("/api/chat/c/stream")).status == 204
        assert (await chat(browser, text_message("Pay"), approval_of(first))).status == 404

    def auth(scope: Any) -> str | None:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test, auth=auth)


def test_a_tool_of_the_client_never_replaces_one_of_the_agent(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        reply = await agui(browser, asked("Weather in Rome?"), tools=[{**TOOL, "name": "look"}])
        [result] = [event for event in frames(reply.body) if event["type"] == "TOOL_CALL_RESULT"]
        assert result["content"] == "Rome is sunny"

    run(tmp_path, TWO_STEPS, test)


def test_an_answer_to_an_interrupt_must_be_a_decision(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        first = await agui(browser, asked("Pay"))
        [interrupt] = frames(first.body)[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved"}
        bad = await agui(browser, asked("Pay"), resume=[{**entry, "payload": {"approved": "yes"}}])
        assert "$.resume[0].payload" in bad.json["error"]["message"]
        unknown = await agui(browser, asked("Pay"), resume=[{**entry, "interruptId": "r:c:h", "payload": True}])
        assert unknown.json["error"]["code"] == "not_waiting"
        good = await agui(browser, asked("Pay"), resume=[{**entry, "payload": True}])
        assert frames(good.body)[-1]["outcome"] == {"type": "success"}

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "Paid."), test)


def test_runs_keep_the_tools_of_their_client() -> None:
    script = (Reply(call("paint", {"color": "red"})), "It is red.")
    store = MemoryStore()
    runs = Runs(store, {"support": agent_of(*script)})
    run_id = runs.start("support", "Paint it.", client_tools=[TOOL])
    assert runs.drive(run_id).state == "waiting"
    others = Runs(store, {"support": agent_of(script[1])})  # as in another process
    [request] = [event for event in until_waiting(others, run_id) if isinstance(event, ApprovalRequest)]
    others.provide(run_id, request.call_id, "done")
    assert others.drive(run_id).state == "over"
    with pytest.raises(UsageError, match="two tools"):
        runs.start("support", "Hi", client_tools=[TOOL, TOOL])
    with pytest.raises(UsageError, match="must be a dict"):
        runs.start("support", "Hi", client_tools=[TOOL], meta=[1])
    with pytest.raises(UsageError, match="declarations"):
        runs.start("support", "Hi", client_tools=[{"type": "web_search"}])


def until_waiting(runs: Runs, run_id: str) -> Iterator[LogEvent]:
    for _, event in runs.follow(run_id):
        yield event
        if isinstance(event, Waiting):
            return


def test_the_version_of_the_ai_sdk_is_checked() -> None:
    version: Any = 5
    with pytest.raises(UsageError, match="6 or 7"):
        penstock.serve.app(agent_of(), ai_sdk=version)
