"""One connection to an MCP server: a task that opens and closes it, and the requests on it."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from penstock.loggers import get_logger
from penstock.mcp.errors import ServerError
from penstock.mcp.questions import CALL, RunningCall
from penstock.results import MAX_PARTS

MAX_PAGES = 100
"""The pages of a list of tools; a server may never send the last one."""

INFO = mcp_types.Implementation(name="penstock", version="2")

_CLOSE_SECONDS = 5.0
_logger = get_logger("penstock.mcp")


class Connection:
    """A connection to a server. Everything here runs on the loop of the connections.

    `open_client` makes a client of the SDK with these callbacks. `is_stale`: the list of tools may have changed.
    `skipped`: why listed tools are invalid, by name.
    """

    def __init__(self, name: str, open_client: Callable[..., Client], input_seconds: float) -> None:
        self._name = name
        self._input_seconds = input_seconds
        self._client = open_client(message_handler=self._received, elicitation_callback=self._asked, client_info=INFO)
        self._calls: list[RunningCall] = []
        self._is_wanted = asyncio.Event()
        self._is_watched = True
        self._is_cut = False  # the list of tools
        self._task: asyncio.Task[None] | None = None
        self.skipped: dict[str, str] = {}
        self.is_open = False
        self.is_stale = True

    @property
    def instructions(self) -> str:
        """What the server says about its use."""
        return self._client.instructions or ""

    async def open(self, seconds: float) -> None:
        """Connect; a `ServerError` on failure or timeout."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # In a context of its own: the connection outlives the run that needs it first.
        self._task = asyncio.create_task(self._run(opened), context=contextvars.Context())
        try:
            await asyncio.wait_for(asyncio.shield(opened), seconds)
        except TimeoutError:
            self._task.cancel()
            await self.close()
            raise ServerError(f"the MCP server {self._name} did not answer within {seconds:g} seconds") from None
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def close(self) -> None:
        """Close the connection, and wait until its task has ended."""
        self._is_wanted.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if not done:
            self._task.cancel()

    async def list_tools(self) -> list[mcp_types.Tool]:
        """All tools of the server."""
        self.is_stale = not self._is_watched
        self.skipped.clear()
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        try:
            async with self._errors(
                "while it listed its tools", f"the MCP server {self._name} cannot list its tools: "
            ):
                for _ in range(MAX_PAGES):
                    page = await self._client.list_tools(
                        cursor=cursor, cache_mode="refresh" if cursor is None else "use"
                    )
                    tools += page.tools
                    if not (cursor := page.next_cursor):  # some servers write an empty one on the last page
                        break
                else:
                    self._report_rest()
        except BaseException:  # also a timeout, which cancels this
            self.is_stale = True
            raise
        return tools

    async def call(
        self, name: str, arguments: dict[str, Any], call: RunningCall, on_progress: Any
    ) -> mcp_types.CallToolResult:
        """Call a tool; if this is cancelled, the server is notified."""
        self._calls.append(call)
        token = CALL.set(call)
        try:
            async with self._errors("during the call, so it may have had an effect"):
                return await self._client.call_tool(name, arguments, progress_callback=on_progress)
        finally:
            CALL.reset(token)
            self._calls.remove(call)

    def _report_rest(self) -> None:
        """Warn, once, that the list of tools was cut."""
        if not self._is_cut:
            self._is_cut = True
            problem = "the MCP server %s lists its tools on more than %d pages (MAX_PAGES): the rest is left out"
            _logger.warning(problem, self._name, MAX_PAGES)

    async def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self._client as client:
                session: Any = client.session
                session.validate_tool_result = _accept  # a result that does not fit its schema is still a result
                make_lenient(session, self.skipped.__setitem__)
                self.is_open = True
                if not opened.done():
                    opened.set_result(None)
                await self._stay(client)
        except Exception as error:  # noqa: BLE001  # a transport may fail in any way
            if not opened.done():
                opened.set_exception(ServerError(f"the MCP server {self._name} cannot be reached: {reason(error)}"))
            elif not self._is_wanted.is_set():
                _logger.warning("the connection to the MCP server %s has ended: %s", self._name, reason(error))
        finally:
            self.is_open = False

    async def _stay(self, client: Client) -> None:
        """Keep the connection open until it is closed; watch the list of tools meanwhile."""
        capability = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        watching = asyncio.create_task(self._watch(client)) if is_modern else None
        if not is_modern:
            self._is_watched = True  # by notifications; without them the list does not change
        elif capability is None or not capability.list_changed:
            self._is_watched = False
        try:
            await self._is_wanted.wait()
        finally:
            if watching is not None:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def _watch(self, client: Client) -> None:
        """Subscribe to changes of the tool list (protocol of 2026); without it, each step lists the tools."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._is_watched = bool(changes.honored.tools_list_changed)
                async for _ in changes:
                    self.is_stale = True
        except (MCPError, SubscriptionLost, RuntimeError, TimeoutError):
            pass
        self._is_watched, self.is_stale = False, True

    async def _received(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.is_stale = True

    async def _asked(self, context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        """Answer a question of the server, for the call that it names, or else for the newest call."""
        call = CALL.get() or (self._calls[-1] if self._calls else None)
        return mcp_types.ElicitResult(action="cancel") if call is None else await call.ask(params, self._input_seconds)

    @asynccontextmanager
    async def _errors(self, when: str, problem: str = "") -> AsyncGenerator[None]:
        """Raise errors of the SDK as a `ServerError`, with `problem` before the server's message.

        A closed connection is not used again.
        """
        try:
            yield
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED or not self.is_open or "Session terminated" in error.message:
                self.is_open = False
                raise ServerError(
                    f"The MCP server {self._name} ended the connection {when} ({error.message})."
                ) from None
            raise ServerError(f"{problem}{error.message}") from None
        except ValidationError as error:
            first = error.errors()[0]
            raise ServerError(f"The MCP server {self._name} sent an invalid message: {first['msg']}.") from None


async def _accept(name: str, result: mcp_types.CallToolResult) -> None:
    """Replaces the SDK's validation, which would raise and lose the result."""


