"""Inputs for a run from any process, for its store."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Text
from penstock.jsontext.nearest import nearest_json
from penstock.log.start import expect_line
from penstock.log.store import Input, Store, not_text
from penstock.log.store_retries import with_retries
from penstock.messages import File, Image, Media, Message
from penstock.results import as_outcome
from penstock.run.events import Decision, Said
from penstock.run.input_checks import checked_text, expect_decision, expect_user

_NO_JSON = (TypeError, ValueError, OverflowError, RecursionError)


class ProvidedResult(Struct, frozen=True):
    """The body of an input with the result of a deferred call; `parts` is a value with images or files."""

    call_id: str
    value: Any
    is_error: bool = False
    parts: tuple[Text | Image | File, ...] = ()


def decision_input(
    run_id: str, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
) -> Input:
    """Approve or decline a call; the first decision on it counts."""
    expect_decision(approved, reason)
    replacement: Any = arguments
    if not isinstance(replacement, dict | None):
        raise UsageError(f"arguments must be a dict, not {replacement!r:.60}")
    body = _encode("arguments", Decision(checked_text("call_id", call_id), approved, arguments, reason))
    return Input(run_id, "decide", call_id, body)


def result_input(run_id: str, call_id: str, value: Any, is_error: bool = False) -> Input:
    """Give the result of a deferred call, anything that a tool may return; the first one counts.

    The owner of the run converts JSON values for the model. For other values, the owner gets the converted content, and
    the data apart from it.
    """
    call_id = checked_text("call_id", call_id)
    outcome = as_outcome(value)
    has_media = any(isinstance(part, Media) for part in outcome.content)
    provided = ProvidedResult(call_id, value, is_error)
    if has_media or not _is_json(value):
        data = None if has_media else nearest_json(outcome.data)
        provided = ProvidedResult(call_id, data, is_error or outcome.is_error, outcome.content)
    return Input(run_id, "provide", call_id, _encode("the result", provided))


def message_input(run_id: str, message: Message, key: str | None = None) -> Input:
    """Add a user message; with a `key`, it counts once."""
    expect_user(message)
    expect_line("key", key or "")
    return Input(run_id, "say", key or uuid.uuid4().hex, _encode("the message", Said(message)))


def cancel_input(run_id: str, why: str) -> Input:
    """End the run."""
    return Input(run_id, "cancel", "cancel", checked_text("why", why).encode())


def put_input(store: Store, input: Input) -> bool:
    """Add an input, and retry while the store fails; False if it does not count.

    An attempt that seemed to fail may have added it.
    """
    has_failed = False

    def note_failure() -> None:
        nonlocal has_failed
        has_failed = True

    counts = with_retries(partial(store.put, input), note_failure)
    if counts or not has_failed:
        return counts
    added = with_retries(partial(store.inputs, [input.run_id]))
    return any((each.kind, each.key, each.body) == (input.kind, input.key, input.body) for each in added)


def _is_json(value: Any) -> bool:
    """Whether a value survives a round trip through JSON."""
    if not isinstance(value, str | int | float | list | dict | None):
        return False
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True  # for which there is an error of its own
    except _NO_JSON:
        return False
    return True


def _encode(name: str, input: Decision | ProvidedResult | Said) -> bytes:
    try:
        return msgspec.json.encode(input)
    except UnicodeEncodeError as error:
        raise not_text(error) from None
    except _NO_JSON as error:
        raise UsageError(f"{name} must be JSON: {error}") from None
