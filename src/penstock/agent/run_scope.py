"""The scope of a run: the context variables that its code sees, and the observer that may set them."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Any

from penstock.agent.config import AgentConfig
from penstock.agent.observer import RunObserver
from penstock.agent.records import RunRecords
from penstock.messages import Message
from penstock.run.commands import StartTool
from penstock.run.step_changes import ModelUsage


class RunScope:
    """The context variables of a run: those of the code that began it. Its requests and tools get copies."""

    def __init__(self) -> None:
        self.variables = copy_context()
        self.observer: RunObserver | None = None

    def enter(self, config: AgentConfig, records: RunRecords, meta: Any) -> None:
        """The run begins here: its variables are those of the caller, and the tracer of the agent sees it from now."""
        self.variables = copy_context()
        self.variables.run(records.enter)
        if config.tracing is not None:
            self.observer = config.tracing.observe(config, records.run_id, meta)
            self.variables.run(self.observer.begin)

    def of_tool(self, start: StartTool) -> Variables:
        """The context variables for a tool."""
        variables = self.variables.copy()
        if self.observer is not None:
            variables.run(self.observer.begin_tool, start)
        return variables

    def begin_request(self, step: int, messages: Sequence[Message], config: AgentConfig) -> None:
        """A request is about to be sent, in this context."""
        if self.observer is not None:
            self.observer.begin_request(step, messages, config)

    def request_failed(self, kind: str) -> None:
        """The request under way failed."""
        if self.observer is not None:
            self.observer.request_failed(kind)

    def spent(self, used: ModelUsage) -> None:
        """A hook has asked a model itself."""
        if self.observer is not None:
            self.observer.spent(used.model, used.usage)

    def tool_ended(self, key: str) -> None:
        """A tool has ended."""
        if self.observer is not None:
            self.observer.tool_ended(key)

    def close(self) -> None:
        """This process no longer drives the run."""
        if self.observer is not None:
            self.observer.close()
