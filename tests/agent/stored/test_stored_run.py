"""Stored runs: open calls are requested again, and the run continues."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, ArgumentsError, StreamEvent, ToolEnd, UsageError, tool
from penstock.testing import Reply, call
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    SOON,
    Bench,
    answer_with,
    drive,
    end_of,
    made,
    on,
    results,
    resuming,
    run_of,
    streaming,
    sync_and_async,
    texts_of,
)

# -- what waits, for another process -----------------------------------------------------------------------------------


class Till:
    """An agent that pays if a person approves, and the payments."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay somebody."""
            self.paid.append(amount)
            return f"paid {amount}"

        calls = [call("pay", {"amount": amount}, id=f"call_{amount}") for amount in (1, 2)]
        self.agent = on("openai-chat", [Reply(*calls), Reply("Paid.")], pay)


class Answered:
    """A run that is answered as soon as it is entered, before it is read."""

    def __init__(self, running: Any, answer: Callable[[Any], None]) -> None:
        self._running, self._answer = running, answer

    def __enter__(self) -> Any:
        running = self._running.__enter__()
        self._answer(running)
        return running

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(*error)

    async def __aenter__(self) -> Any:
        running = await self._running.__aenter__()
        self._answer(running)
        return running

    async def __aexit__(self, *error: object) -> None:
        await self._running.__aexit__(*error)


def resumed(agent: Agent, stored: bytes, answer: Callable[[Any], None]) -> Callable[[str], Any]:
    return lambda prefix: Answered(resuming(agent, stored)(prefix), answer)


@sync_and_async
def test_the_result_of_a_paused_run_can_be_resumed_and_says_what_waits(mode: str) -> None:
    till = Till()
    paused = run_of(till.agent, mode, "Pay.")
    assert (paused.reason, paused.finish_reason) == ("paused", "paused")
    assert [one.call_id for one in paused.waiting] == ["call_1", "call_2"]

    def answer(running: Any) -> None:
        assert running.waiting == list(paused.waiting)
        for one in running.waiting:
            running.decide(one.call_id, approved=True)

    events, running = drive(resumed(till.agent, paused.state, answer), mode)
    assert (sorted(till.paid), running.output, running.waiting) == ([1, 2], "Paid.", [])
    assert not any(isinstance(event, ApprovalRequest) for event in events)
    assert end_of(events).reason == "answered"


@sync_and_async
def test_a_resumed_run_requests_only_open_approvals_again(mode: str) -> None:
    till = Till()
    stored = run_of(till.agent, mode, "Pay.").state

    def answer(running: Any) -> None:
        running.decide("call_1", approved=False)

    events, running = drive(resumed(till.agent, stored, answer), mode)
    assert [event.call_id for event in events if isinstance(event, ApprovalRequest)] == ["call_2"]
    assert [one.call_id for one in running.waiting] == ["call_2"]
    assert end_of(events).reason == "paused"


@sync_and_async
@pytest.mark.parametrize("place", ["here", "thread"])
def test_invalid_changed_arguments_raise_where_they_are_passed(place: str, mode: str) -> None:
    till = Till()
    stored = run_of(till.agent, mode, "Pay.").state
    raised: list[Exception] = []

    def attempt(running: Any, arguments: Any) -> None:
        try:
            running.decide("call_1", approved=True, arguments=arguments)
        except (ArgumentsError, UsageError) as error:
            raised.append(error)

    def answer(running: Any) -> None:
        for arguments in ({"amount": "many"}, {}, {"amount": {1}}):
            if place == "here":
                attempt(running, arguments)
            else:
                thread = threading.Thread(target=attempt, args=(running, arguments))
                thread.start()
                thread.join()
        assert [one.call_id for one in running.waiting] == ["call_1", "call_2"]
        running.decide("call_1", approved=True, arguments={"amount": 3})
        running.decide("call_2", approved=False, arguments={"amount": "many"})

    events, _ = drive(resumed(till.agent, stored, answer), mode)
    assert [type(error) for error in raised] == [ArgumentsError, ArgumentsError, UsageError]
    assert "amount" in str(raised[0])
    assert till.paid == [3]
    assert not any("many" in text for text in results(end_of(events)))


@sync_and_async
def test_a_resumed_run_reports_a_tool_that_no_longer_exists(mode: str) -> None:
    bench = Bench()

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    _, running = drive(streaming(made([Reply(call("pay"))], pay)), mode)
    agent = made([Reply("Done.")], *bench.tools)
    _, resumed = drive(resuming(agent, running.dump()), mode, answer_with(True))
    assert resumed.finish_reason == "answered"
    assert texts_of(resumed.messages) == ["There is no tool called 'pay'. There are: look, write, broken."]


# -- runs that were interrupted ----------------------------------------------------------------------------------------


@sync_and_async
def test_tools_that_ran_when_a_run_was_stored_are_reported_as_ended(mode: str) -> None:
    released, stored = threading.Event(), b""

    @tool
    def hang() -> str:
        """Hang."""
        released.wait(SOON)
        return "late"

    with made([Reply(call("hang"), call("write", {"text": "a"}))], hang, *Bench().tools).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolEnd):
                stored = running.dump()
                break
    released.set()
    events, resumed = drive(resuming(made([Reply("Done.")], hang, *Bench().tools), stored), mode)
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert (end.key, end.ending) == ("1.0", "cancelled")
    assert "may have had an effect" in end.result.text
    assert resumed.messages[2].results[0] == end.result
    assert resumed.messages[2].results[1].text == "written"
    assert resumed.finish_reason == "answered"


# -- runs that are over, and what is no run ----------------------------------------------------------------------------


@sync_and_async
def test_resuming_a_finished_run_emits_done(mode: str) -> None:
    agent = made([Reply("Hi.")])
    with agent.stream("Go.") as running:
        first = list(running)[-1]
    if mode == "sync":
        with agent.resume(running.dump()) as resumed:
            events = list(resumed)
    else:

        async def read() -> list[StreamEvent]:
            async with asyncio.timeout(SOON), agent.aresume(running.dump()) as resumed:
                return [event async for event in resumed]

        events = asyncio.run(read())
    assert events == [first]


def test_the_result_of_a_finished_run_has_no_state() -> None:
    result = made([Reply("Hi.")]).run("Go.")
    assert (result.finish_reason, result.waiting, result.state) == ("answered", (), b"")


def test_resuming_something_else_is_an_error() -> None:
    agent = made([Reply("Hi.")])
    state = {"penstock_run": 99, "phase": "sleeping"}
    wrong: list[Any] = [None, {}, b"{", b'{"penstock_run": 0}']
    for stored, message in [*((one, "not a stored run") for one in wrong), (json.dumps(state), "a later version")]:
        with pytest.raises(UsageError, match=message):
            agent.resume(stored)
