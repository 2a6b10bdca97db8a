"""A run that ends its worker, its neighbours, and a supervisor: `python -m tests.chaos.poison --store postgres`.

The supervisor starts workers again as they die. All neighbours must be answered, and the run that ends its workers must
be parked.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock import Agent, Limits, Model, Runs, tool
from penstock.log import Store
from penstock.testing import ReceivedRequest, Reply, Scripted, call, wait
from tests.chaos.processes import Setup
from tests.postgres import drop, new_schema, server

POISONS = ("read", "again", "effect", "second")
"""The ways in which a run ends its worker.

| poison | when |
|---|---|
| `read` | a read-only tool, before the log has its start |
| `again` | an idempotent tool, which runs again after each takeover |
| `effect` | a tool with side effects, which the model calls again in each step |
| `second` | the second step, after one that went well |
"""
PIECE = 0.25
"""The seconds between two pieces of an answer."""


def answer(request: ReceivedRequest) -> Reply:
    """Call the tool that the prompt names, or answer slowly."""
    name = request.prompt.split()[0]
    if name == "second":
        return Reply(call("again") if request.results else call("look"))
    if name in POISONS:
        return Reply(call(name))
    return Reply(*(part for _ in range(int(name)) for part in ("a piece ", wait(PIECE))))


def make_agent(takeovers: int | None) -> Agent[Any]:
    """An agent with tools that end their process."""

    def die() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return "not reached"

    @tool(read_only=True)
    def read() -> str:
        """End the process."""
        return die()

    @tool(idempotent=True)
    def again() -> str:
        """End the process."""
        return die()

    @tool
    def effect() -> str:
        """End the process."""
        return die()

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "fine"

    model = Model("openai-compatible:m", via=Scripted(answer))
    return Agent(model, [read, again, effect, look], name="agent", limits=Limits(takeovers=takeovers, steps=30))


def work(setup: Setup, takeovers: int | None) -> None:
    """A worker."""
    asyncio.run(Runs(setup.open(), {"agent": make_agent(takeovers)}).awork(poll=0.1))


class Outcome(Struct):
    """What became of the runs."""

    states: dict[str, Counter[str]]  # by kind of run: how many are in which state, or ended for which reason
    deaths: int
    seconds: float
    lost: int  # the most leases that an innocent run has lost


def play(
    setup: Setup, poisons: Sequence[str], *, neighbours: int = 20, pieces: int = 16, takeovers: int | None = 5,
    workers: int = 1, seconds: float = 120.0, latecomers: int = 0,
) -> Outcome:  # fmt: skip
    """Start runs and workers, until every run has ended or is parked; `latecomers` start one by one meanwhile."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.chaos.poison"])
    store = setup.open()
    runs = Runs(store, {"agent": make_agent(takeovers)})
    kinds = {runs.start("agent", f"{pieces} pieces"): "innocent" for _ in range(neighbours)}
    kinds |= {runs.start("agent", f"{poison} kills"): "poison" for poison in poisons}
    alive: list[Any] = []
    deaths, begin, next_start, most = 0, time.monotonic(), 0.0, 0
    try:
        while time.monotonic() < begin + seconds:
            if latecomers and time.monotonic() >= next_start:
                next_start, latecomers = time.monotonic() + 0.5, latecomers - 1
                kinds[runs.start("agent", f"{pieces} pieces")] = "innocent"
            rows = {row.id: row for row in store.list(limit=10_000)}
            most = max(most, *(rows[run_id].lost for run_id, kind in kinds.items() if kind == "innocent"))
            if not latecomers and all(rows[run_id].state in ("over", "parked") for run_id in kinds):
                break
            dead = [process for process in alive if not process.is_alive()]
            deaths += len(dead)
            alive = [process for process in alive if process not in dead]
            while len(alive) < workers:
                alive.append(processes.Process(target=work, args=(setup, takeovers), daemon=True))
                alive[-1].start()
            time.sleep(0.05)
    finally:
        for process in alive:
            process.kill()
            process.join()
    states: dict[str, Counter[str]] = {"innocent": Counter(), "poison": Counter()}
    for run_id, kind in kinds.items():
        states[kind][_end(store, runs, run_id)] += 1
    store.close()
    return Outcome(states, deaths, time.monotonic() - begin, most)


def _end(store: Store, runs: Runs, run_id: str) -> str:
    row = runs.find(run_id)
    if row.state != "over":
        return row.state
    *_, (_, done) = runs.follow(run_id)
    assert done.type == "done"
    return done.reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--poison", choices=POISONS, action="append", default=[])
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--latecomers", type=int, default=0)
    parser.add_argument("--pieces", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--takeovers", type=int, default=5)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    poisons = options.poison or ["read"]
    with tempfile.TemporaryDirectory(prefix="penstock-poison-") as folder, server("chaos") as url:
        schema = new_schema()
        address = url if options.store == "postgres" else str(Path(folder) / "runs.db")
        setup = Setup(address, schema, str(Path(folder) / "ledger"), options.lease)
        outcome = play(
            setup, poisons, neighbours=options.neighbours, pieces=options.pieces, takeovers=options.takeovers,
            workers=options.workers, seconds=options.seconds, latecomers=options.latecomers,
        )  # fmt: skip
        drop(url, schema)
    sys.stdout.write(f"{options.store} {','.join(poisons)}: {outcome}\n")
    innocent = options.neighbours + options.latecomers
    expected = {"innocent": {"answered": innocent}, "poison": {"parked": len(poisons)}}
    sys.exit(outcome.states != expected)


if __name__ == "__main__":
    main()
