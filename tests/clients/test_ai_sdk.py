"""The chat of the AI SDK, versions 6 and 7, in Node: what the client has is what the server has stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import RunProgram

both = pytest.mark.parametrize("version", ["6", "7"])

THREE_STEPS: list[dict[str, Any]] = [
    {"type": "step-start"},
    {"type": "reasoning", "id": "1", "text": "The user wants the weather.", "state": "done"},
    {"type": "text", "text": "Let me look.", "state": "done"},
    {"type": "tool-look", "state": "output-available", "input": {"city": "Rome"}, "toolCallId": "id 1",
     "output": {"city": "Rome", "sky": "clear"}, "providerExecuted": True},
    {"type": "step-start"},
    {"type": "text", "text": "And the other one.", "state": "done"},
    {"type": "tool-look", "state": "output-available", "input": {"city": "Oslo"}, "toolCallId": "id 2",
     "output": {"city": "Oslo", "sky": "clear"}, "providerExecuted": True},
    {"type": "tool-broken", "state": "output-error", "input": {}, "toolCallId": "id 3", "providerExecuted": True,
     "errorText": "ValueError: no such thing"},
    {"type": "step-start"},
    {"type": "text", "text": "Rome and Oslo are clear.", "state": "done"},
]  # fmt: skip


def texts(message: Any) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


@both
def test_a_message_grows_and_is_the_one_that_is_stored(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "send")
    assert (chat["status"], chat["first"][1]["parts"]) == ("ready", THREE_STEPS)
    metadata = chat["first"][1]["metadata"]
    assert (metadata["runId"], metadata["reason"]) == (chat["first"][1]["id"], "answered")
    assert metadata["usage"]["totalTokens"] == metadata["usage"]["inputTokens"] + metadata["usage"]["outputTokens"] > 0
    grown = "\n".join(chat["seen"])
    assert '"text":"Let me"' in grown
    assert '"state":"input-streaming","input":{' in grown
    assert '"output":{"percent":50}' in grown
    assert "s3cret" not in str(chat)
    assert texts(chat["messages"][3]) == ["You said: and now?"]
    assert chat["stored"] == chat["messages"]


@both
def test_a_connection_that_is_cut_at_any_event_changes_nothing(run: RunProgram, version: str) -> None:
    cuts = run("ai_sdk.mjs", version, "cuts")
    assert cuts["expected"]["parts"] == THREE_STEPS
    assert cuts["count"] > 40
    assert cuts["different"] == []


@both
def test_a_call_is_approved(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "approve", "yes")
    assert chat["waiting"]["state"] == "approval-requested"
    [_, _, pay, _, text] = chat["messages"][1]["parts"]
    assert (pay["state"], pay["output"], pay["approval"]["approved"]) == ("output-available", "paid 7", True)
    assert (chat["status"], text["text"]) == ("ready", "It is done.")
    assert chat["stored"] == chat["messages"]


@both
def test_a_call_is_declined(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "approve", "no")
    [_, _, pay, _, text] = chat["messages"][1]["parts"]
    assert (pay["state"], pay["approval"]["reason"], text["text"]) == ("output-denied", "because", "It is done.")
    assert chat["stored"] == chat["messages"]


@both
def test_a_forged_approval_is_refused(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "forge")
    assert chat["status"] == "error"
    assert "shown_something_else" in chat["error"]


@both
def test_a_tool_runs_in_the_client(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "locate")
    assert chat["called"] == [["locate", {"accuracy": "high"}]]
    assert texts(chat["messages"][1]) == ['You are at {"latitude":41.9}.']
    assert chat["stored"] == chat["messages"]


@both
def test_a_tool_that_fails_in_the_client_is_reported_to_the_model(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "locate", "fails")
    assert texts(chat["messages"][1]) == ["You are at no signal."]
    assert chat["messages"][1]["parts"][1]["state"] == "output-error"


@both
def test_an_answer_is_given_again_and_a_question_changed(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "regenerate")
    assert chat["last"][:3] == chat["before"][:3]
    assert chat["last"][3] != chat["before"][3]
    assert [texts(message) for message in chat["first"]["messages"]] == [["one"], ["You said: one"]]
    assert chat["changed"]["messages"][1]["parts"] == [
        {**part, "toolCallId": found["toolCallId"]} if "toolCallId" in part else part
        for part, found in zip(THREE_STEPS, chat["changed"]["messages"][1]["parts"], strict=True)
    ]
    assert chat["stored"] == chat["changed"]["messages"]


@both
def test_a_page_that_is_loaded_again_gets_the_answer_under_way(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "reload")
    assert texts(chat["messages"][1]) == ["One moment. ", "The gate is open."]
    assert (chat["loaded"], chat["idle"]) == (chat["messages"], 204)


@both
def test_a_run_is_stopped_by_its_id_and_the_chat_goes_on(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "stop")
    stopped = chat["stopped"]["messages"][1]
    assert (chat["stopped"]["status"], stopped["metadata"]["reason"], chat["isRun"]) == ("ready", "cancelled", True)
    assert stopped["parts"][-1]["state"] == "output-error"
    assert texts(chat["messages"][3]) == ["You said: still there?"]


def test_version_7_removes_what_the_model_withdrew(run: RunProgram) -> None:
    chat = run("ai_sdk.mjs", "7", "retry")
    assert texts(chat["messages"][1]) == ["This counts."]
    assert chat["stored"] == chat["messages"]


def test_version_6_survives_what_the_model_withdrew(run: RunProgram) -> None:
    chat = run("ai_sdk.mjs", "6", "retry")
    kinds = [part["type"] for part in chat["messages"][1]["parts"]]
    assert chat["status"] == "ready"
    assert kinds == ["step-start", "text", "tool-look", "data-retry", "step-start", "text"]
    assert texts(chat["stored"][1]) == ["This counts."]


@both
def test_the_words_of_a_provider_stay_on_the_server(run: RunProgram, version: str) -> None:
    chat = run("ai_sdk.mjs", version, "fail")
    assert (chat["status"], chat["error"]) == ("error", "the run failed; the reason is in its log")
    assert "secret words" not in str(chat)
    assert texts(chat["stored"][1]) == ["Almost"]
