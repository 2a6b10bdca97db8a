"""A run that did not end with an answer has no output: `output` raises, and `text` is what was written."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Agent,
    Limits,
    Model,
    OutputError,
    ProviderError,
    Retries,
    RunResult,
    Step,
    Text,
    ToolStart,
    tool,
)
from penstock.log import memory
from penstock.testing import Reply, Scripted, Status, call, drop, fail, refuse, say
from tests.scripted_runs import drive, run_of, streaming, sync_and_async

Make = Callable[[], Agent[Any, Any]]


@tool
def look() -> str:
    """Look."""
    return "seen"


@tool(approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def agent_of(*script: Any, **options: Any) -> Agent[Any, Any]:
    never = Retries(attempts=0)
    return Agent(Model("openai:gpt-5", via=Scripted(list(script)), retries=never), [look, pay], name="a", **options)


ENDINGS: dict[str, Make] = {
    "length": lambda: agent_of(Reply(say("Half an ans"), finish="length")),
    "refused": lambda: agent_of(Reply(say("Half an ans"), refuse("No."))),
    "cut": lambda: agent_of(Reply(say("Half an ans"), drop())),
    "error": lambda: agent_of(Reply(say("Half an ans"), fail("overloaded", "Too much."))),
    "limit": lambda: agent_of(Reply(say("Half an ans"), call("look")), limits=Limits(steps=1)),
    "paused": lambda: agent_of(Reply(say("Half an ans"), call("pay"))),
}


def no_output(owner: Any) -> OutputError:
    with pytest.raises(OutputError) as caught:
        owner.output  # noqa: B018
    return caught.value


@sync_and_async
@pytest.mark.parametrize("reason", ENDINGS)
def test_a_run_without_an_answer_has_no_output(reason: str, mode: str) -> None:
    result: RunResult[Any] = run_of(ENDINGS[reason](), mode, "Go.")
    _, run = drive(streaming(ENDINGS[reason]()), mode)
    for owner in (result, run):
        error = no_output(owner)
        assert (error.reason, error.text, owner.text) == (reason, "Half an ans", "Half an ans")
        assert error.why == owner.why
        assert error.why
        assert str(error) == f"the run has no output ({reason}): {error.why}"
        assert error.result is not None
        assert error.result.messages[1].text == "Half an ans"
        assert (error.error, error.__cause__) == (owner.error, owner.error)
    assert no_output(result).result is result
    assert isinstance(result.error, ProviderError) == (reason == "error")


@sync_and_async
def test_a_request_that_fails_after_the_first_is_the_cause(mode: str) -> None:
    result = run_of(agent_of(Reply(say("First."), call("look")), Status(400, "context too long")), mode, "Go.")
    error = no_output(result)
    assert (error.reason, error.text) == ("error", "")  # the second response has no text
    assert "context too long" in str(error)
    assert error.error is error.__cause__ is result.error


@pytest.mark.parametrize("log", [None, memory])
def test_a_cancelled_run_has_text_and_no_output(log: Any) -> None:
    with agent_of(Reply(say("One "), say("two "), say("three"))).stream("Go.", log=log and log()) as run:
        for event in run:
            if isinstance(event, Text):
                assert no_output(run).reason == "not finished"
                assert run.text.startswith("One")
                run.cancel("enough")
    error = no_output(run)
    assert (error.reason, error.why) == ("cancelled", "enough")
    assert error.text == run.text == error.result.text
    assert run.text.startswith("One")


def test_output_before_the_end_says_what_to_do() -> None:
    run = agent_of("Hello.").stream("Go.")
    error = no_output(run)
    assert (error.reason, error.text, error.result, error.error) == ("not finished", "", None, None)
    assert "not finished: read its events to the end" in str(error)
    with run:
        list(run)
    assert (run.output, run.text) == ("Hello.", "Hello.")


def test_text_is_that_of_the_current_response() -> None:
    texts: dict[str, str] = {}
    with agent_of(Reply(say("Let me see."), call("look")), Reply(say("Sun"), say("ny."))).stream("Go.") as run:
        for event in run:
            if isinstance(event, ToolStart):
                texts["tool"] = run.text
            elif isinstance(event, Text):
                texts[event.text] = run.text
    assert texts["tool"] == "Let me see."
    assert texts["Sun"] == "Sun"
    assert run.text == "Sunny."


@sync_and_async
def test_a_run_that_its_program_stopped_has_output(mode: str) -> None:
    def enough(step: Step) -> Any:
        return step.stop("enough") if step.number == 2 else None

    result = run_of(agent_of(Reply(say("So far."), call("look")), before_step=enough), mode, "Go.")
    assert (result.reason, result.output, result.text) == ("stopped", "So far.", "So far.")


def test_a_stopped_run_with_a_type_has_output_only_if_it_is_valid() -> None:
    def enough(step: Step) -> Any:
        return step.stop("enough") if step.number == 2 else None

    early = Reply(say("[1, 2]"), call("look"))
    error = no_output(agent_of(early, before_step=enough, output=dict[str, int]).run("Go."))
    assert error.reason == "stopped"
    assert str(error).startswith("the run has no output (stopped): enough: ")
    whole = Reply(say('{"a": 1}'), call("look"))
    assert agent_of(whole, before_step=enough, output={"type": "object"}).run("Go.").output == {"a": 1}


# -- pickling ----------------------------------------------------------------------------------------------------------


class AwkwardError(Exception):
    """An exception that can be pickled, but not read again."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


@pytest.mark.parametrize("reason", ENDINGS)
def test_the_error_can_be_pickled(reason: str) -> None:
    result = ENDINGS[reason]().run("Go.")
    error = no_output(result)
    same = pickle.loads(pickle.dumps(error))
    assert (str(same), same.problem, same.text) == (str(error), error.problem, error.text)
    assert (same.reason, same.why, type(same.error)) == (error.reason, error.why, type(error.error))
    assert (same.result.messages, same.result.usage, same.result.state) == (
        result.messages, result.usage, result.state,
    )  # fmt: skip
    assert no_output(pickle.loads(pickle.dumps(result))).reason == reason


def test_an_exception_that_cannot_be_pickled_is_pickled_as_its_message() -> None:
    result = RunResult(OutputError("no"), [], ENDINGS["cut"]().run("Go.").usage, "error", error=AwkwardError("a", "b"))
    same = pickle.loads(pickle.dumps(no_output(result)))
    assert repr(same.error) == "RuntimeError('AwkwardError: a b')"


def test_a_script_that_is_too_short_is_named_by_the_failure() -> None:
    short = agent_of(Reply(call("look"))).run("Go.")
    with pytest.raises(OutputError, match=r"the script is too short: it has 1 reply, and this is request 2"):
        assert short.output == "Sunny."
    with pytest.raises(ProviderError, match=r"the script is too short: it has no replies, and this is request 1"):
        agent_of().run("Go.")
