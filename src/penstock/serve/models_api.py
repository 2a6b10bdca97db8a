"""Agents as models: Chat Completions, Responses and Messages, for the clients of these protocols.

The history of the client counts. The tools of the agent run here, and the client gets the text of all steps as one
response. These protocols have no form for approvals, so calls that need one are declined. A client that leaves cancels
its run. Tools that the client declares are refused.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.asgi.stream import ResponseStream
from penstock.errors import UsageError
from penstock.events import Error, Finish, FinishReason, Reasoning, Refusal, Retry, StreamChunk, Text
from penstock.history.client_request import ClientRequest, decode_request
from penstock.log.patience import apatiently
from penstock.run.events import ApprovalRequest, Done, EndReason, LogEvent, innermost
from penstock.serve.context import Call, ServeContext
from penstock.wires import find_response_encoder
from penstock.wires.shared.response_encoder import ResponseEncoder
from penstock.wires.shared.response_head import ResponseHead

DECLINED = "this client cannot approve calls"
_FINISH: dict[EndReason, FinishReason] = {
    "answered": "stop",
    "stopped": "stop",
    "length": "length",
    "refused": "content_filter",
}
"""The ends of a run that are the end of a response; after any other, the response is an error."""


async def list_models(context: ServeContext, call: Call) -> None:
    """`GET /v1/models`: the agents."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "penstock"} for name in context.host.agents]
    await respond_json(call.request, call.send, {"object": "list", "data": models})


async def answer(wire: str, context: ServeContext, call: Call) -> None:
    """Answer a request in the protocol of a wire."""
    encoder = find_response_encoder(wire)
    try:
        request = _read(wire, await call.request.json(), context)
        run_id = await context.host.start(request.settings.model, request.messages, tenant=call.tenant)
    except RejectedRequest as error:
        await _reject(encoder, call, error)
        return
    head = request.head(run_id, int(time.time()), has_custom_tools=True)
    is_complete = False
    try:
        if request.settings.is_streaming:
            is_complete = await _stream(encoder(head), context, call, run_id)
        else:
            await _respond(encoder, head, context, call, run_id)
            is_complete = True
    finally:
        if not is_complete:
            await apatiently(partial(context.host.runs.cancel, run_id, "the client closed the connection"))


def _read(wire: str, body: object, context: ServeContext) -> ClientRequest:
    if not isinstance(body, dict):
        raise RejectedRequest(400, "invalid_body", "the body must be a JSON object")
    try:
        request = decode_request(body, wire)
    except UsageError as error:
        raise RejectedRequest(400, "invalid_body", str(error)) from None
    settings = request.settings
    if settings.tools:
        raise RejectedRequest(400, "tools_refused", "an agent runs its own tools: leave tools out of the request")
    if settings.previous_response:
        raise RejectedRequest(400, "unknown_response", "responses are not kept here: send the whole history")
    if len(request.messages) > context.limits.messages:
        raise RejectedRequest(400, "too_many_messages", f"a request may have {context.limits.messages} messages")
    context.host.agent_name(settings.model)
    return request


async def _reject(encoder: type[ResponseEncoder], call: Call, error: RejectedRequest) -> None:
    encoded = encoder.encode_error(error.status, error.message)
    await respond(call.request, call.send, encoded.status, encoded.body, headers={**error.headers, **encoded.headers})


async def _stream(encoder: ResponseEncoder, context: ServeContext, call: Call, run_id: str) -> bool:
    headers = {
        "content-type": encoder.content_type, "cache-control": "no-cache, no-transform", "x-accel-buffering": "no",
        "x-run-id": run_id,
    }  # fmt: skip
    stream = ResponseStream(call.request, call.send, context.limits, headers, encoder.KEEP_ALIVE)

    async def pieces() -> AsyncIterator[bytes]:
        yield encoder.open()
        async for chunks in _chunks(context, run_id):
            if data := encoder.feed(chunks):
                yield data
        yield encoder.close()

    return await stream.send_all(pieces())


async def _respond(
    encoder: type[ResponseEncoder], head: ResponseHead, context: ServeContext, call: Call, run_id: str
) -> None:
    chunks = [chunk async for some in _chunks(context, run_id) for chunk in some]
    encoded = encoder.encode_body(chunks, head)
    headers = {**encoded.headers, "x-run-id": run_id}
    await respond(call.request, call.send, encoded.status, encoded.body, headers=headers)


async def _chunks(context: ServeContext, run_id: str) -> AsyncIterator[list[StreamChunk]]:
    """The response that a run makes: its text, and one end. Calls that need approval are declined."""
    async for items in context.feeds.follow(run_id):
        for item in items:
            if isinstance(request := innermost(item.event), ApprovalRequest):
                await _decline(context, run_id, request)
        yield [chunk for item in items for chunk in _response_chunks(item.event)]


async def _decline(context: ServeContext, run_id: str, request: ApprovalRequest) -> None:
    row = await apatiently(partial(context.host.store.find, run_id))
    if row is None or row.state == "over":
        return
    runs = context.host.runs
    if request.kind == "approval":
        put = partial(runs.decide, run_id, request.call_id, False, reason=DECLINED)
    else:
        put = partial(runs.provide, run_id, request.call_id, DECLINED, True)
    await context.host.steer(row, put)
    context.host.drive(run_id, row.tenant)


def _response_chunks(event: LogEvent) -> list[StreamChunk]:
    match event:
        case Text() | Reasoning() | Refusal() | Retry():
            return [event]
        case Done() if event.reason in _FINISH:
            return [event.usage, Finish(_FINISH[event.reason])]
        case Done():
            code = "agent_failed" if event.reason == "error" else f"agent_{event.reason}"
            why = "the agent failed" if event.reason == "error" else event.why or f"the run ended: {event.reason}"
            return [event.usage, Error(why, code), Finish("error")]
        case _:
            return []
