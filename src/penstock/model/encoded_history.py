"""Encodes the requests of one conversation. Messages that were encoded for the last request are not encoded again.

The encoder of the wire is the reference: it writes a whole history. This writes the same bytes in less time where the
new messages stand on their own: whole responses with the results of their calls, after everything that was there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.decoder import Decoder
from penstock.errors import UsageError
from penstock.events import Opaque, Reasoning, Text, ToolCall, ToolCallInvalid
from penstock.messages import File, Message
from penstock.model.output_request import OutputCall, ask_for_output, with_prompt
from penstock.model.text_calls import (
    CallOptions,
    StagedDecoding,
    conversation,
    find_calls,
    heal_response,
    prompt_for_calls,
)
from penstock.output.output_type import OutputType
from penstock.transport.exchange import Decoding
from penstock.wires import WireName, find_encoder, find_facts
from penstock.wires.shared.request import EncodedRequest, OutputForm, Request

if TYPE_CHECKING:
    from penstock.dialects.provenance import Provenance


_FIELDS = ("messages", "contents", "input")
"""The fields of request bodies that hold a history, a list; each wire has one of them."""


class EncodedBody(Struct, frozen=True):
    """A request: its path, and its JSON body in parts, which requests of one conversation share."""

    path: str
    parts: tuple[bytes, ...]


def encode_body(request: Request, wire: str, quirks: frozenset[str], history: EncodedHistory | None) -> EncodedBody:
    """Encode a request, with the history of its conversation if there is one; raises a `UsageError` if it cannot be."""
    try:
        if history is not None:
            return history.encode(request, wire, quirks)
        body = find_encoder(wire)(request, quirks)
        return EncodedBody(body.path, (msgspec.json.encode(body.body),))
    except UsageError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the request cannot be encoded as JSON: {error}{_place(request)}") from error


def _place(request: Request) -> str:
    """The tool whose schema cannot be encoded, if any."""
    for tool in request.tools:
        try:
            msgspec.json.encode([tool.parameters, tool.extra])
        except (TypeError, ValueError, RecursionError):
            return f" (in the schema of the tool {tool.name!r})"
    return ""


class EncodedHistory:
    """The history of the last request, as it was encoded."""

    def __init__(self) -> None:
        self._last: _Last | None = None

    def encode(self, request: Request, wire: str, quirks: frozenset[str]) -> EncodedBody:
        """Encode a request; raises what JSON encoding raises if it has a value without a JSON form."""
        last, settings = self._last, replace(request, messages=())
        is_like_last = last is not None and last.settings == settings and last.place == (wire, quirks)
        if last is not None and is_like_last and request.tools:  # without tools, those that were called are declared
            following = _following(last.messages, request.messages)
            if following is not None and last.ids.isdisjoint(ids := _call_ids(following)):
                last.add(following, ids)
                return last.body
        body = find_encoder(wire)(request, quirks)
        self._last = _first(request, settings, (wire, quirks), body)
        return EncodedBody(body.path, (msgspec.json.encode(body.body),)) if self._last is None else self._last.body


class _Last:
    """The last request: its messages, the call ids in them, and the parts of its body.

    Prompt caching marks the last messages on some wires. `_marked` has their places among the parts and their unmarked
    JSON, for later requests in which other messages are the last.
    """

    def __init__(self, settings: Request, place: tuple[str, frozenset[str]], body: EncodedRequest, field: str) -> None:
        self.settings = settings
        self.place = place
        self.messages: list[Message] = []
        self.ids: set[str] = set()
        self._path = body.path
        self._field = field
        self._marked: deque[tuple[int, bytes]] = deque()
        fields = [*body.body]
        index = fields.index(field)
        opening = _encoded({name: body.body[name] for name in fields[:index]})
        closing = _encoded({name: body.body[name] for name in fields[index + 1 :]})
        self._parts = [b"%s%s%s:[" % (opening, b"," if opening else b"", msgspec.json.encode(field))]
        self._parts[0] = b"{" + self._parts[0]
        self._closing = b"]%s%s}" % (b"," if closing else b"", closing)

    @property
    def body(self) -> EncodedBody:
        return EncodedBody(self._path, (*self._parts, self._closing))

    def add(self, messages: Sequence[Message], ids: Iterable[str]) -> None:
        """Encode these messages, which follow the known ones."""
        request = replace(self.settings, messages=tuple(messages))
        self.add_items(request, find_encoder(self.place[0])(request, self.place[1]))
        self.messages += messages
        self.ids.update(ids)

    def add_items(self, request: Request, encoded: EncodedRequest) -> None:
        """Keep the messages of a request as they were encoded."""
        items, unmarked = encoded.body[self._field], self._unmarked(request, encoded)
        for item, plain in zip(items, unmarked, strict=True):
            separator = b"," if len(self._parts) > 1 else b""
            if item != plain:
                self._marked.append((len(self._parts), separator + msgspec.json.encode(plain)))
            self._parts.append(separator + msgspec.json.encode(item))
        while len(self._marked) > find_facts(self.place[0]).marked_messages:
            place, part = self._marked.popleft()
            self._parts[place] = part

    def _unmarked(self, request: Request, encoded: EncodedRequest) -> list[Any]:
        """The messages of a request without the marks of prompt caching."""
        wire, quirks = self.place
        if find_facts(wire).marked_messages and request.options.get("cache"):
            options = {name: value for name, value in request.options.items() if name != "cache"}
            encoded = find_encoder(wire)(replace(request, options=options), quirks)
        items: list[Any] = encoded.body[self._field]
        return items


def _first(
    request: Request, settings: Request, place: tuple[str, frozenset[str]], body: EncodedRequest
) -> _Last | None:
    """The parts to keep of a completely encoded request; None if its history is not a list."""
    field = next((field for field in _FIELDS if isinstance(body.body.get(field), list)), None)
    if field is None or field in request.extra:
        return None
    last = _Last(settings, place, body, field)
    last.add_items(request, body)
    last.messages = [*request.messages]
    last.ids = set(_call_ids(request.messages))
    return last


def _encoded(fields: dict[str, Any]) -> bytes:
    """The fields of an object as JSON, without its braces."""
    return msgspec.json.encode(fields)[1:-1]


def _following(known: list[Message], messages: Sequence[Message]) -> Sequence[Message] | None:
    """The messages after the known ones, if they can be encoded on their own."""
    count = len(known)
    if len(messages) <= count or not _begins_with(messages, known):
        return None
    new = messages[count:]
    is_response = _ends_whole(known) and new[0].role == "assistant" and new[-1].role == "tool"
    return new if is_response and all(map(_stands_alone, new)) and _are_paired(new) else None


def _ends_whole(known: list[Message]) -> bool:
    """Whether the last message is encoded with the user role."""
    last = known[-1]
    if last.role == "tool":
        return len(known) > 1 and _answers(known[-2], last)
    return last.role == "user" and any(isinstance(part, Text) and part.text.strip() for part in last.parts)


def _begins_with(messages: Sequence[Message], known: list[Message]) -> bool:
    """Whether a history begins with these message objects, except the system prompt, which is new in each request.

    Each step compares its whole history, so the loop over it is not one of Python.
    """
    start = next((index for index, message in enumerate(known) if message.role != "system"), len(known))
    return known[:start] == [*messages[:start]] and all(map(is_, known[start:], messages[start:]))


def _stands_alone(message: Message) -> bool:
    """Whether a message is a response or its results, without state about other messages or the request."""
    if message.role not in ("assistant", "tool"):
        return False
    if any(isinstance(part, File) for result in message.results for part in result.content):
        return False  # documents have names that are unique in a request
    blocks = {part.block for part in message.parts if isinstance(part, Text | Reasoning | ToolCall)}
    return all(part.block in blocks for part in message.parts if isinstance(part, Opaque))


def _are_paired(messages: Sequence[Message]) -> bool:
    """Whether each response has calls, and is followed by the results of all of them."""
    if len(messages) % 2:
        return False
    pairs = zip(messages[::2], messages[1::2], strict=True)
    return all(_answers(response, results) for response, results in pairs)


def _answers(response: Message, results: Message) -> bool:
    calls = _call_ids([response])
    return (
        response.role == "assistant"
        and results.role == "tool"
        and bool(calls)
        and "" not in calls
        and len({*calls}) == len(calls)
        and calls == [result.call_id for result in results.results]
    )


def _call_ids(messages: Iterable[Message]) -> list[str]:
    calls = (part for message in messages for part in message.parts if isinstance(part, ToolCall | ToolCallInvalid))
    return [call.id for call in calls]


class PreparedRequest(Struct, frozen=True):
    """A request as it is sent on a wire, and how its response is decoded.

    `declarations` are the tools that may be called, also those that only the prompt describes. `provenance` has the
    messages that calls in the text are compared with, `form` says how the output was asked for, if it was. An answer
    that `is_structured` was asked for as JSON, in whatever form.
    """

    request: Request
    wire: WireName
    call_options: CallOptions
    declarations: list[ToolDeclaration]
    provenance: Provenance | None
    form: OutputForm | None = None
    is_structured: bool = False

    def new_decoding(self) -> Decoding:
        """The stages for one attempt of the request: bytes to chunks."""
        options = self.call_options
        decoder = Decoder(self.wire, self.declarations, id_prefix=options.id_prefix)
        if options.healing is None:
            decoding = find_calls(
                decoder, options, self.declarations, self.provenance, is_structured=self.is_structured
            )
        else:
            decoding = heal_response(decoder, options, self.request, self.wire, self.declarations)
        return StagedDecoding(decoding, OutputCall()) if self.form == "tool" else decoding


def prepare(
    request: Request, options: CallOptions, output: OutputType[Any] | None, wire: WireName, quirks: frozenset[str]
) -> PreparedRequest:
    """Prepares a request, with its declared tools, for a provider with these quirks."""
    declarations, messages = list(request.tools), list(request.messages)
    provenance = conversation(options.calls, options.rescue, messages, request.extra)
    if options.calls != "native":
        if output is not None:
            messages = with_prompt(messages, output.declaration)
        request = prompt_for_calls(options.calls, request, messages)
    elif output is not None:
        request, form = ask_for_output(request, output.declaration, wire, quirks)
        return PreparedRequest(request, wire, options, list(request.tools), provenance, form, is_structured=True)
    return PreparedRequest(request, wire, options, declarations, provenance, is_structured=output is not None)
