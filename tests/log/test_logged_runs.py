"""Runs on a log: driven, followed and steered from other processes, and taken over when a worker dies."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import (
    Agent,
    ApprovalRequest,
    AsyncAgentRun,
    Context,
    Done,
    LostRunError,
    Model,
    Runs,
    Said,
    StreamEvent,
    ToolEnd,
    ToolStart,
    UnknownRunError,
    UsageError,
    check,
    tool,
)
from penstock.agent.driver.driver import Driver
from penstock.log import Store
from penstock.log.in_memory import MemoryStore
from penstock.log.run_writer import RunWriter
from penstock.log.take_up import read_log, take_up
from penstock.run.events import LogEvent
from penstock.run.rebuild import rebuild
from penstock.testing import Reply, Scripted, call
from tests.leaks import nothing_is_left  # noqa: F401
from tests.log_stores import open_store
from tests.postgres import drop, new_schema
from tests.scripted_runs import drive, sync_and_async


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with open_store(request.param, tmp_path, url, lease=5.0) as store:
        yield store


@tool(read_only=True)
def look(city: str) -> str:
    """Look."""
    return f"{city} is sunny"


@tool(approval=True)
def pay(context: Context[str], amount: int) -> str:
    """Pay."""
    return f"{context.deps} paid {amount}, {context.key.split(':')[1]}"


@tool(deferred=True)
def ask_a_person(question: str) -> str:
    """Ask."""
    raise NotImplementedError


def runs_of(store: Store, *answers: Reply | str) -> Runs:
    agent = Agent(Model("openai:gpt-5", via=Scripted(list(answers))), tools=[look, pay, ask_a_person])
    return Runs(store, {"support": agent}, deps=lambda meta: meta["user"])


def log_of(store: Store, run_id: str) -> list[LogEvent]:
    return [event for _, _, event in read_log(store, run_id)]


def test_a_run_is_driven_to_its_end_and_followed(store: Store) -> None:
    runs = runs_of(store, Reply("Let me look.", call("look", {"city": "Rome"})), "Sunny.")
    run_id = runs.start("support", "Weather in Rome?", meta={"user": "Ada"})
    assert runs.drive(run_id).state == "over"
    events = dict(runs.follow(run_id))
    assert list(events) == list(range(1, len(events) + 1))
    *_, done = events.values()
    assert isinstance(done, Done)
    assert (done.reason, done.output, done.messages) == ("answered", "Sunny.", ())
    run = rebuild(log_of(store, run_id), {})
    assert check(run.state.messages) == []
    assert [list(runs.follow(run_id, after)) for after in (3, len(events) - 1)] == [
        list(events.items())[3:], list(events.items())[-1:],
    ]  # fmt: skip


def test_a_run_that_waits_is_decided_from_elsewhere_and_goes_on(store: Store) -> None:
    runs = runs_of(store, Reply(call("pay", {"amount": 500}, id="c")), "Paid.")
    run_id = runs.start("support", "Pay.", meta={"user": "Ada"})
    assert runs.drive(run_id).state == "waiting"
    assert runs.decide(run_id, "c", True, {"amount": 5})
    assert not runs.decide(run_id, "c", False)
    assert runs.drive(run_id).state == "over"
    [end] = [event for event in log_of(store, run_id) if isinstance(event, ToolEnd)]
    assert end.result.text.endswith("Ada paid 5, 1.0")


def test_a_result_from_elsewhere_and_a_message_reach_the_run(store: Store) -> None:
    runs = runs_of(store, Reply(call("ask_a_person", {"question": "?"}, id="c")), "Thanks.")
    run_id = runs.start("support", "Ask.", meta={"user": "Ada"})
    assert runs.drive(run_id).state == "waiting"
    runs.say(run_id, "Quickly, please.", key="once")
    runs.say(run_id, "Quickly, please.", key="once")
    runs.provide(run_id, "c", {"answer": 42})
    assert runs.drive(run_id).state == "over"
    events = log_of(store, run_id)
    assert sum(isinstance(event, Said) for event in events) == 1
    assert next(event for event in events if isinstance(event, ToolEnd)).result.text == '{"answer":42}'
    assert check(rebuild(events, {}).state.messages) == []


@sync_and_async
def test_a_run_with_a_log_ends_once_when_it_is_cancelled_at_any_event(mode: str) -> None:
    for stop in count():
        store, numbers = MemoryStore(), count()
        replies = [Reply("Let me look.", call("look", {"city": "Rome"})), Reply("Sunny.")]
        agent = Agent(Model("openai:gpt-5", via=Scripted(replies)), [look], name="support")

        def cancel(running: Any, event: StreamEvent, numbers: Any = numbers, stop: int = stop) -> None:
            if next(numbers) == stop:
                running.cancel()

        def start(prefix: str, agent: Agent = agent, store: Store = store) -> Any:
            return getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r")

        events, running = drive(start, mode, cancel)
        assert [event.type for event in events].count("done") == 1
        assert [event.type for event in log_of(store, "r")].count("done") == 1
        assert check(running.messages) == []
        if len(events) <= stop:
            break
    assert stop > 10


def test_a_run_is_cancelled_from_elsewhere(store: Store) -> None:
    runs = runs_of(store, Reply(call("pay", {"amount": 500}, id="c")), "Paid.")
    run_id = runs.start("support", "Pay.", meta={"user": "Ada"})
    runs.drive(run_id)
    runs.cancel(run_id, "changed my mind")
    assert runs.drive(run_id).state == "over"
    done = log_of(store, run_id)[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.why) == ("cancelled", "changed my mind")


def test_a_decision_that_fits_nothing_changes_nothing(store: Store) -> None:
    runs = runs_of(store, Reply(call("pay", {"amount": 500}, id="c")), "Paid.")
    run_id = runs.start("support", "Pay.", meta={"user": "Ada"})
    runs.drive(run_id)
    runs.decide(run_id, "no such call", True)
    assert runs.drive(run_id).state == "waiting"
    assert store.inputs([run_id]) == []


def test_a_run_under_way_takes_inputs_from_other_processes(store: Store) -> None:
    runs = runs_of(store, Reply(call("pay", {"amount": 500}, id="c")), "Paid.")

    async def scenario(run_id: str) -> str:
        worker = asyncio.create_task(runs.awork(poll=0.01))
        async with asyncio.timeout(30):
            async for _, event in runs.afollow(run_id):
                if event.type == "approval_request":
                    await asyncio.to_thread(runs.decide, run_id, "c", True)
        worker.cancel()
        return (await asyncio.to_thread(runs.find, run_id)).state

    run_id = runs.start("support", "Pay.", meta={"user": "Ada"})
    assert asyncio.run(scenario(run_id)) == "over"


def test_a_worker_that_stops_gives_its_runs_back_at_once(store: Store) -> None:
    started = asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.sleep(60)
        return "late"

    agent = Agent(Model("openai:gpt-5", via=Scripted([Reply(call("wait"))])), tools=[wait])
    runs = Runs(store, {"support": agent})
    run_id = runs.start("support", "Wait.")

    async def scenario() -> None:
        worker = asyncio.create_task(runs.awork(poll=0.01))
        async with asyncio.timeout(30):
            await started.wait()
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    asyncio.run(scenario())
    assert runs.find(run_id).state == "ready"
    assert not any(isinstance(event, Done | ToolEnd) for event in log_of(store, run_id))


@pytest.mark.parametrize("operation", ["claim_next", "read"])
def test_a_worker_that_stops_while_it_claims_a_run_gives_it_back(
    operation: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_of(store)
    run_id = runs.start("support", "Hi.")
    original, is_inside, has_stopped = getattr(store, operation), threading.Event(), threading.Event()

    def slow(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        is_inside.set()
        assert has_stopped.wait(30)
        return result

    async def scenario() -> None:
        worker = asyncio.create_task(runs.awork(poll=0.01))
        assert await asyncio.to_thread(is_inside.wait, 30)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        has_stopped.set()

    monkeypatch.setattr(store, operation, slow)
    asyncio.run(scenario())
    assert runs.find(run_id).state == "ready"


def test_a_run_that_a_worker_cannot_continue_is_named_in_its_log_messages(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    runs = runs_of(store)
    run_id = runs.start("support", "Hi.", meta={})

    async def scenario() -> None:
        worker = asyncio.create_task(runs.awork(poll=0.01))
        async with asyncio.timeout(30):
            while not caplog.messages:  # noqa: ASYNC110  # of a logger
                await asyncio.sleep(0.01)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    asyncio.run(scenario())
    assert caplog.messages == [f"run {run_id}: it could not be continued: KeyError('user')"]


def test_a_decision_that_is_refused_leaves_room_for_a_valid_one(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    runs = runs_of(store, Reply(call("pay", {"amount": 5})), "Paid.")
    run_id = runs.start("support", "Pay.", meta={"user": "Ada"})
    assert runs.drive(run_id).state == "waiting"
    [request] = [event for event in log_of(store, run_id) if isinstance(event, ApprovalRequest)]
    assert runs.decide(run_id, request.call_id, True, {"amount": "much"})
    assert not runs.decide(run_id, request.call_id, True)
    assert runs.drive(run_id).state == "waiting"
    assert caplog.messages == [
        f"run {run_id}: the decision on the call {request.call_id} was refused: it came too late, or is not valid"
    ]
    assert runs.decide(run_id, request.call_id, True, {"amount": 4})
    assert runs.drive(run_id).state == "over"
    [end] = [event for event in log_of(store, run_id) if isinstance(event, ToolEnd)]
    assert "paid 4" in str(end.result)


def test_wrong_names_are_errors(store: Store) -> None:
    runs = runs_of(store)
    with pytest.raises(UsageError, match="no agent called 'sales' here; there are: support"):
        runs.start("sales", "Go.")
    with pytest.raises(UnknownRunError, match="no run with the id 'nowhere'"):
        runs.drive("nowhere")
    with pytest.raises(UnknownRunError):
        next(runs.follow("nowhere"))


WORKER = """
import asyncio, os, sys
import penstock
from penstock.runs.runs import Runs
from penstock.testing import Reply, Scripted, call

