"""Job engines that drive runs, pgqueuer and DBOS: with a real PostgreSQL, and with workers that are killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.log
from penstock import Done, Runs, ToolEnd
from penstock.log import RunRow, Store
from penstock.log.take_up import read_log
from penstock.run.events import LogEvent, Taken, ToolStart
from tests.architecture import SOURCE, imports
from tests.postgres import drop, new_schema

ENGINES = ["pgqueuer", "dbos"]
every_engine = pytest.mark.parametrize("engine", ENGINES)

DESK = """
import asyncio, os, sys
from datetime import timedelta
from pathlib import Path

import penstock
import penstock.log
from penstock.testing import Reply, Scripted, call

url, schema, effects = sys.argv[1:4]


@penstock.tool
def pay(context: penstock.Context) -> str:
    "Pay."
    with Path(effects).open("a") as file:
        file.write(f"{context.key}\\n")
    return "paid"


@penstock.tool(approval=True)
def refund() -> str:
    "Refund."
    return "refunded"


def answer(request):
    wanted = "refund" if "refund" in request.prompt else "pay"
    return "Done." if request.results else Reply("I do.", call(wanted))


store = penstock.log.open(url, schema=schema, lease=1.0)
agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(answer)), tools=[pay, refund])
runs = penstock.Runs(store, {"desk": agent})
"""

WORKERS = {
    "pgqueuer": """
import psycopg
from pgqueuer import PgQueuer
from penstock.runs.pgqueuer import register, work


async def main():
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    queuer = PgQueuer.from_psycopg_connection(connection)
    register(queuer, runs, concurrency_limit=5)
    seconds = {name: timedelta(seconds=0.5) for name in ("dequeue_timeout", "heartbeat_timeout")}
    await work(queuer, runs, every=float(sys.argv[4]), **seconds)


asyncio.run(main())
""",
    "dbos": """
from dbos import DBOS
from penstock.runs.dbos import QUEUE, executor_id, register, work

DBOS(config={
    "name": "desk", "system_database_url": url, "dbos_system_schema": f"{schema}_dbos", "executor_id": executor_id(),
    "application_version": "1", "log_level": "ERROR",
})
register(runs)
DBOS.launch()
DBOS.register_queue(QUEUE, global_concurrency=1, polling_interval_sec=0.1)
work(runs, every=float(sys.argv[4]))
""",
}

MANY = 120
"""More runs than one page of workflows, jobs or runs has in the test of sweeps."""

SWEEPS = {
    "pgqueuer": """
import psycopg
from pgqueuer import Queries
import penstock.runs.pgqueuer as engine


async def main():
    engine.PAGE = page
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    queries = Queries.from_psycopg_connection(connection)
    for _ in range(2):
        print(len(await engine.sweep(queries, runs)))
    await connection.close()


asyncio.run(main())
""",
    "dbos": """
from dbos import DBOS
import penstock.runs.dbos as engine

engine.PAGE = page
DBOS(config={
    "name": "desk", "system_database_url": url, "dbos_system_schema": f"{schema}_dbos",
    "executor_id": engine.executor_id(), "application_version": "1", "log_level": "ERROR",
})
engine.register(runs)
DBOS.launch()
for _ in range(2):
    print(len(engine.sweep(runs)))
DBOS.destroy()
""",
}
FILL = """
import penstock.runs.runs
page = penstock.runs.runs.PAGE = 50
for number in range(int(sys.argv[4])):
    runs.start("desk", "Please pay.", run_id=f"run {number}")
