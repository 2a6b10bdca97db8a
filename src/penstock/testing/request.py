"""A request as the server received it: its model, prompt, tools and results, on any wire.

The formats of the wires do not contradict each other, so that one parser reads them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.errors import UsageError
from penstock.redaction import is_secret
from penstock.testing.wires.proto_json import camel_case
from penstock.testing.wires.routes import PROTO_JSON, ROUTES, STREAMS_BY_DEFAULT, STREAMS_BY_PATH


class ReceivedResult(Struct, frozen=True):
    """The result of a tool in a request."""

    name: str
    text: str


class JSONParts(Struct, frozen=True):
    """The JSON of a body in parts: all but the first and the last are messages of its history."""

    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return sum(map(len, self.parts))

    def head(self) -> dict[str, Any]:
        """The body without its history."""
        is_whole = len(self.parts) == 1
        return _object(b"".join(self.parts if is_whole else (self.parts[0], self.parts[-1])))

    def body(self) -> dict[str, Any]:
        """The whole body."""
        return _object(b"".join(self.parts))

    def end(self, size: int) -> bytes:
        """The last bytes of the body."""
        last, missing = list[bytes](), size
        for part in reversed(self.parts):
            last.append(part)
            missing -= len(part)
            if missing <= 0:
                break
        return b"".join(reversed(last))[-size:]


def _object(data: bytes) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(data)
    return body


class ReceivedRequest(Struct, frozen=True, dict=True):  # the dict is for cached properties
    """A request. `body` is its JSON, which is decoded when it is needed; keys in headers and the query are masked."""

    wire: str
    content: Mapping[str, Any] | JSONParts = {}
    path: str = ""
    model_in_path: str = ""
    is_stream_path: bool = False
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The JSON of the request."""
        return self.content.body() if isinstance(self.content, JSONParts) else self.content

    @cached_property
    def head(self) -> Mapping[str, Any]:
        """The JSON of the request, where possible without its history."""
        return self.content.head() if isinstance(self.content, JSONParts) else self.content

    @property
    def _fields(self) -> Mapping[str, Any]:
        """The body, with one spelling of each field."""
        return camel_case(self.body) if self.wire in PROTO_JSON else self.body

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.model_in_path or str(self.head.get("model") or "sim")

    @property
    def is_streaming(self) -> bool:
        """Whether the request asks for a stream."""
        if self.wire in STREAMS_BY_PATH:
            return self.is_stream_path
        return bool(self.head.get("stream", self.wire in STREAMS_BY_DEFAULT))

    @property
    def tools(self) -> list[ToolDeclaration]:
        """The declared tools, without those that the provider runs."""
        config = self._fields.get("toolConfig")
        tools = self._fields.get("tools") or (config.get("tools") if isinstance(config, dict) else None)
        try:
            return [tool for tool in read_declarations(tools) if tool.name and tool.hosted is None]
        except UsageError:
            return []

    @property
    def tool_choice(self) -> str:
        """The tool choice: "", "auto", "none", "required" or the name of a tool."""
        config, settings = self._fields.get("toolConfig"), self._fields.get("generation_config")
        inner = settings.get("tool_choice") if isinstance(settings, dict) else None
        return _choice(self._fields.get("tool_choice") or inner or (config if isinstance(config, dict) else None))

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema that the answer must match; None if there is none."""
        match self.head:
            case (
                {"response_format": {"json_schema": {"schema": dict() as schema}}}
                | {"response_format": {"json_schema": dict() as schema}}
                | {"response_format": {"schema": dict() as schema}}
                | {"text": {"format": {"schema": dict() as schema}}}
                | {"output_config": {"format": {"schema": dict() as schema}}}
                | {"generationConfig": {"responseJsonSchema": dict() as schema}}
                | {"generationConfig": {"responseSchema": dict() as schema}}
                | {"format": dict() as schema}
            ):
                return schema
            case _:
                return None

    @property
    def prompt(self) -> str:
        """The text of the last user message."""
        return next((entry.text for entry in reversed(_entries(self._fields)) if entry.role == "user"), "")

    @property
    def results(self) -> list[ReceivedResult]:
        """The results of tools after the last user message."""
        entries = _entries(self._fields)
        names = {entry.id: entry.name for entry in entries if entry.role == "call"}
        last = max((index for index, entry in enumerate(entries) if entry.role == "user"), default=-1)
        results = [entry for entry in entries[last + 1 :] if entry.role == "result"]
        return [ReceivedResult(entry.name or names.get(entry.id, "") or "the tool", entry.text) for entry in results]


def route_request(
    path: str,
    body: Mapping[str, Any] | JSONParts,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
) -> ReceivedRequest | None:
    """The request at a path, with keys masked; None if the path does not belong to a wire."""
    for pattern, wire in ROUTES:
        if match := pattern.search(path):
            groups = match.groupdict()
            model, is_stream = groups.get("model") or "", bool(groups.get("stream"))
            return ReceivedRequest(wire, body, path, model, is_stream, _masked(headers or {}), _masked(query or {}))
    return None


def _masked(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: "***" if is_secret(name) else value for name, value in fields.items()}


class Entry(Struct, frozen=True):
    """A message, a call or a result of a history."""

    role: str
    text: str = ""
    id: str = ""
    name: str = ""


def _entries(body: Mapping[str, Any]) -> list[Entry]:
    """The history as a flat list."""
    history: Any = body.get("messages") or body.get("contents") or body.get("input") or []
    if isinstance(history, str):
        return [Entry("user", history)]
    messages: list[Any] = history if isinstance(history, list) else []
    return [entry for message in messages if isinstance(message, dict) for entry in _message_entries(message)]


def _message_entries(message: dict[str, Any]) -> Iterator[Entry]:
    match message:
        case {"type": "function_call" | "custom_tool_call", "call_id": id, "name": name}:
            yield Entry("call", id=str(id), name=str(name))
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": id, "output": output}:
            yield Entry("result", text_in(output), str(id))
        case {"type": "function_call", "id": id, "name": name}:
            yield Entry("call", id=str(id), name=str(name))
        case {"type": "function_result", "call_id": id, **rest}:
            yield Entry("result", text_in(rest.get("result")), str(id), str(rest.get("name") or ""))
        case {"type": "user_input" | "model_output" as kind, "content": content}:
            yield from _block_entries("user" if kind == "user_input" else "assistant", _listed(content))
        case {"type": "text", "text": str(text)}:
            yield Entry("user", text)
        case {"role": "tool", **rest} if "parts" not in rest:
            id, name = rest.get("tool_call_id") or "", rest.get("tool_name") or rest.get("name") or ""
            yield Entry("result", text_in(rest.get("content")), str(id), str(name))
        case {"role": str(role)}:
            calls = message.get("tool_calls")
            content = message.get("parts") or message.get("content") or []
            yield from _block_entries(role, [*_listed(content), *(calls if isinstance(calls, list) else [])])


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def _block_entries(role: str, blocks: list[Any]) -> Iterator[Entry]:
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
    """The text of a result, or its JSON."""
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


def _choice(value: Any) -> str:
    match value:
        case "any" | {"type": "any"} | {"any": _}:
            return "required"
        case str():
            return value.lower()  # Cohere writes it in capitals
        case {"function": {"name": str(name)}} | {"name": str(name)} | {"tool": {"name": str(name)}}:
            return name
        case {"toolChoice": inner}:
            return _choice(inner)
        case {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [str(name)]}} | {
            "allowed_tools": {"mode": "any", "tools": [str(name)]}
        }:
            return name
        case {"functionCallingConfig": {"mode": str(mode)}}:
            return {"ANY": "required", "NONE": "none"}.get(mode.upper(), "auto")
        case {"type": str(kind)}:
            return kind
    return ""
