"""Vendor state is kept in its place: items, parts inside a result, the other fields of a request."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import penstock
from penstock import Message, Opaque, Text, ToolCall, ToolResult, as_messages, export_messages
from penstock.history.export import with_history
from penstock.history.file import parse_history
from penstock.messages import assistant, encode_messages, result, tool_results, user
from penstock.providers import REFUSED_BY, ProblemCase, ProblemKind
from penstock.wires import WIRES
from tests.cases import each

PAGE = Path(__file__).parents[2] / "docs" / "histories.md"

HALF = "\ud83d"
ASKED = {"role": "user", "parts": [{"text": "Hi."}]}
CALLED = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}


def test_a_compaction_is_an_item() -> None:
    body = {"input": [{"type": "message", "role": "user", "content": "Hi."}, {"type": "compaction", "id": "cmp_1"}]}
    assert penstock.check(body) == []
    assert export_messages(body["input"], "openai-responses") == body


# Gemini's results.

PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AA==", "displayName": "a.png"}}
SHOWN = {"name": "f", "response": {"image": {"$ref": "a.png"}}, "parts": [PICTURE]}


def test_media_inside_a_gemini_response_stay_inside() -> None:
    body = {"contents": [ASKED, CALLED, {"role": "user", "parts": [{"functionResponse": SHOWN}]}]}
    assert export_messages(body, "gemini") == body
    assert export_messages(penstock.repair(body, "google"), "gemini") == body


def test_older_gemini_models_get_media_after_the_response() -> None:
    history = [ASKED, CALLED, {"role": "user", "parts": [{"functionResponse": SHOWN}]}]
    written = export_messages(history, "gemini", model="gemini-2.5-pro")["contents"][-1]["parts"]
    assert [sorted(part) for part in written] == [["functionResponse"], ["inlineData"]]
    assert "parts" not in written[0]["functionResponse"]


def test_a_signature_without_a_part_goes_back() -> None:
    signatures = [Opaque(0, "gemini", "thought_signature", name) for name in ("a", "b")]
    written = export_messages([user("Hi."), assistant(*signatures)], "gemini")["contents"][-1]["parts"]
    assert written == [{"text": "", "thoughtSignature": "a"}, {"text": "", "thoughtSignature": "b"}]


# The rest of a request.


@pytest.mark.parametrize(
    ("body", "history", "expected"),
    [
        ({"instructions": " ", "input": [1], "model": "m"}, {"input": [2]}, {"input": [2], "model": "m"}),
        (
            {"system_instruction": 1, "contents": [1], "tools": []},
            {"contents": [2], "systemInstruction": 2},
            {"contents": [2], "tools": [], "systemInstruction": 2},
        ),
        ({"messages": [1], "container": "c"}, {"messages": [2]}, {"messages": [2], "container": "c"}),
        ({"messages": [1], "container": "c"}, {"messages": [2], "container": "d"}, {"messages": [2], "container": "d"}),
        ({"role": "user", "content": "Hi."}, {"messages": [2]}, {"messages": [2]}),
    ],
)
def test_with_history_replaces_all_history_fields(body: Any, history: Any, expected: Any) -> None:
    assert with_history(body, history) == expected
    assert list(with_history(body, history)) == list(expected), "what was there stays in its order"


# Lone surrogates.

HALVED: list[Any] = [
    HALF,
    [HALF],
    [{"role": "user", "content": HALF}],
    [{"role": "user", "content": "Hi.", "name": HALF}],
    {"messages": [{"role": "user", "content": "Hi."}], "system": HALF},
    {"contents": [ASKED], "systemInstruction": {"parts": [{"text": HALF}]}},
    [{"role": "assistant", "content": [{"type": "tool_use", "id": HALF, "name": HALF, "input": {HALF: [HALF]}}]}],
    [{"role": "assistant", "content": [{"type": "server_tool_use", HALF: HALF}]}],
    [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": HALF}}}]}],
    [{"role": "user", "parts": [{"type": "text", "block": 0, "text": HALF}]}],
    {"penstock_history": 1, "messages": [{"role": "user", "parts": [{"type": "text", "block": 0, "text": HALF}]}]},
    {"input": [{"type": "dream_call", "sheep": (HALF,)}]},
    [SimpleNamespace(role="user", content=HALF)],
    [{"role": "user", "content": [SimpleNamespace(type="text", text=HALF)]}],
]


@pytest.mark.parametrize("history", HALVED, ids=range(len(HALVED)))
def test_surrogate_halves_are_replaced_when_read(history: Any) -> None:
    penstock.check(history)
    messages = as_messages(history)
    stored = encode_messages(messages).decode()
    assert "\ufffd" in stored
    json.dumps(export_messages(messages, "gemini"), ensure_ascii=False).encode()


def test_a_history_file_has_no_surrogate_halves() -> None:
    body = {"messages": [{"role": "user", "content": HALF}], HALF: {HALF: [HALF]}}
    assert "\ud83d" not in json.dumps(parse_history(json.dumps(body).encode()), ensure_ascii=False)


def test_surrogate_pairs_are_joined() -> None:
    assert as_messages([{"role": "user", "content": "\ud83d\ude00"}])[0].text == "\U0001f600"


# States that are none, as a stored history may hold them.


@each("data", [None, 7, [7], True])
@each(
    ("wire", "role", "kind", "block"),
    [
        ("gemini", "assistant", "executableCode", 1),
        ("gemini", "assistant", "fields", 0),
        ("gemini", "user", "fields", 0),
        ("cohere", "assistant", "tool_plan", 1),
        ("cohere", "assistant", "fields", 0),
        ("cohere", "user", "block", 1),
    ],
)
def test_state_of_the_wrong_type_is_left_out(wire: Any, role: Any, kind: str, block: int, data: Any) -> None:
    reply = Message(role, (Text(0, "Ho."),))
    tampered = Message(role, (*reply.parts, Opaque(block, wire, kind, data)))
    assert export_messages([user("Hi."), tampered], wire) == export_messages([user("Hi."), reply], wire)


@pytest.mark.parametrize("wire", WIRES)
def test_result_fields_that_are_not_an_object_are_left_out(wire: Any) -> None:
    call = ToolCall("c", "f", {})
    found = ToolResult("c", "f", (Text(0, "1"),), state=(Opaque(0, wire, "fields", [7]),))
    before = [user("Hi."), assistant(call)]
    bare = [*before, tool_results(result(call, "1"))]
    assert export_messages([*before, tool_results(found)], wire) == export_messages(bare, wire)


def test_every_kind_of_problem_is_in_the_docs() -> None:
    assert [kind for kind in get_args(ProblemKind) if f"`{kind}`" not in PAGE.read_text()] == []


def test_every_kind_of_problem_and_each_case_has_providers() -> None:
    assert set(REFUSED_BY) == {*get_args(ProblemKind), *get_args(ProblemCase)}
