"""What all encoders share: a reply's parts are told one by one, and every id and piece is the same each time.

An encoder says how a provider begins, says, thinks, calls and ends (frames as plain dicts), how it writes a frame, and
what the whole body is. Ids depend on the reply and on the request alone, so that the calls of two turns of one
conversation have different ids, and the same request gets the same answer.
"""

from __future__ import annotations

import re
import string
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, ClassVar

import msgspec

from penstock.errors import UsageError
from penstock.events import Usage
from penstock.testing.reply import Drop, Fail, Refuse, Reply, Say, ScriptedCall, Think, Wait
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.signatures import SEAL, sealed

Frame = dict[str, Any] | bytes
"""A frame as JSON, or bytes that are sent as they stand."""
SendAction = bytes | Wait | Drop
"""What a stream is played from: something to send, a pause, or the end of the connection."""

CREATED = 1_767_225_600
"""The moment at which every reply says that it was made: the first of January 2026."""
LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE64 = LETTERS + "+/"
SIGNATURE = 90
"""How long signatures are, after what they begin with."""
_WORD = re.compile(r"\s*\S+|\s+")
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


class ReplyEncoder:
    """One reply, in one provider's words."""

    content_type: ClassVar[str] = "text/event-stream"
    FINISH: ClassVar[Mapping[str, str]]
    """The provider's words for our finish reasons."""
    REFUSED: ClassVar[str] = "stop"
    """Which of our reasons the provider gives when the model declines."""
    CODES: ClassVar[Mapping[int, str]]
    """The provider's words for HTTP statuses."""

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        self.reply = reply
        self.request = request
        body = msgspec.json.encode(request.body)
        self._seed = zlib.crc32(body, zlib.crc32(repr(reply).encode("utf-8", "surrogatepass")))
        self._made: Counter[str] = Counter()
        self._dice = Random(reply.seed)
        self.usage = reply.usage or _counted(reply, body)

    # What an encoder implements.

    def opening(self) -> Iterator[Frame]:
        """What comes before the first part."""
        yield from ()

    def say(self, text: str) -> Iterator[Frame]:
        """Visible text."""
        raise NotImplementedError

    def think(self, text: str) -> Iterator[Frame]:
        """Reasoning."""
        raise NotImplementedError

    def refuse(self, text: str) -> Iterator[Frame]:
        """The model declines; where the wire has no way of its own, it says so."""
        yield from self.say(text)

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        """A call, up to the end of its arguments."""
        raise NotImplementedError

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        """The end of the call."""
        yield from ()

    def failure(self, fail: Fail) -> Iterator[Frame]:
        """An error in band."""
        yield self.error(fail.code, fail.message)

    def closing(self) -> Iterator[Frame]:
        """What comes after the last part."""
        raise NotImplementedError

    def framed(self, frame: dict[str, Any]) -> bytes:
        """A frame as bytes."""
        return b"data: " + msgspec.json.encode(frame) + b"\n\n"

    def whole(self) -> dict[str, Any]:
        """The same reply, as a response that is no stream."""
        raise NotImplementedError

    def error(self, code: str, message: str) -> dict[str, Any]:
        """The body of an error."""
        raise NotImplementedError

    # What is played.

    def stream(self) -> Iterator[SendAction]:
        """The stream, a frame at a time."""
        for frame in self._told():
            yield self.framed(frame) if isinstance(frame, dict) else frame

    def _told(self) -> Iterator[Frame | Wait | Drop]:
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
        """The body of a response that is no stream."""
        fail = self.reply.failure
        return msgspec.json.encode(self.whole() if fail is None else self.error(fail.code, fail.message))

    @property
    def status(self) -> int:
        """The status of a response that is no stream: one that fails is an error of HTTP."""
        fail = self.reply.failure
        return 200 if fail is None else self.status_of(fail.code)

    def http_error(self, status: int, message: str = "", retry_after: float | None = None) -> dict[str, Any]:
        """The body of an HTTP error."""
        usual = _MESSAGES.get(status, "Something went wrong.")
        return self.error(self.code_of(status), message or usual)

    def headers_of(self, status: int) -> dict[str, str]:
        """The headers that the provider adds to an HTTP error."""
        return {}

    # What encoders are made of.

    @property
    def finish(self) -> str:
        """Why the model stopped, in our words, or in the provider's if those were given."""
        usual = "tool_calls" if self.reply.calls else self.REFUSED if self.reply.refusal else "stop"
        return self.reply.finish or usual

    @property
    def raw_finish(self) -> str:
        """Why the model stopped, in the provider's words."""
        return self.FINISH.get(self.finish, self.finish)

    def code_of(self, status: int) -> str:
        """The provider's word for a status."""
        return self.CODES.get(status) or self.CODES[500 if status >= 500 else 400]

    def status_of(self, code: str) -> int:
        """The status that the provider has a word for."""
        return next((status for status, word in self.CODES.items() if word == code), 500)

    def made(self, prefix: str, length: int, letters: str = LETTERS) -> str:
        """A made-up id, or other opaque text: the next one of its kind."""
        self._made[prefix] += 1
        dice = Random(f"{self._seed}/{prefix}/{self._made[prefix]}")
        return prefix + "".join(dice.choices(letters, k=length))

    def signed(self, prefix: str) -> str:
        """A made-up signature, or encrypted text, that this server knows again."""
        return sealed(self.made(prefix, SIGNATURE - SEAL, BASE64))

    def padding(self) -> str:
        """Letters that mean nothing, as some providers add them so that lengths tell nothing."""
        return string.ascii_letters[: self._dice.randint(1, 30)]

    def words(self, text: str) -> Iterator[str]:
        """Text as models stream it: a word or two at a time."""
        words = _WORD.findall(text)
        at = 0
        while at < len(words):
            size = self._dice.choice((1, 1, 2))
            yield "".join(words[at : at + size])
            at += size

    def letters(self, text: str) -> Iterator[str]:
        """Arguments as models stream them: a few characters at a time."""
        at = 0
        while at < len(text):
            size = self._dice.randint(2, 9)
            yield text[at : at + size]
            at += size

    def arguments(self, call: ScriptedCall) -> msgspec.Raw:
        """The arguments as an object, spelled as they were given."""
        if not call.is_whole:
            raise UsageError(
                f"the arguments of {call.name} are {call.arguments!r}, and this response holds them as a JSON object: "
                "give whole arguments, or let a drop() follow and stream"
            )
        return msgspec.Raw((call.arguments or "{}").encode())


class NamedEventEncoder(ReplyEncoder):
    """An encoder for a provider that names its events, by their own type."""

    def framed(self, frame: dict[str, Any]) -> bytes:
        return f"event: {frame['type']}\n".encode() + super().framed(frame)


def _counted(reply: Reply, request: bytes) -> Usage:
    """A plausible count: about four letters are a token."""
    thought = sum(_tokens(part.text) for part in reply.parts if isinstance(part, Think))
    said = sum(_tokens(part.text) for part in reply.parts if isinstance(part, Say | Refuse))
    called = sum(_tokens(part.name + part.arguments) for part in reply.calls)
    return Usage(_tokens(request), thought + said + called, 0, thought)


def _tokens(text: str | bytes) -> int:
    return -(-len(text) // 4)
