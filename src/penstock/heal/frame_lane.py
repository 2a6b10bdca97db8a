"""The fast lane of frames that differ from one that was passed on only in their piece of text or arguments.

Nearly all frames of a stream do. They are neither parsed nor fed to the stages, and are passed on as they came if
healing leaves their piece as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.events import StreamChunk, Text, ToolCallDelta
from penstock.heal.same_events import is_same, text_size
from penstock.healing.decoding import CallFlow, HealedDecoding, TextFlow

MAX_HELD_READS = 16
"""How many frames with held text are held; then the text is encoded, so that what is before it is not delayed."""
MAX_HEAD = 64 * 1024
"""How many bytes are searched for the id and the model of a response."""

TakeFrame = Callable[[bytes], bytes | None]
"""Takes a frame: returns the bytes for the client, or None if the frame has to be fed."""


class PassedFrames:
    """The frames that were passed on: their events, and the first bytes of the response.

    `left` is how many more bytes are looked at.
    """

    def __init__(self, limit: int) -> None:
        self.events: list[StreamChunk] = []
        self.head = b""
        self.left = limit
        self.has_any = False

    def look(self, frame: bytes) -> None:
        """Count a frame, and keep it if it is one of the first."""
        if len(self.head) < MAX_HEAD:
            self.head += frame
        self.left -= len(frame)

    def add(self, events: list[StreamChunk]) -> None:
        """Keep the healed events of what was passed on."""
        self.events += events
        self.has_any = True


class HeldFrames:
    """The frames that are held, and their events: decoded, and healed.

    `missing` is how many characters of their text and arguments healing holds back.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        self.raw: list[bytes] = []
        self.plain: list[StreamChunk] = []
        self.healed: list[StreamChunk] = []
        self.missing = 0

    @property
    def is_same(self) -> bool:
        """Whether healing has changed nothing."""
        return not self.missing and is_same(self.plain, self.healed)

    @property
    def is_delayed(self) -> bool:
        """Whether too much is held."""
        return len(self.plain) > MAX_HELD_READS

    def add(self, frame: bytes, plain: list[StreamChunk], healed: list[StreamChunk]) -> None:
        """Hold a frame."""
        self.raw.append(frame)
        self.add_events(plain, healed)

    def add_events(self, plain: list[StreamChunk], healed: list[StreamChunk]) -> None:
        """Hold the events of a frame."""
        self.plain += plain
        self.healed += healed
        self.missing += text_size(plain) - text_size(healed)

    def take(self) -> bytes:
        """The frames, which are no longer held."""
        raw = b"".join(self.raw)
        self.clear()
        return raw


class FrameLane:
    """The fast lane of one stream. It is opened after a frame that every client can read, until a frame is fed.

    A frame waits while healing holds back some of its piece. What healing sends is always the beginning of what came.
    """

    def __init__(self, decoding: HealedDecoding, passed: PassedFrames) -> None:
        self._decoding = decoding
        self._passed = passed
        self._text: TextFlow
        self._call: CallFlow
        self._frames: list[bytes] = []  # those that wait, and their events
        self._events: list[Text | ToolCallDelta] = []
        self._missing = 0  # how many characters healing holds back
        self.is_delayed = False  # too many frames wait

    def open_after(self, plain: list[StreamChunk], healed: list[StreamChunk]) -> TakeFrame | None:
        """What takes frames like the last one, which had these events; None if they have to be fed."""
        if len(plain) != 1 or len(healed) != 1 or type(event := healed[0]) is not type(plain[0]):
            return None
        if isinstance(event, Text) and (text := self._decoding.text_flow()) is not None:
            self._text = text
            return self._take_text
        if isinstance(event, ToolCallDelta) and (call := self._decoding.call_flow(event)) is not None:
            self._call = call
            return self._take_piece
        return None

    def leave(self, held: HeldFrames) -> None:
        """Hand over the frames that wait."""
        if self._frames:
            plain: list[StreamChunk] = [*self._events]
            held.add(b"".join(self._frames), plain, _without_end(self._events, self._missing))
            self._frames, self._events, self._missing, self.is_delayed = [], [], 0, False

    def _take_text(self, frame: bytes) -> bytes | None:
        flow, passed = self._text, self._passed
        event = flow.read(frame)
        if event is None or passed.left < len(frame) or (text := flow.take(event.text)) is None:
            return None
        flow.output.size += len(text)
        return self._pass(frame, event, len(event.text) - len(text))

    def _take_piece(self, frame: bytes) -> bytes | None:
        flow = self._call
        if self._passed.left < len(frame) or (event := flow.read(frame)) is None:
            return None
        flow.skip(len(frame))
        piece = event.piece
        if event.block != flow.block:
            event = ToolCallDelta(flow.block, piece, event.choice)
        return self._pass(frame, event, len(piece) - len(flow.take(piece)))

    def _pass(self, frame: bytes, event: Text | ToolCallDelta, missing: int) -> bytes:
        """What can be sent now of this frame and those that wait; `missing` is how much more is held back."""
        passed, frames, events = self._passed, self._frames, self._events
        passed.left -= len(frame)
        if not missing and not frames:
            passed.events.append(event)
            return frame
        self._missing += missing
        frames.append(frame)
        events.append(event)
        count, left = len(events), self._missing
        while left > 0:
            count -= 1
            left -= len(_text_of(events[count]))
        sent = b"".join(frames[:count])
        passed.events += events[:count]
        del frames[:count], events[:count]
        self.is_delayed = len(frames) > MAX_HELD_READS
        return sent


def _text_of(event: Text | ToolCallDelta) -> str:
    return event.text if isinstance(event, Text) else event.piece


def _without_end(events: list[Text | ToolCallDelta], size: int) -> list[StreamChunk]:
    """Pieces without the last characters."""
    kept: list[StreamChunk] = []
    left = sum(len(_text_of(event)) for event in events) - size
    for event in events:
        if text := _text_of(event)[:left]:
            left -= len(text)
            kept.append(type(event)(event.block, text, event.choice))
    return kept
