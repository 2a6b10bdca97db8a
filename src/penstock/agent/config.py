"""What an agent is set up with: all that its runs need to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from penstock.agent.callbacks import Callbacks
from penstock.events import Fault
from penstock.model.model import Model
from penstock.run.limits import Limits
from penstock.tools.tool import Tool


class AgentConfig(Struct, frozen=True, kw_only=True):
    """A model, its tools, and the rules that they are under."""

    model: Model
    tools: Mapping[str, Tool[..., Any]]
    instructions: str
    limits: Limits
    run_repaired: frozenset[Fault]
    approvals: Literal["pause", "wait"]
    separate_text: bool
    callbacks: Callbacks
    options: Mapping[str, Any]
