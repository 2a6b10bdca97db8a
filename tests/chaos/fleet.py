"""Many workers on one PostgreSQL: how fast, how fair, and a rolling deploy: `python -m tests.chaos.fleet`.

Three parts, each with `penstock worker` processes: one worker, eight workers, and eight workers that are replaced one
after the other while every run has a reader. A run that a worker gave back must not wait longer than two seconds for
another one.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import median

from msgspec import Struct

from penstock import Agent, Done, Model, Runs, tool
from penstock.log import open as open_log
from penstock.log.take_up import read_log
from penstock.run.events import Taken
from penstock.testing import ReceivedRequest, Reply, Scripted, call
from tests.postgres import drop, own_server

SECONDS = 300.0
"""How long a part may take."""

MAX_WAIT = 2.0
"""How many seconds a run with a reader may wait in a deploy."""


@tool
async def act(number: int) -> str:
    """Do something that takes a while."""
    await asyncio.sleep(0.4)
    return "done"


def answer(request: ReceivedRequest) -> Reply:
    """Call the tool as often as the prompt says, one step after the other, then answer."""
    count = len(request.results)
    if count < int(request.prompt):
        return Reply("Let me see. ", call("act", {"number": count}))
    return Reply("That is all there was to do. ")


agent = Agent(Model("openai-compatible:m", via=Scripted(answer, pace=0.02)), [act], name="agent")


class Outcome(Struct):
    """What a part showed."""

    seconds: float  # from the first claim to the last end
    claims: list[int]  # per worker
    waits: list[float]  # of runs that were given back
    wrong: int  # runs that are not over, or not answered


def start_worker(url: str, parallel: int) -> subprocess.Popen[bytes]:
    """A worker in a process."""
    command = ["worker", "tests.chaos.fleet:agent", "--log", url, "--parallel", str(parallel), "--quiet"]
    return subprocess.Popen([sys.executable, "-m", "penstock.cli", *command], stderr=subprocess.DEVNULL)


@contextmanager
def workers(url: str, count: int, parallel: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Some workers; those in the list at the end are stopped."""
    processes = [start_worker(url, parallel) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def play(url: str, *, count: int, parallel: int, runs: int, is_deploy: bool = False) -> Outcome:
    """Queue some runs, and wait until they are over. In a deploy they are long enough to see several workers."""
    prompt = "30" if is_deploy else "2"
    store = open_log(url)
    queue = Runs(store, {"agent": agent})
    with workers(url, count, parallel) as processes:
        warm_up = [queue.start("agent", "2") for _ in range(count)]
        wait_for(queue, warm_up)  # the workers have started
        time.sleep(3)
        ids = [queue.start("agent", prompt) for _ in range(runs)]
        readers = [threading.Thread(target=read, args=(queue, run_id), daemon=True) for run_id in ids]
        for reader in readers if is_deploy else ():
            reader.start()
        if is_deploy:
            deploy(processes, url, parallel)
        wait_for(queue, ids)
    logs = [[*read_log(store, run_id)] for run_id in ids]
    owners = Counter(event.owner for log in logs for _, _, event in log if isinstance(event, Taken))
    begin = min(at for log in logs for _, at, event in log if isinstance(event, Taken))
    end = max(log[-1][1] for log in logs)
    store.close()
    drop(url, "penstock")
    wrong = sum(not (isinstance(log[-1][2], Done) and log[-1][2].reason == "answered") for log in logs)
    return Outcome(end - begin, sorted(owners.values()), [wait for log in logs for wait in waits(log)], wrong)


def waits(log: Sequence[tuple[int, float, object]]) -> Iterator[float]:
    """How long the run lay between the last event of a worker and the next worker."""
    for (_, before, _), (_, at, event) in pairwise(log):
        if isinstance(event, Taken) and event.epoch > 1:
            yield at - before


def deploy(processes: list[subprocess.Popen[bytes]], url: str, parallel: int) -> None:
    """Replace the workers one after the other: a new one starts, then an old one is stopped."""
    for old in list(processes):
        processes.append(start_worker(url, parallel))
        time.sleep(2)
        old.send_signal(signal.SIGTERM)
        old.wait()
        processes.remove(old)


def read(runs: Runs, run_id: str) -> None:
    for _, event in runs.follow(run_id):
        if isinstance(event, Done):
            return


def wait_for(runs: Runs, ids: Sequence[str]) -> None:
    """Wait until runs are over."""
    end = time.monotonic() + SECONDS
    left = list(ids)
    while left and time.monotonic() < end:
        left = [run_id for run_id in left if runs.find(run_id).state != "over"]
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--readers", type=int, default=60, help="runs with a reader in the rolling deploy")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--parallel", type=int, default=25)
    options = parser.parse_args()
    size = {"parallel": options.parallel, "runs": options.runs}
    with own_server() as server:
        url = server.get_uri()
        one = play(url, count=1, **size)
        many = play(url, count=options.workers, **size)
        rolling = play(url, count=options.workers, parallel=options.parallel, runs=options.readers, is_deploy=True)
    write = sys.stdout.write
    write(f"one worker: {one.seconds:.1f} s; {options.workers} workers: {many.seconds:.1f} s, ")
    write(f"{one.seconds / many.seconds:.1f} times as fast; claims per worker: {many.claims}\n")
    times = f"{median(rolling.waits):.2f} s in the middle, {max(rolling.waits):.2f} s at most" if rolling.waits else "-"
    write(f"rolling deploy: {len(rolling.waits)} runs changed hands, waiting {times}\n")
    wrong = one.wrong + many.wrong + rolling.wrong
    write(f"not answered: {wrong}\n")
    sys.exit(bool(wrong) or max(rolling.waits, default=0.0) > MAX_WAIT)


if __name__ == "__main__":
    main()
