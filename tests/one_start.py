"""One start, one run: each way to start a run, with clients that send it again: `python -m tests.one_start`.

A served agent has a tool with a side effect, which appends a line to a file. Real SDKs time out and retry, the server
is killed while it answers, and requests are repeated; the table says how often the effect happened.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SLOW = 5.0
"""How many seconds the agent takes after its effect: more than the clients wait."""
TIMEOUT = 3.0
"""The timeout of the SDKs, in seconds."""

SCRIPT = """
import sys, time
from pathlib import Path
import penstock.log, penstock.serve
from penstock import Agent, Model, tool
from penstock.asgi.server import listen, run_server
from penstock.serve import ServerLimits
from penstock.testing import Reply, Scripted, call, wait

folder, port, slow = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

@tool
def pay(amount: int) -> str:
    "Pay."
    with (folder / "effects").open("a") as file:
        file.write("paid\\n")
    return "paid"

def answer(request):
    return Reply("Paid.", wait(slow), " Done.") if request.results else Reply("I pay.", call("pay", {"amount": 5}))

agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay], name="desk")
address, schema = sys.argv[4:6] if len(sys.argv) > 4 else (folder / "runs.db", "penstock")
store = penstock.log.open(address, lease=2.0, schema=schema)
app = penstock.serve.app(agent, log=store, limits=ServerLimits(keep_alive_seconds=1))
with listen("127.0.0.1", port) as listener:
    print(listener.getsockname()[1], flush=True)
    run_server(app, listener, app.context.limits, on_stop=app.context.feeds.close)
