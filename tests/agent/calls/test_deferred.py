"""Deferred tools: their calls run elsewhere, and their results come from there."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, Limits, Model, StreamEvent, ToolEnd, UsageError, as_tool, tool
from penstock.run.events import decode, encode
from penstock.testing import Reply, Scripted, call, drop, say
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import Bench, check_history, drive, made, resuming, streaming, sync_and_async


@tool(deferred=True)
def build(target: str) -> str:
    """Build something, elsewhere."""
    raise AssertionError("it does not run here")


RAW = {
    "type": "function",
    "function": {
        "name": "build", "description": "Build something.",
        "parameters": {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]},
    },
}  # fmt: skip


REPLIES = (Reply(call("write", {"text": "a"}), call("build", {"target": "x"})), Reply("Done."))


@sync_and_async
@pytest.mark.parametrize("declared", [build, RAW, RAW["function"]])
def test_other_calls_run_while_one_is_deferred(declared: Any, mode: str) -> None:
    bench = Bench()
    requests: list[ApprovalRequest] = []

    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            requests.append(event)
        if isinstance(event, ToolEnd) and event.result.name == "write":
            running.provide(requests[0].call_id, {"ok": True})

    agent = made(REPLIES, declared, *bench.tools)
    events, running = drive(streaming(agent), mode, on_event)
    assert [(one.kind, one.name, one.arguments) for one in requests] == [("deferred", "build", {"target": "x"})]
    assert [result.text for result in running.messages[2].results] == ["written", '{"ok":true}']
    assert running.finish_reason == "answered"
    check_history(running.messages)
    for event in events:
        assert decode(encode(event)) == event


@sync_and_async
def test_a_run_with_a_deferred_call_is_stored_and_continued(mode: str) -> None:
    bench = Bench()
    _, running = drive(streaming(made(REPLIES[:1], build, *bench.tools)), mode)
    assert (running.finish_reason, running.done.why) == ("paused", "a call waits for its result from elsewhere")
    assert "has not come yet" in running.messages[-1].results[1].text
    check_history(running.messages)

    def on_event(resumed: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            with pytest.raises(UsageError, match="deferred"):
                resumed.decide(event.call_id, True)
            resumed.provide(event.call_id, "no such target", is_error=True)

    agent = made(REPLIES[1:], build, *bench.tools)
    events, resumed = drive(resuming(agent, running.dump()), mode, on_event)
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert (end.ending, end.result.text, end.result.is_error) == ("failed", "no such target", True)
    assert (resumed.output, bench.ran) == ("Done.", Counter({"write a": 1}))
    check_history(resumed.messages)


@sync_and_async
def test_a_result_may_come_before_the_resumed_run_is_read(mode: str) -> None:
    _, running = drive(streaming(made(REPLIES[:1], build, *Bench().tools)), mode)
    call_id = running.messages[1].tool_calls[1].id
    line = Scripted(REPLIES[1:])
    agent = Agent(Model("openai-compatible:m", via=line), [build, *Bench().tools])

    async def read() -> Any:
        resumed = agent.aresume(running.dump())
        resumed.provide(call_id, "built")
        async for _ in resumed:
            pass
        return resumed

    resumed: Any = agent.resume(running.dump())
    if mode == "sync":
        resumed.provide(call_id, "built")
        list(resumed)
    else:
        resumed = asyncio.run(read())
    assert (resumed.output, len(line.requests)) == ("Done.", 1)
    assert resumed.messages[2].results[1].text == "built"


def test_a_deferred_call_with_invalid_arguments_is_not_handed_over() -> None:
    for declared in (build, RAW):
        events, running = drive(streaming(made([Reply(call("build", {"goal": 1})), Reply("Done.")], declared)), "sync")
        assert not any(isinstance(event, ApprovalRequest) for event in events)
        assert "target" in running.messages[2].results[0].text
        assert running.finish_reason == "answered"


def test_a_deferred_call_may_need_approval() -> None:
    kinds: list[str] = []

    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            kinds.append(event.kind)
            if event.kind == "approval":
                running.decide(event.call_id, True, {"target": "y"})
            else:
                running.provide(event.call_id, event.arguments["target"])

    agent = made(REPLIES, as_tool(RAW, approval=True), *Bench().tools)
    _, running = drive(streaming(agent), "sync", on_event)
    assert kinds == ["approval", "deferred"]
    assert running.messages[2].results[1].text == 'The user changed the arguments to {"target": "y"}.\ny'


@sync_and_async
@pytest.mark.parametrize("way", ["cancel", "drop"])
def test_a_deferred_call_ends_when_its_run_ends(way: str, mode: str) -> None:
    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest) and way == "cancel":
            running.cancel()

    rest = [drop()] if way == "drop" else []
    line = Scripted([Reply(call("build", {"target": "x"}), say("And so on."), *rest)])
    agent = Agent(Model("anthropic:m", via=line), [as_tool(RAW, start="call", read_only=True)])
    events, running = drive(streaming(agent), mode, on_event)
    [request] = [event for event in events if isinstance(event, ApprovalRequest)]
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert (end.result.call_id, end.ending) == (request.call_id, "cancelled")
    assert "may have an effect" in end.result.text
    assert running.messages[-1].results == [end.result]
    assert running.finish_reason == {"cancel": "cancelled", "drop": "cut"}[way]
    check_history(running.messages)


def test_deferred_calls_count_as_calls() -> None:
    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.provide(event.call_id, "built")

    agent = made([Reply(call("build", {"target": str(at)})) for at in range(4)], build, limits=Limits(calls=2))
    events, running = drive(streaming(agent), "sync", on_event)
    assert sum(isinstance(event, ApprovalRequest) for event in events) == 2
    assert "there may be 2" in running.done.why


@pytest.mark.parametrize(("options", "fault"), [({"timeout": 1}, "timeout"), ({"start": "closed"}, "'turn'")])
def test_options_that_a_deferred_tool_cannot_have_are_errors(options: Any, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        as_tool(RAW, read_only=True, **options)
