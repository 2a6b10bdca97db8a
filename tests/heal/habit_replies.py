"""Habits of servers on every protocol that is healed, streamed and not, for a call of the tool `look`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.testing import Loopback, Raw, ReceivedRequest, Reply, call, think
from tests.habits import HABITS, Chunks, _call, _delta, _pieces, _start

ARGUMENTS = {"command": "echo penstock-42"}
OTHER = {"command": "echo penstock-43"}
WRITTEN = json.dumps(ARGUMENTS)
HERMES = f'<tool_call>\n{{"name": "look", "arguments": {WRITTEN}}}\n</tool_call>'
QWEN = "<tool_call>\n<function=look>\n<parameter=command>\necho penstock-42\n</parameter>\n</function>\n</tool_call>"

DAMAGES: Mapping[str, str] = {
    "trailing_comma": f"{WRITTEN[:-1]},}}",
    "empty_first": f"{{}}{WRITTEN}",
    "double_encoding": json.dumps(WRITTEN),
    "python_notation": repr(ARGUMENTS),
    "code_fence": f"```json\n{WRITTEN}\n```",
    "markup_after": f"{WRITTEN}\n</tool_call>",
}
"""The arguments as a server damages them."""


def damaged(arguments: str) -> Chunks:
    yield _start()
    yield from _pieces(0, "call_0", "look", arguments)
    yield _delta(finish="tool_calls")


def empty_first() -> Chunks:
    yield _start()
    yield _call(0, "call_0", "look", "{}")
    yield _delta(tool_calls=[{"index": 0, "function": {"arguments": WRITTEN}}])
    yield _delta(finish="tool_calls")


def reasoning_call() -> Chunks:
    yield _delta(role="assistant", reasoning_content="I have to look. ")
    for place in range(0, len(HERMES), 9):
        yield _delta(reasoning_content=HERMES[place : place + 9])
    yield _delta(finish="stop")


def chunks_of(habit: str) -> list[dict[str, Any] | bytes]:
    """The chunks of a Chat Completions stream with a habit."""
    if habit in HABITS:
        return [*HABITS[habit]([("look", ARGUMENTS), ("look", OTHER)])]
    if habit == "empty_first":
        return [*empty_first()]
    return [*reasoning_call()] if habit == "reasoning_call" else [*damaged(DAMAGES[habit])]


CHAT = (*HABITS, *(name for name in DAMAGES if name not in HABITS), "reasoning_call")

IN_TEXT = {
    "right": Reply("Let me look. ", call("look", WRITTEN)),
    "hermes": Reply(f"Let me look. {HERMES}"),
    "qwen_xml": Reply(f"Let me look. {QWEN}"),
    "bare_json": Reply(f'{{"name": "look", "arguments": {WRITTEN}}}'),
    "reasoning_call": Reply(think(f"I have to look. {HERMES}")),
}
"""The habits of protocols whose arguments are objects."""
WITH_TEXT_ARGUMENTS = {**IN_TEXT, **{name: Reply("Let me look. ", call("look", raw)) for name, raw in DAMAGES.items()}}
REPLIES: Mapping[str, Mapping[str, Reply]] = {
    "openai-responses": WITH_TEXT_ARGUMENTS,
    "anthropic": WITH_TEXT_ARGUMENTS,
    "gemini": IN_TEXT,
    "ollama": IN_TEXT,
}
NEEDS: Mapping[str, dict[str, Any]] = {
    "python_notation": {"repair": "guess"},
    "reasoning_call": {"reasoning_calls": True},
}
"""The settings that a habit needs, where the default heals less."""


def expected(habit: str) -> list[dict[str, Any]]:
    """The arguments of the calls that a client must get."""
    return [ARGUMENTS, OTHER] if habit == "one_index" else [ARGUMENTS]


def whole(chunks: list[dict[str, Any] | bytes]) -> bytes:
    """The chunks as a body that is not streamed, with the same damage."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    reason = None
    for chunk in chunks:
        if isinstance(chunk, bytes):
            continue
        delta, reason = chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"] or reason
        for name in ("content", "reasoning_content"):
            if delta.get(name):
                message[name] = message.get(name, "") + delta[name]
        for entry in delta.get("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            if "name" in entry["function"]:
                calls.append({**entry, "function": dict(entry["function"])})
            else:
                calls[-1]["function"]["arguments"] += entry["function"]["arguments"]
    choice = {"index": 0, "message": message, "finish_reason": reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "local-model", "choices": [choice]}
    return json.dumps(body).encode()


def answer(request: ReceivedRequest) -> Any:
    """The answer to a request, in the habit that its path names: `/HABIT/…`."""
    habit = request.path.strip("/").partition("/")[0]
    if request.results:
        return "Done."
    if request.wire != "openai-chat":
        return REPLIES[request.wire][habit]
    chunks = chunks_of(habit)
    if not request.body.get("stream"):
        return Raw(whole(chunks), "application/json")
    sent = [one if isinstance(one, bytes) else b"data: %b\n\n" % json.dumps(one).encode() for one in chunks]
    return Raw(b"".join(sent) + b"data: [DONE]\n\n")


def habit_loopback() -> Loopback:
    """The server."""
    return Loopback(answer)
