"""Runs with a log that are started and read in one process: `agent.stream(..., log=store, run_id=…)`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Agent,
    AgentRun,
    AsyncAgentRun,
    Context,
    Done,
    LostRunError,
    Model,
    RunExistsError,
    RunResult,
    Runs,
    StreamEvent,
    Tool,
    ToolEnd,
    ToolStart,
    UsageError,
    check,
    tool,
)
from penstock.log import SQLiteStore, Store
from penstock.log.start import MAX_TEXT
from penstock.log.take_up import read_log
from penstock.run.events import is_for_readers
from penstock.testing import Reply, Scripted, call

Answers = Reply | str


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = SQLiteStore(tmp_path / "runs.db", lease=5.0)
    yield store
    store.close()


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Readers:
    """Reads runs in plain or in async code."""

    def __init__(self, mode: str) -> None:
        self.is_async = mode == "async"

    def read(self, agent: Agent, *args: Any, on: Any = None, **options: Any) -> tuple[Any, list[StreamEvent]]:
        """Read a run; `on` is called with the run when it has begun, and with each event; True leaves it.

        The events are returned without the messages with results, which are not in a log.
        """
        events: list[StreamEvent] = []
        on = on or (lambda run, event: False)

        def plain() -> AgentRun:
            with agent.stream(*args, **options) as run:
                on(run, None)
                for event in run:
                    events.append(event)
                    if on(run, event):
                        break
            return run

        async def on_loop() -> AsyncAgentRun:
            async with agent.astream(*args, **options) as run:
                on(run, None)
                async for event in run:
                    events.append(event)
                    if on(run, event):
                        break
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
            return run

        run = asyncio.run(on_loop()) if self.is_async else plain()
        return run, [event for event in events if event.type != "tool_results"]

    def run(self, agent: Agent, *args: Any, **options: Any) -> RunResult:
        return asyncio.run(agent.arun(*args, **options)) if self.is_async else agent.run(*args, **options)


@pytest.fixture
def readers(mode: str) -> Readers:
    return Readers(mode)


@tool(read_only=True)
def look(city: str) -> str:
    """Look."""
    return f"{city} is sunny"


@tool(approval=True)
def pay(context: Context[Any], amount: int) -> str:
    """Pay."""
    return f"{context.deps} paid {amount}"


def agent_of(*answers: Answers, tools: tuple[Tool[..., Any], ...] = (look, pay), **options: Any) -> Agent:
    return Agent(Model("openai:gpt-5", via=Scripted(list(answers))), tools=tools, name="support", **options)


LOOK = (Reply("Let me look.", call("look", {"city": "Rome"})), "Sunny.")


def log_of(store: Store, run_id: str) -> list[Any]:
    return [event for _, _, event in read_log(store, run_id)]


def shown(store: Store, run_id: str) -> list[Any]:
    """The events of a log that a reader gets."""
    logged = "run_start", "taken", "waiting"
    return [event for event in log_of(store, run_id) if is_for_readers(event) and event.type not in logged]


def state_of(store: Store, run_id: str, *wanted: str) -> str:
    """The state of a run, as soon as it is one of these."""
    end = time.monotonic() + 30
    while True:
        row = store.find(run_id)
        assert row is not None
        if row.state in wanted or time.monotonic() > end:
            return row.state
        time.sleep(0.01)


def test_a_run_with_a_log_gives_the_events_of_one_without(store: Store, readers: Readers) -> None:
    run, events = readers.read(agent_of(*LOOK), "Weather?", log=store, run_id="r", thread="t", tenant="acme")
    other, same = readers.read(agent_of(*LOOK), "Weather?")
    assert run.id == "r"
    assert Counter(event.type for event in events) == Counter(event.type for event in same)
    assert (run.output, run.messages, run.usage) == (other.output, other.messages, other.usage)
    assert [event.type for event in log_of(store, "r")] == ["run_start", "taken", *(event.type for event in events)]
    row = store.find("r")
    assert row is not None
    assert (row.agent, row.thread, row.tenant, row.state) == ("support", "t", "acme", "over")


def test_the_same_id_and_start_is_the_run_that_exists(store: Store, readers: Readers) -> None:
    first, events = readers.read(agent_of(*LOOK), "Weather?", log=store, run_id="r")
    run, again = readers.read(agent_of(), "Weather?", log=store, run_id="r")  # whose model has no answers
    assert again[:-1] == shown(store, "r")[:-1]
    assert again[-1] == events[-1]
    assert (run.output, run.messages, run.usage, run.done) == (first.output, first.messages, first.usage, first.done)
    result = readers.run(agent_of(), "Weather?", log=store, run_id="r")
    assert (result.output, result.messages, result.reason, result.id) == ("Sunny.", first.messages, "answered", "r")
    with pytest.raises(RunExistsError):
        readers.read(agent_of(), "Something else?", log=store, run_id="r")
    with pytest.raises(RunExistsError):
        readers.run(agent_of(), "Weather?", log=store, run_id="r", meta={"user": 2})


def test_a_log_needs_a_name_and_its_options_a_log(store: Store, readers: Readers) -> None:
    agent = Agent(Model("openai:gpt-5", via=Scripted([])))
    with pytest.raises(UsageError, match="needs the name of its agent"):
        readers.run(agent, "Go.", log=store)
    with pytest.raises(UsageError, match="run_id= needs a log"):
        readers.run(agent, "Go.", run_id="r")
    with pytest.raises(UsageError, match="log must be a store"):
        readers.run(agent_of(), "Go.", log="runs.db")
    with pytest.raises(UsageError, match="meta must be JSON"):
        readers.run(agent_of(), "Go.", log=store, meta=object())
    with pytest.raises(UsageError, match="meta must be JSON"):
        readers.run(agent_of(), "Go.", log=store, meta="\ud800")
    with pytest.raises(UsageError, match="tools"):
        readers.run(agent_of(), "Go.", log=store, tools=[look])
    with pytest.raises(UsageError, match="only a run with a log"):
        readers.read(agent_of("Hi."), "Go.", on=lambda run, event: run.detach())


@pytest.mark.parametrize("text", ["a\nb", "a\0b", "\ud800", "x" * (MAX_TEXT + 1), 7])
def test_what_not_every_store_can_keep_is_refused(store: Store, text: Any) -> None:
    runs = Runs(store, {"a": agent_of()})
    for option in ("run_id", "thread", "tenant"):
        with pytest.raises(UsageError, match=f"{option} must be one line of text, at most {MAX_TEXT} characters long"):
            agent_of().run("Go.", log=store, **{option: text})
        with pytest.raises(UsageError, match=f"{option} must be one line of text"):
            runs.start("a", "Go.", **{option: text})
    assert runs.start("a", "Go.", run_id="x" * MAX_TEXT, thread="chat 5") == "x" * MAX_TEXT


def test_a_run_that_was_left_is_cancelled_in_its_log(store: Store, readers: Readers) -> None:
    readers.read(agent_of(*LOOK), "Go.", log=store, run_id="r", on=lambda _, event: event and event.type == "text")
    assert state_of(store, "r", "over") == "over"
    assert log_of(store, "r")[-1].reason == "cancelled"


def test_a_run_that_waits_is_decided_in_its_log_and_continued(store: Store, readers: Readers) -> None:
    answers = Reply(call("pay", {"amount": 5}, id="c")), "Paid."
    run, events = readers.read(agent_of(*answers), "Pay.", log=store, run_id="r", deps="Ada")
    assert events[-1].type == "done"
    assert run.finish_reason == "paused"
    assert [request.call_id for request in run.waiting] == ["c"]
    paused, again = readers.read(agent_of(), "Pay.", log=store, run_id="r", deps="Ada")
    assert [event.type for event in again] == [event.type for event in events]
    assert paused.waiting == run.waiting

    def decide(run: Any, event: StreamEvent | None) -> None:
        for request in run.waiting if event is None else ():
            run.decide(request.call_id, True)

    run, again = readers.read(agent_of("Paid."), "Pay.", log=store, run_id="r", deps="Ada", on=decide)
    assert again[: len(events) - 1] == shown(store, "r")[: len(events) - 1]
    assert (run.output, run.finish_reason) == ("Paid.", "answered")
    assert next(event for event in again if isinstance(event, ToolEnd)).result.text.endswith("Ada paid 5")
    assert check(run.messages) == []


def test_a_paused_run_can_be_decided_where_it_paused(store: Store, readers: Readers) -> None:
    answers = Reply(call("pay", {"amount": 5}, id="c")), "Paid."
    run, _ = readers.read(agent_of(*answers), "Pay.", log=store, run_id="r", deps="Ada")
    run.decide("c", False, reason="too much")
    result = readers.run(agent_of("A pity."), "Pay.", log=store, run_id="r", deps="Ada")
    assert result.output == "A pity."
    assert any(event.type == "decision" for event in log_of(store, "r"))


def test_a_second_answer_to_a_paused_run_is_an_error_and_the_first_one_counts(store: Store, readers: Readers) -> None:
    agent = agent_of(Reply(call("pay", {"amount": 5}, id="c")), "Paid.")
    run, _ = readers.read(agent, "Pay.", log=store, run_id="r", deps="Ada")
    assert Runs(store, {"desk": agent}).decide("r", "c", False, reason="too much")  # in another process
    with pytest.raises(UsageError, match="the call 'c' was answered already, and only the first answer counts"):
        run.decide("c", True)
    run.cancel("enough")
    run.cancel("enough")  # one is as good as two
    readers.read(agent_of("A pity."), "Pay.", log=store, run_id="r", deps="Ada")
    [end] = [event for event in log_of(store, "r") if isinstance(event, ToolEnd)]
    assert end.ending == "declined"


def test_a_paused_result_has_the_id_to_go_on_with(store: Store, readers: Readers) -> None:
    result = readers.run(agent_of(Reply(call("pay", {"amount": 5}, id="c"))), "Pay.", log=store)
    assert (result.reason, result.state, len(result.waiting)) == ("paused", b"", 1)
    assert state_of(store, result.id, "waiting") == "waiting"


def test_the_run_of_an_owner_that_died_is_taken_over(tmp_path: Path, readers: Readers) -> None:
    store = SQLiteStore(tmp_path / "short.db", lease=0.5)
    runs = Runs(store, {"support": agent_of()})
    runs.start("support", "Weather?", run_id="r")
    assert store.claim("an owner that dies", run_id="r")
    run, events = readers.read(agent_of(*LOOK), "Weather?", log=store, run_id="r")
    assert run.output == "Sunny."
    assert [event.type for event in events] == [
        e.type for e in log_of(store, "r") if e.type not in ("run_start", "taken")
    ]
    store.close()


def test_the_run_of_another_owner_is_followed(store: Store, readers: Readers) -> None:
    may_go_on = threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        assert may_go_on.wait(30)
        return "waited"

    agent = agent_of(Reply("Let me wait.", call("wait")), "Done.", tools=(wait,))
    runs = Runs(store, {"support": agent})
    runs.start("support", "Wait.", run_id="r")
    worker = threading.Thread(target=runs.drive, args=("r",))
    worker.start()
    assert state_of(store, "r", "running") == "running"
    run, events = readers.read(
        agent_of(), "Wait.", log=store, run_id="r",
        on=lambda _, event: may_go_on.set() if isinstance(event, ToolStart) else None,
    )  # fmt: skip
    worker.join(30)
    assert events[:-1] == shown(store, "r")[:-1]
    assert (run.output, run.finish_reason) == ("Done.", "answered")
    assert check(run.messages) == []


def test_a_follower_cancels_the_run_of_its_owner(store: Store, readers: Readers) -> None:
    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "late"

    runs = Runs(store, {"support": agent_of(Reply("Let me wait.", call("wait")), tools=(wait,))})
    runs.start("support", "Wait.", run_id="r")
    worker = threading.Thread(target=runs.drive, args=("r",))
    worker.start()
    assert state_of(store, "r", "running") == "running"
    run, _ = readers.read(
        agent_of(), "Wait.", log=store, run_id="r",
        on=lambda run, event: isinstance(event, ToolStart) and run.cancel("enough"),
    )  # fmt: skip
    worker.join(30)
    assert (run.finish_reason, run.done.why) == ("cancelled", "enough")


def test_a_follower_who_leaves_does_not_end_the_run(store: Store, readers: Readers) -> None:
    Runs(store, {"support": agent_of()}).start("support", "Go.", run_id="r")
    claim = store.claim("somebody", run_id="r")
    assert claim is not None

    def leave(run: Any, event: StreamEvent | None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        readers.read(agent_of(), "Go.", log=store, run_id="r", on=leave)
    row = store.find("r")
    assert row is not None
    assert (row.state, row.owner, row.seq) == ("running", "somebody", claim.seq)


def test_callbacks_and_line_breaks_go_on_after_what_was_read_from_the_log(store: Store, readers: Readers) -> None:
    text: list[str] = []

    async def on_text(piece: str) -> None:
        text.append(piece)

    answers = Reply("One moment.", call("pay", {"amount": 5}, id="c")), "Paid."
    run, _ = readers.read(agent_of(*answers), "Pay.", log=store, run_id="r")
    run.decide("c", True)
    readers.read(agent_of("Paid.", on_text=on_text, separate_text=True), "Pay.", log=store, run_id="r")
    assert "".join(text) == "One moment.\nPaid."


def test_a_detached_run_goes_on_without_its_reader(store: Store, readers: Readers) -> None:
    def leave(run: Any, event: StreamEvent | None) -> bool:
        run.detach()
        return event is not None and event.type == "text"

    _, events = readers.read(agent_of(*LOOK), "Go.", log=store, run_id="r", on=leave)
    assert events[-1].type == "text"
    assert state_of(store, "r", "over") == "over"
    run, events = readers.read(agent_of(), "Go.", log=store, run_id="r")
    assert (run.output, run.finish_reason) == ("Sunny.", "answered")
    assert sum(event.type == "taken" for event in log_of(store, "r")) == 1


def test_a_detached_run_goes_on_after_an_exception_of_its_reader(store: Store, readers: Readers) -> None:
    def fail(run: Any, event: StreamEvent | None) -> None:
        run.detach()
        if event is not None:
            raise ZeroDivisionError

    if readers.is_async:

        async def read() -> None:
            async with agent_of(*LOOK).astream("Go.", log=store, run_id="r") as run:
                async for event in run:
                    fail(run, event)

        async def scenario() -> None:
            with pytest.raises(ZeroDivisionError):
                await read()
            await asyncio.to_thread(state_of, store, "r", "over")

        asyncio.run(scenario())
    else:
        with pytest.raises(ZeroDivisionError):
            readers.read(agent_of(*LOOK), "Go.", log=store, run_id="r", on=fail)
    assert state_of(store, "r", "over") == "over"
    assert log_of(store, "r")[-1].reason == "answered"


def test_a_detached_run_goes_on_when_the_task_of_its_reader_is_cancelled(store: Store) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        started.set()
        await may_end.wait()
        return "waited"

    agent = agent_of(Reply(call("wait")), "Done.", tools=(wait,))

    async def request() -> None:
        async with agent.astream("Go.", log=store, run_id="r") as run:
            run.detach()
            async for _ in run:
                pass

    async def scenario() -> None:
        async with asyncio.timeout(30):
            client = asyncio.create_task(request())
            await started.wait()
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
            may_end.set()
            await asyncio.to_thread(state_of, store, "r", "over")

    asyncio.run(scenario())
    done = log_of(store, "r")[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.output) == ("answered", "Done.")


# Since 3.13 Python warns of a generator that a reader has left, if its loop is closed before it could close it.
LEFT = pytest.mark.filterwarnings("ignore:coroutine method 'aclose' of 'LoggedAsyncDriver._events'")


@pytest.mark.parametrize("is_closed_hard", [False, pytest.param(True, marks=LEFT)])
def test_a_detached_run_whose_loop_ends_is_given_back(tmp_path: Path, is_closed_hard: bool) -> None:
    store = SQLiteStore(tmp_path / "short.db", lease=1.0)
    started = asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        started.set()
        if not is_over:
            await asyncio.sleep(60)
        return "waited"

    is_over = False
    agent = agent_of(Reply(call("wait")), "Done.", tools=(wait,))

    async def scenario() -> None:
        async with asyncio.timeout(30), agent.astream("Go.", log=store, run_id="r") as run:
            run.detach()
            async for event in run:
                if isinstance(event, ToolStart):
                    await started.wait()
                    break

    if is_closed_hard:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(scenario())
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
    else:
        asyncio.run(scenario())
    assert state_of(store, "r", "ready") == "ready"
    assert not any(isinstance(event, Done | ToolEnd) for event in log_of(store, "r"))
    is_over = True
    run, _ = Readers("sync").read(agent_of("Done.", tools=(wait,)), "Go.", log=store, run_id="r")
    assert (run.output, run.finish_reason) == ("Done.", "answered")
    store.close()


PROGRAM = """
import asyncio, os, sys, time
import penstock
from penstock.log.sqlite.store import SQLiteStore
from penstock.testing import Reply, Scripted, call

