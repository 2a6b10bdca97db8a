"""Reads of logs that are requested at the same time share one switch to a thread, which costs more than most reads.

Equal reads are one: when all readers of a run come back at once, its log is read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from penstock.log.store import StoreError
from penstock.log.store_retries import awith_retries

T = TypeVar("T")


class _Read(Struct, Generic[T], eq=False):
    """One read, and its waiting readers."""

    run_id: str
    after: int
    futures: list[asyncio.Future[T]]


class SharedReads(Generic[T]):
    """Carries out `read(run_id, after)` on a thread, for all who ask while the last reads are under way."""

    def __init__(self, read: Callable[[str, int], T]) -> None:
        self._read = read
        self._waiting: dict[tuple[str, int], _Read[T]] = {}
        self._task: asyncio.Task[None] | None = None

    async def read(self, run_id: str, after: int) -> T:
        """What the read returns or raises."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((run_id, after), _Read(run_id, after, [])).futures.append(future)
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    def close(self) -> None:
        """End all waiting reads."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        reads: list[_Read[T]] = []
        try:
            while self._waiting:
                reads, self._waiting = [*self._waiting.values()], {}
                try:
                    results = await awith_retries(partial(self._read_all, reads))
                except StoreError as error:
                    results = [error] * len(reads)
                for read, result in zip(reads, results, strict=True):
                    for future in read.futures:
                        _settle(future, result)
        finally:
            self._task = None
            for read in (*reads, *self._waiting.values()):  # left over when the server stops
                for future in read.futures:
                    future.cancel()

    def _read_all(self, reads: Sequence[_Read[T]]) -> list[T | Exception]:
        results: list[T | Exception] = []
        for read in reads:
            try:
                results.append(self._read(read.run_id, read.after))
            except Exception as error:  # it is raised where the read is waited for
                if isinstance(error, StoreError) and error.is_temporary:
                    raise  # for all of them, which are tried again
                results.append(error)
        return results


def _settle(future: asyncio.Future[T], result: T | Exception) -> None:
    if future.done():  # the waiting reader has left
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
