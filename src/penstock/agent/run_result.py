"""The result of a finished run: `agent.run` and `agent.arun` return it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct

from penstock.errors import OutputError
from penstock.events import Usage
from penstock.jsontext.error_text import picklable
from penstock.messages import History
from penstock.run.events import ApprovalRequest, Done, EndReason
from penstock.run.state import RunState
from penstock.run.stored import Key, sign

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Output = TypeVar("Output")  # which has no default before Python 3.13

WITH_OUTPUT: tuple[EndReason, ...] = ("answered", "stopped")
"""How runs end that have an output: the model answered, or a hook of the program ended the run."""

NOT_FINISHED = "the run is not finished: read its events to the end first (`text` is what was written so far)"


class RunResult(Struct, Generic[Output], frozen=True):
    """The result of a run; `text` is what the model wrote in its last response, however the run ended.

    `outcome` is the `output`, or why the run has none. `error` is the exception of a request that failed after the
    first, and `tool_failures` are the exceptions of hooks, and of tools that are not `ToolError`s: bugs.

    Of a run that is `paused`, `waiting` has the calls that wait, and `state` is the run for `Agent.resume`. A run with
    a log has no `state`: it is continued by its `id`.
    """

    outcome: Output | OutputError
    messages: History
    usage: Usage
    reason: EndReason
    why: str = ""
    error: Exception | None = None
    waiting: tuple[ApprovalRequest, ...] = ()
    state: bytes = b""
    id: str = ""
    text: str = ""
    tool_failures: tuple[Exception, ...] = ()

    @property
    def output(self) -> Output:
        """The answer, or the structured output; an `OutputError` if the run did not end with one."""
        match self.outcome:
            case OutputError(problem=problem):
                error = OutputError(problem, self.text, reason=self.reason, why=self.why, result=self)
                raise error from self.error
            case output:
                return output

    @property
    def cost(self) -> float | None:
        """What the run has cost in US dollars, with the agents inside it; None if that is not known."""
        return self.usage.cost

    @property
    def finish_reason(self) -> EndReason:
        """The same as `reason`, by the name that it has on a run."""
        return self.reason

    def dump(self, key: Key | None = None) -> bytes:
        """The `state`, signed with a key, as `dump` of a run does it."""
        return sign(self.state, key)

    def __reduce__(self) -> tuple[Any, ...]:
        error = None if self.error is None else picklable(self.error)
        failures = tuple(map(picklable, self.tool_failures))
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields |= {"error": error, "tool_failures": failures}
        return type(self), tuple(fields.values())


def outcome_of(done: Done, state: RunState) -> Any:
    """The output of a finished run, or the `OutputError` that says why it has none."""
    if done.reason not in WITH_OUTPUT:
        return no_output(done)
    try:
        return state.result
    except OutputError as error:
        return no_output(done, error.problem)


def no_output(done: Done, problem: str = "") -> OutputError:
    """The error of a run that ended without an output."""
    why = ": ".join(filter(None, (f"the run has no output ({done.reason})", done.why, problem)))
    return OutputError(why, done.output, reason=done.reason, why=done.why)
