"""Clients of two languages run a loop through the gateway, with good and bad servers behind it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.testing import Loopback, ReceivedRequest, Reply, call, think
from tests.clients.conftest import ROOT, run_node
from tests.clients.loops import LOOPS
from tests.gateway_process import gateway_process
from tests.habits import HABITS, RIGHT, habit_server

STRICT = {"llamacpp": "openai-chat", "openai": "openai-responses", "anthropic": "anthropic", "google": "gemini"}
"""Upstreams that refuse what their provider would refuse, and their wires."""
MODELS = [f"{upstream}/local-model" for upstream in (*HABITS, *STRICT)]
NODE_LOOPS = 6


def strict_answer(request: ReceivedRequest) -> Any:
    if not request.results:
        return Reply(think("The user wants a word."), "Let me look. ", call("look", {"command": "echo penstock-42"}))
    return RIGHT if "penstock-42" in request.results[0].text else "FINAL: no such result."


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    """The address of a gateway, with an upstream for each habit, and one for each strict server."""
    with habit_server() as habits, Loopback(strict_answer, strict=True) as strict:
        urls = {habit: f"{habits.url}/{habit}/v1" for habit in HABITS}
        urls |= {name: strict.base_url(wire) for name, wire in STRICT.items()}
        with pytest.MonkeyPatch.context() as environment:
            for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
                environment.setenv(name, "-")  # of several upstreams, only the first gets the key of the client
            with gateway_process(urls) as address:
                yield address


def wrong_answers(answers: dict[str, dict[str, str]], clients: int) -> dict[tuple[str, str], str]:
    """The answers that are not the right one, by model and client; every client has one for every model."""
    assert list(answers) == MODELS
    assert all(len(by_client) == clients for by_client in answers.values())
    return {
        (model, name): text for model, texts in answers.items() for name, text in texts.items() if text != RIGHT
    }  # fmt: skip


def test_python_clients_get_every_call(gateway: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.clients.loops", gateway, *MODELS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert wrong_answers(msgspec.json.decode(ended.stdout.splitlines()[-1]), len(LOOPS)) == {}


def test_node_clients_get_every_call(clients: Path, gateway: str) -> None:
    assert wrong_answers(run_node("loops.mjs", gateway, *MODELS), NODE_LOOPS) == {}
