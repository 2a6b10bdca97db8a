"""`Client` and `AsyncClient`: start, follow and steer runs on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

import msgspec

from penstock.errors import UsageError
from penstock.log.position import Position
from penstock.log.store import RunPhase
from penstock.serve.client.carriers import AsyncCarrier, Carrier, ClientSettings
from penstock.serve.client.exchange import Exchange, request, run_path
from penstock.serve.client.remote_run import AsyncRemoteRun, RemoteRun
from penstock.serve.runs.replies import ModelList, RunList, RunState, RunSummary, StartedRun, ThreadState

if TYPE_CHECKING:
    import httpx2


class Client:
    """A client of served agents, for sync code.

        with Client("http://127.0.0.1:8000") as client, client.start("Where is my parcel?") as run:
            for event in run: ...

    `timeout` is for each request, `idle` for the silence of a stream, both in seconds. A stream that breaks off, and a
    request that can be repeated, is tried again up to `tries` times in a row. `client` is your own `httpx2.Client`,
    with the address of the server as its `base_url`.
    """

    def __init__(
        self, url: str, *, token: str = "", timeout: float = 30.0, idle: float = 45.0, tries: int = 8,
        client: httpx2.Client | None = None,
    ) -> None:  # fmt: skip
        settings = _settings(url, token, timeout, idle, tries)
        self._carrier = Carrier(settings, client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Runs continue."""
        self._carrier.close()

    def start(self, prompt: Any, *, agent: str = "", thread: str = "", key: str = "") -> RemoteRun:
        """Start a run, in the conversation `thread` or alone.

        `prompt` is text, or a list of parts; `agent` may be left out if the server has only one. A start with the `key`
        of an earlier one joins its run.
        """
        request = _start(prompt, agent, thread, key or self._carrier.new_key(), self._carrier.tries)
        started = msgspec.convert(self._carrier.send(request), StartedRun)
        return RemoteRun(self._carrier, started.id, thread=thread)

    def fork(self, run_id: str, at: int | str, *, say: Any = None, model: str = "", key: str = "") -> RemoteRun:
        """Start a run with the events of another one until the event `at`: a number, or a position of its stream.

        It continues with another message (`say`), or with another `model`, one of those that the agent names. The same
        fork with the `key` of an earlier one joins that.
        """
        request = _fork(run_id, at, say, model, key or self._carrier.new_key(), self._carrier.tries)
        started = msgspec.convert(self._carrier.send(request), StartedRun)
        return RemoteRun(self._carrier, started.id, thread=started.thread)

    def follow(self, run_id: str, after: int | str = 0) -> RemoteRun:
        """An existing run, read from after a position (`run.position`), its token, or an event number."""
        return RemoteRun(self._carrier, run_id, after)

    def find(self, run_id: str) -> RunState:
        """The state of a run."""
        return msgspec.convert(self._get(run_path(run_id)), RunState)

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None
    ) -> list[RunSummary]:
        """The newest runs with these properties."""
        return msgspec.convert(self._get(_list_path(state, agent, thread)), RunList).runs

    def thread(self, thread: str) -> ThreadState:
        """A conversation: its messages, its runs, and the current run."""
        return msgspec.convert(self._get(f"/threads/{quote(thread, safe='')}"), ThreadState)

    def agents(self) -> tuple[str, ...]:
        """The names of the agents."""
        return tuple(entry.id for entry in msgspec.convert(self._get("/v1/models"), ModelList).data)

    def _get(self, path: str) -> Any:
        return self._carrier.send(request("GET", path, tries=self._carrier.tries))


class AsyncClient:
    """A client of served agents, for async code: see `Client`. `client` is your own `httpx2.AsyncClient`."""

    def __init__(
        self, url: str, *, token: str = "", timeout: float = 30.0, idle: float = 45.0, tries: int = 8,
        client: httpx2.AsyncClient | None = None,
    ) -> None:  # fmt: skip
        settings = _settings(url, token, timeout, idle, tries)
        self._carrier = AsyncCarrier(settings, client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Runs continue."""
        await self._carrier.close()

    async def start(self, prompt: Any, *, agent: str = "", thread: str = "", key: str = "") -> AsyncRemoteRun:
        """Start a run, in a thread or alone: see `Client.start`."""
        request = _start(prompt, agent, thread, key or self._carrier.new_key(), self._carrier.tries)
        reply = await self._carrier.send(request)
        return AsyncRemoteRun(self._carrier, msgspec.convert(reply, StartedRun).id, thread=thread)

    async def fork(
        self, run_id: str, at: int | str, *, say: Any = None, model: str = "", key: str = ""
    ) -> AsyncRemoteRun:
        """Start a run with the events of another one until an event: see `Client.fork`."""
        request = _fork(run_id, at, say, model, key or self._carrier.new_key(), self._carrier.tries)
        started = msgspec.convert(await self._carrier.send(request), StartedRun)
        return AsyncRemoteRun(self._carrier, started.id, thread=started.thread)

    def follow(self, run_id: str, after: int | str = 0) -> AsyncRemoteRun:
        """An existing run, read from after a position (`run.position`), its token, or an event number."""
        return AsyncRemoteRun(self._carrier, run_id, after)

    async def find(self, run_id: str) -> RunState:
        """The state of a run."""
        return msgspec.convert(await self._get(run_path(run_id)), RunState)

    async def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None
    ) -> list[RunSummary]:
        """The newest runs with these properties."""
        return msgspec.convert(await self._get(_list_path(state, agent, thread)), RunList).runs

    async def thread(self, thread: str) -> ThreadState:
        """A conversation: its messages, its runs, and the current run."""
        return msgspec.convert(await self._get(f"/threads/{quote(thread, safe='')}"), ThreadState)

    async def agents(self) -> tuple[str, ...]:
        """The names of the agents."""
        return tuple(entry.id for entry in msgspec.convert(await self._get("/v1/models"), ModelList).data)

    async def _get(self, path: str) -> Any:
        return await self._carrier.send(request("GET", path, tries=self._carrier.tries))


def _settings(url: str, token: str, timeout: float, idle: float, tries: int) -> ClientSettings:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"the address of a server begins with http:// or https://, not {url!r:.60}")
    return ClientSettings(url=url, token=token, timeout=timeout, idle=idle, tries=tries)


def _start(prompt: Any, agent: str, thread: str, key: str, tries: int) -> Exchange[Any]:
    """The request of a start. It can be repeated: the server starts one run per key."""
    body = {"prompt": prompt, "agent": agent, "thread": thread}
    return request("POST", "/runs", body, tries=tries, key=key)


def _fork(run_id: str, at: int | str, say: Any, model: str, key: str, tries: int) -> Exchange[Any]:
    """The request of a fork. It can be repeated, as a start can."""
    place = at.token if isinstance(at, Position) else at
    body = {"at": place, "model": model} if say is None else {"at": place, "model": model, "say": say}
    return request("POST", f"{run_path(run_id)}/fork", body, tries=tries, key=key)


def _list_path(state: str | None, agent: str | None, thread: str | None) -> str:
    selection = {"state": state, "agent": agent, "thread": thread}
    query = urlencode({name: value for name, value in selection.items() if value is not None})
    return f"/runs?{query}" if query else "/runs"
