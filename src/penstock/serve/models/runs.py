"""Finds the run that answers a request of a stateless client.

| the request ends with | the run |
|---|---|
| a message of the user | a new one, from the history of the client |
| results of calls that a run waits for | this run: it continues, once |
| results that this run has got already, and it is under way | none: status 409, which clients send again |
| results of a run that has ended, or has gone on | a new one, from the state in which that run asked for them |
| results of calls of a run that does not exist for this tenant | none: status 404 |

A request that was sent before, and comes again with its key or as a retry, joins the run that answered it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.asgi.request import RejectedRequest
from penstock.errors import UsageError
from penstock.events import Reasoning, Refusal, Retry, Text, Usage
from penstock.log.starts.requests import StartRequest, StoredStart
from penstock.log.store import RunRow
from penstock.log.store_retries import awith_retries
from penstock.messages import Message
from penstock.results import ToolResult, as_outcome
from penstock.run.events import ApprovalRequest, LogEvent, StepStart, ToolEnd
from penstock.run.machine import Run
from penstock.runs.client_tools import client_tool_names
from penstock.serve.hosting import Host, Origin, read_events, start_meta
from penstock.serve.models.client_calls import CallRef
from penstock.serve.models.request import ModelRequest, Results, client_tools


class Answering(Struct, frozen=True):
    """A run that answers a request: its events after `after` are the response.

    `tools` are the names of the client's tools, `asked` the calls so far with the numbers of the events that asked for
    them, and `usage` is what earlier responses have reported. `withdrawn` are the numbers of events that the model has
    withdrawn, for a client that has not seen them.
    """

    run_id: str
    agent: str
    tools: frozenset[str]
    after: int = 0
    asked: Mapping[str, int] = {}
    usage: Usage = Usage()
    withdrawn: frozenset[int] = frozenset()


async def find_run(host: Host, tenant: str, read: ModelRequest, start: StartRequest) -> Answering:
    """Start or continue the run that answers a request, which is stored as `start`.

    A `RejectedRequest` if nothing was done, and a `KeyTakenError` if another run has the key of the request.
    """
    request, results = read.request, read.results
    agent = host.agent_name(request.settings.model)
    tools = await client_tools(request, host.agent(agent))
    names = frozenset(tool["name"] for tool in tools)
    if results is None:
        id = await host.start(agent, read.messages, tenant=tenant, origin=Origin(tools=tools), request=start)
        return Answering(id, agent, names)
    row = await _find(host, tenant, results.run_id)
    if row.agent != agent:
        raise RejectedRequest(
            400, "other_agent", f"these calls belong to the agent {row.agent!r}: send its name as the model"
        )
    waiting = await awith_retries(lambda: WaitingRun(host, row, results))
    if waiting.has_open:
        return await waiting.give(start)
    row = await _find(host, tenant, row.id)  # again: it may have changed before its events were read
    if row.state in ("ready", "running"):
        raise under_way()
    messages = await awith_retries(waiting.history)
    origin = Origin(after=row.id, tools=tools)
    return Answering(await host.start(agent, messages, tenant=tenant, origin=origin, request=start), agent, names)


async def join_run(host: Host, tenant: str, read: ModelRequest, start: StoredStart) -> Answering:
    """The run that answers an equal request which was sent before."""
    row = await _find(host, tenant, start.run_id)
    if row.state == "ready":
        host.driven.drive(row.id, tenant)
    withdrawn = withdrawn_by(await awith_retries(partial(read_events, host.store, row.id)))
    if not start.seq or read.results is None:
        tools = await client_tools(read.request, host.agent(row.agent))
        return Answering(row.id, row.agent, frozenset(tool["name"] for tool in tools), withdrawn=withdrawn)
    results = read.results
    waiting = await awith_retries(lambda: WaitingRun(host, row, results))
    if waiting.has_open:  # a server has died before it stored the results
        return await waiting.give(None)
    return replace(await awith_retries(partial(waiting.answering, start.seq)), withdrawn=withdrawn)


def withdrawn_by(events: Sequence[LogEvent]) -> frozenset[int]:
    """The numbers of the events that a `Retry` withdraws, and its own."""
    numbers: list[int] = []
    attempt: list[int] = []
    for number, event in enumerate(events, 1):
        match event:
            case StepStart():
                attempt = []
            case Text() | Reasoning() | Refusal():
                attempt.append(number)
            case Retry():
                numbers += [*attempt, number]
                attempt = []
            case _:
                pass
    return frozenset(numbers)


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

    async def give(self, start: StartRequest | None) -> Answering:
        """Store the request and then its results, unless another request does so at the same time."""
        runs, id, starts = self._host.runs, self._row.id, self._host.store.starts
        first, *others = (
            partial(runs.provide, id, call_id, _value(self._results[call_id]), self._results[call_id].is_error)
            for call_id in self._open
        )
        messages = (
            partial(runs.say, id, message, key=f"{self._open[0]}.{number}")
            for number, message in enumerate(self._messages)
        )
        self._host.driven.check_room_to_go_on(self._row)
        if start is not None:
            await awith_retries(partial(starts.add, start, id, len(self._events)))
        try:
            [*_, is_new] = await self._host.put(self._row, *messages, first)
            if not is_new:
                if start is not None:
                    await awith_retries(partial(starts.remove, start.id))
                raise under_way()
            await self._host.put(self._row, *others)
        finally:
            self._host.driven.drive(id, self._row.tenant)  # also if the other request was not able to
        return self.answering(len(self._events))

    def answering(self, seq: int) -> Answering:
        """The run from the event at which it waited for the results."""
        events = self._events[:seq]
        run = self._run if seq == len(self._events) else self._host.rebuild(self._row, events)
        asked = {event.call_id: number for number, event in enumerate(events, 1) if isinstance(event, ApprovalRequest)}
        return Answering(self._row.id, self._row.agent, self._tools, seq, asked, run.usage)

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
