"""What the servers of a model remember: which response a request continues from, and which one is remembered next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.decoder import Decoder
from penstock.errors import ConnectionFailed, ProviderError, UsageError
from penstock.events import Progress, StreamChunk, ToolCallInvalid
from penstock.messages import Message, result, tool_results, user
from penstock.model.encoded_history import PreparedRequest
from penstock.model.options import RequestOptions
from penstock.transport.commands import NO_WEBSOCKET, ON_SOCKET, PLACE_LOST, HTTPRequest, HTTPResponseHead
from penstock.transport.exchange import Decoding
from penstock.turn import Turn, TurnBuilder
from penstock.wires import find_encoder, find_facts
from penstock.wires.shared.remembered import (
    Remembered,
    ServerMemory,
    SplitBody,
    following_body,
    joined_items,
    split_body,
    whole_body,
)
from penstock.wires.shared.request import Request

MAX_REMEMBERED = 32
"""How many responses a model continues from; the least recent is forgotten, and its conversation is sent whole."""


Remember = Literal["connection", "server"]
"""For how long a server remembers the responses of a conversation: for its connection, or stored at the provider."""


class Memories:
    """The responses that the servers of a model remember, the most recent last; for any thread."""

    def __init__(self, rules: ServerMemory, *, is_stored: bool) -> None:
        self.rules = rules
        self.is_stored = is_stored
        self._lock = threading.Lock()
        self._known: list[Remembered] = []

    def find(self, body: SplitBody, now: float) -> tuple[Remembered, tuple[bytes, ...]] | None:
        """The response with most of a request's items, and the items that are new; it may be usable only once."""
        with self._lock:
            rests = [(known, rest) for known in self._known if (rest := known.rest(body, now)) is not None]
            if not rests:
                return None
            known, rest = min(reversed(rests), key=lambda found: len(found[1]))
            if known.place is not None or self.rules.is_used_once:
                self._known.remove(known)
            return known, rest

    def add(self, remembered: Remembered) -> None:
        with self._lock:
            self._known.append(remembered)
            del self._known[:-MAX_REMEMBERED]


class ConversationMemory:
    """What the server remembers for one request: the `Memory` of its exchange."""

    def __init__(self, memories: Memories, body: SplitBody, clock: Callable[[], float]) -> None:
        self._memories = memories
        self._body = body
        self._clock = clock
        self._is_whole = False  # whether the server had forgotten
        warm_up = memories.rules.warm_up
        self._is_warm_up = bool(warm_up) and all(body.single.get(name) == warm_up[name] for name in warm_up)
        self._place: Any = None

    def plan(self, request: HTTPRequest) -> HTTPRequest:
        """The request to send: what is new if the server remembers the rest, else all of it."""
        rules, body = self._memories.rules, self._body
        found = None if self._is_whole else self._memories.find(body, self._clock())
        if found is None:
            return replace(request, place=ON_SOCKET) if self._is_warm_up else request
        known, rest = found
        content = following_body(body, rules, known.parent, rest)
        return replace(request, content=content, place=known.place)

    def begin(self, head: HTTPResponseHead) -> None:
        self._place = head.place

    def is_lost(self, error: ProviderError) -> bool:
        """Whether the server had forgotten the conversation; once, as then the whole request is sent."""
        is_lost = not self._is_whole and (error.code in self._memories.rules.lost or error.code == PLACE_LOST)
        self._is_whole = self._is_whole or is_lost
        return is_lost

    def keep(self, response_id: str, items: Sequence[bytes]) -> None:
        """Remember a response that ended well, with its items as they are sent back."""
        memories, seconds = self._memories, self._memories.rules.seconds
        if self._place is None and not memories.is_stored:  # it came over HTTP, and nothing is stored
            return
        remembered = Remembered(
            parent=response_id, fields=self._body.fields, items=joined_items(self._body.items, items),
            place=None if memories.is_stored else self._place,
            until=None if seconds is None else self._clock() + seconds, is_open=self._is_warm_up,
        )  # fmt: skip
        memories.add(remembered)


