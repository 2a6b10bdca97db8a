"""A server of Chat Completions with bad habits, each under a path of its own: `/HABIT/v1/chat/completions`.

To a request with tools it answers with a call (with one habit, two) of the client's tool that runs a command, and to
one with the results it says whether they are right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.testing import Loopback, Raw, ReceivedRequest

RIGHT = "FINAL: result seen."
WRONG = "FINAL: no such result."
SHELLS = ("exec_command", "shell", "bash", "run_shell_command", "look")
"""The tools that run a command, as the clients name them."""

Chunks = Iterator[dict[str, Any] | bytes]
Calls = list[tuple[str, dict[str, Any]]]


def _delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "local-model",
            "choices": [choice]}  # fmt: skip


def _start() -> dict[str, Any]:
    return _delta(role="assistant", content="Let me look. ")


def _call(index: int | None, id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    entry |= {} if index is None else {"index": index}
    entry |= {} if id is None else {"id": id}
    return _delta(tool_calls=[entry])


def _pieces(index: int, id: str, name: str, arguments: str) -> Chunks:
    """A call whose arguments come in two pieces, as they should."""
    middle = len(arguments) // 2
    yield _call(index, id, name, "")
    for piece in (arguments[:middle], arguments[middle:]):
        yield _delta(tool_calls=[{"index": index, "function": {"arguments": piece}}])


def right(calls: Calls) -> Chunks:
    """No bad habit."""
    yield _start()
    for index, (name, arguments) in enumerate(calls[:1]):
        yield from _pieces(index, f"call_{index}", name, json.dumps(arguments))
    yield _delta(finish="tool_calls")


def finish_stop(calls: Calls) -> Chunks:
    """The finish reason is `stop`."""
    yield _start()
    yield from _pieces(0, "call_0", calls[0][0], json.dumps(calls[0][1]))
    yield _delta(finish="stop")


def no_id(calls: Calls) -> Chunks:
    """A call has no id."""
    yield _start()
    yield _call(0, None, calls[0][0], json.dumps(calls[0][1]))
    yield _delta(finish="tool_calls")


def one_index(calls: Calls) -> Chunks:
    """Two calls have one index, as with Ollama."""
    yield _start()
    for number, (name, arguments) in enumerate(calls):
        yield _call(0, f"call_{number}", name, json.dumps(arguments))
    yield _delta(finish="tool_calls")


def no_index(calls: Calls) -> Chunks:
    """A call has no index."""
    yield _start()
    yield _call(None, "call_0", calls[0][0], json.dumps(calls[0][1]))
    yield _delta(finish="tool_calls")


def object_arguments(calls: Calls) -> Chunks:
    """The arguments are an object instead of text."""
    yield _start()
    yield _call(0, "call_0", *calls[0])
    yield _delta(finish="tool_calls")


def hermes(calls: Calls) -> Chunks:
    """The call is in the text: JSON between tags."""
    yield _start()
    text = f"<tool_call>\n{json.dumps({'name': calls[0][0], 'arguments': calls[0][1]})}\n</tool_call>"
    yield from _text(text)
    yield _delta(finish="stop")


def qwen_xml(calls: Calls) -> Chunks:
    """The call is in the text: an element per parameter."""
    yield _start()
    name, arguments = calls[0]
    values = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    yield from _text(f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>")
    yield _delta(finish="stop")


def bare_json(calls: Calls) -> Chunks:
    """The call is in the text: an object, and nothing else."""
    yield _delta(role="assistant", content="")
    yield from _text(json.dumps({"name": calls[0][0], "arguments": calls[0][1]}))
    yield _delta(finish="stop")


def keep_alive(calls: Calls) -> Chunks:
    """Keep-alives are data."""
    yield b"data: \n\n"
    yield _start()
    yield b"data: : keep-alive\n\n"
    yield from _pieces(0, "call_0", calls[0][0], json.dumps(calls[0][1]))
    yield b"data: \n\n"
    yield _delta(finish="tool_calls")


def trailing_comma(calls: Calls) -> Chunks:
    """The arguments end with a comma too many."""
    yield _start()
    yield from _pieces(0, "call_0", calls[0][0], json.dumps(calls[0][1])[:-1] + ",}")
    yield _delta(finish="tool_calls")


def _text(text: str) -> Chunks:
    """A text in pieces of six characters."""
    for place in range(0, len(text), 6):
        yield _delta(content=text[place : place + 6])


HABITS: Mapping[str, Callable[[Calls], Chunks]] = {
    habit.__name__: habit
    for habit in (
        right,
        finish_stop,
        no_id,
        one_index,
        no_index,
        object_arguments,
        hermes,
        qwen_xml,
        bare_json,
        keep_alive,
        trailing_comma,
    )
}


def answer(request: ReceivedRequest) -> Any:
    """The answer to a request, in the habit that its path names."""
    habit = HABITS[request.path.strip("/").partition("/")[0]]
    if not request.tools:  # a client asks for a title
        return "A title"
    expected = ["penstock-42", "penstock-43"] if habit is one_index else ["penstock-42"]
    if request.results:
        seen = " ".join(result.text for result in request.results)
        return RIGHT if all(text in seen for text in expected) else f"{WRONG} {seen[:2000]}"
    tool = next(tool for name in SHELLS for tool in request.tools if tool.name == name)
    calls = [(tool.name, arguments_for(tool, f"echo {text}")) for text in expected]
    return Raw(b"".join(_bytes(habit(calls))) + b"data: [DONE]\n\n")


def arguments_for(tool: ToolDeclaration, command: str) -> dict[str, Any]:
    """Arguments by the schema of a tool that runs a command."""
    properties: Mapping[str, Any] = tool.parameters["properties"]
    required = tool.parameters.get("required", ())
    values: dict[str, Any] = {}
    for name, schema in properties.items():
        if name in ("command", "cmd", "script"):
            values[name] = ["bash", "-c", command] if schema.get("type") == "array" else command
        elif name in required:
            values[name] = {"string": "prints a word", "boolean": False, "array": []}.get(schema.get("type"), 10_000)
    return values


def _bytes(chunks: Chunks) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk if isinstance(chunk, bytes) else b"data: %b\n\n" % json.dumps(chunk).encode()


def habit_server() -> Loopback:
    """The server."""
    return Loopback(answer)
