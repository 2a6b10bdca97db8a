"""A real server whose log loses the end of a run, as after a crash of its database. It prints its port.

The run `r` is in the thread `t`. `POST /write/NAME` adds text with this name, `POST /lose` forgets all but the first
events and gives the run to another worker, `POST /end` ends it, and `POST /cut` cuts the connections of its readers.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

from msgspec.structs import replace

from penstock import Agent, Done, Text, Usage
from penstock.asgi.server import listen, run_server
from penstock.log.bodies import body_of
from penstock.log.in_memory import MemoryStore
from penstock.log.store import Batch, RunRow
from penstock.messages import user
from penstock.run.events import LogEvent, RunStart, StepEnd, StepStart
from penstock.serve import ServerLimits, app

KEPT = 3
"""How many events the log keeps: the start, the claim and the first step."""


class LossyRun:
    """A run that this process writes itself."""

    def __init__(self) -> None:
        self.store = MemoryStore(lease=3600)
        row = RunRow(id="r", agent="desk", thread="t")
        self.store.create(row, body_of(RunStart((user("Tell me a story."),), "desk")))
        self.take()
        self.write(StepStart(1))

    def take(self) -> None:
        claim = self.store.claim("worker", run_id="r")
        assert claim is not None
        self._epoch, self._seq = claim.epoch, claim.seq

    def write(self, *events: LogEvent) -> None:
        bodies = [body_of(event) for event in events]
        state: Any = "over" if isinstance(events[-1], Done) else "running"
        assert self.store.append([Batch("r", self._epoch, self._seq, bodies, state)], durable=False) == [True]
        self._seq += len(bodies)

    def lose(self) -> None:
        run = self.store._runs["r"]
        del run.events[KEPT:]
        run.row = replace(run.row, seq=KEPT, epoch=0, state="ready", lease_until=0.0)
        self.take()

    def change(self, name: str) -> None:
        match name.split("/"):
            case ["write", word]:
                for number in range(6):
                    self.write(Text(0, f"{word} {number}. "))
            case ["lose"]:
                self.lose()
            case ["end"]:
                output = "The end."
                self.write(Text(0, output), StepEnd(1, "stop"), Done("answered", output, (), Usage()))
            case _:
                raise ValueError(name)


def main() -> None:
    run, limits = LossyRun(), ServerLimits(keep_alive_seconds=0.5)
    served = app([Agent("sim:demo", name="desk")], log=run.store, limits=limits, shutdown_seconds=0.2)
    streams: set[asyncio.Task[None]] = set()

    async def lossy(scope: Any, receive: Any, send: Any) -> None:
        path, method = scope.get("path", ""), scope.get("method", "")
        if method == "POST" and path.startswith(("/write/", "/lose", "/end", "/cut")):
            if path == "/cut":
                for task in streams:
                    task.cancel()
            else:
                run.change(path[1:])
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        if path.endswith("/events"):
            streams.add(task)
        try:
            await served(scope, receive, send)
        finally:
            streams.discard(task)

    with listen("127.0.0.1", 0) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        run_server(lossy, listener, limits, on_stop=served.context.feeds.close)


if __name__ == "__main__":
    main()
