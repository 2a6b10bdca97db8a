"""The functions that a stream passes on its way from the socket to the user's loop: `make walk`.

One agent run with two calls over HTTP on 127.0.0.1, in sync code. The server sends a frame whenever the client reads,
so that each read brings one frame. Every function of the package that is entered counts, also when a generator is
resumed; comprehensions do not.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any

import penstock
from penstock import Agent, Model, StreamEvent, Text, tool
from penstock.transport import worker_threads
from penstock.transport.worker_threads import workers

SOURCE = str(Path(penstock.__file__).parent) + "/"
MAX_FUNCTIONS = 14
"""The most that one text chunk may pass."""
READ = "transport.sync_http HTTPConnection.read"

WORDS = ["Let ", "me ", "look ", "at ", "the ", "weather ", "in ", "both ", "cities."]


def call_pieces(index: int, city: str) -> list[dict[str, Any]]:
    first: dict[str, Any] = {
        "index": index,
        "id": f"call_{index}",
        "type": "function",
        "function": {"name": "weather", "arguments": ""},
    }
    pieces = [{"index": index, "function": {"arguments": piece}} for piece in ('{"city": ', f'"{city}"}}')]
    return [{"tool_calls": [piece]} for piece in (first, *pieces)]


RESPONSES: list[list[dict[str, Any]]] = [
    [*({"content": word} for word in WORDS), *call_pieces(0, "Rome"), *call_pieces(1, "Oslo")],
    [{"content": "Sunny in both."}],
]


def frames(deltas: list[dict[str, Any]]) -> list[str]:
    """A Chat Completions stream with these deltas."""
    reason = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
    choices: list[dict[str, Any]] = [*({"delta": delta} for delta in deltas), {"delta": {}, "finish_reason": reason}]
    chunks = [{"id": "x", "model": "m", "choices": [{"index": 0, **choice}]} for choice in choices]
    return [*map(json.dumps, chunks), "[DONE]"]


@dataclass
class Walk:
    """The functions that were entered: per read of the socket, per event of the reader, and in the tools' threads."""

    events: list[StreamEvent] = field(default_factory=list)
    by_read: list[list[str]] = field(default_factory=list)
    by_event: list[list[str]] = field(default_factory=lambda: [[]])
    by_tool: list[str] = field(default_factory=list)
    total: int = 0
    functions: set[str] = field(default_factory=set)

    @property
    def of_a_text(self) -> list[str]:
        """The functions of a text chunk between other text chunks: of the one that passes the fewest.

        The first reads also wake the watchdog, until its thread sleeps.
        """
        texts = [number for number, event in enumerate(self.events) if isinstance(event, Text)]
        chunks = [[*self.by_read[at], *self.by_event[texts[at]]] for at in range(1, len(WORDS) - 1)]
        return min(chunks, key=len)


def walk() -> Walk:
    """Run the agent and record the functions; twice, because the first run also imports modules.

    No thread is used again meanwhile: only new ones report their calls.
    """
    most, worker_threads.MAX_IDLE = worker_threads.MAX_IDLE, 0
    workers.close()
    try:
        _walk()
        return _walk()
    finally:
        worker_threads.MAX_IDLE = most


def _walk() -> Walk:
    walked, may_send, reader = Walk(), threading.Semaphore(0), threading.current_thread()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE) or _is_comprehension(code.co_name):
            return
        module = code.co_filename.removeprefix(SOURCE).removesuffix(".py").replace("/", ".")
        function = f"{module} {code.co_qualname}"
        walked.total += 1
        walked.functions.add(function)
        name = threading.current_thread().name
        if function == READ:
            walked.by_read.append([])
            may_send.release()
        if threading.current_thread() is reader:
            walked.by_event[-1].append(function)
        elif name == "penstock-model" and walked.by_read:
            walked.by_read[-1].append(function)
        elif name == "penstock-weather":
            walked.by_tool.append(function)

    @tool(read_only=True)
    def weather(city: str) -> str:
        """Look up the weather in a city."""
        return f"Sunny in {city}."

    with serving(may_send) as base_url:
        agent = Agent(Model("openai-compatible:m", base_url, "-"), [weather])
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            with agent.stream("What is the weather in Rome and Oslo?") as run:
                for event in run:
                    walked.events.append(event)
                    walked.by_event.append([])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return walked


def _is_comprehension(name: str) -> bool:
    return name in ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


@contextmanager
def serving(may_send: threading.Semaphore) -> Iterator[str]:
    """A server that answers with RESPONSES in turn, one frame for each permission."""
    responses = iter(RESPONSES)

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for frame in frames(next(responses)):
                may_send.acquire()
                data = f"data: {frame}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    walked = walk()
    print(f"{walked.total} calls of {len(walked.functions)} functions for {len(walked.events)} events\n")
    text = walked.of_a_text
    print(f"A text chunk passes {len(text)} functions (at most {MAX_FUNCTIONS}):")
    _show(text)
    print("\nA call, in the thread that reads the model:")
    for number, read in enumerate(walked.by_read[len(WORDS) : len(WORDS) + 3], 1):
        print(f"  read {number}: {len(read)} functions")
        _show(read, "    ")
    print(f"\nIts tool, in its thread: {len(walked.by_tool) // 2} functions")
    _show(walked.by_tool[: len(walked.by_tool) // 2])


def _show(functions: list[str], indent: str = "  ") -> None:
    """One line for each change of module."""
    for module, group in groupby(functions, key=lambda function: function.split()[0]):
        print(f"{indent}{module:32} {', '.join(function.split()[1] for function in group)}")


if __name__ == "__main__":
    main()
