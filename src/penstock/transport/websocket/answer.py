"""The response to one request on a WebSocket, without I/O: frames become the head and the bytes of an HTTP response.

So an exchange treats both alike: the same retries, timeouts, decoders and recordings.

| phase | a frame that | what happens |
|---|---|---|
| waiting | begins a response | head 200, → open |
| waiting | is a refusal, with a status | head with this status, → refused |
| waiting | is an error without a status | head 200, → broken |
| waiting | is a piece or the end of a response | the connection is out of step: an exception, → broken |
| waiting | is anything else | kept until there is a head |
| open | ends the response | passed on, → ended |
| open | is an error | passed on, → broken |
| open | is anything else | passed on |

After `ended` and `refused` the connection can take the next request; after `broken` it is closed. A frame of another
lane is never part of the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from penstock.errors import ConnectionFailed, UnexpectedReplyError
from penstock.transport.commands import HTTPResponseHead

FrameKind = Literal["begins", "piece", "ends", "refused", "error", "closing", "other"]
"""What a frame is: `closing` announces the end of the connection, as a refusal or unasked."""

MAX_EARLY = 1024 * 1024
"""How many bytes of frames are kept that arrive before the response begins."""

Phase = Literal["waiting", "open", "ended", "refused", "broken"]


class FrameHead(Protocol):
    """What the transport has to know of a frame."""

    @property
    def kind(self) -> FrameKind: ...
    @property
    def lane(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class FrameRules(Protocol):
    """How a wire is spoken over WebSocket: the frame of a request, and the heads of the frames that arrive."""

    def request(self, content: bytes | tuple[bytes, ...]) -> bytes: ...
    def read(self, frame: str) -> FrameHead: ...


class Answer:
    """The response to one request: feed it frames, and take the head, and then the data."""

    def __init__(self, rules: FrameRules) -> None:
        self._rules = rules
        self._kept: list[bytes] = []  # data before the head, or the whole of a refusal
        self._size = 0
        self.phase: Phase = "waiting"
        self.head: HTTPResponseHead | None = None

    @property
    def is_over(self) -> bool:
        """Whether no more frames belong to it."""
        return self.phase in ("ended", "refused", "broken")

    def feed(self, frame: str | bytes) -> bytes:
        """The data of a frame; empty as long as the response has no head. Raises for what no response can be."""
        if isinstance(frame, bytes):
            self.phase = "broken"
            raise UnexpectedReplyError("the server sent a binary frame; frames are JSON text", code="binary_frame")
        head = self._rules.read(frame)
        if head.lane:
            return self._add(as_sse(_OTHER_LANE % frame))
        kind = head.kind
        if self.phase == "waiting":
            self._begin(head, frame)
            return self.take()
        if kind == "ends":
            self.phase = "ended"
        elif kind in ("refused", "error", "closing"):
            self.phase = "broken"
        return as_sse(frame)

    def refuse(self, head: HTTPResponseHead) -> None:
        """The handshake was refused with this head: there is no connection, and no frame."""
        self.phase, self.head = "refused", head

    def take(self) -> bytes:
        """The data that was kept, if there is a head."""
        if self.head is None:
            return b""
        data, self._kept = b"".join(self._kept), []
        return data

    def _begin(self, head: FrameHead, frame: str) -> None:
        match head.kind:
            case "begins" | "error":
                self.phase = "open" if head.kind == "begins" else "broken"
                self.head = HTTPResponseHead(200, head.headers)
                self._kept.append(as_sse(frame))
            case "refused" | "closing":
                self.phase = "refused" if head.kind == "refused" else "broken"
                self.head = HTTPResponseHead(head.status, head.headers)
                self._kept = [frame.encode("utf-8", "surrogatepass")]
            case "other":
                self._add(as_sse(frame))
            case "piece" | "ends":
                self.phase = "broken"
                raise ConnectionFailed("the server sent a frame of another response", retryable=True)

    def _add(self, data: bytes) -> bytes:
        if self.head is not None:
            return data
        self._kept.append(data)
        self._size += len(data)
        if self._size > MAX_EARLY:
            self.phase = "broken"
            raise UnexpectedReplyError(
                f"the server sent more than {MAX_EARLY} bytes before the response (MAX_EARLY)",
                code="response_too_large",
            )
        return b""


_OTHER_LANE = '{"type":"penstock.other_lane","frame":%s}'
"""A frame of a lane that was not asked for: it is reported, and not part of the response."""


def as_sse(frame: str) -> bytes:
    """A frame as a server-sent event, the framing in which decoders and recordings have responses."""
    if "\n" in frame or "\r" in frame:
        frame = frame.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\ndata: ")
    return f"data: {frame}\n\n".encode("utf-8", "surrogatepass")
