"""One run of an agent through the gateway to a server that refuses what its provider would refuse."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from penstock.testing import Loopback, ReceivedRequest, Reply, call, think
from tests.agents.agents import AGENTS, run_agent
from tests.gateway_process import gateway_process
from tests.habits import RIGHT, WRONG, arguments_for

STRICT = {"llamacpp": "openai-chat", "openai": "openai-responses", "anthropic": "anthropic", "google": "gemini"}
"""The providers, and their wires."""
_OUTPUT = 400


def run_strict(name: str, wire: str, provider: str) -> str:
    """What goes wrong when an agent runs one command and gets its output; empty if nothing does."""
    shell, parameter = AGENTS[name].shell

    def answer(request: ReceivedRequest) -> Any:
        tool = next((tool for tool in request.tools if tool.name == shell), None)
        if tool is None:  # a title is asked for
            return "A title"
        if request.results:
            return RIGHT if "penstock-42" in request.results[0].text else WRONG
        is_list = tool.parameters["properties"][parameter].get("type") == "array"
        command = "echo penstock-42"
        arguments = arguments_for(tool, command) | {parameter: [command] if is_list else command}
        return Reply(think("The user wants a word."), "Let me look. ", call(tool.name, arguments))

    with (
        Loopback(answer, strict=True) as server,
        gateway_process({provider: server.base_url(STRICT[provider])}) as address,
        tempfile.TemporaryDirectory(prefix=f"penstock-{name}-", ignore_cleanup_errors=True) as folder,
    ):
        output = run_agent(name, wire, address, Path(folder))
    return "" if RIGHT in output else f"no right answer: {output[-_OUTPUT:]}"
