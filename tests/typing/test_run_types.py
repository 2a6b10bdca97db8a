"""The types of runs: outputs that are unions, `deps`, partial outputs, names of models and scripts.

mypy and pyright check this file (`make check`), and it runs as a test. A line with `type: ignore` must be an error for
both: an ignore that is not needed is an error itself.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, assert_type

import pytest
from pydantic import BaseModel

import penstock
from penstock import (
    Agent,
    AgentRun,
    AsyncAgentRun,
    Context,
    JSONValue,
    KnownModel,
    Model,
    OutputError,
    RunResult,
    Stream,
    Turn,
    UsageError,
)
from penstock.testing import Loopback, Reply, Script, Scripted, call

SCRIPT: Script = [Reply(call("weather", {"city": "Rome"})), "Sunny."]
ROME = '{"value": {"name": "Rome"}}'


class City(BaseModel):
    name: str
    people: int = 0


class Deps:
    user = "Ada"


def scripted(*script: Reply | str) -> Model:
    return Model("openai:gpt-5", via=Scripted(list(script)))


@penstock.tool(read_only=True)
def weather(city: str) -> str:
    """The weather of a city."""
    return city


@penstock.tool
def whoami(context: Context[Deps]) -> str:
    """Who the user is."""
    return context.deps.user


# -- output ------------------------------------------------------------------------------------------------------------


def test_an_output_that_is_a_union_has_the_type_of_the_union() -> None:
    agent = Agent(scripted(ROME, "I do not know.", ROME), output=City | str)
    assert_type(agent, Agent[Any, City | str])
    with agent.stream("Go.") as run:
        assert_type(run, AgentRun[City | str])
        list(run)
    assert_type(run.output, City | str)
    result = agent.run("Go.")
    assert_type(result, RunResult[City | str])
    assert (run.output, result.output) == (City(name="Rome"), "I do not know.")
    output = agent.run("Go.").output
    if isinstance(output, City):
        assert_type(output, City)
        assert output.name == "Rome"
    else:
        assert_type(output, str)


def test_other_outputs_have_their_types() -> None:
    model = scripted()
    assert_type(Agent(model), Agent[Any, str])
    assert_type(Agent(model, output=None), Agent[Any, str])
    assert_type(Agent(model, output=City), Agent[Any, City])
    assert_type(Agent(model, output=list[City]), Agent[Any, list[City]])
    assert_type(Agent(model, output=City | None), Agent[Any, City | None])
    assert_type(Agent(model, output=list[City] | int), Agent[Any, list[City] | int])
    assert_type(Agent(model, output={"type": "object"}), Agent[Any, Any])
    assert_type(Agent[Deps, City](model, output=City), Agent[Deps, City])


def test_an_output_of_one_run_has_its_type() -> None:
    agent = Agent(scripted(ROME, '{"name": "Rome"}', "{}", ROME))
    assert_type(agent.run("Go.", output=City | str), RunResult[City | str])
    assert_type(agent.run("Go.", output=City), RunResult[City])
    assert_type(agent.run("Go.", output={"type": "object"}), RunResult[Any])
    assert_type(agent.stream("Go.", output=City | str), AgentRun[City | str])
    assert_type(agent.astream("Go.", output=City | str), AsyncAgentRun[City | str])
    pending = assert_type(agent.arun("Go.", output=City | str), Coroutine[Any, Any, RunResult[City | str]])
    asyncio.run(pending)


def test_an_output_of_a_model_has_its_type() -> None:
    model = scripted(ROME, "Hello.", "{}")
    assert_type(model.complete("Go.", output=City | str), Turn[City | str])
    assert_type(model.complete("Go."), Turn[str])
    assert_type(model.complete("Go.", output={"type": "object"}), Turn[Any])
    assert_type(model.stream("Go.", output=City | str), Stream[City | str])


def test_the_error_of_a_run_without_output_has_its_fields() -> None:
    result = Agent(scripted(Reply("Half", finish="length"))).run("Go.")
    assert_type(result.text, str)
    assert_type(result.tool_failures, tuple[Exception, ...])
    with pytest.raises(OutputError) as caught:
        result.output  # noqa: B018
    assert_type(caught.value.reason, str)
    assert_type(caught.value.text, str)
    assert_type(caught.value.error, Exception | None)


# -- partial outputs ---------------------------------------------------------------------------------------------------


def test_partial_outputs_have_types() -> None:
    with Agent(scripted('{"name": "Rome", "people": 3}'), output=City).stream("Go.") as run:
        for _ in run:
            assert_type(run.partial, JSONValue | None)
            assert_type(run.partial_output, City | None)
    assert run.partial_output == City(name="Rome", people=3)


# -- deps --------------------------------------------------------------------------------------------------------------


def test_an_agent_that_names_its_deps_needs_them() -> None:
    agent = Agent[Deps](scripted("Hi.", "Hi."), [whoami])
    assert_type(agent, Agent[Deps, str])
    assert_type(agent.run("Go.", deps=Deps()), RunResult[str])
    with pytest.raises(UsageError):
        agent.run("Go.")  # type: ignore[call-overload]
    with pytest.raises(UsageError):
        agent.stream("Go.")  # type: ignore[call-overload]
    with pytest.raises(UsageError):
        agent.astream("Go.")  # type: ignore[call-overload]
    with pytest.raises(UsageError):
        agent.run("Go.", deps=None)  # type: ignore[call-overload]
    agent.run("Go.", deps="Ada")  # type: ignore[call-overload]


def test_an_agent_without_deps_needs_none() -> None:
    plain: Agent[None] = Agent(scripted("Hi."), [weather])
    assert_type(plain.run("Go."), RunResult[str])
    any_agent = Agent(scripted("Hi.", "Hi."), [weather])
    assert_type(any_agent.run("Go."), RunResult[str])
    assert_type(any_agent.run("Go.", deps=3), RunResult[str])


# -- names and scripts -------------------------------------------------------------------------------------------------


def test_names_of_models_are_literals_and_any_other_name_is_accepted() -> None:
    known: KnownModel = "openai:gpt-5"
    unknown: KnownModel = "openai:my-own"  # type: ignore[assignment]
    assert [Model(name).name for name in (known, unknown, "ollama:gemma3")] == [known, unknown, "ollama:gemma3"]
    assert_type(Agent(known), Agent[Any, str])
    assert_type(Agent("sim:fast").with_model("ollama:gemma3"), Agent[Any, str])


def test_a_script_in_a_variable_has_a_type() -> None:
    wrong: Script = [3]  # type: ignore[list-item]
    assert len(SCRIPT) == len(wrong) + 1
    agent = Agent(Model("openai:gpt-5", via=Scripted(SCRIPT)), [weather])
    assert agent.run("Go.").output == "Sunny."
    with Loopback(SCRIPT) as server:
        assert_type(server.url, str)
