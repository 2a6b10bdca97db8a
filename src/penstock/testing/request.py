"""A request as the server got it, and what it asks, whatever provider it was written for.

The shapes in which the wires write a history do not contradict each other, so that one reading serves them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.errors import UsageError
from penstock.redaction import is_secret

_ROUTES = tuple(
    (re.compile(path), wire)
    for path, wire in (
        (r"/mistral/(?:.*/)?chat/completions$", "mistral"),
        (r"/chat/completions$", "openai-chat"),
        (r"/responses$", "openai-responses"),
        (r"/messages$", "anthropic"),
        (r"/(?P<model>[^/]+):(?P<stream>stream)?[gG]enerateContent$", "gemini"),
        (r"/api/chat$", "ollama"),
        (r"/chat$", "cohere"),
        (r"/model/(?P<model>.+)/converse(?P<stream>-stream)?$", "bedrock"),
    )
)
"""How the paths of the wires end, whatever stands before."""
_BY_PATH = ("gemini", "bedrock")
"""The wires whose path says which model is asked and whether it is to stream."""


class ReceivedResult(Struct, frozen=True):
    """What a tool gave back."""

    name: str
    text: str


class ReceivedRequest(Struct, frozen=True):
    """A request. `body` is its JSON as it came; keys in the headers and the query are masked."""

    wire: str
    body: Mapping[str, Any] = {}
    path: str = ""
    model_in_path: str = ""
    is_stream_path: bool = False
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.model_in_path or str(self.body.get("model") or "sim")

    @property
    def is_streaming(self) -> bool:
        """Whether the answer is to come as a stream."""
        if self.wire in _BY_PATH:
            return self.is_stream_path
        return bool(self.body.get("stream", self.wire == "ollama"))

    @property
    def tools(self) -> list[ToolDeclaration]:
        """The tools that the model may call, without those that the provider runs."""
        config = self.body.get("toolConfig")
        given = self.body.get("tools") or (config.get("tools") if isinstance(config, dict) else None)
        try:
            return [tool for tool in read_declarations(given) if tool.name and tool.hosted is None]
        except UsageError:
            return []

    @property
    def tool_choice(self) -> str:
        """Which call is wanted: "", "auto", "none", "required" or a tool's name."""
        config = self.body.get("toolConfig")
        return _choice(self.body.get("tool_choice") or (config if isinstance(config, dict) else None))

    @property
    def prompt(self) -> str:
        """The last thing that a person said."""
        return next((line.text for line in reversed(_lines(self.body)) if line.role == "user"), "")

    @property
    def results(self) -> list[ReceivedResult]:
        """What tools gave back since a person last spoke."""
        lines = _lines(self.body)
        names = {line.id: line.name for line in lines if line.role == "call"}
        last = max((at for at, line in enumerate(lines) if line.role == "user"), default=-1)
        found = [line for line in lines[last + 1 :] if line.role == "result"]
        return [ReceivedResult(line.name or names.get(line.id, "") or "the tool", line.text) for line in found]


def route_request(
    path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None, query: Mapping[str, str] | None = None
) -> ReceivedRequest | None:
    """The request that is sent to a path, with its keys masked; None if no wire has such a path."""
    for pattern, wire in _ROUTES:
        if found := pattern.search(path):
            named = found.groupdict()
            model, is_stream = named.get("model") or "", bool(named.get("stream"))
            return ReceivedRequest(wire, body, path, model, is_stream, _masked(headers or {}), _masked(query or {}))
    return None


def _masked(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: "***" if is_secret(name) else value for name, value in fields.items()}


class Entry(Struct, frozen=True):
    """Something that was said, called or given back."""

    role: str
    text: str = ""
    id: str = ""
    name: str = ""


def _lines(body: Mapping[str, Any]) -> list[Entry]:
    """The history, line by line."""
    history: Any = body.get("messages") or body.get("contents") or body.get("input") or []
    if isinstance(history, str):
        return [Entry("user", history)]
    entries: list[Any] = history if isinstance(history, list) else []
    return [line for entry in entries if isinstance(entry, dict) for line in _entry(entry)]


def _entry(entry: dict[str, Any]) -> Iterator[Entry]:
    match entry:
        case {"type": "function_call" | "custom_tool_call", "call_id": id, "name": name}:
            yield Entry("call", id=str(id), name=str(name))
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": id, "output": output}:
            yield Entry("result", text_in(output), str(id))
        case {"role": "tool", **rest} if "parts" not in rest:
            id, name = rest.get("tool_call_id") or "", rest.get("tool_name") or rest.get("name") or ""
            yield Entry("result", text_in(rest.get("content")), str(id), str(name))
        case {"role": str(role)}:
            content = entry.get("parts") or entry.get("content") or []
            blocks: list[Any] = content if isinstance(content, list) else [content]
            calls = entry.get("tool_calls")
            yield from _blocks(role, [*blocks, *(calls if isinstance(calls, list) else [])])


def _blocks(role: str, blocks: list[Any]) -> Iterator[Entry]:
    words: list[str] = []
    for block in blocks:
        match block:
            case {"type": "tool_result", "tool_use_id": id, **rest}:
                yield Entry("result", text_in(rest.get("content")), str(id))
            case {"toolResult": {"toolUseId": id, "content": content}}:
                yield Entry("result", text_in(content), str(id))
            case {"functionResponse": {"name": name, "response": response}}:
                yield Entry("result", text_in(response), name=str(name))
            case (
                {"type": "tool_use", "id": id, "name": name}
                | {"toolUse": {"toolUseId": id, "name": name}}
                | {"id": id, "function": {"name": name}}
            ):
                yield Entry("call", id=str(id), name=str(name))
            case str(text) | {"text": str(text)}:
                words.append(text)
    if words:
        yield Entry(role, "".join(words))


def text_in(content: Any) -> str:
    """What a result says: its text, or its JSON."""
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return " ".join(filter(None, map(text_in, content)))
        case {"text": str(text)}:
            return text
        case {"json": inner} | {"result": inner} | {"output": inner}:
            return text_in(inner)
        case {"document": {"data": data}}:
            return text_in(data)
        case _:
            return msgspec.json.encode(content).decode()


def _choice(given: Any) -> str:
    match given:
        case "any" | {"type": "any"} | {"any": _}:
            return "required"
        case str():
            return given.lower()  # Cohere shouts
        case {"function": {"name": str(name)}} | {"name": str(name)} | {"tool": {"name": str(name)}}:
            return name
        case {"toolChoice": inner}:
            return _choice(inner)
        case {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [str(name)]}}:
            return name
        case {"functionCallingConfig": {"mode": str(mode)}}:
            return {"ANY": "required", "NONE": "none"}.get(mode.upper(), "auto")
        case {"type": str(kind)}:
            return kind
    return ""
