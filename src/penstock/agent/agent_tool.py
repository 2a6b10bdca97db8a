"""Agents as tools: a call of such a tool is a run of the agent, inside the run that calls it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.errors import ToolError, UsageError
from penstock.messages import Message
from penstock.results import ToolOutput
from penstock.run.machine import Run
from penstock.tools.options import ExecutionOptions, check_options
from penstock.tools.signature import read_signature
from penstock.tools.tool import Tool, tool
from penstock.tools.typed_arguments import TypedArguments

if TYPE_CHECKING:
    from penstock.agent.agent import Agent
    from penstock.agent.config import AgentConfig


def task(prompt: str) -> str:
    """Pass a task to the agent.

    Args:
        prompt: The task, with all that the agent has to know: it does not see this conversation.
    """
    return prompt


class AgentTool(Tool[..., Any]):
    """A tool that is an agent. `prompt` is the tool that makes the prompt of a run from the arguments of a call.

    Where no run calls it, as in `process_stream`, its function runs the agent and returns the output.
    """

    def __init__(
        self, agent: Agent[Any, Any], name: str, description: str, prompt: Callable[..., Any], options: ExecutionOptions
    ) -> None:
        _check(name, options)
        if options.get("read_only"):
            _expect_reads_only(name, agent)
        signature = read_signature(prompt)
        description = description or ("" if prompt is task else signature.description)
        if not description:
            raise UsageError(f"the agent {name!r} has no description for the model that calls it: add description='…'")
        self.agent = agent
        self.prompt = tool(_as_data(prompt), name=name, description=description)
        kept = replace(signature, namespace={})
        super().__init__(self.prompt.declaration, TypedArguments(signature), self._run, kept, **options)
        self.__name__ = name

    @property
    def config(self) -> AgentConfig:
        """The configuration of the agent."""
        return self.agent.config

    def first_messages(self, prompt: Any) -> list[Message]:
        """The messages with which a run of the agent starts."""
        return self.agent.first_messages(prompt)

    def new_run(self, messages: list[Message]) -> Run:
        """The machine of a run of the agent."""
        config = self.agent.config
        return Run(messages, config.policies, config.limits, config.run_repaired, config.output)

    async def _run(self, **arguments: Any) -> Any:
        prompt = self.prompt.function(**arguments)
        output: ToolOutput = await prompt if iscoroutinefunction(self.prompt.__wrapped__) else prompt
        result = await self.agent.arun(output.data)
        if result.reason != "answered":
            raise ToolError(f"The agent gave no answer ({result.reason}): {result.why}")
        return result.output


def _check(name: str, options: ExecutionOptions) -> None:
    if not name:
        raise UsageError("an agent that is a tool needs a name: as_tool('research', …), or Agent(..., name='research')")
    check_options(options, name)
    for option in ("deferred", "idempotent", "prepare"):
        if option in options:
            raise UsageError(
                f"tool {name!r}: leave out {option}=, which an agent cannot have: it runs in this process, and after a "
                f"crash it continues where it was"
            )


def _expect_reads_only(name: str, agent: Agent[Any, Any]) -> None:
    """Raise for an agent whose tools have side effects: a read-only tool may start before its call is confirmed."""
    for inner, policy in agent.config.policies.items():
        if policy.may_have_effect:
            raise UsageError(
                f"tool {name!r}: leave out read_only=, because {inner!r}, a tool of the agent, may have side effects"
            )


def _as_data(prompt: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a result that is not for a model."""

    async def awaited(*args: Any, **kwargs: Any) -> ToolOutput:
        return ToolOutput("", await prompt(*args, **kwargs))

    def called(*args: Any, **kwargs: Any) -> ToolOutput:
        return ToolOutput("", prompt(*args, **kwargs))

    wrapped: Callable[..., Any] = awaited if iscoroutinefunction(prompt) else called
    return functools.wraps(prompt)(wrapped)
