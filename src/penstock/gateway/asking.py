"""Prepares the request to an upstream: its protocol, key and limits, and the stages that heal the response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.decoder import Decoder
from penstock.dialects.conversation import KeptTexts, keep_texts
from penstock.errors import ProviderError, TimedOut, UsageError
from penstock.events import Text, Usage
from penstock.gateway.calls.asked import ask_in_text, in_text_calls
from penstock.gateway.config.settings import NATIVE, Upstream
from penstock.gateway.hosted.runners import WebTools
from penstock.gateway.hosted.uses import Uses, web_tool_uses, with_functions
from penstock.gateway.routing import Candidate
from penstock.gateway.servers.expectations import Expectations, expectations_of
from penstock.gateway.servers.fitting import fit_choice, window_fields
from penstock.gateway.upstream_keys import upstream_key
from penstock.gateway.watch.prompt_cache import Prompt, read_prompt
from penstock.gateway.watch.reminders import reminder
from penstock.gateway.watch.repeated_calls import RepeatedCalls
from penstock.healing.decoding import HealedDecoding, ResponseContext
from penstock.healing.estimate import estimate_input
from penstock.healing.in_text import InTextCalls
from penstock.healing.report import HealingReport
from penstock.history.client_request import ClientRequest, hosted_name
from penstock.messages import RESULT_CONTENT, Message, Part, ToolResult, join_messages
from penstock.model.connect import Connector, HTTPConnector
from penstock.model.model import Model
from penstock.model.stream import AsyncStream
from penstock.providers import TEMPLATED, find_provider
from penstock.servers.facts import ServerFacts
from penstock.transport.commands import HTTPRequest
from penstock.transport.error_responses import is_parser_failure
from penstock.transport.exchange import Exchange
from penstock.transport.policy import Retries, Timeouts
from penstock.wires import WireName, find_facts, find_left_out, find_response_frames, wire_name
from penstock.wires.shared.decode_request.request_settings import Dropped
from penstock.wires.shared.encode_request.body import merge

if TYPE_CHECKING:
    from penstock.gateway.facts import UpstreamFacts

PATIENCE = 30.0
"""The longest `Retry-After` in seconds that is honoured without a fallback."""
IMPATIENCE = 5.0
"""The longest `Retry-After` in seconds that is honoured with a fallback."""
OTHER_HEADER = "only the protocol of the request has this header"
GRAMMARS = "grammar-format"
"""The quirk of servers that turn schemas into grammars, which have no patterns and long repetitions."""
NO_SETTING = "the provider or the model does not take this setting"


class RouteRetries(Retries, frozen=True, kw_only=True):
    """Retries that exclude silent servers: they would be silent again, while the client waits."""

    def delay(self, attempt: int, error: ProviderError) -> float | None:
        return None if isinstance(error, TimedOut) else Retries.delay(self, attempt, error)


class AutoRetries(RouteRetries, frozen=True, kw_only=True):
    """Retries that exclude a server whose parser failed: calls are asked for in another way."""

    def delay(self, attempt: int, error: ProviderError) -> float | None:
        return None if is_parser_failure(error.message) else RouteRetries.delay(self, attempt, error)


class Decodings:
    """The decodings of a response, one per attempt; `last` is the current one."""

    __slots__ = ("context", "last")

    def __init__(self, context: ResponseContext) -> None:
        self.context = context
        self.last: HealedDecoding

    def new(self) -> HealedDecoding:
        """The decoding of another attempt."""
        context = self.context
        self.last = HealedDecoding(Decoder(context.wire, context.tools, id_prefix=context.id_prefix), context)
        return self.last


class UpstreamRequest(Struct, frozen=True):
    """A prepared request to an upstream, the fields that were left out, and how calls are asked for."""

    stream: AsyncStream
    decodings: Decodings
    report: HealingReport
    dropped: tuple[Dropped, ...]
    sent: HTTPRequest
    estimate: int
    calls: str = NATIVE
    facts: ServerFacts = ServerFacts()
    expectations: Expectations | None = None
    prompt: Prompt | None = None


class Caller(Struct, frozen=True, kw_only=True):
    """The parts of a client's request that every upstream needs: its id, its own key, and its recorder.

    `headers` request features of the client's protocol; upstreams of the same protocol get them. `servers` knows the
    facts of upstreams.
    """

    id: str
    key: str = ""
    is_long: bool = False  # whether its body is so long that it is converted in a thread
    is_inspected: bool = False
    record: object = None
    headers: Mapping[str, str] = {}
    servers: UpstreamFacts | None = None
    web_tools: WebTools | None = None
    first: UpstreamRequest | None = None  # the first request of the response, if this is a later one


def passed_headers(wire: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a client that request features of its protocol."""
    return {name: headers[name] for name in find_facts(wire).passed_headers if headers.get(name)}


