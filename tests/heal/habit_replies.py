"""Habits of servers on every protocol that is healed, streamed and not, for a call of the tool `look`.

Chat Completions has the chunks of `tests.habits`. For the other protocols, the right response is encoded, and its
frames get the habit. `IMPOSSIBLE` says which habits a protocol cannot have, and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.events import Finish, StreamChunk, Text, ToolCall, ToolCallDelta, ToolCallStart
from penstock.testing import Loopback, Raw, ReceivedRequest, Reply, call, think
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead
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


# Frames of the other protocols.

Frame = dict[str, Any]
KEEP_ALIVES = (b"data: \n\n", b"data: : keep-alive\n\n")


def objects(value: Any) -> Iterator[Frame]:
    """All objects in a JSON value."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(one)


def without(key: str, kind: str = "") -> Callable[[list[Frame]], list[Frame]]:
    """A habit of leaving out a field, of objects of a type or of all."""

    def change(frames: list[Frame]) -> list[Frame]:
        for one in objects(frames):
            if not kind or one.get("type") == kind:
                one.pop(key, None)
        return frames

    return change


def same_index(key: str) -> Callable[[list[Frame]], list[Frame]]:
    """A habit of giving all calls one index."""

    def change(frames: list[Frame]) -> list[Frame]:
        for frame in frames:
            if frame.get(key):
                frame[key] = 1
        return frames

    return change


def stop(frames: list[Frame]) -> list[Frame]:
    for one in objects(frames):
        if one.get("stop_reason") == "tool_use":
            one["stop_reason"] = "end_turn"
    return frames


def response_objects(frames: list[Frame]) -> list[Frame]:
    """Responses: the arguments are an object wherever they are whole."""
    for one in objects(frames):
        if one.get("arguments"):
            one["arguments"] = json.loads(one["arguments"])
    return [frame for frame in frames if frame.get("type") != "response.function_call_arguments.delta"]


def message_objects(frames: list[Frame]) -> list[Frame]:
    """Messages: the input is in the start of its block, and no pieces follow."""
    for one in objects(frames):
        if one.get("type") == "tool_use":
            one["input"] = ARGUMENTS
    return [frame for frame in frames if frame.get("delta", {}).get("type") != "input_json_delta"]


def as_text(key: str) -> Callable[[list[Frame]], list[Frame]]:
    """A habit of sending arguments as text, where the protocol has an object."""

    def change(frames: list[Frame]) -> list[Frame]:
        for one in objects(frames):
            if key in one:
                one[key] = json.dumps(one[key])
        return frames

    return change


def unchanged(frames: list[Frame]) -> list[Frame]:
    return frames


CHANGES: Mapping[str, Mapping[str, Callable[[list[Frame]], list[Frame]]]] = {
    "openai-responses": {
        "no_id": without("call_id", "function_call"),
        "one_index": same_index("output_index"),
        "no_index": without("output_index"),
        "object_arguments": response_objects,
        "keep_alive": unchanged,
    },
    "anthropic": {
        "finish_stop": stop,
        "no_id": without("id", "tool_use"),
        "one_index": same_index("index"),
        "no_index": without("index"),
        "object_arguments": message_objects,
        "keep_alive": unchanged,
    },
    "gemini": {"double_encoding": as_text("args"), "keep_alive": unchanged},
    "ollama": {"double_encoding": as_text("arguments"), "keep_alive": unchanged},
}
"""What a habit does to the frames of a right response."""

NO_REASON = "the protocol has no finish reason for calls"
NO_IDS = "the protocol has no ids of calls, or they are optional"
NO_INDEX = "the protocol has no indexes of calls, or they mean nothing"
OBJECTS = "arguments are always objects"
NO_TEXT = "arguments are objects, not text that could be damaged"
_OBJECT_WIRES = {
    "finish_stop": NO_REASON,
    "no_id": NO_IDS,
    "one_index": NO_INDEX,
    "no_index": NO_INDEX,
    "object_arguments": OBJECTS,
    **dict.fromkeys(set(DAMAGES) - {"double_encoding"}, NO_TEXT),
}
IMPOSSIBLE: Mapping[str, Mapping[str, str]] = {
    "openai-responses": {"finish_stop": NO_REASON},
    "gemini": _OBJECT_WIRES,
    "ollama": _OBJECT_WIRES,
}
"""Why a habit cannot exist in a protocol."""


def habits_of(wire: str) -> list[str]:
    """The habits that a protocol can have."""
    return [habit for habit in CHAT if habit not in IMPOSSIBLE.get(wire, {})]


def right_events(habit: str) -> list[StreamChunk]:
    events: list[StreamChunk] = [Text(0, "Let me look. ")]
    for block, arguments in enumerate(expected(habit), 1):
        id, raw = f"call_{block}", json.dumps(arguments)
        events += [ToolCallStart(block, id, "look"), ToolCallDelta(block, raw[:9]), ToolCallDelta(block, raw[9:])]
        events += [ToolCall(id, "look", arguments, raw, block=block)]
    return [*events, Finish("tool_calls")]


def changed(wire: str, habit: str, *, is_streaming: bool) -> Raw:
    """The right response of a protocol, with a habit."""
    frames, head = find_response_frames(wire), ResponseHead(id="1", model="m", created=1)
    change, events = CHANGES[wire][habit], right_events(habit)
    if not is_streaming:
        return Raw(
            json.dumps(change([json.loads(encode_body(frames, events, head).body)])[0]).encode(), "application/json"
        )
    encoder = ResponseEncoder(frames(head))
    body = encoder.feed(events) + encoder.close()
    if wire == "ollama":
        sent = [json.dumps(one).encode() + b"\n" for one in change([json.loads(line) for line in body.splitlines()])]
        return Raw((b"\n" if habit == "keep_alive" else b"").join([b"", *sent]), "application/x-ndjson")
    values = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    sent = [
        b"%bdata: %b\n\n" % (b"event: %b\n" % one["type"].encode() if "type" in one else b"", json.dumps(one).encode())
        for one in change(values)
    ]
    if habit == "keep_alive":
        sent = [KEEP_ALIVES[0], sent[0], KEEP_ALIVES[1], *sent[1:-1], KEEP_ALIVES[0], sent[-1]]
    return Raw(b"".join(sent))


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
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "local-model", "choices": [choice],
            "usage": usage}  # fmt: skip
    return json.dumps(body).encode()


def answer(request: ReceivedRequest) -> Any:
    """The answer to a request, in the habit that its path names: `/HABIT/…`."""
    habit = request.path.strip("/").partition("/")[0]
    if request.results:
        return "Done."
    is_streaming = bool(request.body.get("stream", request.wire == "ollama")) or ":stream" in request.path
    if request.wire != "openai-chat":
        if habit in CHANGES[request.wire]:
            return changed(request.wire, habit, is_streaming=is_streaming)
        return REPLIES[request.wire][habit]
    chunks = chunks_of(habit)
    if not is_streaming:
        return Raw(whole(chunks), "application/json")
    sent = [one if isinstance(one, bytes) else b"data: %b\n\n" % json.dumps(one).encode() for one in chunks]
    return Raw(b"".join(sent) + b"data: [DONE]\n\n")


def habit_loopback() -> Loopback:
    """The server."""
    return Loopback(answer)
