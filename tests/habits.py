"""A server of Chat Completions with bad habits, each under a path of its own: `/HABIT/v1/chat/completions`.

To a request with tools it answers with a call (with one habit, two) of the client's tool that runs a command, and to
one with the results it says whether they are right.
"""

from __future__ import annotations

import json
import re
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


# -- more habits ---------------------------------------------------------------------------------------------------


def _native(name: str, arguments: str, finish: str | None = "tool_calls", **changes: Any) -> Chunks:
    """A call in one chunk, with these arguments, and other fields of its entry; None leaves a field out."""
    entry = {"index": 0, "id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}
    yield _start()
    yield _delta(tool_calls=[{key: value for key, value in (entry | changes).items() if value is not None}])
    yield _delta(finish=finish)


def _object(calls: Calls) -> str:
    return json.dumps({"name": calls[0][0], "arguments": calls[0][1]})


def _qwen(calls: Calls) -> str:
    name, arguments = calls[0]
    values = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<function={name}>\n{values}</function>"


def _said(*texts: str, before: str = "") -> Chunks:
    """Text in pieces, with the end of a response without calls."""
    yield _delta(role="assistant", content=before)
    for text in texts:
        yield from _text(text)
    yield _delta(finish="stop")


def same_id(calls: Calls) -> Chunks:
    """Every call of a session has the same id."""
    yield from _native(calls[0][0], json.dumps(calls[0][1]))


def null_arguments_first(calls: Calls) -> Chunks:
    """The first piece of the arguments is null."""
    yield _start()
    yield _call(0, "call_0", calls[0][0], None)
    yield _delta(tool_calls=[{"index": 0, "function": {"arguments": json.dumps(calls[0][1])}}])
    yield _delta(finish="tool_calls")


def no_done(calls: Calls) -> Chunks:
    """The stream has no last line `[DONE]`."""
    yield from right(calls)


def finish_null(calls: Calls) -> Chunks:
    """The finish reason is always null."""
    yield from _native(calls[0][0], json.dumps(calls[0][1]), finish=None)


def think_tags(calls: Calls) -> Chunks:
    """Reasoning is in the text, between tags."""
    yield _delta(role="assistant", content="")
    yield from _text("<think>\nI have to look.\n</think>\n\n")
    yield from _pieces(0, "call_0", calls[0][0], json.dumps(calls[0][1]))
    yield _delta(finish="tool_calls")


def double_encoded(calls: Calls) -> Chunks:
    """The arguments are a JSON string that contains JSON."""
    yield from _native(calls[0][0], json.dumps(json.dumps(calls[0][1])))


def name_in_pieces(calls: Calls) -> Chunks:
    """The name comes in two pieces."""
    name, arguments = calls[0]
    yield _start()
    yield _call(0, "call_0", name[:2], "")
    yield _delta(tool_calls=[{"index": 0, "function": {"name": name[2:], "arguments": json.dumps(arguments)}}])
    yield _delta(finish="tool_calls")


def brace_too_many(calls: Calls) -> Chunks:
    """The arguments end with a brace too many."""
    yield from _native(calls[0][0], json.dumps(calls[0][1]) + "}")


def raw_newlines(calls: Calls) -> Chunks:
    """Line ends in the arguments are not escaped."""
    yield from _native(calls[0][0], _ESCAPE.sub(_raw_newline, json.dumps(calls[0][1])))


_ESCAPE = re.compile(r"\\.", re.DOTALL)


def _raw_newline(escape: re.Match[str]) -> str:
    return "\n" if escape[0] == r"\n" else escape[0]


def functions_prefix(calls: Calls) -> Chunks:
    """The name has the prefix of a template."""
    yield from _native(f"functions.{calls[0][0]}", json.dumps(calls[0][1]))


def fenced_json(calls: Calls) -> Chunks:
    """The call is in the text: an object in a fence, and nothing else."""
    yield from _said(f"```json\n{_object(calls)}\n```")


def mistral_mark(calls: Calls) -> Chunks:
    """The call is in the text: an array after `[TOOL_CALLS]`."""
    yield from _said(f"[TOOL_CALLS][{_object(calls)}]")


def think_and_hermes(calls: Calls) -> Chunks:
    """Reasoning and the call are in the text."""
    yield from _said(f"<think>\nI have to look.\n</think>\n\n<tool_call>\n{_object(calls)}\n</tool_call>")


def python_tag(calls: Calls) -> Chunks:
    """The call is in the text: an object after `<|python_tag|>`."""
    yield from _said(f"<|python_tag|>{json.dumps({'name': calls[0][0], 'parameters': calls[0][1]})}")


def function_call(calls: Calls) -> Chunks:
    """The call is in the field that `tool_calls` replaced."""
    yield _start()
    yield _delta(function_call={"name": calls[0][0], "arguments": json.dumps(calls[0][1])})
    yield _delta(finish="function_call")


def json_body(calls: Calls) -> Chunks:
    """The answer is a JSON body, although a stream was asked for."""
    function = {"name": calls[0][0], "arguments": json.dumps(calls[0][1])}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c0", "type": "function", "function": function}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "local-model", "choices": [choice]}
    yield json.dumps(body).encode()


def qwen_without_block(calls: Calls) -> Chunks:
    """The call is in the text: Qwen's XML without `<tool_call>`."""
    yield from _said(_qwen(calls), before="Let me look. ")


def prose_and_fence(calls: Calls) -> Chunks:
    """The call is in the text: a sentence, and an object in a fence."""
    yield from _said(f"I will look at it now:\n\n```json\n{_object(calls)}\n```\n")


def think_without_start(calls: Calls) -> Chunks:
    """Reasoning is in the text, and ends with a tag that never began."""
    yield _delta(role="assistant", content="")
    yield from _text("I have to look.\n</think>\n\n")
    yield from _pieces(0, "call_0", calls[0][0], json.dumps(calls[0][1]))
    yield _delta(finish="tool_calls")


def reasoning_content(calls: Calls) -> Chunks:
    """Reasoning has a field of its own."""
    yield _delta(role="assistant", reasoning_content="I have to look.")
    yield from _pieces(0, "call_0", calls[0][0], json.dumps(calls[0][1]))
    yield _delta(finish="tool_calls")


def empty_usage(calls: Calls) -> Chunks:
    """The usage is null in every chunk."""
    for chunk in right(calls):
        yield {**chunk, "usage": None} if isinstance(chunk, dict) else chunk


def comments(calls: Calls) -> Chunks:
    """There are comments between the frames."""
    for chunk in right(calls):
        yield b": a comment\n\n"
        yield chunk


def crlf(calls: Calls) -> Chunks:
    """Lines end with CRLF."""
    yield from right(calls)


def whole_call(calls: Calls) -> Chunks:
    """The whole call is in one chunk, with the finish reason."""
    function = {"name": calls[0][0], "arguments": json.dumps(calls[0][1])}
    entry = {"index": 0, "id": "call_0", "type": "function", "function": function}
    yield _delta(finish="tool_calls", role="assistant", content=None, tool_calls=[entry])


def no_type(calls: Calls) -> Chunks:
    """A call has no type."""
    yield from _native(calls[0][0], json.dumps(calls[0][1]), type=None)


def numeric_id(calls: Calls) -> Chunks:
    """The id of a call is a number."""
    yield from _native(calls[0][0], json.dumps(calls[0][1]), id=7)


def repeated_name(calls: Calls) -> Chunks:
    """Every piece has the name."""
    name, arguments = calls[0]
    yield _start()
    for piece in _split(json.dumps(arguments)):
        yield _call(0, "call_0", name, piece)
    yield _delta(finish="tool_calls")


def empty_id(calls: Calls) -> Chunks:
    """The id of a call is empty."""
    yield from _native(calls[0][0], json.dumps(calls[0][1]), id="")


def choices_null(calls: Calls) -> Chunks:
    """There are chunks whose choices are null."""
    for chunk in right(calls):
        yield {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": None}
        yield chunk


def empty_object_first(calls: Calls) -> Chunks:
    """An empty object comes before the arguments."""
    yield _start()
    yield _call(0, "call_0", calls[0][0], "{}")
    for piece in _split(json.dumps(calls[0][1])):
        yield _delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}])
    yield _delta(finish="tool_calls")


