"""`@tool(prepare=…)`: what runs before a tool starts, when, and what is discarded."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import penstock
from penstock import (
    ApprovalRequest,
    Context,
    Prepared,
    StreamEvent,
    ToolEnd,
    ToolError,
    ToolPrepare,
    ToolStart,
    UsageError,
    tool,
)
from penstock.testing import Hang, Reply, Reset, Scripted, call, say, wait
from penstock.testing.reply import Drop
from penstock.testing.response import Response
from penstock.transport.commands import OpenRequest
from penstock.transport.policy import Retries
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    SOON,
    answer_with,
    drive,
    end_of,
    events_of,
    made,
    model_on,
    on,
    results,
    resuming,
    streaming,
    sync_and_async,
)

Tool = penstock.Tool[..., Any]


def editor(order: list[str], **options: Any) -> Tool:
    """A tool in two phases that notes what ran."""

    def prepare(path: str, context: Context[Any]) -> Prepared:
        order.append(f"prepare {path}")
        return Prepared(f"diff of {path}", preview=f"- {path}")

    @tool(prepare=prepare, **options)
    def edit(path: str, context: Context[Any]) -> str:
        """Edit a file."""
        order.append(f"edit {path}")
        return f"{path}: {context.prepared}"

    return edit


def edits(*paths: str) -> list[Reply]:
    return [Reply(*(call("edit", {"path": path}) for path in paths)), Reply("Done.")]


def named(events: list[StreamEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("prepares_async", [False, True])
def test_a_tool_gets_what_its_prepare_returned(mode: str, is_async: bool, prepares_async: bool) -> None:
    def plain(path: str, context: Context[Any]) -> list[Any]:
        return [path, context.deps, context.call_id, context.tool, context.step]

    async def coroutine(path: str, context: Context[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return plain(path, context)

    def edit(path: str, text: str, context: Context[Any]) -> str:
        """Edit."""
        return str(context.prepared)

    async def aedit(path: str, text: str, context: Context[Any]) -> str:
        """Edit."""
        return str(context.prepared)

    prepare = coroutine if prepares_async else plain
    edited = tool(aedit if is_async else edit, name="edit", prepare=prepare)
    replies = [Reply(call("edit", {"path": "a", "text": "b"}, id="call_1")), Reply("Done.")]
    events = events_of(made(replies, edited), mode, deps="deps")
    assert results(end_of(events)) == ["['a', 'deps', 'call_1', 'edit', 1]"]
    assert [event.type for event in events if event.type in ("tool_prepare", "tool_start", "tool_end")] == [
        "tool_prepare", "tool_start", "tool_end",
    ]  # fmt: skip


@sync_and_async
def test_effects_prepare_when_their_arguments_close_and_start_after_the_turn(mode: str) -> None:
    order: list[str] = []
    script = [Reply(call("edit", {"path": "a"}), say("And so on."), wait(0.2), say("More.")), Reply("Done.")]
    events = events_of(on("anthropic", script, editor(order)), mode)
    kinds = [event.type for event in events]
    assert kinds.index("tool_prepare") < kinds.index("text")
    assert kinds.index("tool_start") > kinds.index("step_end")
    assert order == ["prepare a", "edit a"]
    assert results(end_of(events)) == ["a: diff of a"]


@sync_and_async
def test_three_effects_prepare_beside_each_other(mode: str) -> None:
    barrier = threading.Barrier(3, timeout=SOON)

    @tool(prepare=lambda: barrier.wait())
    def edit() -> str:
        """Edit."""
        return "edited"

    events = events_of(made([Reply(*[call("edit", {})] * 3), Reply("Done.")], edit), mode)
    assert results(end_of(events)) == ["edited"] * 3
    assert len(named(events, ToolPrepare)) == 3


@sync_and_async
def test_calls_that_run_alone_prepare_after_the_calls_before_them(mode: str) -> None:
    order: list[str] = []
    end_of(events_of(made(edits("a", "b"), editor(order, parallel=False)), mode))
    assert order == ["prepare a", "edit a", "prepare b", "edit b"]


@sync_and_async
def test_a_person_is_asked_with_the_preview_at_hand(mode: str) -> None:
    order: list[str] = []
    agent = made(edits("a"), editor(order, approval=True), approvals="wait")
    events, _ = drive(streaming(agent), mode, answer_with(True))
    [request] = named(events, ApprovalRequest)
    assert (request.preview, request.shown) == ("- a", {"path": "a", "preview": "- a"})
    assert order == ["prepare a", "edit a"]
    assert results(end_of(events)) == ["a: diff of a"]


@sync_and_async
@pytest.mark.parametrize("how", ["declined", "changed"])
def test_what_was_prepared_is_discarded_with_its_arguments(mode: str, how: str) -> None:
    order: list[str] = []
    agent = made(edits("a"), editor(order, approval=True), approvals="wait")
    answer = answer_with(False) if how == "declined" else answer_with(True, {"path": "b"})
    events, _ = drive(streaming(agent), mode, answer)
    assert order == (["prepare a"] if how == "declined" else ["prepare a", "prepare b", "edit b"])
    assert end_of(events).reason == "answered"


@sync_and_async
def test_what_was_prepared_is_not_stored_and_made_again(mode: str) -> None:
    order: list[str] = []
    agent = made(edits("a"), editor(order, approval=True))
    _, paused = drive(streaming(agent), mode)
    assert order == ["prepare a"]
    events, _ = drive(resuming(agent, paused.dump()), mode, answer_with(True))
    assert order == ["prepare a", "prepare a", "edit a"]
    [request] = named(events, ApprovalRequest)
    assert request.preview == "- a"
    assert results(end_of(events)) == ["a: diff of a"]


@sync_and_async
@pytest.mark.parametrize("verdict", ["refuse", "answer"])
def test_a_call_that_a_hook_does_not_let_run_does_not_prepare(mode: str, verdict: str) -> None:
    order: list[str] = []
    agent = made(edits("a"), editor(order), before_call=lambda call: getattr(call, verdict)("no"))
    end_of(events_of(agent, mode))
    assert order == []


@sync_and_async
def test_a_call_prepares_with_the_arguments_of_the_hooks(mode: str) -> None:
    order: list[str] = []
    agent = made(edits("a"), editor(order), before_call=lambda call: call.with_arguments({"path": "b"}))
    end_of(events_of(agent, mode))
    assert order == ["prepare b", "edit b"]


# -- prepares that fail ------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("error", [ValueError("no file"), ToolError("no file"), SystemExit("no file")])
def test_a_call_that_cannot_be_prepared_ends_with_the_error_and_nobody_is_asked(
    mode: str, error: BaseException, asks: bool
) -> None:
    calls: list[str] = []

    def prepare(path: str) -> None:
        calls.append(path)
        raise error

    @tool(prepare=prepare, approval=asks)
    def edit(path: str) -> str:
        """Edit."""
        raise AssertionError

    events = events_of(made(edits("a"), edit, approvals="wait"), mode)
    done = end_of(events)
    assert "no file" in results(done)[0]
    assert [end.ending for end in named(events, ToolEnd)] == ["failed"]
    assert not named(events, ApprovalRequest)
    assert calls == ["a"]  # once
    assert done.reason == "answered"


@sync_and_async
def test_the_time_of_prepare_counts_for_the_timeout(mode: str) -> None:
    release = threading.Event()
    began: list[str] = []

    def prepare(path: str) -> None:
        release.wait(SOON)

    @tool(prepare=prepare, timeout=0.1)
    def edit(path: str) -> str:
        """Edit."""
        began.append(path)
        return ""

    try:
        events = events_of(made(edits("a"), edit), mode)
    finally:
        release.set()
    assert results(end_of(events)) == ["The tool timed out after 0.1 seconds."]
    assert began == []


@sync_and_async
def test_the_time_between_prepare_and_the_start_does_not_count_for_the_timeout(mode: str) -> None:
    order: list[str] = []
    agent = made(edits("a"), editor(order, approval=True, timeout=5.0), approvals="wait")

    def decide(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            for preparing in running._driver._dispatcher.tools.preparations._by_key.values():
                preparing._began -= 60  # it ended 60 seconds ago
                preparing._ended -= 60
            running.decide(event.call_id, True)

    events, _ = drive(streaming(agent), mode, decide)
    assert results(end_of(events)) == ["a: diff of a"]


@sync_and_async
def test_arguments_are_checked_before_prepare(mode: str) -> None:
    order: list[str] = []
    replies = [Reply(call("edit", {"path": 1})), Reply("Done.")]
    events = events_of(made(replies, editor(order)), mode)
    assert order == []
    assert named(events, ToolEnd)[0].ending == "failed"
    assert end_of(events).reason == "answered"


@sync_and_async
def test_a_cancelled_run_stops_what_prepares(mode: str) -> None:
    stopped = threading.Event()

    async def prepare(path: str, context: Context[Any]) -> None:
        try:
            await asyncio.sleep(SOON)
        finally:
            stopped.set()

    @tool(prepare=prepare)
    def edit(path: str) -> str:
        """Edit."""
        raise AssertionError

    def cancel(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolPrepare):
            time.sleep(0.05) if mode == "sync" else None
            running.cancel()

    script = [Reply(call("edit", {"path": "a"}), wait(SOON)), Reply("Done.")]
    began = time.monotonic()
    events, _ = drive(streaming(on("anthropic", script, edit)), mode, cancel)
    assert end_of(events).reason == "cancelled"
    assert time.monotonic() - began < SOON
    assert not named(events, ToolStart)


# -- streams that break off --------------------------------------------------------------------------------------------


class CutAt(Scripted):
    """Plays a script whose first response breaks off after some bytes."""

    def __init__(self, replies: list[Reply], size: int) -> None:
        super().__init__(replies)
        self.size = size
        self.whole = b""

    def _respond(self, command: OpenRequest) -> Response | Hang | Reset:
        played = super()._respond(command)
        assert isinstance(played, Response)
        if len(self.requests) > 1:
            return played
        self.whole = b"".join(action for action in played.actions if isinstance(action, bytes))
        return Response(played.status, played.headers, (self.whole[: self.size], Drop()))


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
def test_a_response_that_is_cut_at_any_byte_has_no_effect(wire: str) -> None:
    order: list[str] = []
    edit = editor(order)

    async def run(size: int) -> tuple[str, int, bool]:
        script = CutAt(edits("a"), size)
        model = model_on(wire, via=script, retries=Retries(attempts=0))
        async with penstock.Agent(model, [edit]).astream("Go.") as running:
            events = [event async for event in running]
        return end_of(events).reason, len(script.whole), bool(named(events, ToolPrepare))

    async def run_all() -> int:
        size, whole, prepared = 0, 1, 0
        while size < whole:
            reason, whole, has_prepared = await run(size)
            assert reason == "answered" or "edit a" not in order, size
            prepared += reason != "answered" and has_prepared
            order.clear()
            size += 1
        return prepared

    assert asyncio.run(run_all()) > 0  # it was prepared in some of them, and had no effect


# -- declarations ------------------------------------------------------------------------------------------------------


def test_prepare_is_declared_with_parameters_of_its_tool() -> None:
    with pytest.raises(UsageError, match="prepare takes 'file', which is not a parameter of the tool"):

        @tool(prepare=lambda file: file)
        def edit(path: str) -> str:
            """Edit."""
            return path

    def generate(path: str) -> Any:
        yield path

    with pytest.raises(UsageError, match="is a generator"):

        @tool(prepare=generate)
        def edit2(path: str) -> str:
            """Edit."""
            return path

    with pytest.raises(UsageError, match="a deferred tool cannot have prepare"):

        @tool(prepare=lambda: None, deferred=True)
        def paint(path: str) -> str:
            """Paint."""
            return path

    with pytest.raises(UsageError, match="prepare must be a function"):
        tool(lambda path: path, name="x", description="x", prepare="text")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="leave out prepare="):
        made([]).as_tool("helper", "Helps.", prepare=lambda: None)


def test_a_method_prepares_with_its_object() -> None:
    class Editor:
        def __init__(self) -> None:
            self.lines = {"a": "line"}

        def look(self, path: str) -> str:
            return self.lines[path]

        @tool(prepare=look)
        def edit(self, path: str, context: Context[Any]) -> str:
            """Edit."""
            return f"{context.prepared} edited"

    result = made(edits("a"), Editor().edit).run("Go.")
    assert [one.text for message in result.messages for one in message.results] == ["line edited"]


def test_process_stream_prepares() -> None:
    order: list[str] = []
    text = '<function_calls><invoke name="edit"><parameter name="path">a</parameter></invoke></function_calls>'
    history = asyncio.run(penstock.AgentStreamer(None, [editor(order)]).process_stream([text]))
    assert order == ["prepare a", "edit a"]
    assert history[-1].results[0].text == "a: diff of a"
