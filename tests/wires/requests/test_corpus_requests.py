"""Recorded requests, if they are available: each is read, and written again as an equivalent body.

Two bodies are equivalent if they say the same in the same order once both are put into one spelling (`plainly`). What
is still different then is listed, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from penstock import Message, UsageError, as_messages, check, export_messages, repair
from penstock.history.export import HISTORY
from penstock.history.file import read_history
from penstock.messages import Media, decode_messages, encode_messages
from penstock.providers import ALIASES, PROVIDERS
from penstock.wires import WIRES, find_facts, wire_name
from penstock.wires.shared.encode_request.ids import Ids, id_rules
from tests.budget import sample
from tests.cases import each
from tests.support import NO_CORPUS
from tests.wires.test_corpus import ALL, NOT_SPOKEN, Case

Json = dict[str, Any]
Body = dict[str, Any]

NO_HISTORY = {"openai-completions": "a prompt, and no messages"}
"""Wires of recorded requests without a history in a supported format."""

pytestmark = pytest.mark.skipif(not ALL, reason=NO_CORPUS)


def named(case: Case) -> Any:
    """The provider that a request went to, if we have a row for it."""
    name = ALIASES.get(case.meta["vendor"], case.meta["vendor"])
    return name if name in PROVIDERS else None


def provider_of(case: Case) -> str | None:
    """The same, if this wire is the one that we use for it."""
    provider = named(case)
    return provider if provider and PROVIDERS[provider].wire == case.wire else None


def recorded_requests() -> Iterator[tuple[str, str, Body, list[Message]]]:
    """For each recorded request: the case, its provider (or its wire), the body, and its messages."""
    for case in ALL:
        body = case.meta.get("request")
        if isinstance(body, dict) and case.meta["wire"] not in NOT_SPOKEN | NO_HISTORY.keys():
            yield case.meta["id"], provider_of(case) or case.wire, body, as_messages(body)


RECORDED = {case.meta["id"]: case for case in ALL}
REQUESTS = list(recorded_requests())
every_request = each(("id", "to", "body", "messages"), REQUESTS, ids=[request[0] for request in REQUESTS], parts=4)


# One spelling.


def plainly(wire: str, body: Body, take_id: Any) -> Body:
    """The history of a body in one of the spellings in which it can be written.

    A content is a list of parts, and empty texts, nulls and defaults are left out. Ids are as the provider takes them.
    """
    history = {field: body[field] for field in HISTORY if body.get(field)}
    match wire:
        case "openai-responses":
            return _plain_responses(history, take_id)
        case "gemini":
            return _plain_gemini(history)
        case "gemini-interactions":
            return _plain_interactions(history)
        case _:
            messages = [_plain_message(message, wire, take_id) for message in history["messages"]]
            system = _parts(history.get("system"))
            return {"system": system, "messages": messages, "container": history.get("container")}


DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("type", "function"),
    ("prefix", False),
    ("thought", False),
    ("annotations", []),
    ("status", "success"),
)
"""Fields with a default value: leaving them out means the same."""


def _parts(content: Any) -> list[Json]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [_bare(part) for part in parts if part.get("text") != ""]


def _bare(value: Any) -> Any:
    """A value without nulls and defaults."""
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _bare(inner) for key, inner in value.items() if inner is not None and (key, inner) not in DEFAULTS}


def _plain_message(message: Json, wire: str, take_id: Any) -> Json:
    role = "system" if message["role"] == "developer" else message["role"]
    plain = _bare(message) | {"role": role, "content": _parts(message.get("content"))}
    for call in plain.get("tool_calls", []):
        call.pop("id", None) if wire == "ollama" else call.update(id=take_id(call["id"]))
        call["function"]["arguments"] = call["function"]["arguments"] or "{}"
    if wire == "ollama":  # it matches results by name, and ids are optional
        plain.pop("tool_call_id", None)
    elif "tool_call_id" in plain:
        plain["tool_call_id"] = take_id(plain["tool_call_id"])
    return plain


def _plain_responses(history: Body, take_id: Any) -> Body:
    """The system messages at the beginning are instructions, in a field or as items."""
    items_field = history["input"]
    items = [{"role": "user", "content": items_field}] if isinstance(items_field, str) else items_field
    instructions = [history["instructions"]] if "instructions" in history else []
    plain = [_plain_item(item, take_id) for item in items]
    while plain and plain[0].get("role") == "system":
        instructions += [part["text"] for part in plain.pop(0)["content"]]
    return {"instructions": "\n\n".join(instructions), "input": plain}


def _plain_item(item: Json, take_id: Any) -> Json:
    plain = {"type": "message"} | _bare(item)
    if "call_id" in plain:
        plain["call_id"] = take_id(plain["call_id"])
    if plain["type"] != "message":
        return plain
    texts = {"input_text": "text", "output_text": "text"}
    content = [part | {"type": texts.get(part["type"], part["type"])} for part in _parts(item.get("content"))]
    role = "system" if item["role"] == "developer" else item["role"]
    return plain | {"role": role, "content": [_without_auto(part) for part in content]}


def _without_auto(part: Json) -> Json:
    return {key: value for key, value in part.items() if (key, value) != ("detail", "auto")}


def _plain_gemini(history: Body) -> Body:
    contents = [_bare(content) | {"role": content.get("role", "user")} for content in history["contents"]]
    system = history.get("systemInstruction", {})
    return {"systemInstruction": _bare(system.get("parts", [])), "contents": contents}


def _plain_interactions(history: Body) -> Body:
    """An input that is text, or a list of content parts, is the step of a user."""
    steps: list[Json] = _parts(history["input"])
    if all(step["type"] in ("text", "image") for step in steps):
        steps = [{"type": "user_input", "content": steps}]
    return {"system_instruction": history.get("system_instruction"), "input": _bare(steps)}


# Differences that remain.


DIFFERENCES: dict[str, tuple[set[str], str]] = {
    "anthropic__anthropic_error_claude-sonnet-4-6_0c898c": (
        {"system"},
        "texts of the system that are marked in no way are paragraphs of one",
    ),
    "deepseek__openai-chat_one-tool_deepseek-v4-flash_f28746": (
        {"messages.tool_calls.index", "messages.reasoning_content"},
        "DeepSeek refuses fields that are not its own, and wants the reasoning of each call, even if there was none",
    ),
    "mistral__mistral_one-tool_mistral-small-latest_1bcd73": (
        {"messages.name"},
        "results for Mistral have the name of the tool",
    ),
}
"""The fields of a recorded request that are written otherwise than they were sent, and why."""


def differences(one: Any, other: Any, place: str = "") -> set[str]:
    """The fields in which two values differ, without their numbers in lists."""
    if isinstance(one, dict) and isinstance(other, dict):
        fields = one.keys() | other.keys()
        return set().union(*(differences(one.get(key), other.get(key), f"{place}.{key}") for key in fields))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return set().union(*(differences(*pair, place) for pair in zip(one, other, strict=True)))
    return set() if one == other else {place.removeprefix(".")}


# The laws.


@every_request
def test_a_recorded_request_is_exported_again(id: str, to: Any, body: Body, messages: list[Message]) -> None:
    case = RECORDED[id]
    provider = named(case)
    quirks = PROVIDERS[provider].quirks if provider else frozenset[str]()
    again = export_messages(messages, wire_name(case.wire), body.get("model", ""), provider)
    take_id = Ids(id_rules(find_facts(case.wire), quirks)).fit
    found = differences(plainly(case.wire, again, take_id), plainly(case.wire, body, take_id))
    assert found == DIFFERENCES.get(id, (set(), ""))[0]


@every_request
def test_a_recorded_request_is_stored_and_moves_to_every_wire(
    id: str, to: Any, body: Body, messages: list[Message]
) -> None:
    assert decode_messages(encode_messages(messages)) == messages
    assert read_history(json.dumps(body).encode()) == messages
    has_media = any(isinstance(part, Media) for message in messages for part in message.parts)
    for wire in WIRES:
        with suppress(UsageError) if has_media else nullcontext():  # not every provider accepts every image, or its URL
            assert common_content(as_messages(export_messages(messages, wire_name(wire)))) == common_content(messages)


def common_content(messages: list[Message]) -> Any:
    """The content that every provider accepts: user and system text, calls, results."""
    words = {role: [m.text for m in messages if m.role == role and m.text] for role in ("user", "system")}
    calls = [(call.name, call.arguments) for message in messages for call in message.tool_calls]
    results = [(result.name, as_value(result.text)) for message in messages for result in message.results]
    return {role: "".join(texts).replace("\n", "") for role, texts in words.items()}, calls, results


def as_value(text: str) -> Any:
    """The JSON value of a text, or the text: some providers convert one to the other."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_how_many_were_tried(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [case for case in ALL if isinstance(case.meta.get("request"), dict)]
    skipped = [case for case in asked if case.meta["wire"] in NOT_SPOKEN | NO_HISTORY.keys()]
    assert len(REQUESTS) == len(asked) - len(skipped)
    assert DIFFERENCES.keys() <= {request[0] for request in REQUESTS}
    with capsys.disabled():
        print(  # noqa: T201  # its job
            f"\n{len(REQUESTS)} recorded requests tried, {len(DIFFERENCES)} with differences, {len(skipped)} skipped"
        )


# What is wrong with them.

FOUND = {
    "mistral__mistral_one-tool_mistral-small-latest_1bcd73": {"refused_id"},  # redacted in the recording
}
"""The problems that `check` reports for a recorded request that its provider accepted."""


def judge(to: str) -> Any:
    """The provider for which a request is checked: its own, or one that speaks its wire."""
    named_after = {"openai-chat": "openai-compatible", "openai-responses": "openai", "gemini": "google",
                   "gemini-interactions": "google"}  # fmt: skip
    return to if to in PROVIDERS else named_after.get(to, to)


@every_request
def test_check_finds_nothing_in_a_recorded_request(id: str, to: Any, body: Body, messages: list[Message]) -> None:
    assert {problem.kind for problem in check(body, judge(to))} == FOUND.get(id, set())


@every_request
def test_a_recorded_request_can_be_repaired_for_every_provider(
    id: str, to: Any, body: Body, messages: list[Message]
) -> None:
    repaired, names = repair(body), list[Any](PROVIDERS)
    assert check(repaired) == []
    for provider in sample(names, few=8):
        assert {problem.kind for problem in check(repaired, provider)} <= {"refused_media"}
        assert check(repair(body, provider), provider) == []
