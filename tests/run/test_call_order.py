"""The calls of one response run as if in order (law 12): random responses in a shared world, and named situations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import ApprovalRequest, StreamEvent, ToolEnd, ToolStart, UsageError, tool
from penstock.events import Finish, Text, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.results import Outcome
from penstock.run.calls import start_rules
from penstock.run.calls.call_order import CallOrder
from penstock.run.calls.execution import Execution
from penstock.run.calls.executions import Executions
from penstock.run.calls.grow_rules import GrowRules
from penstock.run.calls.placed_calls import PlacedCalls
from penstock.run.calls.prepares import Prepares
from penstock.run.commands import CallReview
from penstock.testing import Reply, call
from penstock.tools.policy import ToolPolicy
from tests.budget import SEED, share
from tests.call_orders import play
from tests.growth import assert_linear
from tests.scripted_runs import Machine, drive, end_of, events_of, made, on, results, streaming, sync_and_async

READ = ToolPolicy(start="closed", is_read_only=True)
EFFECT = ToolPolicy()
ALONE = ToolPolicy(parallel=False)
ASKED = ToolPolicy(needs_approval=True)

# -- the law -----------------------------------------------------------------------------------------------------------

PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_calls_of_a_response_run_as_if_in_order(part: int) -> None:
    for number in range(share(100_000, 20_000) // PARTS):
        seed = f"{SEED} {part} {number}"
        assert not (problems := play(seed).problems), f"play({seed!r}): {problems}"


def _only_what_waits(calls: Any, block: int) -> bool:
    execution = calls._table.at(block)
    return execution is not None and execution.state == "approval"


def _by_kind_alone(holds: Callable[..., bool]) -> Callable[..., bool]:
    def without_confirmation(calls: Any, block: int, kind: str, **options: bool) -> bool:
        if kind == "effect" and not calls.is_confirmed(block):
            return calls.kind(block) in ("read", "alone")
        return holds(calls, block, kind, **options)

    return without_confirmation


def _before_hooks(began: Callable[..., Any]) -> Callable[..., Any]:
    def without_hooks(grow: Any, *values: Any) -> Any:
        known, grow._rules.has_before_call = grow._rules.has_before_call, False
        try:
            return began(grow, *values)
        finally:
            grow._rules.has_before_call = known

    return without_hooks


OMISSIONS: dict[str, tuple[Any, str, Any]] = {
    "effects wait for confirmed calls": (PlacedCalls, "holds", _by_kind_alone(PlacedCalls.holds)),
    "a change looks back": (CallOrder, "_is_held_now", lambda order, execution, block: False),
    "a read ends when it is settled": (CallOrder, "is_settled", lambda order, execution: execution.is_confirmed),
    "a call that may ask holds others": (PlacedCalls, "may_ask", _only_what_waits),
    "a failure stops calls that run alone": (CallOrder, "take_stopped", lambda order: []),
    "prepare follows the order": (Prepares, "_is_held", lambda prepares, block, kind: False),
    "what is prepared is discarded": (Executions, "_discard_prepared", lambda executions, execution: []),
    "a verdict is used again": (Execution, "take_review", lambda execution, review: None),
    "a refused call does not run": (start_rules, "is_refused", lambda review: False),
    "what reads arguments ends with them": (GrowRules, "stop", lambda rules, is_over=False: []),
    "hooks see a call before its arguments are read": (GrowRules, "began", _before_hooks(GrowRules.began)),
}


@pytest.mark.parametrize("rule", OMISSIONS)
def test_the_check_of_the_law_notices_each_rule_that_is_left_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*OMISSIONS[rule])
    assert any(play(f"{rule} {number}").problems for number in range(20_000))


# -- shared worlds -----------------------------------------------------------------------------------------------------


def file_tools() -> list[Any]:
    kept = {"content": "old"}

    @tool
    def write_file(content: str) -> str:
        """Write the file."""
        time.sleep(0.02)
        kept["content"] = content
        return "written"

    @tool(read_only=True)
    def read_file() -> str:
        """Read the file."""
        return kept["content"]

    return [write_file, read_file]


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "gemini"])
@pytest.mark.parametrize("is_logged", [False, True], ids=["", "logged"])
def test_a_read_after_a_write_sees_what_was_written(mode: str, wire: str, is_logged: bool, tmp_path: Path) -> None:
    replies = [Reply(call("write_file", {"content": "new"}), call("read_file", {})), Reply("Done.")]
    agent = on(wire, replies, *file_tools(), name="files")
    options: dict[str, Any] = {"log": penstock.log.open(tmp_path / "runs.db")} if is_logged else {}
    events, _ = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **options), mode)
    assert results(end_of(events)) == ["written", "new"]


def git_tools(
    pushed: list[str], *, approval: bool = True, both: bool = False, commit: Callable[[], str] = lambda: "ok"
) -> list[Any]:
    @tool(parallel=False, approval=approval)
    def git_commit() -> str:
        """Commit."""
        pushed.append("commit")
        return commit()

    @tool(parallel=False, approval=both)
    def git_push() -> str:
        """Push."""
        pushed.append("push")
        return "pushed"

    return [git_commit, git_push]


COMMIT_AND_PUSH = [Reply(call("git_commit", {}), call("git_push", {})), Reply("Done.")]


@sync_and_async
@pytest.mark.parametrize("is_approved", [True, False])
def test_a_push_waits_for_the_decision_about_the_commit_before_it(mode: str, is_approved: bool) -> None:
    ran: list[str] = []

    def decide(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            assert ran == []
            running.decide(event.call_id, is_approved)

    events, _ = drive(streaming(made(COMMIT_AND_PUSH, *git_tools(ran))), mode, decide)
    assert ran == (["commit", "push"] if is_approved else [])
    endings = [event.ending for event in events if isinstance(event, ToolEnd)]
    assert endings == (["done", "done"] if is_approved else ["declined", "skipped"])
    if not is_approved:
        assert "Not run: git_commit (" in results(end_of(events))[1]
        assert "which comes before it, was declined. This tool runs only after" in results(end_of(events))[1]


@sync_and_async
def test_a_failed_call_that_runs_alone_stops_later_ones(mode: str) -> None:
    ran: list[str] = []

    def fail() -> str:
        raise penstock.ToolError("nothing to commit")

    events = events_of(made(COMMIT_AND_PUSH, *git_tools(ran, approval=False, commit=fail)), mode)
    assert ran == ["commit"]
    assert ", which comes before it, failed." in results(end_of(events))[1]


@sync_and_async
def test_a_failure_stops_nobody_who_runs_beside_others(mode: str) -> None:
    @tool
    def broken() -> str:
        """Never works."""
        raise penstock.ToolError("no luck")

    replies = [Reply(call("broken", {}), call("write_file", {"content": "new"}), call("read_file", {})), Reply("Done.")]
    assert results(end_of(events_of(made(replies, broken, *file_tools()), mode)))[1:] == ["written", "new"]


@sync_and_async
def test_calls_with_side_effects_run_beside_each_other(mode: str) -> None:
    together = threading.Barrier(3, timeout=20)

    @tool
    def write(name: str) -> str:
        """Write."""
        together.wait()
        return name

    replies = [Reply(*(call("write", {"name": name}) for name in "abc")), Reply("Done.")]
    assert results(end_of(events_of(made(replies, write), mode))) == ["a", "b", "c"]


@sync_and_async
def test_a_free_read_does_not_wait_for_the_write_before_it(mode: str) -> None:
    has_read = threading.Event()

    @tool
    def write() -> str:
        """Write."""
        assert has_read.wait(20)
        return "written"

    @tool(read_only=True, parallel=True)
    def read() -> str:
        """Read."""
        has_read.set()
        return "old"

    replies = [Reply(call("write", {}), call("read", {})), Reply("Done.")]
    assert results(end_of(events_of(made(replies, write, read), mode))) == ["written", "old"]


# -- the machine -------------------------------------------------------------------------------------------------------


def whole(block: int, name: str, **arguments: Any) -> list[Any]:
    """The events of a call that starts, closes and is confirmed."""
    return [
        ToolCallStart(block, f"c{block}", name),
        ToolCallClosed(block, f"c{block}", name, arguments),
        ToolCall(f"c{block}", name, arguments, block=block, sealed_by="call_end"),
    ]


def respond(machine: Machine, *names: str) -> None:
    for block, name in enumerate(names):
        machine.feed(*whole(block, name))
    machine.feed(Finish("tool_calls"))
    machine.ended()


def started(machine: Machine) -> list[str]:
    return [start.call_id for start in machine.starts]


def test_a_name_that_grows_into_one_with_side_effects_discards_the_reads_after_it() -> None:
    machine = Machine(sail=READ, sail_away=EFFECT, look=READ)
    machine.feed(ToolCallStart(0, "c0", "sail"), *whole(1, "look"))
    early = machine.starts[0].key
    machine.done(early, "too early")
    assert not [event for event in machine.events if isinstance(event, ToolEnd)]
    machine.feed(ToolCall("c0", "sail_away", {}, block=0, sealed_by="call_end"), Finish("tool_calls"))
    assert [event.ending for event in machine.events if isinstance(event, ToolEnd)] == ["discarded"]
    machine.ended()
    assert started(machine) == ["c1", "c0"]
    machine.done(machine.starts[1].key, "away")
    machine.done(machine.starts[2].key, "seen")
    assert [result.text for result in machine.requests[1][-1].results] == ["away", "seen"]


def test_a_call_whose_name_has_grown_is_skipped_once() -> None:
    machine = Machine(edit=ALONE, edit_all=ALONE)
    machine.feed(*whole(0, "edit"), ToolCallStart(1, "c1", "edit"))
    machine.feed(ToolCall("c1", "edit_all", {}, block=1, sealed_by="call_end"), Finish("tool_calls"))
    machine.ended()
    machine.take(machine.run.tool_done(machine.starts[0].key, Outcome((Text(0, "no"),), is_error=True)))
    ends = [(event.call_id, event.ending) for event in machine.events if isinstance(event, ToolEnd)]
    assert ends == [("c0", "failed"), ("c1", "skipped")]


def test_a_call_that_is_confirmed_first_does_not_overtake_one_that_still_grows() -> None:
    machine = Machine(pay=ToolPolicy(start="call"))
    machine.feed(ToolCallStart(0, "c0", "pay"), *whole(1, "pay", euros=2))
    assert started(machine) == []
    machine.feed(ToolCall("c0", "pay", {}, block=0, sealed_by="call_end"))
    assert started(machine) == ["c0", "c1"]


@pytest.mark.parametrize("first", ["unknown", "malformed"])
def test_a_call_that_cannot_run_holds_nobody(first: str) -> None:
    machine = Machine(write=EFFECT, look=READ)
    if first == "unknown":
        machine.feed(*whole(0, "nothing"))
    else:
        machine.feed(ToolCallStart(0, "c0", "write"), ToolCallInvalid(0, "c0", "write", "{", "malformed"))
    machine.feed(*whole(1, "look"))
    assert started(machine) == ["c1"]


def test_a_slow_predicate_holds_later_effects() -> None:
    machine = Machine(pay=ToolPolicy(needs_approval=lambda arguments: True), write=EFFECT)
    respond(machine, "pay", "write")
    assert started(machine) == []
    machine.take(machine.run.call_reviewed("1.0", CallReview("ask")))
    assert started(machine) == []
    machine.take(machine.run.decide("c0", True))
    assert started(machine) == ["c0", "c1"]


@pytest.mark.parametrize("how", ["declined", "expired"])
def test_a_blocked_call_starts_when_the_one_before_it_is_not_approved(how: str) -> None:
    machine = Machine(pay=ToolPolicy(needs_approval=True, expires=9.0), write=EFFECT)
    respond(machine, "pay", "write")
    assert started(machine) == []
    assert machine.run.is_waiting
    machine.take(machine.run.decide("c0", False) if how == "declined" else machine.run.call_expired("c0"))
    assert started(machine) == ["c1"]


def test_a_result_from_elsewhere_starts_the_read_after_it() -> None:
    machine = Machine(click=ToolPolicy(is_deferred=True), look=READ)
    respond(machine, "click", "look")
    assert started(machine) == []
    machine.take(machine.run.provide("c0", Outcome((Text(0, "clicked"),))))
    assert started(machine) == ["c1"]


def test_handovers_are_asked_for_at_once() -> None:
    machine = Machine(click=ToolPolicy(is_deferred=True))
    respond(machine, "click", "click")
    assert [request.call_id for request in machine.run.waiting] == ["c0", "c1"]
    assert machine.run.is_waiting


def test_all_approvals_of_a_response_are_asked_for_at_once() -> None:
    machine = Machine(pay=ASKED, edit=ToolPolicy(parallel=False, needs_approval=True))
    respond(machine, "pay", "edit", "pay")
    assert [request.call_id for request in machine.run.waiting] == ["c0", "c1", "c2"]


def test_a_skipped_call_withdraws_its_question() -> None:
    machine = Machine(edit=ToolPolicy(parallel=False, needs_approval=True))
    respond(machine, "edit", "edit")
    machine.take(machine.run.decide("c0", False))
    ends = [(event.call_id, event.ending) for event in machine.events if isinstance(event, ToolEnd)]
    assert ends == [("c0", "declined"), ("c1", "skipped")]
    assert not machine.run.waiting
    assert len(machine.requests) == 2


def test_a_decision_about_a_skipped_call_changes_nothing() -> None:
    machine = Machine(edit=ToolPolicy(parallel=False, needs_approval=True))
    respond(machine, "edit", "edit")
    machine.take(machine.run.decide("c0", False))
    assert machine.run.decide("c1", True) == []
    with pytest.raises(UsageError, match="c2"):
        machine.run.decide("c2", True)


@sync_and_async
@pytest.mark.parametrize("approved", [True, False])
def test_a_program_may_decide_about_all_that_waits_though_the_first_decision_skips_the_rest(
    mode: str, approved: bool
) -> None:
    pushed: list[str] = []

    def on_event(running: Any, event: StreamEvent) -> None:
        waiting = running.waiting
        if isinstance(event, ApprovalRequest) and len(waiting) == 2:
            for request in waiting:
                running.decide(request.call_id, approved)

    _, running = drive(streaming(made(COMMIT_AND_PUSH, *git_tools(pushed, both=True))), mode, on_event)
    assert running.finish_reason == "answered"
    assert pushed == (["commit", "push"] if approved else [])


@sync_and_async
def test_a_run_pauses_when_the_last_predicate_lets_a_call_go_that_another_one_holds(mode: str) -> None:
    def is_large(arguments: dict[str, Any]) -> bool:
        time.sleep(0.1)  # until the reader has read everything, and sleeps
        return False

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool(approval=is_large)
    def write() -> str:
        """Write."""
        return "written"

    done = end_of(events_of(made([Reply(call("pay", {}), call("write", {}))], pay, write), mode))
    assert done.reason == "paused"


def test_a_blocked_call_says_what_it_waits_for() -> None:
    machine = Machine(pay=ASKED, look=READ)
    respond(machine, "pay", "look")
    texts = [result.text for result in machine.run.state.history[-1].results]
    assert texts == ["Not run yet: it waits for approval.", "Not run yet: it waits for pay (c0)."]


def test_a_cancelled_run_starts_no_blocked_call() -> None:
    machine = Machine(pay=ASKED, write=EFFECT)
    respond(machine, "pay", "write")
    machine.take(machine.run.cancel())
    assert started(machine) == []
    assert not [event for event in machine.events if isinstance(event, ToolStart)]


@pytest.mark.parametrize("policy", [READ, EFFECT, ALONE, ASKED], ids=["read", "effect", "alone", "asked"])
def test_many_calls_take_linear_time(policy: ToolPolicy) -> None:
    def work(count: int) -> Callable[[], None]:
        def respond_and_return() -> None:
            machine = Machine(do=policy)
            respond(machine, *["do"] * count)
            for request in machine.run.waiting:
                machine.take(machine.run.decide(request.call_id, True))
            returned = 0
            while returned < len(machine.starts):
                machine.done(machine.starts[returned].key, "done")
                returned += 1

        return respond_and_return

    assert_linear(work, 20, 4)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_an_agent_with_side_effects_cannot_be_a_read_only_tool() -> None:
    inner = made([], *file_tools(), name="files")
    with pytest.raises(UsageError, match="write_file"):
        inner.as_tool(description="Works with files.", read_only=True)
