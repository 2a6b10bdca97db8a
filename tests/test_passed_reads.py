"""Reads that are passed on without waking the task that waits for them: each once, in order, and within the limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import StreamReader
from hypothesis import given
from hypothesis import strategies as st

from penstock import AsyncStream, Model, StreamChunk, Text, TimedOut, Timeouts
from penstock.testing import Scripted
from penstock.transport import passed_reads
from penstock.transport.async_http import AsyncHTTPConnection
from penstock.transport.commands import HTTPResponseHead, SteadyBody
from penstock.transport.passed_reads import PassedReads, can_pass
from tests.test_text_lane import END, PLAIN, Done, Kept, frame

SECONDS = 10


class Protocol:
    """The connection of a reader."""

    connected = True
    resumed = 0

    def pause_reading(self) -> None: ...

    def resume_reading(self, *_: object, **__: object) -> None:
        self.resumed += 1


class Fed(AsyncHTTPConnection):
    """A connection whose reader is fed by a test, as the parser of aiohttp does it."""

    async def open(self, command: Any) -> HTTPResponseHead:
        self._loop, self._command = asyncio.get_running_loop(), command
        self._content = content = StreamReader(Protocol(), 2**16, loop=self._loop)  # type: ignore[arg-type]
        self._response = SimpleNamespace(
            headers={"Transfer-Encoding": "chunked"}, content=content, connection=None, release=int, close=int
        )
        return HTTPResponseHead(200, {})

    @property
    def content(self) -> Any:
        """The reader, also for what it does not promise."""
        return self._content

    def feed(self, data: bytes) -> None:
        self.content.begin_http_chunk_receiving()
        self.content.feed_data(data)
        self.content.end_http_chunk_receiving()


class Reading:
    """A task that reads a response, the bytes that were passed on, and the chunks of the others."""

    def __init__(self, record: Kept | None = None, idle: float = 60.0) -> None:
        model = Model(
            "openai:m", api_key="k", wire="openai-chat", via=Scripted([]), record=record, timeouts=Timeouts(idle=idle),
        )  # fmt: skip
        self.connection = Fed()
        self.stream: AsyncStream = AsyncStream(model.ask("Hi."), self.connection)
        self.passed: list[bytes] = []
        self.chunks: list[StreamChunk] = []
        self.wakes = 0
        self.task = asyncio.create_task(self._read())

    def take(self, data: bytes) -> Awaitable[None] | bool:
        if b"word" not in data or data.count(b"data:") > 1:
            return False
        self.passed.append(data)
        return True

    async def _read(self) -> None:
        self.chunks += await self.stream.start()
        while (more := await self.stream.next_batch(lambda data: self.take(data))) is not None:
            self.wakes += 1
            self.chunks += more
        await self.stream.close()

    async def begin(self) -> Reading:
        """Waits until the first chunk was read, and the next is waited for."""
        await turns()
        self.connection.feed(frame("Hi "))
        await turns()
        return self

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, Text))


async def turns() -> None:
    """Let everything run that is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS):
            await test()

    asyncio.run(main())


def test_reads_are_passed_on_without_waking_the_task() -> None:
    async def test() -> None:
        record = Kept()
        reading = await Reading(record).begin()
        resumed = reading.connection.content._protocol.resumed
        for data in PLAIN:
            reading.connection.feed(data)
            assert reading.passed[-1] == data  # at once
        assert reading.wakes == 0
        assert reading.connection.content._protocol.resumed == resumed  # the parser was not entered
        reading.connection.feed(END)
        await reading.task
        assert reading.passed == PLAIN
        assert record.data == [frame("Hi "), *PLAIN, END]
        assert [chunk.type for chunk in reading.chunks] == ["text", "finish"]

    run(test)


def test_a_reader_keeps_nothing_of_what_was_passed_on() -> None:
    async def test() -> None:
        reading = await Reading().begin()
        for _ in range(100):
            reading.connection.feed(PLAIN[0])
        content = reading.connection.content
        assert (content._size, len(content._buffer), len(content._http_chunk_splits or ())) == (0, 0, 1)
        assert content._cursor == content.total_bytes
        reading.task.cancel()

    run(test)


def test_reads_that_are_not_taken_are_left_to_the_task_together() -> None:
    async def test() -> None:
        reading = await Reading().begin()
        for data in (PLAIN[0], frame("one "), frame("two "), PLAIN[1]):
            reading.connection.feed(data)
        assert reading.passed == [PLAIN[0]]
        await turns()
        assert (reading.wakes, reading.text) == (1, "Hi one two word 1 ")
        reading.connection.feed(PLAIN[2])
        assert reading.passed == [PLAIN[0], PLAIN[2]]
        reading.task.cancel()

    run(test)


def test_what_has_to_be_awaited_is_awaited_before_the_next_read() -> None:
    async def test() -> None:
        reading, gate = await Reading().begin(), asyncio.Event()

        async def wait() -> None:
            await gate.wait()

        plain, reading.take = reading.take, lambda data: plain(data) and wait()  # type: ignore[method-assign]
        reading.connection.feed(PLAIN[0])
        await turns()
        reading.connection.feed(PLAIN[1])
        await turns()
        assert reading.passed == [PLAIN[0]]
        reading.take = plain  # type: ignore[method-assign]
        gate.set()
        await turns()
        reading.connection.feed(PLAIN[2])
        assert reading.passed == PLAIN[:3]
        reading.task.cancel()

    run(test)