def markup_after(calls: Calls) -> Chunks:
    """The arguments end with the end tag of a template."""
    yield from _native(calls[0][0], f"{json.dumps(calls[0][1])}\n</tool_call>")


def call_in_reasoning(calls: Calls) -> Chunks:
    """The call is at the end of the reasoning, and nothing follows it."""
    yield _delta(role="assistant", content="")
    for piece in _split(f"I have to look.\n<tool_call>\n{_object(calls)}\n</tool_call>"):
        yield _delta(reasoning_content=piece)
    yield _delta(finish="stop")


def wrapped_arguments(calls: Calls) -> Chunks:
    """The arguments are inside another object."""
    yield from _native(calls[0][0], json.dumps({"arguments": calls[0][1]}))


def call_object_as_arguments(calls: Calls) -> Chunks:
    """The arguments are the whole call object."""
    yield from _native(calls[0][0], _object(calls))


def other_case(calls: Calls) -> Chunks:
    """The name is in another case."""
    yield from _native(calls[0][0].title(), json.dumps(calls[0][1]))


def name_with_parentheses(calls: Calls) -> Chunks:
    """The name has parentheses."""
    yield from _native(f"{calls[0][0]}()", json.dumps(calls[0][1]))


def python_list(calls: Calls) -> Chunks:
    """The call is in the text: a list of Python calls."""
    name, arguments = calls[0]
    yield from _said(f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]")


