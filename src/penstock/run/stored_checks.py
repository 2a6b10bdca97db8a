"""Checks of a stored run: what no run would have stored is refused, instead of waiting forever or doing harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.events import ToolCall, ToolCallInvalid
from penstock.jsontext.values import canonical_json, readable_json
from penstock.messages import Message
from penstock.run.execution import Execution, changed_note, fingerprint_of

if TYPE_CHECKING:
    from penstock.run.stored import RunSnapshot

Call = ToolCall | ToolCallInvalid

MAX_BLOCK = 2**53
"""The highest number of a block; JSON parsers of other languages read no higher number exactly."""


def problems_of(run: RunSnapshot) -> Iterator[str]:
    """Everything that is wrong with a stored run."""
    if not run.messages and run.phase != "over":
        yield "it has no messages"
    if run.phase in ("answer", "tools") and run.tally.step < 1:
        yield f"its phase is {run.phase!r}, and no request was sent"
    if run.phase in ("new", "over") and run.executions:
        yield f"its phase is {run.phase!r}, and it has executions"
    if not run.tally.is_sound:
        yield "its tally has a negative number"
    calls = open_calls(run)
    yield from _repeated("calls with the id", (call.id for call in calls if call.id))
    yield from _repeated("calls with the block", (call.block for call in calls))
    yield from _repeated(
        "executions with the id", (execution.call_id for execution in run.executions if execution.call_id)
    )
    yield from _repeated("executions with the block", (execution.block for execution in run.executions))
    yield from _repeated("executions with the key", (execution.key for execution in run.executions))
    blocks = [call.block for call in calls] + [execution.block for execution in run.executions]
    if not all(0 <= block <= MAX_BLOCK for block in [*blocks, run.next_block]):
        yield "the number of a block is out of range"
    by_block = {call.block: call for call in calls}
    for execution in run.executions:
        for problem in _problems_of_execution(execution, by_block.get(execution.block), run):
            yield f"the execution {execution.key!r} {problem}"
    if run.phase == "tools":
        executed = {execution.block for execution in run.executions}
        yield from (f"the call {call.id!r} has no execution" for call in calls if call.block not in executed)
        if not calls:
            yield "its phase is 'tools', and its last message has no calls"


def open_calls(run: RunSnapshot) -> list[Call]:
    """The calls of the step under way."""
    last = run.messages[-1] if run.messages else Message("user")
    parts: Iterable[Any] = run.answer.parts if run.phase == "answer" else ()
    if run.phase == "tools" and last.role == "assistant":
        parts = last.parts
    return [part for part in parts if isinstance(part, ToolCall | ToolCallInvalid)]


def _repeated(what: str, values: Iterable[Any]) -> Iterator[str]:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            yield f"it has two {what} {value!r}"
        seen.add(value)


def _problems_of_execution(execution: Execution, call: Call | None, run: RunSnapshot) -> Iterator[str]:
    key = f"{run.tally.step}.{execution.block}"
    if execution.key != key and not execution.key.startswith(f"{key}."):
        yield f"is not of step {run.tally.step} and block {execution.block}"
    result = execution.result
    if (execution.state == "finished") != (result is not None):
        yield f"is {execution.state} and has {'a' if result else 'no'} result"
    if execution.question is not None:
        yield "waits for the answer to a question, which ends with the process of its tool"
    if result is not None and (result.call_id, result.name) != (execution.call_id, execution.name):
        yield "has the result of another call"
    if run.phase == "tools" and not execution.is_confirmed:
        yield "is not confirmed, and the response has ended"
    if call is None:
        if run.phase == "tools":
            yield "has no call"
    elif isinstance(call, ToolCallInvalid) and call.why == "cut":  # the rest of it may have come, but was not read
        if not execution.name.startswith(call.name):
            yield f"is of {execution.name!r}, and its call of {call.name!r}"
    elif execution.name != call.name:
        yield f"is of {execution.name!r}, and its call of {call.name!r}"
    else:
        yield from _differences(execution, call)


def _differences(execution: Execution, call: Call) -> Iterator[str]:
    """How an execution differs from its call."""
    if not execution.is_confirmed:
        return  # the call was still being written
    if execution.call_id != call.id:
        yield f"has the id {execution.call_id!r}, and its call {call.id!r}"
    if execution.is_in_text != call.origin.startswith("text:"):
        yield "and its call disagree on whether the call stood in the text"
    arguments = _arguments(execution, call)
    if arguments is None:
        if execution.state != "finished" or execution.fault:
            yield "would run a call that is not valid"
        return
    is_changed = execution.note == changed_note(execution.arguments)
    if not is_changed and canonical_json(execution.arguments) != canonical_json(arguments):
        yield f"has other arguments than its call: {readable_json(execution.arguments)}"
    if execution.fingerprint != fingerprint_of(call.name, arguments) and (
        execution.fingerprint or execution.state != "finished"
    ):
        yield "has the fingerprint of another call"


def _arguments(execution: Execution, call: Call) -> dict[str, Any] | None:
    """The arguments with which a call runs; None if it cannot."""
    if isinstance(call, ToolCall):
        return None if execution.fault else call.arguments
    return call.repaired if execution.fault == call.why != "cut" else None