def test_a_take_that_raises_raises_in_the_task() -> None:
    async def test() -> None:
        reading = await Reading().begin()

        def fail(data: bytes) -> bool:
            raise ZeroDivisionError

        reading.take = fail  # type: ignore[method-assign]
        reading.connection.feed(PLAIN[0])
        with pytest.raises(ZeroDivisionError):
            await reading.task

    run(test)


@pytest.mark.parametrize("failure", [ConnectionResetError("broken"), None], ids=["broken", "ended"])
def test_a_connection_that_ends_wakes_the_task(failure: Exception | None) -> None:
    async def test() -> None:
        reading = await Reading().begin()
        reading.connection.feed(PLAIN[0])
        if failure is None:
            reading.connection.content.feed_eof()
        else:
            reading.connection.content.set_exception(failure)
        await reading.task
        kinds = [chunk.type for chunk in reading.chunks]
        assert kinds == (["text", "finish"] if failure is None else ["text", "error", "finish"])
        assert reading.chunks[-1].reason == "cut"  # type: ignore[union-attr]

    run(test)


def test_a_silent_server_times_out_after_its_last_read() -> None:
    async def test() -> None:
        reading = await Reading(idle=0.5).begin()
        content, loop = reading.connection.content, asyncio.get_running_loop()
        waiter = content._waiter
        assert isinstance(waiter, PassedReads)
        before = waiter.deadline
        await asyncio.sleep(0.001)
        reading.connection.feed(PLAIN[0])
        assert before < waiter.deadline <= loop.time() + 0.5
        await reading.task
        assert [chunk.code for chunk in reading.chunks if chunk.type == "error"] == [TimedOut.__name__]
        assert loop.time() >= waiter.deadline

    run(test)


def test_cancelling_the_task_stops_the_passing() -> None:
    async def test() -> None:
        reading = await Reading().begin()
        reading.task.cancel()
        await turns()
        reading.connection.feed(PLAIN[0])
        assert reading.passed == []
        assert reading.connection.content._waiter is None

    run(test)


def test_passed_bytes_are_counted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_reads, "MAX_PASSED", 300)
    monkeypatch.setattr("penstock.model.stream.MAX_PASSED", 300)

    async def test() -> None:
        reading = await Reading().begin()
        for data in PLAIN:
            reading.connection.feed(data)
            await turns()
        assert 0 < len(reading.passed) < len(PLAIN)
        assert len(reading.passed) + reading.text.count("word") == len(PLAIN)
        reading.task.cancel()

    run(test)


def test_reads_are_not_passed_on_after_the_steady_part_of_a_body() -> None:
    async def test() -> None:
        protocol: Any = Protocol()
        content: Any = StreamReader(protocol, 2**16, loop=asyncio.get_running_loop())
        now = [1.0]
        taken: list[bytes] = []

        def take(data: bytes) -> bool:
            taken.append(data)
            return True

        reads = PassedReads(content, SteadyBody(None, lambda _: [], 2.0), take, lambda: now[0])
        assert reads.begin()
        content.feed_data(b"1")
        now[0] = 3.0
        content.feed_data(b"2")
        assert (taken, reads.done(), bytes(content._read_nowait(-1))) == ([b"1"], True, b"2")

    run(test)


@given(st.lists(st.tuples(st.sampled_from([*PLAIN[:3], frame("one "), frame("é<")]), st.booleans()), max_size=20))
def test_every_read_arrives_once_and_in_order(reads: list[tuple[bytes, bool]]) -> None:
    async def test() -> None:
        reading = await Reading().begin()
        arrived: list[str] = []
        plain = reading.take

        def take(data: bytes) -> Awaitable[None] | bool:
            if not plain(data):
                return False
            arrived.append(data.decode())
            return Done() if len(arrived) % 3 == 0 else True

        feed = reading.stream._body.feed  # type: ignore[union-attr]

        def fed(data: bytes) -> list[StreamChunk]:
            arrived.append(data.decode())
            return feed(data)

        reading.take, reading.stream._body.feed = take, fed  # type: ignore[method-assign, union-attr]
        for data, is_late in reads:
            reading.connection.feed(data)
            if is_late:
                await turns()
        reading.connection.content.feed_eof()
        await reading.task
        assert "".join(arrived) == b"".join(data for data, _ in reads).decode()

    run(test)


def test_the_readers_of_aiohttp_can_be_used_and_others_are_read() -> None:
    class Silent(StreamReader):
        def feed_data(self, data: bytes, size: int = 0) -> bool:
            self._buffer.append(data)
            return False

    async def test() -> None:
        protocol: Any = Protocol()
        assert can_pass(StreamReader(protocol, 2**16))
        assert not can_pass(Silent(protocol, 2**16))
        assert not can_pass(SimpleNamespace(readany=None))

    run(test)
