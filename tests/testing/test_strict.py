"""The strict loopback rejects what the real providers reject, with their messages, and accepts what we send."""

from __future__ import annotations

import ast
import copy
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, ProviderError, tool
from penstock.testing import Loopback, ReceivedRequest, Reply, Scripted, call, frames, say, think
from penstock.testing.wires import judge as strict_package
from penstock.testing.wires.judge import JUDGES, find_rejection
from penstock.testing.wires.signatures import CLAUDE, GEMINI, OPENAI, is_signature
from penstock.wires import RESPONSE_FRAMES
from tests.asking import ONCE, WIRES, every_wire, model_on
from tests.cases import each
from tests.judges import HISTORY, WEATHER
from tests.strict_bodies import (
    BAD,
    CLAUDES,
    GOOD,
    SIGNED,
    WORDS,
    A,
    Json,
    U,
    assistant,
    chat,
    from_model,
    from_user,
    gemini,
    model_call,
    reasoning,
    response,
    responses,
    result,
)

MODELS = {"bedrock": "eu.anthropic.claude-opus-4-6-v1", "gemini": "gemini-3-pro-preview"}
"""The models of the wires that have them in the path."""
PATHS = {
    "anthropic": "/v1/messages", "bedrock": "/model/m/converse-stream", "cohere": "/v2/chat",
    "gemini": "/v1beta/models/gemini-3:streamGenerateContent", "mistral": "/mistral/v1/chat/completions",
    "gemini-interactions": "/v1beta/interactions",
    "ollama": "/api/chat", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses",
}  # fmt: skip


def rejection(wire: str, body: Json, model: str = "") -> str:
    """The status and the message of a rejection; empty if the body is accepted."""
    found = find_rejection(ReceivedRequest(wire, body, model_in_path=model or MODELS.get(wire, "")))
    return "" if found is None else f"{found.status} {found.message}"


@each(
    ("wire", "claim", "body", "words"),
    [pytest.param(wire, *row, id=f"{wire}: {row[0]}") for wire, rows in BAD.items() for row in rows],
)
def test_an_invalid_request_is_rejected_with_the_providers_message(
    wire: str, claim: str, body: Json, words: str
) -> None:
    message = rejection(wire, body)
    assert message.startswith(("400 ", "404 ", "422 "))
    for piece in words.split("*"):
        assert piece in message


@each(
    ("wire", "body"),
    [pytest.param(wire, body, id=f"{wire} {at}") for wire, bodies in GOOD.items() for at, body in enumerate(bodies)],
)
def test_a_valid_request_is_accepted(wire: str, body: Json) -> None:
    assert rejection(wire, body) == ""


def test_older_gemini_models_check_neither_signatures_nor_names() -> None:
    body = gemini(from_user(), from_model(model_call()), from_user(response("see")))
    assert rejection("gemini", body, "gemini-2.5-flash") == ""
    assert rejection("gemini", body, "gemini-flash-latest")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (gemini(from_user(), from_model({"text": "So."})), "Requests ending with a model turn are not supported"),
        (gemini(from_user({"text": ""})), "Model input cannot be empty"),
        (
            gemini(from_user(), from_model(SIGNED), from_user(response(), {"text": "?"})),
            "Request contains an invalid argument",
        ),
    ],
)
def test_newer_gemini_models_are_stricter(body: Json, words: str) -> None:
    assert rejection("gemini", body, "gemini-3-pro-preview") == ""
    assert words in rejection("gemini", body, "gemini-3.7-flash")
    assert words in rejection("gemini", body, "gemini-flash-latest")


