"""Agents: a model, its tools, and the loop between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.callbacks import Callbacks, OnToolEnd
from penstock.agent.config import (
    AgentConfig,
    Approvals,
    NoModel,
    check_order,
    checked_approvals,
    checked_faults,
    checked_model,
    checked_rescue,
    checked_start,
    checked_tracing,
    expect_model,
)
from penstock.agent.log_options import LOG_OPTIONS, LogOptions, logged_start
from penstock.agent.observer import Observer
from penstock.agent.options import AgentOptions
from penstock.errors import OutputError, UsageError
from penstock.events import Fault, Usage
from penstock.history.read import as_messages
from penstock.messages import History, Message, join_messages
from penstock.model.checks import check_option_names, check_option_values, check_types
from penstock.model.event_loop import warn_if_blocking
from penstock.model.model import Model
from penstock.model.options import StepOptions
from penstock.output.output_type import OutputKind, output_type
from penstock.run.envelope import Key, sign
from penstock.run.events import ApprovalRequest, EndReason
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.tools.policy import StartPolicy
from penstock.tools.source import split_sources
from penstock.tools.tool import tool_table
from penstock.transport.policy import Retries, Timeouts
from penstock.wires.shared.request import OPTIONS

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.agent.agent_run import AgentRun, AsyncAgentRun
    from penstock.agent.token_stream import Executor, Tokens
    from penstock.log.follower import LoggedStart

    Deps = TypeVar("Deps", default=Any)
    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")  # which has no default before Python 3.13
    Output = TypeVar("Output")


REQUEST_OPTIONS = ("tool_choice", "parallel", "streaming", "extra", *OPTIONS)
"""The keywords of an agent that go with every request to its model: see `Model.ask`."""


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


class Agent(Generic[Deps, Output]):
    """A model with tools: runs the tools that the model calls, until it gives its final answer.

        agent = Agent(Model("openai:gpt-5"), tools=[weather], instructions="Be brief.")
        with agent.stream("What is the weather in Rome?") as run:
            for event in run: ...
        run.output, run.messages

    `name` is the name of the agent in log records. `calls` is `native`, or the dialect in which the model writes calls
    into its text; `rescue` finds calls that leaked into the text of a native model. `start` is the start policy of
    tools that have none of their own. A damaged call does not run, unless `run_repaired` names its fault (`duplicated`,
    `quoted` ...; True: any but `cut` and `quoted`): then it runs with repaired arguments. A run that waits only for
    approvals or deferred results ends as `paused`, to be stored (`dump`) and resumed; with `approvals="wait"` a stream
    keeps waiting. `tracing` is a `penstock.tracing.Tracing`, which makes spans and metrics of runs. `output` is the
    type of a structured output: a pydantic model, a dataclass, a TypedDict, a msgspec struct, a list, a union or a JSON
    Schema; then `run.output` has this type. With `partial_arguments`, a stream has an `ArgumentDelta` for each piece of
    a call's arguments. `timeouts` and `retries` replace the model's. Other keywords go with every request:
    `temperature`, `max_tokens` ... A `tool_choice` that forces a call ("required" or the name of a tool) holds for the
    first step of a run; in later steps the model chooses.

    `Agent[Deps, Output]` is an agent whose tools take a `Context[Deps]`, the type of what `deps=` passes to them, and
    whose output has the type `Output`: `str` without `output=`.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            """`Agent[Deps]` is `Agent[Deps, str]`, also before Python 3.13, which has defaults of type variables."""
            given = types if isinstance(types, tuple) else (types,)
            missing = len(cls.__parameters__) - len(given)
            return super().__class_getitem__((*given, str) if missing == 1 else given)

    def __init__(
        self,
        model: Model | str,
        tools: Iterable[Any] = (),
        instructions: str = "",
        *,
        name: str = "",
        calls: str = "native",
        rescue: bool | Iterable[str] = False,
        start: StartPolicy | None = None,
        run_repaired: bool | Iterable[Fault] = False,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        approvals: Approvals = "pause",
        separate_text: bool = False,
        tracing: Observer | None = None,
        partial_arguments: bool = False,
        output: type[Output] | OutputKind | None = None,
        on_text: Callable[[str], Any] | None = None,
        on_reasoning: Callable[[str], Any] | None = None,
        on_tool_start: Callable[[str, str, dict[str, Any]], Any] | None = None,
        on_tool_end: OnToolEnd | None = None,
        on_error: Callable[[str], Any] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        check_option_names(options, REQUEST_OPTIONS, Agent, "an agent")
        check_option_values(options)
        check_order(model, tools)
        check_types(name=(name, str), instructions=(instructions, str), limits=(limits, Limits),
                    timeouts=(timeouts, Timeouts), retries=(retries, Retries))  # fmt: skip
        own, sources = split_sources(tools)
        self.config = AgentConfig(
            name=name,
            model=checked_model(model).with_timeouts(timeouts, retries),
            tools=tool_table(own),
            sources=sources,
            instructions=instructions,
            start=checked_start(start),
            limits=limits or Limits(),
            run_repaired=checked_faults(run_repaired),
            approvals=checked_approvals(approvals),
            separate_text=separate_text,
            tracing=checked_tracing(tracing),
            partial_arguments=partial_arguments,
            output=output_type(output),
            callbacks=Callbacks(on_text, on_reasoning, on_tool_start, on_tool_end, on_error),
            options={**options, "calls": calls, "rescue": checked_rescue(calls, rescue)},
        )
        self._patience = timeouts, retries

    def with_model(self, model: Model | str) -> Self:
        """A copy of the agent with another model, such as a scripted one for a test."""
        other = copy(self)
        other.config = replace(self.config, model=checked_model(model).with_timeouts(*self._patience))
        return other

    def with_approvals(self, approvals: Approvals) -> Self:
        """A copy of the agent with another setting of `approvals`."""
        other = copy(self)
        other.config = replace(self.config, approvals=checked_approvals(approvals))
        return other

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"{type(self).__name__}({self.config.model.name!r}, tools={[*self.config.tools]}{name})"

    @property
    def name(self) -> str:
        """The name of the agent, which is in its log records; empty if it has none."""
        return self.config.name

    def stream(
        self, prompt: Any = None, messages: Any = None, *, deps: Deps | None = None, **log: Unpack[LogOptions]
    ) -> AgentRun[Output]:
        """Start a run in plain code and stream its events. `messages` is a history to continue from."""
        from penstock.agent.agent_run import AgentRun

        return AgentRun(self.config, self._new_run(prompt, messages, log), deps)

    def astream(
        self, prompt: Any = None, messages: Any = None, *, deps: Deps | None = None, **log: Unpack[LogOptions]
    ) -> AsyncAgentRun[Output]:
        """Start a run in async code and stream its events. `messages` is a history to continue from."""
        from penstock.agent.agent_run import AsyncAgentRun

        return AsyncAgentRun(self.config, self._new_run(prompt, messages, log), deps)

    def run(
        self, prompt: Any = None, messages: Any = None, *, deps: Deps | None = None, **log: Unpack[LogOptions]
    ) -> RunResult[Output]:
        """Run to the end in plain code. A call that needs approval or is deferred pauses the run."""
        from penstock.agent.agent_run import AgentRun

        warn_if_blocking("agent.run()", "await agent.arun()")
        run: AgentRun[Output] = AgentRun(self._unread_config, self._new_run(prompt, messages, log), deps)
        with run:
            for _ in run:
                pass
        return _result(run)

    async def arun(
        self, prompt: Any = None, messages: Any = None, *, deps: Deps | None = None, **log: Unpack[LogOptions]
    ) -> RunResult[Output]:
        """Run to the end in async code. A call that needs approval or is deferred pauses the run."""
        from penstock.agent.agent_run import AsyncAgentRun

        started = self._new_run(prompt, messages, log)
        run: AsyncAgentRun[Output] = AsyncAgentRun(self._unread_config, started, deps)
        async with run:
            async for _ in run:
                pass
        return _result(run)

    def resume(self, stored: bytes | str, *, key: Key | None = None, deps: Deps | None = None) -> AgentRun[Output]:
        """Continue a stored run in plain code; `key` is the one that it was signed with, if it was (`dump(key=…)`)."""
        from penstock.agent.agent_run import AgentRun

        return AgentRun(self.config, self._stored_run(stored, key), deps)

    def aresume(
        self, stored: bytes | str, *, key: Key | None = None, deps: Deps | None = None
    ) -> AsyncAgentRun[Output]:
        """Continue a stored run in async code; see `resume`."""
        from penstock.agent.agent_run import AsyncAgentRun

        return AsyncAgentRun(self.config, self._stored_run(stored, key), deps)

    @property
    def _unread_config(self) -> AgentConfig:
        return replace(self.config, approvals="pause", is_read=False)

    def _stored_run(self, stored: bytes | str, key: Key | None) -> Run:
        from penstock.agent.stored_run import load_run

        expect_model(self.config.model)
        return load_run(stored, key, self.config)

    def _new_run(self, prompt: Any, messages: Any, log: LogOptions) -> Run | LoggedStart:
        check_option_names(log, LOG_OPTIONS, Agent, "a run", ("prompt", "messages", "deps", *REQUEST_OPTIONS))
        expect_model(self.config.model)
        first, config = self.first_messages(prompt, messages), self.config
        start = logged_start(self.name, first, log)
        return start or Run(first, config.policies, config.limits, config.run_repaired, config.output)

    def first_messages(self, prompt: Any = None, messages: Any = None) -> list[Message]:
        """The messages with which a run starts: those of a history, and a prompt."""
        if isinstance(messages, str):
            raise UsageError("messages is a string: pass text as the prompt; messages is a history, a list of messages")
        history = [] if messages is None else as_messages(messages)
        request = [] if prompt is None or prompt == "" else as_messages(prompt)
        if not history and not request:
            raise UsageError("there is nothing to answer: pass a prompt, or messages to continue from")
        if history and request and history[-1].role == request[0].role == "user":  # its last question has no answer
            history[-1:], request[:1] = [join_messages(history[-1], request[0])], []
        return [*history, *request]


def _result(run: AgentRun[Output] | AsyncAgentRun[Output]) -> RunResult[Output]:
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


class AgentStreamer(Agent[Deps, str]):
    """An agent whose model writes calls into its text, as XML, and whose tools start as soon as a call is confirmed.

    Without a model, it can only `process_stream`.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        tools: Iterable[Any] = (),
        instructions: str = "",
        **options: Unpack[AgentOptions],
    ) -> None:
        defaults: AgentOptions = {"calls": "xml", "start": "call"}
        super().__init__(NoModel() if model is None else model, tools, instructions, **(defaults | options))

    async def process_stream(
        self, tokens: Tokens, executor: Executor | None = None, *, messages: Any = None, deps: Deps | None = None
    ) -> History:
        """Process a response that you read yourself: any sync or async iterator of its text.

        Text goes to `on_text` at once. Each call runs before the next token is read, by `executor(name, arguments)`,
        which may be async, or else by the tools of the agent. A call that needs approval or is deferred does not run;
        its result says so.

        Returns the history to continue with: `messages`, the response, and the results of its calls. If there are
        results and the agent has a model, it continues with them until the model makes no more calls.
        """
        from penstock.agent.step_tools import StepTools
        from penstock.agent.token_stream import TokenStream, with_executor

        history = [] if messages is None else as_messages(messages)
        config = await StepTools(self.config).alisted()
        history += await TokenStream(config, history, executor, deps).read(tokens)
        if isinstance(self.config.model, NoModel) or not history or not history[-1].results:
            return history
        other = copy(self)
        other.config = self.config if executor is None else with_executor(self.config, executor)
        result = await other.arun(messages=history, deps=deps)
        if result.error is not None:
            raise result.error
        return result.messages
