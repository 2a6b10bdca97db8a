"""Errors that end a response: the encoders' own errors, and the HTTP status of an error."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.events import Error, Finish, Retry, ToolCallInvalid

BAD_GATEWAY = 502
UNAVAILABLE = 503
UNKNOWN_RESPONSE = "previous_response_not_found"
"""The code of a request that continues a response which the server does not know: a client sends its whole history."""
CONTEXT_LENGTH = "context_length_exceeded"
"""The code of a request whose prompt exceeds the context window: a client shortens its history."""
MALFORMED_CALL = "malformed_call"
"""The code of an error whose message has what the model wrote."""
MAX_QUOTE = 2000
"""How many characters of malformed arguments an error quotes."""


def incomplete(finish: Finish | None) -> Error:
    """The error of a response that has no proper end, or that failed without an error of its own."""
    if finish is None or finish.reason == "cut":
        return Error("the response ended before it was complete", "incomplete_response", True)
    reason = f" ({finish.raw_reason})" if finish.raw_reason else ""
    return Error(finish.message or f"the response failed{reason}", finish.raw_reason or "failed_response")


def withdrawn(retry: Retry) -> Error:
    """The error of a response that starts again after some of it was sent."""
    return Error(f"the response was interrupted and cannot be continued: {retry.reason}", "withdrawn_response", True)


def error_status(error: Error, codes: Mapping[int, str]) -> int:
    """The HTTP status of an error, from its code; otherwise, from whether a retry may help."""
    known = next((status for status, code in codes.items() if code == error.code), 0)
    known = 400 if error.code == CONTEXT_LENGTH else known
    return known or status_in(error.code) or (UNAVAILABLE if error.retryable else BAD_GATEWAY)


def status_in(code: str) -> int:
    """The HTTP status that a code is, as many servers write it; 0 if it is another code."""
    return int(code) if len(code) == 3 and code.isdecimal() and code[0] in "45" else 0


def changed_call(name: str) -> Error:
    """The error of a call whose arguments turned out to be others after some had been sent."""
    return Error(f"the arguments of the call of {name} changed while they were sent", "changed_call")


def seeming_call(name: str) -> Error:
    """The error of an invalid call that looks complete, so that a client would run it."""
    return Error(f"a part of the call of {name} may be missing", "invalid_call")


def quoted_call(call: ToolCallInvalid) -> Error:
    """The error of a call that only repeats its input: it must not run, and clients would take it for complete."""
    return Error(f"the call of {call.name} must not run: {call.message or call.why}", "quoted_call")


def malformed_call(call: ToolCallInvalid) -> Error:
    """The error of an invalid call on a wire whose arguments are objects; it says what the model wrote."""
    written = f"{call.name}({call.arguments_raw[:MAX_QUOTE]})"
    return Error(f"the model made a malformed call: {written}", MALFORMED_CALL, True)


def too_large(what: str) -> Error:
    """The error of a response of which more would have to be kept than the cap allows."""
    return Error(f"{what} is too large", "too_large")
