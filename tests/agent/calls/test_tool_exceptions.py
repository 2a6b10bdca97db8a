"""An exception in a tool that is not a `ToolError`: reported on standard error, kept in the result, or raised."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, AgentStreamer, Limits, Model, OutputError, ToolEnd, ToolError, UsageError, tool
from penstock.agent.calls.tool_exceptions import MAX_FAILURES
from penstock.log import memory
from penstock.testing import Reply, Scripted, call, say
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
def early() -> str:
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


def test_a_run_with_a_log_ends_with_the_exception_too() -> None:
    store = memory()
    with pytest.raises(LookupError):
        agent_of(Reply(call("broken")), tool_exceptions="raise").run("Go.", log=store, run_id="r1")
    again = agent_of("Never.", tool_exceptions="raise").stream("Go.", log=store, run_id="r1")
    with again:
        list(again)
    assert again.finish_reason == "error"


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
