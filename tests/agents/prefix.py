"""Long sessions of real coding agents through the gateway: is each request upstream a prefix of the next one?

    python -m tests.agents.prefix --agents "claude pi" --steps 100

Each agent plays one session without a terminal. In each step the model asks for another file, with its call in another
bad habit. Requests are recorded before and behind the gateway, and each pair of consecutive requests is compared byte
for byte (`tests.agents.pairs`). Pairs are of the main conversation: requests with the agent's shell tool, its prompt
and the tools of the first such request. Titles, summaries and agents inside the agent are left out.

The command fails if the gateway breaks a pair that the client left whole, or if a session ends early.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from penstock.testing import Loopback, ReceivedRequest
from penstock.testing.request import route_request
from tests.agents.agents import AGENTS, PROMPT, AgentProcess, CodingAgent, install, version
from tests.agents.pairs import Pair, pairs
from tests.agents.prefix_page import PlayedSession, publish_sessions
from tests.agents.recorder import Recorded, Recorder
from tests.agents.routes import through_gateway
from tests.agents.session import LAST, File, Step, calls_of, content
from tests.habits import ALL_HABITS, reply

STEPS = 100
IDLE_SECONDS = 240.0
_OUTPUT = 600
_SHELL_EVERY = 4


class LongSession:
    """The model of one session: a file per step, each in the next habit."""

    def __init__(self, agent: CodingAgent, steps: int) -> None:
        self.active_at = time.monotonic()
        self.work = Path()
        self.number = 0
        self.problems: list[str] = []
        self._agent = agent
        self._steps = steps
        self._lock = threading.Lock()
        self._open: Step | None = None
        self._main = MainConversation(agent)

    def answer(self, request: ReceivedRequest) -> Any:
        """The response to a request that came from the gateway."""
        self.active_at = time.monotonic()
        with self._lock:
            if not self._main.has(request):
                return "{}" if request.output_schema is not None else "A title"
            self._check()
            if self.number == self._steps:
                return LAST
            step = _step(self.number, self._agent)
            self._open, self.number = step, self.number + 1
        tools = {tool.name: tool for tool in request.tools}
        return reply(step.habit, calls_of(self._agent, tools, step, self.work), step.id)

    def _check(self) -> None:
        """Whether the agent did the last step."""
        step, self._open = self._open, None
        for file in step.files if step is not None else ():
            if step is not None and (problem := file.problem(self.work)):
                self.problems.append(f"step {self.number} ({step.habit}): {problem}")


class MainConversation:
    """Tells the requests of the main conversation from an agent's other requests."""

    def __init__(self, agent: CodingAgent) -> None:
        self._shell = agent.shell[0]
        self._tools: set[str] = set()

    def has(self, request: ReceivedRequest) -> bool:
        """Whether a request belongs to the main conversation, by its tools and its prompt."""
        names = {tool.name for tool in request.tools}
        if self._shell not in names or PROMPT not in json.dumps(request.body):
            return False
        self._tools = self._tools or names
        return names == self._tools


def _step(number: int, agent: CodingAgent) -> Step:
    habit = next(islice(ALL_HABITS, number % len(ALL_HABITS), None))
    by_shell = agent.write is None or number % _SHELL_EVERY == _SHELL_EVERY - 1
    names = [f"f{number + 1:03}-{habit}-{place}" for place in range(2 if habit == "one_index" else 1)]
    id = "same" if habit == "same_id" else f"call_{number}"
    return Step(habit, tuple(File(f"{name}.txt", content(name)) for name in names), by_shell, id)