address, schema, ledger = sys.argv[1:]


def note(text):
    with open(ledger, "ab", buffering=0) as file:
        file.write(f"{text}\\n".encode())


@penstock.tool(read_only=True)
async def look(context: penstock.Context) -> str:
    note(f"look {context.key}")
    await asyncio.sleep(0.1)
    return "sunny"


@penstock.tool
async def pay(context: penstock.Context) -> str:
    note(f"pay {context.key}")
    await asyncio.sleep(0.3)
    return "paid"


@penstock.tool(idempotent=True)
async def put(context: penstock.Context) -> str:
    note(f"put {context.key}")
    await asyncio.sleep(0.3)
    return "put"


def answer(request):
    results = sum(item.get("type") == "function_call_output" for item in request.body["input"])
    return "Done." if results >= 6 else Reply("Let me see.", call("look"), call("pay"), call("put"))


agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(answer)), tools=[look, pay, put])
store = penstock.log.open(address, lease=1.0, schema=schema)
asyncio.run(Runs(store, {"agent": agent}).awork(poll=0.05))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_runs_survive_workers_that_are_killed(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue("postgres_url") if kind == "postgres" else str(tmp_path / "runs.db")
    schema, ledger = new_schema(), tmp_path / "ledger"
    store = penstock.log.open(address, lease=1.0, schema=schema)
    runs = Runs(store, {"agent": Agent(Model("openai:gpt-5", via=Scripted([])))})
    run_ids = [runs.start("agent", f"Go {number}.") for number in range(4)]

    def worker() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WORKER, address, schema, str(ledger)])

    workers = [worker(), worker()]
    end = time.monotonic() + 90
    seen, kills = 0, 0
    while len(runs.list(state="over")) < len(run_ids) and time.monotonic() < end:
        notes = ledger.read_bytes().count(b"\n") if ledger.exists() else 0
        if notes > seen + 2 and kills < 4:  # right after a tool has started
            seen, kills = notes, kills + 1
            victim = workers.pop(0)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            workers.append(worker())
        time.sleep(0.02)
    for left in workers:
        left.kill()
        left.wait()
    assert len(runs.list(state="over")) == len(run_ids)
    counts = Counter(ledger.read_text().split("\n"))
    assert {name: count for name, count in counts.items() if name.startswith("pay") and count > 1} == {}
    for run_id in run_ids:
        events = log_of(store, run_id)
        assert check(rebuild(events, {}).state.messages) == []
        starts = Counter(event.key for event in events if isinstance(event, ToolStart))
        ends = Counter(event.key for event in events if isinstance(event, ToolEnd))
        assert set(starts.values()) == {1}
        assert {key: ends[key] for key in starts} == dict.fromkeys(starts, 1)
    assert kills
    store.close()
    if kind == "postgres":
        drop(address, schema)


