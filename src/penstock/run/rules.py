"""The rules of a run, and the starts of its tools that were emitted."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.events import Fault
from penstock.output.output_type import OutputType
from penstock.run.calls.execution import Execution
from penstock.run.limits import Limits
from penstock.tools.policy import ToolPolicy

_ELSEWHERE = ToolPolicy(is_deferred=True)


class RunRules(Struct, frozen=True):
    """The rules of a run: the policies of its tools, its limits, and the faults with which a call still runs.

    The policies may change between steps, with the tools. `output` is the type that the final answer must have; None
    for text.
    """

    policies: dict[str, ToolPolicy]
    limits: Limits = Limits()
    run_repaired: frozenset[Fault] = frozenset()
    output: OutputType[Any] | None = None

    def policy(self, execution: Execution) -> ToolPolicy | None:
        """The policy of the tool that an execution runs; None if there is no such tool.

        What a provider asks of the client waits for it, also if no tool was declared for it.
        """
        usual = _ELSEWHERE if execution.kind in ("vendor", "approval") else None
        return self.policies.get(execution.name, usual)


class Starts:
    """The keys of the executions of a run whose start was emitted (`announced`), and of those that `began`."""

    def __init__(self) -> None:
        self.announced: set[str] = set()
        self.began: set[str] = set()