path, ledger, mode = sys.argv[1:]


def note(text):
    with open(ledger, "ab", buffering=0) as file:
        file.write(f"{text}\\n".encode())


@penstock.tool
def pay(context: penstock.Context) -> str:
    note(f"pay {context.key}")
    time.sleep(60 if mode.endswith("stuck") else 0)
    return "paid"


def answer(request):
    results = sum(item.get("type") == "function_call_output" for item in request.body["input"])
    return "Done." if results else Reply("Let me see.", call("pay"))


agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(answer)), tools=[pay], name="agent")
options = {"log": SQLiteStore(path, lease=1.0), "run_id": "r"}


async def main():
    print((await agent.arun("Go.", **options)).output, flush=True)


if mode.startswith("detached"):
    with agent.stream("Go.", **options) as run:
        run.detach()
        for event in run:
            if event.type == "tool_start":
                break
    while not os.path.exists(ledger):
        time.sleep(0.01)
elif mode.startswith("sync"):
    print(agent.run("Go.", **options).output, flush=True)
else:
    asyncio.run(main())
"""


def program(path: Path, ledger: Path, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), str(ledger), mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_the_same_program_goes_on_after_it_was_killed(tmp_path: Path, mode: str) -> None:
    path, ledger = tmp_path / "runs.db", tmp_path / "ledger"
    first = program(path, ledger, f"{mode} stuck")
    end = time.monotonic() + 30
    while not (ledger.exists() and ledger.read_text()) and time.monotonic() < end:
        time.sleep(0.01)
    first.kill()
    first.communicate()
    second = program(path, ledger, mode)
    assert second.communicate(timeout=30)[0] == "Done.\n"
    assert ledger.read_text() == "pay r:1.1\n"
    store = SQLiteStore(path)
    [end_of_pay] = [event for event in log_of(store, "r") if isinstance(event, ToolEnd)]
    assert "interrupted" in end_of_pay.result.text
    store.close()


def test_a_program_that_ends_gives_its_detached_runs_back(tmp_path: Path) -> None:
    path, ledger = tmp_path / "runs.db", tmp_path / "ledger"
    first = program(path, ledger, "detached stuck")
    first.communicate(timeout=30)
    store = SQLiteStore(path)
    row = store.find("r")
    assert row is not None
    assert row.state == "ready"
    store.close()


def test_a_reader_that_lost_its_run_starts_no_tool(store: Store, readers: Readers) -> None:
    ran: list[str] = []

    @tool
    def send() -> str:
        """Send."""
        ran.append("send")
        return "sent"

    agent = agent_of(Reply(call("send")), "Sent.", tools=(send,))

    def freeze(run: Any, event: StreamEvent | None) -> None:
        if isinstance(event, ToolStart):  # the process is frozen here, for longer than its lease
            run._driver.owner._driven.ownership.log.deadline = 0.0

    with pytest.raises(LostRunError, match="may have taken over"):
        readers.read(agent, "Go.", log=store, run_id="r", on=freeze)
    assert ran == []
    assert log_of(store, "r")[-1].type == "tool_start"
