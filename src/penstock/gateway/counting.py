"""Counts the tokens of a request: by an endpoint of the protocol or of the server, else by an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond_json
from penstock.asgi.turns import LONG_BODY
from penstock.errors import PenstockError, UsageError
from penstock.events import Error, Finish, Progress, StreamChunk, Usage
from penstock.gateway.asking import Caller, Prepared, open_stream, passed_headers, prepare, wire_of
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.facts import address_of
from penstock.gateway.routing import Candidate, find_candidates
from penstock.healing.estimate import estimate_input
from penstock.history.client_request import ClientRequest, decode_request
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger
from penstock.servers import asking as servers
from penstock.transport.policy import Retries, Timeouts
from penstock.transport.threads.off_loop import run_off_loop
from penstock.wires import find_token_counter
from penstock.wires.shared.token_counts import TokenCounter

logger = get_logger("penstock.gateway")

COUNT_SECONDS = 10.0
"""An estimate now is worth more than a count in a minute."""
TIMEOUTS = Timeouts(connect=3.0, first_event=5.0, idle=5.0, total=COUNT_SECONDS)
MAX_COUNT = 64 * 1024
"""How many bytes of a count are read."""
ESTIMATED = {"x-penstock-estimated": "true"}


class Count(Struct, frozen=True):
    """A number of tokens, and the reason if it is an estimate."""

    tokens: int
    estimated: str = ""


async def count_tokens(wire: str, context: GatewayContext, call: Call, model: str = "") -> None:
    """Answer a request for a token count in the protocol of a wire."""
    counter = find_token_counter(wire)
    assert counter is not None, wire
    request = await call.request.work(_read, wire, counter, await call.request.json(), model)
    candidate = find_candidates(context.source.current, request.settings.model)[0]
    headers = passed_headers(wire, call.request.headers)
    caller = Caller(
        id=call.request.id, key=context.client_key(call.request), headers=headers, web_tools=context.web_tools,
        is_long=call.request.size >= LONG_BODY,
    )  # fmt: skip
    request = context.memory.complete(request, caller.key)
    count = await call.request.unless_gone(_count(candidate, request, caller, context))
    logger.info(
        "%s %s model=%s upstream=%s tokens=%s%s",
        call.request.id, one_line(call.request.path), one_line(request.settings.model) or "-", candidate.upstream.name,
        count.tokens, f" | estimated: {one_line(count.estimated)}" if count.estimated else "",
    )  # fmt: skip
    headers = ESTIMATED if count.estimated else {}
    await respond_json(call.request, call.send, {counter.field: count.tokens}, headers=headers)


def _read(wire: str, counter: TokenCounter, body: Any, model: str) -> ClientRequest:
    if not isinstance(body, Mapping):
        raise RejectedRequest(400, "", "the body must be a JSON object")
    try:
        return decode_request(counter.counted(body), wire, model)
    except UsageError as error:
        raise RejectedRequest(400, "", str(error)) from None


async def _count(candidate: Candidate, request: ClientRequest, caller: Caller, context: GatewayContext) -> Count:
    """The count of the upstream, or an estimate."""
    try:
        asking = partial(prepare, candidate, request, caller, Retries(attempts=0))
        prepared = await run_off_loop(asking) if caller.is_long else asking()
    except PenstockError as error:
        return Count(estimate_input(request.messages, request.settings.tools), str(error))
    estimate = estimate_input(prepared.messages, prepared.tools)
    if context.circuits.of(candidate).is_open:
        return Count(estimate, "the upstream is down")
    counter = find_token_counter(wire_of(candidate.upstream))
    try:
        if counter is not None:
            return Count(await _ask(candidate, prepared, counter))
        tokens = await _tokenized(candidate, prepared, caller, context)
    except PenstockError as error:
        return Count(estimate, str(error))
    return Count(estimate, "the upstream cannot count tokens") if tokens is None else Count(tokens)


async def _tokenized(candidate: Candidate, prepared: Prepared, caller: Caller, context: GatewayContext) -> int | None:
    """The count of a server with an endpoint of its own for it; None if there is none, or it does not answer."""
    facts = await context.facts.of(candidate, caller.key)
    address, sent = address_of(candidate.upstream, caller.key), prepared.exchange.request
    return await servers.count_tokens(address, facts.server, prepared.wire, sent.body, COUNT_SECONDS)


async def _ask(candidate: Candidate, prepared: Prepared, counter: TokenCounter) -> int:
    """The count of the upstream; raises if the upstream has none."""
    sent = prepared.exchange.request
    url, body = counter.request(sent.url, msgspec.json.decode(sent.body))
    exchange = replace(
        prepared.exchange, request=replace(sent, url=url, content=msgspec.json.encode(body)),
        new_decoding=lambda: CountDecoding(counter), timeouts=TIMEOUTS,
    )  # fmt: skip
    async with open_stream(candidate, exchange) as stream:
        async for chunk in stream:
            if isinstance(chunk, Usage):
                return chunk.input_tokens
    raise UsageError("the upstream sent no count")


class CountDecoding:
    """Decodes the response with a count: its tokens are the usage."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._data = b""

    def feed(self, data: bytes) -> list[StreamChunk]:
        """Nothing: the count is known at the end."""
        self._data = (self._data + data)[:MAX_COUNT]
        return []

    def progress(self) -> Progress:
        return "open"

    def close(self) -> list[StreamChunk]:
        """The count, or an error."""
        try:
            tokens = self._counter.read(msgspec.json.decode(self._data))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            tokens = None
        if tokens is None:
            return [Error("the upstream sent no count", "no_count"), Finish("error")]
        return [Usage(tokens), Finish("stop")]
