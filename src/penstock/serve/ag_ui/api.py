"""The endpoint for clients of AG-UI.

For the client, a run is everything between two of its requests. A run of the server may consist of several: it waits
for approvals and for results of the client's tools, and a client that lost its connection runs the agent again.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from penstock.asgi.request import RejectedRequest
from penstock.log.store import RunRow
from penstock.log.store_retries import awith_retries
from penstock.run.events import ApprovalRequest
from penstock.serve.ag_ui.encoder import AGUIEncoder, RunHead
from penstock.serve.ag_ui.messages import AGUIMessage, user_message_of
from penstock.serve.ag_ui.request import (
    RunAgentInput,
    UserTurn,
    answered_calls,
    approvals,
    check_input,
    client_results,
    last_turn,
)
from penstock.serve.answers import Answer, RunAnswers
from penstock.serve.context import Call, ServeContext
from penstock.serve.conversation import Conversation, Exchange
from penstock.serve.following import stream_run
from penstock.serve.hosting import read_events
from penstock.serve.runs.bodies import convert
from penstock.serve.starts import find_start, keyed_request, start_once


async def run_agent(context: ServeContext, call: Call) -> None:
    """`POST /agui`: answer a message, continue with answers, or rejoin the current response."""
    value = await call.request.json()
    body = convert(value, RunAgentInput)
    await call.request.work(check_input, body, context.limits)
    request = await call.request.work(keyed_request, call.request, value, call.tenant)
    conversation = Conversation(context.host, body.thread_id, call.tenant)
    is_joined = await find_start(context.host, request) is not None
    newest, turn = await conversation.newest(), last_turn(body, context.limits)
    if newest is not None and not is_joined and (turn is None or turn.id == newest.message_id):
        await _go_on(context, call, body, conversation, newest)
        return
    if turn is None or body.resume:
        raise RejectedRequest(400, "nothing_to_answer", "the thread is new here: send a user message")
    tools = [tool.declaration for tool in body.tools]
    agent = call.request.query.get("agent", "")
    say = partial(conversation.say, turn.message, turn.id, agent, tools, request)
    started = await start_once(context.host, request, say)
    row = await context.host.find(started.run_id, call.tenant)
    head = replace(_head(context, row, body), messages=body.messages)
    encoder = AGUIEncoder(head, context.limits.event)
    await stream_run(context, call, row.id, encoder, headers=started.headers)


async def _go_on(
    context: ServeContext, call: Call, body: RunAgentInput, conversation: Conversation, newest: Exchange
) -> None:
    """Continue the newest run with answers of the client; without answers, the client gets all of it again."""
    row, turn = newest.row, last_turn(body, context.limits)
    events = await awith_retries(lambda: read_events(context.host.store, row.id))
    deferred = frozenset(
        event.call_id for event in events if isinstance(event, ApprovalRequest) and event.kind == "deferred"
    )
    client_answers: list[Answer] = [*approvals(body), *client_results(body, deferred)]
    answers = await awith_retries(lambda: RunAnswers(context.host, row, events, client_answers))
    head, after = _head(context, row, body), 0
    if answers.has_open:
        await answers.give()
        before, after = [*turn.before] if turn is not None else [], answers.position
        head = replace(head, messages=before, answered=answered_calls(body))
    else:
        before = await _history(context, conversation) if turn is None else _earlier(body, row, turn)
        head = replace(head, messages=before, is_snapshot=True)
    await stream_run(context, call, row.id, AGUIEncoder(head, context.limits.event), after=after)


def _head(context: ServeContext, row: RunRow, body: RunAgentInput) -> RunHead:
    has_output = context.host.agent(row.agent).config.output is not None
    return RunHead(run_id=row.id, thread_id=body.thread_id, client_run_id=body.run_id, has_output=has_output)


def _earlier(body: RunAgentInput, row: RunRow, turn: UserTurn) -> list[AGUIMessage]:
    """The messages of the client before the answer of a run. Reasoning of the run is emptied: it comes again."""
    own = f"{row.id}."
    reasoning = [
        {**message, "content": ""}
        for message in body.messages
        if message.get("role") == "reasoning" and str(message.get("id", "")).startswith(own)
    ]
    return [*turn.before, *reasoning]


async def _history(context: ServeContext, conversation: Conversation) -> list[AGUIMessage]:
    """The messages of a thread up to the last user message, for a client that has none."""
    messages: list[AGUIMessage] = []
    for exchange in (exchanges := await conversation.exchanges()):
        if exchange.message is not None:
            messages.append(user_message_of(exchange.message, exchange.message_id))
        if exchange is not exchanges[-1]:
            messages += await _answer(context, exchange)
    return messages


async def _answer(context: ServeContext, exchange: Exchange) -> list[AGUIMessage]:
    """The messages of a run."""
    encoder = AGUIEncoder(RunHead(run_id=exchange.row.id, thread_id="", client_run_id=""), context.limits.event)
    for event in await awith_retries(lambda: read_events(context.host.store, exchange.row.id)):
        for _ in encoder.events(event):
            pass
    return encoder.messages()
