"""Answers requests in the protocol of the client: decodes them, asks upstreams, and streams the response."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.asgi.request import ClientGone, RejectedRequest
from penstock.asgi.response import JSON, respond
from penstock.asgi.stream import BEFORE_JSON, ResponseStream
from penstock.asgi.turns import LONG_BODY
from penstock.errors import ProviderError, UsageError
from penstock.events import StreamChunk, Usage
from penstock.gateway.answer import Answer, learn, open_answer, whole_answer
from penstock.gateway.asking import Caller, passed_headers, takes_custom_tools
from penstock.gateway.config.settings import NATIVE
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.failures import in_band, rejection, shown_code
from penstock.gateway.inspecting import InspectedCall
from penstock.gateway.journal import Journal, Reads
from penstock.gateway.memory import ResponseRecord
from penstock.gateway.piece_lane import PieceLane
from penstock.gateway.routing import Candidate, find_candidates
from penstock.gateway.servers.expectations import Expectations
from penstock.gateway.upstream_keys import uses_client_key
from penstock.gateway.watch.conclusion import conclusion, encode_conclusion
from penstock.gateway.watch.doubtful_ends import watch_answer
from penstock.gateway.watch.repeated_calls import RepeatedCalls
from penstock.healing.report import RESCUED_HEADER, RescuedCall, rescued_ids
from penstock.history.client_request import ClientRequest, decode_request
from penstock.jsontext.scan import MAX_DEPTH
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body, encode_error
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import EncodedResponse, ResponseHead

STREAM_HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


class Answering:
    """One request that is answered in the protocol of a wire."""

    def __init__(self, wire: str, context: GatewayContext, call: Call) -> None:
        self._wire = wire
        self._context = context
        self._call = call
        self._frames = find_response_frames(wire)
        self._inspected = InspectedCall(context.inspections, call.request.id, context.record)
        self._headers: dict[str, str] = {}
        self._caller = Caller(
            id=call.request.id, key=context.client_key(call.request), record=self._inspected.record,
            headers=passed_headers(wire, call.request.headers), servers=context.facts,
            web_tools=context.web_tools, is_inspected=context.inspections is not None,
        )  # fmt: skip
        self._journal = Journal(context, call, self._inspected)

    async def answer(self, model: str = "", is_streaming: bool | None = None) -> None:
        """Answer the request. Protocols with the model and the kind of response in the path pass these two."""
        try:
            await self._answer(model, is_streaming)
        except RejectedRequest as error:
            await self._reject(error)
        except ClientGone:
            self._journal.leave()
        finally:
            self._journal.write()

    async def _answer(self, model: str, is_streaming: bool | None) -> None:
        body = await self._call.request.json(self._inspected.keep)
        request = await self._call.request.work(_read, self._wire, body, model, is_streaming, self._context)
        self._inspected.ask(self._wire, request.settings.model, self._call.request.headers)
        if self._call.request.size >= LONG_BODY:
            self._caller = replace(self._caller, is_long=True)
        del body  # only its messages are needed while the response is streamed
        request = self._context.memory.complete(request, self._caller.key)
        settings = self._context.source.current
        self._context.facts.use(settings)
        candidates = find_candidates(settings, request.settings.model)
        self._journal.begin(request, candidates)
        if text := RepeatedCalls(request.messages, candidates[0].watch.repeated_calls).end:
            self._journal.note(text)
            chunks = conclusion(text)
            self._context.memory.record_whole(request, self._caller.key, self._caller.id, chunks)
            encoded = encode_conclusion(request, candidates[0].model, self._caller.id, chunks)
            self._inspected.send(encoded.body)
            await respond(self._call.request, self._call.send, 200, encoded.body, encoded.headers["content-type"])
        elif request.settings.is_streaming:
            await self._stream(request, candidates)
        else:
            await self._respond(request, candidates)

    # Streamed responses.

    async def _stream(self, request: ClientRequest, candidates: list[Candidate]) -> None:
        self._headers |= {**STREAM_HEADERS, "content-type": self._frames.format.content_type}
        stream = ResponseStream(
            self._call.request, self._call.send, self._context.limits, self._headers, self._frames.format.keep_alive
        )
        if not await stream.run(self._write(request, candidates, stream)):
            self._journal.leave()

    async def _write(self, request: ClientRequest, candidates: list[Candidate], stream: ResponseStream) -> None:
        """Write the response, one piece per network read of the upstream."""
        if (answer := await self._begun(request, candidates, stream)) is None:
            return
        encoder = ResponseEncoder(self._frames(self._head(request, answer)))
        record = self._context.memory.record(request, self._caller.key, self._caller.id)
        events = watch_answer(request, answer, self._caller, self._context.upstreams, self._journal.attempts) or answer
        upstream, chunks, next_batch = answer.upstream_request, events.first, events.next_batch
        show, decoded, marked = self._inspected.shows, 0, 0
        watching = [one for one in (record, upstream.expectations) if one is not None]
        lane = PieceLane(encoder, stream, _together(readers := [one for one in watching if one.reads_text]), show)
        rescued = upstream.report.rescued if self._frames.format.keep_alive.startswith(b":") else []
        try:
            while True:
                decoded += 1
                for reader in readers:
                    reader.add(chunks)
                data = encoder.feed(chunks)
                if len(rescued) > marked:
                    data = _mark(rescued[marked:]) + data
                    marked = len(rescued)
                if data:
                    if show is not None:
                        show(data)
                    await stream.write(data)
                if encoder.error is not None:
                    break
                take = None if answer.rounds is not None else lane.open_after(chunks, upstream.decodings.last)
                if (following := await next_batch(take)) is None:
                    break
                chunks = following
            answer.ended(has_failed=encoder.error is not None)
            learn(answer, encoder.error, self._context.learned)
            for one in watching:
                one.end()
            last = encoder.close()
            self._inspected.send(last)
            await stream.end(last)
        finally:
            await events.close()
            self._journal.reads = Reads(lane.taken, lane.left, decoded)
            self._journal.end(encoder.usage, encoder.error)

    async def _begun(
        self, request: ClientRequest, candidates: list[Candidate], stream: ResponseStream
    ) -> Answer | None:
        """The response that has begun; None if there is none, and the error was written."""
        try:
            return await self._opened(request, candidates)
        except RejectedRequest as error:
            if not stream.is_open:
                raise
            await stream.write(self._failed(request, error))  # a keep-alive was sent, and with it the status 200
            return None

    def _failed(self, request: ClientRequest, error: RejectedRequest) -> bytes:
        self._journal.fail(error)
        head = request.head(self._caller.id, int(time.time()), has_custom_tools=True)
        encoder = ResponseEncoder(self._frames(replace(head, translates_errors=True)))
        failure = encoder.feed([in_band(error)]) + encoder.close()
        self._inspected.send(failure)
        return failure

    async def _opened(self, request: ClientRequest, candidates: list[Candidate]) -> Answer:
        attempts = self._journal.attempts
        try:
            answer = await open_answer(candidates, request, self._caller, self._context.upstreams, attempts)
        except (UsageError, ProviderError) as error:
            raise self._rejection(error, candidates) from None
        self._begin(answer)
        return answer

    # Non-streamed responses.

    async def _respond(self, request: ClientRequest, candidates: list[Candidate]) -> None:
        stream = ResponseStream(
            self._call.request, self._call.send, self._context.limits, {"content-type": JSON}, BEFORE_JSON
        )
        if not await stream.run(self._write_whole(request, candidates, stream)):
            self._journal.leave()

    async def _write_whole(self, request: ClientRequest, candidates: list[Candidate], stream: ResponseStream) -> None:
        """Write the whole response, or the error, once it is known."""
        try:
            encoded = await self._whole(request, candidates)
        except RejectedRequest as error:
            encoded = self._failure(error)
        self._inspected.send(encoded.body)
        await stream.complete(encoded.status, encoded.body, {**self._headers, **encoded.headers})

    async def _whole(self, request: ClientRequest, candidates: list[Candidate]) -> EncodedResponse:
        attempts = self._journal.attempts
        try:
            answer, chunks = await whole_answer(candidates, request, self._caller, self._context.upstreams, attempts)
        except (UsageError, ProviderError) as error:
            raise self._rejection(error, candidates) from None
        self._begin(answer)
        if (continued := watch_answer(request, answer, self._caller, self._context.upstreams, attempts)) is not None:
            try:
                chunks = await continued.rest()
            finally:
                await continued.close()
        self._context.memory.record_whole(request, self._caller.key, self._caller.id, chunks)
        if (expected := answer.upstream_request.expectations) is not None:
            expected.add(chunks)
            expected.end()
        if rescued := rescued_ids(answer.upstream_request.report):
            self._headers[RESCUED_HEADER] = rescued
        encoded = encode_body(self._frames, chunks, self._head(request, answer))
        usage = next((chunk for chunk in reversed(chunks) if isinstance(chunk, Usage)), None)
        self._journal.end(usage, encoded.error)
        return encoded

    # Both.

    def _begin(self, answer: Answer) -> None:
        self._headers["x-penstock-upstream"] = answer.candidate.upstream.name
        self._journal.answered(answer)

    def _head(self, request: ClientRequest, answer: Answer) -> ResponseHead:
        """The head of the response. It names the model that answers, which may differ from the requested one."""
        has_custom = answer.upstream_request.calls == NATIVE and takes_custom_tools(answer.candidate.upstream)
        head = request.head(self._caller.id, int(time.time()), has_custom_tools=has_custom)
        return replace(head, model=answer.candidate.model, translates_errors=True)

    def _rejection(self, error: UsageError | ProviderError, candidates: list[Candidate]) -> RejectedRequest:
        is_client_key = any(uses_client_key(candidate.upstream, self._caller.key) for candidate in candidates)
        return rejection(error, self._frames.format, is_client_key=is_client_key)

    async def _reject(self, error: RejectedRequest) -> None:
        """Answer with an error in the shape of the protocol."""
        encoded = self._failure(error)
        self._inspected.send(encoded.body)
        await respond(self._call.request, self._call.send, encoded.status, encoded.body, headers=encoded.headers)

    def _failure(self, error: RejectedRequest) -> EncodedResponse:
        """An error in the shape of the protocol."""
        self._journal.fail(error)
        retry_after = error.headers.get("retry-after")
        head = ResponseHead(id=self._caller.id, retry_after=None if retry_after is None else float(retry_after))
        encoded = encode_error(self._frames, error.status, error.message, shown_code(error), head)
        return replace(encoded, headers={**error.headers, **encoded.headers})


def _together(readers: Sequence[ResponseRecord | Expectations]) -> Callable[[StreamChunk], None] | None:
    """What gets each piece of a response that is remembered or checked; None if neither."""
    if len(readers) < 2:
        return readers[0].add_one if readers else None

    def add(chunk: StreamChunk) -> None:
        for reader in readers:
            reader.add_one(chunk)

    return add


def _mark(calls: list[RescuedCall]) -> bytes:
    """The mark of rescued calls in a stream, whose headers were sent before: a comment, which clients skip."""
    return f": {RESCUED_HEADER}: {','.join(call.id for call in calls)}\n\n".encode()


def _read(wire: str, body: Any, model: str, is_streaming: bool | None, context: GatewayContext) -> ClientRequest:
    limits = context.limits
    try:
        request = decode_request(body, wire, model, is_streaming, is_clean=limits.depth <= MAX_DEPTH)
    except UsageError as error:
        raise RejectedRequest(400, "", str(error)) from None
    if len(request.messages) > limits.messages or len(request.settings.tools) > limits.tools:
        raise RejectedRequest(
            400, "", f"a request may have at most {limits.messages} messages and {limits.tools} tools"
        )
    return request
