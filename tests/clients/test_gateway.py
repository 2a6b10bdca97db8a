"""Clients of two languages run a loop through the gateway, with good and bad servers behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Loopback, ReceivedRequest, Reply, call, think
from tests.clients.conftest import run_node
from tests.clients.loops import LOOPS
from tests.gateway_process import gateway_process
from tests.habits import HABITS, RIGHT, habit_server

STRICT = {"llamacpp": "openai-chat", "openai": "openai-responses", "anthropic": "anthropic", "google": "gemini"}
"""Upstreams that refuse what their provider would refuse, and their wires."""
MODELS = [f"{upstream}/local-model" for upstream in (*HABITS, *STRICT)]
NODE_LOOPS = 6

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' code


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
        with gateway_process(urls) as address:
            yield address


@pytest.mark.parametrize("client", LOOPS)
def test_a_python_client_gets_every_call(gateway: str, client: str) -> None:
    wrong = {model: text for model in MODELS if (text := LOOPS[client](gateway, model)) != RIGHT}
    assert wrong == {}


def test_every_node_client_gets_every_call(clients: Path, gateway: str) -> None:
    answers: dict[str, dict[str, str]] = run_node("loops.mjs", gateway, *MODELS)
    assert list(answers) == MODELS
    assert all(len(by_client) == NODE_LOOPS for by_client in answers.values())
    wrong = {(model, name): text for model, by_client in answers.items() for name, text in by_client.items()
             if text != RIGHT}  # fmt: skip
    assert wrong == {}
