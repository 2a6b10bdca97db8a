"""Law 4 for encoding: four times the message takes about four times the time, on every wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import as_messages, export_messages
from penstock.wires import WIRES
from tests.cases import each
from tests.growth import assert_linear

Histories = dict[str, Callable[[int], Any]]

THOUGHT = {"text": "Hm.", "thought": True, "thoughtSignature": "abc"}
CALL = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "abc"}
RESPONSE = {"functionResponse": {"name": "f", "response": {}}}
CACHED = {"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral"}}

HISTORIES: Histories = {
    "signed thoughts": lambda size: [{"role": "model", "parts": [THOUGHT] * size}],
    "signatures alone": lambda size: [{"role": "model", "parts": [{"text": "", "thoughtSignature": "abc"}] * size}],
    "calls and results": lambda size: [
        {"role": "model", "parts": [CALL] * size},
        {"role": "user", "parts": [RESPONSE] * size},
    ],
    "texts of the model": lambda size: [{"role": "assistant", "content": [CACHED] * size}],
    "texts of the user": lambda size: [{"role": "user", "content": [CACHED] * size}],
}


@each("wire", WIRES, parts=2, few=16)
@each("history", HISTORIES.values(), ids=list(HISTORIES))
def test_encoding_is_linear(history: Callable[[int], Any], wire: Any) -> None:
    def work(size: int) -> Callable[[], object]:
        made = as_messages([{"role": "user", "content": "Hi."}, *history(size)])
        return lambda: export_messages(made, wire)

    assert_linear(work, 500)
