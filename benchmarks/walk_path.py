"""Walks one path in this process: `python -m benchmarks.walk_path PATH` prints the functions per frame as JSON.

Every function of the package that is entered counts, in all threads, also when a generator or coroutine is resumed;
comprehensions do not. The provider sends the next frame when the last one has arrived at the reader and no function was
entered for `QUIET` seconds, so that each read brings one frame and what follows from it is counted with it.

Timers do not count, such as the poll for inputs of other processes. To know them, nothing is sent for a second after
some texts. What is entered then is taken out of each frame: a sequence that comes at least twice, once per frame, and a
function that some text does not enter at all, always.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from benchmarks.walk_text import MARKED_PIECES, PIECES, TOOLS, WARM_UP, frames, responses
from penstock import Agent, Model, Text, tool

SOURCE = str(Path(penstock.__file__).parent) + "/"
QUIET = 0.06
IDLE = 1.0
TIMER_GAP = 0.008
"""The seconds between two timers, at least."""
PATIENCE = 60.0
MARKED = "gateway out of its lane"
PROVIDER = "benchmarks.walk_server"
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")

Function = tuple[str, str]
"""The thread in which a function was entered, and its module and name."""
entered: list[tuple[float, Function]] = []


def note(frame: Any, event: str, _: Any) -> None:
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name not in COMPREHENSIONS:
        module = code.co_filename.removeprefix(SOURCE).removesuffix(".py").replace("/", ".")
        function = threading.current_thread().name.replace(" ", "_"), f"{module} {code.co_qualname}"
        entered.append((time.monotonic(), function))


def timers_in(idle: list[tuple[float, Function]]) -> list[list[Function]]:
    """What timers enter: the sequences of a thread that come at least twice while nothing arrives, longest first."""
    counts = Counter[tuple[Function, ...]]()
    for thread in {function[0] for _, function in idle}:
        sequence, last = list[Function](), 0.0
        for at, function in [*((at, function) for at, function in idle if function[0] == thread), (1e18, ("", ""))]:
            if at - last > TIMER_GAP and sequence:
                counts[tuple(sequence)] += 1
                sequence = []
            sequence.append(function)
            last = at
    return sorted(([*sequence] for sequence, count in counts.items() if count > 1), key=len, reverse=True)


def without_timers(functions: list[Function], timers: list[list[Function]]) -> list[Function]:
    left = [*functions]
    for timer in timers:
        places = [place for place, function in enumerate(left) if function[0] == timer[0][0]]
        mine = [left[place] for place in places]
        for start in range(len(mine) - len(timer) + 1):
            if mine[start : start + len(timer)] == timer:
                out = {*places[start : start + len(timer)]}
                left = [function for place, function in enumerate(left) if place not in out]
                break
    return left


@tool(read_only=True)
def weather(city: str) -> str:
    """Look up the weather in a city."""
    return f"Sunny in {city}."


class Guide:
    """Leads a path frame by frame: tells the provider when to send, and cuts the functions where it did."""

    def __init__(self, path: str) -> None:
        self._is_gateway = path.startswith("gateway")
        pieces = MARKED_PIECES if path == MARKED else PIECES
        self.responses = [frames(deltas) for deltas in responses(pieces, has_calls=not self._is_gateway)]
        arguments = ["marked" if path == MARKED else "pieces", "text" if self._is_gateway else "calls"]
        self._provider = subprocess.Popen(
            [sys.executable, "-m", PROVIDER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._provider.stdout is not None
        self._lines = self._provider.stdout
        self.url = f"http://127.0.0.1:{int(self._lines.readline())}/v1"
        self.texts = 0
        """How many texts have arrived at the reader."""
        self.walked: list[tuple[str, list[Function]]] = []
        self._idle: list[tuple[float, Function]] = []
        self.problem = ""

    def lead(self) -> None:
        """One run, frame by frame; in a thread of its own."""
        try:
            self._lead()
        except TimeoutError as error:
            self.problem = str(error)
            self.permit(10_000)

    def _lead(self) -> None:
        self.walked.clear()
        self.texts = texts = 0
        for response in self.responses:
            self._lines.readline()
            self._wait(lambda: True)
            for place, frame in enumerate(response):
                if place == WARM_UP:
                    self._watch_timers()
                start = len(entered)
                self.permit(1)
                texts += '"content"' in frame
                self._wait(lambda texts=texts: self.texts >= texts)
                self.walked.append((frame, [function for _, function in entered[start:]]))

    def _watch_timers(self) -> None:
        start = len(entered)
        time.sleep(IDLE)
        self._idle = entered[start:]

    def result(self) -> list[dict[str, Any]]:
        """The functions per frame, without those of timers."""
        texts = [{*functions} for frame, functions in self.walked if '"content"' in frame][WARM_UP:]
        occasional = {function for _, function in self._idle if not all(function in text for text in texts)}
        timers = timers_in(self._idle)

        def named(functions: list[Function]) -> list[str]:
            left = without_timers(functions, timers)
            return [" ".join(function) for function in left if function not in occasional]

        return [
            {"frame": frame, "is_text": '"content"' in frame, "functions": named(functions)}
            for frame, functions in self.walked
        ]

    def permit(self, count: int) -> None:
        assert self._provider.stdin is not None
        self._provider.stdin.write("." * count)
        self._provider.stdin.flush()

    def _wait(self, has_arrived: Callable[[], bool]) -> None:
        """Until something has arrived, and nothing has happened for a while."""
        deadline, count, since = time.monotonic() + PATIENCE, len(entered), time.monotonic()
        while time.monotonic() < deadline:
            time.sleep(0.004)
            if len(entered) != count:
                count, since = len(entered), time.monotonic()
            elif time.monotonic() - since > QUIET and has_arrived():
                return
        raise TimeoutError(f"the reader has {self.texts} texts, and nothing more arrived in {PATIENCE:.0f} seconds")

    def close(self) -> None:
        assert self._provider.stdin is not None
        self._provider.stdin.close()
        self._provider.wait()


# Readers of agents, in the main thread.


def agent_of(guide: Guide) -> Agent[Any, Any]:
    return Agent(Model("openai-compatible:m", guide.url, "-"), [weather], name="walk")


def read_sync(guide: Guide, options: dict[str, Any]) -> None:
    with agent_of(guide).stream("What is the weather in Rome and Oslo?", **options) as run:
        for event in run:
            guide.texts += isinstance(event, Text)


def read_async(guide: Guide, options: dict[str, Any]) -> None:
    async def read() -> None:
        async with agent_of(guide).astream("What is the weather in Rome and Oslo?", **options) as run:
            async for event in run:
                guide.texts += isinstance(event, Text)

    asyncio.run(read())


def walk_agent(path: str, guide: Guide, folder: Path) -> None:
    """Two runs: the first one imports modules."""
    read = read_async if "async" in path else read_sync
    for number in range(2):
        options = {"log": penstock.log.open(folder / f"{number}.db")} if "logged" in path else {}
        leader = threading.Thread(target=guide.lead)
        leader.start()
        sys.setprofile(note)
        read(guide, options)
        sys.setprofile(None)
        leader.join()


# Clients of servers, in a thread; the server is in the main thread.


def walk_server(path: str, guide: Guide, folder: Path, finish: Callable[[], None]) -> None:
    from penstock.asgi.server import run_server
    from penstock.gateway.context import LIMITS

    if path == "served":
        app: Any = penstock.serve.app(agent_of(guide), log=penstock.log.open(folder / "runs.db"))
    else:
        app = penstock.gateway.app(guide.url)
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]

    def ask_twice() -> None:
        for _ in range(2):
            leader = threading.Thread(target=guide.lead)
            leader.start()
            read_response(port, path, guide)
            leader.join()
        finish()

    threading.Thread(target=ask_twice).start()
    sys.setprofile(note)
    run_server(app, listener, LIMITS)


def read_response(port: int, path: str, guide: Guide) -> None:
    body: dict[str, Any] = {"model": "walk", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
    if path != "served":
        body["tools"] = TOOLS
    client = http.client.HTTPConnection("127.0.0.1", port)
    client.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response = client.getresponse()
    if response.status != 200:
        guide.problem = f"status {response.status}: {response.read().decode()}"
        return
    for line in response:
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            guide.texts += bool(choices and choices[0]["delta"].get("content"))
    client.close()


def main(path: str) -> None:
    threading.setprofile(note)
    guide = Guide(path)
    with tempfile.TemporaryDirectory() as name:
        if path.startswith("gateway") or path == "served":

            def finish() -> None:
                _print(guide)
                os._exit(0)

            walk_server(path, guide, Path(name), finish)
        else:
            walk_agent(path, guide, Path(name))
            _print(guide)
            guide.close()


def _print(guide: Guide) -> None:
    if guide.problem:
        print(guide.problem, file=sys.stderr, flush=True)
        os._exit(1)
    print(json.dumps(guide.result()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
