"""Attacks on a server of agents, over real sockets: every rule that makes it safe by default.

| rule | test |
|---|---|
| only this machine without a token; `Host` and `Origin` are checked; CORS is off | `test_a_server_without_a_token_…` |
| a token, compared in constant time | `test_a_token_…`, `test_tokens_are_compared_…` |
| a cookie that no script and no other site can use, and that ends | `test_a_cookie_…` |
| other machines only with a token, other pages only if named | `test_other_machines_…`, `test_pages_of_a_host_…` |
| an event and a response that are too large | `test_serve_sockets.py` |
| bodies: type, size, depth, values, time; messages and tools in one request | `test_a_body_…`, `test_too_many_…` |
| heads without an end; requests with two meanings | `test_a_head_…`, `test_what_has_no_clear_meaning_…` |
| heads and bodies that come slowly; readers that do not read | `test_serve_sockets.py` |
| 10,000 events for readers that sleep | `test_readers_that_sleep_…` |
| runs at once, per tenant and in all, however they begin | `test_there_are_limits_…` |
| runs that do not end | `test_serve.py` |
| runs of others, and ids that were guessed, do not exist | `test_what_belongs_to_another_tenant_…` |
| an approval names the run, the call, and what was shown | `test_a_forged_approval_…` |
| nothing is fetched for a client | `test_no_address_is_fetched…` |
| base URLs, headers, keys, recordings, wires, `replay:` are not the client's | `test_a_client_does_not_choose_…` |
| private data of tools, and the words of providers, stay | `test_private_data_…`, `test_the_words_of_a_provider_…` |
"""

from __future__ import annotations

import asyncio
import hmac
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock.serve
from penstock.asgi.access import SESSION_SECONDS
from penstock.asgi.stream import COMMENT
from penstock.cli.app import penstock as command
from penstock.serve.models.api import WIRES
from tests.asgi_client import serving
from tests.serve.test_serve import agent_of
from tests.served_process import SECONDS, Server, read_until, served, with_length

