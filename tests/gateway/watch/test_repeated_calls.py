"""Agents that run in circles are reminded, then ended; what brings something new is not a repetition."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from penstock import Message, Text, ToolCall, UsageError
from penstock.gateway import GatewaySettings, Watch, app
from penstock.gateway.config.file import settings_from
from penstock.gateway.routing import find_candidates
from penstock.gateway.watch.repeated_calls import RepeatedCalls
from penstock.messages import assistant, result, system, tool_results, user
from penstock.testing import ReceivedRequest, Reply, Scripted, call, think
from tests.asgi_client import serving
from tests.command import run_for_text
from tests.gateway.test_gateway_pairs import CLIENTS, MODELS
from tests.gateways import events, upstream

GO = user("Go.")
NOTE = user("<system-reminder>\nYou have 1234 tokens.\n</system-reminder>")


def step(*calls: str, output: str = "same", note: Message | None = None) -> list[Message]:
    """A message with calls, each of a file, and their results."""
    made = [ToolCall(f"c{number}", "read", {"path": path}, block=number) for number, path in enumerate(calls)]
    return [assistant(*made), *(tool_results(result(one, output)) for one in made), *([note] if note else [])]


def times(*messages: Message, limit: int = 3) -> int:
    return RepeatedCalls(messages, limit).times


def test_a_call_is_repeated_as_often_as_it_was_made_without_anything_new() -> None:
    assert [times(GO, *step("a") * count) for count in range(1, 5)] == [1, 2, 3, 4]
    assert times(GO, *(step("a") + step("b")) * 3) == 3, "two calls in turn"
    assert times(GO, *step("a", "b") * 3) == 3, "two calls in one response"
    assert times(GO, *step("a", note=NOTE) * 3) == 3, "a reminder of the client is not the user's"
    assert times(system("Be brief."), GO, *step("a", note=system("Hurry.")) * 3) == 3


def test_something_new_begins_the_count_again() -> None:
    assert times(GO, *step("a") * 3, *step("b")) == 1
    assert times(GO, *step("a") * 3, *step("b"), *step("a")) == 2
    assert times(GO, *step("a") * 3, *step("a", output="changed")) == 1, "the result is another one"
    assert times(GO, *step("a") * 3, user("Again!"), *step("a")) == 1, "the user asked for it"
    assert times(GO, *step("a") * 3, GO) == 0, "the model has not answered yet"
    edits = [one for number in range(9) for one in step("status") + step(str(number))]
    assert times(GO, *edits, *step("status")) == 2, "a check after each change"


def test_arguments_are_equal_in_any_order_and_errors_are_results() -> None:
    def made(arguments: Any, is_error: bool = False) -> list[Message]:
        one = ToolCall("c", "f", arguments)
        return [assistant(one), tool_results(result(one, "x", is_error=is_error))]

    assert times(GO, *made({"a": 1, "b": 2}), *made({"b": 2, "a": 1})) == 2
    assert times(GO, *made({"a": 1}), *made({"a": 2})) == 1
    assert times(GO, *made({"a": 1}), *made({"a": 1}, is_error=True)) == 1


def test_results_without_their_call_and_calls_without_results_are_not_counted() -> None:
    lost = tool_results(result(ToolCall("other", "read", {}), "same"))
    assert times(GO, lost, lost, lost, lost) == 0
    assert times(GO, *[assistant(ToolCall("c", "read", {}))] * 5) == 0
    assert times() == 0


def test_reminders_stand_after_the_same_results_in_every_later_request() -> None:
    history: list[Message] = [GO]
    sent: list[tuple[Message, ...]] = []
    for number in range(12):
        history += step("a") if number < 5 else step(str(number))
        sent.append(RepeatedCalls(history, 3).messages)
    for earlier, later in pairwise(sent):
        assert later[: len(earlier)] == earlier
    assert len(sent[-1]) == len(history) + 3, "after the third, fourth and fifth call"


def test_without_a_limit_nothing_is_added() -> None:
    history = (GO, *step("a") * 50)
    repeats = RepeatedCalls(history, 0)
    assert (repeats.messages, repeats.note, repeats.end) == (history, "", "")


def gateway(server: Scripted, **settings: Any) -> Any:
    behind = upstream("", via=server, key="", **settings)
    return app(settings=GatewaySettings(upstreams={behind.name: behind}, watch=Watch(repeated_calls=2)))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_an_agent_in_a_circle_is_reminded_and_then_ended(client: Any, provider: str, stream: bool) -> None:
    def answer(request: ReceivedRequest) -> Any:
        assert len(server.requests) <= 4
        return Reply(think("Again."), call("shell", {"command": "echo 4"}))

    server = Scripted(answer, strict=True)

    async def converse() -> tuple[str, list[Any]]:
        async with serving(gateway(server, provider=provider)) as browser:
            text = str(await client(browser, MODELS[provider], stream))
            return text, (await browser.get("/healed")).json["requests"]

    text, reports = asyncio.run(converse())
    assert text.startswith("Stopped by the gateway: the tool 'shell' was called 4 times with the same arguments")
    assert [json.dumps(request.body).count("<system-reminder>") for request in server.requests] == [0, 0, 1, 2]
    notes = [report["notes"] for report in reversed(reports)]
    assert ["reminded" in str(note) for note in notes] == [False, False, True, True, False]
    assert notes[-1] == [text]
    assert reports[0]["status"] == 200


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_can_continue_the_end_by_its_id(stream: bool) -> None:
    circle: list[Any] = [{"role": "user", "content": "Go."}]
    for number in range(4):
        made = {"type": "function_call", "call_id": f"c{number}", "name": "shell", "arguments": "{}"}
        circle += [made, {"type": "function_call_output", "call_id": f"c{number}", "output": "4"}]
    server = Scripted(["I stop."])

    async def converse() -> int:
        async with serving(gateway(server)) as browser:
            ended = await browser.post("/v1/responses", {"model": "m", "input": circle, "stream": stream})
            id = (events(ended.body)[-1]["response"] if stream else ended.json)["id"]
            body = {"model": "m", "input": "Stop.", "previous_response_id": id}
            return (await browser.post("/v1/responses", body)).status

    assert asyncio.run(converse()) == 200
    assert "Stopped by the gateway" in json.dumps(server.requests[0].body)


def test_a_reminder_can_end_the_circle() -> None:
    def answer(request: ReceivedRequest) -> Any:
        is_reminded = "You have called shell 2 times" in json.dumps(request.body)
        return "It prints 4." if is_reminded else Reply(call("shell", {"command": "echo 4"}))

    async def converse() -> str:
        async with serving(gateway(Scripted(answer, strict=True))) as browser:
            return str(await CLIENTS[0](browser, "m", True))

    assert asyncio.run(converse()) == "It prints 4."


FILE: dict[str, Any] = {
    "upstreams": {"a": {"url": "http://x"}},
    "watch": {"empty_answers": True},
    "models": {"m": {"to": "a", "watch": {"repeated_calls": 5}}, "n": {"to": "a"}},
}


def test_a_file_has_switches_for_all_models_and_for_one() -> None:
    settings = settings_from(FILE)
    assert settings.watch == Watch(empty_answers=True)
    assert find_candidates(settings, "m")[0].watch == Watch(empty_answers=True, repeated_calls=5)
    assert find_candidates(settings, "n")[0].watch == find_candidates(settings, "x")[0].watch == settings.watch


@pytest.mark.parametrize(
    ("watch", "words"),
    [
        ({"empty_answer": True}, "watch: unknown key 'empty_answer', did you mean 'empty_answers'?"),
        ({"empty_answers": 1}, "watch: empty_answers must be true or false, not 1"),
        ({"repeated_calls": True}, "watch: repeated_calls must be a whole number, not true"),
        ({"repeated_calls": 1}, "watch: repeated_calls must be 0 (off), or 2 or more, not 1"),
        ({"repeated_calls": -3}, "watch: repeated_calls must be 0 (off), or 2 or more, not -3"),
    ],
)
def test_a_wrong_switch_is_an_error_that_says_where(watch: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        settings_from({**FILE, "watch": watch})
    assert words in str(error.value)
    with pytest.raises(UsageError, match=r"models\.m\."):
        settings_from({**FILE, "watch": {}, "models": {"m": {"to": "a", "watch": watch}}})


def test_options_of_the_command_beside_a_file_are_refused() -> None:
    for option in (["--watch-empty-answers"], ["--watch-reasoning-only"], ["--watch-repeated-calls", "3"]):
        outcome = run_for_text("gateway", "--config", "x.toml", *option)
        assert "write a table [watch] in the file" in outcome.stderr
    outcome = run_for_text("gateway", "--upstream", "http://127.0.0.1:1/v1", "--watch-repeated-calls", "1")
    assert "repeated_calls must be 0 (off), or 2 or more" in outcome.stderr


def test_a_mark_that_is_not_closed_is_a_message_of_the_user() -> None:
    half = Message("user", (Text(0, "<system-reminder>\nx"),))
    assert times(GO, *step("a", note=half) * 3, *step("a")) == 1
