"""A conversation moves between any two providers between any two turns, and back."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import permutations
from typing import Any

import pytest

from penstock import Message, Opaque, UsageError, check, repair
from penstock.messages import image, user
from penstock.providers import PROVIDERS, find_provider
from penstock.testing import Reply, Scripted, call, say, think
from tests.agent.ending.test_run_endings import TARGETS, Bench, made

REPLIES = [
    Reply(think("Hm."), say("Let me look."), call("look", {"city": "Rome"}), call("look", {"city": "Oslo"})),
    Reply(think("Good."), say("Both are sunny.")),
]
SIGNED = ("anthropic", "bedrock", "gemini", "openai-responses")
"""The wires on which the loopback server signs reasoning."""


INLINE = ("bedrock", "ollama")
"""The wires on which an image must be sent as data, not by its URL."""


def turn(wire: str, prompt: Any, messages: list[Message]) -> tuple[list[Message], Scripted]:
    """One turn of the conversation, with two calls, on a provider that is as strict as the real one."""
    line = Scripted(list(REPLIES), strict=True)
    result = made(wire, line, Bench()).run(prompt, messages=messages)
    assert result.reason == "answered", result.why
    assert result.output == "Both are sunny."
    return list(result.messages), line


def secrets(messages: list[Message], wire: str) -> list[str]:
    """The strings of a vendor's states that it alone can read."""
    found: list[str] = []
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, Opaque) and part.wire == wire:
            found += [text for text in _strings(part.data) if len(text) >= 16]
    return found


def _strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for inner in value.values() for text in _strings(inner)]
        case list():
            return [text for inner in value for text in _strings(inner)]
        case _:
            return []


@pytest.mark.parametrize(("one", "other"), list(permutations(TARGETS, 2)))
def test_a_conversation_moves_to_another_provider_and_back(one: str, other: Any) -> None:
    history, _ = turn(one, "How are Rome and Oslo?", [])
    mine = secrets(history, one)
    assert bool(mine) == (one in SIGNED)
    history, there = turn(other, "And tomorrow?", history)
    abroad = json.dumps([dict(asked.body) for asked in there.requests])
    kin = {one, other} == {"anthropic", "bedrock"}  # the same models, but each state belongs to its wire
    assert kin or not any(secret in abroad for secret in mine)
    history, back = turn(one, "And then?", history)
    home = json.dumps([dict(asked.body) for asked in back.requests], ensure_ascii=False)
    assert all(secret in home for secret in mine), "what is the owner's goes back to it"
    assert check(history) == []
    for provider in PROVIDERS:
        assert check(history, find_provider(provider)[0]) == []


def test_a_conversation_moves_through_all_providers() -> None:
    history: list[Message] = []
    for wire in (*TARGETS, *reversed(TARGETS)):
        history, _ = turn(wire, f"How is it on {wire}?", history)
    assert sum(message.role == "user" for message in history) == 2 * len(TARGETS)
    assert check(history) == []


@pytest.mark.parametrize("wire", TARGETS)
def test_user_media_are_converted_or_raise(wire: Any) -> None:
    shown = [user("What is this?", image(b"\x89PNG", "image/png"))]
    history, _ = turn(wire, shown, [])
    history, _ = turn("anthropic", "And now?", history)
    linked = [user("What is this?", image("https://example.com/cat.png"))]
    provider = find_provider(TARGETS[wire][0].partition(":")[0])[0]
    problems = check(linked, provider)
    assert [problem.kind for problem in problems] == (["refused_media"] if wire in INLINE else [])
    with pytest.raises(UsageError, match="pass its bytes") if problems else nullcontext():
        turn(wire, linked, [])
    turn(wire, None, repair(linked, provider))
