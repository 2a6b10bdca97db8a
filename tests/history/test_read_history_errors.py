"""What is not a history raises with the place and the reason, however similar it looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import UsageError, as_messages, export_messages
from penstock.history.file import read_history
from penstock.jsontext.scan import MAX_DEPTH
from penstock.messages import MARK, decode_messages, encode_messages, image, user
from penstock.wires import WIRES

FEATURE = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}}


# Other things that have a type.


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        (image("https://x.test/a.png"), r"message: is an Image, a part of a message: use messages.user\('…', image"),
        (["Hi.", image("https://x.test/a.png")], r"messages\[1\]: is an Image, a part of a message"),
        ([FEATURE], r"messages\[0\]: has no role, and 'Feature' is not a type of Responses items; send messages"),
        (FEATURE, "message: has no role, and 'Feature' is not a type of Responses items"),
        ({"messages": [FEATURE]}, r"messages\[0\]: has no role, and 'Feature' is not a type of Responses items"),
        (
            [{"role": "user", "content": "Hi."}, {"type": "assistant", "message": {"role": "assistant"}}],
            r"messages\[1\]: .*'assistant' .*send the message in it",
        ),
        ([{"type": "function", "function": {"name": "f"}}], r"messages\[0\]: has no role, .*'function' .*; send"),
        ([{"type": "human", "data": {"content": "Hi."}}], r"messages\[0\]: is a LangChain message .*convert_to_openai"),
        ([{"type": "system", "content": "Be kind."}], r"messages\[0\]: is a LangChain message of the type 'system'"),
        ({"input": [{"type": "ai", "content": "Hi."}]}, r"input\[0\]: is a LangChain message of the type 'ai'"),
        (
            [{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {}}],
            r"messages\[0\]: is a LangChain message of the type 'constructor'",
        ),
    ],
)  # fmt: skip
def test_an_object_with_a_type_that_is_not_an_item_raises(what: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        penstock.check(what)


# Gemini's contents, which are known by their role or their parts.


def test_an_answer_of_gemini_may_have_no_parts() -> None:
    answer = [{"role": "user", "parts": [{"text": "Hi."}]}, {"role": "model"}]
    assert [problem.kind for problem in penstock.check(answer)] == ["empty_message"]


def test_a_system_message_among_gemini_contents_is_read() -> None:
    message, _ = as_messages([{"role": "system", "parts": [{"text": "Be kind."}]}, {"role": "model"}])
    assert (message.role, message.text) == ("system", "Be kind.")


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "model", "content": "Hi."}, r"has Gemini's role 'model', so it needs parts"),
        ({"role": "assistant", "parts": [{"text": "Hi."}]}, r"has the role 'assistant'; expected user or model"),
    ],
)
def test_wrong_gemini_contents_raise_with_advice(message: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=rf"messages\[0\]: {complaint}"):
        as_messages([message])


# What is nested too deeply.


def nested(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels - 1):
        made = {"content": made}
    return made


def called(levels: int) -> list[Any]:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": nested(levels)}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    return [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


@pytest.mark.parametrize("levels", [600, 900, 20_000])
@pytest.mark.parametrize(
    "use", [penstock.check, penstock.repair, as_messages, lambda history: export_messages(history, "gemini")]
)
def test_deep_nesting_raises_with_its_place(use: Callable[[Any], object], levels: int) -> None:
    with pytest.raises(UsageError, match=r"^messages\[1\]: is nested too deeply; arguments may have 512 levels"):
        use(called(levels))


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (called(600), r"messages\[1\]"),
        ({"messages": called(600)}, r"messages\[1\]"),
        ({"metadata": nested(600), "messages": []}, "metadata"),
        ({"system": [nested(600)], "messages": []}, r"system\[0\]"),
    ],
)
def test_deep_nesting_in_a_file_raises_with_its_place(body: Any, place: str) -> None:
    with pytest.raises(UsageError, match=rf"^{place}: is nested too deeply"):
        read_history(json.dumps(body).encode())


@pytest.mark.parametrize("wire", WIRES)
def test_arguments_may_be_as_deep_as_those_of_a_response(wire: Any) -> None:
    history = called(MAX_DEPTH)
    assert penstock.check(history) == []
    assert export_messages(read_history(encode_messages(as_messages(history))), wire)


def test_a_block_with_text_too_deep_for_export_raises_with_its_place() -> None:
    block = {"type": "server_tool_use", "id": "a", "content": nested(MAX_DEPTH)}
    history = [{"role": "assistant", "content": [{"type": "text", "text": "Hi."}, block]}]
    assert export_messages(history, "anthropic") == {"messages": history}
    with pytest.raises(UsageError, match=r"^messages\[0\]\.content\[1\]: is nested too deeply"):
        export_messages(history, "gemini")


# What was stored.


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("this history", lambda stored: stored.update(mood=1)),
        (r"messages\[0\]", lambda stored: stored["messages"][0].update(mood=1)),
        (r"messages\[0\]\.parts\[1\]", lambda stored: stored["messages"][0]["parts"][1].update(mood=1)),
        (
            r"messages\[0\]\.parts\[1\]\.state\[0\]",
            lambda stored: stored["messages"][0]["parts"][1].update(
                state=[{"type": "opaque", "block": 0, "wire": "gemini", "kind": "fields", "data": {}, "mood": 1}]
            ),
        ),
    ],
)
def test_a_stored_history_with_unknown_fields_raises(place: str, change: Any) -> None:
    stored = json.loads(encode_messages([user("Hi.", image("https://x.test/a.png"))]))
    change(stored)
    assert stored[MARK] == 1
    for use in (lambda: as_messages(stored), lambda: decode_messages(json.dumps(stored))):
        with pytest.raises(UsageError, match=f"^{place}: unknown fields 'mood'; remove them, or"):
            use()
