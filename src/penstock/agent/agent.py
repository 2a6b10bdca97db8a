"""Agents: a model, its tools, and the loop between them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

from msgspec.structs import replace

from penstock.agent.agent_tool import AgentTool, task
from penstock.agent.async_hints import AwaitedResult, marked_async
from penstock.agent.callbacks import OnToolEnd
from penstock.agent.config import (
    AgentConfig,
    check_order,
    checked_approvals,
    checked_model,
    expect_model,
    new_config,
    unread,
)
from penstock.agent.observer import Observer
from penstock.agent.options import AgentOptions
from penstock.agent.pending_call import AfterCall, BeforeCall
from penstock.agent.pricing import expect_prices
from penstock.agent.run_options import (
    Deps,
    NeededRunOptions,
    NeededRunSettings,
    RunOptions,
    RunSettings,
    logged_start,
    refuse_settings,
    split_options,
    split_settings,
    with_settings,
)
from penstock.agent.step import REQUEST_OPTIONS, BeforeStep, Instructions
from penstock.errors import UsageError
from penstock.events import Fault
from penstock.guard.guard import CheckText, Guard
from penstock.healing.settings import Healing
from penstock.history.read import as_messages
from penstock.messages import Message, join_messages
from penstock.model.checks import check_option_names, check_option_values
from penstock.model.event_loop import warn_if_blocking
from penstock.model.known_models import KnownModel
from penstock.model.model import Model
from penstock.model.options import StepOptions
from penstock.prices import PriceTable
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.run.stored import Key
from penstock.tools.options import ExecutionOptions
from penstock.tools.policy import Approvals, StartPolicy, ToolExceptions
from penstock.tools.tool import Tool
from penstock.transport.policy import Retries, Timeouts

if TYPE_CHECKING:
    from typing_extensions import TypeForm, TypeVar

    from penstock.agent.agent_run import AgentRun, AsyncAgentRun
    from penstock.agent.run_result import RunResult
    from penstock.log.follower import LoggedStart

    Output = TypeVar("Output", default=str)
    Other = TypeVar("Other", default=Any)
else:
    from typing import TypeVar

    Output = TypeVar("Output")  # which has no default before Python 3.13


class Agent(Generic[Deps, Output]):
    """A model with tools: runs the tools that the model calls, until it gives its final answer.

        agent = Agent(Model("openai:gpt-5"), tools=[weather], instructions="Be brief.")
        with agent.stream("What is the weather in Rome?") as run:
            for event in run: ...
        run.output, run.messages

    - `instructions`: the system prompt, or a function that takes a `Context` and returns it for each step.
    - `name`: the name of the agent in log records, and for its runs in a log.
    - `calls`: `native`, or the dialect in which the model writes calls into its text, or several; `auto` chooses.
    - `rescue`: finds calls that a model with native calls wrote into its text by mistake.
    - `start`: when tools start that have no start policy of their own.
    - `before_step`: a function that sees each request before it is sent and may change it (see `Step`), or a list.
    - `before_call`: a function that sees each call before anything of it runs, or a list: it may change the arguments,
      refuse or answer the call, or ask a person (see `PendingCall`).
    - `after_call`: a function that gets the call and the result of each call that ran, or a list; it may return another
      result.
    - `models`: other models, which `before_step` may choose by name.
    - `run_repaired`: the faults of calls that run with repaired arguments (`duplicated`, `quoted` ...; True: any but
      `cut` and `quoted`). Other damaged calls do not run.
    - `healing`: what is healed in responses before the agent reads them: it replaces that of the model, and includes
      `rescue` and `run_repaired`.
    - `limits`: the limits of a run: steps, tokens, cost, time, parallel tools and more.
    - `prices`: what models cost, for `run.cost` and `Limits(cost=…)`: `Prices` by the name of the model, a function of
      that name and a `Usage`, or `"genai-prices"` for the package of that name.
    - `timeouts`: replace those of the model.
    - `retries`: replace those of the model.
    - `approvals`: a run that waits only for approvals or deferred results ends as `paused`, to be stored (`dump`) and
      resumed; with `"wait"`, a stream keeps waiting.
    - `tool_exceptions`: what an exception does in a tool, if it is not a `ToolError`, or in a hook around a call. With
      `"report"` the run continues, a line on standard error names its place, and `result.tool_failures` has it; with
      `"raise"` it ends the run, and `run` raises it.
    - `output`: the type of a structured output: a pydantic model, a dataclass, a TypedDict, a msgspec struct, a list, a
      union or a JSON Schema. `run.output` has this type.
    - `partial_arguments`: adds an `ArgumentDelta` to the stream for each piece of a call's arguments.
    - `separate_text`: text after a tool call begins on a new line.
    - `guard`: checks the text of every response before anyone sees it: a function, or a `Guard` with settings.
    - `tracing`: a `penstock.tracing.Tracing`, which makes spans and metrics of runs.
    - `on_text`, `on_reasoning`, `on_error`: callbacks with a piece of text or of reasoning, or the message of an error.
    - `on_tool_start`: a callback with the id of a call, the name of its tool, and its arguments.
    - `on_tool_end`: a callback with the id of a call and its result; with a third parameter, also with the text that
      the model reads. In async runs, callbacks may be async.

    Other keywords are options of every request: `temperature`, `max_tokens` ... A `tool_choice` that forces a call
    ("required" or the name of a tool) holds for the first step of a run; in later steps the model chooses.

    `Agent[Deps, Output]` is an agent whose tools take a `Context[Deps]`, the type of what `deps=` passes to them, and
    whose output has the type `Output`: `str` without `output=`.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            """`Agent[Deps]` is `Agent[Deps, str]`, also before Python 3.13, which has defaults of type variables."""
            arguments = types if isinstance(types, tuple) else (types,)
            missing = len(cls.__parameters__) - len(arguments)
            return super().__class_getitem__((*arguments, str) if missing == 1 else arguments)

    @overload
    def __init__(
        self,
        model: Model | KnownModel | str,
        tools: Iterable[Any] = (),
        instructions: Instructions = "",
        *,
        output: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | KnownModel | str,
        tools: Iterable[Any] = (),
        instructions: Instructions = "",
        *,
        output: TypeForm[Output],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any, Any],
        model: Model | KnownModel | str,
        tools: Iterable[Any] = (),
        instructions: Instructions = "",
        *,
        output: Mapping[str, Any],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        model: Model | KnownModel | str,
        tools: Iterable[Any] = (),
        instructions: Instructions = "",
        *,
        name: str = "",
        calls: str | Sequence[str] = "native",
        rescue: bool | Iterable[str] = False,
        start: StartPolicy | None = None,
        before_step: BeforeStep | Sequence[BeforeStep] | None = None,
        before_call: BeforeCall | Sequence[BeforeCall] | None = None,
        after_call: AfterCall | Sequence[AfterCall] | None = None,
        models: Mapping[str, Model | str] | Iterable[Model | str] = (),
        run_repaired: bool | Iterable[Fault] = False,
        healing: Healing | None = None,
        limits: Limits | None = None,
        prices: PriceTable | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        approvals: Approvals = "pause",
        tool_exceptions: ToolExceptions = "report",
        separate_text: bool = False,
        tracing: Observer | None = None,
        partial_arguments: bool = False,
        output: TypeForm[Output] | Mapping[str, Any] | None = None,
        guard: Guard | CheckText | None = None,
        on_text: Callable[[str], Any] | None = None,
        on_reasoning: Callable[[str], Any] | None = None,
        on_tool_start: Callable[[str, str, dict[str, Any]], Any] | None = None,
        on_tool_end: OnToolEnd | None = None,
        on_error: Callable[[str], Any] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        arguments = locals()  # the signature declares the options: `AgentConfig` has each under its name
        check_option_names(options, REQUEST_OPTIONS, Agent, "an agent")
        check_option_values(options)
        check_order(model, tools)
        self.config = new_config(arguments, options)

    def with_model(self, model: Model | KnownModel | str) -> Self:
        """A copy of the agent with another model, such as a scripted one for a test."""
        other = copy(self)
        other.config = replace(self.config, model=checked_model(model).with_timeouts(*self.config.patience))
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

    @overload
    def stream(
        self: Agent[None, Output],
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[RunOptions[None]],
    ) -> AgentRun[Output]: ...
    @overload
    def stream(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[NeededRunOptions[Deps]],
    ) -> AgentRun[Output]: ...
    @overload
    def stream(
        self, prompt: Any = None, messages: Any = None, *, output: TypeForm[Other], **options: Unpack[RunOptions[Deps]]
    ) -> AgentRun[Other]: ...
    @overload
    def stream(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RunOptions[Deps]],
    ) -> AgentRun[Any]: ...
    def stream(
        self, prompt: Any = None, messages: Any = None, *, output: Any = None, **options: Unpack[RunOptions[Any]]
    ) -> Any:
        """Start a run and stream its events, in sync code. `messages` is a history to continue from.

        Other keywords replace settings of the agent for this run, or say where it is kept: see `RunOptions`.
        """
        from penstock.agent.agent_run import AgentRun

        return AgentRun(*self._start(prompt, messages, output, options))

    @overload
    def astream(
        self: Agent[None, Output],
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[RunOptions[None]],
    ) -> AsyncAgentRun[Output]: ...
    @overload
    def astream(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[NeededRunOptions[Deps]],
    ) -> AsyncAgentRun[Output]: ...
    @overload
    def astream(
        self, prompt: Any = None, messages: Any = None, *, output: TypeForm[Other], **options: Unpack[RunOptions[Deps]]
    ) -> AsyncAgentRun[Other]: ...
    @overload
    def astream(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RunOptions[Deps]],
    ) -> AsyncAgentRun[Any]: ...
    def astream(
        self, prompt: Any = None, messages: Any = None, *, output: Any = None, **options: Unpack[RunOptions[Any]]
    ) -> Any:
        """Start a run and stream its events, in async code: see `stream`."""
        from penstock.agent.agent_run import AsyncAgentRun

        return AsyncAgentRun(*self._start(prompt, messages, output, options))

    @overload
    def run(
        self: Agent[None, Output],
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[RunOptions[None]],
    ) -> RunResult[Output]: ...
    @overload
    def run(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[NeededRunOptions[Deps]],
    ) -> RunResult[Output]: ...
    @overload
    def run(
        self, prompt: Any = None, messages: Any = None, *, output: TypeForm[Other], **options: Unpack[RunOptions[Deps]]
    ) -> RunResult[Other]: ...
    @overload
    def run(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RunOptions[Deps]],
    ) -> RunResult[Any]: ...
    def run(
        self, prompt: Any = None, messages: Any = None, *, output: Any = None, **options: Unpack[RunOptions[Any]]
    ) -> Any:
        """Run to the end in sync code. A call that needs approval or is deferred pauses the run."""
        from penstock.agent.agent_run import AgentRun, result_of

        warn_if_blocking("agent.run()", "await agent.arun()")
        config, started, deps = self._start(prompt, messages, output, options)
        run: AgentRun[Any] = AgentRun(unread(config), started, deps)
        with run:
            for _ in run:
                pass
        return result_of(run)

    @overload
    def arun(
        self: Agent[None, Output],
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[RunOptions[None]],
    ) -> Coroutine[Any, Any, RunResult[Output]]: ...
    @overload
    def arun(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: None = None,
        **options: Unpack[NeededRunOptions[Deps]],
    ) -> Coroutine[Any, Any, RunResult[Output]]: ...
    @overload
    def arun(
        self, prompt: Any = None, messages: Any = None, *, output: TypeForm[Other], **options: Unpack[RunOptions[Deps]]
    ) -> Coroutine[Any, Any, RunResult[Other]]: ...
    @overload
    def arun(
        self,
        prompt: Any = None,
        messages: Any = None,
        *,
        output: Mapping[str, Any],
        **options: Unpack[RunOptions[Deps]],
    ) -> Coroutine[Any, Any, RunResult[Any]]: ...
    @marked_async
    def arun(
        self, prompt: Any = None, messages: Any = None, *, output: Any = None, **options: Unpack[RunOptions[Any]]
    ) -> Any:
        """Run to the end in async code. A call that needs approval or is deferred pauses the run."""
        return AwaitedResult(self._arun(prompt, messages, output, options), "agent.arun(…)")

    async def _arun(self, prompt: Any, messages: Any, output: Any, options: RunOptions[Any]) -> RunResult[Any]:
        from penstock.agent.agent_run import AsyncAgentRun, result_of

        config, started, deps = self._start(prompt, messages, output, options)
        run: AsyncAgentRun[Any] = AsyncAgentRun(unread(config), started, deps)
        async with run:
            async for _ in run:
                pass
        return result_of(run)

    @overload
    def resume(
        self: Agent[None, Output],
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: None = None,
        **options: Unpack[RunSettings[None]],
    ) -> AgentRun[Output]: ...
    @overload
    def resume(
        self,
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: None = None,
        **options: Unpack[NeededRunSettings[Deps]],
    ) -> AgentRun[Output]: ...
    @overload
    def resume(
        self,
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: TypeForm[Other],
        **options: Unpack[RunSettings[Deps]],
    ) -> AgentRun[Other]: ...
    @overload
    def resume(
        self,
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: Mapping[str, Any],
        **options: Unpack[RunSettings[Deps]],
    ) -> AgentRun[Any]: ...
    def resume(
        self, stored: bytes | str, *, key: Key | None = None, output: Any = None, **settings: Unpack[RunSettings[Any]]
    ) -> Any:
        """Continue a stored run in sync code; `key` is the one that it was signed with, if it was (`dump(key=…)`).

        Settings that the run was started with are not stored: pass the same again.
        """
        from penstock.agent.agent_run import AgentRun

        return AgentRun(*self._stored(stored, key, output, settings))

    @overload
    def aresume(
        self: Agent[None, Output],
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: None = None,
        **options: Unpack[RunSettings[None]],
    ) -> AsyncAgentRun[Output]: ...
    @overload
    def aresume(
        self,
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: None = None,
        **options: Unpack[NeededRunSettings[Deps]],
    ) -> AsyncAgentRun[Output]: ...
    @overload
    def aresume(
        self,
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: TypeForm[Other],
        **options: Unpack[RunSettings[Deps]],
    ) -> AsyncAgentRun[Other]: ...
    @overload
    def aresume(
        self,
        stored: bytes | str,
        *,
        key: Key | None = None,
        output: Mapping[str, Any],
        **options: Unpack[RunSettings[Deps]],
    ) -> AsyncAgentRun[Any]: ...
    def aresume(
        self, stored: bytes | str, *, key: Key | None = None, output: Any = None, **settings: Unpack[RunSettings[Any]]
    ) -> Any:
        """Continue a stored run in async code; see `resume`."""
        from penstock.agent.agent_run import AsyncAgentRun

        return AsyncAgentRun(*self._stored(stored, key, output, settings))

    def as_tool(
        self,
        name: str = "",
        description: str = "",
        prompt: Callable[..., Any] = task,
        **options: Unpack[ExecutionOptions],
    ) -> Tool[..., Any]:
        """A tool for another agent: each call is a run of this one, inside the run that calls it.

        Its events are `Nested` events of that run, its usage is added, and its approvals, questions and cancellation go
        through. The model that calls it reads the output. `prompt` is a function whose parameters are those of the
        tool, and that returns the prompt, or messages; without one, the tool has the parameter `prompt`. The options
        are those of a tool, except `deferred`, `idempotent` and `prepare`. Tools of both agents get the same `deps`.
        """
        return AgentTool(self, name or self.name, description, prompt, options)

    def _stored(
        self, stored: bytes | str, key: Key | None, output: Any, options: RunSettings[Any]
    ) -> tuple[AgentConfig, Run, Any]:
        """The configuration, the machine and the `deps` of a stored run."""
        from penstock.agent.stored_run import load_run

        deps, settings = split_settings(options, Agent, ("stored", "key"))
        config = with_settings(self.config, settings, output)
        expect_model(config.model)
        expect_prices(config)
        config.check_deps(deps)
        return config, load_run(stored, key, config), deps

    def _start(
        self, prompt: Any, messages: Any, output: Any, options: RunOptions[Any]
    ) -> tuple[AgentConfig, Run | LoggedStart, Any]:
        """The configuration, the start and the `deps` of a run."""
        deps, log, settings = split_options(options, Agent)
        config = with_settings(self.config, settings, output)
        expect_model(config.model)
        expect_prices(config)
        config.check_deps(deps)
        first = self.first_messages(prompt, messages)
        start = logged_start(self.name, first, log)
        if start is not None:
            refuse_settings(settings, output)
        run = start or Run(first, config.policies, config.limits, config.run_repaired, config.output)
        return config, run, deps

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
