"""Requests of one conversation: messages that were encoded before are not encoded again, and the bytes are the same."""

from __future__ import annotations

import asyncio
import itertools
import sys
from random import Random
from typing import Any

import msgspec
import pytest

from penstock import Agent, Limits, Message, Model, Opaque, Reasoning, Step, Text, ToolCall, ToolCallInvalid
from penstock.declarations import ToolDeclaration
from penstock.messages import Part, assistant, image, result, system, tool_results, user
from penstock.model.encoded_history import EncodedHistory
from penstock.providers import PROVIDERS
from penstock.testing import Reply, Scripted, call
from penstock.wires import find_encoder
from penstock.wires.shared.request import EncodedRequest, Request
from tests.budget import sample
from tests.scripted_runs import NAMES, model_on, sync_and_async

SETTINGS = sorted({(row.wire, row.quirks) for row in PROVIDERS.values()}, key=lambda row: (row[0], sorted(row[1])))
TOOLS = (ToolDeclaration("look", "Look.", {"type": "object", "properties": {"n": {"type": "integer"}}}),)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages of each request that an encoder has encoded."""
    counts: list[int] = []

    def counting(wire: str) -> Any:
        def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
            counts.append(len(request.messages))
            return find_encoder(wire)(request, quirks)

        return encode

    monkeypatch.setattr("penstock.model.encoded_history.find_encoder", counting)
    return counts


def whole(request: Request, wire: str, quirks: frozenset[str]) -> bytes:
    """The body as the encoder of the wire writes it."""
    return msgspec.json.encode(find_encoder(wire)(request, quirks).body)


def exchange(chance: Random, number: int, wire: str) -> list[Message]:
    """A response with calls and their results, with reasoning, vendor state, images, and calls that are invalid."""
    parts: list[Part] = []
    if chance.random() < 0.5:
        parts += [Reasoning(0, "Hm."), Opaque(0, wire, "signature", f"s{number}")]
    if chance.random() < 0.5:
        parts.append(Text(1, "Let me look."))
    if chance.random() < 0.1:
        parts.append(Opaque(9, wire, chance.choice(["container", "block"]), {"id": "c"}))
    calls: list[ToolCall | ToolCallInvalid] = []
    for at in range(chance.choice([1, 1, 2, 3])):
        id = chance.choice([f"call_{number}_{at}", f"call_{number}_{at}", "again"])
        calls.append(ToolCall(id, "look", {"n": at}, block=10 + at))
        if chance.random() < 0.1:
            calls[-1] = ToolCallInvalid(10 + at, id, "look", '{"n": ', "cut")
    values = [chance.choice(["sunny", "", 5, image(b"\x89PNG\r\n\x1a\n")]) for _ in calls]
    results = [result(one, value, is_error=chance.random() < 0.1) for one, value in zip(calls, values, strict=True)]
    if chance.random() < 0.05:
        results.pop()
    return [Message("assistant", (*parts, *calls)), tool_results(*results)]


@pytest.mark.parametrize(
    ("wire", "quirks"), SETTINGS, ids=lambda value: value if isinstance(value, str) else "+".join(sorted(value)) or "-"
)
def test_a_request_has_the_same_bytes_as_if_it_was_encoded_as_a_whole(wire: str, quirks: frozenset[str]) -> None:
    for seed in sample(range(25), few=8):
        chance, history = Random(seed), EncodedHistory()
        messages = [*([system("Be brief.")] if seed % 2 else []), user("Go.")]
        for number in range(8):
            request = Request(
                model="m", messages=tuple(messages), tools=TOOLS if seed % 3 else (), options={"cache": seed % 5 < 2}
            )
            if chance.random() < 0.1:
                request = msgspec.structs.replace(request, options={"temperature": 0.5})
            try:
                expected = whole(request, wire, quirks)
            except ValueError:
                break  # such a history cannot be sent on this wire
            assert b"".join(history.encode(request, wire, quirks).parts) == expected, (seed, number)
            messages += exchange(chance, number, wire)
            if chance.random() < 0.15:
                messages += [assistant("Sunny."), user("And then?")]
            if chance.random() < 0.1:
                messages[-3:] = messages[-3:-1]
            if messages and messages[0].role == "system":
                messages[0] = system("Be brief.")  # as for every request of an agent


@pytest.mark.parametrize("wire", NAMES)
@sync_and_async
def test_a_step_encodes_only_what_is_new_in_it(wire: str, mode: str, encoded: list[int]) -> None:
    def look(n: int) -> str:
        """Look."""
        return "sunny"

    script = Scripted([*(Reply("Hm.", call("look", {"n": at})) for at in range(40)), "Done."])
    agent = Agent(model_on(wire, via=script), [look], instructions="Be brief.", limits=Limits(steps=None, repeats=None))
    output = agent.run("Go.").output if mode == "sync" else asyncio.run(agent.arun("Go.")).output
    assert output == "Done."
    assert encoded == [2] + [2] * 40


@pytest.mark.parametrize("name", ["bedrock:anthropic.claude-sonnet-5", "anthropic:claude-sonnet-5"])
def test_a_step_with_prompt_caching_encodes_only_what_is_new_in_it(name: str, encoded: list[int]) -> None:
    def look(n: int) -> str:
        """Look."""
        return "sunny"

    script = Scripted([*(Reply(call("look", {"n": at})) for at in range(20)), "Done."])
    Agent(Model(name, via=script), [look], cache=True, limits=Limits(steps=None, repeats=None)).run("Go.")
    assert {*encoded} == {1, 2}


@pytest.mark.parametrize("wire", NAMES)
def test_a_late_step_calls_as_many_functions_as_an_early_one(wire: str) -> None:
    """Work for each message of the history would be at least one call more per message, so 24 more after 12 steps."""
    counts: list[int] = []
    calls = itertools.count()

    async def look(n: int) -> str:
        """Look."""
        counts.append(next(calls))
        return "sunny " * 20_000  # the scripted provider reads the end of a request

    script = Scripted([*(Reply(call("look", {"n": at})) for at in range(30)), "Done."])
    model = model_on(wire, via=script)
    agent = Agent(model, [look], instructions="Be brief.", before_step=_warmer, limits=Limits(steps=None, repeats=None))
    sys.setprofile(lambda frame, event, argument: next(calls) and None)
    try:
        asyncio.run(agent.arun("Go."))
    finally:
        sys.setprofile(None)
    steps = [end - begin for begin, end in itertools.pairwise(counts)]
    assert min(steps[22:]) <= min(steps[10:15]) + 10


def _warmer(step: Step) -> Step:
    return step.replace(temperature=1.0)


def test_what_a_hook_changes_is_encoded_again(encoded: list[int]) -> None:
    def look(n: int) -> str:
        """Look."""
        return "sunny"

    script = Scripted([*(Reply(call("look", {"n": at})) for at in range(4)), "Done."])
    agent = Agent(
        Model("openai-compatible:m", via=script), [look],
        before_step=lambda step: step.replace_history([user("So far: sunny.")]) if step.number == 3 else None,
    )  # fmt: skip
    agent.run("Go.")
    assert encoded == [1, 2, 1, 2, 2]
    assert [len(request.body["messages"]) for request in script.requests] == [1, 3, 1, 3, 5]
