"""Kills and freezes workers and databases until the time is over, and prints a table of what was seen.

python -m tests.chaos --seconds 600
python -m tests.chaos --seconds 60 --only sqlite --how stop
python -m tests.chaos --only postgres --how kill --mode work --seed 17    # one round again
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from contextlib import ExitStack
from itertools import cycle, product

from tests.chaos.database import Database, database
from tests.chaos.points import points_for
from tests.chaos.round import How, Mode
from tests.chaos.trials import Trial
from tests.chaos.verdict import HEADER
from tests.pgbouncer import NoPooler
from tests.postgres import NoServer, server

STORES = ("sqlite", "postgres", "pgbouncer")
HOW: tuple[How, ...] = ("kill", "stop", "crash", "restart", "restore")
MODES: tuple[Mode, ...] = ("work", "inline")
ON_DATABASE = ("crash", "restart", "restore")
"""What is done to the database, and not to the workers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", choices=STORES)
    parser.add_argument("--how", choices=HOW)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process is left
    try:
        with ExitStack() as stack:
            url = stack.enter_context(server("chaos"))
            databases: dict[str, Database] = {}
            if options.how in (None, *ON_DATABASE):
                databases["postgres"] = stack.enter_context(database(is_pooled=False))
            if options.only in (None, "pgbouncer"):
                try:
                    databases["pgbouncer"] = stack.enter_context(database(is_pooled=True))
                except NoPooler as error:
                    sys.stdout.write(f"{error}\n")
            sys.exit(chaos(url, databases, options))
    except NoServer as error:
        sys.exit(str(error))


def chaos(url: str, databases: dict[str, Database], options: argparse.Namespace) -> bool:
    """Play rounds until the time is over; returns whether anything was wrong."""
    stores, hows, modes = ([one] if one else every for one, every in
                           ((options.only, STORES), (options.how, HOW), (options.mode, MODES)))  # fmt: skip
    trials: dict[tuple[str, How, Mode], Trial] = {}
    for store, how, mode in product(stores, hows, modes):
        if how in ON_DATABASE or store == "pgbouncer":
            hit = databases.get(store)
            if hit is not None and how in ON_DATABASE and mode == "work":
                trials[store, how, mode] = Trial(hit.url, how, mode, database=hit)
        else:
            trials[store, how, mode] = Trial(url if store == "postgres" else "", how, mode)
    try:
        play(trials, options)
    except KeyboardInterrupt:
        pass  # the table has what was seen until then
    sys.stdout.write(f"{HEADER}\n")
    sys.stdout.writelines(f"{trial.verdict.row(' '.join(names))}\n" for names, trial in trials.items())
    return any(trial.verdict.problems for trial in trials.values())


def play(trials: dict[tuple[str, How, Mode], Trial], options: argparse.Namespace) -> None:
    """Play a round of each trial in turn, until the time is over."""
    end = time.monotonic() + options.seconds
    seed = random.randrange(2**32) if options.seed is None else options.seed
    for (store, how, mode), trial in cycle(trials.items()):
        count = len(trial.verdict.problems)
        chance = random.Random(seed)
        points = [] if how in ON_DATABASE else chance.sample(points_for(store, how, mode), 3)
        hits = chance.randrange(2 if how == "restore" else 1, 6)  # before it is restored it is saved
        trial.play(hits=hits, seed=seed, points=points)
        for problem in trial.verdict.problems[count:]:
            sys.stdout.write(f"--only {store} --how {how} --mode {mode} --seed {seed}: {problem}\n")
        sys.stdout.flush()
        seed += 1
        if time.monotonic() > end or options.seed is not None:
            return


if __name__ == "__main__":
    main()
