"""Gets the response to a request: asks one upstream after the other, until one starts a response.

Until then nothing was sent to the client, so a failure costs only time. After that, a failure is an error in the
response, which must never look complete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from penstock.asgi.turns import MANY_MESSAGES
from penstock.errors import ConnectionFailed, ProviderError, UsageError
from penstock.events import Error, Finish, Reasoning, StreamChunk, Text, ToolCall, Unknown, Usage
from penstock.gateway.asking import Caller, UpstreamRequest, ask, prepare_attempt, uses_of
from penstock.gateway.attempts import Attempts
from penstock.gateway.calls.learned import LearnedCalls, Way, with_advice
from penstock.gateway.config.settings import AUTO
from penstock.gateway.failures import from_event
from penstock.gateway.fallbacks import Circuit, Circuits, choose, first_response
from penstock.gateway.hosted.rounds import Batches, Rounds, RoundsContext
from penstock.gateway.routing import Candidate
from penstock.history.client_request import ClientRequest
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger
from penstock.servers.facts import ServerFacts
from penstock.transport.commands import Take
from penstock.transport.threads.off_loop import run_off_loop

logger = get_logger("penstock.gateway")

MAX_HELD = 50_000
"""How many events of a response are held back until its first call."""


class Answer(Struct):
    """A started response of a candidate: `first` are its first events, `stream` has the others.

    With `rounds`, the events are not only those of the upstream: the gateway runs tools and asks again.
    """

    candidate: Candidate
    upstream_request: UpstreamRequest
    first: list[StreamChunk]
    circuit: Circuit
    rounds: Rounds | None = None

    @property
    def stream(self) -> Batches:
        """The events after the first ones."""
        return self.rounds or self.upstream_request.stream

    @property
    def next_batch(self) -> Callable[[Take | None], Awaitable[list[StreamChunk] | None]]:
        """Reads the next events; None at the end. `take` gets bytes before they are decoded."""
        return self.stream.next_batch

    def ended(self, *, has_failed: bool) -> None:
        """Report the end of the response to the circuit; not called if the client disconnected earlier."""
        if has_failed:
            self.circuit.failed()
        else:
            self.circuit.succeeded()

    async def close(self) -> None:
        """Close the connection to the upstream."""
        await self.stream.close()


class Upstreams(Struct, frozen=True):
    """What is known about upstreams: which of them fail, and how their models are asked for calls."""

    circuits: Circuits
    learned: LearnedCalls


async def open_answer(
    candidates: Sequence[Candidate], request: ClientRequest, caller: Caller, upstreams: Upstreams, attempts: Attempts
) -> Answer:
    """The response of the first upstream that starts one; if none does, raises the last upstream's error."""
    answer = await _first_answer(choose(candidates, upstreams.circuits, attempts), request, caller, upstreams, attempts)
    return await _in_rounds(answer, request, caller, upstreams, attempts)


async def _in_rounds(
    answer: Answer, request: ClientRequest, caller: Caller, upstreams: Upstreams, attempts: Attempts
) -> Answer:
    """The response, in rounds if the gateway runs tools for it."""
    if caller.web_tools is None or not (uses := uses_of(answer.candidate, request)):
        return answer

    async def again(following: ClientRequest) -> Answer:
        return await ask_again(answer, following, caller, upstreams, attempts)

    rounds = Rounds(answer, request, RoundsContext(
        id=caller.id, wire=request.wire, uses=uses, tools=caller.web_tools, report=answer.upstream_request.report,
        again=again,
    ))  # fmt: skip
    try:
        return replace(answer, first=await rounds.start(), rounds=rounds)
    except BaseException:
        await rounds.close()
        raise


async def _first_answer(
    candidates: Sequence[Candidate], request: ClientRequest, caller: Caller, upstreams: Upstreams, attempts: Attempts
) -> Answer:
    async def open_one(candidate: Candidate, has_fallback: bool) -> Answer:
        return await _open_in_some_way(candidate, request, caller, upstreams, attempts, has_fallback=has_fallback)

    return await first_response(candidates, open_one, caller, upstreams.circuits, attempts)


async def _open_in_some_way(
    candidate: Candidate,
    request: ClientRequest,
    caller: Caller,
    upstreams: Upstreams,
    attempts: Attempts,
    *,
    has_fallback: bool,
) -> Answer:
    """The response of a candidate; with `calls = "auto"`, calls are asked for in another way if this one fails."""
    circuit, learned = upstreams.circuits.of(candidate), upstreams.learned
    has_switched = False
    while True:
        way = learned.of(candidate)
        chosen = replace(candidate, calls=way.calls, is_auto=True) if candidate.calls == AUTO else candidate
        try:
            answer = await _open(chosen, request, caller, circuit, has_fallback=has_fallback)
            if not way.is_proven and request.settings.tools and await _hold(answer):
                learned.prove(candidate, way)
        except ProviderError as error:
            if not _switch(candidate, way, error, learned, caller):
                raise
            attempts.fail(str(error))
            attempts.ask(candidate)
            has_switched = True
        else:
            answer.candidate = candidate
            if has_switched:
                answer.upstream_request.report.note(_switched(way))
            return answer


def _switch(candidate: Candidate, way: Way, error: ProviderError, learned: LearnedCalls, caller: Caller) -> bool:
    """Whether calls are to be asked for in another way after an error."""
    try:
        if not learned.fail(candidate, way, error.message):
            return False
    except UsageError as advice:
        raise with_advice(error, advice) from None
    model, now = one_line(candidate.model), one_line(_switched(learned.of(candidate)))
    logger.warning("request %s: %s at %s: %s", caller.id, model, candidate.upstream.name, now)
    return True


