"""Loads a stored run. What no run would have stored is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.events import Fault, Finish
from penstock.output.output_type import OutputType
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.run.rebuild import Replay, rebuild
from penstock.run.stored import RunSnapshot, StoredEvents, decode, snapshot
from penstock.run.stored_checks import open_calls, problems_of
from penstock.tools.policy import ToolPolicy


def load(
    data: bytes | str,
    policies: Mapping[str, ToolPolicy],
    limits: Limits | None = None,
    run_repaired: Collection[Fault] = (),
    output: OutputType[Any] | None = None,
) -> tuple[Run, Mapping[str, float]]:
    """The run that was stored, and the times at which calls of it expire.

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
    if problem := next(problems_of(stored), ""):
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
    blocks = [call.block for call in open_calls(stored)] + [execution.block for execution in stored.executions]
    state.numbering.next_block = max([stored.next_block, *(block + 1 for block in blocks)])
    state.numbering.next_response()
    state.executions = state.new_executions()
    state.executions.load(stored.executions)
    state.record.begin_after(base, {part.block for part in answer.parts} if stored.phase == "answer" else ())
    return run
