"""Forks at every event of random runs, on seven wires: `python -m tests.forks [--runs 100] [--store sqlite]`.

Each run has steps with reads, effects, effects that start early, approvals, deferred calls and agents as tools; some
are cancelled, refused, or left while they wait. Each is forked at each of its events, and the fork is driven to its
end. A model repeats no call that it sees in its history, but makes those again that a fork has dropped.

What must hold: each fork ends, the strict provider accepts every request of it, its history is valid, no effect of a
run happens again in one of its forks, and no row of the parent changes.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock import Agent, Runs, ToolError, tool
from penstock.events import Error
from penstock.log.in_memory import MemoryStore
from penstock.log.sqlite.store import SQLiteStore
from penstock.log.store import RunRow, Store
from penstock.log.take_up import read_log, read_run
from penstock.run.events import Done, ToolEnd, innermost
from penstock.testing import Reply, Scripted, call, say, think
from penstock.testing.reply import ScriptedCall
from penstock.testing.request import ReceivedRequest
from tests.scripted_runs import NAMES, check_history, model_on

KINDS = ("look", "pay", "send", "put", "ask", "hand_over", "research", "broken")
_TAG = re.compile(r"tag-\d+[ab]?")


class Trial(Struct):
    """What was found in the forks of some runs."""

    runs: int = 0
    forks: int = 0
    effects: int = 0
    problems: list[str] = []


class World:
    """The effects of the tools of all runs: how often each has happened."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.tools = self._tools()

    def _tools(self) -> list[Any]:
        effects = self.effects

        @tool(read_only=True)
        def look(tag: str) -> str:
            """Look."""
            return f"seen {tag}"

        @tool
        def pay(tag: str) -> str:
            """Pay."""
            effects[tag] += 1
            return f"paid {tag}"

        @tool(start="call")
        async def send(tag: str) -> str:
            """Send at once."""
            effects[tag] += 1
            return f"sent {tag}"

        @tool(idempotent=True)
        def put(tag: str) -> str:
            """Put."""
            effects[tag] += 1
            return f"put {tag}"

        @tool(approval=True)
        def ask(tag: str) -> str:
            """Ask first."""
            effects[tag] += 1
            return f"asked {tag}"

        @tool
        def broken(tag: str) -> str:
            """Have an effect, and fail."""
            effects[tag] += 1
            raise ToolError("no luck")

        hand_over = {"name": "hand_over", "description": "Elsewhere.", "parameters": {
            "type": "object", "properties": {"tag": {"type": "string"}}, "required": ["tag"]}}  # fmt: skip
        return [look, pay, send, put, ask, broken, hand_over]


class Script:
    """A model that makes the calls of its steps, except for those that its history has."""

    def __init__(self, steps: Sequence[Sequence[ScriptedCall]], ending: Reply | str) -> None:
        self._steps = steps
        self._ending = ending

    def __call__(self, request: ReceivedRequest) -> Reply | str:
        made = set(_TAG.findall(repr(request.body)))
        for step in self._steps:
            if left := [each for each in step if not made.issuperset(_TAG.findall(repr(each)))]:
                return Reply(think("Hm."), say("Let me see what there is. "), *left)
        ending = self._ending
        return "That is all." if isinstance(ending, Reply) and made & {*_TAG.findall(repr(ending))} else ending