def test_every_wire_has_a_judge_that_imports_only_testing() -> None:
    assert set(JUDGES) == set(RESPONSE_FRAMES)
    for path in Path(strict_package.__file__).parent.rglob("judge.py"):
        modules = [
            node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        assert all(module.startswith("penstock.testing.") for module in modules if module.startswith("penstock"))


def odd(value: Any) -> Iterator[Any]:
    """The JSON with each of its values, in turn, replaced by one of a wrong type."""
    yield from (None, 7, "", "x", [], {}, [None], [[]], {"type": []})
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        whole = copy.copy(value)
        for replaced in odd(value[key]):
            whole[key] = replaced
            yield whole


@every_wire
def test_a_judge_tolerates_any_json(wire: str) -> None:
    for body in GOOD[wire]:
        for damaged in odd(body):
            if isinstance(damaged, dict) and damaged:
                rejection(wire, damaged)


def test_a_checksum_is_verified() -> None:
    assert is_signature(CLAUDES, CLAUDE)
    assert not is_signature(CLAUDES, GEMINI)
    assert not any(is_signature(CLAUDES[:at] + "?" + CLAUDES[at + 1 :], CLAUDE) for at in range(len(CLAUDES)))
    assert not any(is_signature(wrong, CLAUDE) for wrong in ("", "Eq", CLAUDES[:-1], CLAUDES + "x", None, 7))


@pytest.mark.parametrize("is_streaming", [True, False])
@pytest.mark.parametrize(
    ("wire", "prefix"),
    [("anthropic", CLAUDE), ("bedrock", CLAUDE), ("gemini", GEMINI), ("openai-responses", OPENAI)],
)
def test_the_loopback_verifies_its_own_signatures(wire: str, prefix: str, is_streaming: bool) -> None:
    body = b"".join(frames(wire, Reply(think("Hm."), "So."), is_streaming)).decode("latin-1")
    signatures = re.findall(rf'"({prefix}[A-Za-z0-9+/]{{90}})"', body)
    assert signatures
    assert all(is_signature(signature, prefix) for signature in signatures)


# Over HTTP, and without a server.


def posted(url: str, body: Json) -> tuple[int, Json]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, {}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@every_wire
def test_a_rejection_uses_no_step_and_has_the_format_of_the_provider(wire: str) -> None:
    _, bad, words = BAD[wire][0]
    with Loopback(["Sunny."], strict=True) as server:
        status, error = posted(server.url + PATHS[wire], bad)
        assert status == 400
        assert words.split("*")[0] in json.dumps(error, ensure_ascii=False)
        assert posted(server.url + PATHS[wire], GOOD[wire][0])[0] == 200
        assert posted(server.url + PATHS[wire], GOOD[wire][0])[0] == 400, "the one step is used up"
        assert len(server.requests) == 3


@every_wire
def test_only_a_strict_server_rejects(wire: str) -> None:
    with Loopback(["Sunny."]) as server:
        assert posted(server.url + PATHS[wire], BAD[wire][0][1])[0] == 200


def test_rejections_have_the_error_body_of_the_provider() -> None:
    with Loopback([], strict=True) as server:
        _, chat_error = posted(server.url + PATHS["openai-chat"], chat(U, result("a")))
        _, secret = posted(server.url + PATHS["openai-responses"], responses(U, reasoning(secret="x"), A))
        _, order = posted(server.url + PATHS["mistral"], chat(U, A))
        _, google = posted(server.url + PATHS["gemini"], gemini())
        status, fields = posted(server.url + PATHS["mistral"], chat(U, {**A, "refusal": "No."}, U))
    assert (
        chat_error["error"].items()
        >= {"type": "invalid_request_error", "param": "messages.[1].role", "code": None}.items()
    )
    assert secret["error"]["code"] == "invalid_encrypted_content"
    assert (order["type"], order["code"]) == ("invalid_request_message_order", "3230")
    assert google["error"]["status"] == "INVALID_ARGUMENT"
    assert (status, fields["message"]["detail"][0]["loc"]) == (422, ["body", "messages", 1, "assistant", "refusal"])


def test_a_strict_script_rejects_without_a_server() -> None:
    foreign = {"type": "thinking", "thinking": "Hm.", "signature": "WaUjzkyp"}
    script = Scripted(["Sunny."], strict=True)
    model = model_on("anthropic", via=script, retries=ONCE)
    with pytest.raises(ProviderError, match="Invalid `signature` in `thinking` block"):
        model.stream_text_and_classify("Go.", extra={"messages": [U, assistant(foreign, WORDS), U]})
    assert model.stream_text_and_classify("Go.").text == "Sunny."


# Our own requests.


@tool
def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is sunny" if city else ""


@tool
def broken() -> str:
    """Never works."""
    raise ValueError("no luck")


def steps() -> list[Reply]:
    return [
        Reply(think("Two cities."), say("Let me look."), call("look", {"city": "Rome"}), call("look", {"city": ""})),
        Reply(think("Again."), call("broken"), call("nothing", '{"a": 1}'), call("look", {"town": 1})),
        Reply(call("look", {"city": "Oslo"})),
        Reply(think("Good."), "All done."),
    ]


@every_wire
def test_the_requests_of_a_run_are_accepted(wire: str) -> None:
    script = Scripted([*steps(), *steps()], strict=True)
    agent = Agent(model_on(wire, via=script, retries=ONCE), [look, broken])
    first = agent.run("Go.")
    again = agent.run("And again?", first.messages)
    assert (first.output, again.output) == ("All done.", "All done.")
    assert len(script.requests) == 8


@every_wire
def test_a_conversation_can_continue_with_any_other_provider(wire: str) -> None:
    begun = Agent(model_on(wire, via=Scripted(steps(), strict=True), retries=ONCE), [look, broken]).run("Go.").messages
    for other in WIRES:
        agent = Agent(model_on(other, via=Scripted(steps(), strict=True), retries=ONCE), [look, broken])
        assert agent.run("And again?", begun).output == "All done."


@every_wire
def test_our_requests_for_histories_of_others_are_accepted(wire: str) -> None:
    model = model_on(wire, via=Scripted(["Sunny."], strict=True), retries=ONCE)
    assert model.stream_text_and_classify(list(HISTORY), tools=[WEATHER]).text == "Sunny."
