"""Agents: a model, its tools, and the loop between them. The drivers here carry out what the machine says, no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Usage
from penstock.executions import StartPolicy, ToolPolicy
from penstock.happenings import EndReason
from penstock.messages import Message, joined
from penstock.model import Model
from penstock.run import Limits, Run
from penstock.settings import Callbacks, Settings
from penstock.shapes import as_messages
from penstock.tools import Tool, tool_table

if TYPE_CHECKING:
    from penstock.drive_async import AsyncAgentRun
    from penstock.drive_sync import AgentRun


class RunResult(Struct, frozen=True):
    """How a run came out."""

    output: str
    messages: tuple[Message, ...]
    usage: Usage
    reason: EndReason
    why: str = ""


class Agent:
    """A model with tools, which are run as it calls them, until it has its answer.

        agent = Agent(Model("openai:gpt-5"), tools=[weather], instructions="Be brief.")
        with agent.stream("What is the weather in Rome?") as run:
            for event in run: ...
        run.output, run.messages

    `calls` says how the model calls: natively, or in its text in a dialect; with `rescue`, calls that leaked into the
    text of a native model are found. `start` is the start policy of tools that have none of their own. A run that only
    waits for approvals or for deferred results ends as `paused`, to be stored (`dump`) and resumed; with
    `approvals="wait"` it goes on waiting.
    """

    def __init__(
        self,
        model: Model | str,
        tools: Iterable[Any] = (),
        instructions: str = "",
        *,
        calls: str = "native",
        rescue: bool | Iterable[str] = False,
        start: StartPolicy | None = None,
        limits: Limits | None = None,
        approvals: Literal["pause", "wait"] = "pause",
        separate_text: bool = False,
        on_text: Callable[[str], Any] | None = None,
        on_reasoning: Callable[[str], Any] | None = None,
        on_tool_start: Callable[[str, str, dict[str, Any]], Any] | None = None,
        on_tool_end: Callable[[str, Any], Any] | None = None,
        on_error: Callable[[str], Any] | None = None,
        **options: Any,
    ) -> None:
        self.settings = Settings(
            model=Model(model) if isinstance(model, str) else model,
            tools=tool_table(tools),
            instructions=instructions,
            limits=limits or Limits(),
            approvals=approvals,
            separate_text=separate_text,
            callbacks=Callbacks(on_text, on_reasoning, on_tool_start, on_tool_end, on_error),
            options={**options, "calls": calls, "rescue": rescue},
        )
        if start not in (None, "call", "turn"):
            raise UsageError(
                f"start is {start!r}: give 'call' or 'turn'; only tools with read_only=True start before that"
            )
        self._start: StartPolicy | None = start

    @property
    def policies(self) -> dict[str, ToolPolicy]:
        """What the machine is told of the tools."""
        return {name: self._policy(tool) for name, tool in self.settings.tools.items()}

    def _policy(self, tool: Tool[..., Any]) -> ToolPolicy:
        usual: StartPolicy = "closed" if tool.read_only and not tool.is_deferred else "turn"
        approval = tool.approval
        needs = approval if callable(approval) else (lambda arguments: True) if approval else None
        return ToolPolicy(
            start=tool.start or self._start or usual,
            needs_approval=needs,
            timeout=tool.timeout,
            retries=tool.retries,
            is_parallel=tool.parallel,
            is_deferred=tool.is_deferred,
            check=tool.check if tool.is_deferred else None,
        )

    def stream(self, prompt: Any = None, messages: Any = None, *, deps: Any = None) -> AgentRun:
        """Run in plain code: events as they come. `messages` is a history to go on from."""
        from penstock.drive_sync import AgentRun

        return AgentRun(self.settings, self._new_run(prompt, messages), deps)

    def astream(self, prompt: Any = None, messages: Any = None, *, deps: Any = None) -> AsyncAgentRun:
        """Run in async code: events as they come. `messages` is a history to go on from."""
        from penstock.drive_async import AsyncAgentRun

        return AsyncAgentRun(self.settings, self._new_run(prompt, messages), deps)

    def run(self, prompt: Any = None, messages: Any = None, *, deps: Any = None) -> RunResult:
        """Run to the end in plain code."""
        with self.stream(prompt, messages, deps=deps) as run:
            for _ in run:
                pass
        return _result(run)

    async def arun(self, prompt: Any = None, messages: Any = None, *, deps: Any = None) -> RunResult:
        """Run to the end in async code."""
        async with self.astream(prompt, messages, deps=deps) as run:
            async for _ in run:
                pass
        return _result(run)

    def resume(self, stored: bytes | str, *, deps: Any = None) -> AgentRun:
        """Go on in plain code with a run that was stored."""
        from penstock.drive_sync import AgentRun

        return AgentRun(self.settings, Run.load(stored, self.policies, self.settings.limits), deps)

    def aresume(self, stored: bytes | str, *, deps: Any = None) -> AsyncAgentRun:
        """Go on in async code with a run that was stored."""
        from penstock.drive_async import AsyncAgentRun

        return AsyncAgentRun(self.settings, Run.load(stored, self.policies, self.settings.limits), deps)

    def _new_run(self, prompt: Any, messages: Any) -> Run:
        said = as_messages(messages) if messages is not None else []
        asked = as_messages(prompt) if prompt is not None else []
        if said and asked and said[-1].role == asked[0].role == "user":  # the last question was never answered
            said[-1:], asked[:1] = [joined(said[-1], asked[0])], []
        return Run([*said, *asked], self.policies, self.settings.limits)


def _result(run: AgentRun | AsyncAgentRun) -> RunResult:
    """How the run came out; what kept the model from being asked at all is raised."""
    if run.error is not None:
        raise run.error
    assert run.done is not None
    return RunResult(run.output, run.done.messages, run.usage, run.done.reason, run.done.why)


class AgentStreamer(Agent):
    """An agent whose model writes its calls into its text, in XML, and whose tools start as soon as a call is whole."""

    def __init__(
        self,
        model: Model | str,
        tools: Iterable[Any] = (),
        instructions: str = "",
        *,
        calls: str = "xml",
        start: StartPolicy | None = "call",
        **options: Any,
    ) -> None:
        super().__init__(model, tools, instructions, calls=calls, start=start, **options)
