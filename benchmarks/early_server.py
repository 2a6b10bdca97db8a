"""The server of the early start: it sends the parts of a response at fixed times, and notes when it did.

It sleeps until a time, and not for a time, so that a pause which took too long does not delay the next part; what is
left of its own delay is known and not taken for that of an agent.
"""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from penstock.testing import ReceivedRequest, Reply, call, wait
from penstock.testing.reply import Wait
from penstock.testing.wires.play import SendAction, play

WIRE = "openai-chat"


class PunctualServer:
    """Answers a request without results with one call per time in `closed`, and ends the response at `end`.

    An agent runs twice, and the times are those of its second run: `began` is the first byte of the response, `sent`
    when the end of each part was sent (each call, and the end of the response), `second` when the results arrived.
    """

    def __init__(self, closed: Sequence[float], end: float) -> None:
        self._times = (*closed, end)
        self.began = self.second = 0.0
        self.sent: list[float] = []
        self.results = 0

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        """The base URL for a model or an SDK."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def respond(self, body: dict[str, Any], exchange: Exchange) -> None:
        """Send the response to a request."""
        self.results = sum(message["role"] == "tool" for message in body["messages"])
        if self.results:
            self.second = time.monotonic()
            actions = _actions(body, Reply("Done."))
        else:
            name = body["tools"][0]["function"]["name"]
            waits = [wait(moment) for moment in self._times]
            calls = [call(name, {"place": str(at)}) for at in range(len(waits) - 1)]
            parts = [part for pair in zip(waits, calls, strict=False) for part in pair]
            actions = _actions(body, Reply(*parts, waits[-1]))
            gc.collect()  # as the agent does: a pause of either process would count as its delay
        self._send(actions, body, exchange)

    def _send(self, actions: Sequence[SendAction], body: dict[str, Any], exchange: Exchange) -> None:
        exchange.begin("text/event-stream" if body.get("stream") else "application/json")
        began = time.monotonic()
        sent: list[float] = []
        for action in actions:
            match action:
                case Wait():
                    sent.append(0.0)
                    time.sleep(max(0.0, began + action.seconds - time.monotonic()))
                case bytes():
                    sent[-1:] = [time.monotonic()]
                    exchange.send(action)
                case _:
                    raise AssertionError(action)
        sent[-1] = time.monotonic()
        exchange.send(b"")
        if not self.results:
            self.began, self.sent = began, sent

    def _handler(self) -> type[Exchange]:
        return type("Handler", (Exchange,), {"server_of": self})


class Exchange(BaseHTTPRequestHandler):
    """One connection, with bodies of responses in chunks."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: PunctualServer

    def do_POST(self) -> None:
        self.server_of.respond(json.loads(self.rfile.read(int(self.headers["content-length"]))), self)

    def begin(self, content_type: str) -> None:
        """Send the head of the response."""
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send(self, data: bytes) -> None:
        """Send a chunk of the body; an empty one ends it."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def _actions(body: dict[str, Any], reply: Reply) -> list[SendAction]:
    """The pieces and pauses of a response; one that is not streamed comes whole after the last pause."""
    played = play(reply, ReceivedRequest(WIRE, body))
    if body.get("stream"):
        return list(played.stream())
    waits = [part for part in reply.parts if isinstance(part, Wait)]
    return [*waits, played.whole().body]
