"""Responses that are not streamed: the whole body of a turn, and the bodies of HTTP errors."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.events import Error, Finish, StreamChunk
from penstock.turn import Turn
from penstock.wires.shared.encode_response.json_writing import encode_json
from penstock.wires.shared.encode_response.response_errors import (
    error_status,
    incomplete,
    malformed_call,
    quoted_call,
    seeming_call,
)
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import ResponseFrames
from penstock.wires.shared.encode_response.response_head import EncodedResponse, ResponseHead
from penstock.wires.shared.encode_response.response_turns import collect_choices, without_vendor_calls, wrong_call


def encode_body(
    frames: type[ResponseFrames], source: Turn | Iterable[StreamChunk], head: ResponseHead
) -> EncodedResponse:
    """The whole response; an HTTP error if it failed or was cut."""
    format = frames.format
    turns = [source] if isinstance(source, Turn) else collect_choices(source)
    turns = [without_vendor_calls(turn) for turn in (turns if format.has_choices else turns[:1])]
    for turn in turns:
        if (error := _problem_of(turn, format)) is not None:
            return _http_error(frames(head), error, error_status(error, format.error_codes))
    return EncodedResponse(200, encode_json(frames(head).whole_body(turns)))


def encode_error(
    frames: type[ResponseFrames],
    status: int,
    message: str,
    code: str = "",
    head: ResponseHead | None = None,
) -> EncodedResponse:
    """An HTTP error; without a code, it has the provider's code for the status."""
    return _http_error(frames(head or ResponseHead()), Error(message, code), status)


def _problem_of(turn: Turn, format: ResponseFormat) -> Error | None:
    """Why a turn cannot be written as a whole response."""
    reason = turn.finish_reason or "cut"
    if turn.error is not None or reason in ("error", "cut"):
        return turn.error or incomplete(Finish(reason, turn.raw_finish_reason, turn.finish_message))
    for call in turn.invalid_calls:
        if call.why == "quoted":
            return quoted_call(call)
        if call.why != "cut" and not format.has_text_arguments:
            return malformed_call(call)
    wrong = wrong_call(turn.invalid_calls, reason, format)
    return None if wrong is None else seeming_call(wrong.name)


def _http_error(frames: ResponseFrames, error: Error, status: int) -> EncodedResponse:
    headers, retry_after = frames.error_headers(error, status), frames.head.retry_after
    if retry_after is not None:
        headers["retry-after"] = f"{retry_after:g}"
    return EncodedResponse(status, encode_json(frames.error_body(error, status)), headers, error)
