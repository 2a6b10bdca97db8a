"""The prompt-cache report: which message or tool first differs from the previous request of a conversation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Usage
from penstock.declarations import ToolDeclaration
from penstock.gateway import GatewaySettings, app
from penstock.gateway.watch import prompt_cache
from penstock.gateway.watch.prompt_cache import FIRST, CacheReport, PromptCache, read_prompt
from penstock.inspector import Inspections
from penstock.inspector.entries import CacheEntry
from penstock.messages import Message, assistant, system, user
from penstock.testing import Reply, Scripted
from tests.asgi_client import serving
from tests.gateways import TOOLS, upstream

A, B = (ToolDeclaration(name, "", {"type": "object"}) for name in "ab")
HISTORY = (system("Be brief."), user("Hi."), assistant("Hello."), user("Go on."))


def compared(
    *prompts: tuple[Message, ...], tools: Any = ((A,), (A,)), client: Any = None, usage: Usage | None = None
) -> CacheReport:
    cache, report = PromptCache(), CacheReport("")
    for number, messages in enumerate(prompts):
        prompt = read_prompt("openai-chat", tools[number], messages, messages if client is None else client[number])
        report = cache.compare(prompt, ("key", "local"), usage)
    return report


def test_a_conversation_that_goes_on_is_continued() -> None:
    assert compared(HISTORY).text == FIRST
    report = compared(HISTORY, (*HISTORY, assistant("Well."), user("And?")))
    assert (report.text, report.is_changed) == (
        "it begins with the previous prompt: 4 messages as before, 2 new",
        False,
    )
    assert compared(HISTORY, HISTORY).text.endswith("4 messages as before, 0 new")


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ((system("Be kind."), *HISTORY[1:]), "your client changed message 1 (system)"),
        ((*HISTORY[:3], user("Stop.")), "your client changed message 4 (user)"),
        ((*HISTORY[:2], assistant("Hello!"), user("Go on."), user("x")), "your client changed message 3 (assistant)"),
        (HISTORY[:2], "your client left out message 3 and all after it"),
        ((*HISTORY[:2], HISTORY[3]), "your client changed message 3 (user)"),
    ],
)
def test_the_first_changed_message_is_named(messages: tuple[Message, ...], text: str) -> None:
    report = compared(HISTORY, messages)
    assert (report.text, report.is_changed) == (text, True)


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ((A, B), "your client added the tool 'b'"),
        ((), FIRST),  # a request without tools is another one: agents ask for titles in this way
        ((B,), "your client added the tool 'b'"),
        ((ToolDeclaration("a", "New.", {"type": "object"}),), "your client changed the tool 'a'"),
    ],
)
def test_the_first_changed_tool_is_named(tools: tuple[ToolDeclaration, ...], text: str) -> None:
    assert compared(HISTORY, HISTORY, tools=((A,), tools)).text == text
    assert compared(HISTORY, HISTORY, tools=((A, B), (B, A))).text == "your client changed the order of the tools"
    assert compared(HISTORY, HISTORY, tools=((A, B), (A,))).text == "your client left out the tool 'b'"


def test_a_change_of_the_gateway_is_not_blamed_on_the_client() -> None:
    changed = (*HISTORY[:2], assistant("Hello, with reasoning."), HISTORY[3])
    assert compared(HISTORY, changed, client=(HISTORY, HISTORY)).text == "the gateway changed message 3 (assistant)"


def test_tokens_are_those_that_the_server_reported() -> None:
    def tokens(usage: Usage | None) -> tuple[int | None, int | None]:
        report = compared(HISTORY, usage=usage)
        return report.cached, report.total

    assert tokens(None) == tokens(Usage()) == (None, None)
    assert tokens(Usage(10)) == tokens(Usage(10, raw={"prompt_tokens": 10})) == (None, 10)
    assert tokens(Usage(10, cached_tokens=4)) == (4, 10)
    assert tokens(Usage(10, raw={"prompt_tokens_details": {"cached_tokens": 0}})) == (0, 10)
    assert tokens(Usage(10, raw={"cachedContentTokenCount": 0})) == (0, 10)


def test_conversations_with_other_first_messages_are_kept_apart() -> None:
    cache, report = PromptCache(), CacheReport("")
    other = (HISTORY[0], user("Another."))
    for messages in (HISTORY, other, HISTORY, other):
        report = cache.compare(read_prompt("openai-chat", (A,), messages, messages), ("key",), None)
    assert not report.is_changed
    assert report.text != FIRST
    assert cache.compare(read_prompt("openai-chat", (A,), HISTORY, HISTORY), ("another key",), None).text == FIRST


@pytest.mark.parametrize(("cap", "count"), [("MAX_CONVERSATIONS", 3), ("MAX_HASHES", 9)])
def test_the_oldest_conversations_are_forgotten(cap: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_cache, cap, count)
    cache = PromptCache()
    for number in range(10):
        messages = (user(str(number)),)
        cache.compare(read_prompt("openai-chat", (A,), messages, messages), (), None)
    assert len(cache._kept) == 3
    assert cache._size == 9
    newest, oldest = (user("9"),), (user("0"),)
    assert cache.compare(read_prompt("openai-chat", (A,), newest, newest), (), None).text != FIRST
    assert cache.compare(read_prompt("openai-chat", (A,), oldest, oldest), (), None).text == FIRST


ROLES = {"assistant": "model"}
ANTHROPIC = {"type": "object", "properties": {}}
REQUESTS: dict[str, tuple[str, Any]] = {
    "chat": ("/v1/chat/completions", lambda texts: {
        "model": "m", "tools": TOOLS, "messages": [{"role": role, "content": text} for role, text in texts]}),
    "responses": ("/v1/responses", lambda texts: {
        "model": "m", "store": False, "input": [{"role": role, "content": text} for role, text in texts]}),
    "messages": ("/v1/messages", lambda texts: {
        "model": "m", "max_tokens": 9, "tools": [{"name": "f", "input_schema": ANTHROPIC}],
        "messages": [{"role": role, "content": [
            {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} if number == len(texts) - 1
            else {"type": "text", "text": text}]} for number, (role, text) in enumerate(texts)]}),
    "gemini": ("/v1beta/models/m:generateContent", lambda texts: {
        "contents": [{"role": ROLES.get(role, role), "parts": [{"text": text}]} for role, text in texts]}),
    "ollama": ("/api/chat", lambda texts: {
        "model": "m", "stream": False, "messages": [{"role": role, "content": text} for role, text in texts]}),
}  # fmt: skip


@pytest.mark.parametrize("protocol", REQUESTS)
def test_the_inspector_shows_the_report_of_each_request(protocol: str) -> None:
    """Also for clients that move their marks for the cache with each request."""
    path, body = REQUESTS[protocol]
    inspections = Inspections()
    first = [("user", "Hi."), ("assistant", "Hello."), ("user", "Go on.")]
    replies = [Reply("Ok.", usage=Usage(100 + number, 2, cached_tokens=number)) for number in range(3)]
    behind = upstream("", via=Scripted(replies))

    async def main() -> None:
        settings = GatewaySettings(upstreams={"local": behind})
        async with serving(app(settings=settings, inspections=inspections)) as browser:
            for texts in (first, [*first, ("assistant", "Ok."), ("user", "More.")], [*first[:2], ("user", "Stop.")]):
                assert (await browser.post(path, body(texts))).status == 200

    asyncio.run(main())
    entries = [
        entry
        for summary in inspections.summaries()[1]
        for entry in inspections._exchanges[summary.id].entries()
        if isinstance(entry, CacheEntry)
    ]
    assert [(entry.cached, entry.total) for entry in entries[1:]] == [(1, 101), (2, 102)]
    continued = "it begins with the previous prompt: 3 messages as before, 2 new"
    assert [entry.text for entry in entries] == [FIRST, continued, "your client changed message 3 (user)"]
    assert [entry.is_changed for entry in entries] == [False, False, True]
