"""Our client over WebSocket, against a small server: what is sent, and what happens when the server misbehaves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Model, Retries, Timeouts
from penstock.errors import BadRequestError, ConnectionFailed, ProviderError, RateLimitError, UnexpectedReplyError
from penstock.events import Error, Finish, Retry, StreamChunk, Text, ToolCall, Unknown
from penstock.messages import Message, assistant, user
from penstock.transport.websocket import answer as answers
from penstock.transport.websocket import open_socket
from tests.transport.websocket.server import (
    NOT_FOUND,
    FrameServer,
    Json,
    Session,
    call,
    frames_of,
    message,
    refusal,
)

QUICK = Retries(first_delay=0.01)
NONE = Retries(attempts=0)
STEPS = 4


def model_of(server: FrameServer, retries: Retries = NONE, **options: Any) -> Model:
    return Model(
        "openai:gpt-5", base_url=server.url, api_key="secret-key", wire="openai-responses", transport="websocket",
        retries=retries, **options,
    )  # fmt: skip


def read(model: Model, prompt: Any = "hi", **options: Any) -> list[StreamChunk]:
    with model.stream(prompt, **options) as stream:
        return list(stream)


async def aread(model: Model, prompt: Any = "hi", **options: Any) -> list[StreamChunk]:
    async with model.astream(prompt, **options) as stream:
        return [chunk async for chunk in stream]


def read_async(model: Model, prompt: Any = "hi", **options: Any) -> list[StreamChunk]:
    return asyncio.run(aread(model, prompt, **options))


READERS: list[Callable[..., list[StreamChunk]]] = [read, read_async]
both = pytest.mark.parametrize("read", READERS, ids=["sync", "async"])


def text_of(chunks: list[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))


def steps(request: Json, history: list[Json]) -> list[Json]:
    """Calls until there are enough results."""
    done = sum(item.get("type") == "function_call_output" for item in history)
    return [call("double", {"number": done}, done + 1)] if done < STEPS else [message("finished", done)]


@penstock.tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class Scripted:
    """A session that does what it is told for each request; after the script, it answers."""

    def __init__(self, *script: Callable[[Session, Json], Any]) -> None:
        self.script = [*script]

    async def __call__(self, session: Session) -> None:
        async for request in session.requests():
            if self.script:
                await self.script.pop(0)(session, request)
            else:
                await session.answer(request)


def sends(*frames: Any) -> Callable[[Session, Json], Any]:
    return lambda session, request: session.send(*frames)


def closes(code: int, *frames: Any, reason: str = "") -> Callable[[Session, Json], Any]:
    async def close(session: Session, request: Json) -> None:
        await session.send(*frames)
        if code:
            await session.connection.close(code, reason)
        else:
            await session.drop()

    return close


# What is sent.


def test_an_agent_uses_one_connection_and_sends_only_what_is_new() -> None:
    with FrameServer(steps) as server:
        result = penstock.Agent(model_of(server), tools=[double], instructions="Be brief.").run("go")
        assert result.output == "finished"
        assert len(server.handshakes) == 1
        assert server.handshakes[0]["authorization"] == "Bearer secret-key"
        assert [len(request["input"]) for request in server.requests] == [1] * (STEPS + 1)
        parents = [request.get("previous_response_id") for request in server.requests]
        assert parents == [None, "resp_1", "resp_2", "resp_3", "resp_4"]
        assert {request["type"] for request in server.requests} == {"response.create"}
        assert all(request["store"] is False and "stream" not in request for request in server.requests)
        assert all(request["instructions"] == "Be brief." and request["tools"] for request in server.requests)


def test_an_async_agent_does_too() -> None:
    async def run() -> str:
        return (await penstock.Agent(model_of(server), tools=[double]).arun("go")).output

    with FrameServer(steps) as server:
        assert asyncio.run(run()) == "finished"
        assert len(server.handshakes) == 1
        assert [len(request["input"]) for request in server.requests] == [1] * (STEPS + 1)


def test_the_server_sees_the_history_that_http_sends() -> None:
    with FrameServer(steps) as server:
        result = penstock.Agent(model_of(server), tools=[double]).run("go")
        sent = Model("openai:gpt-5", base_url=server.url, api_key="k", wire="openai-responses").ask(
            result.messages[:-1], tools=[double]
        )
        assert kept(server.histories[-1]) == kept(json.loads(sent.request.body)["input"])


def kept(items: list[Json]) -> list[Json]:
    """The items without fields that a client need not send back."""
    return [{name: value for name, value in item.items() if name not in ("id", "status")} for item in items]


@both
def test_the_next_run_of_a_conversation_continues_on_its_connection(read: Any) -> None:
    with FrameServer() as server:
        model = model_of(server)

        async def both_requests() -> None:
            for messages in (history, [*history, answer, {"role": "user", "content": "and?"}]):
                await aread(model, messages)

        history = [{"role": "user", "content": "hi"}]
        answer = {"type": "message", "id": "msg_1", "role": "assistant", "content": [
            {"type": "output_text", "text": "Hello!", "annotations": []}], "status": "completed"}  # fmt: skip
        if read is read_async:
            asyncio.run(both_requests())
        else:
            with model.stream("hi") as stream:
                for _ in stream:
                    pass
            reply = Message("assistant", stream.turn.parts)
            read(model, [user("hi"), reply, user("and?")])
            assert server.requests[1]["previous_response_id"] == "resp_1"
            assert [item["content"] for item in server.requests[1]["input"]] == ["and?"]
        assert [item.get("role") for item in server.histories[-1]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("change", ["history", "tools", "options"])
def test_a_request_that_is_not_an_extension_is_sent_whole(change: str) -> None:
    with FrameServer() as server:
        model = model_of(server)
        with model.stream("hi", tools=[double]) as stream:
            for _ in stream:
                pass
        reply = Message("assistant", stream.turn.parts)
        first = "hello" if change == "history" else "hi"
        options: Json = {"temperature": 0.5} if change == "options" else {}
        tools = [] if change == "tools" else [double]
        read(model, [user(first), reply, user("and?")], tools=tools, **options)
        assert "previous_response_id" not in server.requests[1]
        assert len(server.requests[1]["input"]) == 3


def test_a_changed_response_is_sent_whole() -> None:
    with FrameServer() as server:
        model = model_of(server)
        read(model, "hi")
        read(model, [user("hi"), assistant("Something else"), user("and?")])
        assert len(server.requests[1]["input"]) == 3
        assert "previous_response_id" not in server.requests[1]


def test_a_conversation_whose_history_is_replaced_keeps_its_connection() -> None:
    with FrameServer() as server:
        model = model_of(server).for_conversation()
        for prompt in ("one", "two", "three"):
            read(model, prompt)
        assert len(server.handshakes) == 1
        assert [request["input"][0]["content"] for request in server.requests] == ["one", "two", "three"]
        assert not any("previous_response_id" in request for request in server.requests)


def test_a_warm_up_is_continued_without_new_items() -> None:
    with FrameServer() as server:
        model = model_of(server)
        model.warm_up(system_prompt="Be brief.", tools=[double])
        assert server.requests[0]["generate"] is False
        assert server.requests[0]["input"] == []
        assert text_of(read(model, "hi", system_prompt="Be brief.", tools=[double])) == "Hello!"
        assert server.requests[1]["previous_response_id"] == "resp_1"
        assert "generate" not in server.requests[1]
        assert len(server.handshakes) == 1


def test_an_async_warm_up_may_have_all_of_the_prompt() -> None:
    async def run() -> None:
        model = model_of(server)
        await model.awarm_up("hi")
        await aread(model, "hi")

    with FrameServer() as server:
        asyncio.run(run())
        assert [len(request["input"]) for request in server.requests] == [1, 0]
        assert server.histories[-1][0]["content"] == "hi"


def test_two_conversations_have_a_connection_each() -> None:
    with FrameServer(steps) as server:
        model = model_of(server)
        agent = penstock.Agent(model, tools=[double])
        results: list[str] = []
        threads = [threading.Thread(target=lambda: results.append(agent.run("go").output)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == ["finished"] * 3
        assert all(len(request["input"]) == 1 for request in server.requests)


# What the server may do.


@both
def test_a_forgotten_response_is_sent_whole_once_and_is_no_retry(read: Any) -> None:
    with FrameServer(handle=Scripted(sends(NOT_FOUND))) as server:
        assert text_of(read(model_of(server, NONE))) == "Hello!"  # even a whole request, once
    assert len(server.requests) == 2


def test_an_agent_survives_a_server_that_forgets_each_response() -> None:
    async def forgetful(session: Session) -> None:
        async for request in session.requests():
            session.remembered = None
            await session.answer(request)

    with FrameServer(steps, handle=forgetful) as server:
        assert penstock.Agent(model_of(server), tools=[double]).run("go").output == "finished"
        whole = [request for request in server.requests if "previous_response_id" not in request]
        assert [len(request["input"]) for request in whole] == [1, 3, 5, 7, 9]
        assert len(server.handshakes) == 1


@both
def test_a_server_that_only_forgets_is_an_error(read: Any) -> None:
    with (
        FrameServer(handle=Scripted(*[sends(NOT_FOUND)] * 9)) as server,
        pytest.raises(BadRequestError, match="HTTP 400"),
    ):
        read(model_of(server, NONE))
    assert len(server.requests) == 2


LIMIT = refusal("websocket_connection_limit_reached", status=None)


@both
def test_the_limit_as_an_answer_opens_a_new_connection(read: Any) -> None:
    with FrameServer(handle=Scripted(sends(LIMIT))) as server:
        assert text_of(read(model_of(server, NONE))) == "Hello!"
        assert len(server.handshakes) == 2


@pytest.mark.parametrize("how", ["limit", "close", "drop"])
def test_the_end_of_an_unused_connection_costs_a_handshake_and_nothing_else(how: str) -> None:
    with FrameServer() as server:
        model = model_of(server, NONE).for_conversation()
        with model.stream("hi") as stream:
            for _ in stream:
                pass
        session = server.sessions[0]
        match how:
            case "limit":
                server.run(session.send(LIMIT))
            case "close":
                server.run(session.connection.close(1001))
            case _:
                server.run(session.drop())
        assert server.closed.acquire(timeout=10)
        reply = Message("assistant", stream.turn.parts)
        wait_until(lambda: not is_usable(model))
        assert text_of(read(model, [user("hi"), reply, user("and?")])) == "Hello!"
        assert len(server.handshakes) == 2
        assert len(server.requests[1]["input"]) == 3


def is_usable(model: Model) -> bool:
    connector: Any = model._connector
    return bool(connector._conversation.last.is_usable)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen within 5 seconds")


def test_a_connection_is_retired_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with FrameServer() as server:
        model = model_of(server).for_conversation()
        read(model, "one")
        monkeypatch.setattr(open_socket, "LIFETIME", 0.0)
        read(model, "two")
        assert len(server.handshakes) == 2
        assert server.closed.acquire(timeout=10)


CODES = (0, 1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4000, 4999)


@pytest.mark.parametrize("code", CODES)
def test_a_connection_closed_before_the_response_is_retried_like_a_post(code: int) -> None:
    with FrameServer(handle=Scripted(closes(code, reason="go away"))) as server:
        assert text_of(read(model_of(server, QUICK))) == "Hello!"
        assert len(server.handshakes) == 2
    with FrameServer(handle=Scripted(closes(code))) as server, pytest.raises(ConnectionFailed):
        read(model_of(server, NONE))


@pytest.mark.parametrize("code", CODES)
def test_a_connection_closed_within_the_response_is_a_cut(code: int) -> None:
    frames = frames_of("resp_1", [message("Hello!")])[:4]
    with FrameServer(handle=Scripted(closes(code, *frames))) as server:
        model = model_of(server, QUICK)
        chunks = read(model)
        assert text_of(chunks) == "Hel"
        assert any(isinstance(chunk, Error) for chunk in chunks)
        assert isinstance(chunks[-1], Finish)
        assert chunks[-1].reason in ("cut", "error")
        assert len(server.requests) == 1
        assert text_of(read(model)) == "Hello!"


FRAMES = frames_of("resp_1", [message("Hello!"), call("double", {"number": 1}, 2)])


@both
@pytest.mark.parametrize("count", range(1, len(FRAMES)))
def test_cut_at_every_frame_a_response_ends_in_time_and_reports_it(read: Any, count: int) -> None:
    whole = read_frames(FRAMES)
    with FrameServer(handle=Scripted(closes(0, *FRAMES[:count]))) as server:
        model = model_of(server, NONE)
        try:
            chunks = read(model)
        except ConnectionFailed:
            chunks = []
        assert [c for c in chunks if isinstance(c, ToolCall)] in ([], [c for c in whole if isinstance(c, ToolCall)])
        assert not any(isinstance(chunk, Finish) and chunk.reason in ("stop", "tool_calls") for chunk in chunks)
        assert text_of(read(model)) == "Hello!"


def read_frames(frames: list[Json]) -> list[StreamChunk]:
    with FrameServer(handle=Scripted(sends(*frames))) as server:
        return read(model_of(server))


@both
def test_a_cut_response_is_requested_again_if_asked_for(read: Any) -> None:
    with FrameServer(handle=Scripted(closes(0, *FRAMES[:5]))) as server:
        chunks = read(model_of(server, Retries(first_delay=0.01, after_start=True)))
        assert any(isinstance(chunk, Retry) for chunk in chunks)
        assert text_of(chunks).endswith("Hello!")


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (refusal("rate_limit_exceeded", 429, headers={"retry-after": "120"}), RateLimitError),
        (refusal("bad", 400), BadRequestError),
        ({"type": "error", "status_code": 500, "error": {"message": "oh"}}, ProviderError),
    ],
)
def test_a_refusal_is_the_error_of_its_status(frame: Json, kind: type[ProviderError]) -> None:
    with FrameServer(handle=Scripted(sends(frame))) as server:
        model = model_of(server)
        with pytest.raises(kind) as caught:
            read(model)
        assert caught.value.status == frame.get("status", 500)
        if kind is RateLimitError:
            assert caught.value.retry_after == 120
        assert text_of(read(model.with_timeouts(retries=Retries(attempts=0, shared=False)))) == "Hello!"


def test_an_error_within_the_response_is_an_event_and_ends_the_connection() -> None:
    with FrameServer(handle=Scripted(sends(*FRAMES[:5], refusal("server_error", 500)))) as server:
        model = model_of(server).for_conversation()
        chunks = read(model)
        assert [chunk.code for chunk in chunks if isinstance(chunk, Error)] == ["server_error"]
        assert server.closed.acquire(timeout=10)
        read(model)
        assert len(server.handshakes) == 2


def test_an_error_without_a_status_begins_as_an_error() -> None:
    error = {"type": "error", "code": "server_error", "message": "oh", "sequence_number": 0}
    with FrameServer(handle=Scripted(sends(error))) as server:
        assert any(isinstance(chunk, Error) and chunk.code == "server_error" for chunk in read(model_of(server)))


@pytest.mark.parametrize("junk", ["not json", "[1, 2]", "{", '{"type": 5}', ""])
def test_a_frame_that_is_not_json_is_reported(junk: str) -> None:
    chunks = read_frames([*FRAMES[:5], junk, *FRAMES[5:]])  # type: ignore[list-item]
    assert text_of(chunks) == "Hello!"
    if junk:
        assert any(isinstance(chunk, Error | Unknown) for chunk in chunks)


@both
def test_a_binary_frame_is_an_error(read: Any) -> None:
    with FrameServer(handle=Scripted(sends(b"{}"))) as server, pytest.raises(UnexpectedReplyError, match="binary"):
        read(model_of(server, QUICK))
    with FrameServer(handle=Scripted(sends(*FRAMES[:5], b"{}"))) as server:
        assert [c.code for c in read(model_of(server, QUICK)) if isinstance(c, Error)] == ["binary_frame"]


def test_a_frame_that_is_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_socket, "MAX_RESPONSE_BYTES", 5000)
    large = {"type": "codex.rate_limits", "text": "x" * 6000}
    with FrameServer(handle=Scripted(sends(large))) as server, pytest.raises(UnexpectedReplyError) as caught:
        read(model_of(server, QUICK))
    assert caught.value.code == "response_too_large"


def test_frames_of_another_lane_are_not_part_of_the_response() -> None:
    other = [{**frame, "stream_id": "b"} for frame in frames_of("resp_9", [message("not for you")])]
    chunks = read_frames([*other[:3], *FRAMES[:5], *other[3:], *FRAMES[5:]])
    assert text_of(chunks) == "Hello!"
    assert sum(isinstance(chunk, Unknown) for chunk in chunks) == len(other)


def test_frames_without_meaning_are_unknown() -> None:
    limits = {"type": "codex.rate_limits", "limit": 1}
    chunks = read_frames([limits, *FRAMES])
    assert text_of(chunks) == "Hello!"
    assert any(isinstance(chunk, Unknown) for chunk in chunks)


@both
def test_a_connection_that_is_out_of_step_is_left(read: Any) -> None:
    """The server sends a part of another response first: a late one, or one out of order."""
    with FrameServer(handle=Scripted(sends(*FRAMES[3:]))) as server:
        assert text_of(read(model_of(server, QUICK))) == "Hello!"
        assert len(server.handshakes) == 2


def test_a_server_that_answers_twice_loses_its_connection() -> None:
    with FrameServer(handle=Scripted(sends(*FRAMES, *FRAMES))) as server:
        model = model_of(server).for_conversation()
        assert text_of(read(model)) == "Hello!"
        assert server.closed.acquire(timeout=10)
        assert text_of(read(model)) == "Hello!"
        assert len(server.handshakes) == 2


@both
def test_timeouts_hold(read: Any) -> None:
    async def silent(session: Session, request: Json) -> None:
        await session.connection.wait_closed()

    with FrameServer(handle=Scripted(silent)) as server, pytest.raises(penstock.TimedOut, match="first_event"):
        read(model_of(server, timeouts=Timeouts(first_event=0.05)))

    async def stalls(session: Session, request: Json) -> None:
        await session.send(*FRAMES[:5])
        await session.connection.wait_closed()

    with FrameServer(handle=Scripted(stalls)) as server:
        chunks = read(model_of(server, timeouts=Timeouts(idle=0.05)))
        assert any(isinstance(chunk, Error) and "timeouts.idle" in chunk.message for chunk in chunks)


# Cancelling.


def stalling(begun: threading.Event) -> Callable[[Session, Json], Any]:
    async def stall(session: Session, request: Json) -> None:
        await session.send(*FRAMES[:5])
        begun.set()
        await session.connection.wait_closed()

    return stall


def test_a_cancelled_stream_closes_its_connection_and_a_later_one_sees_nothing_of_it() -> None:
    begun = threading.Event()
    with FrameServer(handle=Scripted(stalling(begun))) as server:
        model = model_of(server).for_conversation()
        with model.stream("hi") as stream:
            for chunk in stream:
                if isinstance(chunk, Text):
                    stream.cancel()
        assert stream.error is not None
        assert server.closed.acquire(timeout=10)
        assert text_of(read(model)) == "Hello!"
        assert len(server.handshakes) == 2


def cancel_when(begun: threading.Event, stream: penstock.Stream) -> None:
    begun.wait()
    stream.cancel()


def test_a_stream_is_cancelled_by_another_thread_while_it_waits() -> None:
    begun = threading.Event()
    with FrameServer(handle=Scripted(stalling(begun))) as server:
        with model_of(server).stream("hi") as stream:
            threading.Thread(target=cancel_when, args=(begun, stream)).start()
            for _ in stream:
                pass
        assert stream.error is not None
        assert server.closed.acquire(timeout=10)


def test_a_cancelled_task_closes_its_connection() -> None:
    async def run() -> None:
        task = asyncio.create_task(aread(model))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert text_of(await aread(model)) == "Hello!"

    begun = threading.Event()
    with FrameServer(handle=Scripted(stalling(begun))) as server:
        model = model_of(server)
        asyncio.run(run())
        assert len(server.handshakes) == 2


def test_leaving_the_loop_closes_the_connection() -> None:
    with FrameServer(handle=Scripted(stalling(threading.Event()))) as server:
        with model_of(server).stream("hi") as stream:
            for _ in stream:
                break
        assert server.closed.acquire(timeout=10)


# Caps.


def test_frames_that_nobody_reads_have_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_socket, "MAX_UNREAD", 3000)
    deltas = [{**FRAMES[3], "delta": "x" * 500}] * 20
    with FrameServer(handle=Scripted(sends(*FRAMES[:3], *deltas))) as server:
        with model_of(server).stream("hi") as stream:
            wait_until(lambda: server.closed.acquire(timeout=0))  # nobody reads meanwhile
            for _ in stream:
                pass
        assert stream.error is not None
        assert stream.error.code == "response_too_large"


def test_frames_before_a_response_have_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_EARLY", 2000)
    early = {"type": "codex.rate_limits", "text": "x" * 500}
    with FrameServer(handle=Scripted(sends(*[early] * 10))) as server, pytest.raises(UnexpectedReplyError) as caught:
        read(model_of(server))
    assert caught.value.code == "response_too_large"


def test_only_some_unused_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.transport.websocket import pool

    monkeypatch.setattr(pool, "MAX_UNUSED", 2)
    with FrameServer() as server:
        model = model_of(server)
        for number in range(5):
            read(model, f"prompt {number}")
        assert len(server.handshakes) == 2


def test_closing_a_model_closes_its_unused_connections() -> None:
    with FrameServer() as server:
        model = model_of(server)
        read(model)
        model.close()
        assert server.closed.acquire(timeout=10)
        read(model)
        penstock.close()
        assert server.closed.acquire(timeout=10)


def test_the_end_of_an_event_loop_closes_its_connections() -> None:
    with FrameServer() as server:
        read_async(model_of(server))
        assert server.closed.acquire(timeout=10)
