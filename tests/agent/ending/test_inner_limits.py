"""Limits of a run that agents inside it exceed: no tool starts and no request is sent after that."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock import Agent, Finish, Limits, Model, Prices, Tool, ToolCall, ToolEnd, Usage, tool
from penstock.messages import user
from penstock.run.commands import Emit, StartTool
from penstock.run.machine import Run
from penstock.testing import Reply, Scripted, call
from penstock.tools.policy import ToolPolicy
from tests.scripted_runs import LOOK, drive, end_of, made, streaming, sync_and_async

FREE, DEAR = Prices(input=0, output=0), Prices(input=0, output=1e6)
ran: list[str] = []


@tool
def write() -> str:
    """Write."""
    ran.append("write")
    return "written"


@tool(parallel=True)
def send() -> str:
    """Send."""
    ran.append("send")
    return "sent"


@tool(read_only=True)
def look() -> str:
    """Look for a while."""
    time.sleep(0.2)
    return "seen"


def clerk(*replies: Any, tools: tuple[Any, ...] = (look,), model: str = "dear", **options: Any) -> Tool[..., Any]:
    """A tool that is an agent, whose model costs money."""
    model_of = Model(f"openai-compatible:{model}", via=Scripted(list(replies or ["Found."])))
    return Agent(model_of, tools, name="clerk").as_tool(description="Ask the clerk.", **options)


ASKS = Reply(call("clerk", {"prompt": "Go."}), call("write"))


def limits_of(what: str) -> Limits:
    """A limit that the first response of an agent does not exceed, and that of the clerk does."""
    if what == "tokens":
        first = outer(clerk(), Limits(steps=1)).run("Go.").usage
        return Limits(tokens=first.input_tokens + first.output_tokens + 1)
    return Limits(cost=0.5) if what == "cost" else Limits(seconds=0.05)


def outer(asked: Tool[..., Any], limits: Limits, reply: Reply = ASKS, *more: Any) -> Agent:
    return made([reply, "Done."], asked, write, send, *more, prices={"m": FREE, "dear": DEAR}, limits=limits)


@sync_and_async
@pytest.mark.parametrize("what", ["tokens", "cost", "seconds"])
def test_no_call_starts_after_an_agent_that_exceeded_a_limit(what: str, mode: str) -> None:
    """Also if that agent has ended with the response: the call after it waits for its end, and then not for more."""
    ran.clear()
    replies = ["Found."] if what != "seconds" else [Reply(call("look")), "Found."]
    events, run = drive(streaming(outer(clerk(*replies, parallel=False), limits_of(what))), mode)
    assert (end_of(events).reason, ran) == ("limit", [])
    asked, written = run.messages[-1].results
    assert written.text.startswith("Not run: the run ")
    assert asked.is_error if what == "seconds" else asked.text == "Found."
    ends = [event.ending for event in events if isinstance(event, ToolEnd)]
    assert ends == ["done" if what != "seconds" else "cancelled", "cancelled"]


@sync_and_async
def test_the_limit_counts_agents_at_any_depth(mode: str) -> None:
    ran.clear()
    script = Scripted([Reply(call("clerk", {"prompt": "Go."}), call("write")), "Done."])
    lead = Agent(Model("openai-compatible:m", via=script), [clerk(parallel=False), write], name="lead")
    reply = Reply(call("lead", {"prompt": "Go."}), call("write"))
    agent = outer(lead.as_tool(description="Lead.", parallel=False), Limits(cost=0.5), reply)
    assert end_of(drive(streaming(agent), mode)[0]).reason == "limit"
    assert (ran, len(script.requests)) == ([], 1)


def test_what_an_open_agent_has_used_counts_when_the_response_ends() -> None:
    """A response and an agent that started before its end exceed the limit together, and neither of them alone."""
    policies = {"clerk": ToolPolicy(start="closed", new_run=lambda messages: Run(messages, {"look": LOOK}))}
    run = Run([user("Go.")], policies | {"send": ToolPolicy()}, Limits(tokens=100))
    run.begin()
    run.chunks([ToolCall("c1", "clerk", {}, sealed_by="call_end")])
    run.inner_begins("1.0", [user("Go.")])
    inner = run.inner.all[0].run
    for commands in (
        inner.begin(), inner.chunks([ToolCall("c2", "look", {}), Usage(60, 0), Finish("tool_calls")]),
        inner.ended(),
    ):  # fmt: skip
        emitted = [event for command in commands if isinstance(command, Emit) for event in command.events]
        run.inner_emitted("1.0", Emit(emitted))
    assert not run.state.is_over
    run.chunks([ToolCall("c3", "send", {}, block=1), Usage(60, 0), Finish("tool_calls")])
    commands = run.ended()
    assert run.state.ending == ("limit", "the run used 120 tokens, and may use 100")
    assert not any(isinstance(command, StartTool) for command in commands)


def test_a_request_is_not_sent_if_hooks_have_used_the_tokens() -> None:
    script = Scripted(["Never."])

    def summarise(step: Any) -> Any:
        return step.add_usage(Usage(1000, 1000))

    model = Model("openai-compatible:m", via=script)
    result = Agent(model, before_step=summarise, limits=Limits(tokens=100)).run("Go.")
    assert (result.reason, script.requests) == ("limit", [])


def test_the_limit_of_an_agent_inside_is_its_own() -> None:
    ran.clear()
    model = Model("openai-compatible:m", via=Scripted([Reply(call("look")), "Found."]))
    inner = Agent(model, [look], name="clerk", limits=Limits(tokens=1)).as_tool(description="Ask.", parallel=False)
    result = made([ASKS, "Done."], inner, write).run("Go.")
    assert (result.output, ran) == ("Done.", ["write"])
