"""Which calls of a response may prepare: run the `prepare` function of their tool, before they start."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable

from penstock.run.calls.execution import Execution, ExecutionTable
from penstock.run.calls.placed_calls import HELD, Kind, PlacedCalls


class Prepares:
    """The calls of one response whose tools have a `prepare` function: which of them may run it now.

    It is a read at the place of its call, so it waits for the calls for which the call itself would wait. Nothing of it
    is lost if an earlier call changes, so it does not wait until earlier calls are confirmed.
    """

    def __init__(self, table: ExecutionTable, calls: PlacedCalls) -> None:
        self._table = table
        self._calls = calls
        self.is_used = False  # calls of this response have prepared
        self._frontiers = dict.fromkeys(HELD, 0)
        self._waiting = defaultdict[Kind, list[int]](list)  # blocks
        self._running = set[str]()  # keys
        self._failed: list[Execution] = []
        self._growing: dict[int, tuple[str, str]] = {}  # calls whose arguments are written: key and name by block

    @property
    def are_any(self) -> bool:
        """Whether calls of this response prepare, or have."""
        if not self.is_used:
            return False
        are_waiting = bool(self._growing) or any(self._waiting.values())
        return are_waiting or any(execution.has_prepared for execution in self._table)

    def add(self, execution: Execution) -> None:
        """The arguments of a call are complete, and nobody has refused it."""
        if execution.prepare == "none":
            execution.prepare, self.is_used = "waiting", True
            insort(self._waiting[self._calls.kind(execution.block)], execution.block)

    def grow(self, block: int, key: str, name: str, limit: int | None) -> bool:
        """The arguments of a call are being written: whether what prepares it may begin now, of at most `limit`."""
        kind = self._calls.kind(block)
        is_held = kind != "free" and self._is_held(block, kind)
        if is_held or block in self._growing or (limit is not None and self._count() >= limit):
            return False
        self._growing[block], self.is_used = (key, name), True
        return True

    def take_grown(self, execution: Execution) -> bool:
        """The arguments of a call are complete: whether what prepares it has begun before."""
        grown = self._growing.get(execution.block)
        if grown != (execution.key, execution.name) or execution.prepare != "none":
            return False
        del self._growing[execution.block]
        execution.prepare = "running"
        self._running.add(execution.key)
        return True

    def take_outgrown(self, *, is_over: bool = False) -> list[str]:
        """The keys of what reads arguments that are no longer written, or of a call that is held or another one now."""
        if not self._growing:
            return []
        blocks = [block for block in self._growing if is_over or self._is_outgrown(block)]
        return [self._growing.pop(block)[0] for block in blocks]

    def reset(self, place: int) -> None:
        """The call at this place has changed."""
        for kind in HELD:
            self._frontiers[kind] = min(self._frontiers[kind], place)

    def take(self, limit: int | None) -> Execution | None:
        """The first call that may prepare now, of which at most `limit` do at once."""
        if not any(self._waiting.values()) or (limit is not None and self._count() >= limit):
            return None
        heads = [head for kind, blocks in self._waiting.items() if (head := self._head(kind, blocks)) is not None]
        if not heads:
            return None
        first = min(heads, key=lambda execution: execution.block)
        self._waiting[self._calls.kind(first.block)].remove(first.block)
        first.prepare = "running"
        self._running.add(first.key)
        return first

    def failed(self, execution: Execution) -> None:
        """A call could not be prepared."""
        self._failed.append(execution)

    def take_failed(self, is_settled: Callable[[Execution], bool]) -> list[Execution]:
        """The calls that could not be prepared, and have not started, once nothing can discard that any more."""
        if not self._failed:
            return []
        states = ("held", "checking", "preparing", "approval", "ready")
        self._failed = [each for each in self._failed if each.problem is not None and each.state in states]
        settled = [each for each in self._failed if each.state != "checking" and is_settled(each)]
        self._failed = [each for each in self._failed if each not in settled]
        return settled

    def ended(self, execution: Execution) -> None:
        """What prepared a call has ended, was discarded, or is used by its tool."""
        self._running.discard(execution.key)

    def discard(self, execution: Execution) -> None:
        """Forget what prepared a call."""
        self.ended(execution)
        execution.prepare, execution.preview, execution.problem = "none", "", None

    def _count(self) -> int:
        """How many calls prepare; those of calls that were discarded do not count."""
        running = [execution for key in self._running if (execution := self._table.find(key)) is not None]
        self._running = {execution.key for execution in running if execution.prepare == "running"}
        return len(self._running) + len(self._growing)

    def _is_outgrown(self, block: int) -> bool:
        is_other = self._calls.name(block) != self._growing[block][1] or self._calls.is_over(block)
        kind = self._calls.kind(block)
        return is_other or self._table.at(block) is not None or (kind != "free" and self._is_held(block, kind))

    def _head(self, kind: Kind, blocks: list[int]) -> Execution | None:
        while blocks:
            execution = self._table.at(blocks[0])
            is_waiting = execution is not None and execution.prepare == "waiting" and execution.state != "finished"
            if execution is not None and is_waiting and self._calls.kind(execution.block) == kind:
                return execution if kind == "free" or not self._is_held(execution.block, kind) else None
            blocks.pop(0)
        return None

    def _is_held(self, block: int, kind: Kind) -> bool:
        place, frontier, calls = bisect_left(self._calls.blocks, block), self._frontiers[kind], self._calls
        while frontier < place and not calls.holds(calls.blocks[frontier], kind, is_provisional=True):
            frontier += 1
        self._frontiers[kind] = frontier
        return frontier < place
