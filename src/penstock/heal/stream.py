"""Heals a streamed body, without I/O: bytes of a server to bytes for an SDK, both in one protocol.

What needs no healing is passed on **byte for byte**, with the ids and fields that only the server knows. A frame
is decoded, and healed. While both give the same events, and the calls in it are as the protocol says, the frame itself
is passed on. It is held while some of its text is held, which may begin a call. From the first difference on, the
healed events are encoded again (`EncodedRest`).

A frame that differs from one that was passed on only in its piece of text or arguments takes a fast lane
(`FrameLane`): nothing but this piece is read and healed. `HealedStream._feed` is the reference.

If a stage fails, the bytes of the server go on as they came, and the fault is reported.
"""

from __future__ import annotations

import re

import msgspec

from penstock.events import Error, Finish, Retry, StreamChunk, ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart
from penstock.heal.frame_cuts import FRAME_END, LINE_END, REASON, FrameCuts, is_readable
from penstock.heal.frame_lane import FrameLane, HeldFrames, PassedFrames, TakeFrame
from penstock.heal.response import MAX_KEPT, TOKEN, ResponseHealing
from penstock.heal.same_events import DELTAS, is_same_piece
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder

_ENDS = (ToolCall, ToolCallInvalid, Finish, Error, Retry)
_PIECES = frozenset((*DELTAS, ToolCallDelta))
_CONTENT = (*DELTAS, *_ENDS, ToolCallStart, ToolCallDelta)


class HealedStream:
    """Heals a streamed body: `feed` each read, and `close` at its end. `problem` says what failed, if anything did."""

    def __init__(self, healing: ResponseHealing, *, is_stream: bool = True) -> None:
        self._healing = healing
        self._rest: EncodedRest | None = None  # from the first difference on
        self._passed = PassedFrames(MAX_KEPT)
        self._held = HeldFrames()
        self._lane = FrameLane(healing.decoding, self._passed)
        self._take: TakeFrame | None = None  # while the lane is open
        self._is_ending = False  # a reason for the end has come: it may have to be another one
        self._cuts = FrameCuts(LINE_END if healing.framing == "ndjson" else FRAME_END)
        self._rules = healing.request.frame_rules()
        self._must_encode = not is_stream
        self.problem = ""

    def feed(self, data: bytes) -> bytes:
        """The bytes for the client."""
        cuts = self._cuts
        if self._take is not None and not cuts.size:
            try:
                if (sent := self._take(data)) is not None:  # one frame, as nearly all reads are
                    return sent + self._leave_lane() if self._lane.is_delayed else sent
            except Exception as error:  # noqa: BLE001  # a fault in healing must not end the user's response
                return self._fail(error, data)
        if self.problem or not data:
            return data
        if self._rest is not None:
            return self._feed_safely(cuts.close() + data)
        return self._feed_frames(cuts.feed(data))

    def _feed_frames(self, frames: list[bytes]) -> bytes:
        if self._cuts.size > MAX_KEPT:
            self.problem = f"a frame is longer than {MAX_KEPT} bytes"
            return b"".join([self.held(), *frames, self._cuts.close()])
        return b"".join(map(self._feed_safely, frames))

    def _feed_safely(self, data: bytes) -> bytes:
        if self.problem:
            return data
        try:
            return self._feed(data)
        except Exception as error:  # noqa: BLE001  # a fault in healing must not end the user's response
            return self._fail(error, data)

    def close(self) -> bytes:
        """The last bytes. A response that was cut ends with an error."""
        rest = self._feed_safely(self._cuts.close())
        if self.problem:
            return rest
        try:
            return rest + self._close()
        except Exception as error:  # noqa: BLE001  # see `_feed_safely`
            return rest + self._fail(error, b"")

    def held(self) -> bytes:
        """The reads that are held, as they came, for a connection that broke."""
        self._lane.leave(self._held)
        held = self._held.take()
        self._passed.has_any |= bool(held)
        return held

    def _fail(self, error: Exception, data: bytes) -> bytes:
        self.problem = f"{type(error).__name__}: {error}"
        return self.held() + data

    def _feed(self, data: bytes) -> bytes:
        if not data:
            return data
        if self._take is not None and (sent := self._take(data)) is not None:
            return sent + self._leave_lane() if self._lane.is_delayed else sent
        self._take = None
        self._lane.leave(self._held)
        healing, passed = self._healing, self._passed
        healed = healing.decoding.feed(data)
        if self._rest is not None:
            return self._rest.feed(healed)
        plain = healing.decoder.chunks
        passed.look(data)
        if passed.left < 0:
            self.problem = f"the response is longer than {MAX_KEPT} bytes"
            return self.held() + data
        if self._must_encode or not self._is_right(data, plain):
            return self._switch(healed)
        if not self._held.raw and not self._is_ending and is_same_piece(plain, healed):
            passed.add(healed)
            self._take = self._lane.open_after(plain, healed)
            return data
        self._held.add(data, plain, healed)
        sent = self._resolve()
        if not self._held.raw and not self._is_ending and self._rest is None:
            self._take = self._lane.open_after(plain, healed)
        return sent

    def _leave_lane(self) -> bytes:
        """Encode what waits too long in the lane."""
        self._take = None
        self._lane.leave(self._held)
        return self._switch([])

    def _is_right(self, frame: bytes, plain: list[StreamChunk]) -> bool:
        """Whether every client reads a frame as we do."""
        if not self._rules.accepts(frame):
            return False
        self._is_ending = self._is_ending or self._rules.waits_for_end or REASON.search(frame) is not None
        if len(plain) == 1 and type(plain[0]) in _PIECES:
            return True
        return (bool(plain) or all(map(is_readable, frame.splitlines()))) and self._healing.is_right(plain)

    def _resolve(self) -> bytes:
        """What can be sent of the held frames."""
        held = self._held
        if held.is_same:
            awaited = Finish if self._is_ending else _CONTENT
            if not any(isinstance(event, awaited) for event in held.plain):
                return b""  # frames that may begin a block go with what is in it
            self._passed.add(held.healed)
            return self.held()
        has_ended = any(isinstance(event, _ENDS) for event in held.healed)
        return self._switch([]) if has_ended or not held.missing or held.is_delayed else b""

    def _switch(self, healed: list[StreamChunk]) -> bytes:
        """Encode from here on."""
        events = [*self._held.healed, *healed]
        self._held.take()
        self._rest = EncodedRest(self._healing, self._passed)
        self._passed.events.clear()
        return self._rest.feed(events)

    def _close(self) -> bytes:
        healing = self._healing
        self._lane.leave(self._held)
        healed = healing.decoding.close()
        if self._rest is None:
            held = self._held
            held.add_events(healing.decoder.chunks, healed)
            if held.is_same and healing.is_right(held.plain):
                return self.held()
            data = self._switch([])
        else:
            data = self._rest.feed(healed)
        assert self._rest is not None
        return data + self._rest.close()


