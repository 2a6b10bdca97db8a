"""The web tools that the gateway runs for a request, as functions: their declarations, and their earlier calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.gateway.config.settings import WebTool
from penstock.history.client_request import ClientRequest
from penstock.wires import find_web_form
from penstock.wires.shared.web_tools import ARGUMENTS, FETCH, SEARCH, FindText, restore_calls

DESCRIPTIONS = {
    SEARCH: "Search the web. The result has titles, addresses and excerpts of pages.",
    FETCH: "Fetch the content of a web page. The URL must be one that was mentioned in the conversation.",
}


class WebToolUse(Struct, frozen=True, kw_only=True):
    """A web tool that a client has declared and the gateway runs, and the limits that the client has set."""

    name: str
    tool: WebTool
    max_uses: int | None = None
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def allows(self, url: str) -> bool:
        """Whether the client accepts pages of this host."""
        host = host_of(url)
        return (not self.allowed or _is_in(host, self.allowed)) and not _is_in(host, self.blocked)


Uses = Mapping[str, WebToolUse]


def host_of(url: str) -> str:
    """The host of an HTTP address; empty if it is not one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return (parts.hostname or "").lower() if parts.scheme in ("http", "https") else ""


def web_tool_uses(request: ClientRequest, foreign: tuple[ToolDeclaration, ...], tools: Mapping[str, WebTool]) -> Uses:
    """The web tools of a request that the gateway runs, of those that the provider does not have (`foreign`)."""
    form = find_web_form(request.wire)
    if form is None or not tools or not foreign:
        return {}
    functions = {tool.name for tool in request.settings.tools if tool.hosted is None}
    uses: dict[str, WebToolUse] = {}
    for tool in foreign:
        name = form.tool_of(tool)
        if name in tools and name not in functions:
            uses[name] = _use(name, tools[name], tool.hosted or {})
    return uses


def _use(name: str, tool: WebTool, declared: Mapping[str, Any]) -> WebToolUse:
    filters = declared.get("filters")  # where Responses has the domains
    fields = {**declared, **filters} if isinstance(filters, Mapping) else declared
    most = fields.get("max_uses")
    return WebToolUse(
        name=name, tool=tool, max_uses=most if isinstance(most, int) else None,
        allowed=_domains(fields.get("allowed_domains")), blocked=_domains(fields.get("blocked_domains")),
    )  # fmt: skip


def _domains(value: Any) -> tuple[str, ...]:
    """The hosts in a list of domains, which may have paths."""
    domains = value if isinstance(value, list) else []
    return tuple(domain.partition("/")[0].lower() for domain in domains if isinstance(domain, str))


def _is_in(host: str, domains: tuple[str, ...]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def with_functions(request: ClientRequest, uses: Uses, find: FindText) -> ClientRequest:
    """The request with functions in place of the web tools, and of their calls in the history."""
    form = find_web_form(request.wire)
    assert form is not None, request.wire
    tools: dict[str, ToolDeclaration] = {}
    for number, tool in enumerate(request.settings.tools):
        name = "" if tool.hosted is None else form.tool_of(tool)
        tools.setdefault(name if name in uses else f"{number}", _function(name) if name in uses else tool)
    settings = replace(request.settings, tools=tuple(tools.values()))
    return replace(request, messages=restore_calls(request.messages, form, find), settings=settings)


def _function(name: str) -> ToolDeclaration:
    argument = ARGUMENTS[name]
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return ToolDeclaration(name, DESCRIPTIONS[name], schema)


def without_functions(request: ClientRequest, uses: Uses) -> ClientRequest:
    """The request without the web tools, so that the model has to answer."""
    form = find_web_form(request.wire)
    assert form is not None, request.wire
    tools = tuple(tool for tool in request.settings.tools if tool.hosted is None or form.tool_of(tool) not in uses)
    return replace(request, settings=replace(request.settings, tools=tools))
