"""Many runs in one process, some of them interrupted anywhere: nothing grows, and nothing is left.

`make soak` does 10,000 runs; `tests/agent/ending/test_soak.py` does some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import penstock
from penstock import Agent, Model, Retries, tool
from penstock.testing import Loopback, ReceivedRequest, Reply, call, say

INTERRUPTED = 0.1
"""The share of runs that are interrupted."""
SHARED = {"penstock-watchdog", "penstock-loop", "penstock-mcp", "penstock-idle"}


@tool(read_only=True)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@tool
async def book(city: str) -> str:
    """Book a trip."""
    await asyncio.sleep(0)
    return f"booked {city}"


def reply(request: ReceivedRequest) -> Reply:
    """Two tool calls, then a text."""
    if request.results:
        return Reply(say("It is sunny, and the trip is booked."))
    return Reply(say("Let me see."), call("weather", {"city": "Rome"}), call("book", {"city": "Rome"}))


class State(NamedTuple):
    """What a process holds: memory in bytes, descriptors, threads, objects of Python."""

    memory: int
    descriptors: int
    threads: int
    objects: int


def state() -> State:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    threads = [thread for thread in threading.enumerate() if thread.name not in SHARED]
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return State(pages * os.sysconf("SC_PAGE_SIZE"), descriptors, len(threads), len(gc.get_objects()))


def interrupt_run(agent: Agent[Any], rng: random.Random) -> None:
    """Read some events of a run, then leave it in one of the ways in which programs leave a run."""
    way, count = rng.choice(["cancel", "leave", "raise", "drop", "thread"]), rng.randrange(16)
    run = agent.stream("Go.")
    if way == "drop":
        for _, _ in zip(range(count), run, strict=False):
            pass
        return
    with suppress(LookupError), run:
        if way == "thread":
            timer = threading.Timer(rng.random() * 0.01, run.cancel)
            timer.start()
            for _ in run:
                pass
            timer.join()
            return
        for at, _ in enumerate(run):
            if at == count and way == "leave":
                break
            if at == count and way == "raise":
                raise LookupError
            if at == count:
                run.cancel()


async def ainterrupt_run(agent: Agent[Any], rng: random.Random) -> None:
    way, count = rng.choice(["cancel", "leave", "raise", "task"]), rng.randrange(16)
    if way == "task":
        with suppress(TimeoutError):
            await asyncio.wait_for(agent.arun("Go."), rng.random() * 0.01)
        return
    with suppress(LookupError):
        async with agent.astream("Go.") as run:
            at = 0
            async for _ in run:
                at += 1
                if at > count and way == "leave":
                    break
                if at > count and way == "raise":
                    raise LookupError
                if at > count:
                    run.cancel()


async def do_async(agent: Agent[Any], runs: int, rng: random.Random) -> None:
    for _ in range(runs):
        if rng.random() < INTERRUPTED:
            await ainterrupt_run(agent, rng)
        else:
            assert (await agent.arun("Go.")).output.startswith("It is sunny")
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, left


def do_sync(agent: Agent[Any], runs: int, rng: random.Random) -> None:
    for _ in range(runs):
        if rng.random() < INTERRUPTED:
            interrupt_run(agent, rng)
        else:
            assert agent.run("Go.").output.startswith("It is sunny")


def soak(url: str, runs: int, report: Callable[[str], None] = lambda _: None, batch: int = 50) -> tuple[State, State]:
    """Do runs, half of them sync, on many event loops; returns the state at the half and at the end, all closed."""
    rng = random.Random(1)
    agent = Agent(
        Model("openai-compatible:m", url, "key", retries=Retries(attempts=0)), [weather, book], separate_text=True
    )
    middle: State | None = None
    for done in range(0, runs, 2 * batch):
        do_sync(agent, batch, rng)
        asyncio.run(do_async(agent, batch, rng))
        if done + 2 * batch >= runs // 2 and middle is None:
            middle = settled()
            report(f"{done + 2 * batch} runs: {middle}")
    end = settled()
    report(f"{runs} runs: {end}")
    return middle or end, end


def settled() -> State:
    """The state when what was interrupted has ended."""
    penstock.close()
    end, last = time.monotonic() + 30, state()
    while time.monotonic() < end:
        time.sleep(0.2)
        now = state()
        if now.threads == last.threads == 1 and now.descriptors == last.descriptors:
            return now
        last = now
    return last


def check(middle: State, end: State) -> None:
    """Assert that nothing grew since the half, and that nothing is left."""
    assert end.threads == 1, [thread.name for thread in threading.enumerate()]
    assert end.descriptors <= middle.descriptors, (middle, end)
    assert end.objects <= middle.objects * 1.01 + 2_000, (middle, end)
    assert end.memory <= middle.memory * 1.05 + 4_000_000, (middle, end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--url", help="of a server that plays the script; without it, one is started in a process")
    arguments = parser.parse_args()
    if arguments.url:
        check(*soak(arguments.url, arguments.runs, lambda line: print(line, flush=True)))  # noqa: T201
        return
    with Loopback(reply) as server:  # the runs are in another process
        command = [sys.executable, "-W", "error", "-m", "tests.soak", "--runs", str(arguments.runs)]
        url = server.base_url("openai-chat")
        sys.exit(subprocess.run([*command, "--url", url], check=False).returncode)


if __name__ == "__main__":
    main()
