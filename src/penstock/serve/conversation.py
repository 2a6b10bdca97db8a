"""Conversations of front ends: their runs, and the run that answers a message.

A client names its user messages. The name is kept in the start of the run that answers the message, so a message that
is sent again is answered once, and a client can ask for another answer to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.asgi.request import RejectedRequest
from penstock.log.starts.requests import StartRequest
from penstock.log.store import RunRow
from penstock.log.store_retries import awith_retries
from penstock.log.take_up import read_start
from penstock.messages import Message
from penstock.run.events import RunStart
from penstock.serve.hosting import THREAD_BUSY, Host, Origin
from penstock.serve.runs.bodies import MAX_ID

MAX_RUNS = 100
"""How many runs of a conversation are looked at, the newest first."""


class Exchange(Struct, frozen=True):
    """One run of a conversation, and the message that it answers."""

    row: RunRow
    start: RunStart

    @property
    def message_id(self) -> str:
        """The id of the user message that the run answers."""
        return str(self._meta.get("message") or f"{self.row.id}.user")

    @property
    def message(self) -> Message | None:
        """The user message that the run answers."""
        messages = self.start.messages
        return messages[-1] if messages and messages[-1].role == "user" else None

    @property
    def after(self) -> str:
        """The run that the conversation continues from; empty if this is the first."""
        return str(self._meta.get("after") or "")

    @property
    def _meta(self) -> dict[str, Any]:
        return self.start.meta if isinstance(self.start.meta, dict) else {}


class Conversation:
    """The conversation of a tenant in one thread."""

    def __init__(self, host: Host, thread: str, tenant: str) -> None:
        if not thread or not thread.isprintable() or len(thread) > MAX_ID:
            raise RejectedRequest(400, "invalid_id", f"the id of a chat has at most {MAX_ID} printable characters")
        self._host = host
        self._thread = thread
        self._tenant = tenant

    async def last(self) -> RunRow | None:
        """The newest run."""
        rows = await self._host.thread(self._thread, self._tenant, limit=1)
        return rows[0] if rows else None

    async def newest(self) -> Exchange | None:
        """The newest run, and the message that it answers."""
        row = await self.last()
        return await self._exchange(row) if row is not None else None

    async def exchanges(self) -> list[Exchange]:
        """The runs that lead to the newest one, in order, without replaced answers."""
        rows = await self._host.thread(self._thread, self._tenant, MAX_RUNS)
        by_id = {row.id: row for row in rows}
        exchanges: list[Exchange] = []
        row = rows[0] if rows else None
        while row is not None:
            exchange = await self._exchange(row)
            exchanges.append(exchange)
            row = by_id.pop(exchange.after, None)
        return exchanges[::-1]

    async def say(
        self, message: Message, id: str, agent: str = "", tools: Sequence[dict[str, Any]] = (),
        request: StartRequest | None = None,
    ) -> str:  # fmt: skip
        """Answer a new message; returns the id of the new run, or of the last run if that answers this message."""
        newest = await self.newest()
        if newest is not None and newest.message_id == id:
            return newest.row.id
        try:
            known = newest.row.id if newest is not None else ""
            return await self._start(agent, [message], Origin(id, tools=tools), newest=known, request=request)
        except RejectedRequest as error:
            # The same message may have been sent twice at once, and the other request have started the run meanwhile.
            newest = await self.newest() if error.code == THREAD_BUSY else None
            if newest is not None and newest.message_id == id:
                return newest.row.id
            raise

    async def replace(self, message: Message, id: str, agent: str = "", request: StartRequest | None = None) -> str:
        """Answer an edited message, from the history before it; returns the id of the run."""
        exchange = await self._find(id)
        history = exchange.start.messages[: -1 if exchange.message else None]
        origin = Origin(id, exchange.after)
        return await self._start(agent or exchange.row.agent, [message], origin, history, request=request)

    async def repeat(self, id: str = "", request: StartRequest | None = None) -> str:
        """Answer a message again, from the history before its answer; returns the id of the run.

        `id` is that of the message or of its answer, which is that of a run; without it, the last answer is repeated.
        """
        exchange = await self._find(id)
        origin = Origin(exchange.message_id, exchange.after)
        return await self._start(exchange.row.agent, [], origin, exchange.start.messages, request=request)

    async def _exchange(self, row: RunRow) -> Exchange:
        return Exchange(row, await awith_retries(lambda: read_start(self._host.store, row.id)))

    async def _start(
        self, agent: str, new: Sequence[Message], origin: Origin, history: Sequence[Message] | None = None,
        newest: str | None = None, request: StartRequest | None = None,
    ) -> str:  # fmt: skip
        return await self._host.start_in_thread(
            agent, new, tenant=self._tenant, thread=self._thread, origin=origin, history=history, newest=newest,
            request=request,
        )  # fmt: skip

    async def _find(self, id: str) -> Exchange:
        exchanges = await self.exchanges()
        for exchange in reversed(exchanges):
            if id in ("", exchange.row.id, exchange.message_id):
                return exchange
        raise RejectedRequest(404, "unknown_message", "the chat has no such message: load it again")
