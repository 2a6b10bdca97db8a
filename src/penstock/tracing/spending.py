"""The usage and cost of a run, including withdrawn attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.events import Usage
from penstock.tracing import conventions as names
from penstock.tracing.instruments import Attributes
from penstock.tracing.spans import StepSpan, set_all, usage_attributes

if TYPE_CHECKING:
    from penstock.tracing.tracing import Tracing


class Spending:
    """The cost of a run so far, including its sub-agents; `outer` is the spending of the run around it."""

    def __init__(self, tracing: Tracing) -> None:
        self.total: float | None = None
        self.outer: Spending | None = None
        self._tracing = tracing

    def pay(self, model: str, usage: Usage, attributes: Attributes) -> float | None:
        """Count a response of this model, with these metric attributes; returns its cost, if known."""
        record = self._tracing.instruments.record
        cost = self._tracing.cost_of(model, usage)
        self._count(model, usage, cost)
        record(names.TOKENS, usage.input_tokens, {**attributes, names.GEN_AI_TOKEN_TYPE: "input"})
        record(names.TOKENS, usage.output_tokens, {**attributes, names.GEN_AI_TOKEN_TYPE: "output"})
        if cost is not None:
            record(names.COST, cost, {**attributes, names.PENSTOCK_COST_CURRENCY: self._tracing.currency})
        return cost

    def end_attempt(self, step: StepSpan, model: str, attributes: Attributes) -> None:
        """Count a finished or withdrawn attempt of a step: both were paid."""
        usage, step.so_far = step.so_far, None
        if usage is not None:
            step.add(usage, self.pay(model, usage, attributes))

    def close_step(self, step: StepSpan, model: str, attributes: Attributes) -> None:
        """End the span of a step, with the tokens and the cost of all its attempts."""
        self.end_attempt(step, model, attributes)
        set_all(step.span, {**self.attributes(step.cost), **usage_attributes(step.usage)})
        step.span.end()

    def attributes(self, cost: float | None) -> Attributes:
        """The attributes for a cost, if it is known."""
        return {} if cost is None else {names.PENSTOCK_COST: cost, names.PENSTOCK_COST_CURRENCY: self._tracing.currency}

    def _count(self, model: str, usage: Usage, cost: float | None) -> None:
        """Add a cost, also to the outer run, at that run's own prices if its currency differs."""
        if cost is not None:
            self.total = (self.total or 0.0) + cost
        if (outer := self.outer) is not None:
            is_known = cost is not None and outer._tracing.currency == self._tracing.currency
            outer._count(model, usage, cost if is_known else outer._tracing.cost_of(model, usage))
