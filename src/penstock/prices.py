"""Prices of models: what the tokens of a response cost, in US dollars. No prices are part of this library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Literal

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Usage
from penstock.loggers import get_logger
from penstock.providers import ALIASES, PRICE_PROVIDERS

MILLION = 1_000_000

_logger = get_logger("penstock.prices")


class Prices(Struct, frozen=True, kw_only=True):
    """Prices of a model per million tokens.

    By default, cached input costs the same as input, and reasoning the same as output.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            price: Any = getattr(self, name)
            if not _is_amount(price) and (price is not None or name in ("input", "output")):
                raise UsageError(f"Prices: {name} must be a price per million tokens, of 0 or more, not {price!r}")

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
PriceTable = Cost | Mapping[str, Prices] | Literal["genai-prices"]
"""Where prices come from: a function, `Prices` by the name of the model, or the package `genai-prices`."""


def as_cost(prices: PriceTable | None, option: str = "prices") -> Cost | None:
    """A cost function for a price table by model name, with or without its provider."""
    if prices is None or callable(prices):
        return prices
    if prices == "genai-prices":
        return _genai_prices()
    table: Any = prices
    if not isinstance(table, Mapping):
        expected = "a dict of Prices by the name of the model, a function, or 'genai-prices'"
        raise UsageError(f"{option} must be {expected}, not {table!r}")
    for name, row in table.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"{option}: {name!r} is not the name of a model; use 'provider:model', or the model alone")
        if not isinstance(row, Prices):
            raise UsageError(f"{option}: the price of {name!r} must be Prices(input=…, output=…), not {row!r}")

    def cost(model: str, usage: Usage) -> float | None:
        row = table.get(model) or table.get(model.partition(":")[2])
        return None if row is None else row.cost(usage)

    return cost


def safe_cost(cost: Cost | None, model: str, usage: Usage | None) -> float | None:
    """The cost; None if it is unknown, or the caller's function fails or returns no amount."""
    if cost is None or usage is None:
        return None
    try:
        value: Any = cost(model, usage)
    except Exception as error:  # noqa: BLE001  # the function is user code
        _logger.warning("the cost of a response of %s is not known: %r", model, error)
        return None
    if value is None or _is_amount(value):
        return None if value is None else float(value)
    _logger.warning("the cost of a response of %s is not known: prices returned %r", model, value)
    return None


def _genai_prices() -> Cost:
    """The prices of the package `genai-prices`, which is imported with the first response."""
    if find_spec("genai_prices") is None:
        raise UsageError("prices='genai-prices' needs that package: pip install 'penstock-llm[prices]'")

    def cost(model: str, usage: Usage) -> float | None:
        from genai_prices import Usage as Tokens
        from genai_prices import calc_price

        prefix, _, name = model.partition(":")
        provider = ALIASES.get(prefix, prefix)
        tokens = Tokens(
            input_tokens=usage.input_tokens, cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens, output_tokens=usage.output_tokens,
        )  # fmt: skip
        try:
            return float(calc_price(tokens, name, provider_id=PRICE_PROVIDERS.get(provider, provider)).total_price)
        except LookupError:
            return None

    return cost


def _is_amount(value: Any) -> bool:
    """Whether this is an amount of money: a number of 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
