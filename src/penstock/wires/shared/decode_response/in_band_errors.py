"""Recognises errors in the frames and bodies of providers and gateways, in their many shapes (QUIRKS 92-101)."""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.events import Error
from penstock.jsontext.portable import as_json_value, as_text
from penstock.jsontext.scan import is_too_deep

_RETRYABLE = re.compile(
    r"overload|rate.?limit|too.?many|throttl|timeout|timed.?out|unavailable|exhausted|capacity|internal|server_error"
    r"|api_error|model_?stream|network|try.again|\b(?:408|409|425|429|5\d\d)\b",
    re.IGNORECASE,
)
_FINAL = re.compile(r"quota|billing|insufficient|invalid|not.?found|permission|auth|context.?length", re.IGNORECASE)


def error_in(value: Any) -> Error | None:
    """Returns the error if a frame or a body is one."""
    match value:
        case {"error": {"message": _} | {"code": _} | {"type": _} as inner}:
            return _error(inner, value)
        case {"error": str(message)} if message:
            return _error({"message": message, "code": value.get("code") or value.get("type")}, value)
        case {"error": dict(inner)} if inner:
            return _error({"message": as_text(inner)}, value)
        case {"error": list(inner)} if inner:
            return _error({"message": as_text(inner[0])}, value)
        case {"error": True | int() | float() as code} if code:  # a flag, or a status
            message = value.get("message") or value.get("error_msg") or f"error: {json.dumps(code)}"
            return _error({"message": message, "code": value.get("code") if code is True else code}, value)
        case {"object": "error"} | {"type": "error"}:  # QUIRKS 94, and the flat error of the Responses API
            return _error(value, value)
        case {"error_message": message, **rest} if message:
            return _error({"message": message, "code": rest.get("error_type")}, value)
        case {"error_code": code, **rest} if code and code != "0":
            return _numeric_error(code, rest.get("error_msg"), value)
        case {"error_msg": str(message), **rest} if message and not rest.keys() & {"error_code", "choices"}:
            return _error({"message": message}, value)
        case {"base_resp": {"status_code": code, **rest}} if code and code != "0":
            return _numeric_error(code, rest.get("status_msg"), value)
        case {"detail": detail, **rest} if detail and "choices" not in rest:
            return _error({"message": detail if isinstance(detail, str) else as_text(detail)}, value)
        case {"errors": [{"message": _} as first, *_]}:
            return _error(first, value)
    return None


def bare_message(value: Any) -> Error | None:
    """Returns the error if a body has only a `message`, as AWS and Cohere send it."""
    match value:
        case {"message": str(message)} | {"Message": str(message)}:
            return _error({**value, "message": message}, value)
    return None


def named_error(event: str, value: Any) -> Error | None:
    """Returns the error if a frame is one by its name, which boto3 makes a key of the frame (QUIRKS 101)."""
    if event == "error":
        return error_in(value) or error_in({"error": value})
    if not _is_exception(event) and isinstance(value, dict):
        event = next((key for key in value if _is_exception(key)), "")
        value = value.get(event)
    if not _is_exception(event):
        return None
    fields = value if isinstance(value, dict) else {"message": value}
    message = fields.get("message") or fields.get("Message") or fields.get("originalMessage")
    return _error({"message": message, "code": fields.get("code") or event}, value)


def bare_exception(event: str, payload: bytes) -> Error | None:
    """Returns the error if a frame is one by its name and its payload is not an object (QUIRKS 101)."""
    if not _is_exception(event):
        return None
    text = payload.decode("utf-8", "replace").strip()
    try:
        value = text if is_too_deep(text) else json.loads(text or "null", strict=False)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        return None
    return named_error(event, value if value is None or isinstance(value, str) else text)


def _is_exception(name: Any) -> bool:
    return isinstance(name, str) and name.lower().endswith("exception")


def _error(inner: dict[str, Any], whole: Any) -> Error:
    message, code = inner.get("message"), _code(inner)
    text = message if isinstance(message, str) and message else code or str(as_json_value(inner))
    return Error(
        str(as_json_value(text)), code, is_retryable(f"{code} {inner.get('type') or ''}", text), as_json_value(whole)
    )


def _numeric_error(code: Any, message: Any, whole: Any) -> Error:
    """An error with a vendor's own numeric code: only its message says whether a retry may help."""
    return _error({"message": message, "code": code, "type": message if isinstance(message, str) else ""}, whole)


def _code(inner: dict[str, Any]) -> str:
    for key in ("code", "status", "type"):
        if inner.get(key) not in (None, "", "error"):
            return str(inner[key])
    return ""


def is_retryable(code: str, message: str = "") -> bool:
    """Whether a retry may help, judged by the code, or by the message if there is no code."""
    text = code.strip() or message
    return bool(_RETRYABLE.search(text)) and not _FINAL.search(text)
