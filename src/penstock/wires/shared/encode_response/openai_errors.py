"""Errors in OpenAI's shape, which its two wires and most compatible servers share."""

from __future__ import annotations

from typing import Any

from penstock.wires.shared.encode_response.response_errors import CONTEXT_LENGTH

OPENAI_ERRORS = {
    400: "invalid_request_error", 401: "invalid_api_key", 403: "permission_denied", 404: "model_not_found",
    413: "request_too_large", 429: "rate_limit_exceeded", 500: "server_error", 503: "overloaded",
}  # fmt: skip
"""The codes of errors by HTTP status."""
OPENAI_OVERFLOW = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
    "Please reduce the length of the messages."
)
"""The message for a prompt that is too long."""
_TYPES = {429: "requests", 401: "authentication_error", 403: "permission_error"}


def openai_error(code: str, message: str, status: int) -> dict[str, Any]:
    """The body of an error."""
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    param = "messages" if code == CONTEXT_LENGTH else None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
