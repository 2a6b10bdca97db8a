"""A stored history with tampered vendor state: the state is left out, and nothing breaks."""

from __future__ import annotations

from typing import Any

from penstock import Message, Opaque, Reasoning, Text, ToolCall
from penstock.messages import assistant, result, tool_results, user
from penstock.wires import WIRES, find_encoder
from penstock.wires.shared.request import Request
from tests.cases import each

KINDS = (
    "message", "fields", "block", "reasoning", "reasoning_details", "reasoning_fields", "function_call", "signature",
    "thought", "tool_plan", "web_search_call", "server_tool_use", "redacted_thinking", "container", "guardContent",
    "citations", "part", "thoughtSignature",
)  # fmt: skip
WRONG: tuple[Any, ...] = (None, 5, "words", [], ["a"], [1], [[]], {}, {"type": 5}, {"a": None}, True)


@each("wire", WIRES)
@each("kind", KINDS)
def test_tampered_state_breaks_no_request(kind: str, wire: str) -> None:
    call = ToolCall("c1", "look", {"a": 1}, "{}", sealed_by="call_end", block=2)
    for data in WRONG:
        for block in (0, 1, 2, 7):
            state = Opaque(block, wire, kind, data)
            message = assistant(Reasoning(0, "Hm."), Text(1, "So."), call, state)
            history = [
                Message("user", (Text(0, "Go."), state)),
                message,
                tool_results(result(call, "seen")),
                assistant("Done."),
                user("And?"),
            ]
            body = find_encoder(wire)(Request(model="m", messages=tuple(history)), frozenset())
            assert body.body
