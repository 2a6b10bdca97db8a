"""A step that is about to be sent: what `before_step` sees, and what it may change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Unpack

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import UsageError, type_name
from penstock.events import ToolCall, ToolCallInvalid, Usage
from penstock.history.check import check
from penstock.history.read import as_messages
from penstock.messages import Message
from penstock.model.checks import check_option_names, check_option_values
from penstock.model.model import Model
from penstock.model.options import StepOptions
from penstock.run.input_checks import checked_text
from penstock.run.limits import add_usage
from penstock.run.step_changes import ModelUsage
from penstock.tools.signature import Context
from penstock.tools.tool import Tool, as_tool

REQUEST_OPTIONS = tuple(StepOptions.__annotations__)
"""The options of a request that a step has, besides its messages, tools, instructions and model."""


class Step(Struct, frozen=True, kw_only=True, eq=False):
    """The next request of a run. `before_step` returns it, a changed copy of it, or None to leave it as it is.

    - `number`: the number of the step in the run, from 1.
    - `messages`: what the model gets. `history` is the history of the run, which only `replace_history` changes.
    - `tools`: the tools of this request, at first all of the agent's. `agent_tools` has those by name.
    - `options`: `tool_choice`, `temperature` and the other options that are set.
    - `fallbacks`: the models that are asked, in order, if the request fails.
    - `usage`: what the run has used so far. `hook_usages` is what hooks have used for this step (see `add_usage`).
    - `last_tools`: the names of the tools that hooks chose for the request before.
    - `deps`, `run_id`: what the program passed to the run, and its id.
    """

    number: int
    messages: tuple[Message, ...]
    tools: tuple[Tool[..., Any], ...]
    instructions: str
    model: Model
    options: Mapping[str, Any]
    history: tuple[Message, ...]
    agent_tools: Mapping[str, Tool[..., Any]] = {}
    fallbacks: tuple[Model | str, ...] = ()
    usage: Usage = Usage()
    deps: Any = None
    run_id: str = ""
    last_tools: tuple[str, ...] = ()
    hook_usages: tuple[ModelUsage, ...] = ()
    stopped: str | None = None

    @property
    def tool_choice(self) -> str:
        """The tool choice of the request; empty leaves it to the provider."""
        choice: str = self.options.get("tool_choice") or ""
        return choice

    @property
    def hook_usage(self) -> Usage | None:
        """The usage of the hooks' own model calls for this step; None if there was none."""
        return total_usage(self.hook_usages)

    def replace(
        self,
        *,
        messages: Any = None,
        tools: Iterable[Any] | None = None,
        instructions: str | None = None,
        model: Model | str | None = None,
        fallbacks: Iterable[Model | str] | None = None,
        **options: Unpack[StepOptions],
    ) -> Step:
        """A copy with other values, for this request alone; None keeps those of the step.

        Every call in `messages` must have its result. `tools` are tools or names of tools of the agent. A model is a
        `Model`, the name of one of the agent's `models`, or a name as `provider:model`. Other keywords are options,
        which replace those of the same name: `tool_choice`, `temperature` and so on.
        """
        check_option_names(options, REQUEST_OPTIONS, Step.replace, "a step")
        check_option_values(options)
        return replace(
            self,
            messages=self.messages if messages is None else self._paired(messages),
            tools=self.tools if tools is None else _tools(tools, self.agent_tools),
            instructions=self.instructions if instructions is None else instructions,
            model=self.model if model is None else _model(model),
            fallbacks=self.fallbacks if fallbacks is None else _models(fallbacks),
            options={**self.options, **options},
        )

    def replace_history(self, messages: Any) -> Step:
        """A copy whose messages replace the history of the run, such as a summary of it.

        Every call in them must have its result. The run emits a `HistoryReplaced`.
        """
        history = _messages(messages)
        if (problems := check(list(history))) and not check(list(self.history)):
            raise UsageError(f"step.replace_history: {problems[0]}; keep each call with its result, or use repair()")
        return replace(self, messages=history, history=history)

    def _paired(self, messages: Any) -> tuple[Message, ...]:
        """The messages; a `UsageError` if calls and results were separated, as by trimming: providers refuse that."""
        read = _messages(messages)
        if (problem := _unpaired(read)) and not _unpaired(self.history):
            raise UsageError(f"step.replace: {problem}; keep each call with its result, or use repair()")
        return read

    def add_usage(self, usage: Usage | None, model: Model | str | None = None) -> Step:
        """A copy that adds the usage of the hook's own model calls to the run.

        Their cost is that of `model`, or of the step's own model.
        """
        if usage is None:
            return self
        counts: Any = usage
        if not isinstance(counts, Usage) or min(counts.input_tokens, counts.output_tokens) < 0:
            raise UsageError(f"step.add_usage takes the usage of a response, not {counts!r}")
        used_model: Model | str = self.model if model is None else _model(model)
        used = ModelUsage(used_model if isinstance(used_model, str) else used_model.name, usage)
        return replace(self, usage=add_usage(self.usage, usage), hook_usages=(*self.hook_usages, used))

    def stop(self, why: str) -> Step:
        """A copy that ends the run before this request: with the reason `stopped`, and why in a sentence."""
        return replace(self, stopped=checked_text("why", why))


