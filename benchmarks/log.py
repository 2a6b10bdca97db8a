"""The cost of a log: the CPU time per event of many runs at once, without a log and with one, and of rebuilding a run.

The model is a generator, so that nothing but the run, its driver and its log is measured.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.clock import cpu_seconds, race
from benchmarks.report import Report, Table, say
from penstock.agent.agent import Agent
from penstock.agent.agent_run import AsyncAgentRun
from penstock.events import Finish, StreamChunk, Text
from penstock.log.bodies import body_of, event_of
from penstock.log.sqlite import SQLiteStore
from penstock.log.store import OwnedRun, RunRow, Store
from penstock.log.take_up import read_log, take_up
from penstock.messages import user
from penstock.model.model import Model
from penstock.run.events import RunStart
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.testing import Scripted

RUNS = 200
EVENTS = 280
SECONDS_PER_EVENT = 0.02
ROUNDS = 3
TARGET = 25.0
"""How many µs more an event of a run with a SQLite log may cost."""
FOLD_TARGET = 5.0
"""How many µs an event may cost when a run is rebuilt."""


def measure() -> Report:
    report = Report()
    say(f"{RUNS} runs at once, with and without a log")
    best = race({"no log": lambda: _crowd(None), "SQLite": _crowd_on_sqlite}, rounds=ROUNDS)
    events = RUNS * (EVENTS + 4)
    micros = {name: seconds / events * 1e6 for name, seconds in best.items()}
    more = micros["SQLite"] - micros["no log"]
    fold, count = _fold()
    lines = [
        ["no log", f"{micros['no log']:.1f}", ""],
        ["SQLite", f"{micros['SQLite']:.1f}", report.judge("SQLite, µs per event more", more, TARGET)],
        ["rebuild a run", f"{fold:.1f}", report.judge("rebuild, µs per event", fold, FOLD_TARGET)],
    ]
    report.rows.append({"micros": micros, "more": more, "fold": fold, "folded": count})
    report.tables.append(
        Table(f"Log: {RUNS} runs of {EVENTS} texts at once, CPU per event", ["", "µs per event", "µs more"], lines)
    )
    return report


class _Stream:
    """A response of a model that sends a text now and then."""

    async def __aenter__(self) -> _Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def abort(self) -> None:
        pass

    async def batches(self) -> AsyncIterator[list[StreamChunk]]:
        for _ in range(EVENTS):
            await asyncio.sleep(SECONDS_PER_EVENT)
            yield [Text(0, "some words ")]
        yield [Finish("stop")]


class _Model:
    name = "benchmark"

    def astream(self, *_: object, **options: object) -> _Stream:
        return _Stream()


def _config() -> Any:
    model: Any = _Model()
    return replace(Agent(Model("openai:gpt-5", via=Scripted([]))).config, model=model)


def _crowd(store: Store | None) -> None:
    config = _config()

    async def one(number: int) -> None:
        run, owned = Run([user("Go.")], {}), None
        if store is not None:
            run, owned = await asyncio.to_thread(_start, store, f"run-{number}")
        async with AsyncAgentRun(config, run, None, owned) as running:
            async for _ in running:
                pass

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(RUNS)))

    asyncio.run(all_of_them())


def _crowd_on_sqlite() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "runs.db")
        _crowd(store)
        store.close()


def _start(store: Store, run_id: str) -> tuple[Run, OwnedRun]:
    store.create(RunRow(id=run_id, agent="benchmark"), body_of(RunStart((user("Go."),), "benchmark")))
    claim = store.claim("benchmark", run_id=run_id)
    assert claim is not None
    return take_up(store, claim, {})


def _fold() -> tuple[float, int]:
    """µs per event to rebuild a run from the bodies of its events, and how many events."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "runs.db")
        config = _config()

        async def run_once() -> None:
            run, owned = await asyncio.to_thread(_start, store, "run")
            async with AsyncAgentRun(config, run, None, owned) as running:
                async for _ in running:
                    pass

        asyncio.run(run_once())
        bodies = [body_of(event) for _, _, event in read_log(store, "run")]
        store.close()
    head, texts, end = bodies[:3], bodies[3:-3], bodies[-3:]
    many = [*head, *(texts * 50), *end]
    seconds = min(cpu_seconds(lambda: rebuild((event_of("run", 1, body) for body in many), {})) for _ in range(ROUNDS))
    return seconds / len(many) * 1e6, len(many)
