"""Mistakes of people who use an adapter: each error says what to pass instead."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.adapters import reqllm
from penstock.adapters.wire_detector import WireDetector
from penstock.testing import Reply, call, frames
from penstock.wires import WIRES


@pytest.mark.parametrize("wire", WIRES)
def test_the_wire_of_chunks_is_detected(wire: Any) -> None:
    body = list(frames(wire, Reply("Hm.", call("look", {"x": 1}))))
    detector = WireDetector()
    assert next(filter(None, map(detector.feed, body)), None) == wire
    assert [(one.name, one.arguments) for one in reqllm.extract(body)] == [("look", {"x": 1})]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: reqllm.classify([{"foo": 1}]), "no wire understands these chunks; pass wire=, one of: anthropic, "),
        (lambda: reqllm.classify(b"hello"), "no wire understands these chunks"),
        (lambda: reqllm.classify(3), "expected events, not an int"),  # type: ignore[arg-type]
        (lambda: reqllm.extract(None), "expected events, not None"),  # type: ignore[arg-type]
        (lambda: reqllm.classify(penstock.Model("sim:fast").astream("Hi.")), "AsyncStream is not iterable"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_to_pass(wrong: Any, message: str) -> None:
    with pytest.raises(penstock.UsageError, match=message):
        wrong()
