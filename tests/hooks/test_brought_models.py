"""Models and tools that hooks bring themselves: which of them a run that is continued elsewhere still has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Agent, Model, Retry, Step, StepStart, ToolEnd, UsageError, tool
from penstock.hooks import fallback
from penstock.log.in_memory import MemoryStore
from penstock.testing import Reply, Scripted, Status, call, say, wait
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import drive, streaming, sync_and_async

NAME = "openai-compatible:private"


def private(*steps: Any) -> Model:
    return Model(NAME, via=Scripted(list(steps)))


def stored_in_mid_answer(agent: Agent[Any], mode: str) -> bytes:
    """A run that was stored while its model answered."""
    stored = list[bytes]()

    def store(run: Any, event: Any) -> None:
        if event.type == "text" and not stored:
            stored.append(run.dump())
            run.cancel()

    drive(streaming(agent), mode, store)
    return stored[0]


def resumed(agent: Agent[Any], stored: bytes, mode: str, **settings: Any) -> Any:
    return drive(lambda prefix: getattr(agent, f"{prefix}resume")(stored, **settings), mode)[1]


def choosing(model: Model | str) -> Callable[[Step], Step]:
    return lambda step: step.replace(model=model)


def falling_back(model: Model | str) -> Callable[[Step], Step]:
    return fallback(model)


@sync_and_async
@pytest.mark.parametrize("hook", [choosing, falling_back])
def test_a_model_with_settings_of_its_own_is_not_looked_up_by_its_name(hook: Any, mode: str) -> None:
    """Its name alone would mean the address and the key of the provider."""

    def agent(model: Model, **options: Any) -> Agent[Any]:
        return Agent(Model("openai-compatible:m", via=Scripted([Status(401)])), before_step=hook(model), **options)

    half = Reply(say("One two three"), wait(60))
    stored = stored_in_mid_answer(agent(private(half)), mode)
    with pytest.raises(UsageError, match=f"the model '{NAME}' with settings of its own, which are not stored"):
        resumed(agent(private("Hello.")), stored, mode)
    known = {NAME: private("Hello again.")}
    assert resumed(agent(private(), models=known), stored, mode).output == "Hello again."


@sync_and_async
def test_a_model_without_settings_is_found_by_its_name_also_with_a_log(mode: str) -> None:
    agent = Agent(private(), before_step=choosing(Model("sim:demo")), name="a")
    store = MemoryStore()
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Hi.", log=store), mode)
    [start] = [event for event in events if isinstance(event, StepStart)]
    assert (run.finish_reason, start.changes.model, start.changes.brought_models) == ("answered", "sim:demo", None)
    other = Agent(private(), before_step=choosing(Model("sim:demo")), models={"sim:demo": private("Mine.")}, name="a")
    _, run = drive(lambda prefix: getattr(other, f"{prefix}stream")("Hi.", log=MemoryStore()), mode)
    assert "which the agent does not have" in str(run.error)  # the name means another model in this agent


@sync_and_async
@pytest.mark.parametrize("by_name", [False, True])
def test_the_agents_own_model_can_be_a_fallback(by_name: bool, mode: str) -> None:
    own = private("Here.")
    broken = Model("openai-compatible:broken", via=Scripted([Status(401)]))

    def hook(step: Step) -> Step:
        return step.replace(model="broken", fallbacks=[NAME if by_name else step.model])

    agent = Agent(own, before_step=hook, models={"broken": broken}, name="a")
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Hi.", log=MemoryStore()), mode)
    assert run.output == "Here."
    assert [event.model for event in events if isinstance(event, Retry)] == [NAME]


@tool(approval=True)
def secret(number: int) -> str:
    """Know a secret."""
    return f"secret {number}"


def bringing(*tools: Any) -> Agent[Any]:
    """An agent whose hook brings the tool that its model calls."""

    def bring(step: Step) -> Step:
        return step.replace(tools=[secret])

    script = Scripted(lambda request: "Done." if request.results else Reply(call("secret", {"number": 1})))
    return Agent(Model("openai-compatible:m", via=script), tools, before_step=bring)


@sync_and_async
def test_a_call_of_a_tool_that_a_hook_brought_is_not_lost(mode: str) -> None:
    """A person approves it; that the agent does not know the tool is for the program to hear, and not for the model."""
    _, run = drive(streaming(bringing()), mode)
    assert run.finish_reason == "paused"
    with pytest.raises(UsageError, match="needs the tool 'secret', which before_step added"):
        resumed(bringing(), run.dump(), mode)


@pytest.mark.parametrize("is_setting", [False, True])
def test_a_stored_call_of_a_tool_that_a_hook_brought_runs_if_the_tool_is_there(is_setting: bool) -> None:
    stored = drive(streaming(bringing()), "sync")[1].dump()
    with bringing().resume(stored, tools=[secret]) if is_setting else bringing(secret).resume(stored) as run:
        run.decide(run.waiting[0].call_id, True)
        ends = [event.result.text for event in run if isinstance(event, ToolEnd)]
    assert (run.output, ends) == ("Done.", ["secret 1"])


@sync_and_async
def test_a_tool_that_a_hook_brought_and_nobody_called_is_not_needed(mode: str) -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def bring(step: Step) -> Step:
        return step.replace(tools=[*step.tools, secret]) if step.number == 1 else step

    script = Scripted(lambda request: "Done." if request.results else Reply(call("pay")))
    agent = Agent(Model("openai-compatible:m", via=script), [pay], before_step=bring)
    _, run = drive(streaming(agent), mode)
    assert resumed(agent, run.dump(), mode).finish_reason == "paused"
