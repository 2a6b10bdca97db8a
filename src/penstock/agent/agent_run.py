"""A run as its reader sees it: `AgentRun` in sync code, `AsyncAgentRun` in async code.

The reader is a gate: a tool with side effects starts, the next request is sent, and the end of a response is processed
only when the reader has read everything before it and asks for the next event. A run that is dropped is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from msgspec.structs import replace

from penstock.agent.async_hints import AsyncOnly
from penstock.agent.config import AgentConfig
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.driver import Driver
from penstock.agent.driver.logged_driver import LoggedAsyncDriver, LoggedSyncDriver
from penstock.agent.driver.sync_driver import SyncDriver
from penstock.agent.run_result import NOT_FINISHED, RunResult, outcome_of
from penstock.errors import OutputError, UsageError
from penstock.events import JSONValue, Usage
from penstock.history.read import as_messages
from penstock.log.follower import LoggedStart
from penstock.log.start import OwnedRun
from penstock.messages import History
from penstock.model.event_loop import warn_if_blocking
from penstock.run.events import ApprovalRequest, Done, EndReason, StreamEvent
from penstock.run.input_checks import checked_text, expect_decision, expect_user
from penstock.run.machine import Run
from penstock.run.stored import Key, sign

AnySyncDriver = SyncDriver | LoggedSyncDriver
AnyAsyncDriver = Driver | LoggedAsyncDriver
D = TypeVar("D", bound=SyncDriver | LoggedSyncDriver | Driver | LoggedAsyncDriver)
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    Output = DefaultTypeVar("Output", default=str)
else:
    Output = TypeVar("Output")  # which has no default before Python 3.13


class RunReader(Generic[D, Output]):
    """The state of a run, while it runs and afterwards."""

    def __init__(self, driver: D) -> None:
        self._driver: D = driver

    def __del__(self) -> None:
        if hasattr(self, "_driver"):  # else the driver could not be made, and the error says why
            self._driver.abandon()

    @property
    def id(self) -> str:
        """The id of the run: in its log (`run_id=`), and in log records."""
        return self._driver.run_id

    @property
    def has_log(self) -> bool:
        """Whether the run is kept in a log."""
        return self._driver.has_log

    @property
    def done(self) -> Done | None:
        """The last event; None until the run has ended."""
        return self._driver.done

    @property
    def error(self) -> Exception | None:
        """The exception of a request that failed."""
        return self._driver.errors[0]

    @property
    def tool_failures(self) -> tuple[Exception, ...]:
        """The exceptions that tools (not as `ToolError`s) and hooks of calls raised in this process, the first 100."""
        return self._driver.errors[1]

    @property
    def output(self) -> Output:
        """The answer, or the structured output, of a finished run: `answered`, or `stopped` by a hook.

        An `OutputError` if the run ended in another way, or is not finished.
        """
        if self.done is None:
            raise OutputError(NOT_FINISHED, self.text, reason="not finished")
        return self._result(self.done).output

    @property
    def text(self) -> str:
        """What the model wrote in its last response, as far as it was read, however the run ended.

        Of a finished run with structured output, the JSON text of the output.
        """
        return self.done.output if self.done else self._driver.call(self._text)

    @property
    def partial(self) -> JSONValue | None:
        """The structured output so far, as its reader has read it: JSON that grows in place; None if there is none.

        Fields that are complete, or complete items of a list, have been validated and have their types.
        """
        partial = self._driver.partial
        return None if partial is None else partial.value

    @property
    def partial_output(self) -> Output | None:
        """The structured output as soon as what was read of it is valid with defaults for the rest; None until then.

        Each access after more was read validates all of it again.
        """
        partial = self._driver.partial
        output: Output | None = None if partial is None else partial.output
        return output

    @property
    def messages(self) -> History:
        """The history at this moment; another run can continue from it, with any provider.

        While the model streams, what was read of its response is in it as one that was cut. A call without a result,
        because it runs or waits, has one that says so; `dump` keeps such a call open, for `resume`.
        """
        return self._driver.call(self._history)

    @property
    def usage(self) -> Usage:
        """The tokens of all responses together, and their cost."""
        return self._driver.run.usage

    @property
    def cost(self) -> float | None:
        """What the run has cost in US dollars, with the agents inside it; None if that is not known."""
        return self.usage.cost

    @property
    def finish_reason(self) -> EndReason | None:
        """How the run ended; None until then."""
        return self.done.reason if self.done else None

    @property
    def why(self) -> str:
        """Why the run ended, in a sentence; empty until then, and if there is nothing to say."""
        return self.done.why if self.done else ""

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a decision or for their result from elsewhere, also before a stored run is read."""
        return self._driver.call(lambda: self._driver.run.waiting)

    @property
    def has_answer(self) -> bool:
        """Whether the model has responded in this run."""
        return self._driver.run.state.has_answer

    def dump(self, key: Key | None = None) -> bytes:
        """The run as JSON, to be continued elsewhere by `Agent.resume`.

        With a `key` it is signed (HMAC-SHA256), and `resume` with the same key refuses what was changed. Sign what
        others could change, as it says which calls run and with which arguments. It is not encrypted.
        """
        return sign(self._driver.call(self._driver.dump), key)

    def cancel(self, why: str = "the run was cancelled") -> None:
        """End the run, from any thread; every call still gets a result.

        When this returns, no tool starts any more, no request is sent, and the connection is closed. The reader gets
        no unread events, only the ends of tools that had started, of the step and of the run.
        """
        self._driver.cancel(checked_text("why", why))

    def detach(self) -> None:
        """Let a run with a log continue when its reader leaves: leaving `with` or the loop does not cancel it then.

        It continues in this process; if this process or its event loop ends before, the run is given back to its store,
        for a worker or for `stream` with the same id.
        """
        self._driver.detach()

    def say(self, message: Any) -> None:
        """Add a user message, from any thread; the model gets it with the next step, also if it has just answered.

        The message is a string, or anything that `messages=` takes for one message.
        """
        messages = as_messages(message)
        if not messages:
            raise UsageError("there is nothing to say: pass a message")
        for user_message in messages:
            expect_user(user_message)
        for user_message in messages:
            self._driver.say(user_message)

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Approve or decline a call that waits for approval, from any thread; `arguments` replace the model's."""
        expect_decision(approved, reason)
        self._driver.decide(call_id, approved, arguments, reason)

    def provide(self, call_id: str, value: Any, is_error: bool = False) -> None:
        """Give the result of a deferred call, or the answer to a question of a tool, from any thread.

        A result is anything that a tool may return. With `is_error` there is none: a question is declined.
        """
        self._driver.provide(call_id, value, is_error)

    def _result(self, done: Done) -> RunResult[Output]:
        outcome: Output | OutputError = outcome_of(done, self._driver.run.state)
        result = RunResult(
            outcome, list(done.messages), self.usage, done.reason, done.why, self.error,
            id=self.id, text=done.output, tool_failures=self.tool_failures,
        )  # fmt: skip
        if result.reason != "paused":
            return result
        return replace(result, waiting=tuple(self.waiting), state=b"" if self.has_log else self.dump())

    def _text(self) -> str:
        self._driver.fold()
        return self._driver.run.state.text

    def _history(self) -> History:
        self._driver.fold()
        return self._driver.run.state.history


