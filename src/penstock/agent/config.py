"""The configuration of an agent: its options, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from msgspec.structs import replace

from penstock.agent.agent_tool import AgentTool
from penstock.agent.callbacks import Callbacks
from penstock.agent.observer import Observer
from penstock.agent.options import AgentSettings
from penstock.agent.pending_call import AfterCall, BeforeCall
from penstock.agent.step import BeforeStep, Instructions
from penstock.errors import UsageError
from penstock.events import Fault
from penstock.guard.guard import Guard, as_guard
from penstock.model.checks import check_types, is_connector
from penstock.model.model import Model
from penstock.model.text_calls import Calls, check_healing, refuse_rescue
from penstock.output.output_type import OutputType, output_type
from penstock.prices import Cost, as_cost
from penstock.run.limits import Limits
from penstock.tools.policy import Approvals, StartPolicy, ToolExceptions, ToolPolicy
from penstock.tools.source import ToolSource, split_sources
from penstock.tools.tool import Tool
from penstock.tools.tool_table import tool_table
from penstock.transport.policy import Retries, Timeouts

REPAIRABLE: frozenset[Fault] = frozenset(get_args(Fault)) - {"cut"}
"""The faults with which a call can still run, if `run_repaired` names them and its arguments could be repaired.

`run_repaired=True` names all but `quoted`: such a call is not damaged, but perhaps not the model's own.
"""


class AgentConfig(AgentSettings, frozen=True, kw_only=True):
    """The options of an agent, checked, with its model and tools. A field is here if its check changes its type.

    `sources` list more tools before each request. `options` are those of requests. In a run that is not `is_read`,
    nobody can answer a question.
    """

    model: Model
    tools: Mapping[str, Tool[..., Any]]
    sources: tuple[ToolSource, ...]
    instructions: Instructions
    output: OutputType[Any] | None
    callbacks: Callbacks
    options: Mapping[str, Any]
    is_read: bool = True
    rescue: bool | tuple[str, ...]
    before_step: tuple[BeforeStep, ...]
    before_call: tuple[BeforeCall, ...]
    after_call: tuple[AfterCall, ...]
    models: Mapping[str, Model]
    run_repaired: frozenset[Fault]
    limits: Limits
    prices: Cost | None
    guard: Guard | None

    @property
    def patience(self) -> tuple[Timeouts | None, Retries | None]:
        """The timeouts and retries that replace those of each model."""
        return self.timeouts, self.retries

    @property
    def policies(self) -> dict[str, ToolPolicy]:
        """The rules for each tool; the provider may leave the calls of its own tools to the client."""
        return {name: self._policy(tool) for name, tool in self.tools.items() if name == tool.name}

    @property
    def has_hooks(self) -> bool:
        """Whether functions of the user decide on each step."""
        return bool(self.before_step) or callable(self.instructions)

    @property
    def has_text_calls(self) -> bool:
        """Whether calls may come from the text of a response."""
        healing = self.healing or self.model.healing
        return bool(self.rescue or (healing and healing.dialects)) or self.calls != "native"

    @property
    def rescues(self) -> bool:
        """Whether calls in the text were written there by mistake: the model has native calls."""
        return self.has_text_calls and self.calls == "native"

    def check_deps(self, deps: Any) -> None:
        """Raise a `UsageError` if a tool, or one of an agent that is a tool, needs `deps` and there are none."""
        if deps is not None:
            return
        for tool in self.tools.values():
            if tool.preparation is not None and (needed := tool.preparation.needed_deps):
                what = f"prepare of the tool {tool.name!r}"
                raise UsageError(f"{what} takes a {needed}, and the run has no deps: pass deps=…")
            if needed := tool.needed_deps or (tool.prompt.needed_deps if isinstance(tool, AgentTool) else ""):
                raise UsageError(f"the tool {tool.name!r} takes a {needed}, and the run has no deps: pass deps=…")
            if isinstance(tool, AgentTool):
                tool.config.check_deps(None)

    def _policy(self, tool: Tool[..., Any]) -> ToolPolicy:
        usual: StartPolicy = "closed" if tool.read_only and not tool.is_deferred else "turn"
        start = (
            None if self.start == "call" and usual == "closed" else self.start
        )  # "call" would start such a tool later
        approval = tool.approval
        needs = approval if callable(approval) else bool(approval)
        begins: StartPolicy = tool.start or start or usual
        return ToolPolicy(
            start=begins,
            needs_approval=needs,
            timeout=tool.timeout,
            expires=tool.expires,
            retries=tool.retries,
            parallel=tool.parallel,
            is_deferred=tool.is_deferred,
            is_hosted=tool.is_hosted,
            is_read_only=tool.read_only,
            is_idempotent=tool.idempotent,
            asks_if_in_text=self.rescues and approval is None and not tool.read_only,
            check=tool.complete_arguments,
            json_form=tool.json_form,
            new_run=tool.new_run if isinstance(tool, AgentTool) else None,
            prepares=tool.preparation is not None and begins != "closed",
            grows=tool.preparation is not None and tool.preparation.grows and begins != "closed",
        )


def new_config(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> AgentConfig:
    """The configuration of an agent with these arguments of `Agent`, and these options of its requests."""
    own = {name: arguments[name] for name in (*AgentSettings.__struct_fields__, "tools", "instructions", "output")}
    model = checked_model(arguments["model"])
    own["calls"] = calls = model.choose_calls(arguments["calls"])
    own["rescue"] = checked_rescue(calls, arguments["rescue"])
    check_healing(calls, arguments["rescue"], arguments["healing"])
    if arguments["healing"] is not None and arguments["run_repaired"]:
        raise UsageError("run_repaired is a part of healing: pass healing=Healing(repair=…), without run_repaired")
    config = AgentConfig(
        **checked_settings(own),
        model=model.with_timeouts(arguments["timeouts"], arguments["retries"]),
        callbacks=Callbacks(**{name: arguments[name] for name in Callbacks.__struct_fields__}),
        options=options,
    )
    expect_tools_of_hooks(config)
    return config


def expect_tools_of_hooks(config: AgentConfig) -> None:
    """Raise a `UsageError` if a hook needs a tool that the agent does not have (its `required_tools`)."""
    for hook in config.after_call:
        required = getattr(hook, "required_tools", ())
        missing = (
            [tool.name for tool in required if tool.name not in config.tools] if isinstance(required, list) else []
        )
        if missing:
            kind = type(hook).__name__
            raise UsageError(f"{kind} needs its tool {missing[0]!r}: add it, as in tools=[*tools, *large.tools]")


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an agent as its configuration has them; a `UsageError` for a wrong one."""
    checked = {name: _CHECKS[name](value) if name in _CHECKS else value for name, value in settings.items()}
    if "tools" in settings:
        own, sources = split_sources(settings["tools"])
        checked.update(tools=tool_table(own), sources=sources)
    return checked


