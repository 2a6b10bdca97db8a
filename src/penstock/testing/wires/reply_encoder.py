"""The base class of the encoders: converts a scripted reply to the bytes of a provider, streamed or whole.

A subclass defines the frames (as dicts) of the opening, text, reasoning, calls and closing, the bytes of a frame, and
the whole body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from penstock.errors import UsageError
from penstock.events import Usage
from penstock.testing.reply import Drop, Fail, Refuse, Reply, Say, ScriptedCall, Think, VendorItem, Wait
from penstock.testing.request import JSONParts, ReceivedRequest
from penstock.testing.wires.randomness import Randomness

Frame = dict[str, Any] | bytes
"""A frame as JSON, or bytes that are sent unchanged."""
SendAction = bytes | Wait | Drop
"""A step of sending a response: bytes, a pause, or the end of the connection."""

CREATED = 1_767_225_600
"""The creation time of every reply: 1 January 2026."""
_MESSAGES = {
    400: "The request is not valid.",
    401: "The API key is not valid.",
    403: "This key may not use this model.",
    404: "There is no model of this name.",
    413: "The request is too large.",
    429: "Too many requests: wait a little.",
    500: "The server had an error while it processed the request.",
    503: "The model is overloaded: try again later.",
    529: "Overloaded",
}


SEED_BYTES = 65_536
"""The last bytes of a request that the ids of its response depend on."""


class ReplyEncoder:
    """Encodes one reply in the format of one provider."""

    content_type: ClassVar[str] = "text/event-stream"
    FINISH: ClassVar[Mapping[str, str]]
    """The provider's finish reasons by ours."""
    REFUSED: ClassVar[str] = "stop"
    """The finish reason (ours) that the provider sends for a refusal."""
    CODES: ClassVar[Mapping[int, str]]
    """The provider's error codes by HTTP status."""

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        self.reply = reply
        self.request = request
        size, end = _size_and_end(request)
        self.random = Randomness(reply, end)
        self.usage = reply.usage or _counted(reply, size)

    # Implemented by subclasses.

    def opening(self) -> Iterator[Frame]:
        """The frames before the first part."""
        yield from ()

    def say(self, text: str) -> Iterator[Frame]:
        """Visible text."""
        raise NotImplementedError

    def think(self, text: str) -> Iterator[Frame]:
        """Reasoning."""
        raise NotImplementedError

    def refuse(self, text: str) -> Iterator[Frame]:
        """A refusal; on wires without a field for it, visible text."""
        yield from self.say(text)

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        """A call and its arguments."""
        raise NotImplementedError

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        """The end of the call."""
        yield from ()

    def item(self, data: dict[str, Any]) -> Iterator[Frame]:
        """An item or a block of the provider's own."""
        raise UsageError("only Responses and Anthropic have items of their own: script them with item(…)")

    def failure(self, fail: Fail) -> Iterator[Frame]:
        """An error in band."""
        yield self.error(fail.code, fail.message)

    def closing(self) -> Iterator[Frame]:
        """The frames after the last part."""
        raise NotImplementedError

    def encode_frame(self, frame: dict[str, Any]) -> bytes:
        """Encodes a frame."""
        return b"data: " + msgspec.json.encode(frame) + b"\n\n"

    def whole_body(self) -> dict[str, Any]:
        """The reply as a response that is not streamed."""
        raise NotImplementedError

    def error(self, code: str, message: str) -> dict[str, Any]:
        """The body of an error."""
        raise NotImplementedError

    # The response.

    def stream(self) -> Iterator[SendAction]:
        """The stream, one action per frame or pause."""
        for frame in self._frames():
            yield self.encode_frame(frame) if isinstance(frame, dict) else frame

    def _frames(self) -> Iterator[Frame | Wait | Drop]:
        yield from self.opening()
        for place, part in enumerate(self.reply.parts):
            match part:
                case Say():
                    yield from self.say(part.text)
                case Think():
                    yield from self.think(part.text)
                case Refuse():
                    yield from self.refuse(part.text)
                case ScriptedCall():
                    yield from self.call(part)
                    if not self.reply.is_cut_at(place):
                        yield from self.call_end(part)
                case VendorItem():
                    yield from self.item(msgspec.json.decode(part.data))
                case Wait():
                    yield part
                case Drop():
                    yield part
                    return
                case Fail():
                    yield from self.failure(part)
                    return
        yield from self.closing()

    def body(self) -> bytes:
        """The body of a response that is not streamed."""
        fail = self.reply.failure
        return msgspec.json.encode(self.whole_body() if fail is None else self.error(fail.code, fail.message))

    @property
    def status(self) -> int:
        """The HTTP status of a response that is not streamed."""
        fail = self.reply.failure
        return 200 if fail is None else self.status_of(fail.code)

    def http_error(self, status: int, message: str = "", retry_after: float | None = None) -> dict[str, Any]:
        """The body of an HTTP error."""
        usual = _MESSAGES.get(status, "Something went wrong.")
        return self.error(self.code_of(status), message or usual)

    def headers_of(self, status: int) -> dict[str, str]:
        """The headers that the provider adds to an HTTP error."""
        return {}

    # Helpers of the subclasses.

    @property
    def finish(self) -> str:
        """The finish reason: ours, or the provider's if the script has one."""
        usual = "tool_calls" if self.reply.calls else self.REFUSED if self.reply.refusal else "stop"
        return self.reply.finish or usual

    @property
    def raw_finish(self) -> str:
        """The provider's finish reason."""
        return self.FINISH.get(self.finish, self.finish)

    def code_of(self, status: int) -> str:
        """The provider's error code for an HTTP status."""
        return self.CODES.get(status) or self.CODES[500 if status >= 500 else 400]

    def status_of(self, code: str) -> int:
        """The HTTP status of an error code."""
        return next((status for status, word in self.CODES.items() if word == code), 500)

    def arguments(self, call: ScriptedCall) -> msgspec.Raw:
        """The arguments as a JSON object, with their original spelling."""
        if not call.is_whole:
            raise UsageError(
                f"the arguments of {call.name} are {call.arguments!r}, but this response needs a JSON object: "
                "use complete arguments, or stream and add a drop()"
            )
        return msgspec.Raw((call.arguments or "{}").encode())


class NamedEventEncoder(ReplyEncoder):
    """An encoder for SSE streams whose `event:` names the type of the frame."""

    def encode_frame(self, frame: dict[str, Any]) -> bytes:
        return f"event: {frame['type']}\n".encode() + super().encode_frame(frame)


def _size_and_end(request: ReceivedRequest) -> tuple[int, bytes]:
    """The bytes of a request, and the last of them: what is new in it is there, so each has ids of its own."""
    content = request.content
    parts = content if isinstance(content, JSONParts) else JSONParts((msgspec.json.encode(content),))
    return parts.size, parts.end(SEED_BYTES)


def _counted(reply: Reply, size: int) -> Usage:
    """A plausible usage: four characters per token."""
    thought = sum(_tokens(part.text) for part in reply.parts if isinstance(part, Think))
    text = sum(_tokens(part.text) for part in reply.parts if isinstance(part, Say | Refuse))
    called = sum(_tokens(part.name + part.arguments) for part in reply.calls)
    return Usage(-(-size // 4), thought + text + called, 0, thought)


def _tokens(text: str) -> int:
    return -(-len(text) // 4)
