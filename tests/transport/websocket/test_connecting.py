"""Opening WebSockets: handshakes that are refused, TLS, proxies, forks, recordings, and servers that store."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

import penstock
from penstock import Model, Retries
from penstock.errors import AuthenticationError, ConnectionFailed, NotFoundError, ProviderError, UsageError
from penstock.messages import Message, user
from penstock.model import remembering as remembering_module
from penstock.model.recording import read_recordings
from penstock.testing import Replay
from penstock.transport.commands import HTTPResponseHead, OpenRequest
from penstock.transport.websocket import open_socket
from tests.transport.websocket.server import FrameServer, Json, frames_of, message
from tests.transport.websocket.test_client import NONE, aread, both, double, model_of, read, steps, text_of


class Posts:
    """HTTP for the fallback: the bodies of requests, which are answered by the frames of a response."""

    def __init__(self, *replies: tuple[int, Any]) -> None:
        self.bodies: list[Json] = []
        self.replies = [*replies]

    def aconnect(self) -> Posts:
        return self

    def connect(self) -> SyncPosts:
        return SyncPosts(self)

    async def open(self, command: OpenRequest) -> HTTPResponseHead:
        return self.take(command)

    def take(self, command: OpenRequest) -> HTTPResponseHead:
        assert command.request.place is None
        self.bodies.append(json.loads(command.request.body))
        id = f"resp_{len(self.bodies)}"
        status, body = self.replies.pop(0) if self.replies else (200, frames_of(id, [message("Hello!")]))
        self.data = json.dumps(body).encode() if status != 200 else b"".join(
            b"data: %s\n\n" % json.dumps(frame).encode() for frame in body
        )  # fmt: skip
        return HTTPResponseHead(status, {})

    async def read(self, seconds: float | None) -> bytes:
        data, self.data = self.data, b""
        return data

    def abort(self) -> None:
        pass

    async def close(self) -> None:
        pass


class SyncPosts:
    def __init__(self, posts: Posts) -> None:
        self.posts = posts

    def open(self, command: OpenRequest) -> HTTPResponseHead:
        return self.posts.take(command)

    def read(self, seconds: float | None) -> bytes:
        data, self.posts.data = self.posts.data, b""
        return data

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def with_posts(model: Model) -> Posts:
    connector: Any = model._connector
    connector._http = posts = Posts()
    return posts


# Handshakes.


@both
def test_after_426_a_model_uses_http_for_good(read: Any) -> None:
    with FrameServer(status=426) as server:
        model = model_of(server)
        posts = with_posts(model)
        assert [text_of(read(model)) for _ in range(3)] == ["Hello!"] * 3
        assert text_of(read(model.for_conversation())) == "Hello!"
        assert len(server.handshakes) == 1
        assert all(body["stream"] is True and "previous_response_id" not in body for body in posts.bodies)


@pytest.mark.parametrize("status", [301, 400, 403, 404, 405])
def test_a_server_without_websockets_is_asked_over_http_for_the_conversation(status: int) -> None:
    with FrameServer(status=status) as server:
        model = model_of(server)
        posts = with_posts(model)
        conversation = model.for_conversation()
        read(conversation)
        read(conversation)
        assert len(server.handshakes) == 1
        read(model.for_conversation())
        assert len(server.handshakes) == 2
        assert len(posts.bodies) == 3


@both
@pytest.mark.parametrize(("status", "kind"), [(401, AuthenticationError), (429, ProviderError), (503, ProviderError)])
def test_a_refused_handshake_is_the_error_of_its_status(read: Any, status: int, kind: type[ProviderError]) -> None:
    with FrameServer(status=status) as server:
        model = model_of(server, Retries(attempts=0, shared=False))
        posts = with_posts(model)
        with pytest.raises(kind, match="not here"):
            read(model)
        assert not posts.bodies


def test_a_retry_after_a_failed_handshake_uses_http() -> None:
    with FrameServer(status=503) as server:
        model = model_of(server, Retries(first_delay=0.01, shared=False))
        posts = with_posts(model)
        assert text_of(read(model)) == "Hello!"
        assert len(posts.bodies) == len(server.handshakes) == 1


def test_a_server_that_cannot_be_reached_is_a_failed_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        model = Model(
            "openai:m", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1", api_key="k", transport="websocket",
            wire="openai-responses", retries=NONE,
        )  # fmt: skip
        with pytest.raises(ConnectionFailed, match="Connection refused"):
            read(model)


def test_a_server_that_answers_with_something_else_is_a_failed_connection() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"SSH-2.0-something\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    model = Model(
        "openai:m", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", api_key="k", transport="websocket",
        wire="openai-responses", retries=NONE,
    )  # fmt: skip
    with listener, pytest.raises(ConnectionFailed, match="handshake"):
        read(model)
    thread.join()


def test_a_redirect_is_not_followed() -> None:
    """The library would send the key on to another path."""
    with FrameServer(status=307) as server:
        model = model_of(server)
        with_posts(model)
        read(model)
        assert len(server.handshakes) == 1


def test_a_warm_up_is_not_sent_over_http() -> None:
    with FrameServer(status=426) as server:
        model = model_of(server)
        posts = with_posts(model)
        model.warm_up("hi")
        model.warm_up("hi")
        assert not posts.bodies


def test_a_request_of_a_conversation_that_fell_back_is_whole() -> None:
    """What continues on a WebSocket never reaches HTTP."""
    with FrameServer(steps) as server:
        model = model_of(server)
        posts = with_posts(model)
        agent = penstock.Agent(model, tools=[double])
        messages = agent.run("go").messages
        server.status = 426
        connector: Any = model._connector
        connector._sockets.pools.close()
        assert server.closed.acquire(timeout=10)
        agent.run("again", messages=messages)
        assert len(posts.bodies) == 1
        assert len(posts.bodies[0]["input"]) == len(server.histories[-1]) + 2


# TLS and proxies.


@pytest.fixture
def tls(monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr(open_socket, "_tls", lambda: trusting)
    return context


@both
def test_tls(read: Any, tls: ssl.SSLContext) -> None:
    with FrameServer(tls=tls) as server:
        assert text_of(read(model_of(server))) == "Hello!"


def test_an_unknown_certificate_is_refused(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_socket, "_tls", ssl.create_default_context)
    with FrameServer(tls=tls) as server, pytest.raises(ConnectionFailed, match="certificate"):
        read(model_of(server))


class ConnectProxy:
    """An HTTP proxy that only takes CONNECT."""

    def __init__(self, target: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.target = target
        self.heads: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://user:pass@127.0.0.1:{self.listener.getsockname()[1]}"

    def _serve(self) -> None:
        client, _ = self.listener.accept()
        self.heads.append(client.recv(4096))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        server = socket.create_connection(("localhost", self.target))
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for sock in (source, sink):
            sock.close()


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_proxy_is_asked_to_connect(is_tls: bool, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with FrameServer(tls=tls if is_tls else None) as server:
        proxy = ConnectProxy(server.port)
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert text_of(read(model_of(server))) == "Hello!"
        assert proxy.heads[0].startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % server.port)
        assert b"Proxy-Authorization: Basic" in proxy.heads[0]
        assert b"secret-key" not in proxy.heads[0]
        penstock.close()
        proxy.listener.close()


# Forks, keys, packages.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_process_opens_a_connection_of_its_own() -> None:
    with FrameServer() as server:
        model = model_of(server).for_conversation()
        read(model, "one")
        child = os.fork()
        if child == 0:
            try:
                is_right = text_of(read(model, "two")) == "Hello!"
            finally:
                os._exit(0 if is_right else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert text_of(read(model, "three")) == "Hello!"
        assert len(server.handshakes) == 2
        assert [request["input"][0]["content"] for request in server.requests] == ["one", "two", "three"]


def test_a_connection_is_not_shared_by_two_keys() -> None:
    keys = iter(["first", "second", "second"])
    with FrameServer() as server:
        model = Model(
            "openai:m", base_url=server.url, api_key=lambda: next(keys), transport="websocket", wire="openai-responses"
        ).for_conversation()
        for _ in range(3):
            read(model, "hi")
        assert [shake["authorization"] for shake in server.handshakes] == ["Bearer first", "Bearer second"]


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstock.transport.websocket.library", None)
    with FrameServer() as server, pytest.raises(UsageError, match=r"penstock-llm\[ws\]"):
        read(model_of(server))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transport": "carrier pigeon"}, "transport must be"),
        ({"transport": "websocket", "wire": "openai-chat"}, "not spoken over WebSocket"),
        ({"remember": "connection"}, "add transport"),
        ({"remember": "always"}, "remember must be"),
        ({"remember": "server", "wire": "openai-chat"}, "do not remember"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Model("openai:m", api_key="k", **{"wire": "openai-responses", **options})


def test_a_script_has_no_transport() -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        Model("sim:fast", transport="websocket")


def test_only_a_websocket_can_be_warmed_up() -> None:
    with pytest.raises(UsageError, match="transport='websocket'"):
        Model("openai:m", api_key="k", wire="openai-responses").warm_up("hi")


# Recordings.


def test_a_recording_has_the_frames_and_can_be_replayed(tmp_path: Path) -> None:
    file = tmp_path / "frames.jsonl"
    with FrameServer(steps) as server:
        agent = penstock.Agent(model_of(server, record=file), tools=[double])
        live = agent.run("go")
    recordings = read_recordings(file)
    assert [len(recording.request.body["input"]) for recording in recordings] == [1, 3, 5, 7, 9]
    assert b"secret-key" not in file.read_bytes()
    lines = [
        line for recording in recordings for piece in recording.pieces for line in piece.data.split(b"\n\n") if line
    ]
    frames = [json.loads(line.removeprefix(b"data: ")) for line in lines]
    assert [frame["type"] for frame in frames].count("response.completed") == 5
    model = Model("openai:gpt-5", via=Replay(file), wire="openai-responses")
    assert penstock.Agent(model, tools=[double]).run("go").messages == live.messages


# Servers that store responses.


def remembering(posts: Posts) -> Model:
    via: Any = posts
    return Model("openai:gpt-5", via=via, wire="openai-responses", remember="server", retries=NONE)


def ask_twice(model: Model) -> None:
    with model.stream("hi") as stream:
        for _ in stream:
            pass
    read(model, [user("hi"), Message("assistant", stream.turn.parts), user("and?")])


def test_a_server_that_stores_gets_only_what_is_new_also_over_http() -> None:
    posts = Posts()
    ask_twice(remembering(posts))
    assert [body["store"] for body in posts.bodies] == [True, True]
    assert posts.bodies[1]["previous_response_id"] == "resp_1"
    assert [item["content"] for item in posts.bodies[1]["input"]] == ["and?"]


def test_a_stored_response_that_is_gone_is_sent_whole() -> None:
    gone = (404, {"error": {"code": "previous_response_not_found", "message": "gone"}})
    posts = Posts((200, frames_of("resp_1", [message("Hello!")])), gone)
    ask_twice(remembering(posts))
    assert [len(body["input"]) for body in posts.bodies] == [1, 1, 3]
    assert "previous_response_id" not in posts.bodies[2]


def test_another_error_of_a_continued_request_is_an_error() -> None:
    posts = Posts((200, frames_of("resp_1", [message("Hello!")])), (404, {"error": {"message": "no such model"}}))
    with pytest.raises(NotFoundError):
        ask_twice(remembering(posts))


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_response_that_did_not_end_well_is_not_continued(status: str) -> None:
    posts = Posts((200, frames_of("resp_1", [message("Hello!")], status)))
    ask_twice(remembering(posts))
    assert len(posts.bodies[1]["input"]) == 3
    assert "previous_response_id" not in posts.bodies[1]


def test_nothing_is_remembered_without_being_asked() -> None:
    posts: Any = Posts()
    ask_twice(Model("openai:gpt-5", via=posts, wire="openai-responses", retries=NONE))
    assert [len(body["input"]) for body in posts.bodies] == [1, 3]
    assert all(body["store"] is False for body in posts.bodies)


def test_a_model_remembers_only_some_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering_module, "MAX_REMEMBERED", 1)
    posts = Posts()
    model = remembering(posts)
    with model.stream("hi") as stream:
        for _ in stream:
            pass
    read(model, "another conversation")
    read(model, [user("hi"), Message("assistant", stream.turn.parts), user("and?")])
    assert [len(body["input"]) for body in posts.bodies] == [1, 1, 3]


def test_a_stream_in_async_code_gets_the_same() -> None:
    with FrameServer(steps) as server:
        assert asyncio.run(aread(model_of(server), tools=[double])) == read(model_of(server), tools=[double])
