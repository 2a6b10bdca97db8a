"""Progress that tools report: emitted at once, complete, and with back-pressure."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from penstock import Context, Done, StreamEvent, ToolEnd, ToolProgress, tool
from penstock.run.events import decode, encode
from penstock.run.outbox import MAX_AHEAD
from penstock.testing import Reply, call
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import SOON, check_history, drive, events_of, made, streaming, sync_and_async

LONG = 60.0  # seconds; only a test that fails waits so long

# -- when it is emitted ------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_progress_is_emitted_at_once(kind: str, mode: str) -> None:
    seen: list[Any] = []
    is_seen = threading.Event()

    def download() -> Iterator[str]:
        """Download."""
        for what in ("loading", "unpacking"):
            is_seen.clear()
            yield what
            assert is_seen.wait(SOON), "the reader has seen it before the tool goes on"

    async def adownload() -> AsyncIterator[str]:
        """Download."""
        for what in ("loading", "unpacking"):
            is_seen.clear()
            yield what
            assert await asyncio.to_thread(is_seen.wait, SOON)

    function: Any = tool(name="download")(download if kind == "plain" else adownload)
    agent = made([Reply(call("download")), Reply("Done.")], function)

    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolProgress):
            seen.append(event.data)
            is_seen.set()

    events, _ = drive(streaming(agent), mode, on_event)
    assert seen == ["loading", "unpacking"]
    assert [event.ending for event in events if isinstance(event, ToolEnd)] == ["done"]


# -- readers that are slow ---------------------------------------------------------------------------------------------


class Counting:
    """Tools that report every number up to some, and count how far they are."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self.is_ahead = threading.Event()  # nearly as many reports are unread as may be
        self.has_ended = threading.Event()

        def numbers() -> Iterator[int]:
            try:
                for number in range(most):
                    self.count += 1
                    if self.count == MAX_AHEAD - 100:
                        self.is_ahead.set()
                    yield number
            finally:
                self.has_ended.set()

        @tool
        def generator() -> Iterator[int]:
            """Count."""
            yield from numbers()
            yield -1

        @tool
        async def async_generator() -> AsyncIterator[int]:
            """Count."""
            for number in numbers():
                yield number
            yield -1

        @tool
        def plain(context: Context[None]) -> int:
            """Count."""
            for number in numbers():
                context.report(number)
            return -1

        @tool
        async def later(context: Context[None]) -> int:
            """Count."""
            for number in numbers():
                context.report(number)
            await asyncio.sleep(0)
            return -1

        self.tools = {one.name: one for one in (generator, async_generator, plain, later)}

    def waits(self) -> bool:
        """Whether the tool stops when too many reports are unread. One that does not ends in a moment."""
        return self.is_ahead.wait(LONG) and not self.has_ended.wait(0.2)


@sync_and_async
@pytest.mark.parametrize("kind", ["generator", "async_generator", "plain"])
def test_a_tool_waits_for_a_reader_who_does_not_read(kind: str, mode: str) -> None:
    most = MAX_AHEAD * 3
    counting = Counting(most)
    agent = made([Reply(call(kind)), Reply("Done.")], counting.tools[kind])
    if mode == "sync":
        with agent.stream("Go.") as running:
            while not isinstance(next(running), ToolProgress):
                pass
            assert counting.waits()
            early = counting.count
    else:

        async def wait_and_leave() -> tuple[int, Any]:
            async with agent.astream("Go.") as running:
                while not isinstance(await anext(running), ToolProgress):
                    pass
                assert await asyncio.to_thread(counting.waits)
                early = counting.count
            return early, running

        early, running = asyncio.run(wait_and_leave())
    assert early < MAX_AHEAD + 100
    assert running.finish_reason == "cancelled"
    assert counting.has_ended.wait(LONG)
    assert counting.count == most if kind == "plain" else counting.count < early + 100  # a plain one cannot be stopped
    check_history(running.messages)


@sync_and_async
@pytest.mark.parametrize("kind", ["generator", "async_generator", "plain"])
def test_no_progress_is_lost_by_waiting(kind: str, mode: str) -> None:
    most = MAX_AHEAD * 2
    events, _ = drive(streaming(made([Reply(call(kind)), Reply("Done.")], Counting(most).tools[kind])), mode)
    last = [-1] if "generator" in kind else []  # the last value is the result, and reported as well
    assert [event.data for event in events if isinstance(event, ToolProgress)] == [*range(most), *last]


@sync_and_async
def test_the_newest_report_of_a_tool_that_cannot_wait_replaces_the_unread_one(mode: str) -> None:
    most = MAX_AHEAD * 3
    events, _ = drive(streaming(made([Reply(call("later")), Reply("Done.")], Counting(most).tools["later"])), mode)
    reports = [event.data for event in events if isinstance(event, ToolProgress)]
    assert reports == sorted(set(reports))
    assert (reports[:100], reports[-1]) == (list(range(100)), most - 1)
    assert mode == "sync" or len(reports) < MAX_AHEAD + 100  # in sync code, what reads is in another thread
    assert [event.result.text for event in events if isinstance(event, ToolEnd)] == ["-1"]
    assert isinstance(events[-1], Done)


# -- what is no JSON ---------------------------------------------------------------------------------------------------


class Rude:
    def __str__(self) -> str:
        raise ValueError("no")


def _odd() -> Iterator[Any]:
    endless: dict[str, Any] = {"name": "me"}
    endless["self"] = endless
    yield from (
        {"half": "\ud800"},
        endless,
        {(1, 2): 3},
        Rude(),
        {"big": 10**40},
        object(),
        "\udfff",
        [Rude(), {"\ud800": 1}],
    )


@sync_and_async
def test_reports_of_any_object_can_be_encoded(mode: str) -> None:
    @tool
    def odd() -> Iterator[Any]:
        """Report what is no JSON."""
        yield from _odd()
        yield {"half": "\ud800", "self": list(_odd())}

    events = events_of(made([Reply(call("odd")), Reply("Done.")], odd), mode)
    reports = [event for event in events if isinstance(event, ToolProgress)]
    assert len(reports) == len(list(_odd())) + 1
    for event in events:
        decoded: Any = decode(encode(event))
        assert type(decoded) is type(event)
    assert json.loads(encode(reports[0]))["data"] == {"half": "\ufffd"}
    assert json.loads(encode(reports[1]))["data"] == {"name": "me", "self": "<this dict again>"}


def test_a_slow_sync_reader_gets_the_newest_report() -> None:
    most, has_ended = 3 * MAX_AHEAD, threading.Event()

    @tool
    async def count(context: Context[Any]) -> str:
        """Count."""
        for at in range(most):
            context.report(at)
        has_ended.set()
        return "done"

    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolProgress):
            assert has_ended.wait(SOON)

    events, _ = drive(streaming(made([Reply(call("count")), Reply("Done.")], count)), "sync", on_event)
    reports = [event.data for event in events if isinstance(event, ToolProgress)]
    assert reports == sorted(set(reports))
    assert (reports[:100], reports[-1], len(reports) < MAX_AHEAD + 100) == (list(range(100)), most - 1, True)