def ask(
    candidate: Candidate, request: ClientRequest, caller: Caller, facts: ServerFacts, prepared: Prepared
) -> UpstreamRequest:
    """The request to a candidate; nothing is sent yet.

    Later requests of a response have the report and the expectations of its first one.
    """
    healing = candidate.healing
    report = HealingReport() if caller.first is None else caller.first.report
    for note in filter(None, (*prepared.notes, prepared.repeats)):
        report.note(note)
    estimate = estimate_input(prepared.messages, prepared.tools)
    if caller.first is None:
        is_in_text = prepared.in_text is not None
        expectations = expectations_of(
            request, prepared.simplified, report, has_tools=bool(prepared.tools), is_in_text=is_in_text
        )
    else:
        expectations = caller.first.expectations
    context = ResponseContext(
        wire=prepared.wire, client_wire=request.wire, tools=prepared.tools, messages=prepared.messages,
        fields=prepared.documents, id_prefix=_id_prefix(caller), healing=healing, report=report,
        estimate=Usage(estimate) if healing.usage else None, calls_allowed=request.settings.tool_choice != "none",
        in_text=prepared.in_text, watch=None if expectations is None else expectations.watch,
    )  # fmt: skip
    decodings = Decodings(context)
    exchange = replace(prepared.exchange, new_decoding=decodings.new)
    return UpstreamRequest(
        open_stream(candidate, exchange), decodings, report, prepared.dropped, exchange.request, estimate,
        candidate.calls, facts, expectations, prepared.prompt,
    )  # fmt: skip


class Prepared(Struct, frozen=True, kw_only=True):
    """A request in the form of an upstream: its messages, other fields and tools, and the omitted fields.

    `in_text` says how calls in the text are read, if they were asked for there. The messages are then still those of
    the client, with which such calls are compared. `documents` are the texts in the other fields. `repeats` says which
    calls the model was reminded of.
    """

    exchange: Exchange
    wire: WireName
    messages: Sequence[Message]
    documents: KeptTexts
    tools: tuple[ToolDeclaration, ...]
    dropped: tuple[Dropped, ...]
    in_text: InTextCalls | None = None
    repeats: str = ""
    notes: tuple[str, ...] = ()
    simplified: tuple[ToolDeclaration, ...] = ()
    prompt: Prompt | None = None  # set for a long request that is inspected


def prepare_attempt(
    candidate: Candidate, request: ClientRequest, caller: Caller, facts: ServerFacts, *, has_fallback: bool,
    is_doubtful: bool,
) -> Prepared:  # fmt: skip
    """The request to a candidate in the protocol of its upstream. A long one is made in a thread.

    A candidate with a fallback gets a shorter timeout, and an `is_doubtful` one (with an open circuit) no retry.
    """
    patience = IMPATIENCE if has_fallback else PATIENCE
    retries = _retries(0 if is_doubtful else candidate.upstream.retries, patience, candidate.is_auto)
    prepared = prepare(candidate, request, caller, retries, facts)
    if not caller.is_long:
        return prepared
    if not candidate.healing.quoted:
        keep_texts(prepared.messages)
    if not caller.is_inspected:
        return prepared
    return replace(prepared, prompt=read_prompt(prepared.wire, prepared.tools, prepared.messages, request.messages))


