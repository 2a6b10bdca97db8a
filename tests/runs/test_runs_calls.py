"""`Runs` as users call it: with wrong arguments, too late, with async functions, and from several processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec import Struct

import penstock
from penstock import (
    Agent,
    Context,
    Model,
    RunExistsError,
    Runs,
    StoreError,
    ToolEnd,
    ToolOutput,
    UnknownRunError,
    UsageError,
    tool,
)
from penstock.log import Store
from penstock.log.store import Claim, QueuedRuns, RunRow
from penstock.runs import worker as worker_module
from penstock.testing import Reply, Scripted, call
from tests.log_stores import Clock, Desk


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


WRONG_STARTS: list[tuple[str, dict[str, Any]]] = [
    ("no agent called 'nobody'", {"agent": "nobody", "prompt": "Hi."}),
    ("no agent called", {"agent": ["desk"], "prompt": "Hi."}),
    ("there is nothing to answer", {"agent": "desk"}),
    ("there is nothing to answer", {"agent": "desk", "prompt": ""}),
    ("run_id must be one line of text", {"agent": "desk", "prompt": "Hi.", "run_id": 5}),
    ("run_id must be one line of text", {"agent": "desk", "prompt": "Hi.", "run_id": "a\nb"}),
    ("run_id must be one line of text", {"agent": "desk", "prompt": "Hi.", "run_id": "x" * 501}),
    ("thread must be one line of text", {"agent": "desk", "prompt": "Hi.", "thread": None}),
    ("tenant must be one line of text", {"agent": "desk", "prompt": "Hi.", "tenant": 7}),
    ("meta must be JSON", {"agent": "desk", "prompt": "Hi.", "meta": object()}),
]


@pytest.mark.parametrize(("message", "arguments"), WRONG_STARTS)
def test_a_start_with_wrong_arguments_is_an_error_and_starts_nothing(
    message: str, arguments: dict[str, Any], desk: Desk
) -> None:
    with pytest.raises(UsageError, match=message):
        desk.runs.start(**arguments)
    assert desk.runs.list() == []


def test_the_same_id_is_the_same_run_only_with_the_same_start(desk: Desk) -> None:
    assert desk.runs.start("desk", "Hi.", run_id="r", meta={"user": 1}) == "r"
    assert desk.runs.start("desk", "Hi.", run_id="r", meta={"user": 1}) == "r"
    for prompt, meta in (("Ho.", {"user": 1}), ("Hi.", {"user": 2}), ("Hi.", None)):
        with pytest.raises(RunExistsError, match="'r' exists, with another agent, other messages or another meta"):
            desk.runs.start("desk", prompt, run_id="r", meta=meta)
    assert desk.log("r") == ["run_start"]


def test_a_run_that_does_not_exist_is_an_error_of_every_method(desk: Desk) -> None:
    runs = desk.runs
    methods: list[Callable[[str], object]] = [
        runs.find, runs.drive, runs.cancel, lambda id: runs.say(id, "Hi."), lambda id: next(runs.follow(id)),
        lambda id: runs.decide(id, "c", True), lambda id: runs.provide(id, "c", 1),
    ]  # fmt: skip
    for method in methods:
        with pytest.raises(UnknownRunError, match="there is no run with the id 'nowhere'"):
            method("nowhere")


def test_a_list_of_a_state_that_no_run_has_is_an_error(desk: Desk) -> None:
    with pytest.raises(UsageError, match="unknown state 'done' of a run; use one of: ready, running, waiting, over"):
        desk.runs.list(state=cast(Any, "done"))


def test_a_run_that_is_over_takes_no_more_inputs(desk: Desk, store: Store) -> None:
    desk.runs.start("desk", "Send it.", run_id="r")
    desk.runs.drive("r")
    assert not desk.runs.decide("r", "c", True)
    assert not desk.runs.provide("r", "c", "late")
    assert not desk.runs.cancel("r")
    with pytest.raises(UsageError, match="the run is over"):
        desk.runs.say("r", "More.")
    assert store.inputs(["r"]) == []


class Weather(Struct):
    """Data that a tool may return."""

    degrees: int


RESULTS: list[Any] = [
    "sunny", None, 21, [1, "two"], {"degrees": 21}, Weather(21), [Weather(21)], (1, 2), 2**70,
    ToolOutput("sunny", data={"station": "secret"}), ToolOutput("no such city", is_error=True), object(),
]  # fmt: skip


@pytest.mark.parametrize("value", RESULTS, ids=lambda value: type(value).__name__)
def test_the_model_reads_the_same_result_whoever_provides_it(value: Any) -> None:
    """In the process of the run, or in another one. The data of a `ToolOutput` is not for the model."""

    @tool(deferred=True)
    def ask() -> str:
        """Ask."""
        raise AssertionError

    script = Scripted(lambda request: "Thanks." if request.results else Reply(call("ask", id="c")))
    agent = Agent(Model("openai:gpt-5", via=script), [ask], name="desk", approvals="pause")
    with agent.stream("Hi.") as first:
        list(first)
    with agent.resume(first.dump()) as local:
        local.provide("c", value)
        list(local)
    runs = Runs(penstock.log.memory(), {"desk": agent})
    run_id = runs.start("desk", "Hi.")
    runs.drive(run_id)
    assert runs.provide(run_id, "c", value)
    runs.drive(run_id)
    [end] = [event for _, event in runs.follow(run_id) if isinstance(event, ToolEnd)]
    [expected] = [result for message in local.messages for result in message.results]
    assert (end.result.content, end.result.is_error) == (expected.content, expected.is_error)
    assert "secret" not in end.result.text


WRONG_ANSWERS: list[tuple[str, Callable[[Runs], object]]] = [
    ("approved must be True or False", lambda runs: runs.decide("r", "c", cast(Any, "yes"))),
    ("arguments must be a dict", lambda runs: runs.decide("r", "c", True, cast(Any, [1]))),
    ("arguments must be JSON", lambda runs: runs.decide("r", "c", True, {"at": object()})),
    ("call_id must be a string", lambda runs: runs.decide("r", cast(Any, 5), True)),
    ("call_id must be a string", lambda runs: runs.provide("r", cast(Any, None), "x")),
    ("expected a string", lambda runs: runs.say("r", 5)),
    ("key must be one line of text", lambda runs: runs.say("r", "Hi.", key=cast(Any, 5))),
    ("key must be one line of text", lambda runs: runs.say("r", "Hi.", key="a\0b")),
    ("why must be a string", lambda runs: runs.cancel("r", cast(Any, 5))),
]


@pytest.mark.parametrize(("message", "answer"), WRONG_ANSWERS)
def test_an_answer_that_no_run_could_take_is_an_error(message: str, answer: Callable[[Runs], object]) -> None:
    desk = Desk(penstock.log.memory())
    desk.runs.start("desk", "Hi.", run_id="r")
    with pytest.raises(UsageError, match=message):
        answer(desk.runs)
    assert desk.store.inputs(["r"]) == []


def test_runs_need_a_store_and_agents_by_their_names() -> None:
    desk = Desk(penstock.log.memory())
    with pytest.raises(UsageError, match="the log must be a store"):
        Runs(cast(Any, "runs.db"), {"desk": desk.agent})
    for agents in ([desk.agent], desk.agent, {"desk": "agent.py"}, None):
        with pytest.raises(UsageError, match="agents must be a dict of agents by their names"):
            Runs(desk.store, cast(Any, agents))


@pytest.mark.parametrize("is_async", [True, False])
def test_deps_and_on_waiting_may_be_async(is_async: bool, store: Store) -> None:
    seen: list[Any] = []

    @tool(approval=True)
    def pay(context: Context[Any]) -> str:
        """Pay."""
        seen.append(context.deps)
        return "paid"

    async def async_deps(meta: Any) -> Any:
        await asyncio.sleep(0)
        return {"user": meta}

    async def async_waiting(run_id: str) -> None:
        await asyncio.sleep(0)
        seen.append(run_id)

    script = Scripted(lambda request: "Paid." if request.results else Reply(call("pay", id="c")))
    agents = {"cashier": Agent(Model("openai:gpt-5", via=script), [pay], name="cashier")}
    deps = async_deps if is_async else lambda meta: {"user": meta}
    runs = Runs(store, agents, deps=deps, on_waiting=async_waiting if is_async else seen.append)
    run_id = runs.start("cashier", "Pay.", run_id="r", meta=7)
    assert runs.drive(run_id).state == "waiting"
    assert seen == ["r"]
    assert runs.decide(run_id, "c", True)
    assert runs.drive(run_id).state == "over"
    assert seen == ["r", {"user": 7}]


def test_a_worker_that_stops_while_it_prepares_a_run_gives_it_back(store: Store) -> None:
    desk = Desk(store)

    async def work() -> None:
        is_preparing = asyncio.Event()

        async def deps(meta: Any) -> None:
            is_preparing.set()
            await asyncio.sleep(3600)

        worker = asyncio.create_task(Runs(store, {"desk": desk.agent}, deps=deps).awork())
        await is_preparing.wait()
        worker.cancel()
        await asyncio.wait([worker])

    desk.runs.start("desk", "Send it.", run_id="r")
    asyncio.run(work())
    assert desk.runs.find("r").state == "ready"
    assert desk.runs.drive("r").state == "over"


@pytest.mark.parametrize("method", ["awork", "adrive"])
def test_whoever_stops_when_it_has_just_claimed_a_run_gives_it_back(
    method: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(store)
    name = "claim_next" if method == "awork" else "claim"
    claim = getattr(store, name)

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def claim_and_stop(*arguments: Any, **options: Any) -> Any:
            result = claim(*arguments, **options)
            loop.call_soon_threadsafe(worker.cancel)
            return result

        monkeypatch.setattr(store, name, claim_and_stop)
        worker = asyncio.create_task(desk.runs.awork() if method == "awork" else cast(Any, desk.runs.adrive("r")))
        await asyncio.wait([worker])

    desk.runs.start("desk", "Send it.", run_id="r")
    asyncio.run(work())
    assert (desk.log("r"), desk.runs.find("r").state) == (["run_start", "taken"], "ready")


def test_a_worker_says_once_that_its_store_is_away_and_once_that_it_is_back(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(store)
    attempts: list[int] = []

    async def work() -> None:
        claim = store.claim_next

        def fail_thrice(*arguments: Any, **options: Any) -> list[Claim]:
            attempts.append(1)
            if len(attempts) <= 3:
                raise StoreError("the server is away", is_temporary=True)
            return claim(*arguments, **options)

        monkeypatch.setattr(store, "claim_next", fail_thrice)
        worker = asyncio.create_task(desk.runs.awork(poll=0.01))
        async for _ in desk.runs.afollow("r"):
            pass
        worker.cancel()
        await asyncio.wait([worker])

    desk.runs.start("desk", "Send it.", run_id="r")
    with caplog.at_level("INFO", "penstock.runs"):
        asyncio.run(work())
    messages = [record.getMessage() for record in caplog.records if record.name == "penstock.runs"]
    assert messages[:2] == ["cannot look for runs: the server is away", "looks for runs again"]
    assert messages[-1] == "run r: ended, answered"


def test_a_worker_warns_once_of_runs_whose_agent_nobody_has(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(store)
    store.create(RunRow(id="a", agent="renamed"), b"{}")
    store.create(RunRow(id="b", agent="renamed"), b"{}")
    assert store.queued() == {"renamed": QueuedRuns(2, clock.now)}
    monkeypatch.setattr(worker_module, "STRANDED_SECONDS", 0.02)

    async def work() -> None:
        worker = asyncio.create_task(desk.runs.awork(poll=0.01))
        await asyncio.sleep(0.3)
        worker.cancel()
        await asyncio.wait([worker])

    with caplog.at_level("INFO", "penstock.runs"):
        asyncio.run(work())
    [message] = [record.getMessage() for record in caplog.records if "renamed" in record.getMessage()]
    assert message.startswith("2 runs of the agent 'renamed' waited for more than")