def total_usage(usages: Iterable[ModelUsage]) -> Usage | None:
    """The sum of the usages; None if there are none."""
    counts = [used.usage for used in usages]
    return reduce(add_usage, counts) if counts else None


BeforeStep = Callable[[Step], Step | Awaitable[Step | None] | None]
"""A hook that is called before each request of a run."""
Instructions = str | Callable[[Context[Any]], str | Awaitable[str]]
"""Instructions for the model, or a function that returns them for each step."""


def _messages(messages: Any) -> tuple[Message, ...]:
    read = tuple(as_messages(messages))
    if not read:
        raise UsageError("a step needs messages: there is nothing to answer")
    return read


def _unpaired(messages: Iterable[Message]) -> str:
    """A sentence about a call without a result, or a result without a call; empty if there is none."""
    missing: set[str] = set()
    for message in messages:
        if message.role == "tool":
            for one in message.results:
                if one.call_id not in missing:
                    return f"the result {one.call_id!r} has no call before it"
                missing.discard(one.call_id)
        elif missing:
            break
        elif message.role == "assistant":
            missing = {part.id for part in message.parts if isinstance(part, ToolCall | ToolCallInvalid)}
    return f"the call {min(missing)!r} has no result after it" if missing else ""


def _model(model: Any) -> Any:
    if not isinstance(model, Model | str):
        raise UsageError(f"the model of a step must be a Model, or the name of one, not {type_name(model)}")
    return model


def _models(models: Any) -> tuple[Any, ...]:
    if isinstance(models, str | Model) or not isinstance(models, Iterable):
        raise UsageError(f"the fallbacks of a step must be a list of models, not {type_name(models)}")
    return tuple(map(_model, models))


def _tools(tools: Iterable[Any], known: Mapping[str, Tool[..., Any]]) -> tuple[Tool[..., Any], ...]:
    if isinstance(tools, str | bytes | Mapping):
        raise UsageError(f"the tools of a step must be a list of tools or names, not {type_name(tools)}")
    by_function = {id(tool.__wrapped__): tool for tool in known.values()}
    return tuple(_tool(item, known, by_function) for item in tools)


def _tool(tool: Any, known: Mapping[str, Tool[..., Any]], by_function: Mapping[int, Tool[..., Any]]) -> Tool[..., Any]:
    """A tool of the agent by its name or its function, or another one."""
    if not isinstance(tool, str):
        return by_function.get(id(tool)) or as_tool(tool)
    if tool not in known:
        raise UsageError(f"the agent has no tool {tool!r}: add it to the agent, or pass the tool itself")
    return known[tool]
