"""The hooks of an agent in one run: what they decide on each step, and the configuration of each request.

There is no I/O here: `decide` yields the calls of the user's functions, and a caller makes them, in sync or async code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.agent.config import AgentConfig
from penstock.agent.step import Step
from penstock.errors import HookError, UsageError, type_name
from penstock.events import Usage
from penstock.messages import Message
from penstock.model.model import Model
from penstock.run.commands import AskModel, PrepareStep
from penstock.run.step_changes import UNCHANGED, ModelUsage, StepChanges, StepDecision, splices_between
from penstock.tools.signature import Context
from penstock.tools.tool import Tool

UNFORCED_CHOICES = ("", "auto", "none")
"""The tool choices that hold for every step; one that forces a call holds for the first."""

_NUMBERED = re.compile(r" \(\d+\)$")  # ends the name of a second model with the same one

Call = Callable[[], Any]
"""A call of a user's function; what it returns is awaited if it can be, and sent back."""


class StepHooks:
    """The hooks of one run, with the models and tools that they brought and the agent does not have."""

    def __init__(self, run_id: str, deps: Any, *, has_log: bool) -> None:
        self._run_id = run_id
        self._deps = deps
        self._has_log = has_log
        self._models: dict[str, Model] = {}
        self._tools: dict[str, Tool[..., Any]] = {}
        self._usages: tuple[ModelUsage, ...] = ()  # of the hooks that have decided on the step under way

    def decide(
        self, command: PrepareStep, config: AgentConfig, usage: Usage
    ) -> Generator[tuple[str, Call], Any, StepDecision]:
        """Let the hooks decide on a step; yields each call with the name of its function, for errors."""
        instructions = config.instructions
        if callable(instructions):
            context: Context[Any] = Context(deps=self._deps, step=command.step)
            instructions = yield "instructions", partial(instructions, context)
            if not isinstance(instructions, str):
                raise HookError(f"the function instructions must return a string, not {type_name(instructions)}")
        step = first = self._step(command, config, instructions, usage)
        for hook in config.before_step:
            step = _checked((yield "before_step", partial(hook, step)), step)
            self._usages = step.hook_usages
            if step.stopped is not None:
                break
        try:
            return self._decision(first, step, config)
        except UsageError as error:
            raise HookError(f"before_step: {error}") from error

    def take_usages(self, config: AgentConfig) -> list[ModelUsage]:
        """What the hooks have used for a step, once, with the full names of the models."""
        usages, self._usages = self._usages, ()
        models = config.models
        return [replace(usage, model=models[usage.model].name) if usage.model in models else usage for usage in usages]

    def _step(self, command: PrepareStep, config: AgentConfig, instructions: str, usage: Usage) -> Step:
        return Step(
            number=command.step,
            messages=command.messages,
            history=command.messages,
            tools=tuple(config.tools.values()),
            agent_tools=config.tools,
            instructions=instructions,
            model=config.model,
            options=_options(config, command.step),
            usage=usage,
            deps=self._deps,
            run_id=self._run_id,
            last_tools=command.last_tools,
        )

    def _decision(self, first: Step, step: Step, config: AgentConfig) -> StepDecision:
        """The decision as it is logged: differences, and names."""
        history = splices_between(first.history, step.history)
        if step.stopped is not None:
            return StepDecision(StepChanges(usage=step.hook_usage), history, step.stopped)
        if history and step.history[-1].role not in ("user", "tool"):
            what = "a response" if step.history[-1].role == "assistant" else "instructions"
            raise HookError(f"before_step replaced the history by one that ends with {what}: add what to answer")
        has_instructions = step.instructions != config.instructions
        models = [] if step.model is config.model else [self._model_name(step.model, config)]
        fallbacks = [self._model_name(model, config) for model in step.fallbacks]
        tools = None if step.tools == first.tools else self._tool_names(step.tools, config)
        changes = StepChanges(
            messages=splices_between(step.history, step.messages) or None,
            tools=tools,
            instructions=step.instructions if has_instructions else None,
            model=models[0] if models else None,
            fallbacks=tuple(fallbacks) or None,
            options=_changed_options(first.options, step.options),
            usage=step.hook_usage,
            brought_models=tuple(name for name in (*models, *fallbacks) if self._is_brought(name)) or None,
            brought_tools=tuple(name for name in tools or () if name in self._tools) or None,
        )
        return StepDecision(changes, history)

    def _tool_names(self, tools: Iterable[Tool[..., Any]], config: AgentConfig) -> tuple[str, ...]:
        known = {id(tool): name for name, tool in config.tools.items()}
        return tuple(known[id(tool)] if id(tool) in known else self._bring(tool, config) for tool in tools)

    def _bring(self, tool: Tool[..., Any], config: AgentConfig) -> str:
        """Keep a tool that the agent does not have."""
        if tool.name in config.tools:
            raise HookError(
                f"before_step chose a tool with the name {tool.name!r}, but the agent has another tool of that name: "
                "rename one of them"
            )
        if self._has_log:
            raise HookError(
                f"before_step chose the tool {tool.name!r}, which the agent does not have; another process could not "
                "continue the run: add it to the tools of the agent"
            )
        self._tools[tool.name] = tool
        return tool.name

    def _model_name(self, model: Model | str, config: AgentConfig) -> str:
        if isinstance(model, str):
            self._find_model(model, config)
            return model
        for name, known in config.models.items():
            if known is model:
                return name
        if model is config.model or (model.is_plain and self._find_model(model.name, config).is_plain):
            return model.name
        if self._has_log:
            raise HookError(
                f"before_step chose {model!r}, which the agent does not have; another process could not continue the "
                "run: add it to the agent, as in Agent(..., models={'small': model})"
            )
        names = (model.name, *(f"{model.name} ({number})" for number in range(2, len(self._models) + 3)))
        free = (name for name in names if name not in config.models and self._models.get(name, model) is model)
        self._models[name := next(free)] = model
        return name

    def _is_brought(self, name: str) -> bool:
        """Whether a hook brought the model of this name, with settings that its name does not say."""
        return name in self._models and not self._models[name].is_plain

    def _find_model(self, name: str, config: AgentConfig) -> Model:
        model = config.models.get(name) or self._models.get(name) or named_model(name, config)
        if model is config.model:
            return model
        if name not in config.models:
            self._models[name] = model
        return model.with_timeouts(*config.patience)

    def config_for(self, request: AskModel, step: int, config: AgentConfig) -> AgentConfig:
        """The configuration of a request: that of the agent, with what the hooks have changed."""
        changes, options = request.changes, _options(config, step)
        expect_model(request.model, changes, {**config.models, **self._models})
        is_own = changes == UNCHANGED and not request.model and not callable(config.instructions)
        if is_own and options.keys() >= config.options.keys():
            return config
        instructions = "" if callable(config.instructions) else config.instructions
        return replace(
            config,
            tools=config.tools if changes.tools is None else self._chosen_tools(changes.tools, config),
            model=self._find_model(request.model, config) if request.model else config.model,
            instructions=instructions if changes.instructions is None else changes.instructions,
            options={**options, **(changes.options or {})},
        )

    def _chosen_tools(self, names: tuple[str, ...], config: AgentConfig) -> Mapping[str, Tool[..., Any]]:
        """The tools with these names; one that was removed since the hooks decided is left out."""
        known = {**config.tools, **self._tools}
        return {name: known[name] for name in names if name in known}


