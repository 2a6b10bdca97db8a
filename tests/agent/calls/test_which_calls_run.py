"""Which calls of a response run, by how the response ends: the table in docs/agents.md, on three wires."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, Model, tool
from penstock.testing import Raw, Scripted
from tests.scripted_runs import drive, end_of, streaming, sync_and_async

DOCS = Path(__file__).parents[3] / "docs" / "agents.md"
WHOLE, HALF, BARE = '{"euros": 1}', '{"euros": 2', ""

Part = tuple[str, str]
"""A call and its arguments, the reason for the end, the end mark, or an error."""


def call(arguments: str = WHOLE) -> Part:
    return "call", arguments


def end(reason: str) -> Part:
    return "end", reason


MARK: Part = ("mark", "")

ROWS: dict[str, tuple[list[list[Part]], int, str]] = {
    "a call, then `tool_calls` or `stop`": (
        [[call(), end("calls"), MARK], [call(), end("stop"), MARK], [call(), end("stop")]], 1, "answered",
    ),
    "a call after the reason for the end (`stop`, `length`), before the end mark": (
        [[end("stop"), call(), MARK], [end("length"), call(), MARK]], 1, "answered",
    ),
    "a call after the end mark (`[DONE]`)": (
        [[end("stop"), MARK, call()], [end("stop"), MARK, call(), MARK]], 0, "answered",
    ),
    "complete calls, then `length`": ([[call(), call(), end("length"), MARK]], 2, "answered"),
    "a complete call and half a call, then `length`": ([[call(), call(HALF), end("length"), MARK]], 1, "answered"),
    "a call without arguments yet, then `length`": ([[call(BARE), end("length"), MARK]], 0, "answered"),
    "a call, then a reason that is not known (`other`)": ([[call(), end("strange"), MARK]], 1, "answered"),
    "a call, then the end mark without a reason": ([[call(), MARK]], 1, "answered"),
    "a call, then a content filter, a refusal or an error": (
        [[call(), end("filter"), MARK], [end("filter"), call(), MARK], [call(), ("error", "")]], 0, "",
    ),
    "a call, then the end of the connection, without a reason or an end mark": ([[call()], [call(HALF)]], 0, "cut"),
}  # fmt: skip


def sse(*frames: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (str(frame.get("type", "message")).encode(), json.dumps(frame).encode())
        for frame in frames
    )


def chat(parts: list[Part]) -> bytes:
    reasons = {"calls": "tool_calls", "filter": "content_filter"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return b"data: %b\n\n" % json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()

    body = chunk({"role": "assistant", "content": "Hm."})
    for at, (kind, value) in enumerate(parts):
        match kind:
            case "call":
                function = {"name": "pay", "arguments": value}
                body += chunk({"tool_calls": [{"index": at, "id": f"c{at}", "type": "function", "function": function}]})
            case "end":
                body += chunk({}, reasons.get(value, value))
            case "mark":
                body += b"data: [DONE]\n\n"
            case _:
                body += b'data: {"error": {"message": "broken", "type": "server_error"}}\n\n'
    return body


def anthropic(parts: list[Part]) -> bytes:
    reasons = {"calls": "tool_use", "stop": "end_turn", "length": "max_tokens", "filter": "refusal"}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": {}}
    body = sse({"type": "message_start", "message": message})
    for at, (kind, value) in enumerate(parts):
        match kind:
            case "call":
                block = {"type": "tool_use", "id": f"c{at}", "name": "pay", "input": {}}
                body += sse({"type": "content_block_start", "index": at, "content_block": block})
                if value:
                    delta = {"type": "input_json_delta", "partial_json": value}
                    body += sse({"type": "content_block_delta", "index": at, "delta": delta})
                if value == WHOLE:
                    body += sse({"type": "content_block_stop", "index": at})
            case "end":
                delta = {"stop_reason": reasons.get(value, value)}
                body += sse({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}})
            case "mark":
                body += sse({"type": "message_stop"})
            case _:
                body += sse({"type": "error", "error": {"type": "api_error", "message": "broken"}})
    return body


def responses(parts: list[Part]) -> bytes:
    """The reason for the end is in the end mark: a `MARK` after it adds nothing."""
    body, output = sse({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}), list[Any]()
    for at, (kind, value) in enumerate(parts):
        item = {"type": "function_call", "id": f"f{at}", "call_id": f"c{at}", "name": "pay"}
        match kind:
            case "call":
                added = {**item, "arguments": "", "status": "in_progress"}
                body += sse({"type": "response.output_item.added", "output_index": at, "item": added})
                place = {"item_id": f"f{at}", "output_index": at}
                if value:
                    body += sse({"type": "response.function_call_arguments.delta", **place, "delta": value})
                if value == WHOLE:
                    output.append({**item, "arguments": value, "status": "completed"})
                    body += sse({"type": "response.output_item.done", "output_index": at, "item": output[-1]})
            case "end":
                cut = {"length": "max_output_tokens", "filter": "content_filter"}.get(value)
                state = (
                    {"status": "incomplete", "incomplete_details": {"reason": cut}} if cut else {"status": "completed"}
                )
                name = "response.incomplete" if cut else "response.completed"
                body += sse({"type": name, "response": {"id": "r", "output": output, **state}})
            case "error":
                body += sse({"type": "error", "code": "server_error", "message": "broken"})
            case _:
                pass
    return body


WIRES = {
    "openai-chat": ("openai-compatible:m", chat, []),
    "anthropic": ("anthropic:m", anthropic, []),
    "openai-responses": ("openai:gpt-5", responses, [
        "a call after the reason for the end (`stop`, `length`), before the end mark",
        "a call, then a reason that is not known (`other`)",
        "a call, then the end mark without a reason",
    ]),
}  # fmt: skip
"""Per wire: a model, its frames, and the rows that it cannot express, as its end mark is the reason."""


@sync_and_async
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("row", ROWS)
def test_a_call_runs_by_its_own_end_and_that_of_its_response(row: str, wire: str, mode: str) -> None:
    ran: list[int] = []

    @tool
    def pay(euros: int = 0) -> str:
        """Pay."""
        ran.append(euros)
        return "paid"

    model, frames, impossible = WIRES[wire]
    bodies, count, reason = ROWS[row]
    for body in [] if row in impossible else bodies:
        if wire == "openai-responses" and body[0][0] == "end" and body[1][0] == "call":
            continue  # this is the row with the end mark
        ran.clear()
        script = Scripted([Raw(frames(body)), *[Raw(frames([end("stop"), MARK]))] * 2])
        agent = Agent(Model(model, via=script, api_key="k"), [pay])
        events, run = drive(streaming(agent), mode)
        assert ran == [1] * count, body
        assert end_of(events).reason in ([reason] if reason else ["refused", "error"]), (body, end_of(events))
        damaged = [value for kind, value in body if kind == "call" and value != WHOLE]
        if damaged and reason == "answered":
            [error] = [result for message in run.messages for result in message.results if result.is_error]
            assert error.text.startswith("Not run: the call is cut")


def test_the_guide_has_these_rows() -> None:
    _, _, section = DOCS.read_text().partition("### Which calls run, by the end of the response")
    lines = section.partition("\n## ")[0].splitlines()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")]
    assert rows[1:] == [*ROWS]
