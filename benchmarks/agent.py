"""The agent: how early its tools start, the CPU time of a step, and the fairness of many concurrent runs."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks import early
from benchmarks.clock import race
from benchmarks.report import Report, Table, say
from penstock import Agent, Model, tool
from penstock.messages import Message
from penstock.run.limits import Limits
from penstock.testing import Reply, Scripted, call, wait

STEPS = 50
AGENTS = 200

LONG = 100
LONG_ROUNDS = 15
RESULT = 20_000
WIRES = ("openai-compatible:m", "openai:m", "anthropic:m", "google:m", "bedrock:m", "cohere:m", "ollama:m")

STEP = 1.0
GROWTH = 2.2
FAIR = 1.5


def measure() -> Report:
    report = Report()
    for measure_one in (early.table, _steps, _long, _crowd):
        report.tables.append(measure_one(report))
    return report


@tool
async def _small(number: int) -> int:
    """Take a number."""
    return number + 1


@tool(name="_small")
def _plain(number: int) -> int:
    """Take a number."""
    return number + 1


def _line(steps: int) -> Scripted:
    return Scripted([*(Reply("Hm.", call("_small", {"number": at})) for at in range(steps)), Reply("Done.")])


def _steps(report: Report) -> Table:
    """The CPU time of a step of an agent, without that of the same request to the model alone."""
    say(f"agent, {STEPS} steps of small turns")
    history = list(_agent(_line(STEPS)).run("Go.").messages)
    requests = [history[: 1 + 2 * at] for at in range(STEPS + 1)]
    runners: dict[str, tuple[Callable[[], None], Callable[[], None], float | None]] = {
        "async": (_run_async, partial(_ask_async, requests), STEP),
        "sync": (partial(_run_sync, _plain), partial(_ask_sync, requests), STEP),
        "sync, with an async tool": (
            partial(_run_sync, _small),
            partial(_ask_sync, requests),
            None,
        ),
    }
    rows: list[list[str]] = []
    for label, (whole, alone, target) in runners.items():
        least = race({"whole": whole, "alone": alone}, rounds=7)
        each = {name: seconds / STEPS * 1000 for name, seconds in least.items()}
        own = report.judge(f"{STEPS} steps, {label}: ms of CPU a step", each["whole"] - each["alone"], target)
        rows.append([label, f"{each['whole']:.2f}", f"{each['alone']:.2f}", own])
        report.rows.append({"run": f"steps, {label}", "whole_ms": each["whole"], "model_ms": each["alone"]})
    title = f"{STEPS} steps of one small call each, on a scripted line: ms of CPU a step"
    return Table(title, ["", "whole", "the model alone", "the agent"], rows)


def _agent(line: Scripted, small: Any = _small) -> Agent:
    return Agent(Model("openai-compatible:m", via=line), [small], limits=Limits(steps=None))


def _run_async() -> None:
    assert asyncio.run(_agent(_line(STEPS)).arun("Go.")).output == "Done."


def _run_sync(small: Any) -> None:
    assert _agent(_line(STEPS), small).run("Go.").output == "Done."


def _ask_sync(requests: list[list[Message]]) -> None:
    model = Model("openai-compatible:m", via=_line(STEPS)).for_conversation()
    for messages in requests:
        model.stream_text_and_classify(messages, [_small])


def _ask_async(requests: list[list[Message]]) -> None:
    model = Model("openai-compatible:m", via=_line(STEPS)).for_conversation()

    async def ask() -> None:
        for messages in requests:
            await model.astream_text_and_classify(messages, [_small])

    asyncio.run(ask())


def _long(report: Report) -> Table:
    """A run of twice as many steps costs twice as much: a step costs what is new in it, not what came before."""
    say(f"agent, {LONG} and {2 * LONG} steps with results of {RESULT // 1000} KB")
    rows: list[list[str]] = []
    for wire in WIRES:
        least = _race_of_steps(wire)
        ratio = least[2 * LONG] / least[LONG]
        cell = report.judge(f"{2 * LONG} steps / {LONG} steps, {wire}", ratio, GROWTH)
        rows.append([wire, *(f"{1000 * seconds:.0f}" for seconds in least.values()), cell])
        report.rows.append({"run": f"long, {wire}", "short": least[LONG], "long": least[2 * LONG], "ratio": ratio})
    title = f"Runs with results of {RESULT // 1000} KB, on a scripted line: ms of CPU"
    return Table(title, ["", f"{LONG} steps", f"{2 * LONG} steps", "ratio"], rows)


def _race_of_steps(wire: str) -> dict[int, float]:
    """The CPU seconds of a run of each length: for each of its steps the least of all rounds, in turns.

    The least time of whole runs would favour the shorter ones, which fit better into a quiet moment of the machine.
    """
    best: dict[int, list[float]] = {}
    with _own_objects_only():
        for _ in range(LONG_ROUNDS):
            for steps in (LONG, 2 * LONG):
                gc.collect()
                times = _run_long(wire, steps)
                best[steps] = [*map(min, best.get(steps, times), times)]
    return {steps: sum(times) for steps, times in best.items()}


@contextmanager
def _own_objects_only() -> Generator[None]:
    """Let the garbage collector visit only what a run makes.

    A visit of all that the process has imported costs as much as many steps, and happens in some runs only.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _run_long(wire: str, steps: int) -> list[float]:
    """The CPU seconds until the first tool, of each step after it, and of the rest."""
    text = ('A line of a result, with "quotes".\n' * RESULT)[:RESULT]
    marks = [time.process_time()]

    async def look(number: int) -> str:
        """Look at something."""
        marks.append(time.process_time())
        return text

    script = Scripted([*(Reply("Hm.", call("look", {"number": at})) for at in range(steps)), Reply("Done.")])
    agent = Agent(Model(wire, via=script), [look], limits=Limits(steps=None))
    assert asyncio.run(agent.arun("Go.")).output == "Done."
    marks.append(time.process_time())
    return [end - begin for begin, end in pairwise(marks)]


def _crowd(report: Report) -> Table:
    """Many runs in one process, each mostly waiting: none should wait for the others."""
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
