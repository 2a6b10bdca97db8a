"""One client over the streams of one wire, in its peer's environment: `python -m benchmarks.trial CLIENT WIRE`.

Prints a line of JSON per stream and chunk size. The floor is measured in the same process, in turns.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import redirect_stdout
from functools import partial

from benchmarks import clients
from benchmarks.clock import race
from benchmarks.floor import floor
from benchmarks.streams import Stream, standard
from benchmarks.transport import Tape

ROUNDS = 15
BUDGET = 6.0  # seconds per stream and chunk size
LIMIT = 300  # seconds in total, then SIGALRM ends the process


def main(name: str, wire: str) -> None:
    signal.alarm(LIMIT)
    results = sys.stdout
    tape = Tape()
    tape.install()
    with redirect_stdout(sys.stderr):  # some clients print
        for stream in standard():
            if stream.wire == wire:
                for way, reads in stream.ways.items():
                    tape.reads = reads
                    row = {"stream": stream.name, "way": way, **_measure(name, stream)}
                    print(json.dumps(row), file=results, flush=True)


def _measure(name: str, stream: Stream) -> dict[str, object]:
    read: clients.Read = getattr(clients, name)(stream)
    answer = read()  # this also warms up lazy imports
    best = race({"floor": partial(floor, stream.body), "client": read}, rounds=ROUNDS, budget=BUDGET)
    count = len(stream.frames)
    return {
        "is_right": None if answer is None else stream.is_answered_by(*answer),
        "floor_micros": best["floor"] / count * 1e6,
        "client_micros": best["client"] / count * 1e6,
        "ratio": best["client"] / best["floor"],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
