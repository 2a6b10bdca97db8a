"""A model at a provider: `Model("provider:model")`, which sends the right request and streams the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from importlib import import_module
from inspect import isfunction, ismethod, signature
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.decoder import Decoder
from penstock.errors import UnknownOptionError, UsageError
from penstock.events import StreamChunk
from penstock.history.read import as_messages
from penstock.messages import Message, system
from penstock.model.stream import AsyncConnection, AsyncStream, Connection, Stream
from penstock.providers import Provider, at, find_base_url, find_key, find_provider, split_model
from penstock.redaction import without_secrets
from penstock.transport.commands import HTTPRequest
from penstock.transport.exchange import Decoding, Exchange, Recorder
from penstock.transport.policy import Retries, Timeouts
from penstock.turn import Turn
from penstock.wires import ALIASES, find_encoder, find_wire
from penstock.wires.shared.request import OPTIONS, Request

if TYPE_CHECKING:
    from penstock.dialects.stage import TextCalls

SCHEMES = {"sim": "penstock.testing.demo", "replay": "penstock.testing.replay"}
"""Models that are no provider's: where the module is that plays them."""


class Connector(Protocol):
    """The way to a provider: makes the connections."""

    def connect(self) -> Connection: ...
    def aconnect(self) -> AsyncConnection: ...


class HTTPConnector:
    """The way over HTTP: with a client of the caller's, or with the one that all models share."""

    def __init__(self, client: Any = None) -> None:
        self._client = client

    def connect(self) -> Connection:
        from penstock.transport.sync_http import HTTPConnection

        return HTTPConnection(self._client)

    def aconnect(self) -> AsyncConnection:
        from penstock.transport.async_http import AsyncHTTPConnection

        return AsyncHTTPConnection(self._client)


