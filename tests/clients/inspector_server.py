"""A server with exchanges to be inspected; it prints its port. `POST /go` lets the live exchange go on."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import penstock
from penstock.asgi.server import listen, run_server
from penstock.inspector import InspectedExchange, Inspections, app
from penstock.serve import ServerLimits
from penstock.testing import Reply, call, frames, say
from penstock.transport.commands import HTTPRequest, HTTPResponseHead
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead

SECRET = "sk-a-key-that-nobody-may-see"
BODY = {"model": "small", "messages": [{"role": "user", "content": f"My key is {SECRET}"}]}
LONG = 5_000


def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


ODD = [
    chunk({"role": "assistant", "content": ""}),
    b"data: : keep-alive\n\n",
    chunk({"content": "I will "}),
    chunk({"content": "look."}),
    chunk({"tool_calls": [{"index": 0, "function": {"name": "weather", "arguments": ""}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Rome"}'}}]}),
    chunk({}, "stop"),
    b"data: [DONE]\n\n",
]


class Played:
    """An exchange that is played with a clock of its own."""

    def __init__(self, inspections: Inspections, id: str) -> None:
        self.exchange: InspectedExchange = inspections.open(id)
        self.now = 0.0
        self.exchange.use_clock(lambda: self.now)
        request = HTTPRequest("http://upstream/v1", {"authorization": f"Bearer {SECRET}"}, json.dumps(BODY).encode())
        self.recorder = self.exchange.recorder("openai-chat", "local:small", request)
        self.now = 0.2
        self.recorder.begin(HTTPResponseHead(200, {"content-type": "text/event-stream"}), 0, 0)
        self.now = 0.5

    def receive(self, data: bytes) -> None:
        self.now += 0.01
        self.recorder.add(data, 0)

    def end(self) -> None:
        self.recorder.end(0)
        self.exchange.end("complete")


def heal(inspections: Inspections) -> None:
    """An exchange as a gateway feeds it: its client speaks another protocol."""
    played = Played(inspections, "healed")
    played.exchange.asked("openai-responses", "small", BODY, {"authorization": f"Bearer {SECRET}"})
    encoder = ResponseEncoder(find_response_frames("openai-responses")(ResponseHead(id="1", model="small", created=1)))
    decoder = penstock.Decoder("openai-chat")
    for data in ODD:
        played.receive(data)
        played.exchange.sent(encoder.feed(decoder.feed(data)))
    played.recorder.end(0)
    played.exchange.sent(encoder.feed(decoder.close()) + encoder.close())
    played.exchange.healed(53, "calls, but a finish reason that is not the one for calls")
    played.now += 0.2
    played.exchange.tool("t1", "weather", 0.15)
    played.exchange.end("complete")


def main() -> None:
    inspections, steps = Inspections(), threading.Semaphore(0)
    odd = Played(inspections, "odd")
    for data in ODD:
        odd.receive(data)
    odd.end()
    heal(inspections)
    long = Played(inspections, "long")
    reply = Reply(say("word " * LONG * 2), call("weather", {"city": "Rome"}))
    for data in frames("openai-chat", reply)[:LONG]:
        long.receive(data)
    long.end()
    live = Played(inspections, "live")
    live.receive(chunk({"content": "first"}))

    def go_on() -> None:
        steps.acquire()
        live.receive(chunk({"content": "second"}))
        steps.acquire()
        live.receive(chunk({}, "stop"))
        live.end()

    threading.Thread(target=go_on, daemon=True).start()
    inner = app(inspections)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/go":
            steps.release()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await inner(scope, receive, send)

    with listen("127.0.0.1", 0) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        run_server(served, listener, ServerLimits(), on_stop=inspections.close)


if __name__ == "__main__":
    main()
