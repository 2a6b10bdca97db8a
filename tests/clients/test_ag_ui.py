"""The client of AG-UI 1.0 in Node. It refuses a stream whose events are not in the right order."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import ROOT, RunProgram, node_output


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


THREE_STEPS: list[dict[str, Any]] = [
    {"id": "id 0", "role": "user", "content": "three steps"},
    {"id": "id 1", "role": "reasoning", "content": "The user wants the weather."},
    {"id": "id 2", "role": "assistant", "content": "Let me look.",
     "toolCalls": [call("id 3", "look", '{"city": "Rome"}')]},
    {"id": "id 4", "role": "tool", "toolCallId": "id 3", "content": '{"city":"Rome","sky":"clear"}'},
    {"id": "id 5", "role": "assistant", "content": "And the other one.",
     "toolCalls": [call("id 6", "look", '{"city": "Oslo"}'), call("id 7", "broken", "{}")]},
    {"id": "id 8", "role": "tool", "toolCallId": "id 6", "content": '{"city":"Oslo","sky":"clear"}'},
    {"id": "id 9", "role": "tool", "toolCallId": "id 7", "content": "ValueError: no such thing",
     "metadata": {"isError": True}},
    {"id": "id 10", "role": "assistant", "content": "Rome and Oslo are clear."},
]  # fmt: skip


def test_messages_grow_and_another_client_can_load_them(run: RunProgram) -> None:
    agent = run("ag_ui.mjs", "send")
    assert agent["first"] == THREE_STEPS
    assert agent["ending"]["result"] == {"reason": "answered", "output": "Rome and Oslo are clear."}
    assert agent["ending"]["usage"][0]["totalTokens"] > 0
    assert {"STEP_STARTED", "STEP_FINISHED", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"} <= {*agent["kinds"]}
    assert [custom["value"]["data"] for custom in agent["custom"]] == [{"percent": 50}] * 2
    assert agent["messages"][-1]["content"] == "You said: and now?"
    assert agent["loaded"] == agent["messages"]
    assert agent["complaints"] == []
    assert "s3cret" not in str(agent)


def test_a_connection_that_is_cut_at_any_event_changes_nothing(run: RunProgram) -> None:
    cuts = run("ag_ui.mjs", "cuts")
    assert cuts["expected"] == THREE_STEPS
    assert cuts["count"] > 40
    assert cuts["different"] == []


@pytest.mark.parametrize(("answer", "result"), [("yes", "paid 7"), ("no", "because"), ("cancel", "cancelled")])
def test_an_interrupt_asks_for_approval(run: RunProgram, answer: str, result: str) -> None:
    agent = run("ag_ui.mjs", "approve", answer)
    [interrupt] = agent["waiting"]["interrupts"]
    assert (agent["waiting"]["outcome"], interrupt["reason"]) == ("interrupt", "tool_call")
    assert interrupt["metadata"]["arguments"] == {"amount": 7}
    assert [message["role"] for message in agent["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert result in agent["messages"][2]["content"]
    assert (agent["ending"]["outcome"], agent["pending"]) == ("success", [])


def test_a_forged_approval_is_refused(run: RunProgram) -> None:
    assert "shown_something_else" in run("ag_ui.mjs", "forge")["error"]


def test_a_tool_of_the_client_is_called(run: RunProgram) -> None:
    agent = run("ag_ui.mjs", "tools")
    assert (agent["outcome"], agent["pending"]) == ("success", 1)
    assert agent["called"] == [["change_color", {"color": "red"}]]
    assert [message["role"] for message in agent["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert agent["messages"][-1]["content"] == "It is now red."


def test_a_client_that_is_loaded_again_gets_the_answer_under_way(run: RunProgram) -> None:
    agent = run("ag_ui.mjs", "reload")
    assert agent["ending"]["outcome"] == "success"
    assert [message["role"] for message in agent["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert agent["messages"][-1]["content"] == "The gate is open."


def test_a_run_is_stopped_by_its_id_and_the_thread_goes_on(run: RunProgram) -> None:
    agent = run("ag_ui.mjs", "stop")
    assert agent["ending"]["outcome"] == "cancelled"
    assert agent["messages"][-1]["content"] == "You said: still there?"


def test_what_the_model_withdrew_is_removed(run: RunProgram) -> None:
    agent = run("ag_ui.mjs", "retry")
    assert [message.get("content") for message in agent["messages"]][1:] == ["This counts."]
    assert "MESSAGES_SNAPSHOT" in agent["kinds"]
    assert agent["ending"]["pending"] == []


def test_the_words_of_a_provider_stay_on_the_server(run: RunProgram) -> None:
    agent = run("ag_ui.mjs", "fail")
    expected = {"outcome": "error", "message": "the run failed; the reason is in its log", "code": "error"}
    assert agent["ending"] == expected
    assert "secret words" not in str(agent)


def test_structured_output_is_the_state(run: RunProgram) -> None:
    agent = run("ag_ui.mjs", "output")
    assert agent["state"] == {"output": {"name": "Ada", "age": 36}}
    assert agent["ending"]["result"]["output"] == {"name": "Ada", "age": 36}


@pytest.mark.parametrize(
    ("prompt", "lines"),
    [
        ("pay 7", ["I will pay.", '→ pay {"amount":7}', "← paid 7", "It is done."]),
        ("time_zone please", ["→ time_zone {}", "You are in UTC."]),
        ("fail now", ["failed: the run failed; the reason is in its log"]),
    ],
)
def test_the_example_shows_what_happens(clients: Path, server: str, prompt: str, lines: list[str]) -> None:
    shutil.copy(ROOT / "examples" / "ag_ui_client" / "client.mjs", clients)
    shown = node_output("client.mjs", server, prompt).splitlines()
    assert [line for line in shown if line in lines] == lines
