"""The calls of one response in their order, and which of them hold later ones: see `call_order`."""

from __future__ import annotations

from bisect import insort
from typing import Literal

from penstock.run.calls.execution import Execution, ExecutionTable
from penstock.run.events import CallOrdering
from penstock.run.rules import RunRules
from penstock.tools.policy import ToolPolicy

Kind = CallOrdering | Literal["handover"]
HELD: tuple[Kind, ...] = ("read", "effect", "handover", "alone")
"""The kinds of calls that a call before them may hold."""


class PlacedCalls:
    """The calls of one response by block, each from its first event on: their kinds, and whom they hold."""

    def __init__(self, table: ExecutionTable, rules: RunRules) -> None:
        self.blocks: list[int] = []  # in order
        self._table = table
        self._rules = rules
        self._names: dict[int, str] = {}  # the tool of each block
        self._gone: set[int] = set()  # blocks that did not become a call

    def place(self, block: int, name: str) -> bool:
        """A call appeared, or its tool is another one; False if it is known."""
        known = self._names.get(block)
        if known is None:
            insort(self.blocks, block)
        self._names[block] = name
        return known != name

    def name(self, block: int) -> str | None:
        """The name of the tool of a block."""
        return self._names.get(block)

    def close(self) -> None:
        """The response has ended: what did not become a call holds nobody."""
        self._gone = {block for block in self.blocks if block not in self._table}

    def kind(self, block: int) -> Kind:
        policy = self._policy(block)
        if policy is None:
            return "free"  # there is no such tool
        if policy.parallel is not None:
            return "free" if policy.parallel else "alone"
        if not policy.may_have_effect:
            return "read"
        return "handover" if policy.is_deferred else "effect"

    def holds(self, block: int, kind: Kind, *, is_provisional: bool = False) -> bool:
        """Whether a call holds later calls of this kind, or what prepares them: that `is_provisional`, as a read is."""
        own = self.kind(block)
        if self.is_over(block):
            return False
        if kind == "read":
            return own in ("effect", "handover", "alone")
        if not is_provisional and not self.is_confirmed(block):
            return True  # its tool may still be another one, and an effect cannot be taken back
        if own == "free":
            return False
        if kind == "alone" or own in ("read", "alone"):
            return True
        return self.may_ask(block) or (own == "handover" and kind == "effect")

    def may_ask(self, block: int) -> bool:
        """Whether a person decides about the call, or it is not known yet that nobody does."""
        execution, policy = self._table.at(block), self._policy(block)
        if execution is not None and execution.needs_approval is not None:
            return execution.needs_approval
        asks = self._rules.has_before_call or bool(policy and policy.needs_approval)
        return asks or (execution is not None and self.is_asked_for(execution))

    def is_asked_for(self, execution: Execution) -> bool:
        """Whether a person must approve the call because of where it comes from, and not because of its tool."""
        policy = self._policy(execution.block)
        in_text = execution.is_in_text and policy is not None and policy.asks_if_in_text
        return in_text or bool(execution.safety_checks) or execution.kind == "approval"

    def is_over(self, block: int) -> bool:
        execution = self._table.at(block)
        return block in self._gone or (execution is not None and execution.state == "finished")

    def is_confirmed(self, block: int) -> bool:
        execution = self._table.at(block)
        return block in self._gone or (execution is not None and execution.is_confirmed)

    def is_deferred(self, block: int) -> bool:
        policy = self._policy(block)
        return policy is not None and policy.is_deferred

    def _policy(self, block: int) -> ToolPolicy | None:
        execution, name = self._table.at(block), self._names.get(block, "")
        if execution is None or (name and execution.name != name):
            return self._rules.policies.get(name)
        return self._rules.policy(execution)