def prepare(
    candidate: Candidate, request: ClientRequest, caller: Caller, retries: Retries, facts: ServerFacts | None = None
) -> Prepared:
    """The request to a candidate in the protocol of its upstream, fitted to the facts of the server."""
    upstream, request = candidate.upstream, _with_web_tools(candidate, request, caller)
    repeats = RepeatedCalls(request.messages, candidate.watch.repeated_calls)
    request = replace(request, messages=repeats.messages)
    is_same = wire_of(upstream) == request.wire
    model = _model(candidate, caller, retries, caller.headers if is_same else {})
    in_text = in_text_calls(candidate, request)
    quirks = find_provider(upstream.provider)[1].quirks
    is_local = _is_local(upstream)
    is_plain = is_local or in_text is not None  # it takes nothing that is not in the prompt
    foreign = request.foreign_tools(model.wire, has_hosted=not is_plain)
    if candidate.hosted_tools == "refuse" and foreign:
        raise UsageError(
            f"{hosted_name(foreign[0])} runs at its provider, and {upstream.name} has no such tool: leave it out, or "
            'set hosted_tools = "drop" in the settings of the gateway'
        )
    sent, dropped = request.request_for(
        model.wire, has_hosted=not is_plain, has_exact=not is_plain and "no-custom-tools" not in quirks,
        is_grammar=GRAMMARS in quirks,
    )  # fmt: skip
    sent, notes = (sent, ()) if facts is None or in_text is not None else fit_choice(sent, facts)
    messages: Sequence[Message] = sent.messages
    if is_local:
        messages = join_neighbours(messages, is_system_first="system-only-first" in quirks)
        sent = replace(sent, messages=messages)
    calls = NATIVE
    if in_text is not None:
        sent, calls = ask_in_text(candidate, sent, in_text)
    left_out = () if is_same else tuple(Dropped(name, OTHER_HEADER) for name in caller.headers)
    written = sent if calls == NATIVE else replace(sent, tools=())
    left_out += tuple(Dropped(name, NO_SETTING) for name in find_left_out(model.wire)(written, quirks))
    exchange = model.ask(
        sent.messages, sent.tools, tool_choice=sent.tool_choice, parallel=sent.is_parallel, calls=calls,
        streaming=upstream.streaming, extra=merge(window_fields(candidate, model.wire), sent.extra),
        id_prefix=_id_prefix(caller), **sent.options,
    )  # fmt: skip
    return Prepared(
        exchange=_named(exchange, upstream), wire=model.wire, messages=messages, documents=KeptTexts(sent.extra),
        tools=sent.tools, dropped=(*dropped, *left_out), in_text=in_text, notes=notes, repeats=repeats.note,
        simplified=sent.tools if GRAMMARS in quirks and in_text is None else (),
    )  # fmt: skip


def _with_web_tools(candidate: Candidate, request: ClientRequest, caller: Caller) -> ClientRequest:
    """The request with functions in place of the web tools that the gateway runs."""
    if caller.web_tools is None or not (uses := uses_of(candidate, request)):
        return request
    return with_functions(request, uses, caller.web_tools.find_text)


def uses_of(candidate: Candidate, request: ClientRequest) -> Uses:
    """The web tools that the gateway runs if this candidate answers."""
    upstream = candidate.upstream
    is_plain = _is_local(upstream) or in_text_calls(candidate, request) is not None
    foreign = request.foreign_tools(wire_of(upstream), has_hosted=not is_plain)
    return web_tool_uses(request, foreign, candidate.web_tools)


def _is_local(upstream: Upstream) -> bool:
    """Whether an upstream is a server of models with chat templates, which has no tools of its own."""
    return find_provider(upstream.provider)[0] in TEMPLATED


def open_stream(candidate: Candidate, exchange: Exchange) -> AsyncStream:
    """The stream of an exchange with a candidate."""
    connector: Connector = candidate.upstream.via or HTTPConnector()
    return AsyncStream(exchange, connector.aconnect())


def passed_exchange(candidate: Candidate, caller: Caller, retries: Retries) -> Exchange:
    """An exchange with a candidate, with its keys and limits, for a request that is passed on: its body is replaced."""
    names = find_facts(wire_of(candidate.upstream)).passed_headers
    headers = {name: value for name, value in caller.headers.items() if name in names}
    return _named(_model(candidate, caller, retries, headers).ask("-"), candidate.upstream)


def _named(exchange: Exchange, upstream: Upstream) -> Exchange:
    """An exchange whose errors name the upstream, and not its address: clients of the gateway get them."""
    return replace(exchange, request=replace(exchange.request, server=upstream.name))