class AgentRun(RunReader[AnySyncDriver, Output]):
    """A run that is read in sync code: `with agent.stream(...) as run: for event in run: …`."""

    def __init__(self, config: AgentConfig, run: Run | LoggedStart, deps: Any, owned: OwnedRun | None = None) -> None:
        if isinstance(run, LoggedStart):
            super().__init__(LoggedSyncDriver(config, run, deps))
        else:
            super().__init__(SyncDriver(config, run, deps, owned))
        self._events: Iterator[StreamEvent] | None = None  # for `next`

    def __enter__(self) -> Self:
        self._driver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        warn_if_blocking("agent.stream()", "agent.astream()")
        return self._driver.read_events(self)

    def __next__(self) -> StreamEvent:
        if self._events is None:
            warn_if_blocking("agent.stream()", "agent.astream()")
            self._events = self._driver.read_events(None)  # without a reference to this run, which could not be freed
        return next(self._events)

    def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its tasks have ended, at most a second.

        A tool that is a plain function cannot be stopped: it may run on.
        """
        self._driver.close()


class AsyncAgentRun(RunReader[AnyAsyncDriver, Output], AsyncOnly):
    """A run that is read in async code: `async with agent.astream(...) as run: async for event in run: …`."""

    def __init__(self, config: AgentConfig, run: Run | LoggedStart, deps: Any, owned: OwnedRun | None = None) -> None:
        if isinstance(run, LoggedStart):
            super().__init__(LoggedAsyncDriver(config, run, deps))
        else:
            super().__init__(Driver(DrivenRun(config, run, deps, owned)))
        self._events: AsyncIterator[StreamEvent] | None = None  # for `anext`

    async def __aenter__(self) -> Self:
        await self._driver.enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self._driver.aread_events(self)

    async def __anext__(self) -> StreamEvent:
        if self._events is None:
            self._events = self._driver.aread_events(None)  # without a reference to this run, which could not be freed
        return await anext(self._events)

    async def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its tasks have ended, at most a second."""
        await self._driver.aclose()


def result_of(run: AgentRun[Output] | AsyncAgentRun[Output]) -> RunResult[Output]:
    """The result of a finished run; an error before the model's first response is raised, and one of a tool."""
    event = run._driver.run.state.error  # pyright: ignore[reportPrivateUsage]
    is_raised = run.finish_reason == "error" and event is not None and event.origin == "tool"
    if run.error is not None and (not run.has_answer or is_raised):
        raise run.error
    assert run.done is not None
    return run._result(run.done)  # pyright: ignore[reportPrivateUsage]
