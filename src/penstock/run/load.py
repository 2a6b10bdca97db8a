"""Loads a stored run; a state that no run can have is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.events import Fault, Finish, ToolCall, ToolCallInvalid
from penstock.jsontext.values import canonical_json, readable_json
from penstock.messages import Message
from penstock.output.output_type import OutputType
from penstock.run.calls.execution import Execution, fingerprint_of
from penstock.run.input_checks import changed_note, hook_note
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.run.rebuild import Replay, rebuild
from penstock.run.stored import RunSnapshot, StoredEvents, decode, snapshot
from penstock.tools.policy import ToolPolicy

_Call = ToolCall | ToolCallInvalid

MAX_BLOCK = 2**53
"""The highest number of a block; JSON parsers of other languages read no higher number exactly."""


def load(
    data: bytes | str,
    policies: Mapping[str, ToolPolicy],
    limits: Limits | None = None,
    run_repaired: Collection[Fault] = (),
    output: OutputType[Any] | None = None,
) -> tuple[Run, Mapping[str, float]]:
    """The stored run, and the times at which its calls expire.

    A tool that was running then is not started again, unless it may run twice: it may have had an effect.
    """
    stored = decode(data)
    if isinstance(stored, RunSnapshot):
        _refuse(stored)
        return _from_snapshot(stored, policies, limits, run_repaired, output), {}
    try:
        run = _from_events(stored, policies, limits, run_repaired, output)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the stored run is not valid: {error!r}") from None
    for member in run.tree():
        _refuse(snapshot(member.state))
    return run, stored.deadlines


def _refuse(stored: RunSnapshot) -> None:
    if problem := next(_problems_of(stored), ""):
        raise UsageError(f"the stored run is not valid: {problem}")


def _from_events(
    stored: StoredEvents,
    policies: Mapping[str, ToolPolicy],
    limits: Limits | None,
    run_repaired: Collection[Fault],
    output: OutputType[Any] | None,
) -> Run:
    if stored.base is None:
        run = rebuild(stored.events, policies, limits, run_repaired, output)
    else:
        _refuse(stored.base)
        run = _from_snapshot(stored.base, policies, limits, run_repaired, output)
        replay = Replay(run)
        for event in stored.events:
            replay.apply(event)
    numbering = run.state.numbering
    numbering.next_block = max(numbering.next_block, stored.next_block)
    for member in run.tree():
        member.state.numbering.next_response()
        member.state.is_logged = False
        member.state.executions.close_questions()
    return run


def _from_snapshot(
    stored: RunSnapshot,
    policies: Mapping[str, ToolPolicy],
    limits: Limits | None,
    run_repaired: Collection[Fault],
    output: OutputType[Any] | None,
) -> Run:
    base = msgspec.json.encode(stored)
    run = Run(stored.messages, policies, limits, run_repaired, output)
    state, answer = run.state, stored.answer
    state.phase, state.tally, state.output, state.ending = stored.phase, stored.tally, stored.output, stored.end
    for part in answer.parts:
        state.response.builder.add(part)
    if answer.client_work:
        state.response.builder.add(Finish(answer.finish_reason or "other", client_work=answer.client_work))
    blocks = [call.block for call in _open_calls(stored)] + [execution.block for execution in stored.executions]
    state.numbering.next_block = max([stored.next_block, *(block + 1 for block in blocks)])
    state.numbering.next_response()
    state.executions = state.new_executions()
    state.executions.load(stored.executions)
    state.record.begin_after(base, {part.block for part in answer.parts} if stored.phase == "answer" else ())
    return run


# Checks: a state that no run can have would wait forever, or do harm.


def _problems_of(run: RunSnapshot) -> Iterator[str]:
    """The problems of a stored run."""
    if not run.messages and run.phase != "over":
        yield "it has no messages"
    if run.phase in ("answer", "tools") and run.tally.step < 1:
        yield f"its phase is {run.phase!r}, and no request was sent"
    if run.phase in ("new", "over") and run.executions:
        yield f"its phase is {run.phase!r}, and it has executions"
    if not run.tally.is_sound:
        yield "its tally has a negative number"
    calls = _open_calls(run)
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


def _open_calls(run: RunSnapshot) -> list[_Call]:
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


def _problems_of_execution(execution: Execution, call: _Call | None, run: RunSnapshot) -> Iterator[str]:
    key = f"{run.tally.step}.{execution.block}"
    if execution.key != key and not execution.key.startswith(f"{key}."):
        yield f"is not of step {run.tally.step} and block {execution.block}"
    result = execution.result
    if (execution.state in ("finished", "revising")) != (result is not None):
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
    elif isinstance(call, ToolCallInvalid) and call.why == "cut":  # the rest may have come without being read
        if not execution.name.startswith(call.name):
            yield f"is of {execution.name!r}, and its call of {call.name!r}"
    elif execution.name != call.name:
        yield f"is of {execution.name!r}, and its call of {call.name!r}"
    else:
        yield from _differences(execution, call)


def _differences(execution: Execution, call: _Call) -> Iterator[str]:
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
    is_changed = execution.note in (changed_note(execution.arguments), hook_note(execution.arguments))
    if not is_changed and canonical_json(execution.arguments) != canonical_json(arguments):
        yield f"has other arguments than its call: {readable_json(execution.arguments)}"
    if execution.fingerprint != fingerprint_of(call.name, arguments) and (
        execution.fingerprint or execution.state != "finished"
    ):
        yield "has the fingerprint of another call"


def _arguments(execution: Execution, call: _Call) -> dict[str, Any] | None:
    """The arguments of a call that can run; None for a call that cannot."""
    if isinstance(call, ToolCall):
        return None if execution.fault else call.arguments
    return call.repaired if execution.fault == call.why != "cut" else None
