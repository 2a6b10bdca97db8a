"""Finds the run that answers a request of a stateless client.

| the request ends with | the run |
|---|---|
| a message of the user | a new one, from the history of the client |
| results of calls that a run waits for | this run: it continues, once |
| results that this run has got already, and it is under way | none: status 409, which clients send again |
| results of a run that has ended, or has gone on | a new one, from the state in which that run asked for them |
| results of calls of a run that does not exist for this tenant | none: status 404 |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from penstock.asgi.request import RejectedRequest
from penstock.errors import UsageError
from penstock.events import Usage
from penstock.log.store import RunRow
from penstock.log.store_retries import awith_retries
from penstock.messages import Message
from penstock.results import ToolResult, as_outcome
from penstock.run.events import ApprovalRequest, LogEvent, ToolEnd
from penstock.run.machine import Run
from penstock.runs.client_tools import client_tool_names
from penstock.serve.hosting import Host, Origin, read_events, start_meta
from penstock.serve.models.client_calls import CallRef
from penstock.serve.models.request import ModelRequest, Results, client_tools


class Answering(Struct, frozen=True):
    """A run that answers a request: its events after `after` are the response.

    `tools` are the names of the client's tools, `asked` the calls so far with the numbers of the events that asked for
    them, and `usage` is what earlier responses have reported.
    """

    run_id: str
    agent: str
    tools: frozenset[str]
    after: int = 0
    asked: Mapping[str, int] = {}
    usage: Usage = Usage()


async def find_run(host: Host, tenant: str, read: ModelRequest) -> Answering:
    """Start or continue the run that answers a request; a `RejectedRequest` if nothing was done."""
    request, results = read.request, read.results
    agent = host.agent_name(request.settings.model)
    tools = await client_tools(request, host.agent(agent))
    names = frozenset(tool["name"] for tool in tools)
    if results is None:
        id = await host.start(agent, read.messages, tenant=tenant, origin=Origin(tools=tools))
        return Answering(id, agent, names)
    row = await _find(host, tenant, results.run_id)
    if row.agent != agent:
        raise RejectedRequest(
            400, "other_agent", f"these calls belong to the agent {row.agent!r}: send its name as the model"
        )
    waiting = await awith_retries(lambda: WaitingRun(host, row, results))
    if waiting.has_open:
        return await waiting.give()
    row = await _find(host, tenant, row.id)  # again: it may have changed before its events were read
    if row.state in ("ready", "running"):
        raise under_way()
    messages = await awith_retries(waiting.history)
    origin = Origin(after=row.id, tools=tools)
    return Answering(await host.start(agent, messages, tenant=tenant, origin=origin), agent, names)


class WaitingRun:
    """A run that waits for client calls, and the results of the client. Constructing it blocks."""

    def __init__(self, host: Host, row: RunRow, results: Results) -> None:
        self._host = host
        self._row = row
        self._messages = results.messages
        self._events = read_events(host.store, row.id)
        self._tools = client_tool_names(host.agent(row.agent).config, start_meta(self._events))
        self._results = _by_call(self._events, self._tools, results.by_call)
        self._run = host.rebuild(row, self._events)
        waiting = {request.call_id for request in self._run.state.waiting if request.kind == "deferred"}
        self._open = [id for id in sorted(self._results) if id in waiting]

    @property
    def has_open(self) -> bool:
        """Whether the run waits for one of the results."""
        return bool(self._open)

    async def give(self) -> Answering:
        """Store the results for the run, unless another request does so at the same time."""
        runs, id = self._host.runs, self._row.id
        first, *others = (
            partial(runs.provide, id, call_id, _value(self._results[call_id]), self._results[call_id].is_error)
            for call_id in self._open
        )
        messages = (
            partial(runs.say, id, message, key=f"{self._open[0]}.{number}")
            for number, message in enumerate(self._messages)
        )
        self._host.driven.check_room_to_go_on(self._row)
        try:
            [*_, is_new] = await self._host.put(self._row, *messages, first)
            if not is_new:
                raise under_way()
            await self._host.put(self._row, *others)
        finally:
            self._host.driven.drive(id, self._row.tenant)  # also if the other request was not able to
        asked = {event.call_id: seq for seq, event in enumerate(self._events, 1) if isinstance(event, ApprovalRequest)}
        return Answering(id, self._row.agent, self._tools, len(self._events), asked, self._run.usage)

    def history(self) -> list[Message]:
        """The history of the run when it asked, with these results instead of later events."""
        end = len(self._events)
        for number, event in enumerate(self._events):
            if isinstance(event, ToolEnd) and event.call_id in self._results:
                end = number
                break
        run = self._host.rebuild(self._row, self._events[:end])
        _provide(run, self._results)
        return [*run.state.history, *self._messages]


def under_way() -> RejectedRequest:
    """The rejection of results that a run already has."""
    why = "these results have come already, and their answer is under way: try again when it has ended"
    return RejectedRequest(409, "under_way", why, {"retry-after": "1"})


async def _find(host: Host, tenant: str, run_id: str) -> RunRow:
    try:
        return await host.find(run_id, tenant)
    except RejectedRequest:
        raise _unknown() from None


def _unknown() -> RejectedRequest:
    why = "the results are for calls that nobody here has asked for, or that have expired: begin with a user message"
    return RejectedRequest(404, "unknown_call", why)


def _by_call(
    events: Sequence[LogEvent], tools: frozenset[str], results: Mapping[CallRef, ToolResult]
) -> dict[str, ToolResult]:
    """The results by the call ids of the run."""
    by_call: dict[str, ToolResult] = {}
    for ref, result in results.items():
        event = events[ref.seq - 1] if ref.seq <= len(events) else None
        if not isinstance(event, ApprovalRequest) or event.kind != "deferred" or event.name not in tools:
            raise _unknown()
        by_call[event.call_id] = result
    return by_call


def _provide(run: Run, results: Mapping[str, ToolResult]) -> None:
    for call_id, result in results.items():
        try:
            run.provide(call_id, as_outcome(result))
        except UsageError:
            raise _unknown() from None


def _value(result: ToolResult) -> Any:
    """A result for `provide`: text, or a list with images and files."""
    is_text = all(part.type == "text" for part in result.content)
    return result.text if is_text else list(result.content)