class EncodedRest:
    """The rest of a stream from its first difference on: healed events, encoded, with the id that the server gave it.

    The encoder is fed with what was passed on, and writes only what follows.
    """

    def __init__(self, healing: ResponseHealing, passed: PassedFrames) -> None:
        self._healing = healing
        head, self._server_id = healing.head(passed.head)
        self._encoder = ResponseEncoder(healing.frames(head))
        self._id: tuple[bytes, bytes] | None = None  # the id as the encoder writes it, and as the server did
        if passed.has_any:
            self._find_id(self._encoder.open() + self._encoder.feed([*passed.events, *_begun(passed.events)]))

    def feed(self, events: list[StreamChunk]) -> bytes:
        """The bytes of these events."""
        return self._with_id(self._encoder.feed(map(self._healing.expressed, events)))

    def close(self) -> bytes:
        """The end; an error if the response has not ended."""
        return self._with_id(self._encoder.close())

    def _with_id(self, data: bytes) -> bytes:
        if not self._server_id or not data:
            return data
        if self._id is None:
            self._find_id(data)
        return data if self._id is None else data.replace(*self._id)

    def _find_id(self, data: bytes) -> None:
        if self._server_id and (written := re.search(rb'"[^"]*%b"' % TOKEN.encode(), data)):
            self._id = written[0], msgspec.json.encode(self._server_id)


def _begun(events: list[StreamChunk]) -> list[StreamChunk]:
    """An empty piece for each call that has begun and has no piece: an encoder may wait with the start of a call."""
    begun: dict[int, ToolCallStart] = {}
    for event in events:
        match event:
            case ToolCallStart():
                begun[event.block] = event
            case ToolCallDelta() | ToolCall() | ToolCallInvalid():
                begun.pop(event.block, None)
            case _:
                pass
    return [ToolCallDelta(call.block, "", call.choice) for call in begun.values()]
