"""Our own protocol: start runs, follow their events, steer them, and look at them and their threads."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args
from urllib.parse import quote

import msgspec

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json, respond_parts
from penstock.asgi.stream import ResponseStream
from penstock.errors import ArgumentsError, UsageError
from penstock.log.branches.fork import ForkRequest
from penstock.log.follow import is_in_log
from penstock.log.position import START, Position, parse_position
from penstock.log.store import RunPhase, RunRow
from penstock.log.store_retries import awith_retries
from penstock.run.events import ApprovalRequest
from penstock.run.input_checks import expect_undecided
from penstock.run.machine import Run
from penstock.serve.context import Call, ServeContext
from penstock.serve.hosting import Host
from penstock.serve.public_events import approval_hash, public_event, public_messages
from penstock.serve.runs.bodies import (
    MAX_ID,
    CancelBody,
    DecideBody,
    ForkBody,
    ProvideBody,
    SayBody,
    StartBody,
    convert,
    read_body,
    user_message,
)
from penstock.serve.runs.replies import Accepted, RunList, StartedRun, state_of, summary_of
from penstock.serve.starts import keyed_request, start_once

MAX_LISTED = 100
"""How many runs a list has."""
_STATES: tuple[RunPhase, ...] = get_args(RunPhase)


async def start_run(context: ServeContext, call: Call) -> None:
    """`POST /runs`: start a run, in a thread or alone; with a known `Idempotency-Key` or `run_id`, join that run."""
    value = await call.request.json()
    body = convert(value, StartBody)
    messages = [user_message(body.prompt, context.limits)]
    request = keyed_request(call.request, value, call.tenant)
    if body.thread and body.run_id:
        raise RejectedRequest(400, "invalid_id", "run_id cannot be combined with thread: send an Idempotency-Key")
    host, agent = context.host, body.agent
    if thread := _check_id(body.thread, "thread"):
        start = partial(host.start_in_thread, agent, messages, tenant=call.tenant, thread=thread, request=request)
    else:
        run_id = _check_id(body.run_id, "run") or None
        start = partial(host.start, agent, messages, tenant=call.tenant, run_id=run_id, request=request)
    started = await start_once(host, request, start)
    reply = StartedRun(started.run_id, body.thread, f"/runs/{quote(started.run_id, safe='')}/events")
    await respond_json(call.request, call.send, reply, 201, started.headers)


async def list_runs(context: ServeContext, call: Call) -> None:
    """`GET /runs`: the runs of the tenant, the newest first; `?state=`, `?thread=` and `?agent=` select."""
    query = call.request.query
    state = query.get("state")
    if state is not None and state not in _STATES:
        raise RejectedRequest(400, "invalid_query", f"state must be one of {', '.join(_STATES)}")
    selected = {name: _check_text(query[name], name) for name in ("thread", "agent") if name in query}
    find = partial(context.host.store.list, tenant=call.tenant, limit=MAX_LISTED, state=state, **selected)
    rows = await awith_retries(find)
    await respond_json(call.request, call.send, RunList([summary_of(row) for row in rows]))


async def show_run(context: ServeContext, call: Call) -> None:
    """`GET /runs/{id}`: the state of a run."""
    row = await context.host.find(call.parts["id"], call.tenant)
    run = await context.host.rebuilt(row)
    await respond_json(call.request, call.send, state_of(row, **_public_run(run)))


async def show_messages(context: ServeContext, call: Call) -> None:
    """`GET /runs/{id}/messages`: the messages of a run, as a thread has them."""
    row = await context.host.find(call.parts["id"], call.tenant)
    messages = await context.messages.get(row, partial(_messages_of, context.host, row))
    parts = [b'{"id":%b,"messages":' % msgspec.json.encode(row.id), messages, b"}"]
    await respond_parts(call.request, call.send, 200, parts)


async def follow_run(context: ServeContext, call: Call) -> None:
    """`GET /runs/{id}/events`: the events of a run as server-sent events, after `Last-Event-ID` or `?after=`.

    If the log does not have what the client has received, a `reset` comes, and then all events. Status 204 if the run
    has finished and the client has all events.
    """
    row = await context.host.find(call.parts["id"], call.tenant)
    after = _position(call)
    is_known = not after or await awith_retries(partial(is_in_log, context.host.store, row, after))
    if is_known and row.state == "over" and after == row.seq:  # a browser reconnects after any other end of a stream
        await respond(call.request, call.send, 204, b"")
        return
    stream = ResponseStream(call.request, call.send, context.limits)
    await stream.run(_send_events(context, stream, row.id, after, is_known=is_known))


async def cancel_run(context: ServeContext, call: Call) -> None:
    """`POST /runs/{id}/cancel`: end a run."""
    row = await context.host.find(call.parts["id"], call.tenant)
    body = await read_body(call.request, CancelBody) if _has_body(call) else CancelBody()
    if row.state == "over":
        await respond_json(call.request, call.send, Accepted(row.id, is_new=False))
        return
    cancel = partial(context.host.runs.cancel, row.id, body.why or "the client cancelled the run")
    await respond_json(call.request, call.send, Accepted(row.id, await context.host.steer(row, cancel)))


async def decide(context: ServeContext, call: Call) -> None:
    """`POST /runs/{id}/decide`: approve or decline a call."""
    row = await context.host.find(call.parts["id"], call.tenant)
    body = await read_body(call.request, DecideBody)
    run = await context.host.rebuilt(row)
    request = waiting_request(run, body.call_id)
    if request.kind != "approval":
        raise RejectedRequest(409, "not_an_approval", "this call waits for its result: use provide")
    if approval_hash(request) != body.shown:
        raise RejectedRequest(409, "shown_something_else", "the call has changed since it was shown: load it again")
    try:
        if run.state.waits_for(body.call_id, "approval"):  # the tools of agents inside it check their calls themselves
            expect_undecided(run, body.call_id, body.approved, body.arguments)
    except ArgumentsError as error:
        raise RejectedRequest(422, "arguments_do_not_fit", str(error)) from None
    put = partial(context.host.runs.decide, row.id, body.call_id, body.approved, body.arguments, body.reason)
    await respond_json(call.request, call.send, Accepted(row.id, await context.host.steer(row, put)))


async def provide(context: ServeContext, call: Call) -> None:
    """`POST /runs/{id}/provide`: give the result of a call that runs elsewhere."""
    row = await context.host.find(call.parts["id"], call.tenant)
    body = await read_body(call.request, ProvideBody)
    request = waiting_request(await context.host.rebuilt(row), body.call_id)
    if request.kind == "approval":
        raise RejectedRequest(409, "not_deferred", "this call waits for a decision: use decide")
    put = partial(context.host.runs.provide, row.id, body.call_id, body.value, body.is_error)
    await respond_json(call.request, call.send, Accepted(row.id, await context.host.steer(row, put)))


async def say(context: ServeContext, call: Call) -> None:
    """`POST /runs/{id}/say`: add a message to an unfinished run."""
    row = await context.host.find(call.parts["id"], call.tenant)
    body = await read_body(call.request, SayBody)
    message = user_message(body.message, context.limits)
    put = partial(context.host.runs.say, row.id, message, key=_check_text(body.key, "key") or None)
    await respond_json(call.request, call.send, Accepted(row.id, await context.host.steer(row, put)))


async def fork_run(context: ServeContext, call: Call) -> None:
    """`POST /runs/{id}/fork`: start a run with the events of this one until any of them; this one does not change."""
    value = await call.request.json()
    body = convert(value, ForkBody)
    message = None if body.say is None else user_message(body.say, context.limits)
    request = keyed_request(call.request, value, call.tenant)

    async def start() -> str:
        row = await context.host.find(call.parts["id"], call.tenant)
        fork = ForkRequest(run_id=row.id, at=body.at, model=body.model, say=message)
        return await context.host.fork(row, fork, request)

    started = await start_once(context.host, request, start)  # a fork that exists needs its parent no more
    forked = await context.host.find(started.run_id, call.tenant)
    reply = StartedRun(forked.id, forked.thread, f"/runs/{quote(forked.id, safe='')}/events")
    await respond_json(call.request, call.send, reply, 201, started.headers)


async def show_thread(context: ServeContext, call: Call) -> None:
    """`GET /threads/{id}`: a conversation: its messages, its runs, and the one that is under way."""
    thread = _check_id(call.parts["id"], "thread")
    rows = await context.host.thread(thread, call.tenant, MAX_LISTED)
    if not rows:
        raise RejectedRequest(404, "unknown_thread", "there is no such thread")
    newest = rows[0]
    messages = await context.messages.get(newest, partial(_messages_of, context.host, newest))
    runs = msgspec.json.encode([summary_of(row) for row in rows])
    active = msgspec.json.encode(newest.id if newest.state != "over" else None)
    start = b'{"id":%b,"messages":' % msgspec.json.encode(thread)
    await respond_parts(call.request, call.send, 200, [start, messages, b',"runs":%b,"active":%b}' % (runs, active)])


def waiting_request(run: Run, call_id: str) -> ApprovalRequest:
    """The open request of a run about this call."""
    for request in run.waiting:
        if request.call_id == call_id:
            return request
    raise RejectedRequest(409, "not_waiting", "this call does not wait for a decision or a result")


def _messages_of(host: Host, row: RunRow) -> bytes:
    """The messages of a run as JSON; this blocks."""
    return msgspec.json.encode(public_messages(host.read(row).state.history))


def _public_run(run: Run) -> dict[str, Any]:
    waiting = [public_event(request) for request in run.waiting]
    end = None if (done := run.done) is None else public_event(done)
    return {"output": run.state.output, "usage": public_event(run.usage), "waiting": waiting, "done": end}


async def _send_events(
    context: ServeContext, stream: ResponseStream, run_id: str, after: Position, *, is_known: bool
) -> None:
    """Send the frames of a run; the first piece is empty, so that the response begins at once."""
    await stream.write(b"")
    frames = context.feeds.frames
    while True:
        if not is_known:
            after = START
            await stream.write(context.feeds.reset_frame())
        async with context.feeds.reading(run_id, after, lambda page: stream.write_now(frames(page))) as reader:
            while not stream.is_full and (page := await reader.next()) is not None:
                await stream.write(frames(page))
        is_known = not reader.has_other_past
        if is_known:
            return


def _position(call: Call) -> Position:
    """The position of the last event that the client has."""
    text = call.request.headers.get("last-event-id") or call.request.query.get("after") or "0"
    try:
        return parse_position(text)
    except UsageError:
        problem = "after and Last-Event-ID must be the id or the number of an event"
        raise RejectedRequest(400, "invalid_position", problem) from None


def _check_text(text: str, place: str) -> str:
    if not text.isprintable() or len(text) > MAX_ID:  # PostgreSQL has no text with a NUL character
        raise RejectedRequest(400, "invalid_text", f"{place}: send at most {MAX_ID} printable characters")
    return text


def _check_id(id: str, what: str) -> str:
    if not id.isprintable() or len(id) > MAX_ID or "/" in id:  # it is a part of paths
        problem = f"the id of a {what} has at most {MAX_ID} printable characters, without a slash"
        raise RejectedRequest(400, "invalid_id", problem)
    return id


def _has_body(call: Call) -> bool:
    headers = call.request.headers
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
