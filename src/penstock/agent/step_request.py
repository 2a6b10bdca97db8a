"""The request of a step: the options with which an agent asks its model for a response."""

from __future__ import annotations

from typing import Any

from penstock.agent.config import AgentConfig


def step_options(config: AgentConfig) -> dict[str, Any]:
    """The options of a request with this configuration: see `StepHooks.config_for`."""
    return {
        "tools": list(config.tools.values()),
        "system_prompt": config.instructions,
        "output": config.output,
        "calls": config.calls,
        "rescue": config.rescue,
        **config.options,
    }
