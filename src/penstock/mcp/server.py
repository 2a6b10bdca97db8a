"""The tools of an MCP server as a source of tools for agents."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.errors import UsageError
from penstock.loggers import get_logger
from penstock.mcp.errors import ServerError, expect_sdk
from penstock.mcp.loop import mcp_loop, run_blocking, run_on_loop
from penstock.results import ToolOutput
from penstock.tools.options import ExecutionOptions, ToolOptions, check_options
from penstock.tools.source import Listing, ToolSource
from penstock.tools.tool import Context

if TYPE_CHECKING:
    from mcp import Client

    from penstock.mcp.connection import Connection
    from penstock.mcp.content import OutputSchema
    from penstock.mcp.declared import ToolRules


MAX_MESSAGE = 16 * 1024 * 1024
"""The bytes of one message of a server, unless the caller sets another cap."""

MAX_NAME = 80
"""The characters of the name that a server has in messages."""

MAX_REPORTED = 20
"""The omitted tools whose reasons are logged; `skipped` has all of them."""

_logger = get_logger("penstock.mcp")


class Address(Struct, frozen=True):
    """The address of a server: its URL, its command, or an object of the SDK (or a function that makes one)."""

    server: Any
    headers: Any = {}  # `http.Headers`, whose module needs the SDK
    env: Mapping[str, str] = {}
    cwd: str | Path | None = None
    max_message: int = MAX_MESSAGE

    @property
    def name(self) -> str:
        """A short name for messages."""
        match self.server:
            case str():
                return urlsplit(self.server).netloc.rpartition("@")[2]  # without a password
            case list() | tuple():
                return " ".join([Path(self.server[0]).name, *self.server[1:]])[:MAX_NAME]
            case _:
                return str(getattr(self.server, "name", "") or type(self.server).__name__)

    def client(self, **callbacks: Any) -> Client:
        """A client of the SDK for a new connection."""
        from mcp import Client, StdioServerParameters

        from penstock.mcp.stdio import Subprocess

        match self.server:
            case str():
                from penstock.mcp.http import connect

                transport: Any = connect(self.server, self.headers, self.max_message)
            case list() | tuple():
                transport = Subprocess(self.server, self.env, self.cwd, self.max_message).connect()
            case StdioServerParameters(command=command, args=arguments, env=env, cwd=cwd):
                transport = Subprocess([command, *arguments], env or {}, cwd, self.max_message).connect()
            case _:
                is_factory = callable(self.server) and not hasattr(self.server, "run")
                transport = self.server() if is_factory else self.server
        return Client(transport, **callbacks)


class State:
    """The connection of a server in this process, and its listed tools."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = asyncio.Lock()
        self.connection: Connection | None = None
        self.listing: Listing | None = None
        self.listed: list[Any] = []
        self.is_closed = False


