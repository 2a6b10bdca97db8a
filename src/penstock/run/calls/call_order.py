"""The order of the calls of one response: which of the ready ones may start.

Calls run as if one after the other. A read sees the effects of every call before it, and of none after it. Effects
that nobody is asked about run beside each other. May a call start while this one is before it?

| the call before it | read | effect | handover | alone |
|---|---|---|---|---|
| free, and confirmed | yes | yes | yes | yes |
| free, read or unknown, not confirmed | provisionally | no | no | no |
| read, and confirmed | yes | no | no | no |
| effect, not confirmed | no | no | no | no |
| effect that may ask a person, or waits for one | no | no | no | no |
| effect that runs elsewhere (a handover) | no | no | yes | no |
| effect that is ready or running | no | yes | yes | no |
| alone | no | no | no | no |
| over, whatever its ending | yes | yes | yes | yes, unless it stops them |

A free call may always start. A provisional start is discarded if a call before it gets a kind that holds it: its name
has grown, or its first event came late. Effects cannot be taken back, so they wait until every call before them is
confirmed. A call is over when its end was emitted.

Within a kind, being allowed to start is prefix-closed: one frontier per kind, the first place that may hold it, is
enough, and it moves only forward unless a call appears or changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from penstock.run.calls.execution import Execution, ExecutionTable
from penstock.run.calls.placed_calls import HELD, Kind, PlacedCalls
from penstock.run.calls.prepares import Prepares
from penstock.run.events import CallOrdering
from penstock.run.rules import RunRules


class CallOrder:
    """The order of the calls of one response: takes what happened, and returns what starts, ends or is skipped."""

    def __init__(self, table: ExecutionTable, rules: RunRules) -> None:
        self._table = table
        self._calls = PlacedCalls(table, rules)
        self.prepares = Prepares(table, self._calls)
        self._frontiers = dict.fromkeys(HELD, 0)  # the first place that may hold calls of this kind
        self._confirmed = 0  # the first place whose call may still change
        self._ready = defaultdict[Kind, list[int]](list)  # blocks
        self._returned: list[Execution] = []
        self._alone = set[int]()  # blocks of calls that run alone, until they are over
        self._stop: Execution | None = None

    # -- what happened ---------------------------------------------------------------------------------------------

    def place(self, block: int, name: str) -> list[Execution]:
        """A call appeared, or its tool is another one; returns the executions with something provisional that it holds.

        So does a call that turns out to ask a person.
        """
        execution = self._table.at(block) if self.prepares.is_used else None
        asks = execution is not None and self._calls.is_asked_for(execution) and self.prepares.are_any
        if not self._calls.place(block, name) and not asks:
            return []
        if self._calls.kind(block) == "alone":
            self._alone.add(block)
        if block == self._calls.blocks[-1]:
            return []  # nothing is after it
        place = bisect_left(self._calls.blocks, block)
        self._confirmed = min(self._confirmed, place)
        for kind in HELD:
            self._frontiers[kind] = min(self._frontiers[kind], place)
        self.prepares.reset(place)
        later = [self._table.at(other) for other in self._calls.blocks[place + 1 :]]
        return [execution for execution in later if execution is not None and self._is_held_now(execution, block)]

    def ready(self, execution: Execution) -> None:
        """A call may start as soon as the order allows it."""
        blocks = self._ready[self._calls.kind(execution.block)]
        at = bisect_left(blocks, execution.block)
        if blocks[at : at + 1] != [execution.block]:
            blocks.insert(at, execution.block)

    def returned(self, execution: Execution) -> None:
        """A tool returned; its end is emitted when the call is settled."""
        self._returned.append(execution)

    def ended(self, execution: Execution) -> None:
        """The end of a call was emitted: an unsuccessful one may stop later calls that run alone."""
        if execution.ending != "done" and self._stops_others(execution):
            self._stop = min(self._stop or execution, execution, key=_block)

    def close(self) -> None:
        """The response has ended: what did not become a call holds nobody."""
        self._calls.close()

    # -- what follows ----------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing follows: no call is ready, prepares, has returned or stops others."""
        return not (self._returned or self._stop or self.prepares.is_used or any(self._ready.values()))

    def take(self, *, has_slot: bool) -> Execution | None:
        """The first of the calls that may start now; without a slot, of those that run elsewhere."""
        first: Execution | None = None
        queue: list[int] = []
        for blocks in self._ready.values():
            head = self._head(blocks)
            if head is None or (first is not None and first.block < head.block):
                continue
            if (has_slot or self._calls.is_deferred(head.block)) and self.holder(head.block) is None:
                first, queue = head, blocks
        if first is not None:
            queue.pop(0)
        return first

    def take_settled(self) -> list[Execution]:
        """The calls whose tools have returned, and that nothing can discard any more."""
        if not self._returned:
            return []
        returned, self._returned = self._returned, []
        settled: list[Execution] = []
        for execution in returned:
            if execution.state == "returned":
                (settled if self.is_settled(execution) else self._returned).append(execution)
        return sorted(settled, key=_block)

    def take_stopped(self) -> list[tuple[Execution, Execution]]:
        """The confirmed calls that an unsuccessful one stops, each with that one."""
        stop = self._stop
        if stop is None or not self._alone:
            return []
        self._alone = {block for block in self._alone if not self._calls.is_over(block)}
        later = [self._table.at(block) for block in sorted(self._alone) if block > stop.block]
        return [(execution, stop) for execution in later if execution is not None and self._is_stopped(execution)]

    # -- what can be asked -----------------------------------------------------------------------------------------

    def holder(self, block: int) -> int | None:
        """The block of the call that holds a ready one; None if it may start."""
        place = bisect_left(self._calls.blocks, block)
        if place == 0 or (kind := self._calls.kind(block)) == "free":
            return None
        frontier = self._frontiers[kind]
        while frontier < place and not self._calls.holds(self._calls.blocks[frontier], kind):
            frontier += 1
        self._frontiers[kind] = frontier
        return self._calls.blocks[frontier] if frontier < place else None

    def ordering(self, execution: Execution) -> CallOrdering:
        """How a call is ordered, for the event of its start."""
        kind = self._calls.kind(execution.block)
        return "effect" if kind == "handover" else kind

    def is_settled(self, execution: Execution) -> bool:
        """Whether a call and all calls before it are confirmed; a free call, by itself."""
        if not execution.is_confirmed:
            return False
        place = bisect_left(self._calls.blocks, execution.block)
        while self._confirmed < place and self._calls.is_confirmed(self._calls.blocks[self._confirmed]):
            self._confirmed += 1
        return self._confirmed >= place or self._calls.kind(execution.block) == "free"

    # -- inside ----------------------------------------------------------------------------------------------------

    def _is_held_now(self, execution: Execution, block: int) -> bool:
        """Whether a call before it holds a read that has started, or what prepares a call."""
        kind = self._calls.kind(execution.block)
        if execution.has_prepared and kind != "free":
            return self._calls.holds(block, kind, is_provisional=True)
        has_started = execution.state in ("starting", "running", "deferred", "returned")
        return has_started and kind == "read" and self._calls.holds(block, "read")

    def _stops_others(self, execution: Execution) -> bool:
        kind = self._calls.kind(execution.block)
        return kind == "alone" or (kind in ("effect", "handover") and execution.has_waited)

    def _is_stopped(self, execution: Execution) -> bool:
        has_begun = execution.state not in ("held", "checking", "preparing", "approval", "ready")
        return execution.is_confirmed and not has_begun and self._calls.kind(execution.block) == "alone"

    def _head(self, blocks: list[int]) -> Execution | None:
        """The first call in a queue that is still ready."""
        while blocks:
            execution = self._table.at(blocks[0])
            if execution is not None and execution.state == "ready":
                return execution
            blocks.pop(0)
        return None


def _block(execution: Execution) -> int:
    return execution.block
