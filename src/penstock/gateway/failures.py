"""Error responses: the HTTP status and the message for a client when upstreams fail."""

from __future__ import annotations

import math
from typing import Any

from penstock.asgi.request import RejectedRequest
from penstock.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailed,
    ContextLengthError,
    MissingKeyError,
    NotFoundError,
    ProviderError,
    RateLimitError,
    TimedOut,
    UsageError,
)
from penstock.events import Error
from penstock.gateway.servers.overflow import overflow_words
from penstock.transport.error_responses import is_too_long
from penstock.wires import error_statuses
from penstock.wires.shared.encode_response.response_errors import CONTEXT_LENGTH, UNKNOWN_RESPONSE, status_in
from penstock.wires.shared.encode_response.response_format import ResponseFormat

TOO_MANY, BAD_GATEWAY, UNAVAILABLE, GATEWAY_TIMEOUT = 429, 502, 503, 504


def rejection(
    error: UsageError | ProviderError, format: ResponseFormat | None = None, *, is_client_key: bool
) -> RejectedRequest:
    """The error response for a request that could not be sent, or that every upstream failed.

    With a `format`, a prompt that is too long has the words of the client's protocol.
    """
    if isinstance(error, MissingKeyError):
        names = " or ".join(error.variables)
        return RejectedRequest(
            BAD_GATEWAY, "", f"the gateway has no key for {error.provider}: set {names} where it runs"
        )
    if isinstance(error, UsageError):
        return RejectedRequest(400, "", str(error))
    if format is not None and isinstance(error, ContextLengthError):
        code = "" if format.has_closed_errors else CONTEXT_LENGTH
        return RejectedRequest(error.status or 400, code, overflow_words(error, format))
    is_own_key = isinstance(error, AuthenticationError) and not is_client_key
    message = f"the upstream refused the key of the gateway: {error.message}" if is_own_key else error.message
    headers = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
    return RejectedRequest(status_of(error, is_client_key=is_client_key), "", message, headers)


def shown_code(error: RejectedRequest) -> str:
    """The code that clients look for in an error; empty if there is none: the other codes are our own."""
    return error.code if error.code in (UNKNOWN_RESPONSE, CONTEXT_LENGTH) else ""


def status_of(error: ProviderError, *, is_client_key: bool) -> int:
    """The HTTP status of an error. Key errors are the client's only if its own key was used."""
    match error:
        case AuthenticationError():
            return error.status if is_client_key else BAD_GATEWAY
        case TimedOut():
            return GATEWAY_TIMEOUT
        case ConnectionFailed():
            return BAD_GATEWAY
        case BadRequestError():
            return error.status or 400
        case RateLimitError():
            return error.status or TOO_MANY  # it has none if the request was not sent, because another met the limit
        case _ if 400 <= error.status < 600:
            return error.status
        case _:
            return UNAVAILABLE if error.retryable else BAD_GATEWAY


def from_event(error: Error) -> ProviderError:
    """The exception for an error event at the start of a response, by its code."""
    fields: dict[str, Any] = {"code": error.code, "retryable": error.retryable, "raw": error.raw}
    match status_of_code(error.code):
        case 401 | 403 as status:
            return AuthenticationError(error.message, status=status, **fields)
        case 404 as status:
            return NotFoundError(error.message, status=status, **fields)
        case 429 as status:
            return RateLimitError(error.message, status=status, **fields)
        case status if 400 <= status < 500 and is_too_long(error.message, error.code):
            return ContextLengthError(error.message, status=status, **fields)
        case status if 400 <= status < 500:
            return BadRequestError(error.message, status=status, **fields)
        case _:
            return ProviderError(error.message, **fields)


def status_of_code(code: str) -> int:
    """The HTTP status of a code, if a protocol has it or it is a status itself; else 0."""
    return error_statuses().get(code) or status_in(code)


def in_band(rejected: RejectedRequest) -> Error:
    """The rejection as an error event of a started response."""
    return Error(rejected.message, rejected.code or str(rejected.status), retryable=rejected.status >= 500)
