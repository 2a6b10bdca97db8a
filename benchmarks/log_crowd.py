"""Many runs at once in one process, with a log or without: `python -m benchmarks.log_crowd none|sqlite|postgresql://…`.

Prints what it has cost as JSON. Without a log it also runs with versions of Penstock that have none, for comparison: so
it imports nothing newer than that at its top.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from penstock.agent.agent import Agent
from penstock.agent.agent_run import AsyncAgentRun
from penstock.events import Finish, StreamChunk, Text
from penstock.messages import user
from penstock.model.model import Model
from penstock.run.machine import Run
from penstock.testing import Scripted

EVENTS = 280
"""The pieces of text of each response."""
SECONDS_PER_EVENT = 0.02
EVENTS_PER_RUN = EVENTS + 4


class _Stream:
    """A response of a model that sends a text now and then."""

    def __init__(self) -> None:
        self._left = EVENTS + 1

    async def __aenter__(self) -> _Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def abort(self) -> None:
        pass

    async def start(self) -> list[StreamChunk]:
        """For the driver of today; that of the commit before the log enters it, and iterates over `batches`."""
        return []

    async def next_batch(self) -> list[StreamChunk] | None:
        self._left -= 1
        if self._left > 0:
            await asyncio.sleep(SECONDS_PER_EVENT)
            return [Text(0, "some words ")]
        return [Finish("stop")] if self._left == 0 else None

    async def close(self) -> None:
        pass

    async def batches(self) -> AsyncIterator[list[StreamChunk]]:
        for _ in range(EVENTS):
            await asyncio.sleep(SECONDS_PER_EVENT)
            yield [Text(0, "some words ")]
        yield [Finish("stop")]


class _Model:
    name = "benchmark"
    healing = None

    def for_conversation(self) -> _Model:
        return self

    def astream(self, *_: object, **options: object) -> _Stream:
        return _Stream()


def config() -> Any:
    """An agent whose model is a generator, so that nothing but the run, its driver and its log is measured."""
    model: Any = _Model()
    return replace(Agent(Model("openai:gpt-5", via=Scripted([]))).config, model=model)


async def _one(number: int, store: Any) -> None:
    if store is None:
        running = AsyncAgentRun(config(), Run([user("Go.")], {}), None)
    else:
        run, owned = await asyncio.to_thread(start, store, f"run-{number}")
        running = AsyncAgentRun(config(), run, None, owned)
    async with running:
        async for _ in running:
            pass
    assert running.finish_reason == "answered", running.error


def start(store: Any, run_id: str) -> tuple[Any, Any]:
    """A run in a store, which this process owns."""
    from penstock.log.follower import Follower, LoggedStart, Settings
    from penstock.log.start import new_start

    row, start = new_start("benchmark", [user("Go.")], run_id)
    follower = Follower(LoggedStart(store, row, start), Settings({}))
    follower.open()
    return follower.run, follower.owned


def crowd(runs: int, store: Any = None) -> dict[str, float]:
    """What this many runs at once cost: CPU seconds of this process, seconds, and commits of their logs."""
    commits = _count_commits(store)

    async def all_of_them() -> None:
        await asyncio.gather(*(_one(number, store) for number in range(runs)))

    gc.collect()
    begin, clock = time.process_time(), time.monotonic()
    asyncio.run(all_of_them())
    return {"cpu": time.process_time() - begin, "seconds": time.monotonic() - clock, "commits": len(commits)}


def _count_commits(store: Any) -> list[None]:
    commits: list[None] = []
    if store is not None:
        append = store.append

        def counted(*batches: Any, **options: Any) -> Any:
            commits.append(None)
            return append(*batches, **options)

        store.append = counted
    return commits


def _crowd_on(where: str, runs: int) -> dict[str, float]:
    if where == "none":
        return crowd(runs)
    import penstock.log

    with tempfile.TemporaryDirectory() as folder:
        schema = f"bench_{time.time_ns()}"
        is_file = where == "sqlite"
        store = penstock.log.open(
            Path(folder) / "runs.db" if is_file else where, **({} if is_file else {"schema": schema})
        )
        try:
            return crowd(runs, store)
        finally:
            store.close()
            if not is_file:
                _drop(where, schema)


def _drop(url: str, schema: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


if __name__ == "__main__":
    print(json.dumps(_crowd_on(sys.argv[1], int(sys.argv[2]))))
