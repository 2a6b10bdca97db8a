"""Healing under SDKs on loopback: sockets, proxies, certificates, retries and servers that are none, as without it."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import aiohttp
import anthropic
import httpx
import httpx2
import openai
import pytest
import trustme

import penstock.heal
from penstock.heal import HealReport
from penstock.heal.frame_lane import FrameLane
from penstock.healing.decoding import HealedDecoding
from tests.asking import PATIENCE, serving
from tests.heal.test_heal_transport import HERMES, SSE, TOOLS, delta, sse

LIBRARIES = [httpx2, httpx]
MESSAGES: Any = [{"role": "user", "content": "Look."}]
RIGHT = sse(delta(content="Hi. "), delta(content="You."), delta("stop"))
IN_TEXT = sse(delta(content="Hi. "), delta(content=HERMES), delta("stop"))
ASKED = {"model": "m", "messages": MESSAGES, "tools": TOOLS, "stream": True}

Answer = bytes | Callable[[socket.socket], None]
ways = pytest.mark.parametrize("healed", [False, True], ids=["alone", "healed"])


def answer(body: bytes, headers: dict[str, str] = SSE, status: str = "200 OK") -> bytes:
    """A whole response with its length."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def beginning(body: bytes, headers: dict[str, str] = SSE) -> bytes:
    """A chunked response that has not ended."""
    lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in headers.items()), "transfer-encoding: chunked"]
    return "\r\n".join([*lines, "", ""]).encode() + chunk(body)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


class Script:
    """A server that gives its answers in turn, and the last one to all further requests."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = [*answers]
        self.requests: list[tuple[str, bytes]] = []

    def __call__(self, connection: socket.socket) -> None:
        while (head := read_head(connection)) is not None:
            size = next((int(line[15:]) for line in head if line.lower().startswith("content-length:")), 0)
            self.requests.append((head[0], read_exactly(connection, size)))
            given = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            if not isinstance(given, bytes):
                given(connection)
                break
            connection.sendall(given)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (data := connection.recv(size - len(received))):
        received += data
    return received


def read_head(connection: socket.socket) -> list[str] | None:
    """The lines of the head of a request; None if the client has left."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (byte := connection.recv(1)):
            return None
        head += byte
    return head.decode().splitlines()


class Staying:
    """Sends the beginning of a response, and waits until the client leaves."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.left = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(beginning(self._body))
        try:
            connection.recv(1)
        except ConnectionError:
            pass
        self.left.set()


def sdk(url: str, *, healed: bool, reports: list[HealReport] | None = None, **options: Any) -> openai.OpenAI:
    client = openai.OpenAI(api_key="-", base_url=url, **options)
    return penstock.heal.attach(client, on_healed=None if reports is None else reports.append) if healed else client


def chunks(client: openai.OpenAI) -> list[Any]:
    tools: Any = TOOLS
    with client:
        return [*client.chat.completions.create(model="m", messages=MESSAGES, tools=tools, stream=True)]


def names(found: list[Any]) -> list[str]:
    """The names of the calls in chunks."""
    calls = [call for one in found for choice in one.choices for call in choice.delta.tool_calls or ()]
    return [call.function.name for call in calls if call.function.name]


def ask_names(client: openai.OpenAI) -> list[str]:
    return names(chunks(client))


def outcome(work: Callable[[], Any]) -> Any:
    """What work returns, or the class of what it raises."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001
        return type(error)


