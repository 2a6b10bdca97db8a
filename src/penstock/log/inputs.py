"""What any process may want of a run, as inputs for its store."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from penstock.events import ToolCall
from penstock.log.store import Input, ProvidedResult, not_text
from penstock.messages import Media, Message, result
from penstock.run.events import Decision, Said
from penstock.run.input_checks import checked_text, expect_decision, expect_user


def decision_input(
    run_id: str, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
) -> Input:
    """Approve or decline a call; the first decision on it counts."""
    expect_decision(approved, reason)
    return Input(run_id, "decide", call_id, _body(Decision(call_id, approved, arguments, reason)))


def result_input(run_id: str, call_id: str, value: Any, is_error: bool = False) -> Input:
    """Give the result of a deferred call; the first one counts."""
    content = result(ToolCall(call_id, "", {}), value).content
    if any(isinstance(part, Media) for part in content):
        provided = ProvidedResult(call_id, None, is_error, content)
    else:
        provided = ProvidedResult(call_id, value, is_error)
    return Input(run_id, "provide", call_id, _body(provided))


def message_input(run_id: str, message: Message, key: str | None = None) -> Input:
    """Add a user message; with a `key`, it counts once."""
    expect_user(message)
    return Input(run_id, "say", key or uuid.uuid4().hex, _body(Said(message)))


def cancel_input(run_id: str, why: str) -> Input:
    """End the run."""
    return Input(run_id, "cancel", "cancel", checked_text("why", why).encode())


def _body(input: Decision | ProvidedResult | Said) -> bytes:
    try:
        return msgspec.json.encode(input)
    except UnicodeEncodeError as error:
        raise not_text(error) from None
