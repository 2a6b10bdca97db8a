"""Forks of runs: what they take from their parent, what they change, and what they must not do again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Agent, Model, RunExistsError, Runs, ToolError, UnknownRunError, UsageError, tool
from penstock.log import RunRow, Store
from penstock.log.branches.fork import ForkRequest, fork_run
from penstock.log.follower import parked_reason
from penstock.log.in_memory import MemoryStore
from penstock.log.retention.run_files import lines_of, read_runs
from penstock.log.store import Batch, DamagedRunError, StoreError
from penstock.log.take_up import read_log, read_run
from penstock.run.events import ApprovalRequest, LogEvent, StepEnd, StepStart, ToolEnd, ToolStart
from penstock.run.forked import Forked
from penstock.runs.driving import DEPS_PAUSE, MODEL_TRIES
from penstock.testing import Crashed, Reply, Scripted, call, crash_at, wait
from tests.forks import try_forks
from tests.log_stores import Clock, rows_of
from tests.scripted_runs import check_history


class Shop:
    """An agent that looks, pays and asks before it sends; each effect is written down."""

    def __init__(self, store: Store, answer: Callable[[Any], Reply | str] | None = None, **options: Any) -> None:
        self.store = store
        self.effects: list[str] = []

        @tool(read_only=True)
        def look() -> str:
            """Look."""
            return "sunny"

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.effects.append(f"pay {amount}")
            return f"paid {amount}"

        @tool(approval=True, expires=60)
        def send(to: str) -> str:
            """Send."""
            self.effects.append(f"send {to}")
            return f"sent to {to}"

        @tool(idempotent=True)
        def put(amount: int) -> str:
            """Put."""
            self.effects.append(f"put {amount}")
            return f"put {amount}"

        self.model = Scripted(answer or pay_then_say)
        other = Model("anthropic:other", via=Scripted(lambda request: f"The other model: {len(request.results)}."))
        self.agent = Agent(
            Model("openai:gpt-5", via=self.model),
            [look, pay, send, put],
            name="shop",
            models={"other": other},
            **options,
        )
        self.runs = Runs(store, {"shop": self.agent})

    def run(self, run_id: str = "r", **options: Any) -> list[LogEvent]:
        self.runs.start("shop", "Please pay.", run_id=run_id, **options)
        self.runs.drive(run_id)
        return self.events(run_id)

    def events(self, run_id: str) -> list[LogEvent]:
        return [event for _, _, event in read_log(self.store, run_id)]

    def at(self, kind: type, run_id: str = "r", nth: int = 0) -> int:
        """The number of an event."""
        return [number for number, _, event in read_log(self.store, run_id) if isinstance(event, kind)][nth]

    def finish(self, run_id: str) -> str:
        """Drive a run to its end; returns its output."""
        row = self.runs.drive(run_id)
        assert row.state == "over"
        run = read_run(self.store, row)
        check_history(list(run.state.history))
        return run.state.output


def pay_then_say(request: Any) -> Reply | str:
    return (
        f"Done: {request.results[-1].text}" if request.results else Reply("I pay.", call("pay", {"amount": 3}, id="c1"))
    )


def ask_to_send(request: Any) -> Reply | str:
    return f"Done: {request.results[-1].text}" if request.results else Reply(call("send", {"to": "Ann"}, id="c1"))


def test_forks_at_every_event_of_runs_on_seven_wires() -> None:
    trial = try_forks(lambda _: MemoryStore(), range(1, 8), every=9)
    assert trial.runs == 7
    assert trial.forks > 40
    assert trial.problems == []


def test_a_fork_that_may_repeat_effects_does_so(store: Store) -> None:
    """So the promise of the others is not an empty one."""
    shop = Shop(store)
    shop.run()
    fork = shop.runs.fork("r", 1, repeat_effects=True)
    assert shop.finish(fork) == "Done: paid 3"
    assert shop.effects == ["pay 3", "pay 3"]


def test_the_parent_is_untouched_and_no_effect_repeated(store: Store) -> None:
    shop = Shop(store)
    events = shop.run(thread="t", tenant="acme", meta={"user": 7})
    before = rows_of(store, "r")
    for number in range(1, len(events) + 1, 1 if isinstance(store, MemoryStore) else 5):
        fork = shop.runs.fork("r", number)
        assert shop.finish(fork) == "Done: paid 3"
        assert shop.effects == ["pay 3"]
        assert rows_of(store, "r") == before
        assert shop.runs.diff("r", fork).is_same
        row = shop.runs.find(fork)
        assert (row.tenant, row.agent, row.thread) == ("acme", "shop", fork)
    assert [each.id for each in shop.runs.list(thread="t")] == ["r"]  # the next run of the thread follows its own last


def test_another_model_continues(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    fork = shop.runs.fork("r", shop.at(ToolEnd), model="other")
    assert shop.finish(fork) == "The other model: 1."
    forked = next(event for event in shop.events(fork) if isinstance(event, Forked))
    assert (forked.run, forked.model) == ("r", "other")
    found = shop.runs.diff("r", fork)
    assert found.first is not None
    assert found.second is not None
    assert (found.first.event.type, found.second.event.type) == ("text", "text")


def test_the_model_of_a_fork_must_be_known(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    with pytest.raises(UsageError, match="the agent has no model 'another'"):
        shop.runs.fork("r", 3, model="another")


def test_a_fork_whose_model_a_worker_does_not_know_waits_for_one_that_does(store: Store, clock: Clock) -> None:
    """It is no suspect: its worker is alive, and other runs must not wait for it."""
    shop = Shop(store)
    fork = unknown_model_fork(shop)
    for _ in range(3):
        with pytest.raises(UsageError, match="the agent has no model 'another'"):
            shop.runs.drive(fork)
        row = shop.runs.find(fork)
        assert (row.state, row.lost, row.suspect) == ("waiting", 0, "")
        clock.now += DEPS_PAUSE + 1
    model = Model("anthropic:another", via=Scripted(lambda request: "Here I am."))
    agent = Agent(shop.agent.config.model, [*shop.agent.config.tools.values()], name="shop", models={"another": model})
    Runs(store, {"shop": agent}).drive(fork)
    assert read_run(store, shop.runs.find(fork)).state.output == "Here I am."


def unknown_model_fork(shop: Shop) -> str:
    shop.run()
    return fork_run(shop.store, ForkRequest(run_id="r", at=shop.at(ToolEnd), model="another")).id


def test_a_fork_whose_model_nobody_knows_is_parked(store: Store, clock: Clock) -> None:
    shop = Shop(store)
    fork = unknown_model_fork(shop)
    for tries in (MODEL_TRIES, MODEL_TRIES):
        for _ in range(tries - 1):
            with pytest.raises(UsageError, match="the agent has no model 'another'"):
                shop.runs.drive(fork)
            clock.now += DEPS_PAUSE + 1
        row = shop.runs.drive(fork)
        assert row.state == "parked"
        assert parked_reason(store, row).startswith("the agent has no model 'another': add it")
        assert shop.runs.retry(fork)
    shop.runs.cancel(fork)
    assert shop.runs.drive(fork).state == "over"
    assert shop.effects == ["pay 3"]


def test_a_reader_that_cannot_drive_a_fork_gives_it_back(store: Store) -> None:
    """Nobody would renew its lease, and the end of that would count against the run."""
    shop = Shop(store)
    fork = unknown_model_fork(shop)

    async def read() -> None:
        async with shop.agent.astream("Please pay.", log=store, run_id=fork):
            pass

    unknown = "the agent has no model 'another'"
    with pytest.raises(UsageError, match=unknown), shop.agent.stream("Please pay.", log=store, run_id=fork):
        pass
    assert (shop.runs.find(fork).state, shop.runs.find(fork).lost) == ("ready", 0)
    with pytest.raises(UsageError, match=unknown):
        asyncio.run(read())
    assert (shop.runs.find(fork).state, shop.runs.find(fork).lost) == ("ready", 0)


def test_the_same_fork_again_needs_its_parent_no_more(store: Store, clock: Clock) -> None:
    shop = Shop(store)
    shop.run()
    request: dict[str, Any] = {"at": shop.at(ToolEnd), "model": "other", "fork_id": "f"}
    assert shop.runs.fork("r", **request) == "f"
    clock.now += 1
    assert store.prune(before=clock.now) == 1
    assert shop.runs.fork("r", **request) == "f"
    assert shop.finish("f") == "The other model: 1."
    with pytest.raises(RunExistsError):
        shop.runs.fork("r", 3, fork_id="f")
    with pytest.raises(UnknownRunError, match="there is no run with the id 'r'"):
        shop.runs.fork("r", **{**request, "fork_id": "g"})


@pytest.mark.parametrize("kind", [StepEnd, ToolStart, ToolEnd])
def test_another_result(store: Store, kind: type) -> None:
    shop = Shop(store)
    shop.run()
    fork = shop.runs.fork("r", shop.at(kind), results={"c1": {"error": "no money"}})
    assert shop.finish(fork) == 'Done: {"error":"no money"}'
    assert shop.effects == ["pay 3"]
    assert len([event for event in shop.events(fork) if isinstance(event, ToolEnd)]) == 1


def test_a_call_fails_in_a_fork(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    fork = shop.runs.fork("r", shop.at(ToolEnd), results={"c1": ToolError("the bank is closed")})
    assert shop.finish(fork) == "Done: the bank is closed"
    [end] = [event for event in shop.events(fork) if isinstance(event, ToolEnd)]
    assert (end.ending, end.result.is_error) == ("failed", True)


def test_a_result_that_the_model_has_read_is_not_replaced(store: Store) -> None:
    shop = Shop(store)
    events = shop.run()
    before = shop.at(StepStart, nth=1) - 1
    with pytest.raises(
        UsageError, match=f"the model has read the result of 'c1' .* fork at event {before}, or an earli"
    ):
        shop.runs.fork("r", len(events) - 2, results={"c1": 1})


def test_a_result_for_a_growing_response_is_refused(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    end = shop.at(StepEnd)
    with pytest.raises(
        UsageError, match=f"has not ended at event {end - 1}, and is asked for again: fork at event {end}"
    ):
        shop.runs.fork("r", end - 1, results={"c1": 1})
    with pytest.raises(UsageError, match="the run has no call 'c9' at event"):
        shop.runs.fork("r", end, results={"c9": 1})


def test_a_result_of_a_tool_that_started_early_is_replaced_after_the_response(store: Store) -> None:
    def look(request: Any) -> Reply | str:
        response = Reply(call("look", {}, id="c1"), wait(seconds), "A moment.")
        return f"Done: {request.results[-1].text}" if request.results else response

    shop, seconds = Shop(store, look), 0.1
    shop.run(id := "first")
    while shop.at(ToolEnd, id) > shop.at(StepEnd, id):  # on a busy machine
        seconds *= 4
        shop.run(id := f"after {seconds}")
    ended, complete = shop.at(ToolEnd, id), shop.at(StepEnd, id)
    with pytest.raises(UsageError, match=f"not ended at event {ended}, .* fork at event {complete}, or a later"):
        shop.runs.fork(id, ended, results={"c1": "snow"})
    assert shop.finish(shop.runs.fork(id, complete, results={"c1": "snow"})) == "Done: snow"


def test_other_words_are_in_the_next_request(store: Store) -> None:
    asked: list[str] = []

    def answer(request: Any) -> Reply | str:
        asked.append(request.prompt)
        return pay_then_say(request)

    shop = Shop(store, answer)
    events = shop.run()
    fork = ""
    for number in range(1, len(events) + 1, 1 if isinstance(store, MemoryStore) else 5):
        asked.clear()
        fork = shop.runs.fork("r", number, say="Be quick.")
        shop.finish(fork)
        assert "Be quick." in asked[0], number
        assert shop.effects == ["pay 3"] * len(shop.effects)
    assert "said" in [event.type for event in shop.events(fork)]


def test_an_open_approval_stays_open_and_gets_its_whole_time(store: Store, clock: Clock) -> None:
    shop = Shop(store, ask_to_send)
    shop.run()
    clock.now += 3600  # long after the call of the parent has expired
    assert "sent" not in shop.finish("r")
    fork = shop.runs.fork("r", shop.at(ApprovalRequest))
    assert shop.runs.drive(fork).state == "waiting"
    shop.runs.decide(fork, "c1", approved=True)
    assert shop.finish(fork) == "Done: sent to Ann"
    assert shop.effects == ["send Ann"]


def test_a_call_that_was_approved_after_the_fork_is_not_made_again(store: Store) -> None:
    shop = Shop(store, ask_to_send)
    shop.run()
    shop.runs.decide("r", "c1", approved=True)
    shop.finish("r")
    fork = shop.runs.fork("r", shop.at(ApprovalRequest), decide={"c1": True})
    assert shop.finish(fork) == "Done: sent to Ann"
    assert shop.effects == ["send Ann"]
    refused = shop.runs.fork("r", shop.at(ApprovalRequest), decide={"c1": False})
    assert "declined" in shop.finish(refused)


def test_only_waiting_calls_are_decided(store: Store) -> None:
    shop = Shop(store, ask_to_send)
    shop.run()
    with pytest.raises(UsageError, match=r"the call 'c7' does not wait for a decision at event .*; those that do: c1"):
        shop.runs.fork("r", shop.at(ApprovalRequest), decide={"c7": True})


def test_a_declined_call_stays_declined(store: Store) -> None:
    shop = Shop(store, ask_to_send)
    shop.run()
    shop.runs.decide("r", "c1", approved=False, reason="no")
    shop.finish("r")
    [decided] = [number for number, _, event in read_log(store, "r") if event.type == "decision"]
    fork = shop.runs.fork("r", decided)
    assert "declined" in shop.finish(fork)
    assert shop.effects == []


@pytest.mark.parametrize(("name", "arguments"), [("pay", {"amount": 3}), ("put", {"amount": 3})])
def test_an_effect_whose_process_died_is_not_made_in_a_fork(
    store: Store, clock: Clock, name: str, arguments: dict[str, Any]
) -> None:
    """Also not an idempotent one: in another run, it would have another key."""

    def answer(request: Any) -> Reply | str:
        return f"Done: {request.results[-1].text}" if request.results else Reply(call(name, arguments, id="c1"))

    shop = Shop(store, answer)
    shop.runs.start("shop", "Please pay.", run_id="r")
    with crash_at("after_tool_end"), pytest.raises(Crashed):
        shop.runs.drive("r")
    assert len(shop.effects) == 1
    fork = shop.runs.fork("r", shop.at(ToolStart))
    assert "may have had an effect" in shop.finish(fork)
    assert len(shop.effects) == 1
    known = shop.runs.fork("r", shop.at(ToolStart), results={"c1": "it was paid"})
    assert shop.finish(known) == "Done: it was paid"


def test_forks_of_forks_do_not_repeat_effects_either(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    first = shop.runs.fork("r", 2)
    again = shop.runs.fork(first, 1)  # before it has made its call
    assert shop.finish(again) == "Done: paid 3"
    assert shop.finish(first) == "Done: paid 3"
    later = shop.runs.fork(first, 1)
    assert shop.finish(later) == "Done: paid 3"
    assert shop.effects == ["pay 3"]


def test_the_same_call_twice_is_an_effect_more(store: Store) -> None:
    """A result of the parent is used once."""

    def answer(request: Any) -> Reply | str:
        is_fork = "Twice" in str(request.body)
        return Reply(call("pay", {"amount": 3})) if len(request.results) < (2 if is_fork else 1) else "Done."

    shop = Shop(store, answer)
    shop.run()
    fork = shop.runs.fork("r", 1, say="Twice, please.")
    assert shop.finish(fork) == "Done."
    assert shop.effects == ["pay 3", "pay 3"]


def test_a_fork_that_crashes_goes_on_without_repeating_effects(store: Store, clock: Clock) -> None:
    shop = Shop(store)
    shop.run()
    fork = shop.runs.fork("r", 1)
    with crash_at("before_append", "tool_end"), pytest.raises(Crashed):
        shop.runs.drive(fork)
    clock.now += store.lease + 1
    shop.finish(fork)
    assert shop.effects == ["pay 3"]


def test_the_same_fork_with_the_same_id_is_made_once(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    assert shop.runs.fork("r", 3, fork_id="f", say="Hm.") == "f"
    shop.finish("f")
    assert shop.runs.fork("r", 3, fork_id="f", say="Hm.") == "f"
    for other in ({"say": "Other."}, {"model": "other"}):
        with pytest.raises(RunExistsError):
            shop.runs.fork("r", 3, fork_id="f", **other)  # type: ignore[arg-type]
    with pytest.raises(RunExistsError):
        shop.runs.fork("r", 3, fork_id="r")


@pytest.mark.parametrize("at", [0, -1, 99, "x", "3-ffffffff", True, 1.5, None])
def test_events_that_do_not_exist(store: Store, at: Any) -> None:
    shop = Shop(store)
    shop.run()
    before = rows_of(store, "r")
    with pytest.raises(UsageError, match=r"has no event|must be the number|has lost the event"):
        shop.runs.fork("r", at)
    assert rows_of(store, "r") == before
    assert len(shop.runs.list()) == 1


def test_a_position_with_its_past_is_a_place(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    position = next(position for position, event in shop.runs.follow("r") if isinstance(event, StepEnd))
    assert shop.finish(shop.runs.fork("r", position.token)) == "Done: paid 3"


def test_unknown_runs_and_later_versions(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    with pytest.raises(UnknownRunError, match="if it was archived or exported, import it first"):
        shop.runs.fork("gone", 1)
    store.add(RunRow(id="later", agent="shop", version=99, seq=1), [(1, 1.0, b"{}")])
    with pytest.raises(StoreError, match="a later version of penstock"):
        shop.runs.fork("later", 1)
    with pytest.raises(StoreError, match="a later version of penstock"):
        shop.runs.diff("later", "r")


def test_a_damaged_run_is_forked_before_the_damage_if_effects_may_repeat(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    rows = store.read("r")
    place = shop.at(ToolEnd)
    broken = [*rows[: place - 1], (place, rows[place - 1][1], b'{"type":"unheard_of"}'), *rows[place:]]
    store.add(RunRow(id="broken", agent="shop", state="over", epoch=1, seq=len(rows)), broken)
    with pytest.raises(DamagedRunError):
        shop.runs.fork("broken", place + 1)
    with pytest.raises(DamagedRunError, match="which effects the run had since then"):
        shop.runs.fork("broken", 3)
    fork = shop.runs.fork("broken", 3, repeat_effects=True)
    assert shop.finish(fork) == "Done: paid 3"


def test_an_imported_run_is_forked(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    row = store.find("r")
    assert row is not None
    data = b"".join(lines_of(store, row))
    other = Shop(MemoryStore())
    [filed] = read_runs(io.BufferedReader(io.BytesIO(data)), "it")
    other.store.add(filed.row, filed.events, filed.inputs, filed.starts)
    fork = other.runs.fork("r", 4)
    assert other.finish(fork) == "Done: paid 3"
    assert other.effects == []
    row = other.store.find(fork)
    assert row is not None
    [again] = read_runs(io.BufferedReader(io.BytesIO(b"".join(lines_of(other.store, row)))), "it")
    assert again.row.id == fork


def test_an_older_version_leaves_forks_alone(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    assert shop.runs.find("r").version == 1
    assert shop.runs.find(shop.runs.fork("r", 3)).version == 2


def test_a_live_parent_is_forked_and_goes_on(store: Store) -> None:
    shop = Shop(store)
    shop.runs.start("shop", "Please pay.", run_id="r")
    claim = store.claim("w")
    assert claim is not None
    fork = shop.runs.fork("r", 2)
    assert store.append([Batch("r", claim.epoch, claim.seq, (), "ready")], durable=True) == [True]
    assert shop.finish("r") == shop.finish(fork) == "Done: paid 3"
    assert len(shop.effects) == 2  # the parent had not made its call yet


def test_a_finished_fork_has_nothing_to_do(store: Store) -> None:
    shop = Shop(store)
    events = shop.run()
    for number in (len(events) - 1, len(events)):
        fork = shop.runs.fork("r", number)
        assert shop.runs.find(fork).state == "over"
        assert shop.finish(fork) == "Done: paid 3"


def test_stream_with_the_id_of_a_fork_continues_it(store: Store) -> None:
    shop = Shop(store)
    shop.run()
    fork = shop.runs.fork("r", shop.at(StepEnd), model="other")
    with shop.agent.stream("Please pay.", log=store, run_id=fork) as run:
        kinds = [event.type for event in run]
    assert run.output == "The other model: 1."
    assert "forked" not in kinds
    assert shop.effects == ["pay 3"]


def test_afork(store: Store) -> None:
    shop = Shop(store)
    shop.run()

    async def fork() -> RunRow:
        return await shop.runs.adrive(await shop.runs.afork("r", 3, model="other"))

    assert asyncio.run(fork()).state == "over"
