"""The result of a run that was read to its end: `agent.run` and `agent.arun` return it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.agent_run import AgentRun, AsyncAgentRun
from penstock.errors import OutputError
from penstock.events import Usage
from penstock.messages import History
from penstock.run.events import ApprovalRequest, EndReason
from penstock.run.stored import Key, sign

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Output = TypeVar("Output")  # which has no default before Python 3.13


class RunResult(Struct, Generic[Output], frozen=True):
    """The result of a run; `error` is the exception of a request that failed after the first.

    `outcome` is the `output`, or why a run has none of the type that was asked for.

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

    @property
    def output(self) -> Output:
        """The final text, or the structured output; raises an `OutputError` if the run did not end with a valid one."""
        if isinstance(self.outcome, OutputError):
            raise self.outcome
        return self.outcome

    @property
    def finish_reason(self) -> EndReason:
        """The same as `reason`, by the name that it has on a run."""
        return self.reason

    def dump(self, key: Key | None = None) -> bytes:
        """The `state`, signed with a key, as `dump` of a run does it."""
        return sign(self.state, key)


def result_of(run: AgentRun[Output] | AsyncAgentRun[Output]) -> RunResult[Output]:
    """The result of a run; an error before the model's first response is raised."""
    if run.error is not None and not run.has_answer:
        raise run.error
    assert run.done is not None
    done = run.done
    outcome = _outcome(run)
    result = RunResult(outcome, list(done.messages), run.usage, done.reason, done.why, run.error, id=run.id)
    if result.reason != "paused":
        return result
    return replace(result, waiting=tuple(run.waiting), state=b"" if run.has_log else run.dump())


def _outcome(run: AgentRun[Output] | AsyncAgentRun[Output]) -> Output | OutputError:
    try:
        return run.output
    except OutputError as error:
        return error
