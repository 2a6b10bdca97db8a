"""What a run costs: the prices of its responses, and the estimated price of each request."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from penstock.agent.agent_tool import AgentTool
from penstock.agent.config import AgentConfig
from penstock.errors import UsageError
from penstock.events import StreamChunk, Usage
from penstock.history.tokens import PER_TOKEN, estimate_tokens
from penstock.messages import Message
from penstock.prices import Cost, safe_cost
from penstock.run.step_changes import ModelUsage
from penstock.tools.tool import Tool

_PROBE = Usage(input_tokens=1, output_tokens=1)


class Pricing:
    """Prices the responses and requests of one run. A message is estimated once."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._messages: dict[int, tuple[Message, int]] = {}  # with the message, so that its id stays its own
        self._tools: dict[int, tuple[Tool[..., object], int]] = {}

    def priced(self, chunks: list[StreamChunk], model: str) -> list[StreamChunk]:
        """The chunks of a response of this model, with the cost of its tokens."""
        return [self._with_cost(chunk, model) if type(chunk) is Usage else chunk for chunk in chunks]

    def priced_usage(self, used: ModelUsage) -> ModelUsage:
        """The usage of a hook's own request, with its cost."""
        return used if used.usage.cost is not None else replace(used, usage=self._with_cost(used.usage, used.model))

    def estimate(self, messages: Iterable[Message], config: AgentConfig) -> float | None:
        """The estimated price of the input of a request; None if the price of its model is not known."""
        instructions = config.instructions if isinstance(config.instructions, str) else ""
        tokens = sum(map(self._message, messages)) + len(instructions) // PER_TOKEN
        tokens += sum(map(self._tool, config.tools.values()))
        return safe_cost(self._cost, config.model.name, Usage(input_tokens=tokens))

    def _with_cost(self, usage: Usage, model: str) -> Usage:
        return replace(usage, cost=safe_cost(self._cost, model, usage))

    def _message(self, message: Message) -> int:
        if (known := self._messages.get(id(message))) is None:
            known = self._messages[id(message)] = message, estimate_tokens([message])
        return known[1]

    def _tool(self, tool: Tool[..., object]) -> int:
        if (known := self._tools.get(id(tool))) is None:
            declared = tool.declaration
            size = len(declared.name) + len(declared.description or "") + len(msgspec.json.encode(declared.parameters))
            known = self._tools[id(tool)] = tool, size // PER_TOKEN
        return known[1]


def expect_prices(config: AgentConfig, limit: float | None = None, outer: Cost | None = None) -> None:
    """Raise a `UsageError` if the cost of a run is limited, and the price of its model is not known.

    The agents that are its tools count, too: `limit` and `outer` are those of the run around them.
    """
    limit = config.limits.cost if limit is None else limit
    prices = config.prices or outer
    if limit is None:
        return
    if prices is None:
        raise UsageError("Limits(cost=…) needs prices: pass Agent(prices=…), such as prices='genai-prices'")
    name = config.model.name
    if safe_cost(prices, name, _PROBE) is None:
        raise UsageError(f"Limits(cost=…) needs the price of {name!r}, which prices does not have: add it to prices")
    for tool in config.tools.values():
        if isinstance(tool, AgentTool):
            expect_prices(tool.config, limit, prices)
