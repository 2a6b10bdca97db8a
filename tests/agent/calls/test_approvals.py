"""Approvals: which calls need one, and what follows from the decision."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import threading
from collections import Counter
from enum import Enum
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, Done, Limits, StreamEvent, Tool, ToolEnd, UsageError, tool
from penstock.agent.calls.call_reviews import MAX_CHECKS
from penstock.run.events import decode, encode
from penstock.testing import Reply, call, wait
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    SOON,
    Bench,
    answer_with,
    check_history,
    drive,
    end_of,
    events_of,
    made,
    on,
    results,
    resuming,
    run_of,
    streaming,
    sync_and_async,
    texts_of,
)

# -- when an approval is needed ----------------------------------------------------------------------------------------


@sync_and_async
def test_an_approval_predicate_gets_the_arguments_of_the_tool(mode: str) -> None:
    ran: list[Any] = []

    class Size(Enum):
        SMALL = "small"
        LARGE = "large"

    @tool(approval=lambda arguments: arguments.get("force") is True or arguments["size"] is Size.LARGE)
    def wipe(path: str, force: bool = False, size: Size = Size.SMALL) -> str:
        """Wipe."""
        ran.append((path, force, size))
        return "wiped"

    @tool(approval=lambda arguments: arguments.get("amount", 0) == 500)
    def pay(amount: int = 500) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    large = [
        call("wipe", {"path": "/", "force": "true"}), call("wipe", {"path": "/", "size": "large"}),
        call("pay", {}), call("pay", {"amount": "500"}), call("pay", {"amount": None}),
    ]  # fmt: skip
    free = [call("wipe", {"path": "a", "force": "no"}), call("pay", {"amount": 5})]
    events = events_of(made([Reply(*free, *large)], wipe, pay), mode)
    assert sum(isinstance(event, ApprovalRequest) for event in events) == len(large)
    assert sorted(map(str, ran)) == sorted(["('a', False, <Size.SMALL: 'small'>)", "5"])


def test_a_predicate_knows_the_defaults_of_tools_that_have_a_schema() -> None:
    def pay(amount: int = 500) -> str:
        return f"paid {amount}"

    plain = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    with_default = {"type": "object", "properties": {"amount": {"type": "integer", "default": 500}}}
    for schema, function in ((plain, pay), (with_default, None)):
        payer = Tool.from_schema(
            "pay", "Pay.", schema, function, approval=lambda arguments: arguments.get("amount") == 500
        )
        done = end_of(events_of(made([Reply(call("pay", {}))], payer), "sync"))
        assert (done.reason, done.why) == ("paused", "a call waits for approval")


@sync_and_async
@pytest.mark.parametrize("approval", [True, lambda arguments: True])
def test_no_approval_is_requested_for_invalid_arguments(approval: Any, mode: str) -> None:
    @tool(approval=approval)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    events = events_of(made([Reply(call("pay", {"amount": "much"})), Reply("Done.")], pay), mode)
    done = end_of(events)
    assert done.reason == "answered"
    assert "amount" in results(done)[0]
    assert not any(isinstance(event, ApprovalRequest) for event in events)


@sync_and_async
def test_an_approval_predicate_is_called_once_and_cannot_change_the_arguments(mode: str) -> None:
    calls: list[Any] = []
    ran: list[Any] = []

    def is_large(arguments: dict[str, Any]) -> bool:
        calls.append(dict(arguments))
        arguments["items"].append("more")
        arguments["other"].append("more")
        return True

    @tool(approval=is_large, read_only=True)
    def take(items: Any, other: list[str] = ["one"]) -> str:  # noqa: B006  # it must not be changed, that is the point
        """Take."""
        ran.append((items, list(other)))
        return "taken"

    agent = on("anthropic", [Reply(call("take", {"items": ["a"]})), Reply("Done.")], take)
    _, running = drive(streaming(agent), mode, answer_with(True))
    assert len(calls) == 1
    assert ran == [(["a"], ["one"])]
    assert running.messages[1].tool_calls[0].arguments == {"items": ["a"]}


@sync_and_async
def test_a_predicate_that_raises_requires_approval(mode: str) -> None:
    ran: list[int] = []

    @tool(approval=lambda arguments: arguments["amount"] / (arguments["amount"] - 1) > 5)
    def pay(amount: int = 1) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    done = events_of(made([Reply(call("pay", {"amount": 3}), call("pay"))], pay), mode)[-1]
    assert isinstance(done, Done)
    assert (done.reason, ran) == ("paused", [3])


def risky() -> str:
    """Do it."""
    return "done"


@sync_and_async
def test_a_predicate_that_calls_sys_exit_requires_approval(mode: str) -> None:
    def leave(arguments: dict[str, Any]) -> bool:
        sys.exit(1)

    done = end_of(events_of(made([Reply(call("risky")), Reply("Done.")], tool(approval=leave)(risky)), mode))
    assert done.reason == "paused"


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
def test_a_predicate_that_hangs_is_not_waited_for_and_a_person_is_asked(mode: str, is_async: bool) -> None:
    is_over = threading.Event()
    asked: list[int] = []

    async def forever(arguments: dict[str, Any]) -> bool:
        asked.append(1)
        await asyncio.sleep(3600)
        return False

    def blocked(arguments: dict[str, Any]) -> bool:
        asked.append(1)
        is_over.wait(60)
        return False

    hangs = tool(approval=forever if is_async else blocked)(risky)
    calls = [call("risky") for _ in range(MAX_CHECKS + 2)]
    agent = made([Reply(*calls)], hangs, limits=Limits(hook_seconds=0.05))
    events = events_of(agent, mode)
    is_over.set()
    assert end_of(events).reason == "paused"
    assert sum(isinstance(event, ApprovalRequest) for event in events) == len(calls)
    assert len(asked) == len(calls)  # each has its own time, also those that waited for their turn


def test_a_predicate_that_blocks_does_not_delay_the_check_of_a_later_call() -> None:
    """The second call arrives while the predicate of the first is being called."""
    is_checked = threading.Event()

    def first(arguments: dict[str, Any]) -> bool:
        return not is_checked.wait(SOON)

    def second(arguments: dict[str, Any]) -> bool:
        is_checked.set()
        return False

    @tool(approval=first)
    def slow() -> str:
        """Slow."""
        return "slow"

    @tool(approval=second)
    def quick() -> str:
        """Quick."""
        return "quick"

    replies = [Reply(call("slow"), wait(0.1), call("quick")), Reply("Done.")]
    events = events_of(on("anthropic", replies, slow, quick, start="call"), "sync")
    assert end_of(events).reason == "answered"


# -- decisions ---------------------------------------------------------------------------------------------------------


def paying(bench: Bench) -> Agent:
    """An agent that writes something, and asks before it pays."""

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        bench.ran[f"pay {amount}"] += 1
        return "paid"

    replies = [Reply(call("write", {"text": "a"}), call("pay", {"amount": 5})), Reply("Done.")]
    return made(replies, pay, *bench.tools)


@pytest.mark.parametrize("decision", [(True, None), (True, {"amount": 3}), (False, None)])
def test_other_calls_run_while_one_waits_for_approval(decision: tuple[bool, Any]) -> None:
    bench = Bench()
    approved, arguments = decision
    with paying(bench).stream("Go.") as running:
        for event in running:
            if isinstance(event, ApprovalRequest):
                assert "pay 5" not in bench.ran
                running.decide(event.call_id, approved, arguments, "too much")
    paid = {"pay 5": 1} if arguments is None else {"pay 3": 1}
    assert bench.ran == Counter({"write a": 1, **(paid if approved else {})})
    assert running.finish_reason == "answered"
    check_history(running.messages)


@sync_and_async
def test_a_declined_call_does_not_count_as_a_failure(mode: str) -> None:
    @tool(approval=True, retries=0)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    replies = [*(Reply(call("pay", {"amount": at})) for at in range(3)), Reply("Done.")]
    events, running = drive(streaming(made(replies, pay)), mode, answer_with(False))
    assert running.finish_reason == "answered"
    assert [event.ending for event in events if isinstance(event, ToolEnd)] == ["declined"] * 3
    for event in events:
        assert decode(encode(event)) == event


@sync_and_async
def test_the_result_says_that_the_arguments_were_changed(mode: str) -> None:
    @tool(approval=True)
    def pay(amount: int, to: str = "Zoë") -> str:
        """Pay."""
        return f"paid {amount} to {to}"

    for arguments, start in (({"amount": 5, "to": "Zoë"}, "The user changed"), ({"amount": 500}, "paid 500")):
        agent = made([Reply(call("pay", {"amount": 500})), Reply("Done.")], pay)
        _, running = drive(streaming(agent), mode, answer_with(True, arguments))
        [text] = texts_of(running.messages)
        assert text.startswith(start)
        assert text.endswith(f"paid {arguments['amount']} to Zoë")
        assert (json.dumps(arguments, ensure_ascii=False) in text) is (start != "paid 500")


def test_changed_arguments_must_be_json() -> None:
    @tool(approval=True)
    def pay(amount: Any) -> str:
        """Pay."""
        return "paid"

    with made([Reply(call("pay", {"amount": 1})), Reply("Done.")], pay).stream("Go.") as running:
        for event in running:
            if isinstance(event, ApprovalRequest):
                for wrong in ([5], {"amount": object()}):
                    with pytest.raises(UsageError, match="JSON"):
                        running.decide(event.call_id, True, wrong)  # type: ignore[arg-type]
                running.decide(event.call_id, True)
    assert running.finish_reason == "answered"


# -- answers from another thread ---------------------------------------------------------------------------------------


@sync_and_async
def test_a_decision_may_come_from_any_thread(mode: str) -> None:
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="here")
    errors: list[str] = []

    def decide(running: Any, call_id: str) -> None:
        seen.set("there")
        for wrong, answer in (("nobody", running.decide), (call_id, running.provide)):
            with pytest.raises(UsageError) as raised:
                answer(wrong, True)
            errors.append(str(raised.value))
        running.decide(call_id, True)

    def on_event(running: Any, event: StreamEvent) -> Any:
        if isinstance(event, ApprovalRequest):
            thread = threading.Thread(target=decide, args=(running, event.call_id))
            thread.start()
            thread.join()  # the loop is not needed for it

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return f"paid {seen.get()}"

    agent = made([Reply(call("pay")), Reply("Done.")], pay, approvals="wait", limits=Limits(seconds=SOON))
    events, running = drive(streaming(agent), mode, on_event)
    assert running.finish_reason == "answered"
    assert running.messages[2].results[0].text == "paid here"
    assert "no call with the id 'nobody' waits for a decision" in errors[0]
    assert "waits for a result or an answer" in errors[1]
    assert isinstance(events[-1], Done)


def test_of_two_decisions_from_other_threads_the_first_counts() -> None:
    bench = Bench()

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        bench.ran["pay"] += 1
        return "paid"

    def on_event(running: Any, event: StreamEvent) -> Any:
        if isinstance(event, ApprovalRequest):
            for approved in (False, True):
                thread = threading.Thread(target=running.decide, args=(event.call_id, approved))
                thread.start()
                thread.join()

    agent = made([Reply(call("pay")), Reply("Done.")], pay, approvals="wait", limits=Limits(seconds=SOON))
    _, running = drive(streaming(agent), "async", on_event)
    assert "declined" in running.messages[2].results[0].text
    assert not bench.ran
    thread = threading.Thread(target=running.cancel)  # the loop is closed by now
    thread.start()
    thread.join()


def test_deciding_on_a_run_that_has_not_begun_is_an_error_in_another_thread() -> None:
    agent = made([Reply(call("risky")), Reply("Done.")], tool(approval=True)(risky))
    state = agent.run("Go.").state
    assert state is not None

    async def decide() -> None:
        running = agent.aresume(state)
        with pytest.raises(UsageError, match="enter it first"):
            await asyncio.to_thread(running.decide, "x", True)

    asyncio.run(decide())


# -- runs that pause ---------------------------------------------------------------------------------------------------


@sync_and_async
def test_agent_run_pauses_at_an_approval(mode: str) -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = made([Reply(call("pay"))], pay, approvals="wait", limits=Limits(seconds=SOON))
    assert run_of(agent, mode, "Go.").reason == "paused"


@sync_and_async
def test_a_paused_run_has_a_valid_history_and_stays_open_in_its_dump(mode: str) -> None:
    bench = Bench()
    agent = paying(bench)
    events, running = drive(streaming(agent), mode)
    done = end_of(events)
    assert done.reason == running.finish_reason == "paused"
    assert done.messages == tuple(running.messages)
    check_history(running.messages)
    written, waiting = running.messages[-1].results
    assert (waiting.text, waiting.is_error) == ("Not run yet: it waits for approval.", True)
    assert written.text == "written"
    with pytest.raises(UsageError, match="paused"):
        running.decide(waiting.call_id, True)
    _, resumed = drive(resuming(agent, running.dump()), mode, answer_with(True))
    assert resumed.finish_reason == "answered"
    assert resumed.messages[2].results[1].text == "paid"
    assert bench.ran == Counter({"pay 5": 1, "write a": 1})
    check_history(resumed.messages)
    result = made([Reply("Fine.")]).run("And now?", running.messages)
    assert result.output == "Fine."
