"""Reads of logs that are wanted at the same time share a hop to a thread, which costs more than most of the reads.

Equal reads are one: when all readers of a run come back at once, its log is read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from penstock.log.patience import apatiently
from penstock.log.store import StoreError

T = TypeVar("T")


class _Wanted(Struct, Generic[T], eq=False):
    """One read, and who waits for it."""

    run_id: str
    after: int
    futures: list[asyncio.Future[T]]


class SharedReads(Generic[T]):
    """Carries out `read(run_id, after)` on a thread, for all who ask while the last reads are under way."""

    def __init__(self, read: Callable[[str, int], T]) -> None:
        self._read = read
        self._wanted: dict[tuple[str, int], _Wanted[T]] = {}
        self._task: asyncio.Task[None] | None = None

    async def read(self, run_id: str, after: int) -> T:
        """What the read returns or raises."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault((run_id, after), _Wanted(run_id, after, [])).futures.append(future)
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    def close(self) -> None:
        """Nobody waits any more."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        wanted: list[_Wanted[T]] = []
        try:
            while self._wanted:
                wanted, self._wanted = [*self._wanted.values()], {}
                try:
                    results = await apatiently(partial(self._read_all, wanted))
                except StoreError as error:
                    results = [error] * len(wanted)
                for each, result in zip(wanted, results, strict=True):
                    for future in each.futures:
                        _settle(future, result)
        finally:
            self._task = None
            for each in (*wanted, *self._wanted.values()):  # of a server that stops; the others have their results
                for future in each.futures:
                    future.cancel()

    def _read_all(self, wanted: Sequence[_Wanted[T]]) -> list[T | Exception]:
        results: list[T | Exception] = []
        for each in wanted:
            try:
                results.append(self._read(each.run_id, each.after))
            except Exception as error:  # it is raised where the read is waited for
                if isinstance(error, StoreError) and error.is_temporary:
                    raise  # for all of them, which are tried again
                results.append(error)
        return results


def _settle(future: asyncio.Future[T], result: T | Exception) -> None:
    if future.done():  # whoever waited has left
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
