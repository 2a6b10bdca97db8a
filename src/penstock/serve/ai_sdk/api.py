"""The endpoints for `useChat`: a chat is a thread, and each of its answers is a run, whose id its message has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, assert_never, cast, get_args

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.log.starts.requests import StartRequest
from penstock.log.store import RunRow
from penstock.log.store_retries import awith_retries
from penstock.serve.ai_sdk.call_parts import Version
from penstock.serve.ai_sdk.encoder import UIMessageEncoder
from penstock.serve.ai_sdk.message import UIMessageFold
from penstock.serve.ai_sdk.parts import user_parts
from penstock.serve.ai_sdk.request import ChatBody, Continue, NewMessage, Regenerate, read_action
from penstock.serve.answers import Answer, RunAnswers
from penstock.serve.context import Call, ServeContext
from penstock.serve.conversation import Conversation, Exchange
from penstock.serve.following import stream_run
from penstock.serve.hosting import read_events
from penstock.serve.runs.bodies import convert
from penstock.serve.starts import Started, keyed_request, start_once

VERSION_HEADER = "x-ai-sdk-version"
HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}


async def chat(context: ServeContext, call: Call) -> None:
    """`POST /api/chat`: answer a message, answer it again, or continue with approvals and outputs of the client."""
    version = _version(context, call)
    value = await call.request.json()
    body = convert(value, ChatBody)
    action = await call.request.work(read_action, body, context.limits)
    conversation = Conversation(context.host, body.id, call.tenant)
    if isinstance(action, Continue):
        started, after = await _continue(context, conversation, action)
    else:
        request, after = await call.request.work(keyed_request, call.request, value, call.tenant), 0
        start = partial(_start, action, conversation, body.agent, request)
        started = await start_once(context.host, request, start)
    row = await context.host.find(started.run_id, call.tenant)
    headers = {**HEADERS, **started.headers}
    await stream_run(context, call, row.id, _encoder(context, row, version), after=after, headers=headers)


async def resume(context: ServeContext, call: Call) -> None:
    """`GET /api/chat/{id}/stream`: the current response, from its start; 204 if there is none."""
    version = _version(context, call)
    row = await Conversation(context.host, call.parts["id"], call.tenant).last()
    if row is None or row.state in ("over", "damaged"):
        await respond(call.request, call.send, 204, b"")
        return
    await stream_run(context, call, row.id, _encoder(context, row, version), headers=HEADERS)


async def messages(context: ServeContext, call: Call) -> None:
    """`GET /api/chat/{id}`: the messages of a chat, without the current response, which `resume` streams."""
    exchanges = await Conversation(context.host, call.parts["id"], call.tenant).exchanges()
    messages: list[dict[str, Any]] = []
    for exchange in exchanges:
        if exchange.message is not None:
            messages.append({"id": exchange.message_id, "role": "user", "parts": user_parts(exchange.message)})
        if exchange.row.state == "over":
            messages.append(await _answer(context, exchange))
    active = exchanges[-1].row.id if exchanges and exchanges[-1].row.state != "over" else None
    await respond_json(call.request, call.send, {"id": call.parts["id"], "messages": messages, "active": active})


async def _start(
    action: NewMessage | Regenerate, conversation: Conversation, agent: str, request: StartRequest | None
) -> str:
    """Start the run for the client's action; returns its id."""
    match action:
        case NewMessage(is_changed=True):
            return await conversation.replace(action.message, action.id, agent, request)
        case NewMessage():
            return await conversation.say(action.message, action.id, agent, request=request)
        case Regenerate():
            return await conversation.repeat(action.message_id, request)
        case _:
            assert_never(action)


async def _continue(context: ServeContext, conversation: Conversation, action: Continue) -> tuple[Started, int]:
    """The run that waits for answers, and the number of the last event that the client has."""
    row = await conversation.last()
    if row is None:
        raise RejectedRequest(404, "unknown_chat", "there is no such chat: send a message first")
    return Started(row.id), await _give(context, row, action.answers)


async def _give(context: ServeContext, row: RunRow, answers: Sequence[Answer]) -> int:
    """Give answers to a run; returns the number of the last event that the client has."""
    events = await awith_retries(lambda: read_events(context.host.store, row.id))
    run_answers = await awith_retries(lambda: RunAnswers(context.host, row, events, answers))
    if run_answers.has_open:
        await run_answers.give()
    elif not answers or run_answers.position == len(events):
        raise RejectedRequest(409, "not_waiting", "the run no longer waits for these answers: load the chat again")
    return run_answers.position


async def _answer(context: ServeContext, exchange: Exchange) -> dict[str, Any]:
    """The message of a finished run."""
    encoder, fold = _encoder(context, exchange.row, 7), UIMessageFold()
    for event in await awith_retries(lambda: read_events(context.host.store, exchange.row.id)):
        for chunk in encoder.chunks(event):
            fold.add(chunk)
    return fold.build()


def _encoder(context: ServeContext, row: RunRow, version: Version) -> UIMessageEncoder:
    declared = context.host.agent(row.agent).config.tools
    return UIMessageEncoder(row.id, version=version, declared=declared, most=context.limits.event)


def _version(context: ServeContext, call: Call) -> Version:
    """The version of the AI SDK that reads the response."""
    text = call.request.headers.get(VERSION_HEADER, "").partition(".")[0] or str(context.ai_sdk)
    if text not in {str(version) for version in get_args(Version)}:
        raise RejectedRequest(400, "unknown_version", f"{VERSION_HEADER} must be 6 or 7")
    return cast("Version", int(text))
