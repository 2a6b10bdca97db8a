"""`after_call`: hooks that see the result of each call that ran, and may change it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock import ApprovalRequest, Limits, PendingCall, StreamEvent, ToolEnd, ToolOutput, ToolResult, tool
from penstock.run.events import ToolReturned
from penstock.testing import Reply, call
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import SOON, Bench, drive, end_of, events_of, made, results, streaming, sync_and_async

WRITE = [Reply(call("write", {"text": "a"})), Reply("Done.")]
BROKEN = [Reply(call("broken", {})), Reply("Done.")]


def ends(events: list[StreamEvent]) -> list[ToolEnd]:
    return [event for event in events if isinstance(event, ToolEnd)]


@sync_and_async
def test_a_hook_changes_what_the_model_reads(mode: str) -> None:
    seen: list[tuple[Any, str]] = []

    def hook(call: PendingCall, result: ToolResult) -> str:
        seen.append((call.arguments, result.text))
        return result.text.upper()

    async def second(call: PendingCall, result: ToolResult) -> str:
        return f"{result.text}!"

    events = events_of(made(WRITE, *Bench().tools, after_call=[hook, lambda call, result: None, second]), mode)
    assert seen == [({"text": "a"}, "written")]
    assert results(end_of(events)) == ["WRITTEN!"]
    assert [(end.ending, end.data) for end in ends(events)] == [("done", "written")]
    assert not any(isinstance(event, ToolReturned) for event in events)


@sync_and_async
def test_a_plain_value_leaves_a_failure_a_failure(mode: str) -> None:
    events = events_of(made(BROKEN, *Bench().tools, after_call=lambda call, result: "It broke."), mode)
    assert [(end.ending, end.result.text) for end in ends(events)] == [("failed", "It broke.")]
    fixed = ToolOutput("fine", data=7)
    events = events_of(made(BROKEN, *Bench().tools, after_call=lambda call, result: fixed), mode)
    assert [(end.ending, end.result.text, end.data) for end in ends(events)] == [("done", "fine", 7)]


@sync_and_async
@pytest.mark.parametrize("how", ["raises", "hangs", "hangs async", "another type"])
def test_a_result_is_withheld_if_its_hook_fails(mode: str, how: str) -> None:
    release = threading.Event()

    def fail(call: PendingCall, result: ToolResult) -> Any:
        match how:
            case "raises":
                raise ValueError(result.text)
            case "hangs":
                release.wait(SOON)
            case _:
                return object()
        return None

    async def hang(call: PendingCall, result: ToolResult) -> None:
        await asyncio.sleep(SOON)

    bench = Bench()
    limits = Limits(hook_seconds=0.2) if "hangs" in how else None
    hook: Any = hang if how == "hangs async" else fail
    try:
        events = events_of(made(WRITE, *bench.tools, after_call=hook, limits=limits), mode)
    finally:
        release.set()
    kind = {"raises": "ValueError", "another type": "HookError"}.get(how, "TimeoutError")
    done = end_of(events)
    withheld = f"Its result is withheld: a hook of this program failed ({kind})."
    assert results(done) == [f"It ran, so it may have had an effect. {withheld}"]
    assert (done.reason, bench.ran) == ("answered", {"write a": 1})


@sync_and_async
def test_a_hook_does_not_see_calls_that_did_not_run(mode: str) -> None:
    seen: list[str] = []

    def refuse(call: PendingCall) -> PendingCall | None:
        return call.refuse("no") if call.arguments["text"] == "a" else call.answer("known")

    replies = [
        Reply(call("write", {"text": "a"}), call("write", {"text": "b"}), call("write", "{"), call("nothing", {})),
        Reply("Done."),
    ]
    agent = made(replies, *Bench().tools, before_call=refuse, after_call=lambda call, result: seen.append(call.name))
    end_of(events_of(agent, mode))
    assert seen == []


@sync_and_async
def test_a_hook_sees_early_reads_timeouts_and_provided_results(mode: str) -> None:
    seen: list[str] = []

    @tool(deferred=True)
    def paint() -> str:
        """Paint."""
        raise AssertionError

    @tool(timeout=0.05)
    async def slow() -> str:
        """Sleep."""
        await asyncio.sleep(SOON)
        return ""

    def answer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.provide(event.call_id, "painted")

    replies = [Reply(call("look", {"city": "Rome"}), call("paint", {}), call("slow", {})), Reply("Done.")]
    agent = made(replies, *Bench().tools, paint, slow, approvals="wait",
                 after_call=lambda call, result: seen.append(f"{call.name}: {result.text[:10]}"))  # fmt: skip
    events, _ = drive(streaming(agent), mode, answer)
    assert sorted(seen) == ["look: Rome is su", "paint: painted", "slow: The tool t"]
    assert end_of(events).reason == "answered"


@sync_and_async
def test_a_later_read_waits_for_the_hook_of_an_effect(mode: str) -> None:
    order: list[str] = []

    async def hook(call: PendingCall, result: ToolResult) -> None:
        await asyncio.sleep(0.05)
        order.append(f"after {call.name}")

    @tool
    def write() -> str:
        """Write."""
        order.append("write")
        return "written"

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        order.append("look")
        return "seen"

    replies = [Reply(call("write", {}), call("look", {})), Reply("Done.")]
    end_of(events_of(made(replies, write, look, after_call=hook), mode))
    assert order == ["write", "after write", "look", "after look"]


@sync_and_async
def test_a_cancelled_run_says_that_a_hook_had_not_passed_a_result_on(mode: str) -> None:
    runs: list[Any] = []

    async def hook(call: PendingCall, result: ToolResult) -> None:
        if mode == "sync":
            threading.Thread(target=runs[0].cancel).start()
        else:
            runs[0].cancel()
        await asyncio.sleep(SOON)

    agent = made(WRITE, *Bench().tools, after_call=hook)

    def start(prefix: str) -> Any:
        runs.append(getattr(agent, f"{prefix}stream")("Go."))
        return runs[0]

    events, _ = drive(start, mode)
    done = end_of(events)
    assert done.reason == "cancelled"
    [text] = results(done)
    assert text == "It ran, but a hook of this program had not passed on its result yet: the run was cancelled."
