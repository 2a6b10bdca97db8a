"""The keywords of a run: where it is kept, and settings that differ from those of its agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Required, TypedDict

from msgspec.structs import replace

from penstock.agent.config import AgentConfig, checked_model, checked_settings, expect_tools_of_hooks
from penstock.agent.pending_call import AfterCall, BeforeCall
from penstock.agent.step import REQUEST_OPTIONS, BeforeStep, Instructions
from penstock.errors import UsageError
from penstock.guard.guard import CheckText, Guard
from penstock.messages import Message
from penstock.model.checks import check_option_names, check_option_values
from penstock.model.known_models import KnownModel
from penstock.model.model import Model
from penstock.model.options import StepOptions
from penstock.run.limits import Limits

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.log.follower import LoggedStart
    from penstock.log.store import Store

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")  # which has no default before Python 3.13


class LogOptions(TypedDict, total=False):
    """Where a run is kept. `log` is a store (`penstock.log.open`); the others need it.

    The same `run_id` with the same agent, messages and `meta` is the run that exists: it is followed, and continued if
    nobody owns it. `thread` and `tenant` are for lists of runs. `meta` is JSON, such as the id of a user.
    """

    log: Store | None
    run_id: str | None
    thread: str
    tenant: str
    meta: Any


LOG_OPTIONS = tuple(LogOptions.__annotations__)


class SettingsOfRun(StepOptions, total=False):
    """Settings that replace those of the agent for one run: in `stream`, `run` and `resume`, and their async twins.

    `Agent` explains them.
    """

    model: Model | KnownModel | str
    tools: Iterable[Any]
    instructions: Instructions
    before_step: BeforeStep | Sequence[BeforeStep] | None
    before_call: BeforeCall | Sequence[BeforeCall] | None
    after_call: AfterCall | Sequence[AfterCall] | None
    limits: Limits | None
    guard: Guard | CheckText | None


class RunSettings(SettingsOfRun, Generic[Deps], total=False):
    """The settings of a run, and `deps`, which tools get as `Context.deps`."""

    deps: Deps


class RunOptions(LogOptions, RunSettings[Deps], total=False):
    """The keywords of `stream`, `run` and their async twins: settings of the run, and where it is kept.

    Settings cannot be combined with `log`: another process continues the run with the agent's own.
    """


class NeededRunSettings(SettingsOfRun, Generic[Deps], total=False):
    """The settings of a run whose agent names the type of its `deps`."""

    deps: Required[Deps]


class NeededRunOptions(LogOptions, NeededRunSettings[Deps], total=False):
    """The keywords of a run whose agent names the type of its `deps`."""


_SETTINGS = list(SettingsOfRun.__annotations__)


def split_options(options: RunOptions[Any], agent: Callable[..., Any]) -> tuple[Any, LogOptions, dict[str, Any]]:
    """The `deps`, where the run is kept, and the settings that differ; an `UnknownOptionError` for anything else.

    `agent` is the class with the other options, which are suggested for it.
    """
    settings: dict[str, Any] = {**options}
    log: Any = {name: settings.pop(name) for name in LOG_OPTIONS if name in settings}
    deps, settings = split_settings(settings, agent, ("prompt", "messages", *LOG_OPTIONS))
    return deps, log, settings


def split_settings(
    options: Mapping[str, Any], agent: Callable[..., Any], others: Sequence[str]
) -> tuple[Any, dict[str, Any]]:
    """The `deps`, and the settings that differ; an `UnknownOptionError` for anything else.

    `agent` is the class with the other options, and `others` the other parameters, which are suggested for it.
    """
    settings = {**options}
    deps = settings.pop("deps", None)
    check_option_names(settings, _SETTINGS, agent, "a run", ("deps", "output", *others))
    return deps, settings


def with_settings(config: AgentConfig, settings: Mapping[str, Any], output: Any) -> AgentConfig:
    """The configuration of a run with these settings instead of the agent's."""
    if not settings and output is None:
        return config
    options = {name: value for name, value in settings.items() if name in REQUEST_OPTIONS}
    check_option_values(options)
    own = {name: value for name, value in settings.items() if name not in options}
    if own.get("limits", config.limits) is None:
        del own["limits"]
    if output is not None:
        own["output"] = output
    changes = checked_settings(own)
    if "model" in own:
        changes["model"] = checked_model(own["model"]).with_timeouts(*config.patience)
    changed = replace(config, **changes, options={**config.options, **options})
    expect_tools_of_hooks(changed)
    return changed


def refuse_settings(settings: Mapping[str, Any], output: Any) -> None:
    """Raise a `UsageError` for settings of a run with a log."""
    names = [*settings, *([] if output is None else ["output"])]
    if names:
        raise UsageError(
            f"{names[0]}= cannot be combined with log=: another process continues the run with the agent of its name, "
            f"which would not have it; set {names[0]} on the agent, or decide in before_step"
        )


def logged_start(name: str, messages: Sequence[Message], options: LogOptions) -> LoggedStart | None:
    """The start of a run with a log; None if there is no log."""
    store = options.get("log")
    if store is None:
        for option in ("run_id", "thread", "tenant", "meta"):
            if options.get(option):
                raise UsageError(f"{option}= needs a log: pass log= as well")
        return None
    from penstock.log.follower import LoggedStart
    from penstock.log.start import expect_store, new_start

    expect_store(store)
    if not name:
        raise UsageError("a run with a log needs the name of its agent: add one, as in Agent(..., name='support')")
    row, start = new_start(
        name, messages, options.get("run_id"), options.get("thread", ""), options.get("tenant", ""), options.get("meta")
    )
    return LoggedStart(store, row, start)