def play(name: str, wire: str, steps: int, keep: Path | None = None) -> PlayedSession:
    """One session of an agent. `keep` is a folder for the recorded requests."""
    agent = AGENTS[name]
    session = LongSession(agent, steps)
    with (
        Loopback(session.answer) as server,
        Recorder(server.url) as upstream,
        through_gateway(upstream.url) as address,
        Recorder(address) as client,
        tempfile.TemporaryDirectory(prefix=f"penstock-{name}-", ignore_cleanup_errors=True) as folder,
    ):
        end = _run(session, AgentProcess(agent, wire, client.url, Path(folder)), steps)
    if keep is not None:
        _keep(keep / f"{name}-{wire}", client.requests, upstream.requests)
    found = pairs(_main_bodies(agent, client.requests), _main_bodies(agent, upstream.requests))
    return _played(agent, wire, session, found, end)


def _run(session: LongSession, process: AgentProcess, steps: int) -> str:
    """Why the session ended early; empty if it did not."""
    session.work = process.work
    session.active_at = time.monotonic()
    has_ended = False
    try:
        while not has_ended and time.monotonic() - session.active_at < IDLE_SECONDS:
            has_ended = process.wait(1)
    finally:
        process.stop()
    if session.number == steps and LAST in process.output:
        return ""
    end = "ended" if has_ended else "hung"
    return f"the agent {end} after {session.number} steps: {process.output[-_OUTPUT:]}"


def _main_bodies(agent: CodingAgent, requests: Sequence[Recorded]) -> list[bytes]:
    main = MainConversation(agent)
    bodies: list[bytes] = []
    for recorded in requests:
        try:
            body = msgspec.json.decode(recorded.body, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
        request = route_request(recorded.path, body)
        if request is not None and main.has(request):
            bodies.append(recorded.body)
    return bodies


def _played(agent: CodingAgent, wire: str, session: LongSession, found: list[Pair], end: str) -> PlayedSession:
    return PlayedSession(
        agent=agent.name, version=version(agent), wire=wire, steps=session.number, pairs=len(found),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        client_changes={pair.number: pair.client for pair in found if pair.client},
        upstream_changes={pair.number: pair.upstream for pair in found if pair.upstream},
        broken=tuple(pair.number for pair in found if pair.is_broken),
        problems=(*session.problems, *filter(None, [end])),
    )  # fmt: skip


def _keep(folder: Path, client: Sequence[Recorded], upstream: Sequence[Recorded]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for side, requests in (("client", client), ("upstream", upstream)):
        lines = (json.dumps({"path": one.path, "body": one.body.decode(errors="replace")}) for one in requests)
        (folder / f"{side}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Play the sessions that the command line names, and print a line for each."""
    options = _options(words)
    install()
    names = options.agents.replace(",", " ").split() or [*AGENTS]
    chosen = [(name, wire) for name in names for wire in AGENTS[name].wires[: None if options.all_wires else 1]]

    def run(one: tuple[str, str]) -> PlayedSession:
        played = play(*one, options.steps, options.keep)
        print(played.in_words, flush=True)
        for title in ("client", "upstream"):
            for number, text in getattr(played, f"{title}_changes").items():
                print(f"    pair {number}, {title}: {text}", flush=True)
        for problem in played.problems:
            print(f"    {problem}", flush=True)
        return played

    with ThreadPoolExecutor(options.jobs) as pool:
        sessions = [*pool.map(run, chosen)]
    print(f"{sum(len(one.broken) for one in sessions)} of {sum(one.pairs for one in sessions)} pairs broken")
    if options.write:
        print(f"wrote {publish_sessions(sessions)}")
    return int(any(one.broken or one.problems or one.pairs < options.steps for one in sessions))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.agents.prefix", description=__doc__)
    parser.add_argument("--agents", default="", help="names of agents (default: all)")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a session (default: 100)")
    parser.add_argument("--all-wires", action="store_true", help="every protocol of an agent, not only its first")
    parser.add_argument("--jobs", type=int, default=2, help="how many agents run at the same time (default: 2)")
    parser.add_argument("--keep", type=Path, help="a folder for the recorded requests")
    parser.add_argument("--write", action="store_true", help="write the results that are published, and the page")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
