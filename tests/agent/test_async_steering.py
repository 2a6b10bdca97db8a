"""Runs steered from async code: the event loop goes on while the store writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock import Runs, UnknownRunError
from penstock.log.in_memory import MemoryStore
from penstock.log.store import Input
from tests.log_stores import Desk

STEERS: dict[str, Callable[[Runs, str], Awaitable[bool]]] = {
    "adecide": lambda runs, run_id: runs.adecide(run_id, "call", True, {"amount": 5}, "fine"),
    "aprovide": lambda runs, run_id: runs.aprovide(run_id, "call", {"amount": 5}),
    "asay": lambda runs, run_id: runs.asay(run_id, "Hurry.", key="one"),
    "acancel": lambda runs, run_id: runs.acancel(run_id, "enough"),
}
PLAIN: dict[str, Callable[[Runs, str], bool]] = {
    "adecide": lambda runs, run_id: runs.decide(run_id, "call", True, {"amount": 5}, "fine"),
    "aprovide": lambda runs, run_id: runs.provide(run_id, "call", {"amount": 5}),
    "asay": lambda runs, run_id: runs.say(run_id, "Hurry.", key="one"),
    "acancel": lambda runs, run_id: runs.cancel(run_id, "enough"),
}


class SlowStore(MemoryStore):
    """A store that writes an input only when the event loop has gone on meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.is_writing = threading.Event()
        self.may_write = threading.Event()

    def put(self, input: Input) -> bool:
        self.is_writing.set()
        assert self.may_write.wait(30), "the event loop is blocked"
        return super().put(input)


@pytest.mark.parametrize("name", STEERS)
def test_the_loop_goes_on_while_the_store_writes(name: str) -> None:
    store = SlowStore()
    runs = Desk(store).runs

    async def steer() -> list[bool]:
        runs.start("desk", "Send it.", run_id="r")
        task = asyncio.ensure_future(STEERS[name](runs, "r"))
        await asyncio.to_thread(store.is_writing.wait, 30)
        store.may_write.set()
        return [await task, await STEERS[name](runs, "r")]

    assert asyncio.run(steer()) == [True, False], "the first one counts"
    with pytest.raises(UnknownRunError):
        asyncio.run(_of(STEERS[name], runs))


async def _of(steer: Callable[[Runs, str], Awaitable[bool]], runs: Runs) -> bool:
    return await steer(runs, "unknown")


@pytest.mark.parametrize("name", STEERS)
def test_async_and_sync_code_leave_the_same_input(name: str) -> None:
    def inputs(steer: Callable[[Runs], Any]) -> list[tuple[str, str, bytes]]:
        store = MemoryStore()
        runs = Desk(store).runs
        runs.start("desk", "Send it.", run_id="r")
        steer(runs)
        return [(one.kind, one.key, one.body) for one in store.inputs(["r"])]

    async def asteer(runs: Runs) -> None:
        await STEERS[name](runs, "r")

    assert inputs(lambda runs: asyncio.run(asteer(runs))) == inputs(lambda runs: PLAIN[name](runs, "r"))
