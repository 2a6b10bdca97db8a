"""Fuzzes stored runs: a state that was changed is refused, or its run ends, with a history that `check` accepts.

python -m tests.fuzz.states --seconds 60
python -m tests.fuzz.states --count 30000
python -m tests.fuzz.states --seed 657    # one state again
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable
from copy import deepcopy
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

import penstock
from penstock import Finish, Text, UsageError
from penstock.agent.stored_run import load_run
from penstock.results import Outcome
from penstock.run.commands import AskModel, CallReview, Command, ReviewCall, StartTool
from penstock.run.machine import Run
from penstock.run.stored import snapshot
from tests.fuzz.mutations import odd_value, places
from tests.fuzz.run_player import Player
from tests.fuzz.run_scripts import Script, make_script
from tests.fuzz.run_watch import Broken

MAX_COMMANDS = 5_000
PER_SCRIPT = 40
"""How many changed states are tried of each run: playing it takes longer than changing its states."""
WORDS: list[Any] = [
    "new", "answer", "tools", "over", "held", "checking", "approval", "ready", "starting", "deferred", "running",
    "finished", "step_start", "step_end", "tool_start", "tool_end", "tool_call", "decision", "done",
    "retry", "user", "assistant", "system", "tool", "paused", "look", "write", "ask", "elsewhere", "c1", "1.0",
]  # fmt: skip


class _Recorder(Player):
    """Plays a script, and stores the run after each input."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.stored: list[bytes] = []

    def take(self, what: str, commands: list[Command]) -> None:
        super().take(what, commands)
        self.fold()
        is_old = len(self.stored) % 3 == 0  # as version 1 stored it
        self.stored.append(msgspec.json.encode(snapshot(self.run.state)) if is_old else self.run.dump())


# Changed states.