def reason(error: BaseException) -> str:
    """The first error in an exception group of the SDK, as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


# Lenient reading of lists and results: one invalid tool or one unknown kind of content does not discard the rest.
#
# The SDK validates a message as a whole, and raises. Here an invalid tool is left out of its list and reported, and
# content of an unknown kind becomes text.


MAX_LISTED = 5000
"""The tools on one page of a list that are read."""

Skip = Callable[[str, str], None]


def make_lenient(session: Any, skip: Skip) -> None:
    """Make a session of the SDK accept the valid part of a message; `skip` gets the name of a tool, and the reason."""
    dispatcher: Any = getattr(session, "_dispatcher", None)
    strict = getattr(dispatcher, "send_raw_request", None)
    if strict is None:  # in another version of the SDK: then it is strict
        return

    async def send(method: str, *arguments: Any, **options: Any) -> Any:
        raw = await strict(method, *arguments, **options)
        return _valid_part(method, session.protocol_version or "2025-11-25", raw, skip)

    dispatcher.send_raw_request = send


def _valid_part(method: str, version: str, raw: dict[str, Any], skip: Skip) -> dict[str, Any]:
    """The valid part of a message. It is shortened first, because the SDK takes a second for 30,000 items."""
    raw = _shortened(method, raw, skip)
    match method, raw:
        case "tools/list", {"tools": list(tools)} if _problem(method, version, raw):
            kept: list[Any] = []
            for tool in tools:
                if problem := _problem(method, version, {**raw, "tools": [tool]}):
                    skip(str(tool.get("name", "") if isinstance(tool, dict) else tool)[:100], problem)
                else:
                    kept.append(tool)
            return {**raw, "tools": kept}
        case "tools/call", {"content": list(blocks)} if _problem(method, version, raw):
            readable = [
                {"type": "text", "text": json.dumps(block)}
                if _problem(method, version, {**raw, "content": [block]})
                else block
                for block in blocks
            ]
            return {**raw, "content": readable}
        case _:
            return raw


def _shortened(method: str, raw: dict[str, Any], skip: Skip) -> dict[str, Any]:
    """The message with a limited number of tools or result parts."""
    match method, raw:
        case "tools/list", {"tools": list(tools)} if len(tools) > MAX_LISTED:
            skip("…", f"the server lists {len(tools)} tools at once, of which only {MAX_LISTED} are read")
            return {**raw, "tools": tools[:MAX_LISTED]}
        case "tools/call", {"content": list(blocks)} if len(blocks) > MAX_PARTS:
            left = len(blocks) - MAX_PARTS + 1
            note = {"type": "text", "text": f"… {left} more parts were left out …"}
            return {**raw, "content": [*blocks[: MAX_PARTS - 1], note]}
        case _:
            return raw


def _problem(method: str, version: str, raw: dict[str, Any]) -> str:
    """Why a result is invalid in this protocol version; empty if it is valid."""
    try:
        methods.validate_server_result(method, version, raw)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except KeyError:  # a method that this version does not have
        pass
    return ""
