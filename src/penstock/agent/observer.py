"""Observers of runs: the interface through which a tracer sees what happens in a run, as it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.events import Usage
from penstock.messages import Message
from penstock.run.commands import StartTool
from penstock.run.events import StreamEvent

if TYPE_CHECKING:
    from penstock.agent.config import AgentConfig


class RunObserver(Protocol):
    """Sees one run. Its methods do not block and do not raise.

    Those that begin something are called in the context of what begins, and may set context variables in it.
    """

    def begin(self) -> None:
        """The run begins, or continues in this process."""
        ...

    def begin_request(self, step: int, messages: Sequence[Message], config: AgentConfig) -> None:
        """A request is sent to the model of this configuration: that of the agent, or what a hook made of it."""
        ...

    def request_failed(self, kind: str) -> None:
        """The request under way failed with an error of this kind; another model may be asked."""
        ...

    def spent(self, model: str, usage: Usage) -> None:
        """A hook has asked the model of this name itself, which took these tokens."""
        ...

    def begin_tool(self, start: StartTool) -> None:
        """A tool starts to run."""
        ...

    def add(self, events: Sequence[StreamEvent]) -> None:
        """One input to the run emitted these events."""
        ...

    def close(self) -> None:
        """This process no longer drives the run."""
        ...


class Observer(Protocol):
    """Makes an observer for each run of an agent."""

    def observe(self, config: AgentConfig, run_id: str, meta: Any) -> RunObserver:
        """The observer of a run; `meta` is what a run with a log was started with."""
        ...
