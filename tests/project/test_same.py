"""The comparison of two trees (`make same`): it sees a difference, and passes over an explained one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.same.__main__ import ROOT, Tree, different_items, explanations

HELLO = b'data: {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
STREAM: dict[str, Any] = {
    "kind": "stream", "id": "hello", "name": "openai-chat", "tools": [], "body": HELLO.hex(),
}  # fmt: skip


@pytest.fixture
def dumped(tmp_path: Path) -> Any:
    def dump(body: bytes) -> Any:
        (tmp_path / "inputs.jsonl").write_text(json.dumps(STREAM | {"body": body.hex()}) + "\n", encoding="utf-8")
        return Tree(ROOT, tmp_path).dump("--random-runs=2")

    return dump


def test_what_two_trees_make_of_an_input_is_compared(dumped: Any) -> None:
    before, same, other = dumped(HELLO), dumped(HELLO), dumped(HELLO.replace(b"Hello", b"Hullo"))
    assert different_items(before, same) == []
    different = {item.split()[0] for item in different_items(before, other)}
    assert different == {"events", "responses", "requests", "runs"}
    assert sum(item.startswith("machine ") for item in before) == 2
    assert not any(value.startswith("!") for values in before.values() for value in values)


def test_an_explained_difference_is_a_kind_a_pattern_and_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "explained"
    path.write_text("# wording\nevents\tvector ollama .*\tthe message is clearer\n", encoding="utf-8")
    [(pattern, reason)] = explanations(path)
    assert reason == "the message is clearer"
    assert pattern.fullmatch("events vector ollama error / whole")
    assert not pattern.fullmatch("responses vector ollama error / whole")
