"""An exception in a tool that is not a `ToolError`: reported on standard error, kept in the result, or raised."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Agent,
    AgentStreamer,
    Done,
    Finish,
    Limits,
    Model,
    OutputError,
    ProgramError,
    ProviderError,
    ToolCall,
    ToolCallClosed,
    ToolCallStart,
    ToolEnd,
    ToolError,
    UsageError,
    tool,
)
from penstock.agent.calls.tool_exceptions import MAX_FAILURES
from penstock.agent.driver.driven_run import DrivenRun
from penstock.log import memory
from penstock.messages import user
from penstock.results import failure
from penstock.run.commands import Command, Emit
from penstock.run.machine import Run
from penstock.testing import Reply, Scripted, Status, call, say
from tests.scripted_runs import drive, run_of, streaming, sync_and_async

SECRET = "do-not-print-this"


@tool
def broken() -> str:
    """Fail."""
    raise LookupError(SECRET)


@tool
async def abroken() -> str:
    """Fail."""
    raise LookupError(SECRET)


@tool(read_only=True)
def early(n: int = 0) -> str:
    """Fail."""
    raise LookupError(SECRET)


@tool
def exits() -> str:
    """Fail."""
    raise SystemExit(SECRET)


@tool
def group() -> str:
    """Fail."""
    raise ExceptionGroup("both", [ToolError("Try later."), LookupError(SECRET)])


@tool
def declines() -> str:
    """Fail as tools should."""
    raise ToolError("Try later.")


@tool
def many() -> str:
    """Fail as tools should, twice."""
    raise ExceptionGroup("both", [ToolError("Try later."), ToolError("Or never.")])


ran: list[str] = []


@tool(parallel=False)
def write() -> str:
    """Write."""
    ran.append("write")
    return "written"


def agent_of(*script: Any, **options: Any) -> Agent:
    tools = [broken, abroken, early, exits, group, declines, many, write]
    return Agent(Model("openai:gpt-5", via=Scripted(list(script))), tools, name="clerk", **options)


@sync_and_async
@pytest.mark.parametrize("name", ["broken", "abroken", "early", "group"])
def test_the_exception_is_in_the_result(name: str, mode: str) -> None:
    result = run_of(agent_of(Reply(call(name)), "Sorry."), mode, "Go.")
    assert (result.output, result.reason, result.error) == ("Sorry.", "answered", None)
    [failure] = result.tool_failures
    assert isinstance(failure, LookupError | ExceptionGroup)
    assert failure.__traceback__ is not None
    _, run = drive(streaming(agent_of(Reply(call(name)), "Sorry.")), mode)
    assert [type(failure) for failure in run.tool_failures] == [type(failure)]
    assert [type(kept) for kept in pickle.loads(pickle.dumps(result)).tool_failures] == [type(failure)]


@sync_and_async
def test_what_a_tool_raises_for_the_model_is_not_a_failure_of_the_program(mode: str) -> None:
    calls = call("declines"), call("many"), call("write", {"no": 1})
    result = run_of(agent_of(Reply(*calls), "Sorry."), mode, "Go.")
    assert (result.output, result.tool_failures) == ("Sorry.", ())


def test_an_exit_in_a_tool_is_kept_as_an_exception() -> None:
    [failure] = agent_of(Reply(call("exits")), "Sorry.").run("Go.").tool_failures
    assert isinstance(failure.__cause__, SystemExit)


def test_failures_of_agents_that_are_tools_are_those_of_the_run() -> None:
    inner = agent_of(Reply(call("broken")), "Sorry.")
    outer = Agent(
        Model("openai:gpt-5", via=Scripted([Reply(call("clerk", {"prompt": "Go."})), "Done."])),
        [inner.as_tool(description="Ask the clerk.")],
    )
    assert [type(failure) for failure in outer.run("Go.").tool_failures] == [LookupError]


def test_a_run_keeps_the_first_failures() -> None:
    script = [Reply(*(call("early") for _ in range(MAX_FAILURES + 5))), "Sorry."]
    agent = agent_of(*script, limits=Limits(calls=None, calls_per_answer=None, repeats=None))
    assert len(agent.run("Go.").tool_failures) == MAX_FAILURES


# -- tool_exceptions="raise" -------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("name", ["broken", "abroken", "early"])
def test_an_exception_can_end_the_run(name: str, mode: str) -> None:
    ran.clear()
    script = [Reply(say("Hm."), call(name, id="c1"), call("write", id="c2")), "Never."]
    with pytest.raises(LookupError, match=SECRET):
        run_of(agent_of(*script, tool_exceptions="raise"), mode, "Go.")
    events, run = drive(streaming(agent_of(*script, tool_exceptions="raise")), mode)
    assert (run.finish_reason, type(run.error)) == ("error", LookupError)
    assert run.tool_failures == (run.error,)
    assert ran == []
    ends = {event.call_id: event.result.text for event in events if isinstance(event, ToolEnd)}
    assert SECRET in ends.get("c1", SECRET)
    with pytest.raises(OutputError) as caught:
        run.output  # noqa: B018
    assert caught.value.__cause__ is caught.value.error is run.error
    assert "LookupError" in str(caught.value)


def test_the_call_that_ended_the_run_has_its_own_result() -> None:
    with agent_of(Reply(call("broken")), tool_exceptions="raise").stream("Go.") as run:
        list(run)
    assert run.messages[-1].results[0].text == f"LookupError: {SECRET}"


@sync_and_async
def test_what_is_for_the_model_does_not_end_the_run(mode: str) -> None:
    calls = call("declines"), call("many"), call("missing"), call("write", {"no": 1})
    assert run_of(agent_of(Reply(*calls), "Sorry.", tool_exceptions="raise"), mode, "Go.").output == "Sorry."


@sync_and_async
def test_whoever_reads_the_run_again_gets_a_stand_in_for_the_exception(mode: str) -> None:
    store = memory()
    options: Any = {"log": store, "run_id": "r1"}
    with pytest.raises(LookupError):
        run_of(agent_of(Reply(call("broken")), tool_exceptions="raise"), mode, "Go.", **options)
    with pytest.raises(ProgramError) as caught:
        run_of(agent_of("Never.", tool_exceptions="raise"), mode, "Go.", **options)
    assert (caught.value.kind, str(caught.value)) == ("LookupError", f"LookupError: {SECRET}")
    kept = pickle.loads(pickle.dumps(caught.value))
    assert (type(kept), kept.kind, str(kept)) == (ProgramError, "LookupError", str(caught.value))
    with agent_of("Never.").stream("Go.", log=store, run_id="r1") as again:
        list(again)
    assert (again.finish_reason, type(again.error), again.tool_failures) == ("error", ProgramError, ())


def test_whoever_reads_a_run_with_a_failed_request_again_gets_an_error_of_the_provider() -> None:
    store = memory()
    agent = agent_of(Reply(call("write")), Status(400, "too long"))
    assert isinstance(agent.run("Go.", log=store, run_id="r1").error, ProviderError)
    assert isinstance(agent.run("Go.", log=store, run_id="r1").error, ProviderError)


# -- agents that are tools ---------------------------------------------------------------------------------------------


def outer_of(*inner_script: Any, depth: int = 1, inner: Any = "report", **options: Any) -> Agent:
    """An agent with an agent as its tool, which may have one as well."""
    agent = agent_of(*inner_script, tool_exceptions=inner)
    for _ in range(depth):
        script = Scripted([Reply(call("clerk", {"prompt": "Go."}), call("write")), "Done."])
        asked = agent.as_tool(description="Ask the clerk.", parallel=False)
        agent = Agent(Model("openai:gpt-5", via=script), [asked, write], name="clerk", **options)
    return agent


@sync_and_async
@pytest.mark.parametrize("depth", [1, 2])
def test_it_also_holds_for_the_agents_inside(depth: int, mode: str) -> None:
    ran.clear()
    with pytest.raises(LookupError, match=SECRET):
        run_of(outer_of(Reply(call("broken")), "Never.", depth=depth, tool_exceptions="raise"), mode, "Go.")
    agent = outer_of(Reply(call("broken")), "Never.", depth=depth, tool_exceptions="raise")
    events, run = drive(streaming(agent), mode)
    assert (run.finish_reason, type(run.error), ran) == ("error", LookupError, [])
    assert run.tool_failures == (run.error,)
    assert sum(isinstance(event, Done) for event in events) == 1


@sync_and_async
def test_an_agent_inside_may_end_alone(mode: str) -> None:
    """Its own setting ends its own run; the outer model reads why, as of any agent that failed."""
    result = run_of(outer_of(Reply(call("broken")), inner="raise"), mode, "Go.")
    assert result.output == "Done."
    assert [type(failure) for failure in result.tool_failures] == [LookupError]


# -- early reads that are discarded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["report", "raise"])
@pytest.mark.parametrize("end", ["changed", "cut", "confirmed"])
def test_the_exception_of_a_read_that_is_discarded_counts_for_nothing(end: str, mode: Any) -> None:
    """A read may start when its arguments close, before its call is confirmed, and fail before that."""
    config = agent_of(tool_exceptions=mode).config
    run = Run([user("Go.")], config.policies)
    driven, error = DrivenRun(config, run, None, None), LookupError(SECRET)

    def take(commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Emit):
                driven.take_ends(command.events)

    take(run.begin())
    take(run.chunks([ToolCallStart(0, "c1", "early"), ToolCallClosed(0, "c1", "early", {"n": 1})]))
    take(driven.tool_ended("1.0", failure(error), None, [error]))
    assert (run.state.is_over, driven.tool_failures) == (False, [])
    if end != "cut":
        number = 2 if end == "changed" else 1
        take(run.chunks([ToolCall("c1", "early", {"n": number}, sealed_by="call_end")]))
    if not run.state.is_over:
        take(run.chunks([Finish("cut" if end == "cut" else "tool_calls")]))
        take(run.ended())
    counts = end == "confirmed"
    assert driven.tool_failures == ([error] if counts else [])
    assert driven.error is (error if counts and mode == "raise" else None)
    assert run.state.is_over == (end == "cut" or driven.error is not None)


def test_process_stream_raises_it_as_well() -> None:
    text = '<function_calls><invoke name="broken"></invoke></function_calls>'
    reported = asyncio.run(AgentStreamer(tools=[broken]).process_stream([text]))
    assert reported[-1].results[0].is_error
    with pytest.raises(LookupError):
        asyncio.run(AgentStreamer(tools=[broken], tool_exceptions="raise").process_stream([text]))


def test_another_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="tool_exceptions must be 'report' or 'raise', not 'ignore'"):
        agent_of(tool_exceptions="ignore")


# -- standard error ----------------------------------------------------------------------------------------------------

PROGRAM = f"""
import penstock
from penstock.testing import Reply, Scripted, call

