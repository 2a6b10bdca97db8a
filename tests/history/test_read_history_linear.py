"""Law 4 for reading: four times the history takes about four times the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import as_messages
from tests.growth import assert_linear

Histories = dict[str, Callable[[int], Any]]

GEMINIS_CALL = {"functionCall": {"name": "f", "args": {}}}
GEMINIS_RESULT = {"functionResponse": {"name": "f", "response": {}}}
OLLAMAS_CALL = {"function": {"name": "f", "arguments": {}}}
OLLAMAS_RESULT = {"role": "tool", "tool_name": "f", "content": "1"}

HISTORIES: Histories = {
    "items of one turn": lambda size: {
        "input": [{"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"} for at in range(size)]
        + [{"type": "function_call_output", "call_id": f"c{at}", "output": "1"} for at in range(size)]
    },
    "gemini's calls of one turn": lambda size: [
        {"role": "model", "parts": [GEMINIS_CALL] * size},
        {"role": "user", "parts": [GEMINIS_RESULT] * size},
    ],
    "gemini's calls that nobody answers": lambda size: [{"role": "model", "parts": [GEMINIS_CALL]}] * size,
    "gemini's answers to nobody": lambda size: [{"role": "user", "parts": [GEMINIS_RESULT]}] * size,
    "ollama's turns": lambda size: [{"role": "assistant", "tool_calls": [OLLAMAS_CALL]}, OLLAMAS_RESULT] * size,
    "ollama's calls of one turn": lambda size: [
        {"role": "assistant", "tool_calls": [OLLAMAS_CALL] * size},
        *[OLLAMAS_RESULT] * size,
    ],
    "halves of characters": lambda size: [{"role": "user", "content": "\ud83d" * size}] * 10,
    "arguments of many fields": lambda size: [
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {str(at): [at] for at in range(size)}}}]}
    ],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=list(HISTORIES))
def test_reading_is_linear(history: Callable[[int], Any]) -> None:
    def work(size: int) -> Callable[[], object]:
        made = history(size)
        return lambda: as_messages(made)

    assert_linear(work, 500)
