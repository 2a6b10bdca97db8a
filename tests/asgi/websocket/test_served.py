"""Gateway and serve over WebSocket: our client and the clients of others, lanes, limits and access."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import penstock
import penstock.gateway
import penstock.serve
from penstock import Model
from penstock.asgi import socket_session
from penstock.serve import ServerLimits
from penstock.testing import Loopback, Reply, call
from penstock.wires.openai_responses import served_socket
from tests.asgi.websocket.test_refused import served

STEPS = 3
Json = dict[str, Any]


def respond(request: Any) -> Any:
    """Calls until there are enough results; then the number of messages that arrived."""
    done = len(request.results)
    if request.body.get("tools") and done < STEPS:
        return Reply(call("double", {"number": done}, id=f"call_{done}"))
    return "finished" if request.body.get("tools") else f"hello {len(request.body['messages'])}"


@penstock.tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@contextmanager
def gateway(limits: ServerLimits | None = None, **options: Any) -> Iterator[tuple[int, Loopback]]:
    with Loopback(respond) as upstream:
        app = penstock.gateway.app(upstream.base_url("openai-chat"), limits=limits, **options)
        with served(app, "auto") as port:
            yield port, upstream


@contextmanager
def agents(**options: Any) -> Iterator[int]:
    with served(penstock.serve.app(penstock.Agent("sim:fast", name="support"), **options), "auto") as port:
        yield port


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


def create(text: Any, **fields: Any) -> Json:
    items = text if isinstance(text, list) else [{"type": "message", "role": "user", "content": text}]
    return {"type": "response.create", "model": "local", "store": False, "input": items, **fields}


class Client:
    """A plain client, which sends and reads frames."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    async def send(self, *frames: Any) -> None:
        for frame in frames:
            await self.socket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def read(self) -> Json:
        async with asyncio.timeout(30):
            frame: Json = json.loads(await self.socket.recv())
            return frame

    async def response(self, *frames: Any) -> list[Json]:
        """The frames up to the end of a response."""
        await self.send(*frames)
        events = [await self.read()]
        while events[-1]["type"] not in ("response.completed", "response.failed", "response.incomplete", "error"):
            events.append(await self.read())
        return events


def with_client(port: int, work: Any, headers: Json | None = None) -> Any:
    async def run() -> Any:
        address = f"ws://127.0.0.1:{port}/v1/responses"
        async with connect(address, additional_headers=headers or {}, max_size=None) as socket:
            return await work(Client(socket))

    return asyncio.run(run())


def text_of(event: Json) -> str:
    return "".join(part["text"] for item in event["response"]["output"] for part in item.get("content", []))


# Our client, and those of others.


def test_our_agent_sends_only_what_is_new_through_the_gateway() -> None:
    with gateway() as (port, upstream):
        model = Model("openai:local", base_url=url(port), api_key="k", wire="openai-responses", transport="websocket")
        assert penstock.Agent(model, tools=[double]).run("go").output == "finished"
        assert [len(request.body["messages"]) for request in upstream.requests] == [1, 3, 5, 7]
        penstock.close()


def test_our_client_speaks_to_a_served_agent() -> None:
    with agents() as port:
        model = Model("openai:support", base_url=url(port), api_key="k", wire="openai-responses", transport="websocket")
        first = model.complete("hello")
        assert first.text
        assert first.finish_reason == "stop"
        penstock.close()


def test_the_openai_sdk() -> None:
    with (
        gateway() as (port, _),
        openai.OpenAI(base_url=url(port), api_key="k") as client,
        client.responses.connect() as connection,
    ):
        connection.response.create(model="local", input="hi", store=False)
        first = next(event for event in connection if event.type == "response.completed")
        connection.response.create(model="local", input="and?", store=False, previous_response_id=first.response.id)
        second = next(event for event in connection if event.type == "response.completed")
    assert (first.response.output_text, second.response.output_text) == ("hello 1", "hello 3")


