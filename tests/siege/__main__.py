"""Attack the servers, with a good client beside each attack, and print what that client noticed.

python -m tests.siege                       # every attack, five minutes
python -m tests.siege --short               # a few of them, without a bound on the time of the good client
python -m tests.siege --only "empty lists"  # the attacks with these words in their names

A row is: the attack, the p99 of the good client (and without the attack), refusals, the longest time for which the
event loop worked in one piece, in CPU of its thread, and the memory above idle. To add an attack, add a row to
`ATTACKS` in `attacks.py`; one by an upstream is a row of `MODELS` in `upstream.py` and one in `attacks.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.siege.attacks import SHORT, by_name
from tests.siege.sieges import Bounds, show, siege
from tests.siege.totals import totals

BUSY = Bounds(p99=15.0, longest=0.25)
"""On a machine that does other work too, CPU takes longer, and time is not measured at all."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="attacks with these words in their names")
    parser.add_argument("--seconds", type=float, default=2.5, help="how long an attack takes")
    parser.add_argument("--short", action="store_true", help="a few attacks, of a second each")
    options = parser.parse_args()
    names = [*SHORT] if options.short else [name for name in by_name() if options.only in name]
    if not names:
        sys.exit(f"there is no attack with {options.only!r} in its name: {', '.join(by_name())}")
    wrong = run(names, 1.0 if options.short else options.seconds, BUSY if options.short else Bounds())
    if not options.only:
        for kind in ("serve", "gateway"):
            wrong += asyncio.run(totals(kind, is_short=options.short))
    show(f"{len(names)} attacks, {len(wrong)} problems" + "".join(f"\n  {problem}" for problem in wrong))
    sys.exit(bool(wrong))


def run(names: list[str], seconds: float, bounds: Bounds) -> list[str]:
    """What was wrong in these attacks."""
    wrong: list[str] = []
    for kind in ("serve", "gateway"):
        chosen = [name for name in names if name.startswith(kind)]
        found = asyncio.run(siege(kind, chosen, seconds, bounds)) if chosen else []
        wrong += [f"{name}: {', '.join(problems)}" for name, _, problems in found if problems]
    return wrong


if __name__ == "__main__":
    main()
