"""Agents as models: Chat Completions, Responses and Messages, for the clients of these protocols.

The history of the client counts. The tools of the agent run here, and the client gets the text of all steps as one
response. Calls of tools that the client declares end the response; their results continue the run. A client that
leaves, and does not come back soon, cancels its run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.asgi.stream import ResponseStream
from penstock.events import Error, Finish, Retry, StreamChunk, Text
from penstock.history.client_request import ClientRequest
from penstock.log.starts.requests import KeyTakenError, StartRequest, StoredStart
from penstock.log.store_retries import awith_retries
from penstock.run.events import StepStart, ToolStart, innermost
from penstock.serve.context import Call, Endpoint, ServeContext
from penstock.serve.feeds.feed import Item, Page
from penstock.serve.models.request import ModelRequest, read_model_request
from penstock.serve.models.response import ModelResponse
from penstock.serve.models.retries import OPEN_SECONDS, may_join
from penstock.serve.models.runs import Answering, find_run, join_run
from penstock.serve.runs.replies import ModelEntry, ModelList
from penstock.serve.starts import Started, find_start, key_in_use, start_request
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body, encode_error
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_errors import UNKNOWN_RESPONSE
from penstock.wires.shared.encode_response.response_frames import ResponseFrames
from penstock.wires.shared.encode_response.response_head import EncodedResponse, ResponseHead

WIRES: Mapping[str, str] = {
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}
"""The protocols by their paths."""

NO_RETRY = {"x-should-retry": "false"}
"""Tells SDKs not to send a request again: its run has failed, and another one would repeat its effects."""
TOO_LARGE = Error("the answer is larger than the server may send", "answer_too_large")


async def list_models(context: ServeContext, call: Call) -> None:
    """`GET /v1/models`: the agents."""
    await respond_json(call.request, call.send, ModelList([ModelEntry(name) for name in context.host.agents]))


def endpoint(path: str) -> Endpoint:
    """The endpoint of a protocol."""
    return partial(_answer, WIRES[path])


def encode_rejection(path: str, error: RejectedRequest, request_id: str) -> EncodedResponse | None:
    """An error in the shape of a path's protocol; None for other paths."""
    if (wire := WIRES.get(path)) is None:
        return None
    frames = find_response_frames(wire)
    is_known = error.code == UNKNOWN_RESPONSE or not frames.format.has_closed_errors
    code, head = error.code if is_known else "", ResponseHead(id=request_id)
    return encode_error(frames, error.status, error.message, code, head)


async def _answer(wire: str, context: ServeContext, call: Call) -> None:
    body = await call.request.json()
    request = await call.request.work(read_model_request, wire, body, context.limits)
    start = await call.request.work(start_request, call.request, body, call.tenant, OPEN_SECONDS)
    owed = await _find_response(context, call, request, start)
    response, responses = _Response(context, call, request.request, owed), context.responses
    responses.begin(owed.id)
    is_delivered = False
    try:
        if request.request.settings.is_streaming:
            is_delivered = await response.stream(find_response_frames(wire))
        else:
            is_delivered = await response.send(find_response_frames(wire))
    finally:
        run = owed.id, owed.answering.run_id, call.tenant
        if response.is_failed:
            await responses.failed(*run)
        elif is_delivered and response.is_complete:
            await responses.answered(owed.id)
        else:
            await responses.lost(*run, is_needed=not response.is_complete and not context.feeds.is_closed)


class OwedResponse(Struct, frozen=True):
    """A response that a client waits for: the id of its request, and the run. It may belong to an earlier request."""

    id: str
    answering: Answering
    is_joined: bool


async def _find_response(context: ServeContext, call: Call, request: ModelRequest, start: StartRequest) -> OwedResponse:
    """The response of an equal request that was sent before, or else of a run that is started or continued."""
    host = context.host
    known = await _find_earlier(context, call, start)
    if known is None:
        try:
            return OwedResponse(start.id, await find_run(host, call.tenant, request, start), is_joined=False)
        except KeyTakenError:  # the same request was sent twice at once
            if (known := await find_start(host, start)) is None:
                raise key_in_use() from None
    return OwedResponse(known.id, await join_run(host, call.tenant, request, known), is_joined=True)


async def _find_earlier(context: ServeContext, call: Call, start: StartRequest) -> StoredStart | None:
    """The request with the same key, or one whose response was lost; its response is open again."""
    starts = context.host.store.starts
    if (known := await find_start(context.host, start)) is not None:
        await awith_retries(partial(starts.renew, [known.id], OPEN_SECONDS))
    elif may_join(call.request, start):
        known = await context.responses.take_lost(start)
        if known is not None and start.key:
            await awith_retries(partial(starts.add, replace(start, seconds=0.0), known.run_id, known.seq))
    return known