def test_the_async_openai_sdk_with_two_lanes() -> None:
    async def run() -> dict[str, str]:
        texts: dict[str, str] = {}
        async with (
            openai.AsyncOpenAI(base_url=url(port), api_key="k") as client,
            client.responses.connect() as connection,
        ):
            for lane in ("a", "b"):
                await connection.response.create(model="local", input="hi", store=False, stream_id=lane)
            async for event in connection:
                if event.type == "response.completed":
                    texts[event.stream_id or ""] = event.response.output_text
                if len(texts) == 2:
                    break
        return texts

    with gateway() as (port, _):
        assert asyncio.run(run()) == {"a": "hello 1", "b": "hello 1"}


def test_pydantic_ai() -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    with gateway() as (port, upstream):
        settings: Any = {"openai_transport": "websocket"}
        model = OpenAIResponsesModel(
            "local", provider=OpenAIProvider(base_url=url(port), api_key="k"), settings=settings
        )
        agent = Agent(model)
        agent.tool_plain(double.function)
        assert asyncio.run(agent.run("go")).output == "finished"
        assert [len(request.body["messages"]) for request in upstream.requests] == [1, 3, 5, 7]


def test_openai_agents() -> None:
    from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
    from agents.models.openai_provider import OpenAIProvider

    set_tracing_disabled(True)
    with gateway() as (port, upstream):
        provider = OpenAIProvider(base_url=url(port), api_key="k", use_responses_websocket=True)
        agent = Agent(name="a", model="local", tools=[function_tool(double.function)])

        async def run() -> str:
            result = await Runner.run(agent, "go", run_config=RunConfig(model_provider=provider))
            await provider.aclose()  # else it leaves its connection open
            return str(result.final_output)

        assert asyncio.run(run()) == "finished"
        assert len(upstream.requests) == STEPS + 1


# Lanes and memory.


def test_a_warm_up_is_answered_without_an_upstream() -> None:
    async def work(client: Client) -> None:
        warm = await client.response(create("first", generate=False))
        assert (warm[0]["type"], warm[-1]["type"]) == ("response.created", "response.completed")
        assert warm[-1]["response"]["output"] == []
        assert not upstream.requests
        parent = warm[-1]["response"]["id"]
        last = (await client.response(create("second", previous_response_id=parent)))[-1]
        assert last["type"] == "response.completed"
        assert all(word in json.dumps(upstream.requests[0].body) for word in ("first", "second"))

    with gateway() as (port, upstream):
        with_client(port, work)


def test_sequence_numbers_begin_again_and_events_have_their_lane() -> None:
    async def work(client: Client) -> None:
        for lane in ({}, {"stream_id": "a"}):
            events = await client.response(create("hi", **lane))
            assert [event["sequence_number"] for event in events] == [*range(len(events))]
            assert {event.get("stream_id") for event in events} == {lane.get("stream_id")}

    with gateway() as (port, _):
        with_client(port, work)


def test_a_lane_may_continue_from_another_and_only_the_latest_response_is_known() -> None:
    async def work(client: Client) -> None:
        first = (await client.response(create("1", stream_id="a")))[-1]["response"]["id"]
        fork = (await client.response(create("2", stream_id="b", previous_response_id=first)))[-1]
        assert text_of(fork) == "hello 3"
        await client.response(create("3", stream_id="a"))
        [error] = await client.response(create("4", stream_id="a", previous_response_id=first))
        assert (error["status"], error["error"]["code"], error["stream_id"]) == (
            400,
            "previous_response_not_found",
            "a",
        )
        again = (await client.response(create("5", stream_id="b", previous_response_id=fork["response"]["id"])))[-1]
        assert text_of(again) == "hello 5"

    with gateway() as (port, _):
        with_client(port, work)


def test_nothing_is_known_on_another_connection() -> None:
    async def first(client: Client) -> str:
        id: str = (await client.response(create("1")))[-1]["response"]["id"]
        return id

    async def second(client: Client) -> None:
        [error] = await client.response(create("2", previous_response_id=parent))
        assert error["error"]["code"] == "previous_response_not_found"

    with gateway() as (port, _):
        parent = with_client(port, first)
        with_client(port, second)


def test_requests_of_a_lane_wait_for_each_other() -> None:
    async def work(client: Client) -> None:
        await client.send(*(create(f"{number}") for number in range(5)))
        ended, created = 0, ""
        while ended < 5:
            event = await client.read()
            if event["type"] == "response.created":
                created = event["response"]["id"]
            if event["type"] == "response.completed":
                assert event["response"]["id"] == created
                ended += 1

    with gateway() as (port, _):
        with_client(port, work)


