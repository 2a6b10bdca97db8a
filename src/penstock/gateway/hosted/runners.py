"""Runs web tools: by a command, or by a tool of an MCP server."""

from __future__ import annotations

import asyncio
import os
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.events import Text
from penstock.gateway.config.settings import WebTool
from penstock.gateway.hosted.commands import Command, CommandFailed, run_command
from penstock.gateway.hosted.pages import read_output
from penstock.gateway.hosted.uses import WebToolUse, host_of
from penstock.messages import Message
from penstock.wires.shared.web_tools import (
    ARGUMENTS,
    FETCH,
    INVALID,
    NOT_ALLOWED,
    NOT_SEEN,
    UNAVAILABLE,
    WebCall,
    WebResult,
    failed_result,
)

if TYPE_CHECKING:
    from penstock.mcp.server import MCPTools

MAX_RUNNING = 16
"""How many web tools run at a time; others wait."""
MAX_TEXTS = 8 * 1024 * 1024
"""How many characters of results are kept, for clients that send back calls without their results."""


class WebTools:
    """The web tools of one gateway, with the connections to MCP servers, and the last results."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_RUNNING)
        self._servers: dict[WebTool, MCPTools] = {}
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def find_text(self, id: str) -> str | None:
        """The text of the result of a call, if it is still known."""
        return self._texts.get(id)

    async def run(self, use: WebToolUse, call: WebCall, messages: Iterable[Message]) -> tuple[WebResult, str]:
        """The result of a call, and the reason for the operator of the gateway if it failed."""
        if problem := _problem(use, call, messages):
            return failed_result(problem), problem
        async with self._slots:
            try:
                output = await self._output(use, call.argument)
            except (CommandFailed, PenstockError, TimeoutError) as error:
                return failed_result(UNAVAILABLE), str(error) or f"no result within {use.tool.seconds:g} seconds"
        result = read_output(output, use)
        self._keep(call.id, result.text)
        return result, ""

    async def _output(self, use: WebToolUse, argument: str) -> str:
        tool = use.tool
        if tool.mcp:
            async with asyncio.timeout(tool.seconds):
                return await self._call(use, argument)
        variables = {name: os.environ[name] for name in tool.env if name in os.environ}
        domains = {"PENSTOCK_ALLOWED_DOMAINS": use.allowed, "PENSTOCK_BLOCKED_DOMAINS": use.blocked}
        variables |= {name: ",".join(hosts) for name, hosts in domains.items() if hosts}
        line = " ".join(argument.split())  # a command may read one line
        return await run_command(Command(tool.command, variables), line, tool.seconds)

    async def _call(self, use: WebToolUse, argument: str) -> str:
        """The text that a tool of an MCP server returns."""
        from penstock.mcp.server import tools

        tool = use.tool
        if (server := self._servers.get(tool)) is None:
            environment = {name: os.environ[name] for name in tool.env if name in os.environ}
            address = tool.mcp if isinstance(tool.mcp, str) else list(tool.mcp)
            server = self._servers[tool] = tools(address, env=environment)
        output = await server.acall(tool.tool or use.name, {tool.argument or ARGUMENTS[use.name]: argument})
        parts = output.content if isinstance(output.content, list) else [output.content]
        text = "\n".join(part.text if isinstance(part, Text) else str(part) for part in parts)
        if output.is_error:
            raise CommandFailed(text)
        return text

    def _keep(self, id: str, text: str) -> None:
        self._texts[id] = text
        self._size += len(text)
        while self._size > MAX_TEXTS:
            self._size -= len(self._texts.popitem(last=False)[1])

    async def close(self) -> None:
        """Close the connections to MCP servers."""
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.aclose()


def _problem(use: WebToolUse, call: WebCall, messages: Iterable[Message]) -> str:
    """Why a call may not run; empty if it may."""
    if not call.argument.strip():
        return INVALID
    if use.name != FETCH:
        return ""
    if not host_of(call.argument) or not use.allows(call.argument):
        return NOT_ALLOWED
    return "" if any(_mentions(message, call.argument) for message in messages) else NOT_SEEN


def _mentions(message: Message, url: str) -> bool:
    """Whether a person or a tool has written this URL. A model could write one that carries data away."""
    if message.role == "assistant":
        return False
    whole = re.compile(re.escape(url) + _URL_END)
    return any(whole.search(text) for text in (message.text, *(result.text for result in message.results)))


_URL_END = r"""(?=[\s<>"'`()\[\]{}|,;!\\]|[.?:](?:\s|$)|$)"""
"""What comes after a URL in a text: a longer address is another one."""
