"""A `prepare` function that takes `penstock.Growing`: it reads the arguments while the model writes them."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Context, Growing, StreamEvent, ToolCallClosed, ToolCallDelta, UsageError, tool
from penstock.agent.calls.growing_arguments import GrowingArguments, grown
from penstock.log import SQLiteStore
from penstock.testing import Crashed, Hang, Reply, Reset, Scripted, call, crash_at
from penstock.testing.reply import Drop, Wait
from penstock.testing.response import Response
from penstock.transport.commands import OpenRequest
from penstock.transport.policy import Retries
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    NAMES,
    SOON,
    answer_with,
    drive,
    end_of,
    events_of,
    model_on,
    on,
    results,
    resuming,
    streaming,
    sync_and_async,
)

Tool = penstock.Tool[..., Any]
LINES = "".join(f"line {number}\n" for number in range(200))
WIRES = ["openai-chat", "anthropic", "openai-responses"]


class Receiver:
    """A tool that receives a text into a temporary file while it is written, and then moves it to its place."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.began: list[str] = []
        self.pieces: list[Any] = []
        self.moved: list[str] = []
        self.ended: list[str] = []
        self.has_text = threading.Event()

        async def receive(arguments: Growing, context: Context[Any]) -> Path:
            path = folder / f"{len(self.began)}.part"
            self.began.append(context.key)
            with path.open("w", encoding="utf-8", newline="") as file:
                arguments.on_discard(path.unlink)
                async for place, piece in arguments:
                    self.pieces.append((place, piece))
                    if place == ("text",):
                        file.write(piece)
                        self.has_text.set()
            self.ended.append(context.call_id)
            return path

        @tool(prepare=receive, **options)
        def save(text: str, context: Context[Any], name: str = "text") -> str:
            """Save a text."""
            received: Path = context.prepared
            assert received.read_text(encoding="utf-8") == text
            self.moved.append(name)
            received.rename(folder / f"{name}.txt")
            return f"saved {len(text)}"

        self.tool: Tool = save

    def clear(self) -> None:
        self.began.clear()
        for path in self.folder.iterdir():
            path.unlink()

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


class Slow(Scripted):
    """Plays a script whose first response comes in small pieces, and may break off after some bytes."""

    def __init__(self, replies: list[Reply], size: int | None = None, piece: int = 40, seconds: float = 0.0) -> None:
        super().__init__(replies)
        self.size, self.piece, self.seconds = size, piece, seconds
        self.whole = b""

    def _respond(self, command: OpenRequest) -> Response | Hang | Reset:
        played = super()._respond(command)
        assert isinstance(played, Response)
        if len(self.requests) > 1:
            return played
        self.whole = b"".join(action for action in played.actions if isinstance(action, bytes))
        sent = self.whole[: self.size]
        pieces = [sent[at : at + self.piece] for at in range(0, len(sent), self.piece)]
        paced = [action for piece in pieces for action in (piece, Wait(self.seconds))]
        return Response(played.status, played.headers, (*paced, *([] if self.size is None else [Drop()])))


def slow(wire: str, script: Slow, *tools: Tool, attempts: int = 0, **options: Any) -> penstock.Agent[Any, str]:
    retries = Retries(attempts=attempts, first_delay=0.01, after_start=True)
    return penstock.Agent(model_on(wire, via=script, retries=retries), tools, **options)


def saves(*texts: str) -> list[Reply]:
    return [Reply(*(call("save", {"text": text, "name": str(at)}) for at, text in enumerate(texts))), Reply("Done.")]


