"""Results of MCP tools as content that a model reads: text, images, files, resources."""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import urlsplit

import mcp_types

from penstock.content import File, Image
from penstock.errors import ArgumentsError, UsageError
from penstock.events import Text
from penstock.results import MAX_MEDIA, ResultPart, ToolOutput
from penstock.tools.schema_arguments import SchemaArguments

_KIND = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)


class OutputSchema:
    """The declared output schema of a tool; `schema` is None if there is none."""

    def __init__(self, schema: Any = None) -> None:
        self._checks: SchemaArguments | None = None
        if isinstance(schema, dict) and schema.get("type") == "object":
            try:
                self._checks = SchemaArguments(schema)
            except UsageError:  # a schema that cannot be used promises nothing
                pass

    def problem(self, value: Any) -> str:
        """How the value differs from the schema; empty if it does not."""
        if self._checks is None:
            return ""
        if not isinstance(value, dict):
            return "it is missing"
        try:
            self._checks.check(value)
        except ArgumentsError as error:
            return str(error)
        return ""


def as_output(result: mcp_types.CallToolResult, schema: OutputSchema) -> ToolOutput:
    """The result of a call. Structured content is for the program, and for the model if there is nothing else."""
    parts = [_part(block) for block in result.content]  # at most `MAX_PARTS`: see `leniency`
    data = result.structured_content
    if not result.is_error and (problem := schema.problem(data)):
        parts.append(Text(0, f"(The structured result does not match the schema that the server declares: {problem})"))
    if result.is_error and not parts and data is None:
        parts.append(Text(0, "The tool failed, and the MCP server does not say why."))
    content: Any = parts or ("" if data is None else data)
    return ToolOutput(content, data, result.is_error)


def _part(block: Any) -> ResultPart:
    match block:
        case mcp_types.TextContent():
            return Text(0, block.text)
        case mcp_types.ImageContent():
            return _media(block.data, block.mime_type)
        case mcp_types.AudioContent():
            return _media(block.data, block.mime_type, "audio")
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as text):
            return Text(0, f"{text.uri}:\n{text.text}")
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as blob):
            name = urlsplit(str(blob.uri)).path.rpartition("/")[2]
            return _media(blob.blob, blob.mime_type or "application/octet-stream", name)
        case mcp_types.ResourceLink():
            facts = [str(fact) for fact in (block.title or block.name, block.mime_type, block.description) if fact]
            return Text(0, f"{block.uri} ({', '.join(facts)})")
        case _:
            return Text(0, block.model_dump_json(by_alias=True, exclude_unset=True))


def _is_base64(data: str) -> bool:
    """Whether this is valid base64; with invalid data, a provider would reject this and every later request."""
    try:
        return bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def _media(data: str, kind: str, name: str = "") -> ResultPart:
    if len(data) * 3 // 4 > MAX_MEDIA:
        return Text(0, f"({kind} of {len(data) * 3 // 4} bytes: too large to be shown)")
    if not _KIND.fullmatch(kind) or not _is_base64(data):
        return Text(0, f"(a part of the type {kind[:100]!r} that cannot be shown: it is not valid)")
    url = f"data:{kind};base64,{data}"
    return Image(url, kind) if kind.startswith("image/") else File(url, kind, name)