def unread(config: AgentConfig) -> AgentConfig:
    """The configuration of a run without a reader: nobody can answer a question while it runs."""
    return replace(config, approvals="pause", is_read=False)


class NoModel(Model):
    """Stands for the model of an agent that has none."""

    def __init__(self) -> None:
        self.name = ""
        self.healing = None

    def choose_calls(self, calls: str | Sequence[str]) -> Calls:
        if calls == "auto":
            raise UsageError("calls='auto' needs a model: pass one, or a dialect")
        return calls if isinstance(calls, str) else tuple(calls)

    def with_timeouts(self, timeouts: Timeouts | None = None, retries: Retries | None = None) -> Model:
        return self


def expect_model(model: Model) -> None:
    """Raise a `UsageError` if this only stands for a model."""
    if isinstance(model, NoModel):
        raise UsageError("this agent has no model: pass one, as a Model or as 'provider:model'")


def check_order(name: Any, model: Any) -> None:
    """Raise a `UsageError` for a name before the model, which is the order of arguments in some other libraries."""
    if isinstance(model, Model):
        raise UsageError(f"the model comes first, and the name is a keyword: use Agent(model, tools, name={name!r})")


def checked_model(model: Any) -> Model:
    """The model, made from its name if it is a string."""
    if isinstance(model, str):
        return Model(model)
    if isinstance(model, Model):
        return model
    if is_connector(model):
        kind = type(model).__name__
        raise UsageError(
            f"a {kind} replaces the connection to a provider and is not a model: use Model('provider:model', via=…)"
        )
    raise UsageError(f"the model must be a Model, or its name as 'provider:model', not {model!r}")


def checked_models(models: Any) -> dict[str, Model]:
    """The models that hooks may choose, by name; a name without a model is the model's own, as `provider:model`."""
    if isinstance(models, str) or not isinstance(models, Mapping | Iterable):
        raise UsageError(f"models must be a dict of models by name, or a list of models, not {models!r}")
    if isinstance(models, Mapping):
        return {str(name): checked_model(model) for name, model in models.items()}
    known: dict[str, Model] = {}
    for model in map(checked_model, models):
        if model.name in known:
            raise UsageError(
                f"two models have the name {model.name!r}: use a dict, as in models={{'large': …, 'small': …}}"
            )
        known[model.name] = model
    return known