def test_there_are_only_so_many_lanes_and_waiting_requests() -> None:
    async def work(client: Client) -> None:
        for number in range(32):
            await client.response(create("hi", stream_id=f"lane {number}", generate=False))
        [error] = await client.response(create("hi", stream_id="one more"))
        assert error["error"]["code"] == "websocket_stream_limit_reached"
        await client.send(*[create("hi")] * 40)
        codes = [(await client.read()).get("error", {}).get("code") for _ in range(23)]
        assert "too_many_requests" in codes

    with gateway() as (port, _):
        with_client(port, work)


def starts(actions: Any) -> int:
    return sum(hasattr(action, "body") for action in actions)


def codes(actions: Any) -> list[str]:
    return [json.loads(action.frame)["error"]["code"] for action in actions if hasattr(action, "frame")]


def test_responses_beyond_the_limit_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_socket, "MAX_RUNNING", 2)
    monkeypatch.setattr(served_socket, "MAX_LANES", 3)
    monkeypatch.setattr(served_socket, "MAX_QUEUE", 1)
    monkeypatch.setattr(served_socket, "MAX_LANE_NAME", 5)
    socket = served_socket.ServedSocket(1000)
    assert [starts(socket.receive(json.dumps(create("x", stream_id=lane)))) for lane in "abc"] == [1, 1, 0]
    assert codes(socket.receive(json.dumps(create("x", stream_id="c")))) == ["too_many_requests"]
    assert codes(socket.receive(json.dumps(create("x", stream_id="d")))) == ["websocket_stream_limit_reached"]
    assert codes(socket.receive(json.dumps(create("x", stream_id="long name")))) == ["invalid_stream_id"]
    assert starts(socket.end("a")) == 1
    assert starts(socket.end("b")) == 0


def test_a_failed_request_ends_what_it_referred_to() -> None:
    socket: Any = served_socket.ServedSocket(10_000)
    done = {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": [{"a": 1}]}}
    socket.receive(json.dumps(create("x")))
    socket.event("", json.dumps(done, separators=(",", ":")).encode())
    socket.end("")
    [start] = socket.receive(json.dumps(create("y", previous_response_id="r1")))
    assert json.loads(start.body)["input"][1] == {"a": 1}
    [frame] = socket.refuse("", 500, {"retry-after": "3"}, b"x" * 10)
    assert json.loads(frame.frame)["error"]["headers"] == {"retry-after": "3"}
    socket.end("")
    assert codes(socket.receive(json.dumps(create("z", previous_response_id="r1")))) == ["previous_response_not_found"]
    assert socket.held == 0


def test_an_error_response_is_kept_up_to_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_session, "MAX_REFUSAL", 10)

    async def work(client: Client) -> None:
        [error] = await client.response(create([{"type": "nonsense"}], model=5))
        assert len(error["error"]["message"]) == 10

    with gateway() as (port, _):
        with_client(port, work)


def test_a_connection_remembers_only_so_much() -> None:
    from penstock.wires.openai_responses.served_socket import SendFrame, ServedSocket

    socket = ServedSocket(1000)

    def warm_up(text: str) -> str:
        actions = socket.receive(json.dumps(create(text, generate=False)))
        frames = [json.loads(action.frame) for action in actions if isinstance(action, SendFrame)]
        id: str = frames[-1]["response"]["id"]
        return id

    small = warm_up("x")
    assert socket.held > 0
    assert "previous_response_not_found" not in str(socket.receive(json.dumps(create("y", previous_response_id=small))))
    large = ServedSocket(1000)
    socket = large
    parent = warm_up("x" * 2000)
    assert large.held == 0
    assert "previous_response_not_found" in str(large.receive(json.dumps(create("y", previous_response_id=parent))))


