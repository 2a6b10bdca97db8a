"""Responses about finished runs, computed once for all readers.

When a run ends, each of its readers asks for its messages. They are rebuilt from the whole log, which does not change
any more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from penstock.log.store import RunRow
from penstock.log.store_retries import awith_retries

MAX_ANSWERS_BYTES = 16 * 1024 * 1024
"""How many bytes of answers are kept. One that is larger alone is shared by those who ask while it is made."""

Key = tuple[str, int, float]


class SharedAnswers:
    """The responses of one kind, by run and last event."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, bytes] = OrderedDict()  # the least recently used first
        self._size = 0  # bytes of all kept responses
        self._under_way: dict[Key, asyncio.Task[bytes]] = {}

    async def get(self, row: RunRow, make: Callable[[], bytes]) -> bytes:
        """The response about a run; computed on a thread, unless it is cached or being computed."""
        key = row.id, row.seq, row.created  # the id of a deleted run may be used again
        if (answer := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return answer
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(awith_retries(make))
            task.add_done_callback(partial(self._made, key, row.state == "over"))
        return await asyncio.shield(task)  # a client that leaves must not cancel it for the others

    def _made(self, key: Key, is_final: bool, task: asyncio.Task[bytes]) -> None:
        del self._under_way[key]
        if task.cancelled() or task.exception() is not None or not is_final:
            return
        answer = task.result()
        if len(answer) > MAX_ANSWERS_BYTES:
            return
        self._kept[key] = answer
        self._size += len(answer)
        while self._size > MAX_ANSWERS_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1])
