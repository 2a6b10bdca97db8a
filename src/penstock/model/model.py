"""A model at a provider: `Model("provider:model")` sends requests and streams the responses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack, overload

from penstock.errors import UsageError
from penstock.events import Confirm
from penstock.healing.settings import Healing
from penstock.history.read import as_messages
from penstock.messages import Message, system
from penstock.model.checks import (
    check_connector,
    check_headers,
    check_model_name,
    check_option_names,
    check_option_values,
    check_tool_names,
    check_transport,
    check_types,
)
from penstock.model.connect import Connector, HTTPConnector, Transport, WebSocketConnector, new_connector
from penstock.model.encoded_history import EncodedHistory, PreparedRequest, encode_body, prepare
from penstock.model.endpoint import APIKey, Endpoint
from penstock.model.event_loop import warn_if_blocking
from penstock.model.known_models import KnownModel
from penstock.model.options import RequestOptions
from penstock.model.output_request import output_tool
from penstock.model.recording import recorder_of
from penstock.model.remembering import (
    Remember,
    memories_of,
    remember_request,
    unless_refused,
    warm_up_options,
)
from penstock.model.stream import AsyncStream, Stream
from penstock.model.streamed_response import Derived
from penstock.model.text_calls import CallOptions, Calls, check_healing, choose_calls
from penstock.output.output_type import output_type
from penstock.output.partial import partial_view
from penstock.providers import (
    OutputChoice,
    ReasoningField,
    complete_url,
    find_provider,
    on_wire,
    split_model,
    with_output_form,
    with_reasoning_back,
)
from penstock.redaction import without_secrets
from penstock.tools.declare import declare
from penstock.transport.exchange import Exchange
from penstock.transport.policy import Retries, Timeouts
from penstock.turn import Turn
from penstock.wires import WireName, wire_name
from penstock.wires.shared.request import OPTIONS, ModelOptions, Request

if TYPE_CHECKING:
    from typing_extensions import TypeForm, TypeVar

    Output = TypeVar("Output", default=str)

SCHEMES = {"sim": "penstock.testing.demo", "replay": "penstock.testing.replay"}
"""Model names that do not belong to a provider, and the modules that play them."""


class Model:
    """A model at a provider.

        model = Model("anthropic:claude-sonnet-5")
        with model.stream("What is the weather in Rome?", tools=[...]) as stream:
            for chunk in stream: ...
        stream.turn

    - `base_url`: the address; if missing, the provider's own, or the one in the environment.
    - `api_key`: the key; if missing, the environment variables of the provider are read when a request is made. It may
      be a function that returns the key, also an async one; it is called for each request.
    - `wire`: selects another protocol if the provider has several.
    - `client`: your own HTTP client (httpx2, httpx or aiohttp).
    - `headers`: more headers for every request.
    - `timeouts`: how long to wait.
    - `retries`: how often to try again.
    - `record`: a file to which each exchange is appended.
    - `via`: replaces HTTP, for example by a script of `penstock.testing`.
    - `reasoning_back`: the field of Chat Completions in which reasoning is sent back; False sends none back, and None
      does what the provider expects. True requires that the provider is known to expect it.
    - `output_form`: how the model is asked for structured output; without it, the wire chooses.
    - `healing`: what is healed in the responses of a server with bad habits; None heals nothing.
    - `transport`: `websocket` sends requests over WebSocket, one connection per conversation; None uses HTTP.
    - `remember`: what the server remembers, so that only new messages are sent: the responses of a `connection` (the
      default over WebSocket), or of a conversation that the `server` stores; None sends the whole history each time.

    Other keywords are options of every request: `temperature`, `max_tokens` ...
    """

    def __init__(
        self,
        name: KnownModel | str,
        base_url: str | None = None,
        api_key: APIKey | None = None,
        *,
        wire: WireName | None = None,
        client: Any = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        record: Any = None,
        via: Connector | None = None,
        reasoning_back: ReasoningField | bool | None = None,
        output_form: OutputChoice | None = None,
        healing: Healing | None = None,
        transport: Transport | None = None,
        remember: Remember | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        settings = locals()
        self.is_plain = all(value in (None, "", {}) for key, value in settings.items() if key not in ("self", "name"))
        """Whether the name alone identifies the model: it has no other settings."""
        check_option_names(options, OPTIONS, Model, "a model")
        check_option_values(options)
        check_model_name(name)
        check_connector(via)
        check_headers(headers)
        check_healing("native", False, healing)
        check_types(timeouts=(timeouts, Timeouts), retries=(retries, Retries))
        self.name = name
        self.healing = healing
        scheme, _, rest = name.partition(":")
        check_transport(transport, is_played=via is not None or scheme in SCHEMES)
        if scheme in SCHEMES and via is not None:
            raise UsageError(f"{name} cannot be combined with `via`; use the name of a provider's model")
        if scheme in SCHEMES:
            self.provider, url = scheme, f"{scheme}://penstock"
            self.model, row, self._connector = import_module(SCHEMES[scheme]).connector(rest, wire)
        else:
            prefix, self.model = split_model(name)
            self.provider, row = find_provider(prefix)
            self._connector = via or new_connector(transport, client, wire_name(wire or row.wire))
            row = on_wire(row, wire_name(wire or row.wire))
            url = complete_url(row, base_url) if base_url else "" if via is None else "played://penstock"
        self.wire: WireName = wire_name(wire or row.wire)
        self._endpoint = Endpoint(
            name=self.provider,
            provider=with_output_form(with_reasoning_back(row, self.wire, reasoning_back), self.wire, output_form),
            url=url,
            api_key=api_key,
            headers=headers or {},
            is_played=scheme in SCHEMES or via is not None,
        )
        self._memories = memories_of(remember, self.wire, is_socket=isinstance(self._connector, WebSocketConnector))
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._record = record
        self._options = options
        self._history: EncodedHistory | None = None  # the history of its conversation: see `for_conversation`

    def choose_calls(self, calls: str | Sequence[str]) -> Calls:
        """The dialects that `calls` stands for; raises a `UsageError` if it is `auto` and the model is not known."""
        return choose_calls(calls, self.model, self._endpoint.provider)

    @property
    def base_url(self) -> str:
        """The provider's base URL; raises a `UsageError` if none is set."""
        return self._endpoint.base_url

    def check_endpoint(self) -> None:
        """Raises a `UsageError` if the API key or the base URL is missing, so that every request would fail."""
        self._endpoint.find_key()
        self._endpoint.base_url  # noqa: B018  # raises if there is none

    def with_timeouts(self, timeouts: Timeouts | None = None, retries: Retries | None = None) -> Model:
        """A copy of the model with other timeouts and retries; None keeps the model's own."""
        if timeouts is None and retries is None:
            return self
        other = copy(self)
        other._timeouts, other._retries = timeouts or self._timeouts, retries or self._retries
        return other

    def for_conversation(self) -> Model:
        """A copy of the model for the requests of one conversation, one after the other.

        Messages of the previous request are not encoded again.
        """
        other = copy(self)
        other._history = EncodedHistory()
        if isinstance(self._connector, WebSocketConnector):
            other._connector = self._connector.for_conversation()
        return other

    def close(self) -> None:
        """Close the connections that are kept open to the provider, for all models at this address.

        A response that is being read is not affected, a later request opens a new connection, and your own `client`
        stays open. `penstock.close()` closes the connections to all addresses.
        """
        if isinstance(self._connector, HTTPConnector | WebSocketConnector):
            with suppress(UsageError):  # without a base URL there is no connection
                self._connector.close(self.base_url)

    async def aclose(self) -> None:
        """Close the connections that are kept open to the provider, as `close` does, and wait for this event loop."""
        if isinstance(self._connector, HTTPConnector | WebSocketConnector):
            with suppress(UsageError):
                await self._connector.aclose(self.base_url)

    def __repr__(self) -> str:
        try:
            base_url = without_secrets(self.base_url)
        except UsageError:
            base_url = ""
        return f"Model({self.name!r}, wire={self.wire!r}, base_url={base_url!r})"

    @overload
    def stream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: None = None,
        **options: Unpack[RequestOptions],
    ) -> Stream[str]: ...
    @overload
    def stream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: TypeForm[Output],
        **options: Unpack[RequestOptions],
    ) -> Stream[Output]: ...
    @overload
    def stream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RequestOptions],
    ) -> Stream[Any]: ...
    def stream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Any = None,
        **options: Unpack[RequestOptions],
    ) -> Stream[Any]:
        """Send a request and iterate over its response as it arrives; the options are those of `ask`.

        `output` is the type of a structured output: the stream has it as `output`, and so far as `partial`. With
        `partial_arguments`, the stream has an `ArgumentDelta` for each piece of a call's arguments.
        """
        derived, request = _derived(output, options)
        return Stream(self.ask(messages, tools, output=derived.output, **request), self._connector.connect(), derived)

    @overload
    def astream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncStream[str]: ...
    @overload
    def astream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: TypeForm[Output],
        **options: Unpack[RequestOptions],
    ) -> AsyncStream[Output]: ...
    @overload
    def astream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RequestOptions],
    ) -> AsyncStream[Any]: ...
    def astream(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Any = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncStream[Any]:
        """Send a request and iterate over its response in async code; see `stream`."""
        derived, request = _derived(output, options)
        exchange = self.ask(messages, tools, output=derived.output, **request)
        return AsyncStream(exchange, self._connector.aconnect(), derived)

    @overload
    def complete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: None = None,
        **options: Unpack[RequestOptions],
    ) -> Turn[str]: ...
    @overload
    def complete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: TypeForm[Output],
        **options: Unpack[RequestOptions],
    ) -> Turn[Output]: ...
    @overload
    def complete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RequestOptions],
    ) -> Turn[Any]: ...
    def complete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Any = None,
        **options: Unpack[RequestOptions],
    ) -> Turn[Any]:
        """Send a request and wait for the whole turn: its `type` says what to do next, and `output` is its output."""
        warn_if_blocking("model.complete()", "await model.acomplete()")
        with self.stream(messages, tools, output=output, **options) as stream:
            for _ in stream:
                pass
        return stream.turn

    @overload
    async def acomplete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: None = None,
        **options: Unpack[RequestOptions],
    ) -> Turn[str]: ...
    @overload
    async def acomplete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: TypeForm[Output],
        **options: Unpack[RequestOptions],
    ) -> Turn[Output]: ...
    @overload
    async def acomplete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RequestOptions],
    ) -> Turn[Any]: ...
    async def acomplete(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        output: Any = None,
        **options: Unpack[RequestOptions],
    ) -> Turn[Any]:
        """Send a request in async code and wait for the whole turn, as `complete` does."""
        async with self.astream(messages, tools, output=output, **options) as stream:
            async for _ in stream:
                pass
        return stream.turn

    def warm_up(
        self, messages: Any = "", tools: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
    ) -> None:
        """Open the WebSocket and let the server prepare a prompt, to which it does not respond yet.

        A request with the same tools and options, whose messages begin with these, continues from there. If the server
        does not speak WebSocket, nothing is sent.
        """
        with unless_refused():
            self.complete(messages, tools, **warm_up_options(self._memories, options))

    async def awarm_up(
        self, messages: Any = "", tools: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
    ) -> None:
        """Open the WebSocket and let the server prepare a prompt in async code, as `warm_up` does."""
        with unless_refused():
            await self.acomplete(messages, tools, **warm_up_options(self._memories, options))

    stream_text_and_classify = complete
    """Another name of `complete`."""

    astream_text_and_classify = acomplete
    """Another name of `acomplete`."""

    def ask(
        self,
        messages: Any,
        tools: Iterable[Any] | None = None,
        *,
        system_prompt: str = "",
        tool_choice: str = "",
        parallel: bool | None = None,
        calls: str | Sequence[str] = "native",
        rescue: bool | Iterable[str] = False,
        healing: Healing | None = None,
        confirm: Confirm = "end",
        streaming: bool = True,
        extra: Mapping[str, Any] | None = None,
        id_prefix: str = "call_",
        output: Any = None,
        **options: Unpack[ModelOptions],
    ) -> Exchange:
        """Build a request and the rules for its response; nothing is sent yet.

        `messages` is a string, a message, or a list of messages, ours or in a provider's shape. `tool_choice` is
        "auto", "none", "required" or a tool's name; `parallel` allows or forbids several calls in one response. With
        `calls` the name of a dialect, the tools are described in the prompt and the calls are read from the text. If it
        is a list, the prompt is that of the first, and all are read; `auto` chooses by provider and model. With
        `rescue`, calls are found that a model with native calls wrote into its text by mistake. `healing`
        replaces that of the model, and includes `rescue`. `confirm` says when a
        call in the text with raw values counts: at the end of the text, or when it closes. `extra` is merged into the
        request body. `id_prefix` starts the ids of calls that arrive without one. `output` is the type of a
        structured output, which comes as the text of the response, as JSON, however the provider is asked for it.
        """
        check_option_names(options, OPTIONS, Model.ask, "a request")
        check_option_values(options)
        declarations, output = declare(tools), output_type(output)
        check_tool_names(declarations if output is None else [*declarations, output_tool(output.declaration)])
        prompt = (system(system_prompt),) if system_prompt else ()
        request = Request(
            model=self.model,
            messages=(*prompt, *_read_messages(messages, extra)),
            tools=tuple(declarations),
            tool_choice=tool_choice,
            is_parallel=parallel,
            options={**self._options, **options},
            extra=extra or {},
            is_streaming=streaming,
        )
        healing = healing or self.healing
        chosen = self.choose_calls(calls)
        check_healing(chosen, rescue, healing)
        healing = None if healing is None else healing.with_tools(tools)
        call_options = CallOptions(chosen, rescue, id_prefix, confirm, healing)
        return self._exchange(prepare(request, call_options, output, self.wire, self._endpoint.provider.quirks))

    def _exchange(self, prepared: PreparedRequest) -> Exchange:
        """The exchange of a request and its response."""
        key = self._endpoint.find_key()
        quirks, history = self._endpoint.provider.quirks, self._history
        if self._memories is not None and history is None:
            history = EncodedHistory()  # whose items can be compared
        sent = encode_body(prepared.request, self.wire, quirks, history)
        remembered = remember_request(self._memories, prepared, quirks, sent.parts)
        parts = sent.parts if remembered is None else remembered.parts
        http_request = self._endpoint.http_request(sent.path, parts, key)
        return Exchange(
            request=http_request,
            new_decoding=prepared.new_decoding if remembered is None else remembered.new_decoding,
            memory=None if remembered is None else remembered.memory,
            timeouts=self._timeouts,
            retries=self._retries,
            clock=time.monotonic,
            calendar=time.time,
            recorder=recorder_of(self._record, self.wire, self.name, http_request),
            credentials=self._endpoint.credentials(http_request, key),
            limit=self._endpoint.limit(http_request, self.model) if self._retries.shared else None,
        )


def _derived(output: Any, options: RequestOptions) -> tuple[Derived, dict[str, Any]]:
    """The settings for reading the response, and the options of the request itself."""
    kind, request = output_type(output), dict(options)
    view = partial_view(kind, has_arguments=bool(request.pop("partial_arguments", False)))
    return Derived(kind, view), request


def _read_messages(messages: Any, extra: Mapping[str, Any] | None) -> list[Message]:
    """The messages of a request; empty only if `extra` has fields, which may contain the prompt."""
    history = as_messages(messages) if messages != "" else []
    if not history and not extra:
        raise UsageError("there is nothing to answer: pass a prompt or messages")
    return history
