"""Reads of logs that share a hop to a thread: each gets its own result or error, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock import StoreError
from penstock.log import store_retries
from penstock.log.position import Position
from penstock.serve.feeds.feeds import SharedReads


def test_reads_that_are_wanted_together_share_a_thread_and_keep_their_results() -> None:
    threads: list[int] = []
    hops = 0

    def read(run_id: str, after: int) -> str:
        threads.append(threading.get_ident())
        if run_id == "bad":
            raise ValueError("damaged")
        return f"{run_id} after {after}"

    async def test() -> None:
        nonlocal hops
        reads = SharedReads(read)
        original = asyncio.to_thread

        async def counted(*args: object, **options: object) -> object:
            nonlocal hops
            hops += 1
            return await original(*args, **options)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "to_thread", counted)
            wanted = [reads.read(f"run-{number}", Position(number)) for number in range(50)]
            *results, bad = await asyncio.gather(*wanted, reads.read("bad", Position(0)), return_exceptions=True)
        assert results == [f"run-{number} after {number}" for number in range(50)]
        assert isinstance(bad, ValueError)
        assert await reads.read("later", Position(1)) == "later after 1"

    asyncio.run(test())
    assert hops == 1
    assert threading.get_ident() not in threads


def test_equal_reads_that_are_wanted_together_are_one() -> None:
    read: list[tuple[str, int]] = []

    def look(run_id: str, after: int) -> int:
        read.append((run_id, after))
        return len(read)

    async def test() -> None:
        reads = SharedReads(look)
        wanted = [("a", 0), ("b", 0), ("a", 0), ("a", 1), ("a", 0)]
        assert await asyncio.gather(*(reads.read(run_id, Position(after)) for run_id, after in wanted)) == [
            1,
            2,
            1,
            3,
            1,
        ]
        assert await reads.read("a", Position(0)) == 4

    asyncio.run(test())
    assert read == [("a", 0), ("b", 0), ("a", 1), ("a", 0)]


def test_a_store_that_fails_for_good_is_reported_to_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_retries, "RETRY_SECONDS", 0.0)

    def read(run_id: str, after: int) -> str:
        raise StoreError("away", is_temporary=True)

    async def test() -> None:
        reads = SharedReads(read)
        both = await asyncio.gather(reads.read("a", Position(0)), reads.read("b", Position(0)), return_exceptions=True)
        assert [str(error) for error in both] == ["away", "away"]

    asyncio.run(test())


def test_a_reader_that_leaves_does_not_disturb_the_others() -> None:
    gate = threading.Event()

    def read(run_id: str, after: int) -> str:
        gate.wait(20)
        return run_id

    async def test() -> None:
        reads = SharedReads(read)
        leaving, staying = (
            asyncio.create_task(reads.read("a", Position(0))),
            asyncio.create_task(reads.read("b", Position(0))),
        )
        await asyncio.sleep(0)
        leaving.cancel()
        gate.set()
        assert await staying == "b"
        assert leaving.cancelled() or leaving.done()

    asyncio.run(test())
