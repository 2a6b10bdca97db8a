"""Long work of clients: in threads, in turns, and refused if too much of it waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.asgi.shares import Share
from penstock.asgi.turns import LONG_BODY, THREADS, Turns
from penstock.transport.threads.off_loop import TURN, run_off_loop


class Work:
    """Work of clients that ends when it is told to; `begun` has their names in the order of their turns."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self._ends: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def add(self, *clients: str) -> None:
        for client in clients:
            end = asyncio.Event()
            self._ends.append(end)
            self.tasks.append(asyncio.create_task(self._work(client, end)))
            await asyncio.sleep(0)

    async def _work(self, client: str, end: asyncio.Event) -> None:
        async with self.turns.turn(Share(client)):
            self.begun.append(client)
            await end.wait()

    async def end(self, number: int = 0) -> None:
        """End the work that was added as this number."""
        self._ends[number].set()
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def is_idle(self) -> bool:
        return not self.turns._working and not self.turns._waiting


def test_a_client_has_one_thread_and_waits_behind_others() -> None:
    async def main() -> None:
        work = Work()
        await work.add("a", "a", "a", "b", "c", "b")
        assert work.begun == ["a", "b"]
        await work.end(0)
        assert work.begun == ["a", "b", "a"], "which has waited for longest"
        await work.end(3)
        assert work.begun[3:] == ["c"], "the second one of b waits behind c"
        await work.end(1)
        assert work.begun[4:] == ["b"]
        for number in range(6):
            await work.end(number)
        assert work.is_idle

    asyncio.run(main())


def test_there_are_few_threads_for_all() -> None:
    async def main() -> None:
        work = Work()
        await work.add(*map(str, range(10)))
        assert len(work.begun) == THREADS
        for number in range(10):
            await work.end(number)
        assert work.begun == [*map(str, range(10))]
        assert work.is_idle

    asyncio.run(main())


def test_work_that_is_cancelled_leaves_the_queue() -> None:
    async def main() -> None:
        work = Work()
        await work.add("a", "a", "b", "c", "d")
        for number in (1, 3):  # which wait
            work.tasks[number].cancel()
        work.tasks[0].cancel()  # which works
        await asyncio.wait([work.tasks[number] for number in (0, 1, 3)])
        assert work.begun == ["a", "b", "d"]
        await work.end(2)
        await work.end(4)
        assert work.is_idle

    asyncio.run(main())


def test_work_whose_turn_has_come_as_it_is_cancelled_gives_it_back() -> None:
    async def main() -> None:
        turns = Turns()
        await turns._begin("a")
        waiting = asyncio.create_task(turns._begin("a"))
        await asyncio.sleep(0)
        turns._end("a")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not turns._working
        assert not turns._waiting

    asyncio.run(main())


async def request(size: int, turns: Turns, limits: ServerLimits, share: Share) -> HTTPRequest:
    async def receive() -> Any:
        return {"type": "http.request", "body": b" " * size}

    scope: Any = {"type": "http", "method": "POST", "path": "/", "headers": [], "client": ("a", 1)}
    made = HTTPRequest(scope, receive, limits, "id", None, turns)
    made.use(share)
    await made.body()
    return made


def test_short_bodies_are_worked_on_at_once_and_long_ones_in_a_thread() -> None:
    async def main() -> None:
        turns, limits = Turns(), ServerLimits()
        short = await request(LONG_BODY - 1, turns, limits, Share("a"))
        assert await short.work(threading.get_ident) == threading.get_ident()
        long = await request(LONG_BODY, turns, limits, Share("a"))
        assert await long.work(threading.get_ident) != threading.get_ident()

    asyncio.run(main())


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_client_with_too_much_waiting_work_is_refused(is_trusted: bool) -> None:
    async def main() -> None:
        turns, limits, share = Turns(), ServerLimits(waiting=2), Share("a", is_trusted=is_trusted)
        made = await request(LONG_BODY, turns, limits, share)
        go = threading.Event()
        tasks = [asyncio.create_task(made.work(go.wait)) for _ in range(3)]
        await asyncio.sleep(0.01)
        other = await request(LONG_BODY, turns, limits, Share("b"))
        assert await other.work(int) == 0, "others are not refused"
        if is_trusted:
            tasks.append(asyncio.create_task(made.work(go.wait)))
            await asyncio.sleep(0)
        else:
            with pytest.raises(RejectedRequest) as refused:
                await made.work(int)
            assert (refused.value.status, refused.value.headers) == (429, {"retry-after": "1"})
        go.set()
        assert await asyncio.gather(*tasks) == [True] * len(tasks)

    asyncio.run(main())


def test_long_work_without_a_server_needs_no_turn() -> None:
    async def main() -> int:
        assert TURN.get() is None
        return await run_off_loop(threading.get_ident)

    assert asyncio.run(main()) != threading.get_ident()
