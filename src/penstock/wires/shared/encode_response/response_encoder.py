"""The encoder of responses: events to the stream of a protocol.

An encoder is the inverse of the wire's decoder. It decides what is written when, and the `ResponseFrames` of the
protocol write it. `feed` returns the bytes of the events of one network read, so that a server makes one write per
read. Nearly all events add a piece to the text or call of the event before: for these, `feed` remembers where to write
(the lane), and only quotes the piece.

What the protocols have in common is here. The response ends with the first error: nothing follows it. A response that
the provider cut or failed ends with an error, so that no client takes it for complete. A call is written while its
arguments come, and confirmed by `ToolCall` alone; one that must not run is written as it came, without its end. What a
wire cannot express is listed in its facts (`WireFacts.losses`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.events import (
    ArgumentDelta,
    Error,
    Finish,
    Opaque,
    OutputDelta,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.wires.shared.encode_response.block_order import BlockOrder
from penstock.wires.shared.encode_response.json_writing import PieceWriter
from penstock.wires.shared.encode_response.response_errors import (
    changed_call,
    incomplete,
    malformed_call,
    quoted_call,
    seeming_call,
    too_large,
    withdrawn,
)
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames, ResponseLimit
from penstock.wires.shared.encode_response.response_turns import wrong_call
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall, final_text

Lane = tuple[type[StreamChunk] | None, int, Write | None, WrittenCall | None]
"""Where the next piece probably goes: type and block of its event, how it is written, and its call if it has one."""
NO_LANE: Lane = (None, -1, None, None)


class ResponseEncoder:
    """Encodes one response with the frames of its protocol."""

    def __init__(self, frames: ResponseFrames) -> None:
        self.frames = frames
        self.format = frames.format
        self._head = frames.head
        self.calls: dict[int, WrittenCall] = {}
        self.is_open = False  # the first frames have been written
        self.error: Error | None = None  # what has ended the response
        self._has_content = False  # some of the answer has been written
        self._content: tuple[type[Content], int] | None = None  # the open text, by kind and block
        self._write_content: Write = _write_nothing
        self._beginning: WrittenCall | None = None  # a call whose start waits for the state that belongs to it
        self._counts: dict[int, int] = {}  # calls by choice
        self._invalid_calls: list[ToolCallInvalid] = []
        self._finished: set[int] = set()  # choices
        self._lane = NO_LANE
        self._order = BlockOrder() if self.format.one_block_at_a_time else None

    @property
    def usage(self) -> Usage | None:
        """The token counts of the response, once they are known."""
        return self.frames.usage

    # The stream.

    def open(self) -> bytes:
        """The frames before the first part, for a server that sends them before the model answers."""
        self._open()
        return b"".join(self._take())

    def feed(self, events: Iterable[StreamChunk]) -> bytes:
        """The bytes for these events."""
        return b"".join(self.feed_frames(events))

    def close(self) -> bytes:
        """The end of the stream; an error if the response has not ended."""
        return b"".join(self.close_frames())

    def feed_frames(self, events: Iterable[StreamChunk]) -> list[bytes]:
        """The frames for these events, one by one."""
        kind, block, write, call = self._lane
        try:
            for event in events:
                if type(event) is kind and event.block == block and write is not None:  # type: ignore[union-attr]
                    if call is None:
                        write(event.text)  # type: ignore[union-attr]
                    else:
                        piece: str = event.piece  # type: ignore[union-attr]
                        call.add(piece)
                        write(piece)
                        if call.size > MAX_ARGUMENTS:
                            self.fail(too_large(f"the call of {call.name}"))
                            kind = None
                elif self.error is None:
                    self._write_in_order(event)
                    kind, block, write, call = self._lane
        except ResponseLimit as limit:
            self.fail(limit.error)
        if self._beginning is not None and not self.format.waits_for_call_state:
            self._begin()
        return self._take()

    def text_frame(self, block: int) -> tuple[bytes, bytes] | None:
        """The bytes around a quoted piece of the open text, if all frames of this block have the same ones.

        A caller may write such frames by itself, until it feeds something else.
        """
        kind, open_block, write, _ = self._lane
        if kind is Text and open_block == block and isinstance(write, PieceWriter):
            return write.before, write.after
        return None

    def close_frames(self) -> list[bytes]:
        """The frames of `close`, one by one."""
        if self.error is None and not self._finished:
            self.fail(incomplete(None))
        if self.error is None:
            self.frames.closing()
        return self._take()

    def _take(self) -> list[bytes]:
        out = self.frames.out
        frames = out[:]
        out.clear()
        return frames

    def _open(self) -> None:
        if not self.is_open:
            self.is_open = True
            self.frames.opening()

    def _write_in_order(self, event: StreamChunk) -> None:
        if self._order is None:
            self._write(event)
            return
        for ready in self._order.feed(event):
            if self.error is None:
                self._write(ready)
        if self._order.size > MAX_ARGUMENTS:
            self.fail(too_large("what waits for the end of a call"))

    def _write(self, event: StreamChunk) -> None:
        """Writes an event that is not the next piece of the one before."""
        match event:
            case Usage():
                self.frames.usage = event
            case Finish():
                self._finish(event)
            case Error():
                self.fail(event)
            case Retry():
                self._retry(event)
            case Unknown() | ArgumentDelta() | OutputDelta() | ToolCall(kind="vendor" | "approval"):
                pass  # the vendor state before such a call is the call
            case _ if event.choice in self._finished or (event.choice and not self.format.has_choices):
                pass
            case Text() | Reasoning() | Refusal():
                self._add_content(event)
            case Opaque():
                self._add_state(event)
            case ToolCallStart() | ToolCallDelta() | ToolCallClosed() | ToolCall() | ToolCallInvalid():
                self._add_call(event)
            case _:
                assert_never(event)

    def _finish(self, event: Finish) -> None:
        if event.choice in self._finished or (event.choice and not self.format.has_choices):
            return
        if event.reason in ("error", "cut"):
            self.fail(incomplete(event))
        else:
            self._end_open()
            if (call := wrong_call(self._invalid_calls, event.reason, self.format)) is not None:
                self.fail(seeming_call(call.name))
                return
            self._finished.add(event.choice)
            self._lane = NO_LANE
            self.frames.finish(self.frames.expressed(event))

    def _retry(self, event: Retry) -> None:
        if self._has_content:
            self.fail(withdrawn(event))
        else:
            self.calls.clear()
            self._counts.clear()
            self._beginning = None

    def fail(self, error: Error) -> None:
        """Ends the response by an error."""
        if self.error is not None:
            return
        self._open()
        self._begin()
        self.error = error
        self._lane = NO_LANE
        self.frames.failure(error)

    # Texts.

    def _add_content(self, event: Content) -> None:
        place = (type(event), event.block)
        if self._content != place:
            self._end_open()
            self._content = place
            self._write_content = self.frames.begin_content(event)
            self._has_content = True
        self._lane = (*place, self._write_content, None)
        self._write_content(event.text)

    def _end_open(self) -> None:
        """Ends what is open before something else begins."""
        self._open()
        if self._beginning is not None:
            self._begin()
        self._end_content()

    def _end_content(self) -> None:
        if self._content is not None:
            self.frames.end_content()
            self._content = None

    def _add_state(self, event: Opaque) -> None:
        call = self.calls.get(event.block)
        if event.wire != self.format.wire:
            return
        if call is not None and not call.is_ended:
            call.states[event.kind] = event.data
            if call is not self._beginning:
                self.frames.call_state(call, event)
            return
        open_kind = self._content[0] if self._content is not None and self._content[1] == event.block else None
        if open_kind is None or self.frames.ends_content(event):
            self._end_open()
        self._lane = NO_LANE
        self._has_content = True
        self.frames.state(event, open_kind)

    # Calls.

    def _add_call(self, event: ToolCallStart | ToolCallDelta | ToolCallClosed | ToolCall | ToolCallInvalid) -> None:
        if isinstance(event, ToolCallStart):
            self._start(event.block, event.id, event.name, event.choice)
            return
        call = self.calls.get(event.block)
        match event:
            case ToolCallDelta():
                if call is not None and not call.is_ended:
                    self._add_piece(call, event)
            case ToolCallClosed():
                pass  # the end of the call says more
            case ToolCall() | ToolCallInvalid():
                call = call or self._start(event.block, event.id, event.name, event.choice)
                if not call.is_ended:
                    self._end_call(call, event)
            case _:
                assert_never(event)

    def _start(self, block: int, id: str, name: str, choice: int) -> WrittenCall:
        self._end_open()
        index = self._counts.get(choice, 0)
        self._counts[choice] = index + 1
        call = self.calls[block] = WrittenCall(id, name, index, choice)
        if name in self._head.custom_tools or name in self._head.unwrapped_tools:
            call.kind = "custom"
        self._lane = NO_LANE
        self._beginning = call if self._may_begin(call) else None
        return call

    def _may_begin(self, call: WrittenCall) -> bool:
        """Whether a call is written while its arguments come; a call that changes its form has to be whole."""
        is_same = call.kind == "function" or (
            self.format.has_custom_calls and call.name not in self._head.unwrapped_tools
        )
        return self.format.streams_arguments and is_same

    def _begin(self) -> None:
        """Writes the start of the call that waits for it."""
        call, self._beginning = self._beginning, None
        if call is not None:
            call.write = self.frames.begin_call(call)
            self._has_content = True

    def _add_piece(self, call: WrittenCall, event: ToolCallDelta) -> None:
        self._begin()
        call.add(event.piece)
        if call.write is not None:
            self._end_content()
            self._lane = ToolCallDelta, event.block, call.write, call
            call.write(event.piece)

    def _end_call(self, call: WrittenCall, event: ToolCall | ToolCallInvalid) -> None:
        if event.type == "tool_call_invalid" and event.why == "withdrawn":
            return  # a `Retry` follows
        self._lane = NO_LANE
        self._end_content()
        if event.type == "tool_call_invalid" and event.why == "quoted":
            call.is_ended = True
            self.fail(quoted_call(event))
            return
        self._begin()
        has_pieces = call.write is not None
        if not has_pieces:
            call.id, call.name = event.id, event.name
            call.kind = event.kind if event.kind == "custom" else call.kind
        text = final_text(event, call.kind, self.format.has_custom_calls)
        if has_pieces and not self._complete(call, event, text):
            return
        call.is_ended = True
        if isinstance(event, ToolCall):
            if not has_pieces:
                self._write_whole(call, text)
            self.frames.end_call(call, text)
        else:
            self._invalid_calls.append(event)
            if self.format.has_text_arguments:
                if not has_pieces:
                    self._write_whole(call, text)
                self.frames.leave_call(call, event)
            elif event.why != "cut":
                self.fail(malformed_call(event))

    def _complete(self, call: WrittenCall, event: ToolCall | ToolCallInvalid, text: str) -> bool:
        """Writes what is missing of the arguments; a contradiction ends the response. Returns whether there is none."""
        sent = call.arguments()
        if event.name != call.name:
            self.fail(changed_call(call.name))
            return False
        rest = text[len(sent) :] if text.startswith(sent) else None
        if isinstance(event, ToolCall) and sent and rest is None and event.arguments_raw == sent:
            rest = ""  # `null` instead of arguments
        if rest and call.write is not None:
            call.add(rest)
            call.write(rest)
        if rest is None and not self.format.states_final_arguments:
            self.fail(changed_call(call.name))
            return False
        return True

    def _write_whole(self, call: WrittenCall, text: str) -> None:
        """Writes a call of which nothing has been written."""
        call.write = self.frames.begin_call(call)
        call.write(text)
        self._has_content = True


def _write_nothing(piece: str) -> None:
    """Stands for the writer of a text while there is none."""
