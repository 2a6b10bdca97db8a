"""The agent: how early its tools start, what a step costs, and whether many runs at once stay fair."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.clock import race
from benchmarks.report import Report, Table, say
from penstock import Agent, Model, tool
from penstock.messages import Message
from penstock.run import Limits
from penstock.testing import Asked, Loopback, Reply, Scripted, call, wait

CLOSED = (0.2, 0.4, 0.6)
"""When the arguments of each call close, in seconds after the answer began."""
END = 1.0
"""When the answer ends."""
TOOL = 0.5
"""How long each tool takes."""
STEPS = 50
AGENTS = 200

LATE = 0.02
SECOND = 1.15
STEP = 1.0
FAIR = 1.5


def measure() -> Report:
    report = Report()
    for measure_one in (_early, _steps, _crowd):
        report.tables.append(measure_one(report))
    return report


@dataclass
class Trial:
    """One run against the server, and when things happened in it, in seconds after the answer began."""

    is_read_only: bool
    is_async: bool
    starts: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"{'read-only' if self.is_read_only else 'default'}, {'async' if self.is_async else 'sync'}"

    def run(self) -> None:
        with Loopback(self._answer) as server:
            model = Model("openai-compatible:m", server.base_url("openai-chat"), "-")
            agent = Agent(model, [self._tool()])
            model.stream_text_and_classify("warm up")  # imports, and the connection
            if self.is_async:
                asyncio.run(self._arun(agent, model))
            else:
                agent.run("Go.")
        self._count_from(self.asked[-2])

    async def _arun(self, agent: Agent, model: Model) -> None:
        await model.astream_text_and_classify("warm up")
        await agent.arun("Go.")

    def _answer(self, asked: Asked) -> Reply:
        self.asked.append(time.monotonic())
        if asked.results or "warm up" in json.dumps(asked.body):
            return Reply("Done.")
        gaps = [CLOSED[0], *(later - sooner for sooner, later in pairwise(CLOSED))]
        parts = [part for at, gap in enumerate(gaps) for part in (wait(gap), call("look", {"place": str(at)}))]
        return Reply(*parts, wait(END - CLOSED[-1]))

    def _tool(self) -> Any:
        def look(place: str) -> str:
            """Look at a place."""
            self.starts.append(time.monotonic())
            time.sleep(TOOL)
            return place

        async def alook(place: str) -> str:
            """Look at a place."""
            self.starts.append(time.monotonic())
            await asyncio.sleep(TOOL)
            return place

        return tool(name="look", read_only=self.is_read_only)(alook if self.is_async else look)

    def _count_from(self, began: float) -> None:
        self.starts = [moment - began for moment in self.starts]
        self.asked = [moment - began for moment in self.asked]


def _early(report: Report) -> Table:
    """The scenario in which a loop that waits for the end of the stream takes at least `END` + `TOOL`."""
    rows: list[list[str]] = []
    for is_read_only in (True, False):
        for is_async in (True, False):
            trial = Trial(is_read_only, is_async)
            say(f"agent, early start: {trial.label}")
            trial.run()
            wanted = CLOSED if is_read_only else (END,) * len(CLOSED)
            delay = max(start - moment for start, moment in zip(trial.starts, wanted, strict=True))
            soonest = min(start - moment for start, moment in zip(trial.starts, wanted, strict=True))
            if soonest < 0:
                report.missed.append(f"{trial.label}: a tool started {-soonest * 1000:.0f} ms too early")
            target = SECOND if is_read_only else None
            rows.append(
                [
                    trial.label,
                    " ".join(f"{start:.3f}" for start in trial.starts),
                    report.judge(f"{trial.label}: ms from closing to start", delay * 1000, LATE * 1000),
                    report.judge(f"{trial.label}: second request, seconds", trial.asked[-1], target),
                ]
            )
            report.rows.append({"run": trial.label, "starts": trial.starts, "second_request": trial.asked[-1]})
    moments = ", ".join(map(str, CLOSED))
    title = f"Three calls that close at {moments} s in a stream that ends at {END} s, tools of {TOOL} s"
    return Table(title, ["", "tools start at, s", "latest, ms after it might", "second request, s"], rows)


@tool
async def _small(number: int) -> int:
    """Take a number."""
    return number + 1


def _line(steps: int) -> Scripted:
    return Scripted([*(Reply("Hm.", call("_small", {"number": at})) for at in range(steps)), Reply("Done.")])


def _steps(report: Report) -> Table:
    """What a step of an agent costs beyond the asking: the model alone is asked the same, and that is taken off."""
    say(f"agent, {STEPS} steps of small turns")
    history = list(_agent(_line(STEPS)).run("Go.").messages)
    requests = [history[: 1 + 2 * at] for at in range(STEPS + 1)]
    runners: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "async": (_run_async, partial(_ask_async, requests)),
        "sync": (_run_sync, partial(_ask_sync, requests)),
    }
    rows: list[list[str]] = []
    for label, (whole, alone) in runners.items():
        least = race({"whole": whole, "alone": alone}, rounds=7)
        each = {name: seconds / STEPS * 1000 for name, seconds in least.items()}
        own = report.judge(f"{STEPS} steps, {label}: ms of CPU a step", each["whole"] - each["alone"], STEP)
        rows.append([label, f"{each['whole']:.2f}", f"{each['alone']:.2f}", own])
        report.rows.append({"run": f"steps, {label}", "whole_ms": each["whole"], "model_ms": each["alone"]})
    title = f"{STEPS} steps of one small call each, on a scripted line: ms of CPU a step"
    return Table(title, ["", "whole", "the model alone", "the agent"], rows)


def _agent(line: Scripted) -> Agent:
    return Agent(Model("openai-compatible:m", via=line), [_small], limits=Limits(steps=None))


def _run_async() -> None:
    assert asyncio.run(_agent(_line(STEPS)).arun("Go.")).output == "Done."


def _run_sync() -> None:
    assert _agent(_line(STEPS)).run("Go.").output == "Done."


def _ask_sync(requests: list[list[Message]]) -> None:
    model = Model("openai-compatible:m", via=_line(STEPS))
    for messages in requests:
        model.stream_text_and_classify(messages, [_small])


def _ask_async(requests: list[list[Message]]) -> None:
    model = Model("openai-compatible:m", via=_line(STEPS))

    async def ask() -> None:
        for messages in requests:
            await model.astream_text_and_classify(messages, [_small])

    asyncio.run(ask())


def _crowd(report: Report) -> Table:
    """Many runs in one process, each of which mostly waits: none is to wait for the others."""
    say(f"agent, {AGENTS} runs at once")
    times: list[float] = []

    async def one() -> str:
        begin = time.monotonic()
        parts = [Reply("Hm.", wait(0.1), call("_small", {"number": 1}), wait(0.1)) for _ in range(5)]
        found = await _agent(Scripted([*parts, Reply("Done.")])).arun("Go.")
        times.append(time.monotonic() - begin)
        return found.output

    async def everyone() -> list[str]:
        return await asyncio.gather(*(one() for _ in range(AGENTS)))

    outputs = asyncio.run(everyone())
    if lost := sum(output != "Done." for output in outputs):
        report.missed.append(f"{lost} of {AGENTS} runs were lost")
    slowest, median = max(times), statistics.median(times)
    cell = report.judge(f"{AGENTS} runs: slowest / median", slowest / median, FAIR)
    report.rows.append({"run": f"{AGENTS} at once", "median": median, "slowest": slowest, "lost": lost})
    title = f"{AGENTS} runs at once, of six steps that wait for 1 s in all"
    row = [f"{AGENTS} async", f"{median:.2f}", f"{slowest:.2f}", cell, str(lost)]
    return Table(title, ["", "median, s", "slowest, s", "slowest / median", "lost"], [row])
