"""HTTP error responses as errors: the status, and the body in the shapes that providers use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import unescape
from typing import Any

from penstock.errors import (
    AuthenticationError,
    BadRequestError,
    ContextLengthError,
    NotFoundError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    UnexpectedReplyError,
)
from penstock.redaction import without_secrets
from penstock.transport.retry_delay import retry_delay

_TOO_LONG = re.compile(
    r"context.{0,3}(?:length|window)|maximum context|too many (?:input )?tokens|prompt is too long|input is too long"
    r"|exceeds? the (?:maximum|limit).{0,40}tokens|\btokens.{0,40}exceed|\btoken (?:count|limit|length).{0,40}exceed"
    r"|too large.{0,200}\btokens\b|less than \d+ tokens",
    re.IGNORECASE,
)
_NO_TOOLS = re.compile(
    r"(?:does not|doesn't|do not|don't) support (?:tools\b|tool (?:use|call)|functions\b|function call)"
    r"|(?:\btools|tool (?:calling|calls|use)|function calling)`?(?: is| are)? not (?:supported|enabled)"
    r"|no endpoints found that support tool|requires (?:--enable-auto-tool-choice|--tool-call-parser)"
    r"|(?:tools|tool_choice) param requires --jinja",
    re.IGNORECASE,
)
"""The words with which servers refuse tools: because of the model, or because they were started without a parser."""
_PARSER_FAILED = re.compile(
    r"failed to parse input|output that does not match the expected|xml syntax error|failed to parse xml"
    r"|expected element type <|error parsing tool call|failed to parse \w+ json tool call|^(?:unexpected )?EOF$"
    r"|mismatched arg_key and arg_value|while expecting start token|remaining in message header|harmonyerror"
    r"|validation errors? for list\[",
    re.IGNORECASE,
)
"""The words with which servers report that they could not parse what the model wrote."""
_MAX_SHOWN = 500


def response_error(status: int, headers: Mapping[str, str], body: bytes, now: float, server: str = "") -> ProviderError:
    """The error for an error response, with the provider's message. With the name of a `server`, it has no address."""
    value = _json(body)
    code, text = _code_and_message(value)
    text = text or _plain_text(body, headers)
    fields: dict[str, Any] = {
        "status": status,
        "code": code,
        "request_id": _header(headers, "x-request-id", "request-id", "x-amzn-requestid", "cf-ray"),
        "raw": value if value is not None else text,
    }
    message = f"HTTP {status}: {text}" if text else f"HTTP {status}"
    delay = retry_delay(headers, value, now)
    match status:
        case 401 | 403:
            return AuthenticationError(f"{message} (check the API key and its permissions)", **fields)
        case 404:
            return NotFoundError(f"{message} (check the name of the model and the base URL)", **fields)
        case 408 | 409 | 425:
            return OverloadedError(message, retryable=True, retry_after=delay, **fields)
        case 429:
            is_final = code in ("insufficient_quota", "billing_hard_limit_reached")
            return RateLimitError(message, retryable=not is_final, retry_after=delay, **fields)
        case _ if 300 <= status < 400:
            location = without_secrets(_header(headers, "location"))
            advice = "the log has the address" if server else "set base_url to the new address"
            target = (
                f"redirected to {location or 'nowhere'}" if not server else f"{server} redirects to another address"
            )
            return UnexpectedReplyError(f"{message}: {target}; {advice}", location=location, **fields)
        case _ if status >= 500:
            return OverloadedError(message, retryable=True, retry_after=delay, **fields)
        case _ if is_too_long(text, code):
            return ContextLengthError(message, **fields)
        case 413:  # sent by a proxy, or by a provider that limits the bytes
            return BadRequestError(f"{message} (the request has too many bytes, for example of images)", **fields)
        case _:
            return BadRequestError(message, **fields)


def is_too_long(message: str, code: str) -> bool:
    """Whether an error says that the messages exceed the context window."""
    return bool(_TOO_LONG.search(message)) or "context_length" in code


def refuses_tools(message: str) -> bool:
    """Whether an error says that the server or the model has no tools."""
    return bool(_NO_TOOLS.search(message))


def is_parser_failure(message: str) -> bool:
    """Whether an error says that the server could not parse what the model wrote."""
    return bool(_PARSER_FAILED.search(re.sub(r"^HTTP \d+: ", "", message)))


def _header(headers: Mapping[str, str], *names: str) -> str:
    lower = {name.lower(): value for name, value in headers.items()}
    return next((lower[name] for name in names if name in lower), "")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _code_and_message(value: Any) -> tuple[str, str]:
    """The code and the message of an error body, in the shapes that providers use."""
    match value:
        case [first, *_]:  # Gemini
            return _code_and_message(first)
        case {"error": {"message": message, **rest}}:
            return str(rest.get("code") or rest.get("type") or rest.get("status") or ""), str(message)
        case {"error": str(message)} | {"message": str(message)} | {"detail": str(message)} | {"Message": str(message)}:
            return str(value.get("code") or value.get("type") or value.get("__type") or ""), message
        case _:
            return "", json.dumps(value)[:_MAX_SHOWN] if value else ""


def _plain_text(body: bytes, headers: Mapping[str, str]) -> str:
    """The text of a body that is not JSON, without HTML markup."""
    text = body[:20_000].decode("utf-8", "replace")
    if "html" in _header(headers, "content-type") or text.lstrip().lower().startswith(("<!doctype", "<html")):
        text = unescape(re.sub(r"(?is)<(script|style)\b.*?(?:</\1>|$)|<!--.*?(?:-->|$)|<[^<>]*>", " ", text))
    return " ".join(text.split())[:_MAX_SHOWN]
