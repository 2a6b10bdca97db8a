"""Responses over WebSocket: the frame of a request, and the heads of the frames that arrive.

A request is its HTTP body as a JSON object with the type `response.create`. The frames of a response are the events of
its stream; an error may have the shape of an HTTP error, with a status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

LIMIT_REACHED = "websocket_connection_limit_reached"
"""The code of the error with which the server ends a connection that is too old."""
_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_ENDS = ("response.completed", "response.failed", "response.incomplete", "response.done", "response.cancelled")
_LEFT_OUT = ("stream", "background")
"""The fields of a body that mean nothing here."""
_HISTORY = "input"


FrameKind = Literal["begins", "piece", "ends", "refused", "error", "closing", "other"]


class FrameHead(Struct, frozen=True):
    """What a frame is, its lane, and the status and headers of an error."""

    kind: FrameKind
    lane: str = ""
    status: int = 0
    headers: Mapping[str, str] = {}


class _Frame(Struct):
    type: str
    stream_id: str | None = None


class _Error(Struct):
    error: Mapping[str, Any] | None = None
    status: int | None = None
    status_code: int | None = None
    headers: Mapping[str, Any] | None = None


_OTHER = FrameHead("other")
_PIECE = FrameHead("piece")
_read = msgspec.json.Decoder(_Frame).decode
_read_error = msgspec.json.Decoder(_Error).decode


class ResponsesFrames:
    """The rules of Responses for frames."""

    def request(self, content: bytes | tuple[bytes, ...]) -> bytes:
        """The frame of a request body, whose parts are its beginning, the items of the history, and its end."""
        parts = [content] if isinstance(content, bytes) else [*content]
        fields = msgspec.json.decode(parts[0] + parts[-1] if len(parts) > 1 else parts[0])
        fields = {"type": "response.create", **{name: fields[name] for name in fields if name not in _LEFT_OUT}}
        if len(parts) == 1:
            return msgspec.json.encode(fields)
        del fields[_HISTORY]
        return b'%s,"input":[%s]}' % (msgspec.json.encode(fields)[:-1], b"".join(parts[1:-1]))

    def read(self, frame: str) -> FrameHead:
        """The head of a frame; `other` for one that is not JSON, or of no type that matters here."""
        try:
            head = _read(frame)
        except (msgspec.MsgspecError, UnicodeError):
            return _OTHER
        if head.type == "error":
            return _error_head(frame, head.stream_id or "")
        if not head.type.startswith("response."):
            return FrameHead("other", head.stream_id or "") if head.stream_id else _OTHER
        kind: FrameKind = "begins" if head.type in _BEGINNINGS else "ends" if head.type in _ENDS else "piece"
        return _PIECE if kind == "piece" and not head.stream_id else FrameHead(kind, head.stream_id or "")


def _error_head(frame: str, lane: str) -> FrameHead:
    try:
        error = _read_error(frame)
    except msgspec.MsgspecError:
        return FrameHead("error", lane)
    fields = error.error or {}
    if fields.get("code") == LIMIT_REACHED:
        return FrameHead("closing", lane, 503)
    status = error.status or error.status_code
    if status is None or not 400 <= status < 600:
        return FrameHead("error", lane)
    inner = fields.get("headers")
    headers = {**(error.headers or {}), **(inner if isinstance(inner, Mapping) else {})}
    return FrameHead("refused", lane, status, {str(name): str(value) for name, value in headers.items()})


FRAMES = ResponsesFrames()
