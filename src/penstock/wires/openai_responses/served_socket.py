"""A WebSocket of Responses as its server sees it, without I/O: lanes, and what each remembers.

The frames of a client become bodies of POST requests, and the events of their responses become frames. One row per
lane:

| state | what happens | what is done |
|---|---|---|
| idle | a warm-up arrives | answered here, and remembered |
| idle | another request arrives | its parent is resolved, → running; an unknown parent is an error |
| running | a request arrives | queued, first in, first out, up to `MAX_QUEUE`; one more is an error |
| running | an event of the response | passed on with the name of the lane |
| running | the end of the response | remembered if it is completed, else forgotten, → idle |
| any | the client leaves | forgotten |

A request without a parent is sent as it is. With a known one, it gets the items that were remembered; an unknown parent
is an error, after which clients send everything. Nothing is known of other connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from penstock.events import Finish
from penstock.wires.openai_responses.encode_response import OpenAIResponsesFrames
from penstock.wires.openai_responses.websocket import LIMIT_REACHED
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead

MAX_LANES = 32
"""How many names lanes may have on a connection."""
MAX_RUNNING = 16
"""How many responses may run on a connection; more wait."""
MAX_QUEUE = 16
"""How many requests may wait on a lane."""
MAX_LANE_NAME = 128
"""How long the name of a lane may be."""

Fields = dict[str, Raw]


class StartRequest(Struct, frozen=True):
    """Send this body as a POST request; its response belongs to a lane."""

    lane: str
    body: bytes


class SendFrame(Struct, frozen=True):
    """Send this frame to the client."""

    frame: str


Action = StartRequest | SendFrame


class _Kept(Struct):
    """A response that the next request can continue from: its items, and all before it, as JSON."""

    id: str
    items: list[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.items))


class _Lane(Struct):
    queue: deque[Fields]
    kept: _Kept | None = None
    items: list[bytes] | None = None  # those of the running request
    parent: str = ""  # the response that it continues from


class _Ended(Struct):
    id: str
    output: Raw = Raw(b"[]")
    status: str = ""


class _EndFrame(Struct):
    response: _Ended


_decode_fields = msgspec.json.Decoder(Fields).decode
_decode_end = msgspec.json.Decoder(_EndFrame).decode
_LEFT_OUT = ("type", "stream_id", "previous_response_id", "input", "stream", "background", "generate")


class ServedSocket:
    """The lanes of one connection. `held` is how many bytes it remembers, of at most `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lanes: dict[str, _Lane] = {}

    @property
    def held(self) -> int:
        """How many bytes are remembered for later requests, or wait to be sent."""
        kept = sum(lane.kept.size for lane in self._lanes.values() if lane.kept is not None)
        return kept + sum(sum(map(len, lane.items)) for lane in self._lanes.values() if lane.items is not None)

    def receive(self, frame: str) -> list[Action]:
        """A frame of the client."""
        try:
            fields = _decode_fields(frame)
            kind, name = _text(fields.get("type")), _text(fields.get("stream_id"))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return [_error("", 400, "invalid_json", "a frame is a JSON object with a type")]
        if len(name) > MAX_LANE_NAME:
            return [_error("", 400, "invalid_stream_id", f"a stream_id has at most {MAX_LANE_NAME} characters")]
        if kind == "response.steer":
            return [_error("", 400, "steering_not_supported", "send the message with the next response.create")]
        if kind != "response.create":
            return [_error(name, 400, "unknown_message", f"send response.create, not {kind[:100]!r}")]
        return self._create(name, fields)

    def _create(self, name: str, fields: Fields) -> list[Action]:
        lane = self._lanes.get(name)
        if lane is None:
            if name and sum(map(bool, self._lanes)) >= MAX_LANES:
                message = f"a connection has at most {MAX_LANES} lanes: use one again, or open another connection"
                return [_error(name, 400, "websocket_stream_limit_reached", message)]
            lane = self._lanes[name] = _Lane(deque())
        if len(lane.queue) >= MAX_QUEUE:
            return [_error(name, 429, "too_many_requests", f"at most {MAX_QUEUE} requests wait on a lane")]
        lane.queue.append(fields)
        return self._start_next()

    def _start_next(self) -> list[Action]:
        """Start the requests that need not wait."""
        actions: list[Action] = []
        for name, lane in self._lanes.items():
            while lane.queue and lane.items is None and self._running < MAX_RUNNING:
                actions += self._start(name, lane, lane.queue.popleft())
        return actions

    @property
    def _running(self) -> int:
        return sum(lane.items is not None for lane in self._lanes.values())

    def _start(self, name: str, lane: _Lane, fields: Fields) -> list[Action]:
        try:
            parent, items = _text(fields.get("previous_response_id")), _items(fields.get("input"))
        except (msgspec.MsgspecError, ValueError):
            return [_error(name, 400, "invalid_input", "input is a string or a list of items")]
        if parent:
            kept = next((known.kept for known in self._lanes.values() if known.kept and known.kept.id == parent), None)
            if kept is None:
                lane.kept = None
                message = f"the response {parent[:100]!r} is not known on this connection: send the whole input"
                return [_error(name, 400, "previous_response_not_found", message, "previous_response_id")]
            items = [*kept.items, *items]
        if _is_warm_up(fields):
            return self._warm_up(name, lane, fields, items)
        lane.items, lane.parent = items, parent
        kept_fields = {field: value for field, value in fields.items() if field not in _LEFT_OUT}
        head = msgspec.json.encode({**kept_fields, "stream": True})
        return [StartRequest(name, b'%s,"input":[%s]}' % (head[:-1], b",".join(items)))]

    def _warm_up(self, name: str, lane: _Lane, fields: Fields, items: list[bytes]) -> list[Action]:
        """Answer a request for which nothing is generated."""
        model = fields.get("model")
        head = ResponseHead(id=uuid4().hex, model=_text(model) if model is not None else "")
        encoder = ResponseEncoder(OpenAIResponsesFrames(head))
        stream = encoder.open() + encoder.feed([Finish("stop", "completed")]) + encoder.close()
        frames = [event.partition(b"data: ")[2] for event in stream.split(b"\n\n") if b"data: " in event]
        lane.items, lane.parent = items, ""
        return [action for frame in frames for action in self.event(name, frame)] + self.end(name)

    def event(self, name: str, data: bytes) -> list[Action]:
        """An event of the response of a lane, as JSON."""
        lane = self._lanes[name]
        if data.startswith(_END_STARTS) and lane.items is not None:
            self._remember(lane, data)
        text = data.decode("utf-8", "surrogatepass")
        return [SendFrame(f'{{"stream_id":{_quoted(name)},{text[1:]}' if name else text)]

    def _remember(self, lane: _Lane, data: bytes) -> None:
        """Remember a response that has ended, if it is complete and there is room for it."""
        items, lane.items = lane.items or [], []
        lane.kept = None
        try:
            response = _decode_end(data).response
            kept = _Kept(response.id, [*items, *_items(response.output)])
        except (msgspec.MsgspecError, ValueError):
            return
        if response.status == "completed" and self.held + kept.size <= self._most:
            lane.kept = kept

    def refuse(self, name: str, status: int, headers: Mapping[str, str], body: bytes) -> list[Action]:
        """The response of a lane is an error, before any event."""
        self._forget(name)
        shown = {key: value for key, value in headers.items() if key in ("retry-after", "x-request-id")}
        try:
            error: Any = msgspec.json.decode(body)["error"]
            error = dict(error) if isinstance(error, dict) else {"message": str(error)}
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError):
            error = {"message": body[:1000].decode("utf-8", "replace")}
        return [_frame(name, {"type": "error", "status": status, "error": {**error, "headers": shown}})]

    def end(self, name: str) -> list[Action]:
        """The response of a lane is over: the next requests may start."""
        lane = self._lanes[name]
        if lane.items:  # it did not end by itself
            self._forget(name)
        lane.items = None
        return self._start_next()

    def _forget(self, name: str) -> None:
        """A failed request ends what it referred to."""
        lane = self._lanes[name]
        lane.items, lane.kept = [], None
        for other in self._lanes.values():
            if other.kept is not None and other.kept.id == lane.parent:
                other.kept = None

    def expire(self) -> str:
        """The last frame of a connection that is too old."""
        message = "the connection has reached its limit of 60 minutes: open a new one"
        return _error("", 400, LIMIT_REACHED, message).frame


_END_STARTS = (b'{"type":"response.completed"', b'{"type":"response.incomplete"', b'{"type":"response.failed"')


def _is_warm_up(fields: Fields) -> bool:
    options = fields.get("prompt_cache_options")
    if bytes(fields.get("generate", b"")).strip() == b"false":
        return True
    return options is not None and b'"prewarm":true' in bytes(options).replace(b" ", b"")


def _items(value: Raw | None) -> list[bytes]:
    """The items of a history as JSON, which a string or a list has."""
    if value is None:
        return []
    if bytes(value).lstrip().startswith(b'"'):
        return [b'{"type":"message","role":"user","content":%s}' % bytes(value)]
    return [bytes(item) for item in msgspec.json.decode(value, type=list[Raw])]


def _text(value: Raw | None) -> str:
    return "" if value is None else msgspec.json.decode(value, type=str | None) or ""


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _frame(name: str, fields: dict[str, Any]) -> SendFrame:
    return SendFrame(msgspec.json.encode({**fields, **({"stream_id": name} if name else {})}).decode())


def _error(name: str, status: int, code: str, message: str, param: str | None = None) -> SendFrame:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"type": kind, "code": code, "message": message, "param": param}
    return _frame(name, {"type": "error", "status": status, "error": error})
