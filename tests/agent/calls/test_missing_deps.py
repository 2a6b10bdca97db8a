"""A tool that takes a `Context[X]` needs the `deps` of a run: without them, the run does not begin."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Any, Optional

import pytest
from msgspec import Struct

import penstock.serve
from penstock import Agent, AgentStreamer, Context, Model, Runs, Tool, UsageError, as_tool, tool
from penstock.log import memory
from penstock.testing import Reply, Scripted, call
from tests.scripted_runs import run_of, sync_and_async


class Deps(Struct):
    user: str


@tool
def whoami(context: Context[Deps]) -> str:
    """Who the user is."""
    return context.deps.user


def needs(context: Annotated[Context[Deps], "x"] | None) -> str:
    return ""


def optional(context: Context[Deps | None]) -> str:
    return ""


def old_optional(context: Context[Optional[Deps]]) -> str:  # noqa: UP045
    return ""


def nothing(context: Context[None]) -> str:
    return ""


def anything(context: Context[Any]) -> str:
    return ""


def any_object(context: Context[object]) -> str:
    return ""


def bare(context: Context) -> str:
    return ""


def annotated(context: Context[Annotated[Deps | None, "x"]]) -> str:
    return ""


def agent_of(tools: Any, *script: Any) -> tuple[Agent, Scripted]:
    scripted = Scripted(list(script) or [Reply(call("whoami")), "Ada."])
    return Agent(Model("openai:gpt-5", via=scripted), tools, name="clerk"), scripted


@sync_and_async
def test_a_run_without_deps_does_not_begin(mode: str) -> None:
    agent, script = agent_of([whoami])
    message = r"the tool 'whoami' takes a Context\[Deps\], and the run has no deps: pass deps=…"
    with pytest.raises(UsageError, match=message):
        run_of(agent, mode, "Go.")
    with pytest.raises(UsageError, match=message):
        agent.stream("Go.")
    with pytest.raises(UsageError, match=message):
        agent.astream("Go.", log=memory())
    assert script.requests == []
    assert agent.run("Go.", deps=Deps("Ada")).output == "Ada."


def test_a_stored_run_needs_them_again() -> None:
    @tool(approval=True)
    def pay(context: Context[Deps]) -> str:
        """Pay."""
        return context.deps.user

    agent, _ = agent_of([pay], Reply(call("pay")), "Paid.")
    paused = agent.run("Go.", deps=Deps("Ada"))
    with pytest.raises(UsageError, match="no deps"):
        agent.resume(paused.state)
    with agent.resume(paused.state, deps=Deps("Ada")) as run:
        run.decide(run.waiting[0].call_id, True)
        list(run)
    assert run.output == "Paid."


@pytest.mark.parametrize("function", [optional, old_optional, nothing, anything, any_object, bare, annotated])
def test_deps_that_may_be_none_are_not_needed(function: Callable[..., Any]) -> None:
    agent, _ = agent_of([function], "Hello.")
    assert agent.run("Go.").output == "Hello."


@pytest.mark.parametrize("function", [needs, as_tool({"name": "declared"}, needs)])
def test_other_ways_to_write_the_annotation(function: Any) -> None:
    agent, _ = agent_of([function], "Hello.")
    with pytest.raises(UsageError, match=r"takes a Context\[Deps\]"):
        agent.run("Go.")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements are new in Python 3.12")
def test_aliases_are_resolved() -> None:
    names: dict[str, Any] = {"Deps": Deps, "Context": Context}
    exec(
        "type Perhaps = Deps | None\n"
        "def f(context: Context[Perhaps]) -> str: return ''\n"
        "type Surely = Deps\n"
        "def g(context: Context[Surely]) -> str: return ''",
        names,
    )
    assert agent_of([names["f"]], "Hello.")[0].run("Go.").output == "Hello."
    with pytest.raises(UsageError, match="no deps"):
        agent_of([names["g"]], "Hello.")[0].run("Go.")


def test_agents_that_are_tools_need_the_deps_of_their_tools() -> None:
    inner, _ = agent_of([whoami])
    outer, _ = agent_of([inner.as_tool("ask", "Ask.")], "Hello.")
    with pytest.raises(UsageError, match="the tool 'whoami' takes"):
        outer.run("Go.")
    assert outer.run("Go.", deps=Deps("Ada")).output == "Hello."

    def prompt(context: Context[Deps], task: str) -> str:
        """Ask."""
        return task + context.deps.user

    plain, _ = agent_of([], "Hello.")
    with pytest.raises(UsageError, match="the tool 'ask' takes"):
        agent_of([plain.as_tool("ask", prompt=prompt)], "Hello.")[0].run("Go.")


def test_a_bound_method_needs_them_too() -> None:
    class Shop:
        @tool
        def price(self, context: Context[Deps]) -> str:
            """The price."""
            return context.deps.user

    price: Tool[..., Any] = Shop().price
    with pytest.raises(UsageError, match="the tool 'price' takes"):
        agent_of([price], "Hello.")[0].run("Go.")


def test_process_stream_needs_them_unless_an_executor_runs_the_calls() -> None:
    reader = AgentStreamer(tools=[whoami])
    with pytest.raises(UsageError, match="no deps"):
        asyncio.run(reader.process_stream(["Hello."]))
    assert asyncio.run(reader.process_stream(["Hello."], lambda name, arguments: ""))[0].text == "Hello."


# -- runs that other processes drive -----------------------------------------------------------------------------------


def test_a_server_without_deps_does_not_begin() -> None:
    agent, _ = agent_of([whoami])
    with pytest.raises(UsageError, match="no deps"):
        penstock.serve.app(agent)
    penstock.serve.app(agent, deps=lambda meta: Deps("Ada"))


def test_a_worker_without_deps_does_not_begin_but_can_start_runs() -> None:
    agent, script = agent_of([whoami])
    runs = Runs(memory(), {"clerk": agent})
    run_id = runs.start("clerk", "Go.")
    for work in (lambda: runs.drive(run_id), runs.work):
        with pytest.raises(UsageError, match="no deps"):
            work()
    assert script.requests == []


def test_a_run_for_which_the_function_returns_none_fails_before_its_first_request() -> None:
    store = memory()
    agent, script = agent_of([whoami])
    runs = Runs(store, {"clerk": agent}, deps=lambda meta: Deps(meta["user"]) if meta else None)
    run_id = runs.start("clerk", "Go.")
    runs.drive(run_id)
    with agent.stream("Go.", deps=Deps("Ada"), log=store, run_id=run_id) as run:
        list(run)
    assert run.finish_reason == "error"
    assert "the run has no deps" in run.why
    assert script.requests == []
    other = runs.start("clerk", "Go.", meta={"user": "Ada"})
    runs.drive(other)
    assert len(script.requests) == 2