class Model:
    """A model at a provider.

        model = Model("anthropic:claude-sonnet-5")
        with model.stream("What is the weather in Rome?", tools=[...]) as stream:
            for chunk in stream: ...
        stream.turn

    The key and the base URL are given here, or come from the variables that people already have, which are looked up
    when the model is asked: one that is missing is told then. `wire` chooses another
    protocol where a provider speaks several; `client` is an HTTP client of your own (httpx2, httpx, aiohttp); `record`
    is a file to which each exchange is written; `via` is another way to the provider than HTTP, such as a script of
    `penstock.testing`. Other keywords are options for every request: `temperature`, `max_tokens` ...
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        wire: str | None = None,
        client: Any = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        record: Any = None,
        via: Connector | None = None,
        **options: Any,
    ) -> None:
        _check_given(name, via, options)
        check_kinds(timeouts=(timeouts, Timeouts), retries=(retries, Retries))
        self.name = name
        scheme, _, rest = name.partition(":")
        if scheme in SCHEMES and via is not None:
            raise UsageError(f"{name} has its own way to answer: give `via` with the name of a provider's model")
        if scheme in SCHEMES:
            self.provider, self._url = scheme, f"{scheme}://penstock"
            self.model, self._row, self._connector = import_module(SCHEMES[scheme]).connector(rest, wire)
        else:
            given, self.model = split_model(name)
            self.provider, self._row = find_provider(given)
            self._connector = via or HTTPConnector(client)
            self._url = at(self._row, base_url) if base_url else "" if via is None else "played://penstock"
        is_played = scheme in SCHEMES or via is not None
        self._key = None if api_key is None and not is_played else (api_key or "").strip()
        self.wire = ALIASES.get(wire or "", wire) or self._row.wire
        find_wire(self.wire)
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._record = record
        self._options = options
        self._encode = find_encoder(self.wire)

    @property
    def base_url(self) -> str:
        """Where it is; a `UsageError` if nothing says so."""
        return find_base_url(self.provider, self._row) if not self._url else self._url

    def _found_key(self) -> str:
        key = find_key(self.provider, self._row) if self._key is None else self._key
        if not (key.isascii() and key.isprintable()):
            raise UsageError(f"the key for {self.provider} has characters that no key has: is it a whole key?")
        return key

    def with_patience(self, timeouts: Timeouts | None = None, retries: Retries | None = None) -> Model:
        """The same model, which waits and tries again as is said here; what is not said stays."""
        if timeouts is None and retries is None:
            return self
        other = copy(self)
        other._timeouts, other._retries = timeouts or self._timeouts, retries or self._retries
        return other

    def __repr__(self) -> str:
        try:
            base_url = without_secrets(self.base_url)
        except UsageError:
            base_url = ""
        return f"Model({self.name!r}, wire={self.wire!r}, base_url={base_url!r})"

    def stream(self, messages: Any, tools: Iterable[Any] | None = None, **options: Any) -> Stream:
        """Ask, and read the answer in plain code as it comes; the keywords are those of `ask`."""
        return Stream(self.ask(messages, tools, **options), self._connector.connect())

    def astream(self, messages: Any, tools: Iterable[Any] | None = None, **options: Any) -> AsyncStream:
        """Ask, and read the answer in async code as it comes; the keywords are those of `ask`."""
        return AsyncStream(self.ask(messages, tools, **options), self._connector.aconnect())

    def stream_text_and_classify(self, messages: Any, tools: Iterable[Any] | None = None, **options: Any) -> Turn:
        """Ask, and wait for the whole answer: its `type` is "tool_calls" or "final_answer"."""
        with self.stream(messages, tools, **options) as stream:
            for _ in stream:
                pass
        return stream.turn

    async def astream_text_and_classify(
        self, messages: Any, tools: Iterable[Any] | None = None, **options: Any
    ) -> Turn:
        """Ask, and wait for the whole answer: its `type` is "tool_calls" or "final_answer"."""
        async with self.astream(messages, tools, **options) as stream:
            async for _ in stream:
                pass
        return stream.turn

    def ask(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        system_prompt: str = "",
        tool_choice: str = "",
        parallel: bool | None = None,
        calls: str = "native",
        rescue: bool | Iterable[str] = False,
        streaming: bool = True,
        extra: Mapping[str, Any] | None = None,
        id_prefix: str = "call_",
        **options: Any,
    ) -> Exchange:
        """The exchange that asks the model: a request, and the rules for its answer. Nothing is sent yet.

        `messages` is a text, a message, or a list of them, ours or OpenAI-shaped. `tool_choice` is "auto", "none",
        "required" or a tool's name; `parallel` allows several calls at once, or forbids them. With `calls` a dialect's
        name, the tools are written into the prompt and the calls are read from the text; with `rescue` calls that
        leaked into the text of a model with native calls are found. `extra` is merged into the request as it stands.
        `id_prefix` begins the ids of calls that come without one.
        """
        _check_options(options)
        known = read_declarations(_with_schemas(tools))
        said = [*([system(system_prompt)] if system_prompt else []), *_asked(messages, extra)]
        merged = {**self._options, **options}
        if calls != "native":
            said, merged = _in_text(calls, said, known, merged)
        request = Request(
            model=self.model,
            messages=tuple(said),
            tools=() if calls != "native" else tuple(known),
            tool_choice=tool_choice,
            is_parallel=parallel,
            options=merged,
            extra=extra or {},
            is_streaming=streaming,
        )
        http_request = self._http_request(request)
        return Exchange(
            request=http_request,
            new_decoding=lambda: _staged(
                Decoder(self.wire, known, id_prefix=id_prefix), _stage(calls, rescue, known, id_prefix)
            ),
            timeouts=self._timeouts,
            retries=self._retries,
            clock=time.monotonic,
            calendar=time.time,
            recorder=self._recorder(http_request),
        )

    def _http_request(self, request: Request) -> HTTPRequest:
        key = self._found_key()
        sent = self._encode(request, self._row.quirks)
        try:
            body = msgspec.json.encode(sent.body)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"the request cannot be written as JSON: {error}{_culprit(request)}") from error
        url = self.base_url + sent.path
        headers = {"content-type": "application/json", "accept-encoding": "identity", **self._row.headers}
        if self._row.auth == "aws" and not key and isinstance(self._connector, HTTPConnector):
            from penstock.transport.aws_signature import signature as signed

            headers |= signed(url, body)
        else:
            headers |= _credentials(self._row, key)
        return HTTPRequest(url, headers | self._headers, body)

    def _recorder(self, request: HTTPRequest) -> Recorder | None:
        if self._record is None:
            return None
        from penstock.model.recording import FileRecorder

        return FileRecorder(self._record, self.wire, self.name, request)


def check_kinds(**given: tuple[Any, type]) -> None:
    """Raise a `UsageError` for what is given and is not of its kind."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            fields = "=…, ".join(getattr(kind, "__struct_fields__", ()))
            raise UsageError(f"{name} is {value!r}: give {kind.__name__}{f'({fields}=…)' if fields else ''}")