@penstock.tool
def save() -> str:
    '''Save.'''
    raise LookupError("{SECRET}")

def go(*replies, **options):
    model = penstock.Model("openai:gpt-5", via=Scripted([*replies]))
    return penstock.Agent(model, [save], **options).run("Go.")
"""
LINE = "penstock: the tool save raised LookupError in program.py, line 8\n"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ('go(Reply(call("save")), "Sorry.")', LINE),
        ('go(Reply(call("save"), call("save")), "Sorry.")', LINE * 2),
        ('go(Reply(call("missing")), limits=penstock.Limits(steps=1))', ""),  # other warnings stay silent
        ('import logging; logging.basicConfig(filename="log"); go(Reply(call("save")), "Sorry.")', ""),
        (
            "import logging; logging.getLogger('penstock').addHandler(logging.FileHandler('log'));"
            "go(Reply(call('save')), 'Sorry.')",
            "",
        ),
        (
            "from rich.console import Console; from penstock.cli.screen.output import render_run\n"
            "with render_run(Console(force_terminal=True)): go(Reply(call('save')), 'Sorry.')",
            "",
        ),
        (
            "from rich.console import Console; from penstock.cli.screen.output import render_run\n"
            "with render_run(Console(force_terminal=True)): pass\n"
            "go(Reply(call('save')), 'Sorry.')",
            LINE,
        ),
        ("import sys; sys.stderr = None; go(Reply(call('save')), 'Sorry.')", ""),
    ],
    ids=["once", "twice", "others", "configured", "own handler", "screen", "after a screen", "no standard error"],
)
def test_standard_error_has_one_line_per_exception(code: str, printed: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + code)
    program = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert program.stderr == printed
