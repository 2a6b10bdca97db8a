"""The executions of one step, with an index for each question that is asked often.

Executions are added, removed and change their state here and nowhere else, so the indexes always agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.results import Outcome
from penstock.run.events import ToolEnd, ToolEnding
from penstock.run.execution import STATES, Execution, State


class ExecutionTable:
    """The executions of one step, at most one per block; iterates in the order of the calls."""

    def __init__(self) -> None:
        self._by_block: dict[int, Execution] = {}
        self._by_key: dict[str, Execution] = {}
        self._waiting: dict[str, Execution] = {}  # by the id of the call
        self._counts: dict[State, int] = dict.fromkeys(STATES, 0)
        self._repeats: dict[str, int] = {}

    def __iter__(self) -> Iterator[Execution]:
        return iter([self._by_block[block] for block in sorted(self._by_block)])

    def __len__(self) -> int:
        return len(self._by_block)

    def __contains__(self, block: int) -> bool:
        return block in self._by_block

    @property
    def is_finished(self) -> bool:
        return self._counts["finished"] == len(self._by_block)

    @property
    def waiting(self) -> Mapping[str, Execution]:
        """The calls that wait for a decision, a result from elsewhere or the answer to a question, by call id."""
        return self._waiting

    @property
    def repeats(self) -> Mapping[str, int]:
        """How many calls have each fingerprint."""
        return self._repeats

    def at(self, block: int) -> Execution | None:
        """The execution of a block."""
        return self._by_block.get(block)

    def find(self, key: str) -> Execution | None:
        """The execution of this key."""
        return self._by_key.get(key)

    def running(self, key: str) -> Execution | None:
        """The execution of this key, if it is running."""
        execution = self.find(key)
        return execution if execution is not None and execution.state == "running" else None

    def count(self, *states: State) -> int:
        """How many executions are in one of these states."""
        return sum(self._counts[state] for state in states)

    def add(self, execution: Execution) -> None:
        self._by_block[execution.block] = self._by_key[execution.key] = execution
        self._counts[execution.state] += 1
        if execution.fingerprint:
            self._repeats[execution.fingerprint] = self._repeats.get(execution.fingerprint, 0) + 1
        self._index(execution)

    def remove(self, execution: Execution) -> None:
        self._unindex(execution)
        del self._by_block[execution.block], self._by_key[execution.key]
        self._counts[execution.state] -= 1
        if execution.fingerprint:
            self._repeats[execution.fingerprint] -= 1

    def set_state(self, execution: Execution, state: State) -> None:
        self._unindex(execution)
        self._counts[execution.state] -= 1
        self._counts[state] += 1
        execution.state, execution.question = state, None
        self._index(execution)

    def ask(self, execution: Execution, question: dict[str, Any] | None) -> None:
        """The tool of a running execution asks this; None if the question was answered or withdrawn."""
        self._unindex(execution)
        execution.question = question
        self._index(execution)

    def finish(self, execution: Execution, outcome: Outcome, ending: ToolEnding | None = None) -> ToolEnd:
        """End an execution with this outcome; returns the event for it."""
        self.set_state(execution, "finished")
        execution.finish(outcome, ending)
        return execution.end

    def _index(self, execution: Execution) -> None:
        if execution.state in ("approval", "deferred") or execution.question is not None:
            self._waiting[execution.call_id] = execution

    def _unindex(self, execution: Execution) -> None:
        if self._waiting.get(execution.call_id) is execution:
            del self._waiting[execution.call_id]