@sync_and_async
@pytest.mark.parametrize("wire", WIRES)
def test_arguments_are_read_while_they_are_written(mode: str, wire: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    was_read: list[bool] = []

    def look(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolCallDelta) and mode == "sync" and "line" in event.piece:
            receiver.has_text.wait(SOON)
        if isinstance(event, ToolCallClosed):
            was_read.append(receiver.has_text.is_set())

    agent = slow(wire, Slow(saves(LINES)), receiver.tool)
    events, _ = drive(streaming(agent), mode, look)
    assert results(end_of(events)) == [f"saved {len(LINES)}"]
    assert was_read == [True]
    kinds = [event.type for event in events if event.type.startswith("tool_")]
    assert kinds.index("tool_prepare") > kinds.index("tool_call_delta")
    texts = [piece for place, piece in receiver.pieces if place == ("text",)]
    assert "".join(texts) == LINES
    assert len(texts) > 1
    assert receiver.pieces[-1] == ((), {"text": LINES, "name": "0"})
    assert (len(receiver.began), receiver.files) == (1, ["0.txt"])


@sync_and_async
def test_it_begins_before_the_arguments_are_complete(mode: str, tmp_path: Path) -> None:
    """The response hangs in the arguments: what arrived is in the file, and nothing is left after a cancel."""
    receiver = Receiver(tmp_path)
    has_begun: list[list[str]] = []

    def cancel(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolCallDelta) and not has_begun:
            if mode == "sync":
                receiver.has_text.wait(SOON)
            has_begun.append(receiver.files)
            running.cancel()

    agent = slow("anthropic", Slow(saves(LINES), seconds=0.005), receiver.tool)
    events, _ = drive(streaming(agent), mode, cancel)
    assert end_of(events).reason == "cancelled"
    assert has_begun == [["0.part"]] or mode == "async"
    assert receiver.files == []
    assert (receiver.moved, receiver.ended) == ([], [])


@sync_and_async
def test_calls_that_the_order_holds_read_from_the_beginning(mode: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, parallel=False)
    events = events_of(on("anthropic", saves("one", "two"), receiver.tool), mode)
    assert results(end_of(events)) == ["saved 3", "saved 3"]
    assert receiver.moved == ["0", "1"]
    assert len(receiver.began) == 2  # the second one once, after the first call has ended
    assert receiver.files == ["0.txt", "1.txt"]
    kinds = [event.type for event in events if event.type in ("tool_prepare", "tool_end")]
    assert kinds == ["tool_prepare", "tool_end", "tool_end"]  # the second one begins with its tool


@sync_and_async
def test_hooks_see_a_call_before_its_arguments_are_read(mode: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    order: list[Any] = []

    def before(pending: Any) -> Any:
        order.append(list(receiver.began))
        return pending.with_arguments({"text": "other", "name": "b"})

    events = events_of(on("anthropic", saves("one"), receiver.tool, before_call=before), mode)
    assert order == [[]]
    assert results(end_of(events))[0].endswith("saved 5")
    assert receiver.files == ["b.txt"]


@sync_and_async
@pytest.mark.parametrize("how", ["declined", "changed"])
def test_what_a_person_does_not_want_is_removed(mode: str, how: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, approval=True)
    agent = on("anthropic", saves("one"), receiver.tool, approvals="wait")
    answer = answer_with(False) if how == "declined" else answer_with(True, {"text": "two", "name": "b"})
    events, _ = drive(streaming(agent), mode, answer)
    assert end_of(events).reason == "answered"
    assert receiver.files == ([] if how == "declined" else ["b.txt"])
    assert len(receiver.began) == (1 if how == "declined" else 2)


@sync_and_async
def test_a_paused_run_leaves_nothing_and_makes_it_again(mode: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, approval=True)
    agent = on("anthropic", saves("one"), receiver.tool)
    _, paused = drive(streaming(agent), mode)
    assert (len(receiver.began), receiver.files) == (1, [])
    events, _ = drive(resuming(agent, paused.dump()), mode, answer_with(True))
    assert results(end_of(events)) == ["saved 3"]
    assert receiver.files == ["0.txt"]
    assert len(receiver.began) == 2 or mode == "sync"  # whose first attempt may end before it has begun


@sync_and_async
def test_arguments_that_do_not_fit_leave_nothing(mode: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    script = [Reply(call("save", {"text": LINES, "name": 1})), Reply("Done.")]
    events = events_of(on("anthropic", script, receiver.tool), mode)
    assert "name" in results(end_of(events))[0]
    assert (receiver.files, receiver.moved) == ([], [])


@sync_and_async
def test_one_that_raises_fails_its_call_and_leaves_nothing(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "a.part"

    async def receive(arguments: Growing) -> None:
        path.touch()
        arguments.on_discard(path.unlink)
        async for _ in arguments:
            raise ValueError("no room")

    @tool(prepare=receive)
    def save(text: str) -> str:
        """Save."""
        raise AssertionError

    events = events_of(on("anthropic", [Reply(call("save", {"text": LINES})), Reply("Done.")], save), mode)
    assert "no room" in results(end_of(events))[0]
    assert not path.exists()


@sync_and_async
def test_the_time_begins_when_the_arguments_are_complete(mode: str, tmp_path: Path) -> None:
    async def receive(arguments: Growing) -> None:
        async for _ in arguments:
            pass
        await asyncio.sleep(SOON)

    @tool(prepare=receive, timeout=0.2)
    def save(text: str) -> str:
        """Save."""
        raise AssertionError

    began = time.monotonic()
    script = Slow([Reply(call("save", {"text": "a" * 400})), Reply("Done.")], seconds=0.01)
    events = events_of(slow("anthropic", script, save), mode)
    assert results(end_of(events)) == ["The tool timed out after 0.2 seconds."]
    assert time.monotonic() - began < SOON


@sync_and_async
def test_at_most_as_many_as_the_limit_read_at_once(mode: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    agent = on("anthropic", saves("a", "b", "c"), receiver.tool, limits=penstock.Limits(parallel=1))
    assert results(end_of(events_of(agent, mode))) == ["saved 1"] * 3
    assert receiver.files == ["0.txt", "1.txt", "2.txt"]


# -- streams that break off --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_a_response_that_is_cut_at_any_byte_leaves_nothing(wire: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)

    async def run(size: int) -> tuple[str, int]:
        script = Slow(saves("a text"), size)
        async with slow(wire, script, receiver.tool).astream("Go.") as running:
            events = [event async for event in running]
        return end_of(events).reason, len(script.whole)

    async def run_all() -> int:
        size, whole, begun = 0, 1, 0
        while size < whole:
            reason, whole = await run(size)
            assert receiver.files == (["0.txt"] if reason == "answered" else []), size
            begun += reason != "answered" and bool(receiver.began)
            receiver.clear()
            size += 1
        return begun

    assert asyncio.run(run_all()) > 20  # in these it had begun


@sync_and_async
def test_a_response_that_is_sent_again_is_read_again(mode: str, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    whole = Slow(saves(LINES), 0)
    events_of(slow("anthropic", whole, receiver.tool), mode)
    script = Slow([*saves(LINES)[:1], *saves(LINES)], len(whole.whole) // 2)
    events = events_of(slow("anthropic", script, receiver.tool, attempts=1), mode)
    assert results(end_of(events)) == [f"saved {len(LINES)}"]
    assert receiver.files == ["0.txt"]
    assert len(receiver.began) == 2 or mode == "sync"  # whose first attempt may end before it has begun


def test_a_run_that_crashed_makes_it_again(tmp_path: Path) -> None:
    received = tmp_path / "received"
    received.mkdir()
    receiver = Receiver(received)
    store = SQLiteStore(tmp_path / "runs.db", lease=0.2)
    agent = penstock.Agent(penstock.Model(NAMES["anthropic"], via=Scripted(saves(LINES))), [receiver.tool], name="a")
    runs = penstock.Runs(store, {"a": agent})
    runs.start("a", "Go.", run_id="r")
    with crash_at("before_append", "tool_start"), pytest.raises(Crashed):
        runs.drive("r")
    assert (receiver.moved, receiver.files) == ([], [])
    begun = len(receiver.began)
    time.sleep(0.3)
    agent = penstock.Agent(penstock.Model(NAMES["anthropic"], via=Scripted(saves(LINES))), [receiver.tool], name="a")
    penstock.Runs(store, {"a": agent}).drive("r")
    assert (receiver.moved, receiver.files) == (["0"], ["0.txt"])
    assert len(receiver.began) == begun + 1
    store.close()


# -- the object --------------------------------------------------------------------------------------------------------


def read(growing: Growing) -> list[Any]:
    async def read_all() -> list[Any]:
        return [pair async for pair in growing]

    return asyncio.run(read_all())


def test_complete_arguments_are_read_in_order() -> None:
    assert read(grown({"a": "x", "b": [1, True], "c": {}})) == [
        (("a",), "x"), (("b", 0), 1), (("b", 1), True), (("b",), [1, True]), (("c",), {}),
        ((), {"a": "x", "b": [1, True], "c": {}}),
    ]  # fmt: skip


def test_what_was_not_read_is_kept_as_text_and_read_in_few_pieces() -> None:
    growing = GrowingArguments()
    growing.feed('{"a": "')
    for _ in range(100_000):
        growing.feed("x")
    assert len(growing._unread._new) + len(growing._unread._pieces) < 1000
    growing.feed('"}')
    assert growing.close({"a": "x" * 100_000})
    assert [place for place, _ in read(growing)] == [("a",), ()]


@pytest.mark.parametrize("arguments", [{"a": True}, {"a": 1.0}, {"a": 1, "b": 2}, {}])
def test_other_arguments_than_those_that_were_read_are_refused(arguments: dict[str, Any]) -> None:
    growing = GrowingArguments()
    growing.feed('{"a": 1}')
    assert not growing.close(arguments)


def test_a_discarded_one_raises_and_cleans_up_once() -> None:
    growing, order = GrowingArguments(), list[str]()

    async def prepare() -> None:
        growing.on_discard(lambda: order.append("first"))
        growing.on_discard(lambda: 1 // 0)
        growing.on_discard(lambda: order.append("last"))
        growing.discard()
        async for _ in growing:
            raise AssertionError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(growing.during(prepare))
    growing.discard()
    assert order == ["last", "first"]


def test_growing_is_declared_alone_and_async() -> None:
    def plain(arguments: Growing) -> None: ...

    async def both(arguments: Growing, text: str) -> None: ...

    for prepare, message in ((plain, "must be async"), (both, "cannot take 'text'")):
        with pytest.raises(UsageError, match=message):

            @tool(prepare=prepare)
            def save(text: str) -> str:
                """Save."""
                return text


def test_process_stream_reads_complete_arguments(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    text = '<function_calls><invoke name="save"><parameter name="text">a</parameter></invoke></function_calls>'
    history = asyncio.run(penstock.AgentStreamer(None, [receiver.tool]).process_stream([text]))
    assert history[-1].results[0].text == "saved 1"
