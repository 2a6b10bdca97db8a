"""What the reader of a cancelled run still gets: the ends of tools that had started, of the step and of the run."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.messages import Message
from penstock.run.commands import CancelTool, Output, StopAsking
from penstock.run.events import Done, StepEnd, ToolEnd
from penstock.run.execution import discarded_result
from penstock.run.start_rules import Starts


def is_due(output: Output, starts: Starts, hidden: Collection[str]) -> bool:
    """Whether this still comes after the run was cancelled; `hidden` are the tools with a start that was not read."""
    match output:
        case ToolEnd():
            return output.key in starts.began or (output.key in starts.announced and output.key not in hidden)
        case Done():
            return output.reason == "cancelled"
        case StepEnd() | StopAsking() | CancelTool():
            return True
        case _:
            return False


def as_read(end: ToolEnd, messages: Sequence[Message]) -> ToolEnd:
    """The end of a tool after the run was cancelled: `discarded` if the history does not have its result."""
    if end.ending == "discarded":
        return end
    for message in reversed(messages):
        for known in message.results:
            if known.call_id == end.call_id:
                return end if known == end.result else ToolEnd(end.key, known, "discarded")
    return ToolEnd(end.key, discarded_result(end.result), "discarded")
