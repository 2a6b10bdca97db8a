"""The cost of a step of an agent, as the number of our functions that it calls: the same on a busy machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import penstock
from penstock import Agent, Limits, Model
from penstock.testing import Reply, Scripted, call

PACKAGE = str(Path(penstock.__file__).parent)
MOST = 1850
"""How many functions a step may call, those of the scripted provider among them; 1,711 when this was written."""


async def look(number: int) -> int:
    """Look at something."""
    return number + 1


def calls_of(steps: int) -> int:
    """How many of our functions a run of so many steps calls."""
    replies = [Reply("Hm.", call("look", {"number": number})) for number in range(steps)]
    agent = Agent(Model("openai-compatible:m", via=Scripted([*replies, "Done."])), [look], limits=Limits(steps=None))
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(count)
    try:
        assert asyncio.run(agent.arun("Go.")).output == "Done."
    finally:
        sys.setprofile(None)
    return calls


def test_a_step_of_an_agent_calls_few_functions() -> None:
    calls_of(2)  # what is loaded and cached once
    per_step = (calls_of(30) - calls_of(10)) / 20
    assert per_step <= MOST