def make_state(seed: int) -> tuple[Script, Any] | None:
    """A script and a changed state of its run; None if the state was not one to continue with before."""
    chance = Random(seed)
    script, states = _states(seed // PER_SCRIPT)
    state = chance.choice(states) if states else None
    if state is None:
        return None
    state = deepcopy(state)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        chance.choice([_change, _change, _copy, _remove, _repeat, _swap, _everywhere])(chance, state)
    return script, state


_last: tuple[int, tuple[Script, list[Any]]] | None = None


def _states(seed: int) -> tuple[Script, list[Any]]:
    """The states of a run that can be continued."""
    global _last  # noqa: PLW0603  # seeds come in order
    if _last is None or _last[0] != seed:
        script = make_script(seed)
        player = _Recorder(script)
        try:
            player.play()
        except Exception:  # noqa: BLE001  # `runs` looks for that
            pass
        kept = [
            stored for stored in player.stored[:: max(1, len(player.stored) // 8)] if _fault_of(script, stored) is None
        ]
        _last = seed, (script, [json.loads(stored) for stored in kept])
    return _last[1]


def _change(chance: Random, state: Any) -> None:
    container, key = chance.choice(list(places(state)))
    container[key] = chance.choice(WORDS) if chance.random() < 0.4 else odd_value(chance, container[key])


def _copy(chance: Random, state: Any) -> None:
    """A value in another place that has the same key, or in any."""
    (source, name), all_places = chance.choice(list(places(state))), list(places(state))
    same = [place for place in all_places if place[1] == name and isinstance(name, str)]
    container, key = chance.choice(same if same and chance.random() < 0.7 else all_places)
    container[key] = deepcopy(source[name])


def _remove(chance: Random, state: Any) -> None:
    container, key = chance.choice(list(places(state)))
    del container[key]


def _repeat(chance: Random, state: Any) -> None:
    """An item of a list twice: an execution, a message, a part."""
    lists = [container for container, _ in places(state) if isinstance(container, list)]
    if lists:
        items = chance.choice(lists)
        items.insert(chance.randrange(len(items) + 1), deepcopy(chance.choice(items)))


def _swap(chance: Random, state: Any) -> None:
    lists = [container for container, _ in places(state) if isinstance(container, list) and len(container) > 1]
    if lists:
        chance.shuffle(chance.choice(lists))


def _everywhere(chance: Random, state: Any) -> None:
    """A value replaced wherever it stands, as somebody does who knows the format."""
    texts = [container[key] for container, key in places(state) if isinstance(container[key], str | int)]
    old, new = chance.choice(texts), chance.choice([*texts, *WORDS])
    for container, key in places(state):
        if type(container[key]) is type(old) and container[key] == old:
            container[key] = new


# What happens with them.


def fault_of(script: Script, state: Any) -> str | None:
    """What is wrong with how a changed state is treated; None if it is refused, or if its run ends as it should."""
    return _fault_of(script, json.dumps(state, ensure_ascii=True).encode())


def _fault_of(script: Script, stored: bytes) -> str | None:
    try:
        run = load_run(stored, None, _config(script))
    except UsageError:
        return None
    except Exception:  # noqa: BLE001  # that is what is looked for
        return "loading raises: " + traceback.format_exc(limit=-4)
    try:
        _finish(run, script)
        run.dump()
    except Broken as broken:
        return str(broken)
    except Exception:  # noqa: BLE001
        return "the run raises: " + traceback.format_exc(limit=-4)
    problems = penstock.check(run.state.history)
    return f"check refuses the history: {problems[0]}" if problems else None


def _config(script: Script) -> Any:
    """What of the configuration of an agent is needed to load a run."""
    return SimpleNamespace(
        policies=script.policies, limits=script.limits, run_repaired=frozenset(script.run_repaired), output=None,
        models={}, tools=script.policies,
    )  # fmt: skip


def is_refused(script: Script, state: Any) -> bool:
    try:
        load_run(json.dumps(state), None, _config(script))
    except UsageError:
        return True
    return False


def _finish(run: Run, script: Script) -> None:
    """Brings a run to its end: tools succeed, people approve, the model only says something."""
    commands = deque(run.begin())
    for _ in range(MAX_COMMANDS):
        run.state.response.fold(0)
        if commands:
            commands += _carry_out(run, commands.popleft(), script)
        elif run.state.is_over:
            return
        elif run.waiting:
            request = run.waiting[0]
            outcome = Outcome((Text(0, "it is done"),))
            is_deferred = request.kind == "deferred"
            commands += run.provide(request.call_id, outcome) if is_deferred else run.decide(request.call_id, True)
        else:
            raise Broken("a run ends", f"nothing to do in the phase {run.state.phase}")
    raise Broken("a run ends", f"it does not, in the phase {run.state.phase}")


def _carry_out(run: Run, command: Command, script: Script) -> list[Command]:
    match command:
        case AskModel() if run.reached(command):
            chunks = run.chunks([Text(0, "Done."), Finish("stop")])
            run.state.response.fold(0)
            return chunks + run.ended()
        case StartTool() if not command.awaits_reader or run.reached(command):
            return run.tool_done(command.key, Outcome((Text(0, "it is done"),)))
        case ReviewCall():
            policy = script.policies[command.name]
            answer: Any = policy.requires_approval(command.arguments, is_in_text=command.is_in_text)
            review = answer if isinstance(answer, Outcome) else CallReview("ask" if answer else "go")
            return run.call_reviewed(command.key, review)
        case _:
            return []


def first_failures(seeds: Iterable[int]) -> tuple[dict[int, str], Counter[str]]:
    """What is wrong with the states of these seeds, and how many were tried, refused and continued."""
    failures: dict[int, str] = {}
    counts = Counter[str]()
    for seed in seeds:
        made = make_state(seed)
        if made is None:
            continue
        counts["tried"] += 1
        counts["refused" if is_refused(*made) else "continued"] += 1
        if fault := fault_of(*made):
            failures[seed] = fault
    return failures, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    start, seed, total = time.monotonic(), options.seed, Counter[str]()
    if seed is not None:
        sys.stdout.write(f"{first_failures([seed])[0]}\n{json.dumps((make_state(seed) or [0, None])[1], indent=1)}\n")
        return
    first, faults = random.randrange(2**30) * PER_SCRIPT, 0
    while total["tried"] < options.count if options.count else time.monotonic() - start < options.seconds:
        failures, counts = first_failures(range(first, first + PER_SCRIPT))
        total += counts
        first += PER_SCRIPT
        faults += len(failures)
        sys.stdout.writelines(f"seed {seed}: {fault}\n" for seed, fault in failures.items())
        sys.stdout.flush()
    sys.stdout.write(f"{dict(total)}, {faults} faults\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
