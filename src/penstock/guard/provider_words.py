"""What a provider says besides the response: the reason for the end, the name of the model, and errors."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec.structs import replace

from penstock.errors import ConnectionFailed, ProviderError, TimedOut
from penstock.events import Error, Finish
from penstock.guard.checks import Check

_FROM_TABLES = ("stop", "tool_calls", "length", "content_filter")
"""The reasons that a wire derives from words in its table."""

_DATE = re.compile(r"[-@]?(?:\d{8}|\d{4}-\d{2}-\d{2})?")


def words_to_check(chunk: Finish | Error, models: Collection[str]) -> str:
    """The words of the provider in the end of a response or in an error, joined; `models` are those that may answer."""
    if isinstance(chunk, Error):
        return _joined(chunk.message, chunk.code)
    raw_reason = "" if chunk.reason in _FROM_TABLES else chunk.raw_reason
    message = chunk.message if chunk.reason == "content_filter" else ""  # others are left out
    return _joined(message, raw_reason, "" if _is_expected(chunk.model, models) else chunk.model)


def with_checked_words(chunk: Finish | Error, check: Check | None) -> Finish | Error:
    """The chunk without raw data, and with what the guard made of its words."""
    is_changed = check is not None and check.is_changed
    if isinstance(chunk, Error):
        message, code = (
            _parted(check.passed, chunk.code) if check is not None and is_changed else (chunk.message, chunk.code)
        )
        return chunk if chunk.raw is None and not is_changed else replace(chunk, message=message, code=code, raw=None)
    if check is not None and is_changed:
        is_alone = check.text == chunk.message
        return replace(chunk, message=check.passed if is_alone else "", raw_reason=None, model="")
    if chunk.message and chunk.reason != "content_filter":  # it may quote a malformed call
        return replace(chunk, message="")
    return chunk


def error_check(error: ProviderError) -> Check | None:
    """The check of an error response; None for an error without words of the provider."""
    if isinstance(error, ConnectionFailed | TimedOut):
        return None
    check = Check("provider")
    check.text = _joined(error.request_id, error.message, error.code)
    return check


def with_checked_error(error: ProviderError, check: Check) -> ProviderError:
    """The error without its body, and with what the guard made of its words."""
    message, code, request_id = error.message, error.code, error.request_id
    if check.is_changed:
        passed = check.passed.removeprefix(f"{request_id}\n")
        request_id = request_id if len(passed) < len(check.passed) else ""
        message, code = _parted(passed, code)
    return type(error)(
        message or "the provider reported an error",
        status=error.status,
        code=code,
        retryable=error.retryable,
        retry_after=error.retry_after,
        request_id=request_id,
    )


def _joined(*words: str | None) -> str:
    return "\n".join(word for word in words if word)


def _parted(passed: str, code: str) -> tuple[str, str]:
    """Message and code of an error; the code only if the guard did not change it."""
    message, separator, last = passed.rpartition("\n")
    return (message, code) if code and separator and last == code else (passed, "")


def _is_expected(model: str, models: Collection[str]) -> bool:
    """Whether this is the name of a model that was asked, perhaps with the date of its version."""
    return not model or any(model.startswith(name) and _DATE.fullmatch(model, len(name)) for name in models)
