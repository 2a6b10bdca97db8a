"""The rules of a run, and the starts of its tools that were emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from penstock.events import Fault
from penstock.output.output_type import OutputType
from penstock.run.calls.execution import Execution, ToolTime
from penstock.run.limits import Limits
from penstock.tools.policy import ToolPolicy

_ELSEWHERE = ToolPolicy(is_deferred=True)
_UNDECLARED = {"vendor": _ELSEWHERE, "approval": _ELSEWHERE}  # by the kind of the call


class RunRules(Struct):
    """The rules of a run: the policies of its tools, its limits, and the faults with which a call still runs.

    The policies may change between steps, with the tools. `output` is the type that the final answer must have; None
    for text. With `has_before_call`, hooks see each call before anything of it runs; with `has_after_call`, the result
    of each call that ran. With `finds_sources`, the driver finds the sources of arguments for a person who
    is asked. A run that `raises` ends with the first exception of a tool that is not for the model. `time_of` is the
    clock of the driver: when the tool of an execution began, and how long it has run.
    """

    policies: dict[str, ToolPolicy]
    limits: Limits = Limits()
    run_repaired: frozenset[Fault] = frozenset()
    output: OutputType[Any] | None = None
    has_before_call: bool = False
    has_after_call: bool = False
    finds_sources: bool = False
    raises: bool = False
    time_of: Callable[[str], ToolTime | None] | None = None

    def policy(self, execution: Execution) -> ToolPolicy | None:
        """The policy of the tool that an execution runs; None if there is no such tool.

        What a provider asks of the client waits for it, also if no tool was declared for it.
        """
        return self.policies.get(execution.name, _UNDECLARED.get(execution.kind))

    def policy_of(self, name: str, kind: str) -> ToolPolicy | None:
        """The policy of the tool of this name, for a call of this kind."""
        return self.policies.get(name, _UNDECLARED.get(kind))

    def stop_clock(self, execution: Execution) -> None:
        """An execution is cancelled or discarded: keep how long its tool has run, if it does."""
        if execution.time is None and self.time_of is not None:
            execution.time = self.time_of(execution.key)


class Starts:
    """The keys of the executions of a run whose start was emitted (`announced`), and of those that `began`."""

    def __init__(self) -> None:
        self.announced: set[str] = set()
        self.began: set[str] = set()
