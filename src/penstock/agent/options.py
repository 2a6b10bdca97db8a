"""The keywords of `Agent` as a typed dictionary, for subclasses that pass them on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.agent.callbacks import OnToolEnd
from penstock.agent.config import Approvals
from penstock.agent.observer import Observer
from penstock.agent.step import BeforeStep
from penstock.events import Fault
from penstock.guard.guard import CheckText, Guard
from penstock.model.model import Model
from penstock.model.options import StepOptions
from penstock.run.limits import Limits
from penstock.tools.policy import StartPolicy
from penstock.transport.policy import Retries, Timeouts


class AgentOptions(StepOptions, total=False):
    """The keywords of `Agent`, which explains them."""

    name: str
    calls: str
    rescue: bool | Iterable[str]
    start: StartPolicy | None
    before_step: BeforeStep | Sequence[BeforeStep] | None
    models: Mapping[str, Model | str] | Iterable[Model | str]
    run_repaired: bool | Iterable[Fault]
    limits: Limits | None
    timeouts: Timeouts | None
    retries: Retries | None
    approvals: Approvals
    separate_text: bool
    tracing: Observer | None
    partial_arguments: bool
    guard: Guard | CheckText | None
    on_text: Callable[[str], Any] | None
    on_reasoning: Callable[[str], Any] | None
    on_tool_start: Callable[[str, str, dict[str, Any]], Any] | None
    on_tool_end: OnToolEnd | None
    on_error: Callable[[str], Any] | None