"""


class Engine:
    """An engine with its tables, and the workers that a test has started."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.name = name
        self.url = url
        self.schema = new_schema()
        self.effects = folder / "effects"
        self.effects.touch()
        self.store: Store = penstock.log.open(url, schema=self.schema, lease=1.0)
        self.runs = Runs(self.store, {"desk": penstock.Agent("sim:demo")})
        self._workers: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {"PGQUEUER_SCHEMA": f"{self.schema}_jobs", "PENSTOCK_CRASH_AT": ""}
        if name == "pgqueuer":
            self.python(
                "import asyncio, psycopg, sys\n"
                "from pgqueuer import Queries\n"
                "async def main():\n"
                "    connection = await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True)\n"
                "    await Queries.from_psycopg_connection(connection).install()\n"
                "    await connection.close()\n"
                "asyncio.run(main())\n"
            )

    def python(self, code: str) -> None:
        subprocess.run([sys.executable, "-c", code, self.url], env=self._environment, check=True, timeout=60)

    def start_worker(self, *, crash_at: str = "", sweep: float = 0.2) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [
            sys.executable,
            "-c",
            DESK + WORKERS[self.name],
            self.url,
            self.schema,
            self.effects,
            str(sweep),
        ]
        worker = subprocess.Popen(command, env=self._environment | {"PENSTOCK_CRASH_AT": crash_at})
        self._workers.append(worker)
        return worker

    def sweeps(self) -> list[int]:
        """How many jobs two sweeps add for many runs, before any worker has taken one."""
        code = DESK + FILL + SWEEPS[self.name]
        command = [sys.executable, "-c", code, self.url, self.schema, str(self.effects), str(MANY)]
        done = subprocess.run(command, env=self._environment, check=True, timeout=120, stdout=subprocess.PIPE)
        return [int(line) for line in done.stdout.split()]

    def enqueue(self, run_id: str) -> None:
        """A job for a run, from a process that only has the queue."""
        assert self.name == "pgqueuer"
        self.python(
            "import asyncio, psycopg, sys\n"
            "from pgqueuer import Queries\n"
            "from penstock.runs.pgqueuer import enqueue\n"
            "async def main():\n"
            "    connection = await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True)\n"
            "    queries = Queries.from_psycopg_connection(connection)\n"
            f"    assert await enqueue(queries, [{run_id!r}]) == [{run_id!r}]\n"
            f"    assert await enqueue(queries, [{run_id!r}]) == []\n"
            "    await connection.close()\n"
            "asyncio.run(main())\n"
        )

    def wait_until(self, run_id: str, holds: Callable[[RunRow], bool]) -> None:
        end = time.monotonic() + 60
        while not holds(self.runs.find(run_id)):
            assert time.monotonic() < end, self.runs.find(run_id)
            assert any(worker.poll() is None for worker in self._workers), "no worker is left"
            time.sleep(0.05)

    def log(self, run_id: str) -> list[LogEvent]:
        return [event for _, _, event in read_log(self.store, run_id)]

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self.store.close()
        for schema in (self.schema, f"{self.schema}_jobs", f"{self.schema}_dbos"):
            drop(self.url, schema)


def test_nothing_else_imports_the_engines() -> None:
    engines = {f"penstock.runs.{name}" for name in ENGINES} | {*ENGINES}
    for path in SOURCE.rglob("*.py"):
        if path.parent != SOURCE / "runs" or path.stem not in ENGINES:
            assert not engines & set(imports(path)), path


@contextmanager
def opened(name: str, url: str, folder: Path) -> Iterator[Engine]:
    pytest.importorskip(name)
    engine = Engine(name, url, folder)
    try:
        yield engine
    finally:
        engine.close()


@every_engine
def test_the_run_of_a_worker_that_was_killed_is_continued_by_another(
    engine: str, postgres_url: str, tmp_path: Path
) -> None:
    with opened(engine, postgres_url, tmp_path) as desk:
        run_id = desk.runs.start("desk", "Please pay.")
        victim = desk.start_worker(crash_at="after_tool_end:pay")
        assert victim.wait(60) == -signal.SIGKILL
        assert desk.effects.read_text(encoding="utf-8") == f"{run_id}:1.1\n"
        desk.start_worker()
        desk.wait_until(run_id, lambda row: row.state == "over")
        events = desk.log(run_id)
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert end.ending == "cancelled"
        assert "may have had an effect" in end.result.text
        assert sum(isinstance(event, Taken) for event in events) == 2
        assert desk.effects.read_text(encoding="utf-8") == f"{run_id}:1.1\n"  # paid once
        done = events[-1]
        assert isinstance(done, Done)
        assert (done.reason, done.output) == ("answered", "Done.")


