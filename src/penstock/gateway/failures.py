"""Failures as responses: the HTTP status and the message that a client gets when upstreams fail."""

from __future__ import annotations

import math

from penstock.asgi.request import RejectedRequest
from penstock.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailed,
    MissingKeyError,
    ProviderError,
    RateLimitError,
    TimedOut,
    UsageError,
)
from penstock.events import Error

TOO_MANY, BAD_GATEWAY, UNAVAILABLE, GATEWAY_TIMEOUT = 429, 502, 503, 504


def rejection(error: UsageError | ProviderError, *, is_client_key: bool) -> RejectedRequest:
    """The answer to a request that could not be sent, or that upstreams have not answered."""
    if isinstance(error, MissingKeyError):
        names = " or ".join(error.variables)
        return RejectedRequest(
            BAD_GATEWAY, "", f"the gateway has no key for {error.provider}: set {names} where it runs"
        )
    if isinstance(error, UsageError):
        return RejectedRequest(400, "", str(error))
    is_own_key = isinstance(error, AuthenticationError) and not is_client_key
    message = f"the upstream refused the key of the gateway: {error.message}" if is_own_key else error.message
    headers = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
    return RejectedRequest(status_of(error, is_client_key=is_client_key), "", message, headers)


def status_of(error: ProviderError, *, is_client_key: bool) -> int:
    """The HTTP status of an error; one about a key is the client's only if the key is."""
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


def in_band(rejected: RejectedRequest) -> Error:
    """The rejection as an error inside a response that has begun."""
    return Error(rejected.message, rejected.code, retryable=rejected.status >= 500)