def _check_given(name: Any, via: Any, options: Mapping[str, Any]) -> None:
    for option in options:
        if option not in OPTIONS:
            raise UnknownOptionError(option, keywords(Model, OPTIONS), "a model")
    if not isinstance(name, str):
        raise UsageError(f"the name of a model is {name!r}: give 'provider:model'")
    if via is not None and not (hasattr(via, "connect") and hasattr(via, "aconnect")):
        raise UsageError(f"via is {via!r}: give a way to the provider, such as Scripted or Replay of penstock.testing")


def _check_options(options: Mapping[str, Any]) -> None:
    if unknown := options.keys() - OPTIONS:
        raise UnknownOptionError(min(unknown), keywords(Model.ask, OPTIONS)[1:], "a request")


def _asked(messages: Any, extra: Mapping[str, Any] | None) -> list[Message]:
    """What the model is asked; what is in `extra` may be enough."""
    asked = as_messages(messages) if messages != "" else []
    if not asked and not extra:
        raise UsageError("there is nothing to answer: give a prompt, or messages")
    return asked


def keywords(kind: Callable[..., Any], options: Iterable[str]) -> list[str]:
    """The keywords that something takes by name, and these options."""
    named = [one.name for one in signature(kind).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return list(dict.fromkeys([*named, *options]))


class _TextCallDecoding:
    """Two stages of an answer: bytes to events, and calls out of the text."""

    def __init__(self, decoder: Decoder, stage: TextCalls) -> None:
        self._decoder = decoder
        self._stage = stage

    def feed(self, data: bytes) -> list[StreamChunk]:
        return self._through(self._decoder.feed(data))

    def close(self) -> list[StreamChunk]:
        return self._through(self._decoder.close()) + self._stage.close()

    def _through(self, events: list[StreamChunk]) -> list[StreamChunk]:
        return [found for event in events for found in self._stage.feed(event)]


def _staged(decoder: Decoder, stage: TextCalls | None) -> Decoding:
    """The stages of an answer, as one."""
    return decoder if stage is None else _TextCallDecoding(decoder, stage)


def _with_schemas(tools: Iterable[Any] | None) -> Iterable[Any] | None:
    """The tools; plain functions made tools, so that the model learns of their parameters."""
    if tools is None or isinstance(tools, str | bytes | Mapping):
        return tools
    given = list(tools)
    if any(isfunction(one) or ismethod(one) for one in given):
        from penstock.tools.tool import as_tool

        given = [as_tool(one) if isfunction(one) or ismethod(one) else one for one in given]
    return given


def _stage(calls: str, rescue: bool | Iterable[str], tools: list[ToolDeclaration], id_prefix: str) -> TextCalls | None:
    """What finds calls in the text, if that is wanted."""
    if calls == "native" and not (rescue and tools):
        return None
    from penstock.dialects.rescue import LEAKS, Rescue
    from penstock.dialects.stage import TextCalls

    if calls != "native":
        return TextCalls(calls, tools, reasoning=True, id_prefix=id_prefix)
    return Rescue(tools, LEAKS if rescue is True else rescue or (), id_prefix=f"text_{id_prefix}")


def _in_text(
    dialect: str, messages: list[Message], tools: list[ToolDeclaration], options: dict[str, Any]
) -> tuple[list[Message], dict[str, Any]]:
    """The messages and the options for a model that writes its calls into its text."""
    from penstock.dialects.prompt import find_prompt, render

    given = options.get("stop") or ()
    stops = [*([given] if isinstance(given, str) else given), *(find_prompt(dialect).stop if tools else ())]
    return render(messages, tools, dialect), {**options, "stop": stops} if stops else options


def _credentials(row: Provider, key: str) -> dict[str, str]:
    """The headers that say who is asking."""
    match row.auth:
        case "bearer" | "aws":
            return {"authorization": f"Bearer {key}"} if key else {}
        case name:
            return {name: key} if key else {}


def _culprit(request: Request) -> str:
    """The tool whose schema is to blame, if it is one."""
    for tool in request.tools:
        try:
            msgspec.json.encode([tool.parameters, tool.extra])
        except (TypeError, ValueError, RecursionError):
            return f" (in the schema of the tool {tool.name!r})"
    return ""