"""


class Desk:
    """A server with a log in a folder, which can be killed and started again at the same port."""

    def __init__(self, folder: Path, *, slow: float = 0.0, log: Sequence[str] = ()) -> None:
        self.folder = folder
        self._slow = slow or SLOW
        self._log = log  # the URL of a database, and the schema
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", SCRIPT, str(self.folder), str(self.port), str(self._slow), *self._log]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def effects(self) -> int:
        path = self.folder / "effects"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def until_effect(self) -> None:
        end = time.monotonic() + 60
        while not self.effects:
            assert time.monotonic() < end, "no effect"
            time.sleep(0.05)

    def until_idle(self) -> None:
        """Wait until no run is under way."""
        end = time.monotonic() + 60
        while any(row["state"] in ("ready", "running") for row in self.get("/runs")["runs"]):
            assert time.monotonic() < end, "a run does not end"
            time.sleep(0.1)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as reply:
            return json.loads(reply.read())

    def post(self, path: str, body: Any, seconds: float = 60, **headers: str) -> tuple[int, bytes]:
        """The status and the body of a response; (0, b"") if it was not complete in time."""
        named = {"content-type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), named)
        end = time.monotonic() + seconds
        got = b""
        try:
            with urllib.request.urlopen(request, timeout=seconds) as reply:
                while piece := reply.read1(65536):
                    got += piece
                    if time.monotonic() > end:
                        return 0, got
                return reply.status, got
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, ValueError):
            return 0, got


@contextmanager
def desk(folder: Path, **options: Any) -> Iterator[Desk]:
    opened = Desk(folder, **options)
    try:
        yield opened
    finally:
        opened.kill()


ASK: Any = [{"role": "user", "content": "Pay 5."}]


def openai_chat(server: Desk, *, is_streaming: bool, retries: int = 30, seconds: float = 0.0) -> str:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=retries, timeout=seconds or TIMEOUT)
    if not is_streaming:
        return client.chat.completions.create(model="desk", messages=ASK).choices[0].message.content or ""
    with client.chat.completions.create(model="desk", messages=ASK, stream=True) as stream:
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def openai_responses(server: Desk, *, is_streaming: bool, retries: int = 30, seconds: float = 0.0) -> str:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=retries, timeout=seconds or TIMEOUT)
    return client.responses.create(model="desk", input="Pay 5.").output_text


def anthropic_messages(server: Desk, *, is_streaming: bool, retries: int = 30, seconds: float = 0.0) -> str:
    import anthropic

    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=retries, timeout=seconds or TIMEOUT)
    message = client.messages.create(model="desk", max_tokens=100, messages=ASK)
    return "".join(block.text for block in message.content if block.type == "text")


Call = Callable[..., str]
ANSWER = "I pay.\nPaid. Done."


def times_out(call: Call) -> Callable[[Path], int]:
    """The SDK gives up after a while, and retries by itself."""

    def row(folder: Path) -> int:
        with desk(folder) as server:
            assert call(server, is_streaming=False) == ANSWER
            server.until_idle()
            return server.effects

    return row


def is_killed(call: Call) -> Callable[[Path], int]:
    """The server is killed after the effect and started again; the SDK retries by itself."""

    def row(folder: Path) -> int:
        with desk(folder) as server, ThreadPoolExecutor(1) as pool:
            answer = pool.submit(call, server, is_streaming=False, seconds=20.0)
            server.until_effect()
            server.kill()
            server.start()
            # The effect may have been interrupted before its result was logged: the model gets to know that.
            text = answer.result(90)
            assert text.startswith("I pay.") or "interrupted" in text, text
            server.until_idle()
            return server.effects

    return row


def with_key(path: str, body: Any) -> Callable[[Path], int]:
    """The same request twice with one key: cut off and sent again, and again after the end."""

    def row(folder: Path) -> int:
        with desk(folder) as server:
            server.post(path, body, TIMEOUT, idempotency_key="k1")
            server.until_effect()
            status, first = server.post(path, body, idempotency_key="k1")
            again, _ = server.post(path, body, idempotency_key="k1")
            server.until_idle()
            assert (status, again) in ((200, 200), (201, 201)), (status, again)
            assert b"Done." in first or status == 201
            assert len(server.get("/runs")["runs"]) == 1
            return server.effects

    return row


def with_key_and_kill(path: str, body: Any) -> Callable[[Path], int]:
    """The server is killed after the effect; the same request with the same key is sent to the next one."""

    def row(folder: Path) -> int:
        with desk(folder) as server:
            server.post(path, body, 1.0, idempotency_key="k1")
            server.until_effect()
            server.kill()
            server.start()
            status, _ = server.post(path, body, idempotency_key="k1")
            assert status in (200, 201)
            server.until_idle()
            return server.effects

    return row


def same_run_id(folder: Path) -> int:
    with desk(folder, slow=0.1) as server:
        body = {"prompt": "Pay 5.", "run_id": "order-17"}
        first, second = server.post("/runs", body), server.post("/runs", body)
        server.until_idle()
        third = server.post("/runs", body)
        assert [status for status, _ in (first, second, third)] == [201, 201, 201]
        assert server.get("/runs/order-17")["state"] == "over"
        return server.effects


def many_at_once(folder: Path, log: Sequence[str] = ()) -> int:
    """20 connections to two servers send the same request at the same moment."""
    with desk(folder, log=log) as one, desk(folder, log=log) as other, ThreadPoolExecutor(20) as pool:
        gate = threading.Barrier(20)

        def send(number: int) -> tuple[int, bytes]:
            gate.wait()
            return (one, other)[number % 2].post("/v1/chat/completions", CHAT, idempotency_key="k1")

        replies = [*pool.map(send, range(20))]
        assert {status for status, _ in replies} == {200}, replies
        assert all(b"Done." in body for _, body in replies)
        one.until_idle()
        return one.effects


def python_client(folder: Path) -> int:
    """`penstock.serve.Client` loses the response to its start, and sends it again."""
    from penstock.serve import Client

    with desk(folder, slow=0.1) as server, lossy(server.port) as port:
        with Client(f"http://127.0.0.1:{port}", timeout=10) as client, client.start("Pay 5.") as run:
            assert run.result().output == "Paid. Done."
        return server.effects


@contextmanager
def lossy(port: int) -> Iterator[int]:
    """A proxy that loses the response to the first request."""
    listener = socket.create_server(("127.0.0.1", 0))
    is_first = threading.Event()

    def relay(client: socket.socket) -> None:
        is_lost = not is_first.is_set()
        is_first.set()
        with client, socket.create_connection(("127.0.0.1", port)) as server:

            def back() -> None:
                with suppressed():
                    while data := server.recv(65536):
                        if is_lost:
                            client.shutdown(socket.SHUT_RDWR)
                            return
                        client.sendall(data)
                    client.shutdown(socket.SHUT_WR)

            threading.Thread(target=back, daemon=True).start()
            with suppressed():
                while data := client.recv(65536):
                    server.sendall(data)
            with suppressed():
                server.shutdown(socket.SHUT_WR)
            time.sleep(0.2)

    def accept() -> None:
        with suppressed():
            while True:
                client, _ = listener.accept()
                threading.Thread(target=relay, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


@contextmanager
def suppressed() -> Iterator[None]:
    try:
        yield
    except OSError:
        pass


def cli_killed(folder: Path) -> int:
    """`penstock run --log` is killed when the end is in the log, before it was shown; the same command again."""
    agent = folder / "agent.py"
    agent.write_text(CLI_AGENT.replace("FOLDER", str(folder)))
    command = [sys.executable, "-m", "penstock.cli", "run", str(agent), "Pay 5.", "--log", str(folder / "cli.db"), "-q"]
    killed = subprocess.run(
        command, env={**os.environ, "PENSTOCK_CRASH_AT": "after_done"}, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed
    assert not killed.stdout, killed
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, "Done.\n"), again
    return len((folder / "effects").read_text().splitlines())


CLI_AGENT = """
from penstock import Agent, Model, tool
from penstock.testing import Reply, Scripted, call

