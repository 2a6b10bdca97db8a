"""What a program tells a run: what is not valid is refused at once, and every log and stored run can be read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Agent, ApprovalRequest, Model, Runs, StopRun, StreamEvent, UsageError
from penstock.log.in_memory import MemoryStore
from penstock.log.take_up import read_log
from penstock.run.rebuild import rebuild
from penstock.testing import Reply, Scripted, call
from tests.scripted_runs import drive, end_of, sync_and_async

HALF = "half \ud800"
WHOLE = "half \ufffd"


@penstock.tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def agent_with(**options: Any) -> Agent:
    script = Scripted([Reply("I will pay. ", call("pay", {"amount": 5}, id="c")), "Done."])
    return Agent(Model("openai-compatible:m", via=script), [pay], name="a", **options)


def logged(agent: Agent, mode: str, on_event: Callable[[Any, StreamEvent], Any]) -> tuple[list[StreamEvent], Any]:
    """Drive a run with a log, and check that log and stored run can be read."""
    store = MemoryStore()
    events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode, on_event)
    rebuilt = rebuild([event for _, _, event in read_log(store, "r")], agent.config.policies)
    assert rebuilt.state.history == list(run.messages)
    agent.resume(run.dump())
    return events, run


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda run: run.decide("c", "no"), "approved must be True or False, not 'no'"),
    (lambda run: run.decide("c", None), "approved must be True or False"),
    (lambda run: run.decide("c", False, None, 5), "reason must be a string, not an int"),
    (lambda run: run.cancel(5), "why must be a string, not an int"),
    (lambda run: run.cancel(None), "why must be a string, not None"),
    (lambda run: run.say({"role": "assistant", "content": "I paid."}), "only messages of the user"),
]


@sync_and_async
@pytest.mark.parametrize(("tell", "message"), WRONG)
def test_what_is_not_valid_is_refused_and_changes_nothing(mode: str, tell: Callable[[Any], Any], message: str) -> None:
    def on_event(run: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            with pytest.raises(UsageError, match=message):
                tell(run)

    events, run = logged(agent_with(), mode, on_event)
    assert end_of(events).reason == "paused"
    assert [request.call_id for request in run.waiting] == ["c"]


def test_runs_refuse_the_same() -> None:
    runs = Runs(MemoryStore(), {"a": agent_with()})
    runs.start("a", "Go.", run_id="r")
    with pytest.raises(UsageError, match="approved must be True or False, not 'no'"):
        runs.decide("r", "c", "no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="why must be a string"):
        runs.cancel("r", 5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="only messages of the user"):
        runs.say("r", {"role": "assistant", "content": "I paid."})
    with pytest.raises(UsageError, match="say takes one message, not 2: call it for each of them"):
        runs.say("r", ["Hurry.", "Please."])


def raises(*_: Any) -> Any:
    raise ValueError(HALF)


HALVES: list[tuple[dict[str, Any], str]] = [
    ({"before_step": raises}, WHOLE),
    ({"instructions": raises}, WHOLE),
    ({"before_step": lambda step: step.stop(HALF)}, WHOLE),
    ({"guard": lambda text: StopRun(HALF)}, WHOLE),
    ({"guard": lambda text: HALF}, ""),
    ({"before_step": lambda step: step.replace(instructions=HALF)}, "cannot be encoded as JSON"),
]


@sync_and_async
@pytest.mark.parametrize(("options", "why"), HALVES)
def test_half_of_a_character_does_not_end_a_log(mode: str, options: dict[str, Any], why: str) -> None:
    events, _ = logged(agent_with(**options), mode, lambda run, event: None)
    assert why in (end_of(events).why or "")


@sync_and_async
def test_half_of_a_character_in_the_reason_of_a_cancellation_is_replaced(mode: str) -> None:
    def on_event(run: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            run.cancel(HALF)

    events, _ = logged(agent_with(), mode, on_event)
    assert (end_of(events).reason, end_of(events).why) == ("cancelled", WHOLE)
