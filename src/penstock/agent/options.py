"""The keywords of `Agent` as a struct and as a typed dictionary, for code that keeps or passes them on.

Both are written from the signature of `Agent` by `make format`: see decision 69.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.agent.callbacks import OnToolEnd
from penstock.agent.observer import Observer
from penstock.agent.pending_call import AfterCall, BeforeCall
from penstock.agent.step import BeforeStep
from penstock.events import Fault
from penstock.guard.guard import CheckText, Guard
from penstock.healing.settings import Healing
from penstock.model.model import Model
from penstock.model.options import StepOptions
from penstock.prices import PriceTable
from penstock.run.limits import Limits
from penstock.tools.policy import Approvals, StartPolicy, ToolExceptions
from penstock.transport.policy import Retries, Timeouts


class AgentSettings(Struct, frozen=True, kw_only=True):
    """The keywords of `Agent`, which explains them."""

    name: str
    calls: str | Sequence[str]
    rescue: bool | Iterable[str]
    start: StartPolicy | None
    before_step: BeforeStep | Sequence[BeforeStep] | None
    before_call: BeforeCall | Sequence[BeforeCall] | None
    after_call: AfterCall | Sequence[AfterCall] | None
    models: Mapping[str, Model | str] | Iterable[Model | str]
    run_repaired: bool | Iterable[Fault]
    healing: Healing | None
    limits: Limits | None
    prices: PriceTable | None
    timeouts: Timeouts | None
    retries: Retries | None
    approvals: Approvals
    tool_exceptions: ToolExceptions
    separate_text: bool
    tracing: Observer | None
    partial_arguments: bool
    guard: Guard | CheckText | None
    on_text: Callable[[str], Any] | None
    on_reasoning: Callable[[str], Any] | None
    on_tool_start: Callable[[str, str, dict[str, Any]], Any] | None
    on_tool_end: OnToolEnd | None
    on_error: Callable[[str], Any] | None


class AgentOptions(StepOptions, total=False):
    """The keywords of `Agent`, for subclasses that pass them on."""

    name: str
    calls: str | Sequence[str]
    rescue: bool | Iterable[str]
    start: StartPolicy | None
    before_step: BeforeStep | Sequence[BeforeStep] | None
    before_call: BeforeCall | Sequence[BeforeCall] | None
    after_call: AfterCall | Sequence[AfterCall] | None
    models: Mapping[str, Model | str] | Iterable[Model | str]
    run_repaired: bool | Iterable[Fault]
    healing: Healing | None
    limits: Limits | None
    prices: PriceTable | None
    timeouts: Timeouts | None
    retries: Retries | None
    approvals: Approvals
    tool_exceptions: ToolExceptions
    separate_text: bool
    tracing: Observer | None
    partial_arguments: bool
    guard: Guard | CheckText | None
    on_text: Callable[[str], Any] | None
    on_reasoning: Callable[[str], Any] | None
    on_tool_start: Callable[[str, str, dict[str, Any]], Any] | None
    on_tool_end: OnToolEnd | None
    on_error: Callable[[str], Any] | None
