"""The request of a step: the model, the messages and the options with which an agent asks for a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.agent.config import AgentConfig
from penstock.messages import Message
from penstock.model.model import Model

UNFORCED_CHOICES = ("", "auto", "none")
"""The tool choices that hold for every step; one that forces a call holds for the first."""


class StepRequest(Struct, frozen=True):
    """What `Model.stream` and `Model.astream` are called with."""

    model: Model
    messages: list[Message]
    options: dict[str, Any]


def step_request(config: AgentConfig, step: int, messages: Sequence[Message]) -> StepRequest:
    """The request of this step, counted from 1."""
    options = dict(config.options)
    if step > 1 and options.get("tool_choice", "") not in UNFORCED_CHOICES:
        del options["tool_choice"]  # a model that obeys would call the tool until a limit ends the run
    tools = list(config.tools.values())
    options = {"tools": tools, "system_prompt": config.instructions, "output": config.output, **options}
    return StepRequest(config.model, list(messages), options)