class RememberedDecoding:
    """A decoder that remembers the response at its end, if it ended well."""

    def __init__(self, decoder: Decoder, memory: ConversationMemory, encode: EncodeItems) -> None:
        self._decoder = decoder
        self._memory = memory
        self._encode = encode
        self._builder = TurnBuilder()

    def feed(self, data: bytes) -> list[StreamChunk]:
        chunks = self._decoder.feed(data)
        for chunk in chunks:
            self._builder.add(chunk)
        return chunks

    def progress(self) -> Progress:
        return self._decoder.progress()

    def close(self) -> list[StreamChunk]:
        chunks = self._decoder.close()
        for chunk in chunks:
            self._builder.add(chunk)
        response_id, turn = self._decoder.response_id, self._builder.build()
        is_good = turn.finish_reason in ("stop", "tool_calls") and turn.error is None
        if response_id and is_good and (items := self._encode(turn)) is not None:
            self._memory.keep(response_id, items)
        return chunks


def memories_of(remember: Remember | None, wire: str, *, is_socket: bool) -> Memories | None:
    """What a model with these settings remembers; raises a `UsageError` if its servers cannot."""
    if remember not in (None, "connection", "server"):
        raise UsageError(f"remember must be 'connection', 'server' or None, not {remember!r}")
    if remember == "connection" and not is_socket:
        raise UsageError("remember='connection' needs a connection that lasts: add transport='websocket'")
    rules = find_facts(wire).memory
    if remember is None and not is_socket:
        return None
    if rules is None or (remember == "server" and not rules.stored):
        raise UsageError(f"servers of the protocol {wire} do not remember responses: leave out remember")
    return Memories(rules, is_stored=remember == "server")


EncodeItems = Callable[[Turn[Any]], list[bytes] | None]
"""Encodes a response as the items that a later request has; None if they cannot be foreseen."""


def encode_items(
    request: Request, wire: str, quirks: frozenset[str], rules: ServerMemory, turn: Turn[Any]
) -> list[bytes] | None:
    """The items of a response as the next request has them; None if they cannot be foreseen.

    A history is encoded as a whole, so they stand between a question and results, as later.
    """
    if any(isinstance(part, ToolCallInvalid) for part in turn.parts):
        return None
    if not turn.parts:
        return []
    results = [result(call, "-") for call in turn.tool_calls]
    after = (tool_results(*results),) if results else ()
    messages = (user("-"), Message("assistant", turn.parts), *after)
    try:
        body = find_encoder(wire)(replace(request, messages=messages), quirks).body
    except UsageError:
        return None
    items = body.get(rules.history)
    if not isinstance(items, list):
        return None
    return [msgspec.json.encode(item) for item in items if not rules.is_clients(item)]


class RememberedRequest(Struct, frozen=True):
    """A request to a server that remembers: its whole body, its memory, and how its response is decoded."""

    parts: tuple[bytes, ...]
    memory: ConversationMemory
    new_decoding: Callable[[], Decoding]


def remember_request(
    memories: Memories | None, prepared: PreparedRequest, quirks: frozenset[str], parts: tuple[bytes, ...]
) -> RememberedRequest | None:
    """A request that may continue from a response; None if it cannot, because its response is changed here.

    Calls in the text, healing and an output in a call change what the next request sends back.
    """
    if memories is None:
        return None
    rules = memories.rules
    body = split_body(parts, rules, is_stored=memories.is_stored)
    if body is None:
        return None
    memory = ConversationMemory(memories, body, time.monotonic)
    encode = partial(encode_items, prepared.request, prepared.wire, quirks, rules)

    def new_decoding() -> Decoding:
        decoding = prepared.new_decoding()
        return RememberedDecoding(decoding, memory, encode) if isinstance(decoding, Decoder) else decoding

    return RememberedRequest(whole_body(body, rules), memory, new_decoding)


def warm_up_options(memories: Memories | None, options: RequestOptions) -> RequestOptions:
    """The options of a request that a server only prepares; raises a `UsageError` if the model has no WebSocket."""
    if memories is None or memories.is_stored or not memories.rules.warm_up:
        raise UsageError("only a WebSocket can be warmed up: create the model with transport='websocket'")
    return {**options, "extra": {**(options.get("extra") or {}), **memories.rules.warm_up}}


@contextmanager
def unless_refused() -> Generator[None]:
    """Ignore that a request could not be sent because the server does not speak WebSocket."""
    try:
        yield
    except ConnectionFailed as error:
        if error.code != NO_WEBSOCKET:
            raise