def checked_hooks(name: str, takes: str, value: Any) -> tuple[Callable[..., Any], ...]:
    """The hooks in their order; `takes` is what such a function takes."""
    hooks = () if value is None else tuple(value) if isinstance(value, Sequence) else (value,)
    if not all(map(callable, hooks)):
        raise UsageError(f"{name} must be a function that takes {takes}, or a list of such functions, not {value!r}")
    return hooks


def checked_instructions(instructions: Instructions) -> Instructions:
    value: object = instructions
    if not isinstance(value, str) and not callable(value):
        expected = "a string, or a function that takes a Context and returns one"
        raise UsageError(f"instructions must be {expected}, not {value!r}")
    return instructions


def checked_start(start: Any) -> StartPolicy | None:
    if start not in (None, "call", "turn"):
        raise UsageError(
            f"start must be 'call' or 'turn', not {start!r}; only tools with read_only=True start before that"
        )
    policy: StartPolicy | None = start
    return policy


def checked_tracing(tracing: Any) -> Observer | None:
    if tracing is not None and not hasattr(tracing, "observe"):
        raise UsageError(f"tracing must be a penstock.tracing.Tracing, not {tracing!r}")
    observer: Observer | None = tracing
    return observer


def checked_approvals(approvals: Any) -> Approvals:
    if approvals not in ("pause", "wait"):
        raise UsageError(f"approvals must be 'pause' or 'wait', not {approvals!r}")
    policy: Approvals = approvals
    return policy


def checked_exceptions(tool_exceptions: Any) -> ToolExceptions:
    if tool_exceptions not in get_args(ToolExceptions):
        raise UsageError(f"tool_exceptions must be 'report' or 'raise', not {tool_exceptions!r}")
    mode: ToolExceptions = tool_exceptions
    return mode


def checked_rescue(calls: Any, rescue: Any) -> bool | tuple[str, ...]:
    """The dialects to rescue calls from; a `UsageError` if one of them, or of `calls`, does not exist."""
    refuse_rescue(calls, rescue)
    names = () if isinstance(rescue, bool) else (rescue,) if isinstance(rescue, str) else tuple(rescue)
    if calls != "native" or names:
        from penstock.dialects.prompt import find_prompt
        from penstock.dialects.stage import TextCalls

        if calls != "native":
            dialects = (calls,) if isinstance(calls, str) else calls
            find_prompt(str(dialects[0]))
            TextCalls(map(str, dialects))
        TextCalls(names)
    return rescue if isinstance(rescue, bool) else names


def checked_faults(run_repaired: bool | Iterable[Fault]) -> frozenset[Fault]:
    """The faults with which a damaged call runs nevertheless."""
    if isinstance(run_repaired, bool):
        return REPAIRABLE - {"quoted"} if run_repaired else frozenset()
    names: frozenset[Any] = frozenset([run_repaired] if isinstance(run_repaired, str) else run_repaired)
    if unknown := names - REPAIRABLE:
        expected = ", ".join(map(repr, sorted(REPAIRABLE)))
        raise UsageError(f"run_repaired may contain {expected}, not {', '.join(map(repr, sorted(unknown, key=str)))}")
    return names


def _expect(name: str, kind: type, value: Any) -> Any:
    check_types(**{name: (value, kind)})
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "name": partial(_expect, "name", str),
    "limits": lambda limits: _expect("limits", Limits, limits) or Limits(),
    "prices": as_cost,
    "timeouts": partial(_expect, "timeouts", Timeouts),
    "retries": partial(_expect, "retries", Retries),
    "instructions": checked_instructions,
    "before_step": partial(checked_hooks, "before_step", "a Step"),
    "before_call": partial(checked_hooks, "before_call", "a PendingCall"),
    "after_call": partial(checked_hooks, "after_call", "a PendingCall and a ToolResult"),
    "models": checked_models,
    "start": checked_start,
    "run_repaired": checked_faults,
    "approvals": checked_approvals,
    "tool_exceptions": checked_exceptions,
    "tracing": checked_tracing,
    "output": output_type,
    "guard": as_guard,
}
"""The options that are checked on their own. Each function returns what the configuration has."""
