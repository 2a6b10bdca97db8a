"""Logging: what is unusual in a run is logged with its id and without content; nothing is printed by default."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from penstock import Agent, AgentStreamer, Limits, Model, Retries, ToolError, UsageError, tool
from penstock.agent.records import MAX_CODE
from penstock.testing import Reply, Scripted, Status, call
from penstock.testing import fail as error
from tests.scripted_runs import Bench, made, sync_and_async

SECRET = "hunter2"


@tool
def fail(text: str) -> str:
    """Fail."""
    raise ToolError(f"no {text} {SECRET}")


def logged(agent: Agent, mode: str, caplog: pytest.LogCaptureFixture) -> tuple[str, list[logging.LogRecord]]:
    """The id of a run, and the records that it logged."""
    caplog.set_level(logging.DEBUG, "penstock")

    async def read() -> str:
        async with agent.astream("Go.") as run:
            async for _ in run:
                pass
        return run.id

    if mode == "async":
        return asyncio.run(read()), caplog.records
    with agent.stream("Go.") as run:
        for _ in run:
            pass
    return run.id, caplog.records


def check(records: list[logging.LogRecord], run_id: str, logger: str, *words: str) -> None:
    [record] = [record for record in records if all(word in record.getMessage() for word in words)]
    fields: Any = record
    assert (record.name, record.levelno, fields.run_id, fields.agent) == (logger, logging.WARNING, run_id, "clerk")
    assert not any(SECRET in record.getMessage() for record in records)


@sync_and_async
def test_a_tool_failure_is_logged_without_its_message(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    agent = made([Reply(call("fail", {"text": SECRET}, id="c1")), Reply("Done.")], fail, name="clerk")
    run_id, records = logged(agent, mode, caplog)
    check(records, run_id, "penstock.agent", run_id, "the tool fail failed (call c1)")
    assert len(records) == 1


def raises() -> None:
    raise LookupError(SECRET)


@tool
def look_up() -> str:
    """Look it up."""
    raises()
    return "found"


@tool
async def alook_up() -> str:
    """Look it up."""
    raises()
    return "found"


@tool
def decode(text: str) -> str:
    """Decode it."""
    return str(json.loads(text))


@sync_and_async
@pytest.mark.parametrize(
    ("failing", "raised"),
    [(look_up, "LookupError"), (alook_up, "LookupError"), (decode, "JSONDecodeError")],
    ids=["plain", "async", "in a library"],
)
def test_where_a_tool_raised_is_logged_without_its_message(
    failing: Any, raised: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {"text": SECRET} if failing is decode else {}
    agent = made([Reply(call(failing.name, arguments, id="c1")), Reply("Done.")], failing, name="clerk")
    run_id, records = logged(agent, mode, caplog)
    function = decode.function if failing is decode else raises
    line = function.__code__.co_firstlineno + (3 if failing is decode else 1)
    place = f"the tool {failing.name} raised {raised} in test_logging.py, line {line}"
    check(records, run_id, "penstock.agent", run_id, place)
    check(records, run_id, "penstock.agent", run_id, f"the tool {failing.name} failed (call c1)")
    assert len(records) == 2


@sync_and_async
def test_a_retry_is_logged(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    agent = made([Status(503), Reply("Done.")], retries=Retries(first_delay=0.01), name="clerk")
    run_id, records = logged(agent, mode, caplog)
    check(records, run_id, "penstock.model", "next attempt in")


@sync_and_async
def test_a_limit_is_logged(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    agent = made([Reply(call("write", {"text": SECRET}))], *Bench().tools, limits=Limits(steps=1), name="clerk")
    run_id, records = logged(agent, mode, caplog)
    check(records, run_id, "penstock.agent", "a limit ended the run", "1 steps")


@sync_and_async
def test_a_failed_run_is_logged_with_the_code_of_its_error(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    run_id, records = logged(made([Status(404, SECRET)], name="clerk"), mode, caplog)
    check(records, run_id, "penstock.agent", run_id, "the run failed: error (model_not_found)")
    caplog.clear()
    agent = made([Reply(call("look_up"))], look_up, tool_exceptions="raise", name="clerk")
    run_id, records = logged(agent, mode, caplog)
    check(records, run_id, "penstock.agent", run_id, "the run failed: error (LookupError)")


def test_the_code_of_an_error_is_logged_up_to_a_length(caplog: pytest.LogCaptureFixture) -> None:
    response = Reply("Almost", error("c" * (MAX_CODE + 1), SECRET))
    run_id, records = logged(made([response], name="clerk"), "sync", caplog)
    check(records, run_id, "penstock.agent", f"the run failed: error ({'c' * MAX_CODE})")


@sync_and_async
def test_a_rescue_is_logged(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    leak = '<tool_call>{"name": "look", "arguments": {"city": "Rome"}}</tool_call>'
    agent = made([Reply(leak), Reply("Done.")], *Bench().tools, rescue=True, name="clerk")
    run_id, records = logged(agent, mode, caplog)
    check(records, run_id, "penstock.agent", "of look was found in the text")


@sync_and_async
def test_a_repair_is_logged(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    damaged = call("write", '{"text": "a"}{"text": "a"}')
    agent = made([Reply(damaged), Reply("Done.")], *Bench().tools, run_repaired=True, name="clerk")
    run_id, records = logged(agent, mode, caplog)
    check(records, run_id, "penstock.agent", "of write is duplicated, and runs repaired")


def test_a_run_without_incidents_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    _, records = logged(made([Reply(call("write", {"text": "a"})), Reply("Done.")], *Bench().tools), "sync", caplog)
    assert records == []


def test_runs_have_ids_of_their_own() -> None:
    agent = made([Reply("Done.")])
    assert len({agent.stream("Go.").id for _ in range(3)}) == 3


def test_a_failure_in_a_stream_of_tokens_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    text = '<function_calls><invoke name="fail"><parameter name="text">x</parameter></invoke></function_calls>'
    asyncio.run(AgentStreamer(None, [fail], name="clerk").process_stream([text]))
    assert "the tool fail failed" in caplog.text


def test_nothing_is_printed_by_default() -> None:
    program = (
        "from penstock import *; from penstock.testing import *\n"
        "@tool(description='Fail.')\n"
        "def f() -> str: raise ToolError('x')\n"
        "Agent(Model('openai:m', via=Scripted([Reply(call('f')), 'Done.'])), [f]).run('Go.')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_an_agent_has_a_name() -> None:
    agent = Agent(Model("openai:m", via=Scripted([])), name="clerk")
    assert agent.name == agent.with_model("sim:fast").name == "clerk"
    assert "name='clerk'" in repr(agent)
    assert Agent("sim:fast").name == ""
    with pytest.raises(UsageError, match="name must be a str"):
        Agent("sim:fast", name=5)  # type: ignore[call-overload]
