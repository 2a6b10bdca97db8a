"""Hooks around calls, and a tool in two phases, with a process that dies between any two events."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, Context, PendingCall, Prepared, StreamEvent, ToolResult, check, tool
from penstock.log import SQLiteStore
from penstock.log.store import LostRunError
from penstock.log.take_up import read_log
from penstock.run.events import CallReviewed, LogEvent, ToolReturned, ToolStart
from penstock.testing import Crashed, FakeClock, Reply, Scripted, call, crash_at
from tests.runs.test_order_crashes import MOST, POINTS
from tests.scripted_runs import drive, model_on, sync_and_async

CALLS = [
    call("edit", {"path": "a"}), call("write", {"text": "no"}), call("write", {"text": "yes"}),
    call("look", {"city": "Rome"}), call("look", {"city": "Oslo"}),
]  # fmt: skip
CHANGED = 'This program changed the arguments to {"path": "b"}.\n'


class Edited:
    """An edit that a hook changes and asks about, a write that it refuses, and a read that it answers."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()

    @property
    def tools(self) -> list[Any]:
        async def difference(path: str) -> Prepared:
            return Prepared(f"diff of {path}", preview=f"+ {path}")

        @tool(prepare=difference)
        async def edit(path: str, context: Context[Any]) -> str:
            """Edit a file."""
            self.ran[f"edit {path}"] += 1
            return f"secret: {context.prepared}"

        @tool
        async def write(text: str) -> str:
            """Write something down."""
            self.ran[f"write {text}"] += 1
            return f"secret: {text}"

        @tool(read_only=True)
        async def look(city: str) -> str:
            """Look at a city."""
            return f"secret: {city}"

        return [edit, write, look]

    def before(self, pending: PendingCall) -> PendingCall | None:
        self.seen[pending.id] += 1
        match pending.name, [*pending.arguments.values()]:
            case "edit", _:
                return pending.with_arguments({"path": "b"}).ask("It edits.")
            case "write", ["no"]:
                return pending.refuse("no")
            case "look", ["Rome"]:
                return pending.answer("known")
            case _:
                return None

    async def after(self, pending: PendingCall, result: ToolResult) -> str:
        return result.text.replace("secret", "shown")

    def judge(self, results: list[str], log: list[LogEvent], *, is_crashed: bool) -> None:
        assert not any("secret" in text for text in results), results
        assert set(self.ran) <= {"edit b", "write yes"}
        assert max(self.ran.values(), default=0) <= 1
        assert results[1] == "Not run: no."
        assert results[3:] == ["known", "shown: Oslo"]
        verdicts = Counter(event.key for event in log if isinstance(event, CallReviewed))
        assert max(verdicts.values()) == 1  # a verdict in the log is used again
        for kind in (ToolReturned, ToolStart):
            assert max(Counter(event.key for event in log if isinstance(event, kind)).values()) == 1
        if not is_crashed:
            assert max(self.seen.values()) == 1
            assert results[0] == f"{CHANGED}shown: diff of b"
            assert results[2] == "shown: yes"


def run_in(world: Edited, wire: str, mode: str, store: SQLiteStore) -> Any:
    """Start or continue the run; a response that was interrupted is requested again."""

    def answer(request: Any) -> Reply | str:
        return "Done." if request.results else Reply(*CALLS)

    hooks: Any = {"before_call": world.before, "after_call": world.after}
    agent = Agent(model_on(wire, via=Scripted(answer, strict=True)), world.tools, name="hooked", **hooks)

    def decide(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest) and event.call_id in {one.call_id for one in running.waiting}:
            assert event.arguments == {"path": "b"}
            assert event.note.startswith("It edits. ")
            running.decide(event.call_id, True)

    _, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode, decide)
    return run


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
def test_what_hooks_decided_holds_though_the_process_dies_between_two_events(
    wire: str, mode: str, tmp_path: Path
) -> None:
    for point in POINTS:
        for number in range(1, MOST):
            world, path, clock, is_crashed = Edited(), tmp_path / f"{point}{number}.db", FakeClock(), False
            with closing(SQLiteStore(path, clock=clock)) as store, crash_at(point, number=number):
                try:
                    run_in(world, wire, mode, store)
                except (Crashed, LostRunError):  # in sync code, the reader may find the closed log first
                    clock.advance(3600)
                    is_crashed = True
            with closing(SQLiteStore(path, clock=clock)) as store:
                run = run_in(world, wire, mode, store)
                log = [event for _, _, event in read_log(store, "r")]
            assert run.finish_reason == "answered", (point, number, run.why)
            [results] = [[one.text for one in message.results] for message in run.messages if message.results]
            world.judge(results, log, is_crashed=is_crashed)
            assert check(run.messages) == []
            if not is_crashed:
                break
        else:
            raise AssertionError(f"a run visits {point} more than {MOST} times")