# Bad frames.


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("not json", "invalid_json"),
        ("[1]", "invalid_json"),
        (b"{}", "invalid_json"),
        ("{}", "unknown_message"),
        ('{"type": 5}', "invalid_json"),
        ({"type": "response.cancel"}, "unknown_message"),
        ({"type": "response.steer", "previous_response_id": "r", "input": []}, "steering_not_supported"),
        ({**create("hi"), "input": 5}, "invalid_input"),
        ({**create("hi"), "stream_id": "x" * 200}, "invalid_stream_id"),
    ],
)
def test_a_frame_that_cannot_be_read_is_an_error_and_the_connection_stays(frame: Any, code: str) -> None:
    async def work(client: Client) -> None:
        [error] = await client.response(frame)
        assert (error["type"], error["status"], error["error"]["code"]) == ("error", 400, code)
        assert text_of((await client.response(create("hi")))[-1]) == "hello 1"

    with gateway() as (port, _):
        with_client(port, work)


def test_a_request_that_http_would_refuse_is_an_error_with_its_status() -> None:
    async def work(client: Client) -> None:
        [error] = await client.response(create([{"type": "nonsense"}], model=5))
        assert error["status"] in (400, 422)
        assert error["error"]["message"]
        assert text_of((await client.response(create("hi")))[-1]) == "hello 1"

    with gateway() as (port, _):
        with_client(port, work)


def test_a_frame_above_the_limit_of_bodies_closes_the_connection() -> None:
    async def work(client: Client) -> None:
        with pytest.raises(ConnectionClosed) as closed:
            await client.response(create("x" * 200_000))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009

    with gateway(ServerLimits(body=100_000)) as (port, _):
        with_client(port, work)


def test_a_connection_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        error = await client.read()
        assert error["error"]["code"] == "websocket_connection_limit_reached"
        with pytest.raises(ConnectionClosed):
            await client.read()

    monkeypatch.setattr(socket_session, "LIFETIME", 0.1)
    with gateway() as (port, _):
        with_client(port, work)


def test_a_client_that_leaves_ends_its_request_to_the_upstream() -> None:
    from penstock.testing import say, wait

    async def work(client: Client) -> None:
        await client.send(create("hi"))
        while (await client.read())["type"] != "response.output_text.delta":
            pass
        client.socket.transport.abort()

    async def after(client: Client) -> None:
        assert text_of((await client.response(create("hi")))[-1]) == "again"

    with (
        Loopback([Reply(say("Hello"), wait(60), say("!")), "again"]) as upstream,
        served(penstock.gateway.app(upstream.base_url("openai-chat")), "auto") as port,
    ):
        with_client(port, work)
        with_client(port, after)  # and the server ends without waiting for the first response


# Access.


@pytest.mark.parametrize("kind", ["gateway", "serve"])
def test_a_handshake_needs_the_token(kind: str) -> None:
    async def work(client: Client) -> str:
        return (await client.response(create("hi", model="support")))[-1]["type"]

    app = (
        penstock.serve.app(penstock.Agent("sim:fast", name="support"), token="a secret of 32 characters or more")
        if kind == "serve"
        else penstock.gateway.app("http://127.0.0.1:9/v1", key="a secret of 32 characters or more")
    )
    with served(app, "auto") as port:
        with pytest.raises(InvalidStatus) as refused:
            with_client(port, work)
        assert refused.value.response.status_code == 401
        assert with_client(port, work, {"authorization": "Bearer a secret of 32 characters or more"}) in (
            "response.completed",
            "error",
        )


def test_pages_of_other_origins_are_refused() -> None:
    async def work(client: Client) -> None:
        raise AssertionError("it was accepted")

    with gateway() as (port, _):
        for headers, status in (({"origin": "https://evil.example"}, 403), ({"host": "evil.example"}, 421)):
            with pytest.raises(InvalidStatus) as refused:
                with_client(port, work, headers)
            assert refused.value.response.status_code in (status, 400)


def test_a_tenant_gets_only_its_own_runs() -> None:
    tenants: list[str] = []

    def auth(scope: Any) -> str | None:
        name = dict(scope["headers"]).get(b"x-tenant", b"").decode()
        tenants.append(f"{scope['type']} {name}")
        return name or None

    async def work(client: Client) -> None:
        assert (await client.response(create("hi", model="support")))[-1]["type"] == "response.completed"

    with agents(auth=auth) as port:
        with_client(port, work, {"x-tenant": "acme"})
        with pytest.raises(InvalidStatus):
            with_client(port, work)
    assert tenants[:2] == ["websocket acme", "http acme"]