def named_model(name: str, config: AgentConfig) -> Model:
    """The model with this name: one of the agent, or a `provider:model`; a `UsageError` if it is neither."""
    if (model := config.models.get(name)) is not None:
        return model
    if name == config.model.name:
        return config.model
    if ":" not in name or _NUMBERED.search(name):
        raise UsageError(f"the agent has no model {name!r}: add it, as in Agent(..., models={{{name!r}: model}})")
    return Model(name)


def with_model(config: AgentConfig, name: str) -> AgentConfig:
    """The configuration with the model of this name; without a name, as it is."""
    return replace(config, model=named_model(name, config).with_timeouts(*config.patience)) if name else config


def expect_model(name: str, changes: StepChanges, known: Mapping[str, Model]) -> None:
    """Raise a `UsageError` if the model of a stored step had settings of its own, and is not known here.

    Its name alone would mean the address and the key of the provider: the conversation would go to somebody else.
    """
    if name in (changes.brought_models or ()) and name not in known:
        raise UsageError(
            f"before_step chose the model {name!r} with settings of its own, which are not stored with a run: add it "
            f"to the agent, as in Agent(..., models={{{name!r}: model}})"
        )


def _options(config: AgentConfig, step: int) -> dict[str, Any]:
    """The options of a step before the hooks: a forced tool choice is for the first step.

    A model that obeys would call the tool until a limit ends the run.
    """
    options = dict(config.options)
    if step > 1 and options.get("tool_choice", "") not in UNFORCED_CHOICES:
        del options["tool_choice"]
    return options


def _changed_options(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any] | None:
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    try:
        msgspec.json.encode(changed)
    except (TypeError, ValueError, RecursionError) as error:
        raise HookError(f"before_step set options that cannot be written as JSON: {error}") from None
    return changed or None


def _checked(value: Any, step: Step) -> Step:
    """The step that a hook returned."""
    if value is None:
        return step
    if not isinstance(value, Step):
        expected = "the step, a changed copy of it (step.replace(…)), or None"
        raise HookError(f"before_step must return {expected}, not {type_name(value)}")
    if (value.number, value.run_id) != (step.number, step.run_id):
        raise HookError(
            f"before_step returned step {value.number} of another request: return the step that it was called with"
        )
    for name, kind in _KINDS.items():  # what a step has may be anything, whatever its types say
        if not isinstance(field := getattr(value, name), kind):
            raise HookError(f"before_step returned a step whose `{name}` is {type_name(field)}: use step.replace(…)")
    for name, kind in _ITEMS.items():
        if not _are_all(getattr(value, name), kind):
            raise HookError(
                f"before_step returned a step with an item of another type in its `{name}`: use step.replace(…)"
            )
    return value


def _are_all(items: tuple[Any, ...], kind: Any) -> bool:
    """Whether all items are of a kind; that of a whole history is a set of one type, without a loop of Python."""
    return {*map(type, items)} <= {kind} or all(isinstance(item, kind) for item in items)


_KINDS: dict[str, Any] = {
    "messages": tuple, "history": tuple, "tools": tuple, "fallbacks": tuple, "instructions": str, "model": Model | str,
    "options": Mapping, "hook_usages": tuple, "stopped": str | None,
}  # fmt: skip
_ITEMS: dict[str, Any] = {
    "messages": Message, "history": Message, "tools": Tool, "fallbacks": Model | str,
    "hook_usages": ModelUsage,
}  # fmt: skip