def tool_code(calls: Calls) -> Chunks:
    """The call is in the text: a fence with a Python call."""
    name, arguments = calls[0]
    call = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    yield from _said(f"```tool_code\nprint({call})\n```")


def tool_and_parameters(calls: Calls) -> Chunks:
    """The call is in the text: an object with other keys."""
    yield from _said(json.dumps({"tool": calls[0][0], "parameters": calls[0][1]}))


def openai_object(calls: Calls) -> Chunks:
    """The call is in the text: the call object of OpenAI."""
    function = {"name": calls[0][0], "arguments": json.dumps(calls[0][1])}
    yield from _said(json.dumps({"id": "call_7", "type": "function", "function": function}))


def listed_calls(calls: Calls) -> Chunks:
    """The call is in the text: a list in an object."""
    yield from _said(f'{{"tool_calls": [{_object(calls)}]}}')


def anthropic_object(calls: Calls) -> Chunks:
    """The call is in the text: the call object of Anthropic."""
    yield from _said(json.dumps({"type": "tool_use", "id": "toolu_1", "name": calls[0][0], "input": calls[0][1]}))


def qwen_left_open(calls: Calls) -> Chunks:
    """The call is in the text: Qwen's XML without its last end tags."""
    yield from _said("<tool_call>\n" + _qwen(calls).removesuffix("</function>"))


def _split(text: str) -> Iterator[str]:
    for place in range(0, len(text), 6):
        yield text[place : place + 6]


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


MORE_HABITS: Mapping[str, Callable[[Calls], Chunks]] = {
    habit.__name__: habit
    for habit in (
        same_id, null_arguments_first, no_done, finish_null, think_tags, double_encoded, name_in_pieces, brace_too_many,
        raw_newlines, functions_prefix, fenced_json, mistral_mark, think_and_hermes, python_tag, function_call,
        json_body, qwen_without_block, prose_and_fence, think_without_start, reasoning_content, empty_usage, comments,
        crlf, whole_call, no_type, numeric_id, repeated_name, empty_id, choices_null, empty_object_first, markup_after,
        call_in_reasoning, wrapped_arguments, call_object_as_arguments, other_case, name_with_parentheses, python_list,
        tool_code, tool_and_parameters, openai_object, listed_calls, anthropic_object, qwen_left_open,
    )
}  # fmt: skip
"""Further habits, which real agents were tried with."""
ALL_HABITS = {**HABITS, **MORE_HABITS}


def reply(habit: str, calls: Calls, id: str = "call") -> Raw:
    """The answer with a habit. `id` is the beginning of the ids of calls, in habits with plain ids."""
    body = b"".join(_bytes(ALL_HABITS[habit](calls))).replace(b'"id": "call_', b'"id": "%b_' % id.encode())
    if habit == "json_body":
        return Raw(body, "application/json")
    body += b"" if habit == "no_done" else b"data: [DONE]\n\n"
    return Raw(body.replace(b"\n", b"\r\n") if habit == "crlf" else body)


def answer(request: ReceivedRequest) -> Any:
    """The answer to a request, in the habit that its path names."""
    habit = request.path.strip("/").partition("/")[0]
    if not request.tools:  # a client asks for a title
        return "A title"
    expected = ["penstock-42", "penstock-43"] if habit in ("one_index", "same_id") else ["penstock-42"]
    if len(request.results) >= (2 if habit == "same_id" else 1):
        seen = " ".join(result.text for result in request.results)
        return RIGHT if all(text in seen for text in expected) else f"{WRONG} {seen[:2000]}"
    tool = next(tool for name in SHELLS for tool in request.tools if tool.name == name)
    calls = [(tool.name, arguments_for(tool, f"echo {text}")) for text in expected]
    return reply(habit, calls[len(request.results) :])


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
