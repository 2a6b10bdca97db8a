"""Listed tools of a server as tools of an agent: names, schemas, and the meaning of their annotations."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types
from msgspec import Struct

from penstock.errors import UsageError
from penstock.mcp.content import OutputSchema
from penstock.results import ToolOutput
from penstock.tools.options import ToolOptions
from penstock.tools.signature import Context
from penstock.tools.tool import Tool

MAX_TOOLS = 1000
"""The tools of a server; more are left out."""

MAX_SCHEMA = 256 * 1024
"""The characters of a tool's schema as JSON; a tool with a longer one is left out."""

MAX_DECLARATIONS = 4 * 1024 * 1024
"""The characters of the descriptions and schemas of all tools of a server, which go with every request."""

MAX_DESCRIPTION = 20_000
"""The characters of a tool's description; a longer one is truncated."""

CALL_SECONDS = 300.0
"""The timeout of a call, unless the caller sets another."""

Call = Callable[[str, dict[str, Any], OutputSchema, Context[Any]], Awaitable[ToolOutput]]

_INVALID = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH = 64  # which most providers allow, while the protocol allows 128
_DIGEST_LENGTH = 8


class ToolRules(Struct, frozen=True):
    """How the tools of a server become tools of an agent: see `penstock.mcp.tools`."""

    prefix: str = ""
    only: frozenset[str] | None = None
    trust_hints: bool = False
    options: ToolOptions = {}
    overrides: Mapping[str, ToolOptions] = {}

    def options_of(self, listed: mcp_types.Tool) -> dict[str, Any]:
        """The options of a tool: from its annotations, then the caller's for all tools, then for this one."""
        return {"timeout": CALL_SECONDS, **self._hints(listed), **self.options, **self.overrides.get(listed.name, {})}

    def _hints(self, listed: mcp_types.Tool) -> dict[str, Any]:
        """The options from annotations. Without the caller's consent, none of them lets a tool start early."""
        hints = listed.annotations or mcp_types.ToolAnnotations()
        options: dict[str, Any] = {}
        if hints.idempotent_hint or hints.read_only_hint:
            options["idempotent"] = True
        if hints.read_only_hint and self.trust_hints:
            options["read_only"] = True
        if hints.destructive_hint and not (hints.read_only_hint and self.trust_hints):  # the more careful hint counts
            options["approval"] = True
        return options


def declare(
    listed: list[mcp_types.Tool], rules: ToolRules, call: Call
) -> tuple[tuple[Tool[..., Any], ...], dict[str, str]]:
    """The tools, and the reasons for omitted ones, by name."""
    tools: dict[str, Tool[..., Any]] = {}
    skipped: dict[str, str] = {}
    size = 0
    for listed_tool in listed:
        if rules.only is not None and listed_tool.name not in rules.only:
            continue
        try:
            more = _size(listed_tool)
            tool = _declared(listed_tool, rules, call)
        except UsageError as error:
            skipped[listed_tool.name] = str(error)
            continue
        if tool.name in tools:
            skipped[listed_tool.name] = f"another tool of the server is called {tool.name!r} already"
        elif len(tools) >= MAX_TOOLS:
            skipped[listed_tool.name] = f"the server has more than {MAX_TOOLS} tools: choose some with only="
        elif size + more > MAX_DECLARATIONS:
            skipped[listed_tool.name] = (
                f"the tools of the server have more than {MAX_DECLARATIONS} characters: use only="
            )
        else:
            tools[tool.name] = tool
            size += more
    return tuple(tools.values()), skipped


def unknown_names(listed: list[mcp_types.Tool], rules: ToolRules) -> list[str]:
    """The names in `only` and `overrides` that the server does not have: their options have no effect."""
    names = {tool.name for tool in listed}
    return sorted({*(rules.only or ()), *rules.overrides} - names)


def _size(listed: mcp_types.Tool) -> int:
    """The characters of a declaration; a `UsageError` if its schema is too long."""
    schema = len(json.dumps(listed.input_schema))
    if schema > MAX_SCHEMA:
        raise UsageError(f"its schema has {schema} characters, and at most {MAX_SCHEMA} are read")
    return schema + len((listed.description or "")[:MAX_DESCRIPTION])


def _declared(listed: mcp_types.Tool, rules: ToolRules, call: Call) -> Tool[..., Any]:
    schema = OutputSchema(listed.output_schema)

    async def function(penstock_context: Context[Any], **arguments: Any) -> ToolOutput:
        return await call(listed.name, arguments, schema, penstock_context)

    name = _short_name(_INVALID.sub("_", f"{rules.prefix}{listed.name}"))
    description = (listed.description or listed.title or "")[:MAX_DESCRIPTION]
    options: Any = rules.options_of(listed)
    function.__name__ = function.__qualname__ = name
    return Tool.from_schema(name, description, listed.input_schema, function, **options)


def _short_name(name: str) -> str:
    """The name of a tool; a long name is truncated and gets a digest, the same in every process."""
    if len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _NAME_LENGTH - _DIGEST_LENGTH - 1]}_{digest}"
