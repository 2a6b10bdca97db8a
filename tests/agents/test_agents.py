"""Real coding agents run a loop through the gateway, with good and bad servers behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Loopback, ReceivedRequest, Reply, call, think
from tests.agents.agents import AGENTS, install, run_agent
from tests.gateway_process import gateway_process
from tests.habits import HABITS, RIGHT, SHELLS, WRONG, arguments_for, habit_server

STRICT = {"llamacpp": "openai-chat", "openai": "openai-responses", "anthropic": "anthropic", "google": "gemini"}
"""Upstreams that refuse what their provider would refuse, and their wires."""
PAIRS = [(name, wire) for name, agent in AGENTS.items() for wire in agent.wires]


def strict_answer(request: ReceivedRequest) -> Any:
    if not request.tools:  # a title is asked for
        return "A title"
    if request.results:
        return RIGHT if "penstock-42" in request.results[0].text else WRONG
    tool = next(tool for name in SHELLS for tool in request.tools if tool.name == name)
    calls = call(tool.name, arguments_for(tool, "echo penstock-42"))
    return Reply(think("The user wants a word."), "Let me look. ", calls)


@pytest.fixture(scope="session", autouse=True)
def agents() -> Path:
    return install()


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """The addresses of the upstreams."""
    with habit_server() as habits, Loopback(strict_answer, strict=True) as strict:
        urls = {habit: f"{habits.url}/{habit}/v1" for habit in HABITS}
        yield urls | {name: strict.base_url(wire) for name, wire in STRICT.items()}


@pytest.mark.parametrize(("agent", "wire"), PAIRS, ids=[f"{agent}-{wire}" for agent, wire in PAIRS])
@pytest.mark.parametrize("upstream", [*HABITS, *STRICT])
def test_an_agent_gets_every_call(
    servers: dict[str, str], tmp_path: Path, upstream: str, agent: str, wire: str
) -> None:
    with gateway_process({upstream: servers[upstream]}) as address:
        output = run_agent(agent, wire, address, tmp_path)
    assert RIGHT in output
