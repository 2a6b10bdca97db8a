"""Agents as models: Chat Completions, Responses and Messages, for the clients of these protocols.

The history of the client counts. The tools of the agent run here, and the client gets the text of all steps as one
response. Calls of tools that the client declares end the response; their results continue the run. A client that
leaves cancels its run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.asgi.stream import ResponseStream
from penstock.events import Error, Finish, StreamChunk, Text
from penstock.history.client_request import ClientRequest
from penstock.log.store_retries import awith_retries
from penstock.serve.context import Call, Endpoint, ServeContext
from penstock.serve.feeds.feed import Item, Page
from penstock.serve.models.request import read_model_request
from penstock.serve.models.response import ModelResponse
from penstock.serve.models.runs import Answering, find_run
from penstock.serve.runs.replies import ModelEntry, ModelList
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

TOO_LARGE = Error("the answer is larger than the server may send", "answer_too_large")
ABANDONED = "the response ended before its run: the client left, or the server stopped"


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
    request = read_model_request(wire, await call.request.json(), context.limits)
    answering = await find_run(context.host, call.tenant, request)
    response = _Response(context, call, request.request, answering)
    try:
        if request.request.settings.is_streaming:
            await response.stream(find_response_frames(wire))
        else:
            await response.send(find_response_frames(wire))
    finally:
        if not response.is_complete:
            cancel = partial(context.host.runs.cancel, answering.run_id, ABANDONED)
            await awith_retries(cancel)
            context.host.driven.drive(answering.run_id, call.tenant)


class _Response:
    """One response. It `is_complete` once its end was written, even if the client has disconnected."""

    def __init__(self, context: ServeContext, call: Call, request: ClientRequest, answering: Answering) -> None:
        self.is_complete = False
        self._context = context
        self._call = call
        self._answering = answering
        number = f"x{answering.after}" if answering.after else ""  # one run has several responses
        self._head = request.head(f"{answering.run_id}{number}", int(time.time()), has_custom_tools=False)
        self._headers = {"x-run-id": answering.run_id}
        self._response = ModelResponse(context.host, answering, context.model_approvals)

    async def stream(self, frames: type[ResponseFrames]) -> None:
        """Stream the response."""
        headers = {
            "content-type": frames.format.content_type, "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no", **self._headers,
        }  # fmt: skip
        stream = ResponseStream(
            self._call.request, self._call.send, self._context.limits, headers, frames.format.keep_alive
        )
        await stream.run(self._write(ResponseEncoder(frames(self._head)), stream))

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
                    break
                if stream.sent - begun + len(data) > self._context.limits.answer:
                    data, self.is_complete = encoder.feed([TOO_LARGE]), False
                    break
                if self.is_complete:
                    break
                await stream.write(data)
                data = b""
        await stream.write(unsent + data + encoder.close())  # the end in one piece: a client that has it may leave

    async def send(self, frames: type[ResponseFrames]) -> None:
        """Send the complete response."""
        chunks = await self._call.request.unless_gone(self._collect())
        encoded = encode_body(frames, chunks, self._head)
        headers = {**encoded.headers, **self._headers}
        await respond(self._call.request, self._call.send, encoded.status, encoded.body, headers=headers)

    async def _collect(self) -> list[StreamChunk]:
        batch: list[StreamChunk] = []
        size = 0
        async with self._context.feeds.reading(self._answering.run_id, self._answering.after) as reader:
            async for page in reader:
                chunks = await self._feed(page.items)
                batch += chunks
                size += sum(len(chunk.text) for chunk in chunks if isinstance(chunk, Text))
                if size > self._context.limits.answer:
                    self.is_complete = False
                    return [TOO_LARGE, Finish("error")]
                if self.is_complete:
                    break
        return batch

    async def _feed(self, items: Sequence[Item]) -> list[StreamChunk]:
        chunks = await self._response.feed(items) if items else []
        self.is_complete = self._response.is_over
        return chunks
