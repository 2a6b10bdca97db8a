"""The processes of a trial: workers, programs that drive runs inline, and readers that reconnect."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

import penstock.log
from penstock import ApprovalRequest, Done, LostRunError, Runs, StoreError
from penstock.agent.driver.ownership import Ownership
from penstock.log import Store, points
from penstock.log.bodies import body_of
from penstock.log.flusher import Flusher
from penstock.log.follow import follow
from penstock.log.run_writer import RunWriter
from penstock.log.store import Batch
from penstock.log.store_retries import with_retries
from penstock.log.take_up import read_run
from penstock.run.events import LogEvent, Reset
from penstock.tools.policy import ToolPolicy
from tests.chaos.agents import make_agent
from tests.chaos.ledger import Ledger, Note, What

POLL = 0.05
"""How many seconds pass between two looks of a worker for runs."""

AGAIN = 1.0
"""How many seconds pass between two looks of a reader at runs that have ended, or that still wait."""


class Setup(Struct, frozen=True):
    """Where a trial takes place; `mutation` names what is broken in its workers on purpose."""

    address: str
    schema: str
    ledger: str
    lease: float
    mutation: str = ""

    @property
    def over(self) -> str:
        """The path of a file that is there when all runs are over."""
        return f"{self.ledger}.over"

    def open(self) -> Store:
        """The store, as soon as it is there."""
        return with_retries(partial(penstock.log.open, self.address, lease=self.lease, schema=self.schema))


class Plan(Struct, frozen=True):
    """The point at which a process kills or freezes itself, such as `after_append:tool_end:2`."""

    point: str
    signal: int


def digest(event: LogEvent) -> str:
    """A short name of the content of an event."""
    return hashlib.sha256(body_of(event)).hexdigest()[:16]


def work(setup: Setup, plan: Plan | None) -> None:
    """A worker."""
    ledger, store = _prepare(setup, plan)
    asyncio.run(Runs(store, {"agent": make_agent(ledger)}).awork(poll=POLL))


def drive_inline(setup: Setup, plan: Plan | None, run_ids: Sequence[str]) -> None:
    """A program that drives its runs itself, each in a thread, and shows what comes of them."""
    ledger, store = _prepare(setup, plan)
    agent = make_agent(ledger)

    def read(run_id: str) -> None:
        while True:
            reader = f"{os.getpid()}.{random.getrandbits(32)}"
            try:
                with agent.stream(run_id, log=store, run_id=run_id) as run:
                    for event in run:
                        if event.type != "tool_results" and not (isinstance(event, Done) and event.reason == "paused"):
                            ledger.add(Note("shown", run_id, digest(event), reader))
                if run.finish_reason != "paused":
                    return
                time.sleep(POLL)
            except (LostRunError, StoreError):
                pass  # another process drives it now: follow it

    threads = [threading.Thread(target=read, args=(run_id,)) for run_id in run_ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_logs(setup: Setup, run_ids: Sequence[str], seed: int) -> None:
    """A reader of several runs, which disconnects now and then, and approves what waits for approval.

    A database that was restored may have lost an end that it saw, or an approval that no run had taken. So it looks at
    each run again until all of them are over, and approves once more what still waits.
    """
    ledger = Ledger(setup.ledger)
    chance = random.Random(seed)

    def approve_again() -> None:
        store = setup.open()
        while not Path(setup.over).exists():
            with suppress(StoreError):
                for row in store.list(state="waiting"):
                    for request in read_run(store, row).waiting:
                        Runs(store, {}).decide(row.id, request.call_id, True)
            time.sleep(AGAIN)
        store.close()

    def read(run_id: str) -> None:
        last: int = 0
        is_last_look = is_whole = False
        while not (is_last_look and is_whole):
            is_last_look, is_whole = Path(setup.over).exists(), False
            store = setup.open()
            with suppress(StoreError):  # a database that is away for longer than anybody waits
                for number, event in follow(store, run_id, last):
                    last = number
                    what: What = "reset" if isinstance(event, Reset) else "read"
                    ledger.add(Note(what, run_id, digest(event), seq=int(number)))
                    if isinstance(event, ApprovalRequest):  # a writer may be frozen
                        with_retries(partial(Runs(store, {}).decide, run_id, event.call_id, True))
                    if chance.random() < 0.05:
                        break
                else:
                    is_whole = True
            store.close()
            if is_whole and not is_last_look:
                time.sleep(AGAIN)

    threads = [
        *(threading.Thread(target=read, args=(run_id,)) for run_id in run_ids),
        threading.Thread(target=approve_again),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- inside ------------------------------------------------------------------------------------------------------------


def _prepare(setup: Setup, plan: Plan | None) -> tuple[Ledger, Store]:
    MUTATIONS[setup.mutation]()
    ledger, store = Ledger(setup.ledger), setup.open()
    _watch_appends(store, ledger)
    if plan is not None:
        points.hook = _hook(plan, ledger)
    return ledger, store


def _watch_appends(store: Store, ledger: Ledger) -> None:
    """Write down what the store takes, so that a process which is not the owner any more is found out."""
    append = store.append

    def watched(batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        owned = append(batches, durable=durable)
        for batch, is_owner in zip(batches, owned, strict=True):
            if is_owner and batch.bodies:
                note = Note("append", batch.run_id, seq=batch.seq, epoch=batch.epoch, count=len(batch.bodies))
                ledger.add(note)
        return owned

    store.append = watched  # type: ignore[method-assign]


def _hook(plan: Plan, ledger: Ledger) -> points.Hook:
    name, _, rest = plan.point.partition(":")
    detail, _, number = rest.partition(":")
    countdown = points.Countdown(name, detail, int(number or 1))

    def hit(point: points.Point, details: Iterable[str], writer: RunWriter | None) -> None:
        if countdown.is_reached(point, details):
            if plan.signal == signal.SIGSTOP:
                ledger.add(Note("frozen", "", plan.point))
            os.kill(os.getpid(), plan.signal)
            time.sleep(0.05)  # another thread may get the signal first: this one goes no further meanwhile

    return hit


def _run_again() -> None:
    """Every interrupted tool runs again."""
    _replace(ToolPolicy, "may_run_again", property(lambda policy: True))


def _ignore_lease() -> None:
    """A process neither checks the deadline of its lease, nor reacts when it is told that it was replaced."""
    _replace(Ownership, "check_lease", lambda ownership: None)
    _replace(Ownership, "may_start", lambda ownership: True)
    _replace(Flusher, "lose", lambda flusher, writer, error: None)


def _replace(owner: type, name: str, value: Any) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, value)


MUTATIONS: dict[str, Callable[[], Any]] = {
    "": lambda: None,
    "interrupted tools run again": _run_again,
    "leases are not checked": _ignore_lease,
}
"""What can be broken in the workers of a trial, to see that the checks notice it."""