def test_a_worker_whose_lease_has_ended_starts_nothing_and_writes_nothing(store: Store) -> None:
    ran = []

    @tool
    async def send() -> str:
        """Send."""
        ran.append("sent")
        return "sent"

    agent = Agent(Model("openai:gpt-5", via=Scripted([Reply(call("send")), "Sent."])), tools=[send])
    runs = Runs(store, {"support": agent})
    run_id = runs.start("support", "Send.")
    claim = store.claim("frozen", run_id=run_id)
    assert claim is not None
    run, owned = take_up(store, claim, agent.config.policies)
    writers: list[RunWriter] = []

    async def scenario() -> None:
        async with AsyncAgentRun(agent.config, run, None, owned) as running:
            async for event in running:
                if isinstance(event, ToolStart):  # the process is frozen here, for longer than its lease
                    assert isinstance(running._driver, Driver)
                    writer = running._driver._driven.ownership.log
                    assert writer is not None
                    writer.deadline = 0.0
                    writers.append(writer)

    with pytest.raises(LostRunError, match="may have taken over"):
        asyncio.run(scenario())
    assert ran == []
    assert writers[0].is_closed  # else its lease would be renewed
    assert log_of(store, run_id)[-1].type == "tool_start"


def test_a_worker_that_was_replaced_adds_nothing(store: Store) -> None:
    agent = Agent(Model("openai:gpt-5", via=Scripted([Reply("Let", call("look", {"city": "Rome"})), "Sunny."])), [look])
    runs = Runs(store, {"support": agent})
    run_id = runs.start("support", "Look.")
    claim = store.claim("first", run_id=run_id)
    assert claim is not None
    run, owned = take_up(store, claim, agent.config.policies)

    async def scenario() -> None:
        async with AsyncAgentRun(agent.config, run, None, owned) as running:
            async for event in running:
                if isinstance(event, ToolStart):
                    for minutes in count(1):  # the flusher may renew the lease before the run is claimed
                        store._clock = lambda: time.time() + 60 * minutes  # type: ignore[attr-defined]  # noqa: B023
                        if store.claim("second", run_id=run_id) is not None:
                            break

    with pytest.raises(LostRunError, match="another worker has taken over"):
        asyncio.run(scenario())
    types = [event.type for event in log_of(store, run_id)]
    assert (types[-1], types.count("taken")) == ("taken", 2)


WORK = """
import sys, threading
import penstock
import penstock.log
from penstock.testing import Scripted

store = penstock.log.open(sys.argv[1])
agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(["Hello."])))
runs = penstock.Runs(store, {"support": agent})
run_id = runs.start("support", "Hi.")


def stop_when_over():
    for _ in runs.follow(run_id):
        pass
    import os, signal
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=stop_when_over).start()
try:
    runs.work(poll=0.01)
except KeyboardInterrupt:
    print(runs.find(run_id).state)
"""


def test_a_worker_of_sync_code_works_until_it_is_interrupted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(tmp_path / "runs.db")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("over\n", "")