class _Response:
    """One response. It `is_complete` once its end was written, even if the client has disconnected.

    It `is_failed` if an error was written instead of the end.
    """

    def __init__(self, context: ServeContext, call: Call, request: ClientRequest, owed: OwedResponse) -> None:
        self.is_complete = self.is_failed = False
        self._context = context
        self._call = call
        self._answering = answering = owed.answering
        number = f"x{answering.after}" if answering.after else ""  # one run has several responses
        self._head = request.head(f"{answering.run_id}{number}", int(time.time()), has_custom_tools=False)
        self._headers = Started(answering.run_id, owed.is_joined).headers
        self._response = ModelResponse(context.host, answering, context.model_approvals)
        self._had_effects = False  # whether a tool with side effects has started, for a response that is not streamed

    async def stream(self, frames: type[ResponseFrames]) -> bool:
        """Stream the response; returns whether the client got all of it."""
        headers = {
            "content-type": frames.format.content_type, "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no", **self._headers,
        }  # fmt: skip
        stream = ResponseStream(
            self._call.request, self._call.send, self._context.limits, headers, frames.format.keep_alive
        )
        return await stream.run(self._write(ResponseEncoder(frames(self._head)), stream))

    async def _write(self, encoder: ResponseEncoder, stream: ResponseStream) -> None:
        """Write the response: pieces where they turn up if that is possible, and everything else in this task."""
        fed, unsent = self._answering.after, b""  # the last event that was encoded, and what of it was not sent

        def write_now(page: Page) -> bool:
            nonlocal fed, unsent
            chunks = self._response.feed_pieces(page.items)
            if chunks is None:
                return False
            fed, unsent = page.last, encoder.feed(chunks)
            if encoder.error is None and stream.write_now(unsent):
                unsent = b""
                return True
            return False

        await stream.write(encoder.open())
        begun, data = stream.sent, b""
        async with self._context.feeds.reading(self._answering.run_id, self._answering.after, write_now) as reader:
            async for page in reader:
                chunks = await self._feed([item for item in page.items if item.seq > fed])
                data, unsent = unsent + encoder.feed(chunks), b""
                if encoder.error is not None and not self.is_complete:  # what was written cannot be taken back
                    self.is_failed = True
                    break
                if stream.sent - begun + len(data) > self._context.limits.answer:
                    data, self.is_failed = encoder.feed([TOO_LARGE]), True
                    break
                if self.is_complete:
                    break
                await stream.write(data)
                data = b""
        await stream.write(unsent + data + encoder.close())  # the end in one piece: a client that has it may leave

    async def send(self, frames: type[ResponseFrames]) -> bool:
        """Send the complete response; returns True, since a client that leaves is an error."""
        chunks = await self._call.request.unless_gone(self._collect())
        encoded = encode_body(frames, chunks, self._head)
        headers = {**encoded.headers, **self._headers}
        if encoded.status >= 500 and self._had_effects:
            headers |= NO_RETRY
        await respond(self._call.request, self._call.send, encoded.status, encoded.body, headers=headers)
        return True

    async def _collect(self) -> list[StreamChunk]:
        batch: list[StreamChunk] = []
        size = begin = 0  # the size of the text, and where the current step begins
        async with self._context.feeds.reading(self._answering.run_id, self._answering.after) as reader:
            async for page in reader:
                for item in page.items:
                    if isinstance(item.event, StepStart):
                        begin = len(batch)
                    elif isinstance(event := innermost(item.event), ToolStart):
                        self._had_effects = self._had_effects or self._has_effect(event.name)
                    chunks = await self._feed([item])
                    if any(isinstance(chunk, Retry) for chunk in chunks):  # which nobody has seen
                        del batch[begin:]
                        continue
                    batch += chunks
                    size += sum(len(chunk.text) for chunk in chunks if isinstance(chunk, Text))
                    if self.is_complete:
                        break
                if size > self._context.limits.answer:
                    self.is_failed = True
                    return [TOO_LARGE, Finish("error")]
                if self.is_complete:
                    break
        return batch

    def _has_effect(self, tool: str) -> bool:
        policy = self._context.host.agent(self._answering.agent).config.policies.get(tool)
        return policy is None or policy.may_have_effect

    async def _feed(self, items: Sequence[Item]) -> list[StreamChunk]:
        chunks = await self._response.feed(items) if items else []
        self.is_complete = self._response.is_over
        return chunks
