"""Chunks of Chat Completions, and tools, for the tests of the documents."""

from __future__ import annotations

from typing import Any


def piece(index: int | None, arguments: str | None, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    """A piece of a call."""
    fields: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if id is not None:
        fields |= {"id": id, "type": "function"}
    if name is not None:
        fields["function"]["name"] = name
    return fields


def chunk(*pieces: dict[str, Any], content: str | None = None, finish: str | None = None) -> dict[str, Any]:
    """A chunk with text, with pieces of calls, or with the finish reason."""
    delta = {"content": content} if content is not None else {"tool_calls": list(pieces)} if pieces else {}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


CHUNKS = [
    chunk(content="Let me look."),
    chunk(piece(0, "", "call_1", "run_command")),
    chunk(piece(0, '{"command":')),
    chunk(piece(0, ' "SCAN 0')),
    chunk(piece(0, '"}')),
    chunk(finish="tool_calls"),
]
"""One call, in pieces."""


def tool(name: str, **parameters: str) -> dict[str, Any]:
    """The declaration of a tool in OpenAI's shape; its parameters by their JSON types."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}.", "parameters": schema}}