SERVER = """
import sys
from penstock.agent.agent import Agent
from penstock.asgi.limits import ServerLimits
from penstock.asgi.server import listen, run_server
from penstock.log.sqlite.store import SQLiteStore
from penstock.model.model import Model
from penstock.serve import app
from penstock.testing import Reply, Scripted, call, fail, wait
from penstock.tools.tool import ToolOutput, tool

@tool(read_only=True)
def look(city: str) -> ToolOutput:
    "Look."
    return ToolOutput(f"{city} is clear", data={"password": "s3cret data"})

@tool(approval=True)
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"

def answer(request):
    match request.prompt.split()[0]:
        case "look":
            return "It is clear." if request.results else Reply(call("look", {"city": "Rome"}))
        case "pay":
            return "Done." if request.results else Reply(call("pay", {"amount": 7}))
        case "hang":
            return Reply("begun", wait(60))
        case "fail":
            return Reply("Almost", fail("server_error", "s3cret words"))
        case "flood":
            return ("w" * 500 + " ") * 15_000
        case _:
            return "Hello."

def tenant(scope):
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None

store = SQLiteStore(sys.argv[1])
limits = ServerLimits(write_seconds=120, messages=20, tools=5)
few = ServerLimits(runs=3, tenant_runs=2)
agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[look, pay], name="support")
apps = {
    "/local": app(agent, log=store, limits=limits),
    "/tenants": app(agent, log=store, limits=few, auth=tenant, hosts=["localhost"]),
    "/token": app(agent, log=store, limits=limits, token="correct horse battery"),
}

async def every(scope, receive, send):
    prefix = "/" + scope.get("path", "/local").split("/")[1]
    if scope["type"] == "http":
        scope = {**scope, "root_path": prefix}
    await apps.get(prefix, apps["/local"])(scope, receive, send)

with listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    run_server(every, listener, limits)
"""
ADA = {"x-user": "ada"}
BOB = {"x-user": "bob"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(SERVER, Path(tmp_path_factory.mktemp("attacks")) / "runs.db") as server:
        yield server


def requests(prompt: str) -> dict[str, dict[str, Any]]:
    """A request that starts a run, by its path, for every protocol."""
    thread, message = prompt.replace(" ", "-").replace("/", "-"), {"role": "user", "content": prompt}
    models: dict[str, Any] = {path: {"model": "support", "max_tokens": 100, "messages": [message]} for path in WIRES}
    models["/v1/responses"] = {"model": "support", "input": prompt}
    parts = [{"type": "text", "text": prompt}]
    return {
        "/runs": {"prompt": prompt},
        "/api/chat": {"id": thread, "messages": [{"id": "u1", "role": "user", "parts": parts}]},
        "/agui": {"threadId": f"agui-{thread}", "runId": "r", "messages": [{**message, "id": "u1"}]},
        **models,
    }


def runs(server: Server, app: str = "/local", headers: Mapping[str, str] | None = None) -> list[Any]:
    found: list[Any] = json.loads(server.send("GET", f"{app}/runs", headers=headers)[2])["runs"]
    return found


PATHS = [*requests("")]
every_path = pytest.mark.parametrize("path", PATHS)


@every_path
def test_a_server_without_a_token_answers_only_pages_of_its_own(server: Server, path: str) -> None:
    before = len(runs(server))
    body = requests("hello")[path]
    foreign: list[tuple[dict[str, str], int]] = [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:80"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"http://localhost:{server.port + 1}"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ]
    for headers, expected in foreign:
        status, found, _ = server.send("POST", f"/local{path}", body, headers)
        assert (status, "access-control-allow-origin" in found) == (expected, False), headers
    preflight = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    status, found, _ = server.send("OPTIONS", f"/local{path}", headers=preflight)
    assert status >= 400
    assert not [name for name in found if name.startswith("access-control")]
    assert len(runs(server)) == before


@every_path
def test_a_token_is_required_and_errors_have_the_shape_of_the_protocol(server: Server, path: str) -> None:
    bearer = "Bearer correct horse battery"
    for wrong in ({}, {"authorization": bearer[:-1]}, {"authorization": "Bearer "}, {"x-api-key": ""}):
        status, headers, body = server.send("POST", f"/token{path}", requests("hello")[path], wrong)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        error = json.loads(body)
        assert error["error"]["message"]
        assert ("type" in error) == (path == "/v1/messages")
    for right in ({"authorization": bearer}, {"x-api-key": "correct horse battery"}):
        assert server.send("GET", "/token/runs", headers=right)[0] == 200


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def recorded(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr("penstock.asgi.access.hmac.compare_digest", recorded)

    async def main() -> None:
        async with serving(penstock.serve.app(agent_of("Hi"), token="x" * 20)) as browser:
            assert (await browser.get("/runs", authorization=f"Bearer {'y' * 20}")).status == 401

    asyncio.run(main())
    assert compared[0] == (b"y" * 20, b"x" * 20)


def test_a_cookie_is_for_this_server_alone_and_cannot_be_made(server: Server) -> None:
    token = {"authorization": "Bearer correct horse battery"}
    assert server.send("POST", "/token/session", {})[0] == 401
    _, headers, _ = server.send("POST", "/token/session", {}, token)
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/token"} <= {*attributes}
    assert server.send("GET", "/token/runs", headers={"cookie": cookie})[0] == 200
    name, expires, signature = cookie.partition("=")[2].split(".")
    later, another = f"{name}.{int(expires) + 1}.{signature}", f"x{name}.{expires}.{signature}"
    for forged in (later, another, f"{name}.{expires}.{'0' * 64}", f"{expires}.", "", "9" * 50, "9.é", ".."):
        value = f"penstock_session={forged}"
        assert server.send("GET", "/token/runs", headers={"cookie": value.encode().decode("latin-1")})[0] == 401, forged
    cross = {"cookie": cookie, "origin": "http://evil.example"}
    assert server.send("POST", "/token/runs", {"prompt": "hello"}, cross)[0] == 403


def test_a_cookie_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(penstock.serve.app(agent_of("Hi"), token="x" * 20)) as browser:
            session = await browser.post("/session", {}, authorization=f"Bearer {'x' * 20}")
            cookie, now = session.headers["set-cookie"].partition(";")[0], time.time()
            for seconds, status in ((SESSION_SECONDS - 60, 200), (SESSION_SECONDS + 60, 401)):
                with monkeypatch.context() as patch:
                    patch.setattr("penstock.asgi.access.time.time", lambda later=now + seconds: later)
                    assert (await browser.get("/runs", cookie=cookie)).status == status

    asyncio.run(main())


def test_pages_of_a_host_that_is_allowed_can_use_the_server() -> None:
    page = "https://chat.example"

    async def main() -> None:
        async with serving(penstock.serve.app(agent_of("Hi"), origins=[page])) as browser:
            for origin, status in ((page, 201), ("https://evil.example", 403)):
                reply = await browser.post("/runs", {"prompt": "Hi"}, origin=origin)
                assert reply.status == status
                assert reply.headers.get("access-control-allow-origin") == (page if status == 201 else None)

    asyncio.run(main())


def test_other_machines_are_served_only_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        ended = CliRunner().invoke(command, ["serve", str(tmp_path / "agent.py"), "--host", host])
        assert (ended.exit_code, "set a token" in ended.output) == (2, True), ended.output


@every_path
def test_a_body_that_is_too_large_too_deep_or_of_another_type_starts_nothing(server: Server, path: str) -> None:
    before, url = len(runs(server)), f"/local{path}"
    deep = b"[" * 100_000 + b"]" * 100_000
    assert server.send("POST", url, deep)[0] == 400
    assert server.send("POST", url, b'{"a":' * 70 + b"1" + b"}" * 70)[0] == 400
    for many, code in ((b"[" + b"[]," * 1_300_000 + b"0]", 413), (b"[" + b"7" * 4000 + b"]", 400)):
        assert server.send("POST", url, many)[0] == code
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert server.send("POST", url, requests("hello")[path], {"content-type": kind})[0] == 415
    with server.connection() as connection:  # it is refused before it comes
        connection.sendall(with_length(f"POST {url}", "{", 5_000_000))
        assert b" 413 " in read_until(connection, b"\r\n\r\n")
    with server.connection() as connection:  # without a length
        head = f"POST {url} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
        connection.sendall(head.encode() + b"\r\n\r\n")
        assert b" 413 " in flood(connection, b"10000\r\n" + b" " * 65536 + b"\r\n", 100)
    assert len(runs(server)) == before


def flood(connection: socket.socket, piece: bytes, times: int) -> bytes:
    """Send a piece again and again; returns the beginning of the response."""

    def send() -> None:
        try:
            for _ in range(times):
                connection.sendall(piece)
        except OSError:
            pass  # the server has closed the connection

    sender = threading.Thread(target=send)
    sender.start()
    try:
        return read_until(connection, b"\r\n\r\n")
    finally:
        connection.shutdown(socket.SHUT_RDWR)
        sender.join(SECONDS)


MANY_TOOLS = [{"name": f"f{number}", "parameters": {}, "input_schema": {}} for number in range(6)]
MANY_MESSAGES = [{"id": "a", "role": "user", "content": "a"}, {"id": "b", "role": "assistant", "content": "b"}] * 11
MANY_PARTS = [{"type": "text", "text": "a"}] * 21
TOO_MANY: list[tuple[str, dict[str, Any]]] = [
    ("/runs", {"prompt": MANY_PARTS}),
    ("/api/chat", {"messages": [{"id": "u", "role": "user", "parts": MANY_PARTS[:1]}] * 21}),
    ("/api/chat", {"messages": [{"id": "u", "role": "user", "parts": MANY_PARTS}]}),
    ("/agui", {"messages": MANY_MESSAGES}),
    ("/agui", {"tools": MANY_TOOLS}),
    ("/v1/chat/completions", {"messages": MANY_MESSAGES}),
    ("/v1/chat/completions", {"tools": [{"type": "function", "function": tool} for tool in MANY_TOOLS]}),
    ("/v1/responses", {"input": [{name: one[name] for name in ("role", "content")} for one in MANY_MESSAGES]}),
    ("/v1/responses", {"tools": [{"type": "function", **tool} for tool in MANY_TOOLS]}),
    ("/v1/messages", {"messages": MANY_MESSAGES}),
    ("/v1/messages", {"tools": MANY_TOOLS}),
]


@pytest.mark.parametrize(("path", "changes"), TOO_MANY)
def test_too_many_messages_tools_and_parts_are_refused(server: Server, path: str, changes: dict[str, Any]) -> None:
    before = len(runs(server))
    status, _, reply = server.send("POST", f"/local{path}", requests("hello")[path] | changes)
    assert (status, b"20 " in reply or b"5 tools" in reply or b"at most 20" in reply) == (400, True), reply
    assert len(runs(server)) == before


SLEEPERS = 60
"""So many that their copies of a run would be much more than what the run itself leaves in memory, which varies."""


def test_readers_that_sleep_cost_little_memory_and_delay_nobody(server: Server) -> None:
    follow_flood(server, server.start("flood", "/local/runs"))
    before, run_id = memory(server), server.start("flood", "/local/runs")
    sleepers: list[socket.socket] = []
    try:
        for _ in range(SLEEPERS):
            sleepers.append(sleeper := socket.socket())
            sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sleeper.connect(("127.0.0.1", server.port))
            sleeper.sendall(with_length(f"GET /local/runs/{run_id}/events"))
        size = follow_flood(server, run_id)
        assert (
            f"penstock_serve_readers {SLEEPERS}".encode() in server.send("GET", "/local/metrics")[2]
        )  # they sleep still
        assert memory(server) - before < len(sleepers) * size / 2 / 1024
        assert read_response(sleepers[0]) == server.send("GET", f"/local/runs/{run_id}/events")[2]
    finally:
        for sleeper in sleepers:
            sleeper.close()


def read_response(connection: socket.socket) -> bytes:
    """The body of a response, without the comments of a stream."""
    connection.settimeout(SECONDS)
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        return response.read().replace(COMMENT, b"")


def follow_flood(server: Server, run_id: str) -> int:
    """Read more than 10,000 events; returns their size in bytes."""
    status, _, events = server.send("GET", f"/local/runs/{run_id}/events")
    assert (status, events.count(b'"type":"done"')) == (200, 1)
    assert events.count(b"\nid: ") > 10_000
    return len(events)


def memory(server: Server) -> int:
    """The memory of the server, in kilobytes."""
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from /proc")
    [line] = [line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


def test_there_are_limits_to_runs_of_a_tenant_and_in_all(server: Server) -> None:
    server.until("/tenants/metrics", b"penstock_serve_runs 0\n", **ADA)
    hanging = [(server.start("hang", "/tenants/runs", **ADA), ADA) for _ in range(2)]
    for path, body in requests("hello").items():
        status, headers, _ = server.send("POST", f"/tenants{path}", body, ADA)
        assert (status, headers["retry-after"]) == (429, "5"), path
    hanging.append((server.start("hang", "/tenants/runs", **BOB), BOB))
    for path, body in requests("hello").items():
        assert server.send("POST", f"/tenants{path}", body, {"x-user": "eve"})[0] == 429, path
    for run_id, tenant in hanging:
        server.send("POST", f"/tenants/runs/{run_id}/cancel", {}, tenant)
        assert b'"cancelled"' in server.send("GET", f"/tenants/runs/{run_id}/events", headers=tenant)[2]
    assert len(runs(server, "/tenants", {"x-user": "eve"})) == 0


def test_what_belongs_to_another_tenant_or_was_guessed_does_not_exist(server: Server) -> None:
    for body in ({"id": "shared", **requests("pay")["/api/chat"]},):
        server.send("POST", "/tenants/api/chat", body | {"id": "shared"}, ADA)
    [row] = [row for row in runs(server, "/tenants", ADA) if row["thread"] == "shared"]
    [request] = json.loads(server.send("GET", f"/tenants/runs/{row['id']}", headers=ADA)[2])["waiting"]
    decision = {"call_id": request["call_id"], "approved": True, "shown": request["shown"]}
    own = {"x-user": "ada"}
    for tenant, run_id in ((BOB, row["id"]), (own, "0" * 32), (own, "x" * 5000), (own, "%2e%2e"), (own, "%00")):
        reached = [
            server.send("GET", f"/tenants/runs/{run_id}", headers=tenant),
            server.send("GET", f"/tenants/runs/{run_id}/messages", headers=tenant),
            server.send("GET", f"/tenants/runs/{run_id}/events", headers=tenant),
            server.send("POST", f"/tenants/runs/{run_id}/cancel", {}, tenant),
            server.send("POST", f"/tenants/runs/{run_id}/decide", decision, tenant),
            server.send("POST", f"/tenants/runs/{run_id}/provide", {"call_id": "c", "value": 1}, tenant),
            server.send("POST", f"/tenants/runs/{run_id}/say", {"message": "Pay!"}, tenant),
        ]
        assert {status for status, _, _ in reached} == {404}
        assert {json.loads(body)["error"]["message"] for _, _, body in reached} == {"there is no such run"}
    assert server.send("GET", "/tenants/threads/shared", headers=BOB)[0] == 404
    assert server.send("GET", "/tenants/api/chat/shared/stream", headers=BOB)[0] == 204
    assert json.loads(server.send("GET", "/tenants/api/chat/shared", headers=BOB)[2])["messages"] == []
    for id in ("", " "):
        assert server.send("GET", "/tenants/runs", headers={"x-user": id})[0] == 401
    state = json.loads(server.send("GET", f"/tenants/runs/{row['id']}", headers=ADA)[2])
    assert state["state"] == "waiting"
    server.send("POST", f"/tenants/runs/{row['id']}/cancel", {}, ADA)


def test_what_has_no_clear_meaning_is_refused(server: Server) -> None:
    """A request that a proxy in front could read in another way, and text that no database keeps."""
    for host in ("evil@localhost", "localhost/x", "localhost#x", "localhost:x", "localhost:999999", "[", "[::1", "::1"):
        assert server.send("GET", "/local/runs", headers={"host": host})[0] == 421, host
    for host in ("LOCALHOST", "localhost:1", "[::1]", "[::1]:80", "127.0.0.1"):
        assert server.send("GET", "/local/runs", headers={"host": host})[0] == 200, host
        assert server.send("GET", "/local/runs", headers={"host": host, "origin": f"http://{host}"})[0] == 200, host
    for origin in ("null", "http://[", "http://", "//localhost", "http://localhost/", "http://a@localhost", "\xff"):
        assert server.send("GET", "/local/runs", headers={"origin": origin})[0] == 403, origin
    for name in ("Host", "Origin"):
        twice = with_length("GET /local/runs").replace(
            b"\r\n", f"\r\n{name}: evil\r\n{name}: localhost\r\n".encode(), 1
        )
        with server.connection() as connection:
            connection.sendall(twice)
            assert b" 400 " in read_until(connection, b"\r\n\r\n")
    for path in ("/local/runs?thread=%00", "/local/runs?agent=%00", f"/local/runs?thread={'x' * 201}"):
        assert server.send("GET", path)[0] == 400
    run_id = server.start("hang", "/local/runs")
    for key in ("a\0b", "k" * 201):
        assert server.send("POST", f"/local/runs/{run_id}/say", {"message": "x", "key": key})[0] == 400
    server.send("POST", f"/local/runs/{run_id}/cancel", {})


SMUGGLED = {
    "two lengths of one body": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": "Content-Length: 5\r\nContent-Length: 19\r\n",
    "an unknown coding": "Transfer-Encoding: xchunked\r\n",
    "a space before the colon": "Transfer-Encoding : chunked\r\nContent-Length: 19\r\n",
    "a negative length": "Content-Length: -1\r\n",
    "a length without an end": f"Content-Length: {'9' * 30}\r\n",
}


@pytest.mark.parametrize("headers", SMUGGLED.values(), ids=SMUGGLED)
def test_a_body_has_one_length(server: Server, headers: str) -> None:
    before = len(runs(server))
    head = f"POST /local/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n"
    with server.connection() as connection:
        connection.sendall(f'{head}13\r\n{{"prompt": "hello"}}\r\n0\r\n\r\n'.encode())
        answers = read_until(connection, b"\r\n\r\n")
        while piece := connection.recv(65536):
            answers += piece
    assert (answers.count(b"HTTP/1.1 "), answers.count(b"HTTP/1.1 400 ")) == (1, 1)
    assert len(runs(server)) == before


CHUNKED = "HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = "GET /local/runs/{id}/events"
FLOODS = {
    "headers": ("GET /local/runs HTTP/1.1\r\n", b"X: y\r\n"),
    "one header": ("GET /local/runs HTTP/1.1\r\nX: ", b"yyyyyy"),
    "an address": ("GET /", b"yyyyyy"),
    "headers after a body": (f"POST /local/runs {CHUNKED}0\r\n", b"X: y\r\n"),
    "names of a chunk": (f"POST /local/runs {CHUNKED}1;", b"yyyyyy"),
    "headers after a body that nobody reads": (f"{STREAM} {CHUNKED}0\r\n", b"X: y\r\n"),
    "headers after a long body": (f"{STREAM} {CHUNKED}2dc6c0\r\n{' ' * 3_000_000}\r\n0\r\n", b"X: y\r\n"),
    "one header after a long body": (f"{STREAM} {CHUNKED}2dc6c0\r\n{' ' * 3_000_000}\r\n0\r\nX: ", b"yyyyyy"),
    "headers of a second request": (f"{STREAM} HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n", b"X: y\r\n"),
}


@pytest.mark.parametrize(("begin", "piece"), FLOODS.values(), ids=FLOODS)
def test_a_head_that_does_not_end_is_cut_off(server: Server, begin: str, piece: bytes) -> None:
    run_id = server.start("hang", "/local/runs")
    with server.connection() as connection:
        connection.sendall(begin.replace("{id}", run_id).encode())
        if begin.startswith(STREAM):
            read_until(connection, b"begun")  # the request is answered meanwhile
        with pytest.raises(ConnectionError):
            send_often(connection, piece * 2_730, 2_000)  # 33 MB, of which the system keeps a part
    server.send("POST", f"/local/runs/{run_id}/cancel", {})


def send_often(connection: socket.socket, piece: bytes, times: int) -> None:
    for _ in range(times):
        connection.sendall(piece)


def test_headers_after_a_body_do_not_count(server: Server) -> None:
    for late in (b"", b"x-user: ada\r\n"):
        with server.connection() as connection:
            connection.sendall(f"GET /tenants/runs {CHUNKED}0\r\n".encode() + late + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 401 "), late


def test_a_long_head_is_read_and_a_longer_one_is_not(server: Server) -> None:
    assert server.send("GET", "/local/runs", headers={"x": "y" * 60_000})[0] == 200
    answer = b""
    with server.connection() as connection, suppress(ConnectionError):  # the answer is lost if more is under way
        connection.sendall(b"GET /local/runs HTTP/1.1\r\nHost: localhost\r\n")
        send_often(connection, b"X: y\r\n" * 10_000, 20)
        connection.sendall(b"\r\n")
        answer = connection.recv(100)
    assert answer == b"" or b" 431 " in answer


def test_a_body_in_many_small_chunks_is_read(server: Server) -> None:
    body = json.dumps({"prompt": "hello" + " " * 30_000}).encode()
    with server.connection() as connection:
        connection.sendall(
            with_length("POST /local/runs", Content_Type="application/json", Transfer_Encoding="chunked")
        )
        for start in range(0, len(body), 1000):
            connection.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in body[start : start + 1000]))
        connection.sendall(b"0\r\n\r\n")
        assert b" 201 " in read_until(connection, b"\r\n\r\n")


def test_a_forged_approval_runs_nothing_on_any_protocol(server: Server) -> None:
    run_id = server.start("pay", "/local/runs")
    server.until(f"/local/runs/{run_id}", b'"waiting":[{')
    [request] = json.loads(server.send("GET", f"/local/runs/{run_id}")[2])["waiting"]
    decide = {"call_id": request["call_id"], "approved": True, "shown": request["shown"]}
    for forged in ({"shown": "0" * 32}, {"shown": ""}, {"call_id": "other"}, {"shown": request["shown"].upper() + "0"}):
        assert server.send("POST", f"/local/runs/{run_id}/decide", decide | forged)[0] == 409, forged
    provide = {"call_id": request["call_id"], "value": "paid"}
    assert server.send("POST", f"/local/runs/{run_id}/provide", provide)[0] == 409

    chat = requests("pay")["/api/chat"] | {"id": "forged"}
    server.send("POST", "/local/api/chat", chat)
    part = {"type": "tool-pay", "state": "approval-responded", "toolCallId": request["call_id"]}
    for id in (f"{run_id}:{request['call_id']}:{request['shown']}", "a:b:c", ""):  # the first is that of another run
        answer = {"role": "assistant", "parts": [part | {"approval": {"id": id, "approved": True}}]}
        assert server.send("POST", "/local/api/chat", chat | {"messages": [*chat["messages"], answer]})[0] == 409

    agui = requests("pay")["/agui"] | {"threadId": "forged-agui"}
    server.send("POST", "/local/agui", agui)
    resume = [{"interruptId": f"{run_id}:{request['call_id']}:0", "status": "resolved", "payload": {"approved": True}}]
    assert server.send("POST", "/local/agui", agui | {"resume": resume})[0] == 409
    waiting = [row for row in runs(server) if row["state"] == "waiting"]
    assert len(waiting) >= 3
    for row in waiting:
        server.send("POST", f"/local/runs/{row['id']}/cancel", {})
        assert b'"paid 7"' not in server.send("GET", f"/local/runs/{row['id']}/events")[2]


@every_path
def test_no_address_is_fetched_for_a_client(server: Server, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bait:
        bait.setblocking(False)
        url, before = f"http://127.0.0.1:{bait.getsockname()[1]}/image.png", len(runs(server))
        parts: dict[str, Any] = {
            "/runs": {"type": "file", "url": url},
            "/api/chat": {"type": "file", "url": url, "mediaType": "image/png"},
            "/agui": {"type": "image", "source": {"type": "url", "value": url, "mimeType": "image/png"}},
            "/v1/chat/completions": {"type": "image_url", "image_url": {"url": url}},
            "/v1/responses": {"type": "input_image", "image_url": url},
            "/v1/messages": {"type": "image", "source": {"type": "url", "url": url}},
        }
        part = parts[path]
        user = {"id": "u1", "role": "user", "parts" if path == "/api/chat" else "content": [part]}
        history: dict[str, Any] = {"/runs": {"prompt": [part]}, "/v1/responses": {"input": [user]}}
        body = requests("hello")[path] | history.get(path, {"messages": [user]})
        status, _, reply = server.send("POST", f"/local{path}", body)
        assert (status, b"data URL" in reply) == (400, True), reply
        with pytest.raises(BlockingIOError):
            bait.accept()
        assert len(runs(server)) == before


CHOICES: dict[str, Any] = {
    "base_url": "http://evil.example", "baseURL": "http://evil.example", "headers": {"x": "y"}, "api_key": "sk-evil",
    "extra_headers": {"x": "y"}, "extra_body": {"x": "y"}, "record": "/etc/passwd", "wire": "ollama", "via": "replay",
    "provider": "evil", "transport": "evil", "log": "/etc/passwd", "tenant": "ada",
}  # fmt: skip


@every_path
def test_a_client_does_not_choose_what_a_request_to_the_provider_is(server: Server, path: str) -> None:
    for name in ("replay:/etc/passwd", "openai:gpt-5", "sim:demo", "../support", "support\x00"):
        body = requests("hello")[path]
        place = "model" if path in WIRES else "agent"
        url = f"/local{path}" + ("?agent=" + name.replace("\x00", "%00") if path == "/agui" else "")
        assert server.send("POST", url, body if path == "/agui" else body | {place: name})[0] == 404, name
    status, headers, _ = server.send("POST", f"/local{path}", requests(f"hello {path}")[path] | CHOICES)
    if path == "/runs":
        assert status == 400
    else:
        assert status == 200
        events = server.send("GET", f"/local/runs/{headers['x-run-id']}/events")[2]
        assert b"evil" not in events
        [row] = [row for row in runs(server) if row["id"] == headers["x-run-id"]]
        assert row["agent"] == "support"


def everything(server: Server, prompt: str, path: str, is_streaming: bool) -> bytes:
    """All that a client can get of a run that it starts on this path."""
    body = requests(prompt)[path] | ({"stream": True} if is_streaming and path in WIRES else {})
    _, headers, got = server.send("POST", f"/local{path}", body)
    run_id = headers["x-run-id"]
    got += server.send("GET", f"/local/runs/{run_id}/events")[2]
    for further in (f"/runs/{run_id}", "/runs", f"/threads/{body.get('id', body.get('threadId', 'x'))}"):
        got += server.send("GET", f"/local{further}")[2]
    got += server.send("GET", f"/local/api/chat/{body.get('id', 'x')}")[2]
    return got + str(headers).encode()


@pytest.mark.parametrize("is_streaming", [True, False])
@every_path
def test_private_data_of_tools_stays_on_the_server(server: Server, path: str, is_streaming: bool) -> None:
    got = everything(server, f"look {is_streaming}", path, is_streaming)
    assert b"It is clear." in got or b'"clear."' in got
    assert b"Rome is clear" in got
    assert b"s3cret" not in got


@pytest.mark.parametrize("is_streaming", [True, False])
@every_path
def test_the_words_of_a_provider_stay_on_the_server(server: Server, path: str, is_streaming: bool) -> None:
    got = everything(server, f"fail {is_streaming}", path, is_streaming)
    assert b"the reason is in its log" in got
    assert b"s3cret" not in got
