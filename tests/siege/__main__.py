"""Attack the servers, with a good client beside each attack, and print what that client noticed.

python -m tests.siege                       # every attack, five minutes
python -m tests.siege --only "empty lists"  # the attacks with these words in their names
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.siege.attacks import by_name
from tests.siege.sieges import siege


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="attacks with these words in their names")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long an attack takes")
    options = parser.parse_args()
    names = [name for name in by_name() if options.only in name]
    if not names:
        sys.exit(f"there is no attack with {options.only!r} in its name: {', '.join(by_name())}")
    wrong = 0
    for kind in ("serve", "gateway"):
        chosen = [name for name in names if name.startswith(kind)]
        found = asyncio.run(siege(kind, chosen, options.seconds)) if chosen else []
        wrong += sum(bool(problems) for _, _, problems in found)
    sys.stdout.write(f"{len(names)} attacks, {wrong} with a problem\n")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
