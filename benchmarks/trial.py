"""One client over the streams of one wire, in its peer's environment: `python -m benchmarks.trial CLIENT WIRE`.

Prints a line of JSON for each stream and way of reading it. The floor is measured in the same process, in turns.
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
BUDGET = 6.0  # seconds for a stream and a way of reading it
LIMIT = 300  # seconds for all; then the process ends by SIGALRM


def main(name: str, wire: str) -> None:
    signal.alarm(LIMIT)
    results = sys.stdout
    tape = Tape()
    tape.install()
    with redirect_stdout(sys.stderr):  # some clients like to talk
        for stream in standard():
            if stream.wire == wire:
                for way, reads in stream.ways.items():
                    tape.reads = reads
                    row = {"stream": stream.name, "way": way, **_measure(name, stream)}
                    print(json.dumps(row), file=results, flush=True)


def _measure(name: str, stream: Stream) -> dict[str, object]:
    read: clients.Read = getattr(clients, name)(stream)
    answer = read()  # this also warms what the client prepares late
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
