"""The cost of a response in money, from prices that the caller gives. No prices are part of this library."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Usage

MILLION = 1_000_000

_logger = logging.getLogger("penstock.tracing")


class Prices(Struct, frozen=True, kw_only=True):
    """Prices of a model per million tokens.

    By default, cached input costs the same as input, and reasoning the same as output.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None

    def cost(self, usage: Usage) -> float:
        """The cost of this many tokens."""
        plain_input = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
        plain_output = max(0, usage.output_tokens - usage.reasoning_tokens)
        parts = (
            (plain_input, self.input),
            (usage.cached_tokens, self.input if self.cache_read is None else self.cache_read),
            (usage.cache_write_tokens, self.input if self.cache_write is None else self.cache_write),
            (plain_output, self.output),
            (usage.reasoning_tokens, self.output if self.reasoning is None else self.reasoning),
        )
        return sum(tokens * price for tokens, price in parts) / MILLION


Cost = Callable[[str, Usage], float | None]
"""A function of the name of a model (`provider:model`) and its usage; None if it does not know the model."""


def as_cost(prices: Cost | Mapping[str, Prices] | None) -> Cost | None:
    """A cost function for a price table by model name, with or without its provider."""
    if prices is None or callable(prices):
        return prices
    table: Any = prices
    if not isinstance(table, Mapping) or not all(isinstance(row, Prices) for row in table.values()):
        raise UsageError("cost must be a function, or a dict of Prices by the name of the model")

    def cost(model: str, usage: Usage) -> float | None:
        row = table.get(model) or table.get(model.partition(":")[2])
        return None if row is None else row.cost(usage)

    return cost


def safe_cost(cost: Cost | None, model: str, usage: Usage | None) -> float | None:
    """The cost; None if it is unknown, or the caller's function fails."""
    if cost is None or usage is None:
        return None
    try:
        value = cost(model, usage)
        return None if value is None else float(value)
    except Exception as error:  # noqa: BLE001  # the function is user code
        _logger.warning("the cost of a response of %s is not known: %r", model, error)
        return None