def _switched(way: Way) -> str:
    return f"calls are asked for in the dialect {way.calls!r}, because the server answered: {way.reason}"


async def _hold(answer: Answer) -> bool:
    """Read the response up to its first call or its end, so that nothing was sent if the server's parser fails.

    Returns whether there is a call.
    """
    chunks = answer.first
    try:
        while not any(isinstance(chunk, ToolCall | Finish) for chunk in chunks) and len(answer.first) < MAX_HELD:
            if (following := await answer.upstream_request.stream.next_batch()) is None:
                break
            chunks = following
            answer.first += chunks
        if (error := next((chunk for chunk in answer.first if isinstance(chunk, Error)), None)) is not None:
            raise from_event(error)
    except BaseException:
        await answer.close()
        raise
    return any(isinstance(chunk, ToolCall) for chunk in chunks)


async def ask_again(
    answer: Answer, request: ClientRequest, caller: Caller, upstreams: Upstreams, attempts: Attempts
) -> Answer:
    """The response of the same upstream to another request, which continues the response to the client."""
    first = answer.upstream_request
    first.report.keep()
    return await _first_answer([answer.candidate], request, replace(caller, first=first), upstreams, attempts)


async def _open(
    candidate: Candidate, request: ClientRequest, caller: Caller, circuit: Circuit, *, has_fallback: bool
) -> Answer:
    is_doubtful = circuit.is_open
    circuit.begin()
    servers = caller.servers
    facts = ServerFacts() if servers is None else await servers.of(candidate, caller.key)
    caller = replace(caller, is_long=True) if len(request.messages) > MANY_MESSAGES else caller
    prepare = partial(prepare_attempt, has_fallback=has_fallback, is_doubtful=is_doubtful)
    if caller.is_long:
        prepared = await run_off_loop(prepare, candidate, request, caller, facts)
    else:
        prepared = prepare(candidate, request, caller, facts)
    upstream_request = ask(candidate, request, caller, facts, prepared)
    stream = upstream_request.stream
    try:
        if servers is not None:
            await servers.check(candidate, upstream_request, caller.key)
        first = await stream.start()
        if (failure := failure_in(first)) is not None:
            raise failure
    except BaseException:
        await stream.close()
        raise
    return Answer(candidate, upstream_request, first, circuit)


def failure_in(chunks: Sequence[StreamChunk]) -> ProviderError | None:
    """The failure at the start of a response, if any: an error, or a cut before any content."""
    for chunk in chunks:
        match chunk:
            case Error():
                return from_event(chunk)
            case Finish(reason="cut"):
                return ConnectionFailed("the response ended before it was complete", retryable=True)
            case Usage() | Unknown():
                pass
            case _:
                return None
    return None


async def whole_answer(
    candidates: Sequence[Candidate], request: ClientRequest, caller: Caller, upstreams: Upstreams, attempts: Attempts
) -> tuple[Answer, list[StreamChunk]]:
    """The complete response and its events. As nothing was sent yet, a fallback may replace it even in mid-response."""
    left = choose(candidates, upstreams.circuits, attempts)
    while True:
        answer = await _first_answer(left, request, caller, upstreams, attempts)
        answer = await _in_rounds(answer, request, caller, upstreams, attempts)
        left = left[left.index(answer.candidate) + 1 :]
        chunks = answer.first
        try:
            while (some := await answer.stream.next_batch()) is not None:
                chunks += joined(some)
        finally:
            await answer.close()
        has_failed = any(map(is_failure, chunks))
        answer.ended(has_failed=has_failed)
        error = next((chunk for chunk in chunks if isinstance(chunk, Error)), None)
        if learn(answer, error, upstreams.learned):
            left = [answer.candidate, *left]
        if not left or not has_failed:
            return answer, chunks
        attempts.fail("its response broke off")
        logger.warning("request %s: %s broke off, another is asked", caller.id, answer.candidate.upstream.name)


def joined(chunks: list[StreamChunk]) -> list[StreamChunk]:
    """The events with the pieces of a text as one: a response in one piece is encoded from them at once."""
    events: list[StreamChunk] = []
    for key, group in groupby(chunks, _text_of):
        pieces = [*group]
        if key is None or len(pieces) == 1:
            events += pieces
        else:
            kind, block, choice = key
            events.append(kind(block, "".join(piece.text for piece in pieces), choice))  # type: ignore[union-attr]
    return events


def _text_of(chunk: StreamChunk) -> tuple[type[Text | Reasoning], int, int] | None:
    """The text that a piece belongs to; None for other events."""
    return (type(chunk), chunk.block, chunk.choice) if isinstance(chunk, Text | Reasoning) else None


def learn(answer: Answer, error: Error | None, learned: LearnedCalls) -> bool:
    """Learn from the error that ended a response, if any; returns whether calls can be asked for in another way."""
    request = answer.upstream_request
    try:
        is_other = error is not None and learned.fail(answer.candidate, Way(request.calls), error.message)
    except UsageError as advice:
        request.report.note(str(advice))
        return False
    if is_other:
        request.report.note(f"in later requests, {_switched(learned.of(answer.candidate))}")
    return is_other


def is_failure(chunk: StreamChunk) -> bool:
    """Whether an event reports a failed response."""
    return isinstance(chunk, Error) or (isinstance(chunk, Finish) and chunk.reason in ("cut", "error"))