def test_pgqueuer_takes_a_run_over_without_sweeping(postgres_url: str, tmp_path: Path) -> None:
    with opened("pgqueuer", postgres_url, tmp_path) as desk:
        run_id = desk.runs.start("desk", "Please pay.")
        desk.enqueue(run_id)
        victim = desk.start_worker(crash_at="before_tool_start:pay", sweep=3600)
        assert victim.wait(60) == -signal.SIGKILL
        desk.start_worker(sweep=3600)
        desk.wait_until(run_id, lambda row: row.state == "over")
        assert desk.effects.read_text(encoding="utf-8") == ""


def recipe_of(name: str) -> str:
    """The function of the guide that is the worker of an engine."""
    page = Path(__file__).parents[2] / "docs" / "durable.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    [recipe] = [block for block in blocks if f"def {name}_worker(" in block]
    return str(recipe)


def test_the_recipe_for_pgqueuer_runs_as_written_and_takes_over_within_the_lease(
    postgres_url: str, tmp_path: Path
) -> None:
    """It creates the tables of pgqueuer, and has none of the timeouts of these tests."""
    pytest.importorskip("pgqueuer")
    desk = Engine("recipe", postgres_url, tmp_path)
    worker = f"{recipe_of('pgqueuer')}\nasyncio.run(pgqueuer_worker(url))\n"
    try:
        WORKERS["recipe"] = worker
        run_id = desk.runs.start("desk", "Please pay.")
        victim = desk.start_worker(crash_at="after_tool_end:pay")
        assert victim.wait(60) == -signal.SIGKILL
        desk.start_worker()
        desk.wait_until(run_id, lambda row: row.state == "over")
        times = [at for _, at, event in read_log(desk.store, run_id) if isinstance(event, Taken | ToolStart)]
        assert len(times) == 3
        assert times[2] - times[1] < 15  # with a lease of one second; a busy machine starts the second worker late
        assert desk.effects.read_text(encoding="utf-8") == f"{run_id}:1.1\n"
    finally:
        del WORKERS["recipe"]
        desk.close()


@every_engine
def test_a_run_that_waits_is_continued_after_a_decision(engine: str, postgres_url: str, tmp_path: Path) -> None:
    with opened(engine, postgres_url, tmp_path) as desk:
        run_id = desk.runs.start("desk", "A refund, please.")
        desk.start_worker()
        desk.wait_until(run_id, lambda row: row.state == "waiting")
        [request] = [event for event in desk.log(run_id) if event.type == "approval_request"]
        desk.runs.decide(run_id, request.call_id, approved=True)
        desk.wait_until(run_id, lambda row: row.state == "over")
        [end] = [event for event in desk.log(run_id) if isinstance(event, ToolEnd)]
        assert (end.ending, end.result.text) == ("done", "refunded")


@every_engine
def test_a_sweep_adds_a_job_for_every_run_that_has_none(engine: str, postgres_url: str, tmp_path: Path) -> None:
    with opened(engine, postgres_url, tmp_path) as desk:
        assert desk.sweeps() == [MANY, 0]


def test_a_sweep_of_pgqueuer_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """Its driver may raise any error."""
    engine = pytest.importorskip("penstock.runs.pgqueuer")
    attempts: list[int] = []

    class Queries:
        async def enqueue(self, *_: Any, **__: Any) -> list[int]:
            attempts.append(1)
            if len(attempts) == 1:
                raise OSError("the connection is lost")
            raise asyncio.CancelledError

    runs = penstock.Runs(penstock.log.memory(), {"desk": penstock.Agent("sim:demo", name="desk")})
    runs.start("desk", "Hi.")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(engine._keep_sweeping(Queries(), runs, "penstock", 0.001))
    assert len(attempts) == 2
    assert "cannot look for runs: OSError('the connection is lost')" in caplog.text
