"""Steering: a message is said to a run from any thread, task or process, and the model gets it with the next step."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock.log
from penstock import Agent, Done, Model, Runs, Said, StepStart, StreamEvent, ToolStart, UsageError, check, tool
from penstock.log.in_memory import MemoryStore
from penstock.log.take_up import read_log
from penstock.messages import user
from penstock.run.rebuild import rebuild
from penstock.testing import Reply, Scripted, call
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import SOON, drive, made, resuming, streaming, sync_and_async


@tool
def look() -> str:
    """Look."""
    return "seen"


def looking(**options: Any) -> tuple[Agent, list[list[str]]]:
    """An agent that looks once, and the user messages that its model got with each request."""
    got: list[list[str]] = []

    def answer(request: Any) -> Any:
        messages = [item for item in request.body["messages"] if item["role"] == "user"]
        got.append([item["content"] for item in messages])
        return "Done." if has_results(request) else Reply(call("look", {}))

    return made(answer, look, **options), got


def has_results(request: Any) -> bool:
    return any(item["role"] == "tool" for item in request.body["messages"])


def said_texts(events: list[StreamEvent]) -> list[str]:
    return [event.message.text for event in events if isinstance(event, Said)]


def in_thread(work: Any) -> Any:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("way", ["reader", "thread", "task"])
@sync_and_async
def test_a_message_is_an_event_and_reaches_the_next_request(mode: str, way: str) -> None:
    agent, got = looking()
    others: list[Any] = []

    def steer(running: Any, event: StreamEvent) -> Any:
        if not isinstance(event, ToolStart):
            return None
        if way == "thread":
            others.append(in_thread(lambda: running.say("Be brief.")))
            return asyncio.to_thread(others[-1].join) if mode == "async" else others[-1].join()
        if way == "task" and mode == "async":
            return asyncio.create_task(as_task(running))
        return running.say("Be brief.")

    async def as_task(running: Any) -> None:
        running.say("Be brief.")

    events, running = drive(streaming(agent), mode, steer)
    assert said_texts(events) == ["Be brief."]
    assert got == [["Go."], ["Go.", "Be brief."]]
    assert check(running.messages) == []
    assert events.index(next(event for event in events if isinstance(event, Said))) < len(events) - 3


@sync_and_async
def test_a_message_after_the_answer_makes_one_more_step(mode: str) -> None:
    agent, got = looking()

    def steer(running: Any, event: StreamEvent) -> None:
        if event.type == "finish" and len(got) == 2:
            running.say("Really?")

    events, running = drive(streaming(agent), mode, steer)
    assert [event.step for event in events if isinstance(event, StepStart)] == [1, 2, 3]
    assert got[-1] == ["Go.", "Really?"]
    assert check(running.messages) == []


@sync_and_async
def test_a_message_survives_that_the_run_is_stored(mode: str) -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    got: list[Any] = []

    def answer(request: Any) -> Any:
        got.append([item["content"] for item in request.body["messages"] if item["role"] == "user"])
        return "Done." if has_results(request) else Reply(call("pay", {}))

    agent = made(answer, pay)

    def steer(running: Any, event: StreamEvent) -> None:
        if event.type == "approval_request":
            running.say("Hurry.")

    _, running = drive(streaming(agent), mode, steer)
    assert running.finish_reason == "paused"

    def decide(running: Any, event: StreamEvent) -> None:
        if event.type == "approval_request":
            running.decide(event.call_id, True)

    _, resumed = drive(resuming(agent, running.dump()), mode, decide)
    assert got[-1] == ["Go.", "Hurry."]
    assert check(resumed.messages) == []


SAY = """
import sys, penstock
store = penstock.log.open(sys.argv[1])
penstock.Runs(store, {}).say(sys.argv[2], "Be brief.", key="once")
penstock.Runs(store, {}).say(sys.argv[2], "Be brief.", key="once")
store.close()
"""


def test_a_message_comes_from_another_process_and_is_in_the_log(tmp_path: Path) -> None:
    path, got = tmp_path / "runs.db", []
    store = penstock.log.open(str(path))

    def answer(request: Any) -> Any:
        got.append(str(request.body["input"]))
        if "function_call_output" in got[-1]:
            return "Done."
        subprocess.run([sys.executable, "-c", SAY, str(path), run_id], check=True, timeout=SOON * 10)
        return Reply(call("wait", {}))

    @tool
    async def wait() -> str:
        """Wait until the message was taken."""
        async for _, event in runs.afollow(run_id):
            if isinstance(event, Said):
                break
        return "waited"

    runs = Runs(store, {"desk": Agent(Model("openai:gpt-5", via=Scripted(answer)), [wait])})
    run_id = runs.start("desk", "Go.")
    assert runs.drive(run_id).state == "over"
    events = [event for _, _, event in read_log(store, run_id)]
    assert [event.message.text for event in events if isinstance(event, Said)] == ["Be brief."]
    assert "Be brief." not in got[0]
    assert "Be brief." in got[-1]
    with pytest.raises(UsageError, match="the run is over"):
        runs.say(run_id, "Thanks.")
    store.close()


@sync_and_async
def test_a_message_to_a_run_that_is_over_is_an_error(mode: str) -> None:
    agent, _ = looking()
    _, running = drive(streaming(agent), mode)
    with pytest.raises(UsageError, match="the run is over"):
        running.say("Thanks.")


def test_a_message_from_a_thread_is_not_lost_silently_if_the_run_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, _ = looking()
    errors: list[Exception] = []

    def say(running: Any) -> None:
        try:
            running.say("Wait.")
        except UsageError as error:
            errors.append(error)

    async def read() -> Done | None:
        async with agent.astream("Go.") as running:
            loop, is_posted = asyncio.get_running_loop(), threading.Event()
            call_soon = loop.call_soon_threadsafe

            def posted(*arguments: Any, **options: Any) -> Any:
                handle = call_soon(*arguments, **options)
                is_posted.set()
                return handle

            monkeypatch.setattr(loop, "call_soon_threadsafe", posted)
            threads: list[threading.Thread] = []
            async for event in running:
                if isinstance(event, StepStart):
                    threads.append(in_thread(lambda: say(running)))
                    assert is_posted.wait(SOON)  # the loop comes to it after the cancel
                    running.cancel()
            await asyncio.to_thread(threads[0].join)
            return running.done

    done = asyncio.run(read())
    assert done is not None
    assert done.reason == "cancelled"
    assert [str(error) for error in errors] == ["the run is over: start another one, with this message as its prompt"]
    assert user("Wait.") not in done.messages


@sync_and_async
def test_a_run_that_was_told_something_at_any_event_is_rebuilt_as_it_was(mode: str) -> None:
    def run_with(place: int) -> int:
        """Say something at this event; returns how many events there were."""
        store, count = MemoryStore(), 0

        def say(run: Any, event: StreamEvent) -> None:
            nonlocal count
            count += 1
            if count == place:
                with suppress(UsageError):  # it has just ended
                    run.say("Hurry.")

        agent, _ = looking(before_step=lambda step: None, name="a")
        _, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode, say)
        log = [event for _, _, event in read_log(store, "r")]
        assert list(rebuild(log, agent.config.policies).state.messages) == list(run.messages), place
        return count

    for place in range(1, run_with(0)):
        run_with(place)


@pytest.mark.parametrize("message", ["", " \n", [], {"role": "user", "content": ""}])
def test_an_empty_message_is_refused(message: Any) -> None:
    agent = Agent(Model("openai-compatible:m", via=Scripted(["Hello."])), name="a")
    with agent.stream("Go.") as run:
        with pytest.raises(UsageError, match="nothing to say"):
            run.say(message)
        list(run)
    assert len(run.messages) == 2


def test_threads_that_want_something_of_a_run_begin_it_once() -> None:
    run = made(["Done."]).stream("Go.")
    at_once = threading.Barrier(8)

    def say_it(number: int) -> None:
        at_once.wait(SOON)
        run.say(f"Message {number}.")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(say_it, range(8)))
    said = [event for event in run if isinstance(event, Said)]
    assert len(said) == 8
