"""Responses that are not streamed: the whole body of a turn, and the bodies of HTTP errors."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.events import Error, Finish, FinishReason, StreamChunk, ToolCallInvalid
from penstock.turn import Turn
from penstock.wires.shared.json_writing import encode_json
from penstock.wires.shared.response_errors import (
    error_status,
    incomplete,
    malformed_call,
    quoted_call,
    seeming_call,
)
from penstock.wires.shared.response_frames import ResponseFrames
from penstock.wires.shared.response_head import EncodedResponse, ResponseHead
from penstock.wires.shared.response_turns import (
    collect_choices,
    find_lost_call,
    find_seeming_call,
    without_vendor_calls,
)


class ResponseBodies(ResponseFrames):
    """The bodies of one response. The class of a wire implements `whole_body` and `error_body`."""

    @classmethod
    def encode_body(cls, source: Turn | Iterable[StreamChunk], head: ResponseHead) -> EncodedResponse:
        """The whole response; an HTTP error if it failed or was cut."""
        encoder = cls(head)
        turns = [source] if isinstance(source, Turn) else collect_choices(source)
        turns = [without_vendor_calls(turn) for turn in (turns if cls.has_choices else turns[:1])]
        for turn in turns:
            if (error := encoder.problem_of(turn)) is not None:
                return encoder._http_error(error, error_status(error, cls.ERRORS))
        return EncodedResponse(200, encode_json(encoder.whole_body(turns)))

    def finish_of(self, turn: Turn) -> Finish:
        """The end of a turn as the wire expresses it."""
        reason, work = turn.finish_reason or "cut", turn.client_work
        finish = Finish(reason, turn.raw_finish_reason, turn.finish_message, client_work=work)
        return finish if not work or self.expresses_work(work) else unfinished(finish)

    def problem_of(self, turn: Turn) -> Error | None:
        """Why a turn cannot be written as a whole response."""
        reason = turn.finish_reason or "cut"
        if turn.error is not None or reason in ("error", "cut"):
            return turn.error or incomplete(Finish(reason, turn.raw_finish_reason, turn.finish_message))
        for call in turn.invalid_calls:
            if call.why == "quoted":
                return quoted_call(call)
            if call.why != "cut" and not self.has_text_arguments:
                return malformed_call(call)
        wrong = self.wrong_call(turn.invalid_calls, reason)
        return None if wrong is None else seeming_call(wrong.name)

    def wrong_call(self, calls: list[ToolCallInvalid], reason: FinishReason) -> ToolCallInvalid | None:
        """An invalid call that a client would take for a valid one, or not notice, at this end of the response."""
        if not self.has_text_arguments:
            return find_lost_call(calls, reason)
        return None if self.marks_cut_calls else find_seeming_call(calls, reason)

    @classmethod
    def encode_error(
        cls,
        status: int,
        message: str,
        code: str = "",
        head: ResponseHead | None = None,
        retry_after: float | None = None,
    ) -> EncodedResponse:
        """An HTTP error; without a code, it has the provider's code for the status. `retry_after` is in seconds."""
        encoder = cls(head or ResponseHead())
        encoder.retry_after = retry_after
        return encoder._http_error(Error(message, code), status)

    def _http_error(self, error: Error, status: int) -> EncodedResponse:
        headers = self.error_headers(error, status)
        if self.retry_after is not None:
            headers["retry-after"] = f"{self.retry_after:g}"
        return EncodedResponse(status, encode_json(self.error_body(error, status)), headers, error)


def unfinished(finish: Finish) -> Finish:
    """The end of a response with work for the client that the wire cannot express: not that of a final answer."""
    reason = "other" if finish.reason == "stop" else finish.reason
    return msgspec.structs.replace(finish, reason=reason, raw_reason=None, client_work="")