# Transports, proxies and certificates.


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_with_its_own_transport_keeps_it(library: Any) -> None:
    class Signing(library.HTTPTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            request.headers["x-signature"] = "s"
            return super().handle_request(request)

    heads: list[list[str] | None] = []

    def serve(connection: socket.socket) -> None:
        heads.append(read_head(connection))
        connection.sendall(answer(IN_TEXT))

    with serving(serve) as url, penstock.heal.Client(library=library.__name__, transport=Signing()) as client:
        content = client.post(f"{url}/chat/completions", json=ASKED).content
    assert b'"tool_calls"' in content
    assert "x-signature: s" in (heads[0] or [])


def tls(*, asks: bool = False) -> tuple[ssl.SSLContext, ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server that may ask for a certificate, of a client that has one, and of one that has none."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "api.invalid").configure_cert(server)
    known, unknown = ssl.create_default_context(), ssl.create_default_context()
    for context in (server, known, unknown):
        authority.configure_trust(context)
    authority.issue_cert("client@api.invalid").configure_cert(known)
    server.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    return server, known, unknown


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_proxy_for_http_is_used(library: Any) -> None:
    script = Script(answer(IN_TEXT))
    with serving(script) as url, library.Client(proxy=url.removesuffix("/v1")) as http:
        content = penstock.heal.attach(http).post("http://api.invalid/v1/chat/completions", json=ASKED).content
    assert b'"tool_calls"' in content
    assert script.requests[0][0] == "POST http://api.invalid/v1/chat/completions HTTP/1.1"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_proxy_for_https_is_used(library: Any) -> None:
    script = Script(answer(IN_TEXT))
    asked: list[str] = []
    server, _, client = tls()

    def tunnel(connection: socket.socket) -> None:
        asked.append((read_head(connection) or [""])[0])
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with server.wrap_socket(connection, server_side=True) as secured:
            script(secured)

    with serving(tunnel) as url, library.Client(proxy=url.removesuffix("/v1"), verify=client) as http:
        content = penstock.heal.attach(http).post("https://api.invalid/v1/chat/completions", json=ASKED).content
    assert asked == ["CONNECT api.invalid:443 HTTP/1.1"]
    assert b'"tool_calls"' in content


def test_a_certificate_of_the_client_is_used() -> None:
    script = Script(answer(IN_TEXT))
    server, known, unknown = tls(asks=True)

    def serve(connection: socket.socket) -> None:
        with server.wrap_socket(connection, server_side=True) as secured:
            script(secured)

    with serving(serve) as plain:
        url = plain.replace("http:", "https:")
        for context, expected in ((known, ["look"]), (unknown, openai.APIConnectionError)):
            with httpx2.Client(verify=context) as http:
                client = sdk(url, healed=True, http_client=http, max_retries=0)
                assert outcome(partial(ask_names, client)) == expected


# Retries and cut streams.


def messages_stream(*texts: str) -> bytes:
    """A response of Anthropic's protocol with one block of text."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events)


def ask_openai(url: str, *, healed: bool, reports: list[HealReport]) -> list[str]:
    return ask_names(sdk(url, healed=healed, reports=reports))


def ask_anthropic(url: str, *, healed: bool, reports: list[HealReport]) -> list[str]:
    client = anthropic.Anthropic(api_key="-", base_url=url.removesuffix("/v1"))
    client = penstock.heal.attach(client, on_healed=reports.append) if healed else client
    tools: Any = [{"name": "look", "input_schema": {"type": "object"}}]
    with client, client.messages.stream(model="m", max_tokens=9, messages=MESSAGES, tools=tools) as stream:
        return [block.name for block in stream.get_final_message().content if block.type == "tool_use"]


SDKS: dict[str, tuple[Callable[..., list[str]], bytes]] = {
    "openai": (ask_openai, IN_TEXT),
    "anthropic": (ask_anthropic, messages_stream("Hi. ", HERMES)),
}
FAILED = answer(b'{"error":{"message":"busy"}}', {"content-type": "application/json", "retry-after-ms": "1"}, "500 No")


@ways
@pytest.mark.parametrize("name", SDKS)
def test_an_sdk_repeats_a_request_that_failed(name: str, healed: bool) -> None:
    ask, body = SDKS[name]
    script = Script(FAILED, answer(body))
    reports: list[HealReport] = []
    with serving(script) as url:
        assert ask(url, healed=healed, reports=reports) == (["look"] if healed else [])
    first, second = script.requests
    assert first == second
    assert len(reports) == healed


@pytest.mark.parametrize("name", SDKS)
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_connection_that_breaks_is_the_same_error(name: str, part: float) -> None:
    ask, body = SDKS[name]
    script = Script(lambda connection: connection.sendall(beginning(body[: int(len(body) * part)])))
    with serving(script) as url:
        alone, healed = (outcome(partial(ask, url, healed=way, reports=[])) for way in (False, True))
    assert isinstance(alone, type)
    assert alone is healed
    assert len(script.requests) == 2, "a stream that has begun is not requested again"


@pytest.mark.parametrize("name", SDKS)
def test_a_stream_without_an_end_is_an_error(name: str) -> None:
    ask, body = SDKS[name]
    with serving(Script(answer(body[: body.index(b"</tool")]))) as url:
        assert isinstance(outcome(lambda: ask(url, healed=True, reports=[])), type)


# Clients that leave.


def leave_by_close(url: str, left: threading.Event) -> None:
    with sdk(url, healed=True) as client:
        stream: Any = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        next(stream)
        stream.close()
        assert left.wait(PATIENCE)


def leave_by_block(url: str, left: threading.Event) -> None:
    with sdk(url, healed=True) as client:
        stream: Any = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        with stream:
            for _ in stream:
                break
        assert left.wait(PATIENCE)


async def cancelled(read: Coroutine[Any, Any, None], left: threading.Event) -> None:
    """Read in a task that cancels itself; the connection is closed while its client is open."""
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(read)
    assert await asyncio.to_thread(left.wait, PATIENCE)


def leave_by_cancel(url: str, left: threading.Event) -> None:
    async def run() -> None:
        async with penstock.heal.attach(openai.AsyncOpenAI(api_key="-", base_url=url)) as client:

            async def read() -> None:
                stream: Any = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
                async with stream:
                    async for _ in stream:
                        asyncio.current_task().cancel()  # type: ignore[union-attr]

            await cancelled(read(), left)

    asyncio.run(run())


def leave_session(url: str, left: threading.Event) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession(middlewares=(penstock.heal.aiohttp_middleware(),)) as session:

            async def read() -> None:
                async with session.post(f"{url}/chat/completions", json=ASKED) as response:
                    async for _ in response.content:
                        asyncio.current_task().cancel()  # type: ignore[union-attr]

            await cancelled(read(), left)

    asyncio.run(run())


@pytest.mark.parametrize("leave", [leave_by_close, leave_by_block, leave_by_cancel, leave_session])
def test_the_connection_is_closed_when_the_client_leaves(leave: Callable[[str, threading.Event], None]) -> None:
    staying = Staying(b"data: %b\n\n" % json.dumps(delta(content="Hi. ")).encode())
    with serving(Script(staying)) as url:
        leave(url, staying.left)


# Servers that are none.


def whole(client: openai.OpenAI) -> Any:
    with client:
        answered: Any = client.chat.completions.create(model="m", messages=MESSAGES)
    return answered if isinstance(answered, str) else answered.to_json()


PAGE = b"<!doctype html><html><body>Sign in</body></html>"
WHOLE = json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}).encode()  # fmt: skip
JSON = {"content-type": "application/json"}
ANSWERS = {
    "a page": answer(PAGE, {"content-type": "text/html"}),
    "a page as JSON": answer(PAGE, JSON),
    "a page with an error": answer(PAGE, {"content-type": "text/html"}, "502 Bad Gateway"),
    "a right body": answer(WHOLE, JSON),
    "a packed body": answer(gzip.compress(WHOLE), {**JSON, "content-encoding": "gzip"}),
    "a body that only says that it is packed": answer(WHOLE, {**JSON, "content-encoding": "gzip"}),
    "a body that is cut": answer(WHOLE, JSON)[:-20],
    "nothing": answer(b"", JSON),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
}


def closing(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read_as_without_healing(name: str) -> None:
    with serving(Script(closing(ANSWERS[name]))) as url:
        clients = [sdk(url, healed=healed, max_retries=0) for healed in (False, True)]
        alone, healed = (outcome(partial(whole, client)) for client in clients)
    assert alone == healed


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("method", ["POST", "HEAD", "GET"])
def test_bytes_and_headers_are_those_of_the_server(name: str, method: str, library: Any) -> None:
    def read(http: Any, url: str) -> Any:
        body = {**ASKED, "stream": False} if method == "POST" else None
        with http.stream(method, f"{url}/chat/completions", json=body) as response:
            headers = [*response.headers.raw]
            return headers, outcome(lambda: b"".join(response.iter_raw()))

    data = ANSWERS[name] if method != "HEAD" else ANSWERS[name].partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    with serving(Script(closing(data))) as url, library.Client() as alone, library.Client() as healed:
        assert outcome(lambda: read(alone, url)) == outcome(lambda: read(penstock.heal.attach(healed), url))


@pytest.mark.parametrize("stream", [True, False])
def test_a_gzip_bomb_costs_what_it_costs_without_healing(stream: bool) -> None:
    bomb = gzip.compress(b"data: " + b"x" * 40_000_000)
    headers = {**(SSE if stream else JSON), "content-encoding": "gzip"}
    reports: list[HealReport] = []
    with serving(Script(answer(bomb, headers))) as url, penstock.heal.Client(on_healed=reports.append) as http:
        received = http.post(f"{url}/chat/completions", json={**ASKED, "stream": stream}).content
    assert len(received) == 40_000_006
    assert [bool(report.problem) for report in reports] == [True]


def test_an_endless_line_flows_and_ends_with_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.heal.stream.MAX_KEPT", 100_000)
    left = threading.Event()
    reports: list[HealReport] = []

    def endless(connection: socket.socket) -> None:
        connection.sendall(beginning(b"data: "))
        try:
            while True:
                connection.sendall(chunk(b"x" * 10_000))
        except OSError:
            left.set()

    size = 0
    with serving(Script(endless)) as url:
        http = penstock.heal.Client(on_healed=reports.append)
        with http, http.stream("POST", f"{url}/chat/completions", json=ASKED) as response:
            for data in response.iter_raw():
                size += len(data)
                if size > 3_000_000:
                    break
        assert left.wait(PATIENCE)
    assert [bool(report.problem) for report in reports] == [True]


# Faults of ours.


@pytest.mark.parametrize("place", [(HealedDecoding, "feed"), (FrameLane, "_pass"), (HealedDecoding, "close")])
def test_a_fault_of_ours_is_reported_once_and_changes_nothing(
    place: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise ZeroDivisionError("a fault of ours")

    body = sse(*(delta(content=f"word {number} ") for number in range(20)), delta("stop"))
    first, *frames = (frame + b"\n\n" for frame in body.split(b"\n\n")[:-1])
    reports: list[HealReport] = []
    monkeypatch.setattr(*place, fail)
    script = Script(beginning(first) + b"".join(map(chunk, frames)) + chunk(b""))
    with serving(script) as url, penstock.heal.Client(on_healed=reports.append) as http:
        assert http.post(f"{url}/chat/completions", json=ASKED).content == body
    assert ["ZeroDivisionError" in report.problem for report in reports] == [True]


def test_a_fault_while_a_report_is_built_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("penstock.heal.response.ResponseHealing.build", fail)
    reports: list[HealReport] = []
    with serving(Script(answer(RIGHT))) as url:
        assert len(chunks(sdk(url, healed=True, reports=reports))) == 3
    assert ["ZeroDivisionError" in report.problem for report in reports] == [True]
