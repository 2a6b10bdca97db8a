"""Checks of the inputs that a program gives to a run: a log with anything else could not be read again.

And the notes that the model reads if a person or a hook has changed the arguments of a call.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError, type_name
from penstock.events import Text
from penstock.jsontext.surrogates import join_surrogates
from penstock.jsontext.values import canonical_json, readable_json
from penstock.messages import Message
from penstock.run.events import RequestKind, ToolEnd

if TYPE_CHECKING:
    from penstock.run.machine import Run


def checked_text(name: str, text: Any) -> str:
    """The text, as any store can keep it; a `UsageError` if it is not a string."""
    _expect_string(name, text)
    return join_surrogates(text)


def expect_decision(approved: Any, reason: Any) -> None:
    """Raise a `UsageError` unless a decision is True or False, as the string "no" must not approve a call."""
    if not isinstance(approved, bool):
        raise UsageError(f"approved must be True or False, not {approved!r}")
    _expect_string("reason", reason)


def _expect_string(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise UsageError(f"{name} must be a string, not {type_name(text)}")


def expect_user(message: Message) -> None:
    """Raise a `UsageError` for an empty message, or a message of another role than `user`."""
    if message.role != "user":
        raise UsageError(f"only messages of the user can be added to a run, not one with the role {message.role!r}")
    if not any(not isinstance(part, Text) or part.text.strip() for part in message.parts):
        raise UsageError("the message is empty: there is nothing to say")


def expect_open(run: Run) -> None:
    """Raise a `UsageError` if the run is over."""
    if run.state.is_over:
        raise UsageError("the run is over: start another one, with this message as its prompt")


def expect_waiting(run: Run, call_id: str, kind: RequestKind) -> None:
    """Raise a `UsageError` unless this call waits for a request of this kind."""
    if not run.state.waits_for(call_id, kind):
        missing = "a decision" if kind == "approval" else "a result or an answer"
        waiting = ", ".join(f"{request.call_id} ({request.kind})" for request in run.waiting) or "none"
        raise UsageError(f"no call with the id {call_id!r} waits for {missing}; waiting: {waiting}")


def expect_undecided(run: Run, call_id: str, approved: bool, arguments: dict[str, Any] | None) -> None:
    """Raise unless the call waits for a decision; an `ArgumentsError` if it cannot run with these arguments.

    A call that was skipped since it asked is not the mistake of the caller: an earlier decision may have caused it.
    """
    if not run.state.waits_for(call_id, "approval") and _was_skipped(run, call_id):
        return
    expect_waiting(run, call_id, "approval")
    if approved and arguments is not None:
        run.state.executions.check(call_id, arguments)


def _was_skipped(run: Run, call_id: str) -> bool:
    """Whether a call of the run, or of one inside it, did not run because of a call before it."""
    events = (event for inner in run.tree() for event in reversed(inner.state.record.events))
    return any(
        isinstance(event, ToolEnd) and event.ending == "skipped" and event.call_id == call_id for event in events
    )


def own_arguments(arguments: Any) -> dict[str, Any]:
    """A copy of a person's arguments for a call; a `UsageError` if they have no JSON form."""
    try:
        if isinstance(arguments, dict):
            copied: dict[str, Any] = json.loads(canonical_json(arguments))
            return copied
    except (TypeError, ValueError, RecursionError):
        pass
    raise UsageError(f"the arguments of a call must be a dict that can be written as JSON, not {arguments!r}")


def changed_note(arguments: dict[str, Any]) -> str:
    """The note on a call whose arguments a person changed."""
    return f"The user changed the arguments to {readable_json(arguments)}."


def hook_note(arguments: dict[str, Any]) -> str:
    """The note on a call whose arguments a hook changed."""
    return f"This program changed the arguments to {readable_json(arguments)}."