class MCPTools(ToolSource):
    """The tools of an MCP server, for `Agent(tools=[…])`: see `penstock.mcp.tools`.

    It connects when an agent first needs its tools, or when it is entered (`with` or `async with`), which also closes
    it. If the connection ends, the next call opens another. `skipped` says which tools were left out, and why.
    """

    def __init__(self, address: Address, rules: ToolRules, name: str, seconds: float, input_seconds: float) -> None:
        self.name = name or address.name
        self.skipped: dict[str, str] = {}
        self._address = address
        self._rules = rules
        self._seconds = seconds
        self._input_seconds = input_seconds
        self._state = State()

    def __repr__(self) -> str:
        return f"MCPTools({self.name!r})"

    def __enter__(self) -> Self:
        self._reopen()
        self.listing()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._reopen()
        await self.alisting()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        connection = getattr(getattr(self, "_state", None), "connection", None)
        if connection is not None and connection.is_open and self._state.process == os.getpid():
            try:
                mcp_loop.begin(connection.close(), _empty())
            except RuntimeError:  # the interpreter is shutting down
                pass

    # -- the tools -------------------------------------------------------------------------------------------------

    @property
    def is_listed(self) -> bool:
        """Whether the tools are known."""
        return self._here.listing is not None

    @property
    def instructions(self) -> str:
        """What the server says about the use of its tools; empty before the first connection."""
        connection = self._here.connection
        return connection.instructions if connection is not None and connection.is_open else ""

    def listing(self) -> Listing:
        """The tools as they are now; connects if that is needed."""
        return run_blocking(self._list())

    async def alisting(self) -> Listing:
        """The tools as they are now; connects if that is needed."""
        return await run_on_loop(self._list())

    def close(self) -> None:
        """Close the connection; a server that is a subprocess ends."""
        run_blocking(self._close())

    async def aclose(self) -> None:
        """Close the connection; a server that is a subprocess ends."""
        await run_on_loop(self._close())

    async def acall(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool of the server by the server's own name for it, without an agent: nobody is asked."""
        from penstock.mcp.content import OutputSchema

        return await self._call(name, arguments, OutputSchema(), Context(None))

    # -- on the loop of the connections ------------------------------------------------------------------------------

    async def _list(self) -> Listing:
        state = self._here
        async with state.lock:
            try:
                connection = await self._connected(state)
                if connection.is_stale or state.listing is None:
                    listed = await self._listed(connection)
                    self._take(state, listed, connection.skipped)
            except ServerError as error:
                if state.listing is None or state.is_closed:
                    raise
                _logger.warning("the tools of the MCP server %s cannot be listed: %s", self.name, error)
        assert state.listing is not None
        return state.listing

    async def _listed(self, connection: Connection) -> list[Any]:
        try:
            return list(await asyncio.wait_for(connection.list_tools(), self._seconds))
        except TimeoutError:
            problem = f"the MCP server {self.name} did not list its tools within {self._seconds:g} seconds"
            raise ServerError(problem) from None

    def _take(self, state: State, listed: list[Any], invalid: dict[str, str]) -> None:
        """Store the listed tools; the listing stays the same object if nothing has changed."""
        from penstock.mcp.declared import declare, unknown_names

        if state.listing is not None and listed == state.listed:
            return
        state.listing, skipped = declare(listed, self._rules, self._call)
        self.skipped = {**invalid, **skipped}
        state.listed = listed
        for name in unknown_names(listed, self._rules):
            _logger.warning("the MCP server %s has no tool %r, which only= or overrides= names", self.name, name)
        for name, why in islice(self.skipped.items(), MAX_REPORTED):
            _logger.warning("the tool %r of the MCP server %s is left out: %s", name, self.name, why)
        if (more := len(self.skipped) - MAX_REPORTED) > 0:
            _logger.warning("%d more tools of the MCP server %s are left out: see .skipped", more, self.name)

    async def _connected(self, state: State) -> Connection:
        """The connection; opens one if there is none."""
        from penstock.mcp.connection import Connection

        if state.is_closed:
            raise ServerError(f"the MCP server {self.name} is closed: enter it again, or create another")
        if state.connection is None or not state.connection.is_open:
            if state.connection is not None:
                await state.connection.close()
            state.connection = Connection(self.name, self._address.client, self._input_seconds)
            await state.connection.open(self._seconds)
        return state.connection

    async def _close(self) -> None:
        state = self._here
        async with state.lock:
            state.is_closed = True
            if state.connection is not None:
                await state.connection.close()

    async def _send(self, name: str, arguments: dict[str, Any], schema: OutputSchema, call: Any, progress: Any) -> Any:
        """Call a tool on the connection."""
        from penstock.mcp.content import as_output

        state = self._here
        async with state.lock:
            connection = await self._connected(state)
        return as_output(await connection.call(name, arguments, call, progress), schema)

    # -- on the loop of a run ----------------------------------------------------------------------------------------

    async def _call(
        self, name: str, arguments: dict[str, Any], schema: OutputSchema, context: Context[Any]
    ) -> ToolOutput:
        """Call a tool, from the loop of a run."""
        from penstock.mcp.questions import RunningCall

        relay = ProgressRelay(context.report)
        try:
            work = self._send(name, arguments, schema, RunningCall(context), relay.offer)
            output: ToolOutput = await run_on_loop(work)
        finally:
            relay.close()
        return output

    @property
    def _here(self) -> State:
        """The state in this process: a child process has a connection of its own."""
        if self._state.process != os.getpid():
            self._state = State()
        return self._state

    def _reopen(self) -> None:
        if self._here.is_closed:
            self._state = State()


def _empty() -> Any:
    from contextvars import Context as Variables

    return Variables()


def tools(
    server: str | Sequence[str] | Callable[[], Any] | Any,
    *,
    name: str = "",
    prefix: str = "",
    only: Iterable[str] | None = None,
    trust_hints: bool = False,
    overrides: Mapping[str, ToolOptions] | None = None,
    headers: Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    connect_timeout: float = 30.0,
    input_timeout: float = 300.0,
    max_message: int = MAX_MESSAGE,
    **options: Unpack[ExecutionOptions],
) -> MCPTools:
    """The tools of an MCP server, for `Agent(tools=[…])`.

    - `server`: the URL of a server (streamable HTTP), its command as a list (standard input and output), or what
      `mcp.Client` of the SDK takes, such as a server in this process; a function that makes it, if it can be used once.
    - `name`: the name of the server in messages.
    - `only`, `prefix`: which tools to use, and what to put before their names.
    - `headers`: for a URL; or a function that returns them for each request, sync or async.
    - `env`, `cwd`: for a command. It gets `PATH` and the like, and of other environment variables only those in `env`.
    - `connect_timeout`: how many seconds connecting and listing the tools may take.
    - `input_timeout`: how many seconds a question of the server waits for an answer.
    - `max_message`: the size of the largest message that is accepted from the server, in bytes.
    - `overrides`: options of single tools, by the server's names. Other keywords, such as `approval`, `timeout` and
      `read_only`, are options of all tools.

    Where these options say nothing, the annotations of the server count: `destructiveHint` asks for approval,
    `idempotentHint` lets a tool run again after a crash. `readOnlyHint` lets a tool start before its call is confirmed
    only with `trust_hints=True`: a server may be wrong.
    """
    expect_sdk()
    from penstock.mcp.declared import ToolRules

    address = Address(_checked(server), headers or {}, env or {}, cwd, max_message)
    every: Any = options
    check_options(every, "tools of an MCP server")
    for tool_name, own in (overrides or {}).items():
        check_options(own, tool_name)
    rules = ToolRules(prefix, None if only is None else frozenset(only), trust_hints, every, overrides or {})
    return MCPTools(address, rules, name, connect_timeout, input_timeout)


def _checked(server: Any) -> Any:
    if isinstance(server, str) and not server.startswith(("http://", "https://")):
        raise UsageError(f"{server!r} is not a URL of an MCP server; pass a command as a list: {server.split()!r}")
    if isinstance(server, Sequence) and not isinstance(server, str):
        command = list(server)
        if not command or not all(isinstance(part, str | Path) for part in command):
            raise UsageError(f"the command of an MCP server must be a list of strings, not {server!r}")
        return [str(part) for part in command]
    return server


INTERVAL = 0.05
"""The minimum seconds between two reports of one call. If a server reports more often, the newest report counts."""


class ProgressRelay:
    """Passes on the progress of a call; created and closed on the loop of the run."""

    def __init__(self, report: Callable[[Any], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._latest: dict[str, Any] | None = None
        self._is_due = False
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def offer(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on progress of the server; called on the loop of the connections, and never waits."""
        self._latest = {"progress": progress, "total": total, "message": message}
        if not self._is_due:
            self._is_due = True
            try:
                self._loop.call_soon_threadsafe(self._schedule)
            except RuntimeError:  # the loop is closed
                pass

    def close(self) -> None:
        """Report the remaining progress: the call has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    def _schedule(self) -> None:
        delay = max(0.0, self._next - self._loop.time())
        self._timer = self._loop.call_later(delay, self._flush)

    def _flush(self) -> None:
        self._is_due = False
        latest, self._latest = self._latest, None
        if latest is not None:
            self._next = self._loop.time() + INTERVAL
            self._report({key: value for key, value in latest.items() if value is not None})
