"""Tools that ask questions while they run: requests of the kind `input`, answered with `run.provide`."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import penstock.log
from penstock import ApprovalRequest, Context, Runs, StreamEvent, ToolEnd, UsageError, tool
from penstock.agent.calls.questions import NoAnswerError
from penstock.run.events import RequestKind, decode, encode
from penstock.run.state import RunState
from penstock.testing import Reply, call
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import SOON, check_history, drive, made, streaming, sync_and_async, texts_of

REPLIES = (Reply(call("book", {})), Reply("Done."))


def text_of(answer: Any) -> str:
    return f"{'declined' if answer.is_error else 'booked'} {answer.data}"


@tool
async def book(context: Context, seconds: float = SOON) -> str:
    """Book a seat."""
    return text_of(await asyncio.wrap_future(context.ask({"message": "Which seat?"}, seconds)))


@tool(name="book")
def plain_book(context: Context, seconds: float = SOON) -> str:
    """Book a seat."""
    return text_of(context.ask({"message": "Which seat?"}, seconds).result())


both_tools = pytest.mark.parametrize("booking", [book, plain_book], ids=["async tool", "plain tool"])


@sync_and_async
@both_tools
def test_a_tool_gets_the_answer_of_the_reader(mode: str, booking: Any) -> None:
    requests: list[ApprovalRequest] = []

    def answer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            requests.append(event)
            assert running.waiting == [event]
            running.provide(event.call_id, {"seat": 4})
            with pytest.raises(UsageError, match="waits for a result or an answer"):
                running.provide(event.call_id, {"seat": 5})

    events, running = drive(streaming(made(REPLIES, booking)), mode, answer)
    assert [(one.kind, one.name, one.arguments) for one in requests] == [("input", "book", {"message": "Which seat?"})]
    assert texts_of(running.messages) == ["booked {'seat': 4}"]
    check_history(running.messages)
    assert all(decode(encode(event)) == event for event in events)


@sync_and_async
def test_a_second_question_is_refused_and_the_first_keeps_its_answer(mode: str) -> None:
    has_asked = threading.Event()

    @tool(name="book")
    async def twice(context: Context) -> str:
        """Book a seat."""
        first, second = (context.ask({"message": message}, SOON) for message in ("Which seat?", "Which meal?"))
        has_asked.set()
        with pytest.raises(NoAnswerError, match="the call asks another question"):
            await asyncio.wrap_future(second)
        return text_of(await asyncio.wrap_future(first))

    def answer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            assert has_asked.wait(SOON)
            running.provide(event.call_id, event.arguments["message"])

    _, running = drive(streaming(made(REPLIES, twice)), mode, answer)
    assert texts_of(running.messages) == ["booked Which seat?"]


@sync_and_async
def test_a_question_that_is_declined_is_an_error_for_the_tool(mode: str) -> None:
    def decline(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.provide(event.call_id, "no", is_error=True)

    _, running = drive(streaming(made(REPLIES, book)), mode, decline)
    assert texts_of(running.messages) == ["declined no"]


@sync_and_async
@both_tools
def test_a_question_without_an_answer_ends_after_its_time(mode: str, booking: Any) -> None:
    requests: list[ApprovalRequest] = []

    def keep(running: Any, event: StreamEvent) -> None:
        requests.extend([event] if isinstance(event, ApprovalRequest) else [])
        if isinstance(event, ToolEnd):
            assert running.waiting == []
            with pytest.raises(UsageError):
                running.provide(requests[0].call_id, "too late")

    replies = (Reply(call("book", {"seconds": 0.01})), Reply("Done."))
    _, running = drive(streaming(made(replies, booking)), mode, keep)
    assert texts_of(running.messages) == ["no answer came within 0.01 seconds"]


@sync_and_async
@both_tools
def test_a_run_that_nobody_reads_refuses_the_question_at_once(mode: str, booking: Any) -> None:
    agent = made((Reply(call("book", {"seconds": 1000})), Reply("Done.")), booking)
    result = agent.run("Go.") if mode == "sync" else asyncio.run(agent.arun("Go."))
    assert texts_of(result.messages) == ["nobody reads this run, so nobody can answer"]


@sync_and_async
@both_tools
def test_cancel_ends_a_question(mode: str, booking: Any) -> None:
    def cancel(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.cancel()

    _, running = drive(streaming(made(REPLIES, booking)), mode, cancel)
    assert running.finish_reason == "cancelled"
    check_history(running.messages)


def test_another_process_answers_through_the_log() -> None:
    store = penstock.log.memory()
    agent = made(REPLIES, book, name="travel")
    runs = Runs(store, {"travel": agent})
    run_id = runs.start("travel", "Go.")

    async def main() -> None:
        driving = asyncio.create_task(runs.adrive(run_id))
        async for _, event in runs.afollow(run_id):
            if isinstance(event, ApprovalRequest):
                assert event.kind == "input"
                runs.provide(run_id, event.call_id, {"seat": 7})
        await driving

    asyncio.run(asyncio.wait_for(main(), SOON))
    ends = [event for _, event in runs.follow(run_id) if isinstance(event, ToolEnd)]
    assert [end.result.text for end in ends] == ["booked {'seat': 7}"]


def test_a_context_without_a_run_has_nobody_to_ask() -> None:
    with pytest.raises(UsageError, match=r"Context\.ask needs a run"):
        Context(deps=None).ask({}, 1.0)


def test_provide_looks_for_the_question_on_the_loop_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner runs begin and end there meanwhile."""
    threads: list[str] = []
    waits_for = RunState.waits_for

    def look(state: RunState, call_id: str, kind: RequestKind) -> bool:
        threads.append(threading.current_thread().name)
        return waits_for(state, call_id, kind)

    with made(REPLIES, book).stream("Go.") as running:
        for event in running:
            if isinstance(event, ApprovalRequest):
                monkeypatch.setattr(RunState, "waits_for", look)
                running.provide(event.call_id, "4")
    assert set(threads) == {"penstock-driver"}
