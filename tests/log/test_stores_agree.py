"""A law of stores: the same operations have the same outcomes in each of them, whatever their order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import astuple, replace

from penstock import PenstockError
from penstock.log import RunRow, Store
from penstock.log.starts.requests import StartRequest, Starts, StoredStart
from penstock.log.store import Batch, Claim, Cutoff, Input, Progress, RunPhase
from tests.budget import sample
from tests.log_stores import Clock, open_store

RUNS = [f"r{number}" for number in range(5)]
AGENTS: list[list[str] | None] = [None, ["x"], ["x", "y"], []]
STATES: list[RunPhase] = [
    "running", "running", "running", "running", "ready", "waiting", "over", "damaged", "parked",
]  # fmt: skip
LARGE = b"A" * 70_000  # media that are stored by hash
STEPS = 200
LEASE = 10.0

Operation = Callable[[Store], Any]


class Player:
    """Carries out random operations on all stores, and compares what they return or raise."""

    def __init__(self, stores: Sequence[Store], clock: Clock, seed: int) -> None:
        self.chance = random.Random(seed)
        self._stores = stores
        self._clock = clock
        self._numbers = count()  # so that no two events are equal, as those of an append that is repeated
        self._requests = count()
        self._trace: list[str] = []

    def step(self) -> None:
        """Carry out an operation, and look at a run."""
        self._clock.now += self.chance.choice([0.25, 0.5, 1.0, 4.0, LEASE + 1])
        if self.chance.random() < 0.03:
            self._clock.now -= 20 * LEASE
        run_id = self.chance.choice(RUNS)
        operations = [
            self.create, self.claim, self.append, self.append, self.renew, self.put, self.list, self.prune, self.move,
            self.start,
        ]  # fmt: skip
        operations += [self.claim_next, self.acquit, self.retry]
        self.chance.choice(operations)(run_id)
        self._compare("find", lambda store: store.find(run_id))
        self._compare("read", lambda store: [store.read(run_id), store.read(run_id, 2, 2)])
        self._compare("inputs", lambda store: store.inputs(RUNS))
        self._compare("claimable", lambda store: store.claimable())
        self._compare("suspects", lambda store: store.suspects())

    def create(self, run_id: str) -> None:
        choose = self.chance.choice
        row = RunRow(
            id=run_id, agent=choose("xy"), thread=choose(["", "t"]), tenant=choose(["", "T"]), version=choose([1, 1, 2])
        )
        start, owner = choose([b'{"a":1}', b'{"a":2}']), choose(["", "one"])
        request = choose([None, self._request()])
        self._compare(
            f"create {row} {start!r} {owner} {request}",
            lambda store: store.create(row, start, owner=owner, request=request),
        )

    def _request(self) -> StartRequest:
        choose = self.chance.choice
        return StartRequest(
            id=f"s{next(self._requests)}", tenant=choose(["", "T"]), key=choose(["", "", "k1", "k2"]),
            caller=choose("cd"), body=choose("bB"), seconds=choose([0.0, 6.0]),
        )  # fmt: skip

    def start(self, run_id: str) -> None:
        """Carry out an operation on the requests of runs."""
        choose, request = self.chance.choice, self._request()
        latest = int(request.id[1:])
        id = f"s{choose(range(max(0, latest - 12), latest + 1))}"
        known = self._stores[0].starts.find(id)
        operations: dict[str, Callable[[Starts], Any]] = {
            "add": lambda starts: starts.add(request, run_id, 3),
            "renew": lambda starts: starts.renew([id, "s1"], request.seconds),
            "reopen": lambda starts: starts.reopen(known, 6.0) if known else None,
            "answer": lambda starts: starts.answer(id),
            "answer if lost": lambda starts: starts.answer(id, only_lost=True),
            "remove": lambda starts: starts.remove(id),
        }
        name = choose([*operations, "add", "add"])
        self._compare(f"{name} {id} {request}", lambda store: operations[name](store.starts))
        for seen in (
            lambda starts: [starts.find(f"s{number}") for number in range(latest - 12, latest + 1)],
            lambda starts: [starts.find_key(tenant, key) for tenant in ("", "T") for key in ("", "k1", "k2")],
            lambda starts: [starts.unanswered(tenant, caller) for tenant in ("", "T") for caller in "cd"],
        ):
            self._compare("starts", lambda store, seen=seen: seen(store.starts))  # type: ignore[misc]

    def claim(self, run_id: str) -> None:
        wanted, agents = self.chance.choice([None, run_id]), self.chance.choice(AGENTS)
        self._compare(f"claim {wanted} {agents}", lambda store: store.claim("two", run_id=wanted, agents=agents))

    def claim_next(self, run_id: str) -> None:
        row = self._stores[0].find(run_id) or RunRow(id=run_id)
        group, owner = self.chance.choice([None, "", "", row.suspect]), self.chance.choice(["two", "three"])
        agents, limit = self.chance.choice(AGENTS), self.chance.choice([1, 2, 5])
        name = f"claim_next {owner} {group} {agents} {limit}"
        self._compare(name, lambda store: store.claim_next(owner, agents=agents, limit=limit, group=group))

    def acquit(self, run_id: str) -> None:
        row = self._stores[0].find(run_id) or RunRow(id=run_id)
        self._compare(f"acquit {run_id}", lambda store: store.acquit([(run_id, row.epoch)]))

    def retry(self, run_id: str) -> None:
        self._compare(f"retry {run_id}", lambda store: store.retry(run_id))

    def append(self, run_id: str) -> None:
        choose = self.chance.choice
        row = self._stores[0].find(run_id) or RunRow(id=run_id)
        epoch, seq = row.epoch + choose([0] * 8 + [-1, 1]), row.seq + choose([0] * 8 + [-1, 1])
        state = choose(STATES)
        wake_in = choose([None, 5.0]) if state == "waiting" else None
        bodies = [b'{"number":%d}' % next(self._numbers) for _ in range(choose(range(4)))]
        bodies += choose([[]] * 15 + [[b'{"number":%d,"data":"%b"}' % (next(self._numbers), LARGE)]])
        taken, is_refused = choose(range(3)), choose([True, False])
        in_tool, progress = choose([None, True, False]), choose(get_args(Progress))

        def append(store: Store) -> list[bool]:
            inputs = [input.number for input in store.inputs([run_id])][:taken]
            used = ((), inputs) if is_refused else (inputs, ())
            batch = Batch(
                run_id, epoch, seq, bodies, state, used[0], wake_in, used[1], in_tool=in_tool, progress=progress
            )
            return store.append([batch], durable=False)

        self._compare(f"append {run_id} {epoch} {seq} {len(bodies)} {state} {wake_in} {taken} {is_refused}", append)

    def renew(self, run_id: str) -> None:
        row = self._stores[0].find(run_id) or RunRow(id=run_id)
        epoch = row.epoch + self.chance.choice([0, 0, 1])
        self._compare(f"renew {run_id} {epoch}", lambda store: store.renew([(run_id, epoch)]))

    def put(self, run_id: str) -> None:
        input = Input(
            run_id, self.chance.choice(["decide", "provide", "say", "cancel"]), self.chance.choice("ab"), b"{}"
        )
        self._compare(f"put {input}", lambda store: store.put(input))

    def list(self, _: str) -> None:
        choose = self.chance.choice
        filters: dict[str, Any] = {
            "state": choose([None, "ready", "running", "waiting", "over"]), "agent": choose([None, "x"]),
            "thread": choose([None, "t"]), "tenant": choose([None, "T"]), "prefix": choose(["", "r", "r1"]),
            "limit": choose([1, 3, 100]),
        }  # fmt: skip
        self._compare(f"list {filters}", lambda store: store.list(**filters))

    def prune(self, _: str) -> None:
        before = self._clock.now - self.chance.choice([0, 5, 20])
        self._compare(f"prune {before}", lambda store: store.prune(before=before))

    def move(self, run_id: str) -> None:
        """Delete runs whose conversations are old, and add one of them again."""
        now, choose = self._clock.now, self.chance.choice
        cutoff = Cutoff(now - choose([0, 20]), choose([{}, {"T": now - choose([0, 5, 40])}, {"T": 0.0}]))
        limit = choose([1, 2, 100])
        self._compare(f"prunable {cutoff} {limit}", lambda store: store.prunable(cutoff, limit=limit))
        rows, after = self._stores[0].prunable(cutoff, limit=limit)
        self._compare("next", lambda store: store.prunable(cutoff, after=after, limit=limit))
        events = {row.id: self._stores[0].read(row.id) for row in rows}
        self._compare("delete", lambda store: store.delete([*events, run_id, "unknown"], cutoff))
        for row in rows[: choose([0, 1])]:
            input = Input(row.id, "say", "moved", b"{}", at=now)
            ready = replace(row, state="waiting", wake_at=now + 5)
            added = (row, ()) if choose([True, False]) else (ready, (input,))
            start = StoredStart(
                id=f"moved {next(self._requests)}", tenant=row.tenant, key=choose(["", "k1", "k2"]), caller="c",
                body="b", run_id=row.id, seq=0, at=now, open_until=0.0, answered=True, is_open=False,
            )  # fmt: skip
            starts = choose([(), (start,)])
            self._compare(f"add {added}", lambda store: store.add(added[0], events[row.id], added[1], starts))  # noqa: B023
            self._compare("its starts", lambda store: store.starts.of_run(row.id))  # noqa: B023
            self._compare("add again", lambda store: store.add(row, events[row.id]))  # noqa: B023
            self._compare("add another", lambda store: store.add(row, [*events[row.id][:-1], (1, 1.0, b"{}")]))  # noqa: B023

    def _compare(self, name: str, operation: Operation) -> None:
        outcomes = [_outcome(store, operation) for store in self._stores]
        self._trace.append(name)
        assert all(outcome == outcomes[0] for outcome in outcomes), (self._trace[-12:], outcomes)


def _outcome(store: Store, operation: Operation) -> Any:
    try:
        return _plain(operation(store))
    except PenstockError as error:
        return type(error).__name__


def _plain(value: Any) -> Any:
    """What must be the same: the numbers of inputs and the deadlines of this process need not."""
    match value:
        case Claim():
            return value.run_id, value.agent, value.epoch, value.seq, value.previous_state
        case Input():
            return value.run_id, value.kind, value.key, bytes(value.body), value.at
        case RunRow() | StoredStart():
            return astuple(value)
        case list() | tuple():
            return [_plain(one) for one in value]
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case _:
            return value


@pytest.mark.parametrize("seed", sample(range(1000), few=3))
def test_all_stores_agree(seed: int, tmp_path: Path, postgres_url: str) -> None:
    clock = Clock()
    with ExitStack() as stack:
        stores = [
            stack.enter_context(open_store(kind, tmp_path, postgres_url, lease=LEASE, clock=clock))
            for kind in ("memory", "sqlite", "postgres")
        ]
        player = Player(stores, clock, seed)
        for _ in range(STEPS):
            player.step()