def _id_prefix(caller: Caller) -> str:
    return f"call_{caller.id}_"


def _model(candidate: Candidate, caller: Caller, retries: Retries, passed: Mapping[str, str]) -> Model:
    upstream = candidate.upstream
    own = {name.lower(): value for name, value in upstream.headers.items()}
    headers = {**passed, **own, **{name: f"{own[name]},{passed[name]}" for name in passed if name in own}}
    timeouts = _timeouts(upstream.connect, upstream.first_token, upstream.idle, upstream.total)
    return Model(
        f"{upstream.provider}:{candidate.model}", upstream.url or None, upstream_key(upstream, caller.key),
        wire=wire_of(upstream), headers=headers, timeouts=timeouts, retries=retries, record=caller.record,
        via=upstream.via,
    )  # fmt: skip


@lru_cache(maxsize=100)  # to check the values of each request takes longer than to look them up
def _timeouts(connect: float, first_event: float, idle: float, total: float) -> Timeouts:
    return Timeouts(connect=connect, first_event=first_event, idle=idle, total=total)


@lru_cache(maxsize=100)
def _retries(attempts: int, longest_wait: float, is_auto: bool) -> RouteRetries:
    return (AutoRetries if is_auto else RouteRetries)(attempts=attempts, longest_wait=longest_wait)


def wire_of(upstream: Upstream) -> WireName:
    """The protocol of an upstream."""
    return wire_name(upstream.wire or find_provider(upstream.provider)[1].wire)


def takes_custom_tools(upstream: Upstream) -> bool:
    """Whether an upstream takes custom tools (free text)."""
    quirks = find_provider(upstream.provider)[1].quirks
    return find_response_frames(wire_of(upstream)).format.has_custom_calls and "no-custom-tools" not in quirks


# Joins messages for the templates of models: neighbours of one role, and the texts of a message or a result.
#
# Many templates refuse two messages of one role in a row, or take only text for content.


JOINED = ("user", "assistant")
BETWEEN_MESSAGES = "\n\n"
BETWEEN_PARTS = "\n"


def join_neighbours(messages: Sequence[Message], *, is_system_first: bool) -> tuple[Message, ...]:
    """The messages, with adjacent user or assistant messages joined.

    With `is_system_first`, late system messages become user messages: moved to the front, each new one would change the
    beginning of the prompt, and the server could not use its cache.
    """
    if is_system_first:
        leading = [*takewhile(lambda message: message.role == "system", messages)]
        messages = [*leading, *map(_as_reminder, messages[len(leading) :])]
    joined: list[Message] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        neighbours = [_with_short_parts(message) for message in group]
        if len(neighbours) > 1 and role in JOINED:
            joined.append(_with_one_text(join_messages(*neighbours), BETWEEN_MESSAGES))
        else:
            joined += neighbours
    return tuple(joined)


def _as_reminder(message: Message) -> Message:
    """A late system message as a user message, in the marks that agents use for text not written by the user."""
    return reminder(message.text) if message.role == "system" else message


def _with_short_parts(message: Message) -> Message:
    match message.role:
        case "user":
            return _with_one_text(message, BETWEEN_PARTS)
        case "tool" if any(len(result.content) > 1 for result in message.results):
            parts = (_with_text_alone(part) if isinstance(part, ToolResult) else part for part in message.parts)
            return replace(message, parts=tuple(parts))
        case _:
            return message


def _with_text_alone(result: ToolResult) -> ToolResult:
    """The result with its texts joined, if it contains only text."""
    texts = [part.text for part in result.content if isinstance(part, Text)]
    if len(result.content) < 2 or len(texts) < len(result.content):
        return result
    state = tuple(one for one in result.state if one.kind != RESULT_CONTENT)
    return replace(result, content=(Text(0, BETWEEN_PARTS.join(texts)),), state=state)


def _with_one_text(message: Message, between: str) -> Message:
    """The message with adjacent texts joined, unless vendor state belongs to one of them."""
    parts: list[Part] = []
    for part in message.parts:
        match parts[-1:], part:
            case [Text() as last], Text() if not message.stateful_blocks & {part.block, last.block}:
                parts[-1] = replace(last, text=f"{last.text}{between}{part.text}")
            case _:
                parts.append(part)
    return message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts))