@tool
def pay(amount: int) -> str:
    "Pay."
    with open("FOLDER/effects", "a") as file:
        file.write("paid\\n")
    return "paid"

def answer(request):
    return "Done." if request.results else Reply(call("pay", {"amount": 5}))

agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay], name="desk")
"""

CHAT = {"model": "desk", "messages": ASK, "stream": True}
RESPONSES = {"model": "desk", "input": "Pay 5.", "stream": True}
MESSAGES = {"model": "desk", "messages": ASK, "max_tokens": 100, "stream": True}
AI_SDK = {"id": "c1", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Pay 5."}]}]}
AG_UI = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Pay 5."}],
         "state": {}, "tools": [], "context": [], "forwardedProps": {}}  # fmt: skip
STARTS = {
    "POST /runs": ("/runs", {"prompt": "Pay 5."}),
    "POST /runs, in a thread": ("/runs", {"prompt": "Pay 5.", "thread": "t1"}),
    "AI SDK": ("/api/chat", AI_SDK),
    "AG-UI": ("/agui", AG_UI),
    "Chat Completions": ("/v1/chat/completions", CHAT),
    "Responses": ("/v1/responses", RESPONSES),
    "Messages": ("/v1/messages", MESSAGES),
}
SDKS: dict[str, Call] = {
    "openai, chat": openai_chat, "openai, responses": openai_responses, "anthropic": anthropic_messages,
}  # fmt: skip

ROWS: dict[str, Callable[[Path], int]] = {
    **{f"SDK {name}: times out and retries": times_out(call) for name, call in SDKS.items()},
    **{f"SDK {name}: server killed": is_killed(call) for name, call in SDKS.items()},
    **{f"{name}: the same Idempotency-Key": with_key(*start) for name, start in STARTS.items()},
    **{f"{name}: the same Idempotency-Key, server killed": with_key_and_kill(*start) for name, start in STARTS.items()},
    "POST /runs: the same run_id": same_run_id,
    "20 connections to two servers at once, one key": many_at_once,
    "penstock.serve.Client: the reply to its start is lost": python_client,
    "penstock run --log: killed at the end": cli_killed,
}
"""Ways in, each with the number of its effects."""


def main(words: list[str]) -> int:
    """Print the table; the words select rows."""
    is_right = True
    print(f"{'start, and how it is repeated':<64} effects  seconds")  # noqa: T201
    for name, row in ROWS.items():
        if all(word in name for word in words):
            with tempfile.TemporaryDirectory() as folder:
                begin = time.monotonic()
                effects = row(Path(folder))
                is_right = is_right and effects == 1
                print(f"{name:<64} {effects:>7}  {time.monotonic() - begin:7.1f}", flush=True)  # noqa: T201
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
