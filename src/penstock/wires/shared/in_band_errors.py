"""Errors in band: the many shapes in which providers and gateways say that something went wrong (QUIRKS 92-101)."""

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
    """The error that a frame or a body is, if it is one."""
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
            said = value.get("message") or value.get("error_msg") or f"error: {json.dumps(code)}"
            return _error({"message": said, "code": value.get("code") if code is True else code}, value)
        case {"object": "error"} | {"type": "error"}:  # QUIRKS 94, and the flat one of the Responses API
            return _error(value, value)
        case {"error_message": message, **rest} if message:
            return _error({"message": message, "code": rest.get("error_type")}, value)
        case {"error_code": code, **rest} if code and code != "0":
            return _worded(code, rest.get("error_msg"), value)
        case {"error_msg": str(message), **rest} if message and not rest.keys() & {"error_code", "choices"}:
            return _error({"message": message}, value)
        case {"base_resp": {"status_code": code, **rest}} if code and code != "0":
            return _worded(code, rest.get("status_msg"), value)
        case {"detail": detail, **rest} if detail and "choices" not in rest:
            return _error({"message": detail if isinstance(detail, str) else as_text(detail)}, value)
        case {"errors": [{"message": _} as first, *_]}:
            return _error(first, value)
    return None


def bare_message(value: Any) -> Error | None:
    """The error that a body is when it says nothing but a `message`, as AWS and Cohere do."""
    match value:
        case {"message": str(message)} | {"Message": str(message)}:
            return _error({**value, "message": message}, value)
    return None


def named_error(event: str, value: Any) -> Error | None:
    """The error that a frame is by its name; AWS has it in the headers, boto3 makes it a key (QUIRKS 101)."""
    if event == "error":
        return error_in(value) or error_in({"error": value})
    if not _is_exception(event) and isinstance(value, dict):
        event = next((key for key in value if _is_exception(key)), "")
        value = value.get(event)
    if not _is_exception(event):
        return None
    said = value if isinstance(value, dict) else {"message": value}
    message = said.get("message") or said.get("Message") or said.get("originalMessage")
    return _error({"message": message, "code": said.get("code") or event}, value)


def wordless_error(event: str, payload: bytes) -> Error | None:
    """The error that a frame is by its name alone: its payload is no object that could say more (QUIRKS 101)."""
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


def _worded(code: Any, message: Any, whole: Any) -> Error:
    """An error whose code is a number of the vendor's own: its words say what it means."""
    return _error({"message": message, "code": code, "type": message if isinstance(message, str) else ""}, whole)


def _code(inner: dict[str, Any]) -> str:
    for key in ("code", "status", "type"):
        if inner.get(key) not in (None, "", "error"):
            return str(inner[key])
    return ""


def is_retryable(code: str, message: str = "") -> bool:
    """Whether asking again later may help, judged by the code, and by the words if there is no code."""
    said = code.strip() or message
    return bool(_RETRYABLE.search(said)) and not _FINAL.search(said)
