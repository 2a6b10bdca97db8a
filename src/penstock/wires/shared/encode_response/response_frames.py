"""What the wires write differently: the frames of a stream, whole bodies and errors. Each wire implements them once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, ToolCallInvalid, Usage
from penstock.turn import Turn, TurnPart
from penstock.wires.shared.encode_response.response_errors import error_status, status_in
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.response_turns import unfinished
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall

Content = Text | Reasoning | Refusal


class ResponseLimit(Exception):
    """Raised while a piece is written, if the response cannot take it; `error` ends the response."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class ResponseFrames:
    """The frames of one response, written to `out`. A `ResponseEncoder` decides which of them follow each other.

    `usage` are the token counts that are known so far.
    """

    format: ClassVar[ResponseFormat]

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self.out: list[bytes] = []
        self.usage: Usage | None = None

    def opening(self) -> None:
        """Writes the frames before the first part."""

    def begin_content(self, event: Content) -> Write:
        """Begins a text, reasoning or refusal; returns how its pieces are written."""
        raise NotImplementedError

    def end_content(self) -> None:
        """Ends the open text, reasoning or refusal."""

    def begin_call(self, call: WrittenCall) -> Write:
        """Begins a call; returns how pieces of its arguments are written."""
        raise NotImplementedError

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        """Confirms a call."""

    def leave_call(self, call: WrittenCall, event: ToolCallInvalid) -> None:
        """Leaves a call that must not run; what came of it has been written."""

    def call_state(self, call: WrittenCall, event: Opaque) -> None:
        """Writes vendor state of a call that has begun; `call.states` has it as well."""

    def ends_content(self, event: Opaque) -> bool:
        """Whether the open text ends before this vendor state, which belongs to its block, is written."""
        return False

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        """Writes vendor state of this wire; `open_kind` is the kind of its block if that is the open text."""

    def failure(self, error: Error) -> None:
        """Writes an error in band; nothing follows it."""
        raise NotImplementedError

    def finish(self, event: Finish) -> None:
        """Writes the end of a choice."""
        raise NotImplementedError

    def closing(self) -> None:
        """Writes the end of the stream."""

    def expresses_work(self, client_work: str) -> bool:
        """Whether the response says that this work waits for the client."""
        return False

    def item_blocks(self, parts: Iterable[TurnPart]) -> dict[str, set[int]]:
        """The blocks of each item of a response with these parts, by its id, if clients refer to items."""
        return {}

    def whole_body(self, turns: Sequence[Turn]) -> dict[str, Any]:
        """The body of a response that is not streamed; one turn per choice."""
        raise NotImplementedError

    def error_body(self, error: Error, status: int) -> dict[str, Any]:
        """The body of an HTTP error."""
        raise NotImplementedError

    def error_headers(self, error: Error, status: int) -> dict[str, str]:
        """The headers that the protocol has for an HTTP error."""
        return {}

    # The words of the protocol.

    def expressed(self, finish: Finish) -> Finish:
        """The finish as the wire expresses it; with work for the client that it cannot express, not a final answer."""
        return finish if not finish.client_work or self.expresses_work(finish.client_work) else unfinished(finish)

    def finish_of(self, turn: Turn) -> Finish:
        """The finish of a turn as the wire expresses it."""
        reason, work = turn.finish_reason or "cut", turn.client_work
        return self.expressed(Finish(reason, turn.raw_finish_reason, turn.finish_message, client_work=work))

    def reason_of(self, finish: Finish) -> str:
        """The provider's word for the end of a response."""
        is_raw = self.head.keeps_raw_reasons and finish.raw_reason
        return finish.raw_reason or "" if is_raw else self.format.finish_reasons[finish.reason]

    def code_of(self, error: Error, status: int) -> str:
        """The provider's code of an error: its own code, unless it has none or one of another protocol."""
        codes = self.format.error_codes
        is_foreign = self.format.has_closed_errors or bool(status_in(error.code))
        if error.code and not (self.head.translates_errors and is_foreign and error.code not in codes.values()):
            return error.code
        return codes.get(status) or codes[500 if status >= 500 else 400]

    def in_band_code(self, error: Error) -> str:
        """The provider's code of an error that has no HTTP status: it comes within a stream."""
        return self.code_of(error, error_status(error, self.format.error_codes))
