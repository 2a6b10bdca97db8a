"""Plays replies as the bytes that a provider sends, streamed or whole; the habits of each vendor are in its folder."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from penstock.testing.reply import Drop, Reply
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.habits import VendorHabits
from penstock.testing.wires.played_reply import PlayedReply, SendAction
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_frames import ResponseFrames


def play(reply: Reply, request: ReceivedRequest) -> PlayedReply:
    """A reply to a request on its wire."""
    return PlayedReply(reply, request, *_parts_of(request.wire))


@cache
def _parts_of(wire: str) -> tuple[type[ResponseFrames], type[VendorHabits]]:
    frames = find_response_frames(wire)
    habits: type[VendorHabits] = import_module(f"penstock.testing.wires.{wire.replace('-', '_')}.play").HABITS
    return frames, habits


def frames(wire: str, reply: Reply, is_streaming: bool = True, request: ReceivedRequest | None = None) -> list[bytes]:
    """The body of the response that the provider would send, one entry per frame, without pauses.

    `request` is the request, of which providers repeat some fields.
    """
    played = play(reply, request or ReceivedRequest(wire))
    if is_streaming:
        return [action for action in played.stream() if isinstance(action, bytes)]
    body = played.whole().body
    is_dropped = any(isinstance(part, Drop) for part in reply.parts)
    return [body[: len(body) // 2] if is_dropped else body]


__all__ = ["PlayedReply", "SendAction", "frames", "play"]