class Player:
    """A random run on a store, and its forks."""

    def __init__(self, store: Store, wire: str, seed: int, trial: Trial) -> None:
        self._choose = random.Random(seed)
        self._seed = seed
        self._wire = wire
        self._tags = iter(range(seed * 1000, seed * 1000 + 1000))
        self.store = store
        self.trial = trial
        self.world = World()
        self._inner: dict[str, list[list[ScriptedCall]]] = {}
        steps = [self._step() for _ in range(self._choose.choice([1, 2, 2, 3]))]
        self._refused = f"tag-{next(self._tags)}"  # of a call in a response that a filter ended
        endings: list[Reply | str] = [
            *["All of it is done now, as you asked."] * 3, Reply("It is long and", finish="length"),
            Reply("No. ", call("pay", {"tag": self._refused}), finish="content_filter"),
        ]  # fmt: skip
        self._model = Scripted(Script(steps, self._choose.choice(endings)))
        inner = Agent(model_on(wire, via=Scripted(self._inner_script)), tools=self.world.tools[:2], name="inner")
        research = inner.as_tool("research", "Research.", prompt=_prompt)
        self.agent = Agent(
            model_on(wire, via=self._model), tools=[*self.world.tools, research], name="outer", start=None
        )
        self.runs = Runs(store, {"outer": self.agent})

    def _step(self) -> list[ScriptedCall]:
        return [self._call(self._choose.choice(KINDS)) for _ in range(self._choose.choice([1, 1, 2, 3]))]

    def _call(self, kind: str) -> ScriptedCall:
        return call(kind, {"tag": f"tag-{next(self._tags)}"})

    def _inner_script(self, request: ReceivedRequest) -> Reply | str:
        [tag] = set(_TAG.findall(request.prompt)) or {""}
        return Script([[call("look", {"tag": f"{tag}a"}), call("pay", {"tag": f"{tag}b"})]], f"found {tag}")(request)

    def play(self, every: int = 1) -> None:
        """Drive the run, and fork it at its events."""
        id = f"{self._wire}-{self._seed}"
        self.runs.start("outer", "Please do it all.", run_id=id, thread=f"thread-{self._seed}")
        self._drive(id, self._choose.choice(["yes", "yes", "yes", "no", "leave", "cancel"]))
        effects = dict(self.world.effects)
        before = self._rows(id)
        events = [event for _, _, event in read_log(self.store, id)]
        is_refused = isinstance(events[-1], Done) and events[-1].reason == "refused"
        self.trial.runs += 1
        self.trial.effects += sum(effects.values())
        for number in range(1 + self._seed % every, len(events) + 1, every):
            self.world.effects.clear()
            self._fork(id, number)
            for tag, count in self.world.effects.items():
                if tag in effects or count > 1 or (tag == self._refused and is_refused):
                    self._problem(number, f"the effect of {tag} has happened again, or must not happen")
            if self._rows(id) != before:
                self._problem(number, "the parent has changed")

    def _fork(self, id: str, number: int) -> None:
        self.trial.forks += 1
        fork = self.runs.fork(id, number)
        self._drive(fork, "yes")
        row = self.runs.find(fork)
        done = [event for _, _, event in read_log(self.store, fork)][-1]
        if row.state != "over" or not isinstance(done, Done):
            self._problem(number, f"the fork is {row.state}")
            return
        errors = [event for _, _, event in read_log(self.store, fork) if isinstance(innermost(event), Error)]
        if errors or done.reason not in ("answered", "cancelled", "refused", "length"):
            self._problem(number, f"the fork ended as {done.reason}: {done.why}, {errors}")
        try:
            check_history(list(read_run(self.store, row).state.history))
        except AssertionError as error:
            self._problem(number, f"its history is not valid: {error}")
        self._check_tags(fork, number)

    def _check_tags(self, fork: str, number: int) -> None:
        """Every call of a fork has one result."""
        events = [innermost(event) for _, _, event in read_log(self.store, fork)]
        ends = [event for event in events if isinstance(event, ToolEnd) and event.ending != "discarded"]
        calls = Counter(end.call_id for end in ends)
        if more := [call_id for call_id, count in calls.items() if count > 1]:
            self._problem(number, f"calls with several results: {more}")

    def _drive(self, id: str, policy: str) -> None:
        """Drive a run to its end; approve or decline what waits, cancel it, or leave it."""
        for _ in range(20):
            row = self.runs.drive(id)
            if row.state != "waiting" or policy == "leave":
                return
            if policy == "cancel":
                self.runs.cancel(id)
                continue
            for request in read_run(self.store, row).waiting:
                if request.kind == "approval":
                    self.runs.decide(id, request.call_id, policy == "yes")
                else:
                    self.runs.provide(id, request.call_id, f"done {request.arguments['tag']}")

    def _rows(self, id: str) -> tuple[RunRow, list[Any], list[Any]]:
        """All that the store has of a run."""
        return self.runs.find(id), self.store.read(id, 0, 100_000), list(_raw_rows(self.store, id))

    def _problem(self, number: int, what: str) -> None:
        self.trial.problems.append(f"{self._wire}, seed {self._seed}, event {number}: {what}")


def _prompt(tag: str) -> str:
    """Research.

    Args:
        tag: What to research.
    """
    return f"Research {tag}."


def _raw_rows(store: Store, run_id: str) -> Iterator[Any]:
    """The rows of a run in the tables of a SQLite file, byte by byte."""
    if not isinstance(store, SQLiteStore):
        return
    import sqlite3

    connection = sqlite3.connect(store.path)
    for table, column in {"runs": "id", "events": "run_id", "inputs": "run_id", "starts": "run_id"}.items():
        yield connection.execute(f"SELECT * FROM {table} WHERE {column} = ?", (run_id,)).fetchall()
    yield connection.execute("SELECT heads.* FROM heads JOIN runs ON run = number WHERE id = ?", (run_id,)).fetchall()
    connection.close()


def try_forks(open_store: Callable[[int], Store], seeds: Iterable[int], every: int = 1) -> Trial:
    """Fork random runs at each of their events, or at every third, for example; each has a store of its own."""
    trial, wires = Trial(), [*NAMES]
    for seed in seeds:
        store = open_store(seed)
        Player(store, wires[seed % len(wires)], seed, trial).play(every)
        store.close()
    return trial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--store", choices=["sqlite", "memory"], default="sqlite")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:

        def open_store(seed: int) -> Store:
            return MemoryStore() if options.store == "memory" else SQLiteStore(Path(folder) / f"{seed}.db")

        trial = try_forks(open_store, range(options.first, options.first + options.runs))
    print(  # noqa: T201
        f"{trial.runs} runs on {len(NAMES)} wires, {trial.effects} effects, {trial.forks} forks "
        f"in {time.monotonic() - began:.0f} s: {len(trial.problems)} problems"
    )
    for problem in trial.problems[:40]:
        print(" ", problem)  # noqa: T201
    sys.exit(bool(trial.problems))


if __name__ == "__main__":
    main()
