"""`before_call`: what a hook sees of a call, and what follows from its decision."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import Any

import pytest

import penstock
from penstock import (
    Agent,
    ApprovalRequest,
    Guard,
    Limits,
    PendingCall,
    StopRun,
    StreamEvent,
    ToolEnd,
    ToolStart,
    UsageError,
    tool,
)
from penstock.testing import Reply, call
from tests.leaks import nothing_is_left  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tests.scripted_runs import (
    SOON,
    Bench,
    answer_with,
    drive,
    end_of,
    events_of,
    made,
    on,
    results,
    resuming,
    streaming,
    sync_and_async,
)

WRITE = [Reply(call("write", {"text": "a"})), Reply("Done.")]
FAILED = "Not run: a hook of this program failed ({})."


def last_end(events: list[StreamEvent]) -> ToolEnd:
    return next(event for event in reversed(events) if isinstance(event, ToolEnd))


# -- the decisions -----------------------------------------------------------------------------------------------------


@sync_and_async
def test_a_hook_that_returns_none_lets_a_call_run(mode: str) -> None:
    bench, seen = Bench(), list[PendingCall]()
    events = events_of(made(WRITE, *bench.tools, before_call=seen.append), mode, deps="deps")
    assert bench.ran == {"write a": 1}
    [call] = seen
    assert (call.id, call.name, call.arguments, call.origin) == (
        last_end(events).call_id,
        "write",
        {"text": "a"},
        "native",
    )
    assert (call.deps, call.is_confirmed) == ("deps", True)
    assert call.tool is not None
    assert call.tool.name == "write"
    assert [message.role for message in call.messages] == ["user"]


@sync_and_async
def test_a_hook_changes_arguments(mode: str) -> None:
    bench = Bench()

    async def hook(call: PendingCall) -> PendingCall:
        return call.with_arguments({**call.arguments, "text": "b"})

    events = events_of(made(WRITE, *bench.tools, before_call=hook), mode)
    assert bench.ran == {"write b": 1}
    [start] = [event for event in events if isinstance(event, ToolStart)]
    assert start.arguments == {"text": "b"}
    assert results(end_of(events)) == ['This program changed the arguments to {"text": "b"}.\nwritten']


@sync_and_async
def test_a_hook_refuses_a_call(mode: str) -> None:
    bench = Bench()
    events = events_of(made(WRITE, *bench.tools, before_call=lambda call: call.refuse("no writing today.")), mode)
    assert not bench.ran
    assert results(end_of(events)) == ["Not run: no writing today."]
    assert last_end(events).ending == "declined"
    assert last_end(events).result.is_error


@sync_and_async
def test_a_hook_answers_a_call(mode: str) -> None:
    bench = Bench()
    events = events_of(made(WRITE, *bench.tools, before_call=lambda call: call.answer({"cached": 1})), mode)
    assert not bench.ran
    assert results(end_of(events)) == ['{"cached":1}']
    assert (last_end(events).ending, last_end(events).data) == ("done", {"cached": 1})


@sync_and_async
def test_a_hook_asks_a_person_who_sees_what_will_run(mode: str) -> None:
    bench = Bench()

    def hook(call: PendingCall) -> PendingCall:
        return call.with_arguments({"text": "b"}).ask("It writes.")

    agent = made(WRITE, *bench.tools, before_call=hook, approvals="wait")
    events, _ = drive(streaming(agent), mode, answer_with(True))
    [request] = [event for event in events if isinstance(event, ApprovalRequest)]
    assert request.arguments == {"text": "b"}
    assert request.note == 'It writes. This program changed the arguments to {"text": "b"}.'
    assert request.shown == {"text": "b", "note": request.note}
    assert bench.ran == {"write b": 1}


@sync_and_async
def test_a_person_has_the_last_word(mode: str) -> None:
    bench, seen = Bench(), list[PendingCall]()
    agent = made(WRITE, *bench.tools, before_call=[seen.append, lambda call: call.ask()], approvals="wait")
    events, _ = drive(streaming(agent), mode, answer_with(True, {"text": "c"}))
    assert bench.ran == {"write c": 1}
    assert len(seen) == 1
    assert results(end_of(events)) == ['The user changed the arguments to {"text": "c"}.\nwritten']


@sync_and_async
def test_hooks_of_a_list_see_what_those_before_them_decided(mode: str) -> None:
    bench, seen = Bench(), list[dict[str, Any]]()

    def first(call: PendingCall) -> PendingCall:
        return call.with_arguments({"text": "b"}).ask("why")

    def second(call: PendingCall) -> PendingCall:
        seen.append(dict(call.arguments))
        call.arguments["text"] = "a change of its copy"
        return call.refuse("no")

    def third(call: PendingCall) -> None:
        raise AssertionError("the first refusal ends the list")

    events = events_of(made(WRITE, *bench.tools, before_call=[first, second, third]), mode)
    assert seen == [{"text": "b"}]
    assert results(end_of(events)) == ["Not run: no."]


@sync_and_async
def test_a_hook_decides_before_the_predicate(mode: str) -> None:
    asked: list[dict[str, Any]] = []

    def predicate(arguments: dict[str, Any]) -> bool:
        asked.append(arguments)
        return False

    @tool(approval=predicate)
    def write(text: str) -> str:
        """Write."""
        return text

    def hook(call: PendingCall) -> PendingCall | None:
        return call.ask() if call.arguments["text"] == "asks" else call.with_arguments({"text": "b"})

    replies = [Reply(call("write", {"text": "a"})), Reply(call("write", {"text": "asks"})), Reply("Done.")]
    events, _ = drive(streaming(made(replies, write, before_call=hook, approvals="wait")), mode, answer_with(True))
    assert asked == [{"text": "b"}]  # the predicate is skipped if a hook asks
    assert end_of(events).reason == "answered"


@sync_and_async
def test_a_hook_of_one_run_replaces_those_of_the_agent(mode: str) -> None:
    bench = Bench()
    agent = made(WRITE, *bench.tools, before_call=lambda call: call.refuse("no"))
    drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", before_call=None), mode)
    assert bench.ran == {"write a": 1}


# -- when it is called -------------------------------------------------------------------------------------------------


@sync_and_async
def test_nothing_of_an_early_call_runs_before_its_hook(mode: str) -> None:
    order: list[str] = []

    @tool(read_only=True)
    def look(city: str) -> str:
        """Look."""
        order.append(f"look {city}")
        return city

    def hook(call: PendingCall) -> PendingCall | None:
        order.append(f"hook {call.arguments['city']} {call.is_confirmed}")
        return call.refuse("not there") if call.arguments["city"] == "Rome" else None

    replies = [Reply(call("look", {"city": "Oslo"}), call("look", {"city": "Rome"})), Reply("Done.")]
    events = events_of(on("anthropic", replies, look, before_call=hook), mode)
    assert sorted(order) == ["hook Oslo False", "hook Rome False", "look Oslo"]
    assert order.index("hook Oslo False") < order.index("look Oslo")
    assert results(end_of(events)) == ["Oslo", "Not run: not there."]


@sync_and_async
def test_a_hook_does_not_see_what_cannot_run(mode: str) -> None:
    bench, seen = Bench(), list[str]()
    replies = [Reply(call("nothing", {}), call("write", {"text": 1}), call("write", "{")), Reply("Done.")]
    events = events_of(made(replies, *bench.tools, before_call=lambda call: seen.append(call.name)), mode)
    assert seen == []
    assert not bench.ran
    assert len(results(end_of(events))) == 3


@sync_and_async
def test_a_call_in_the_text_says_so(mode: str) -> None:
    bench, origins = Bench(), list[str]()
    text = '<tool_call>{"name": "look", "arguments": {"city": "Rome"}}</tool_call>'
    agent = made([Reply(text), Reply("Done.")], *bench.tools, calls="hermes",
                 before_call=lambda call: origins.append(call.origin))  # fmt: skip
    events_of(agent, mode)
    assert origins == ["text:hermes"]
    assert bench.ran == {"look Rome": 1}


@sync_and_async
def test_later_effects_wait_for_the_hook_of_an_earlier_one(mode: str) -> None:
    bench = Bench()
    entered, go = threading.Event(), threading.Event()

    def hook(call: PendingCall) -> PendingCall | None:
        if call.arguments["text"] == "b":
            entered.set()
            return None
        assert entered.wait(SOON)
        go.set()
        return call.refuse("no")

    replies = [Reply(call("write", {"text": "a"}), call("write", {"text": "b"})), Reply("Done.")]
    events = events_of(made(replies, *bench.tools, before_call=hook), mode)
    assert results(end_of(events)) == ["Not run: no.", "written"]
    ended = [event.call_id for event in events if isinstance(event, ToolEnd)]
    assert len(ended) == 2
    first_end = next(index for index, event in enumerate(events) if isinstance(event, ToolEnd))
    second_start = next(index for index, event in enumerate(events) if isinstance(event, ToolStart))
    assert first_end < second_start


# -- hooks that fail ---------------------------------------------------------------------------------------------------


def raise_error(call: PendingCall) -> None:
    raise ValueError("a secret")


async def raise_later(call: PendingCall) -> None:
    await asyncio.sleep(0)
    raise KeyError("a secret")


async def cancel_itself(call: PendingCall) -> None:
    raise asyncio.CancelledError


FAILING: dict[str, tuple[Any, str]] = {
    "raises": (raise_error, "ValueError"),
    "raises later": (raise_later, "KeyError"),
    "raises SystemExit": (lambda call: exit_program(), "SystemExit"),
    "cancels itself": (cancel_itself, "CancelledError"),
    "returns another type": (lambda call: True, "HookError"),
    "returns a string": (lambda call: "no", "HookError"),
    "returns another call": (lambda call: PendingCall(id="x", name="write", arguments={}), "HookError"),
    "arguments that do not fit": (lambda call: call.with_arguments({"text": 1}), "ArgumentsError"),
    "arguments that are not there": (lambda call: call.with_arguments({}), "ArgumentsError"),
    "arguments that are not JSON": (lambda call: call.with_arguments({"text": object()}), "UsageError"),
    "arguments that are no object": (lambda call: call.with_arguments("text"), "UsageError"),
    "no sentence": (lambda call: call.refuse(""), "UsageError"),
    "takes nothing": (lambda: None, "TypeError"),
}


def exit_program() -> None:
    raise SystemExit(3)


@sync_and_async
@pytest.mark.parametrize("how", FAILING)
def test_a_hook_that_fails_lets_its_call_not_run_and_the_run_go_on(how: str, mode: str) -> None:
    bench = Bench()
    hook, kind = FAILING[how]
    events = events_of(made(WRITE, *bench.tools, before_call=hook), mode)
    assert not bench.ran
    done = end_of(events)
    assert (done.reason, done.output) == ("answered", "Done.")
    assert results(done) == [FAILED.format(kind)]
    assert last_end(events).ending == "failed"


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_hangs_fails(mode: str, is_async: bool) -> None:
    bench, release = Bench(), threading.Event()

    def hang(call: PendingCall) -> None:
        release.wait(SOON)

    async def ahang(call: PendingCall) -> None:
        await asyncio.sleep(SOON)

    agent = made(WRITE, *bench.tools, before_call=ahang if is_async else hang, limits=Limits(hook_seconds=0.05))
    try:
        events = events_of(agent, mode)
    finally:
        release.set()
    assert not bench.ran
    assert results(end_of(events)) == [FAILED.format("TimeoutError")]


def test_the_log_names_a_failed_hook_and_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.agent"):
        made(WRITE, *Bench().tools, before_call=raise_error).run("Go.")
    [record] = [record.getMessage() for record in caplog.records if "before_call" in record.getMessage()]
    assert "before_call (raise_error) raised ValueError in test_before_call.py, line " in record
    assert "secret" not in record


@pytest.mark.parametrize("option", ["before_call", "after_call"])
def test_a_hook_that_is_no_function_is_a_mistake(option: str) -> None:
    options: Any = {option: "text"}
    with pytest.raises(UsageError, match=f"{option} must be a function that takes a PendingCall"):
        Agent("openai:m", **options)


# -- the guard, steering, and cancelling -------------------------------------------------------------------------------


@sync_and_async
def test_the_guard_sees_changed_arguments(mode: str) -> None:
    bench, seen = Bench(), list[dict[str, Any]]()

    def check(name: str, arguments: dict[str, Any]) -> StopRun | None:
        seen.append(arguments)
        return StopRun("not that") if arguments["text"] == "b" else None

    guard = Guard(lambda text: text, check)
    agent = made(WRITE, *bench.tools, guard=guard, before_call=lambda call: call.with_arguments({"text": "b"}))
    done = end_of(events_of(agent, mode))
    assert seen == [{"text": "a"}, {"text": "b"}]
    assert (done.reason, done.why) == ("refused", "not that")
    assert not bench.ran


@sync_and_async
def test_a_guard_that_fails_on_changed_arguments_ends_the_run(mode: str) -> None:
    bench = Bench()

    def check(name: str, arguments: dict[str, Any]) -> None:
        if arguments["text"] == "b":
            raise ValueError("a secret")

    guard = Guard(lambda text: text, check)
    agent = made(WRITE, *bench.tools, guard=guard, before_call=lambda call: call.with_arguments({"text": "b"}))
    done = end_of(events_of(agent, mode))
    assert (done.reason, done.why) == ("error", "the guard raised ValueError")
    assert not bench.ran


@sync_and_async
def test_a_hook_may_steer_or_cancel_its_run(mode: str) -> None:
    bench = Bench()
    runs: list[Any] = []

    def hook(call: PendingCall) -> None:
        runs[0].say("And hurry.")
        if call.arguments["text"] == "b":
            runs[0].cancel()

    replies = [Reply(call("write", {"text": "a"})), Reply(call("write", {"text": "b"})), Reply("Done.")]
    agent = made(replies, *bench.tools, before_call=hook)

    def start(prefix: str) -> Any:
        runs.append(getattr(agent, f"{prefix}stream")("Go."))
        return runs[0]

    events, _ = drive(start, mode)
    done = end_of(events)
    assert done.reason == "cancelled"
    assert bench.ran == {"write a": 1}
    assert "And hurry." in "".join(message.text for message in done.messages)


# -- a run that is stored ----------------------------------------------------------------------------------------------


@sync_and_async
def test_a_stored_run_keeps_what_a_hook_decided(mode: str) -> None:
    bench, seen = Bench(), list[str]()

    def hook(call: PendingCall) -> PendingCall:
        seen.append(call.name)
        return call.with_arguments({"text": "b"}).ask("why")

    agent = made(WRITE, *bench.tools, before_call=hook)
    _, paused = drive(streaming(agent), mode)
    assert not bench.ran
    events, _ = drive(resuming(agent, paused.dump()), mode, answer_with(True))
    assert seen == ["write"]
    assert bench.ran == {"write b": 1}
    [request] = [event for event in events if isinstance(event, ApprovalRequest)]
    assert request.note.startswith("why")
    assert end_of(events).reason == "answered"


@sync_and_async
def test_a_deferred_call_is_handed_over_with_the_arguments_of_the_hook(mode: str) -> None:
    @tool(deferred=True)
    def paint(colour: str) -> str:
        """Paint."""
        raise AssertionError

    replies = [Reply(call("paint", {"colour": "red"})), Reply("Done.")]
    agent = made(replies, paint, before_call=lambda call: call.with_arguments({"colour": "blue"}), approvals="wait")

    def answer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            assert (event.kind, event.arguments) == ("deferred", {"colour": "blue"})
            running.provide(event.call_id, "painted")

    events, _ = drive(streaming(agent), mode, answer)
    assert results(end_of(events)) == ['This program changed the arguments to {"colour": "blue"}.\npainted']


@sync_and_async
def test_hooks_of_an_agent_see_the_calls_of_agents_and_not_those_inside(mode: str) -> None:
    bench, outer, inner = Bench(), list[str](), list[str]()
    helper = made(WRITE, *bench.tools, name="helper", before_call=lambda call: inner.append(call.name))
    tools = [helper.as_tool(description="Helps.")]
    replies = [Reply(call("helper", {"prompt": "Write."})), Reply("Done.")]
    agent = made(replies, *tools, before_call=lambda call: outer.append(call.name))
    assert end_of(events_of(agent, mode)).reason == "answered"
    assert (outer, inner) == (["helper"], ["write"])
    assert bench.ran == {"write a": 1}


def test_process_stream_calls_the_hooks() -> None:
    bench = Bench()
    text = '<function_calls><invoke name="write"><parameter name="text">a</parameter></invoke></function_calls>'

    def before(call: PendingCall) -> PendingCall:
        return call.with_arguments({"text": "b"})

    async def read(**options: Any) -> list[str]:
        agent = penstock.AgentStreamer(None, bench.tools, **options)
        history = await agent.process_stream([text])
        return [result.text for message in history for result in message.results]

    [changed] = asyncio.run(read(before_call=before, after_call=lambda call, result: f"{result.text}!"))
    assert changed == 'This program changed the arguments to {"text": "b"}.\nwritten!'
    assert bench.ran == {"write b": 1}
    assert asyncio.run(read(before_call=lambda call: call.refuse("no"))) == ["Not run: no."]
    assert asyncio.run(read(before_call=lambda call: call.answer(7))) == ["7"]
    [cannot] = asyncio.run(read(before_call=lambda call: call.ask()))
    assert "needs approval" in cannot
    assert bench.ran == {"write b": 1}


@sync_and_async
def test_a_hook_that_swallows_its_timeout_does_not_let_the_call_run(mode: str) -> None:
    bench = Bench()

    async def swallow(call: PendingCall) -> None:
        with suppress(BaseException):
            await asyncio.sleep(30)

    events = events_of(made(WRITE, *bench.tools, before_call=swallow, limits=Limits(hook_seconds=0.05)), mode)
    assert not bench.ran
    assert results(end_of(events)) == [FAILED.format("TimeoutError")]
