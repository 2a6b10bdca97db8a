"""Ends a run whose reader is behind, or has cancelled it.

After a cancel, the reader still gets the ends of tools that had started, of the step and of the run. What was not read
of a response is not in the history, unless it is in a log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from penstock.events import FinishReason
from penstock.messages import Message, ToolResult
from penstock.run.calls.execution import discarded_result
from penstock.run.commands import CancelTool, Command, Emit, Output, StopAsking, sort_outputs
from penstock.run.events import Done, EndReason, Nested, StepEnd, StepStart, StreamEvent, ToolEnd, ToolStart, is_chunk
from penstock.run.inner_runs import InnerRun, InnerRuns, split
from penstock.run.rules import Starts
from penstock.run.state import ReadPart, RunState
from penstock.run.steps import Steps


def cancel_inner(
    inner_runs: InnerRuns, why: str, unread: Iterable[StreamEvent]
) -> tuple[list[StreamEvent], list[Nested], list[Nested]]:
    """Cancel the inner runs of a run whose reader has not read these events.

    Returns the unread events of the run itself, the events of inner runs that its reader still gets, and those for the
    log.
    """
    own, by_call = split(unread)
    shown: list[Nested] = []
    logged: list[Nested] = []
    for inner in inner_runs.all:
        events = by_call.get(inner.call_id, [])
        if inner.has_ended:
            shown += _ended_before(inner, events)
            continue
        commands = [command for command in inner.run.cancel(why, events) if isinstance(command, Emit)]
        shown += inner_runs.take(inner, [event for command in commands for event in command.events])
        logged += inner.wrap(event for command in commands for event in command.logged)
    return own, shown, logged


def cancel_unlogged(steps: Steps, why: str, unread: Sequence[StreamEvent]) -> list[Output]:
    """Cancel a run without a log: unread chunks of the response are not part of the history."""
    state = steps.state
    unread_chunks = sum(is_chunk(event) for event in unread)
    state.response.cut(unread_chunks)
    if state.phase == "answer" and any(isinstance(event, StepStart) for event in unread):
        state.phase, state.tally.step = "tools", state.step - 1  # the step has not begun: no request was sent
    if state.phase != "over":
        outputs = steps.stop("cancelled", why)
    elif any(isinstance(event, Done) for event in unread):
        _keep_read(state, unread_chunks)
        state.ending = "cancelled", why
        outputs = [steps.done(*state.ending)]
    else:
        return []
    due = _due([*unread, *outputs], state.starts, _unread_starts(unread))
    return [_as_read(output, state.messages) if isinstance(output, ToolEnd) else output for output in due]


def cancel_logged(
    steps: Steps, why: str, unread: Sequence[StreamEvent], shown_inner: list[Nested], logged_inner: list[Nested]
) -> list[Command]:
    """Cancel a run with a log: unread events are in the log, and stay in the history."""
    state = steps.state
    state.response.fold(0)
    outputs = steps.stop("cancelled", why)
    due = _due([*unread, *outputs], state.starts, _unread_starts(unread))
    events: list[StreamEvent] = []
    commands: list[Command] = []
    sort_outputs(outputs, events, commands)
    if not outputs and any(isinstance(event, Done) for event in unread):  # it is over already
        due.append(steps.done(*state.ending))
    ends = [event for event in due if isinstance(event, ToolEnd | StepEnd | Done)]
    shown: list[StreamEvent] = [*shown_inner, *ends]
    log = [*logged_inner, *events]
    return [*([Emit(shown, log)] if shown or log else []), *commands]


def stop_unread(steps: Steps, reason: EndReason, why: str, finish: FinishReason = "cut") -> list[Output]:
    """End the run at once. Unread chunks are added; what was read is remembered, in case the reader cancels."""
    state, response = steps.state, steps.state.response
    if state.phase == "answer" and response.unfolded and not state.is_logged:
        state.read_part = ReadPart(response.copy(), len(state.messages), state.executions)
    response.fold(0)
    return steps.stop(reason, why, finish)


def _keep_read(state: RunState, unread: int) -> None:
    """Remove the last `unread` chunks of a finished run from its history."""
    if (read := state.read_part) is None:
        return
    state.response, state.executions = read.response, read.executions
    state.response.cut(unread)
    turn = state.response.build()
    state.new_messages = [message for message in state.messages[read.place :] if message.role == "user"]
    state.messages[read.place :] = [Message("assistant", turn.parts)] if turn.parts else []
    state.add_results()
    state.output = turn.text
    state.finish(*state.ending)


def _ended_before(inner: InnerRun, unread: Iterable[StreamEvent]) -> list[Nested]:
    """The unread events that still come from an inner run that ended before the cancel."""
    own, by_call = split(unread)
    deeper = [event for other in inner.run.inner.all for event in _ended_before(other, by_call.get(other.call_id, []))]
    hidden = _unread_starts(own)
    starts = inner.run.state.starts
    ends = [event for event in own if isinstance(event, Done) or _is_due(event, starts, hidden)]
    return inner.wrap([*deeper, *ends])


def _unread_starts(events: Iterable[StreamEvent]) -> set[str]:
    """The keys of the tool starts among these events."""
    return {event.key for event in events if isinstance(event, ToolStart)}


def _due(outputs: Iterable[Output], starts: Starts, hidden: Collection[str]) -> list[Output]:
    return [output for output in outputs if _is_due(output, starts, hidden)]


def _is_due(output: Output, starts: Starts, hidden: Collection[str]) -> bool:
    """Whether the reader still gets this after a cancel; `hidden` are the keys of unread tool starts."""
    match output:
        case ToolEnd():
            return output.key in starts.began or (output.key in starts.announced and output.key not in hidden)
        case Done():
            return output.reason == "cancelled"
        case StepEnd() | StopAsking() | CancelTool():
            return True
        case _:
            return False


def _as_read(end: ToolEnd, messages: Sequence[Message]) -> ToolEnd:
    """The end of a tool after a cancel: `discarded` if its result is not in the history."""
    if end.ending == "discarded":
        return end
    for message in reversed(messages):
        for known in message.results:
            if known.call_id == end.call_id:
                return end if known == end.result else _discarded(end, known)
    return _discarded(end, discarded_result(end.result))


def _discarded(end: ToolEnd, result: ToolResult) -> ToolEnd:
    return replace(end, result=result, ending="discarded", data=None)
