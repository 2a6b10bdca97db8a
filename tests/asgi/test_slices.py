"""Work in slices: the event loop gets turns in the middle of it, and it can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from penstock.asgi.slices import at_once, in_slices


def work(steps: int, done: list[int]) -> Generator[None, None, str]:
    try:
        for number in range(steps):
            done.append(number)
            yield
    finally:
        done.append(-1)
    return "done"


def test_other_tasks_run_between_slices() -> None:
    async def main() -> tuple[str, set[int]]:
        done: list[int] = []
        seen: set[int] = set()

        async def look() -> None:
            while -1 not in done:
                seen.add(len(done))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await asyncio.sleep(0)
        result = await in_slices(work(10, done), seconds=0.0)
        await looking
        return result, seen

    result, seen = asyncio.run(main())
    assert result == "done"
    assert len(seen) > 5


def test_short_work_does_not_suspend() -> None:
    coroutine = in_slices(work(3, []), seconds=60.0)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert stop.value.value == "done"
    assert at_once(work(3, [])) == "done"


def test_a_cancelled_task_closes_the_work() -> None:
    async def main() -> list[int]:
        done: list[int] = []
        task = asyncio.create_task(in_slices(work(1_000_000_000, done), seconds=0.0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return done

    assert asyncio.run(main())[-1] == -1


def test_an_error_of_the_work_is_raised() -> None:
    def wrong() -> Generator[None, None, None]:
        yield
        raise KeyError("wrong")

    with pytest.raises(KeyError):
        asyncio.run(in_slices(wrong()))
