"""The client of a served agent, in both colours: its runs look like local ones, and survive lost connections."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest
import uvicorn

import penstock.serve
from penstock import (
    Agent,
    ApprovalRequest,
    Done,
    Model,
    Nested,
    OutputError,
    Reasoning,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolEnd,
    ToolStart,
    Unknown,
    Usage,
    UsageError,
    tool,
)
from penstock.asgi.routes import Routes
from penstock.asgi.server import address_of, listen
from penstock.log import SQLiteStore
from penstock.log.position import START, Position
from penstock.run.events import LogEvent, RunStart, innermost
from penstock.serve import AsyncClient, AsyncRemoteRun, Client, RefusedError, RemoteRun, UnreachableError
from penstock.serve.client import exchange
from penstock.serve.client.exchange import MAX_FRAME, Frames, Pause, Ready, Response, Send, request
from penstock.serve.client.remote_run import HIDDEN, received_event
from penstock.serve.feeds import feed
from penstock.serve.hosting import read_events
from penstock.serve.public_events import PUBLIC_FIELDS, public_event, public_messages
from penstock.testing import ReceivedRequest, Reply, Scripted, call, drop, say, think
from tests.serve_events import EXAMPLES

TOKEN = "a-long-secret-token"


@tool(read_only=True)
def look(city: str) -> str:
    """Look."""
    return f"{city} is sunny"


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(deferred=True)
def locate() -> str:
    """Locate."""
    raise NotImplementedError


def answer(request: ReceivedRequest) -> Any:
    messages = request.body["messages"]
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    done = sum(message["role"] == "assistant" for message in messages[last:])
    match request.prompt.partition(" ")[0]:
        case "look":
            steps = think("Hm."), "Looking. ", call("look", {"city": "Rome"})
            return [Reply(*steps), Reply(call("look", {"city": "Oslo"})), "Sunny in both."][done]
        case "pay":
            return Reply(call("pay", {"amount": 7})) if not done else "Paid."
        case "locate":
            return Reply(call("locate", {})) if not done else "There."
        case "cut":
            return Reply(say("Half an ans"), drop())
        case "inner":
            return Reply(call("helper", {"prompt": "pay"})) if not done else "Helped."
        case _:
            return f"You said: {request.prompt}"


class Server:
    """A served agent on a real socket, whose streams of events can be cut."""

    def __init__(self, path: Path, token: str) -> None:
        self.store = SQLiteStore(path / "runs.db")
        model = Model("deepseek:test", via=Scripted(answer))
        inner = Agent(model, tools=[pay], name="inner")
        agent = Agent(model, tools=[look, pay, locate, inner.as_tool("helper", "Help.")], name="support")
        self.app = penstock.serve.app(agent, log=self.store, token=token, shutdown_seconds=0.1)
        self.sends: int | None = None  # after so many messages a stream is cut
        self.streams = 0
        self.asked = 0  # how often for messages
        self.has_messages = True  # else it is too busy for them
        self.listener = listen("127.0.0.1", 0)
        self.url = address_of(self.listener)
        config = uvicorn.Config(
            self.answer, log_level="critical", ws="none", interface="asgi3", lifespan="on", timeout_graceful_shutdown=1
        )
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [self.listener]})

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path", "").endswith("/messages"):
            self.asked += 1
            if not self.has_messages:
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body"})
                return
        if not scope.get("path", "").endswith("/events"):
            await self.app(scope, receive, send)
            return
        self.streams += 1
        left = self.sends

        async def counted(message: Any) -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    raise ConnectionError("cut")
            await send(message)

        await self.app(scope, receive, counted)

    def stop(self) -> None:
        self.app.context.feeds.close()
        self.uvicorn.should_exit = True
        self.thread.join(20)
        self.listener.close()
        self.store.close()


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Server]:
    made = Server(tmp_path, getattr(request, "param", ""))
    made.thread.start()
    try:
        yield made
    finally:
        made.stop()


class Plain:
    """An object of async code that is used in sync code, so that a test is written once for both."""

    def __init__(self, of: Any, runner: asyncio.Runner) -> None:
        self.of = of
        self.runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.of, name)
        return (lambda *args, **kwargs: self._of(value(*args, **kwargs))) if callable(value) else value

    def __iter__(self) -> Iterator[Any]:
        events = aiter(self.of)
        with suppress(StopAsyncIteration):
            while True:
                yield self.runner.run(_next(events))

    def _of(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            value = self.runner.run(cast("Any", _awaited(value)))
        return Plain(value, self.runner) if hasattr(value, "__aiter__") else value


async def _next(events: Any) -> Any:
    return await anext(events)


async def _awaited(value: Any) -> Any:
    return await value


@pytest.fixture(params=["sync", "async"])
def client(server: Server, request: pytest.FixtureRequest) -> Generator[Client]:
    if request.param == "sync":
        with Client(server.url, tries=3) as plain:
            yield plain
        return
    with asyncio.Runner() as runner:

        async def make() -> AsyncClient:
            return AsyncClient(server.url, tries=3)

        made = cast("Client", Plain(runner.run(make()), runner))
        yield made
        made.close()


def test_a_remote_run_has_the_cost_of_a_local_one() -> None:
    for cost in (0.5, None):
        end = received_event(public_event(Done("answered", "Hi.", (), Usage(1, 2, cost=cost))) or {})
        assert isinstance(end, Done)
        assert end.usage.cost == cost


def test_a_remote_run_has_the_events_and_the_result_of_a_local_one(client: Client, server: Server) -> None:
    run = client.start("look around")
    events = [*run]
    types = (Text, Reasoning, ToolCallStart, ToolCallDelta, ToolCall, ToolStart, ToolEnd)
    logged = [event for event in read_events(server.store, run.id) if isinstance(event, types)]
    received = [event for event in events if isinstance(event, types)]
    assert [(type(event), public_event(event)) for event in received] == [
        (type(event), public_event(event)) for event in logged
    ]
    assert isinstance(events[-1], Done)
    assert (run.output, run.text, run.finish_reason) == ("Sunny in both.", "Sunny in both.", "answered")
    assert run.usage.output_tokens > 0
    result = run.result()
    assert (result.output, result.reason, result.id) == ("Sunny in both.", "answered", run.id)
    row = server.store.find(run.id)
    assert row is not None
    whole = server.app.context.host.rebuild(row, read_events(server.store, run.id)).state.history
    assert public_messages(result.messages) == public_messages(whole)
    assert (result.messages, events[-1].messages) == (run.messages, tuple(run.messages))


def test_a_fork_begins_with_the_events_of_another_run(client: Client, server: Server) -> None:
    run = client.start("hello")
    positions = [run.position for _ in run]
    for at in (positions[-1], positions[-1].token, int(positions[-1])):
        fork = client.fork(run.id, at, say="good bye", key=type(at).__name__)
        assert fork.result().output == "You said: good bye"
        assert client.fork(run.id, at, say="good bye", key=type(at).__name__).id == fork.id
    in_thread = client.start("hello", thread="t")
    assert in_thread.result().output == "You said: hello"
    fork = client.fork(in_thread.id, 1)
    assert fork.thread == fork.id
    assert fork.result().output == "You said: hello"
    with pytest.raises(RefusedError, match="the agent has no model 'other'"):
        client.fork(run.id, 1, model="other")
    assert len(server.store.list()) == 6


def test_the_end_of_a_remote_run_is_not_lost_if_its_messages_cannot_be_had(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.0)
    server.app.routes = Routes(*(route for route in server.app.routes.routes if not route.path.endswith("/messages")))
    result = client.start("hello").result()
    assert (result.output, result.reason, result.messages) == ("You said: hello", "answered", [])


def test_the_last_events_do_not_wait_for_the_messages_which_are_asked_for_twice(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.0)
    run_id = client.start("hello").result().id
    server.asked, server.has_messages = 0, False
    asked = [(type(event), server.asked) for event in client.follow(run_id)]  # all come at once: the run is over
    assert (Text, 0) in asked
    assert [count for _, count in asked[:-1]] == [0] * (len(asked) - 1)
    assert asked[-1] == (Done, 2)


@pytest.mark.parametrize("sends", [1, 2, 3])
def test_a_stream_that_is_cut_again_and_again_loses_and_repeats_nothing(
    client: Client, server: Server, sends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.0)
    whole = client.start("look around")
    expected = [*whole]
    server.sends, server.streams = sends + 1, 0
    monkeypatch.setattr(feed, "MAX_KEPT", 2)
    monkeypatch.setattr(feed, "PAGE", 2)
    again = client.follow(whole.id)
    assert [*again] == expected
    assert server.streams > 3
    assert again.position == whole.position


def test_a_server_that_stays_away_is_an_error_after_some_tries(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.0)
    run = client.start("look around")
    server.sends = 1
    with pytest.raises(UnreachableError):
        list(client.follow(run.id))
    assert server.streams == 4


def test_a_person_decides_and_gives_results(client: Client) -> None:
    run = client.start("pay please")
    for event in run:
        if isinstance(event, ApprovalRequest):
            assert (event.name, event.arguments, [*run.waiting]) == ("pay", {"amount": 7}, [event])
            assert run.decide(event.call_id, True)
    assert (run.output, run.waiting) == ("Paid.", [])
    run = client.start("locate me")
    paused = run.result()
    assert (paused.reason, [request.name for request in paused.waiting]) == ("paused", ["locate"])
    assert paused.usage.output_tokens > 0
    assert [message.role for message in paused.messages] == ["user", "assistant", "tool"]  # which says that it waits
    assert (run.finish_reason, run.usage, run.messages) == ("paused", paused.usage, paused.messages)
    assert run.provide(paused.waiting[0].call_id, {"lat": 1})
    result = run.result()
    assert (result.output, result.reason, run.finish_reason) == ("There.", "answered", "answered")
    assert result.usage.output_tokens > paused.usage.output_tokens


def test_a_remote_run_without_an_answer_has_no_output(client: Client) -> None:
    def no_output(owner: Any) -> OutputError:
        with pytest.raises(OutputError) as caught:
            owner.output  # noqa: B018
        return caught.value

    run = client.start("cut it")
    assert (no_output(run).reason, no_output(run).result) == ("not finished", None)
    result = run.result()
    for owner in (run, result):
        error = no_output(owner)
        assert (error.reason, error.why, error.text) == ("cut", owner.why, "Half an ans")
        assert owner.text == "Half an ans"
        assert (error.result.messages, error.result.id) == (result.messages, run.id)
    waiting = client.start("pay please")
    assert no_output(waiting.result()).reason == no_output(waiting).reason == "paused"


def test_a_decision_without_reading_names_what_the_server_shows(client: Client) -> None:
    first = client.start("inner please")
    [request] = first.result().waiting
    assert request.name == "pay"
    other = client.follow(first.id)
    assert other.decide(request.call_id, False, reason="no")
    inner = [event for event in other if isinstance(event, Nested)]
    assert isinstance(inner[0].event, RunStart)
    assert other.finish_reason == "answered"


def test_a_run_is_cancelled_and_gets_messages(client: Client) -> None:
    run = client.start("locate me", thread="t")
    run.result()
    assert run.say("hurry")
    assert run.why == "the run waits for a decision or a result"
    assert run.cancel("enough")
    assert not run.cancel("again")
    events = [*run]
    assert isinstance(events[-1], Done)
    assert run.finish_reason == "cancelled"
    assert run.why == events[-1].why == "enough"


def test_runs_threads_and_agents_are_listed(client: Client) -> None:
    run = client.start("hello", thread="a b?c#d", agent="support")
    run.result()
    assert [row.id for row in client.list(thread="a b?c#d", state="over")] == [run.id]
    state = client.find(run.id)
    assert (state.output, state.thread, state.waiting) == ("You said: hello", "a b?c#d", [])
    thread = client.thread("a b?c#d")
    assert ([message["role"] for message in thread.messages], thread.active) == (["user", "assistant"], None)
    assert client.agents() == ("support",)


def test_a_refusal_has_a_code_and_the_id_of_the_request(client: Client) -> None:
    with pytest.raises(RefusedError) as unknown:
        list(client.follow("nothing"))
    assert (unknown.value.status, unknown.value.code) == (404, "unknown_run")
    assert unknown.value.request_id in str(unknown.value)
    waiting = client.start("locate me", thread="t")
    waiting.result()
    with pytest.raises(RefusedError) as busy:
        client.start("more", thread="t")
    assert (busy.value.status, busy.value.run_id) == (409, waiting.id)
    with pytest.raises(RefusedError, match="waits for its result"):
        waiting.decide(waiting.waiting[0].call_id, True)


@pytest.mark.parametrize("server", [TOKEN], indirect=True)
def test_a_token_is_sent(server: Server) -> None:
    with Client(server.url) as client, pytest.raises(RefusedError) as refused:
        client.start("hello")
    assert refused.value.status == 401
    with Client(server.url, token=TOKEN) as client, client.start("hello") as run:
        assert run.result().output == "You said: hello"


def test_a_server_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.0)
    with listen("127.0.0.1", 0) as listener:
        url = address_of(listener)
    with Client(url, tries=2) as client, pytest.raises(UnreachableError) as error:
        client.start("hello")
    assert not error.value.was_sent
    assert str(error.value).startswith(f"the server at {url.removeprefix('http://')} cannot be reached: ")
    with pytest.raises(UsageError, match="http"):
        Client("localhost:8000")


# -- without I/O -------------------------------------------------------------------------------------------------------


def test_a_start_that_may_have_arrived_is_sent_again_with_its_key() -> None:
    steps = request("POST", "/runs", {"prompt": "x"}, tries=3, key="k1")
    first = next(steps)
    for was_sent in (True, False):
        assert isinstance(steps.throw(UnreachableError("broken", was_sent=was_sent)), Pause)
        assert next(steps) == first
    assert isinstance(first, Send)
    assert first.key == "k1"


def test_a_busy_server_is_asked_again_and_a_refusal_is_not_repeated() -> None:
    steps = request("GET", "/runs", tries=1)
    next(steps)
    busy = Response(503, {}, b'{"error":{"code":"store_failed","message":"later"}}')
    assert isinstance(steps.send(busy), Pause)
    next(steps)
    with pytest.raises(RefusedError, match="later"):
        steps.send(busy)
    steps = request("GET", "/runs", tries=5)
    next(steps)
    with pytest.raises(RefusedError, match="status 418"):
        steps.send(Response(418, {}, b"teapot"))


def test_a_request_may_be_tried_more_often_than_a_pause_can_be_doubled() -> None:
    tries = 1030
    commands = request("GET", "/runs", tries=tries)
    assert isinstance(next(commands), Send)
    for _ in range(tries):
        assert isinstance(commands.throw(UnreachableError("not there", was_sent=False)), Pause)
        next(commands)
    with pytest.raises(UnreachableError):
        commands.throw(UnreachableError("not there", was_sent=False))


def test_the_id_of_a_run_may_have_any_characters() -> None:
    class Paths(list[str]):
        tries = 1
        new_key = staticmethod(str)

        def send(self, steps: Any) -> dict[str, bool]:
            self.append(next(steps).path)
            return {"is_new": True}

    paths = Paths()
    run = RemoteRun(cast(Any, paths), "order #17/b?")
    run.decide("c", True)
    run.provide("c", 1)
    run.say("Hi.")
    run.cancel()
    paths.send(exchange.follow(run.id, START, tries=1))
    below = [path.removeprefix("/runs/order%20%2317%2Fb%3F") for path in paths]
    assert below == ["", "/provide", "/say", "/cancel", "/events"]  # a decision asks first what the server shows


def test_a_reader_that_leaves_closes_its_connection_at_once() -> None:
    closed: list[str] = []

    class OneEvent:
        tries = 1

        async def stream(self, exchange: object) -> AsyncGenerator[Ready]:
            try:
                while True:
                    yield Ready([(Position(1), {"type": "text", "block": 0, "text": "Hi."})])
            finally:
                closed.append("stream")

    async def read() -> None:
        run = AsyncRemoteRun(cast(Any, OneEvent()), "r")
        async with run:
            async for event in run:
                assert event == Text(0, "Hi.")
                break
        assert closed == ["stream"]

    asyncio.run(read())


def test_frames_are_read_however_they_are_cut() -> None:
    data = b': keep-alive\n\nid: 1\ndata: {"type":"text"}\n\nid: 12\ndata: {"a":1}\n\n'
    expected = [(1, {"type": "text"}), (12, {"a": 1})]
    for cut in range(len(data)):
        frames = Frames()
        assert frames.feed(data[:cut]) + frames.feed(data[cut:]) == expected
    with pytest.raises(RefusedError):
        Frames().feed(b"data: not json\n\n")
    with pytest.raises(RefusedError, match="larger"):
        Frames().feed(b"x" * (MAX_FRAME + 1))


def test_every_public_event_is_received_as_the_same_type() -> None:
    for kind in PUBLIC_FIELDS:
        event = EXAMPLES[kind]
        public = msgspec.json.decode(msgspec.json.encode(public_event(event)))
        received = received_event(public)
        if kind.type in HIDDEN:  # type: ignore[attr-defined]
            assert received is None
        else:
            assert isinstance(received, kind), kind
            assert received is not None
            assert innermost(received).type == innermost(event).type
    assert set(PUBLIC_FIELDS) <= {*get_args(LogEvent)}
    assert isinstance(received_event({"type": "new", "x": 1}), Unknown)
