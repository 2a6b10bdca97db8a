"""What the wires write differently: the frames of a stream, whole bodies and errors. Each wire implements them once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, ToolCallInvalid, Usage
from penstock.turn import Turn, TurnPart
from penstock.wires.shared.facts import Loss
from penstock.wires.shared.response_errors import status_in
from penstock.wires.shared.response_head import ResponseHead
from penstock.wires.shared.written_call import Write, WrittenCall

Content = Text | Reasoning | Refusal


class ResponseFrames:
    """The frames of one response; written to `out`, in the order of the events."""

    wire: ClassVar[str]
    content_type: ClassVar[str] = "text/event-stream"
    KEEP_ALIVE: ClassVar[bytes] = b": keep-alive\n\n"
    """Bytes that clients ignore, to be sent while the model is silent; empty if the protocol has none."""
    FINISH: ClassVar[Mapping[str, str]]
    """The provider's finish reasons by ours."""
    ERRORS: ClassVar[Mapping[int, str]]
    """The provider's error codes by HTTP status."""
    has_closed_errors: ClassVar[bool] = False
    """Whether clients know only the provider's codes of errors, so that a server must not send codes of its own."""
    has_choices: ClassVar[bool] = False
    has_custom_calls: ClassVar[bool] = False
    one_block_at_a_time: ClassVar[bool] = False
    """Whether a block ends before the next one begins."""
    streams_arguments: ClassVar[bool] = True
    """Whether arguments are sent in pieces; if not, a call is sent when it is whole."""
    has_text_arguments: ClassVar[bool] = True
    """Whether arguments are written as text, so that those of an invalid call can be written as they came."""
    losses: ClassVar[tuple[Loss, ...]]
    """What the protocol cannot express."""
    waits_for_call_state: ClassVar[bool] = False
    """Whether the start of a call contains vendor state, which comes after it."""
    states_final_arguments: ClassVar[bool] = False
    """Whether the end of a call states its arguments, which may differ from the pieces."""
    marks_cut_calls: ClassVar[bool] = False
    """Whether a cut call is written as such, so that the end of the response does not confirm it."""

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self.out: list[bytes] = []
        self.usage: Usage | None = None
        self.retry_after: float | None = None  # seconds, for an HTTP error

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

    def state(self, event: Opaque, is_open: bool) -> None:
        """Writes vendor state of this wire; `is_open` if its block is the open text."""

    def failure(self, error: Error) -> None:
        """Writes an error in band; nothing follows it."""
        raise NotImplementedError

    def finish(self, event: Finish) -> None:
        """Writes the end of a choice."""
        raise NotImplementedError

    def expresses_work(self, client_work: str) -> bool:
        """Whether the response says that this work waits for the client."""
        return False

    def closing(self) -> None:
        """Writes the end of the stream."""

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

    def reason_of(self, finish: Finish) -> str:
        """The provider's word for the end of a response."""
        is_raw = self.head.keeps_raw_reasons and finish.raw_reason
        return finish.raw_reason or "" if is_raw else self.FINISH[finish.reason]

    def code_of(self, error: Error, status: int) -> str:
        """The provider's code of an error: that of the error, unless it has none or that of another protocol."""
        is_foreign = self.has_closed_errors or bool(status_in(error.code))
        if error.code and not (self.head.translates_errors and is_foreign and error.code not in self.ERRORS.values()):
            return error.code
        return self.ERRORS.get(status) or self.ERRORS[500 if status >= 500 else 400]
