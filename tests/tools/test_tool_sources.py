"""Sources of tools: the tools of a run are listed again before each request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, Model, StreamEvent, UsageError, tool
from penstock.testing import Reply, Scripted, call
from penstock.tools.source import Listing, ToolSource
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import check_history, drive, resuming, streaming, sync_and_async, texts_of


@tool
def old(text: str = "") -> str:
    """The old one."""
    return f"old {text}"


@tool
def new(text: str = "") -> str:
    """The new one."""
    return f"new {text}"


@tool(approval=True)
def careful() -> str:
    """Needs approval."""
    return "careful"


class Shelf(ToolSource):
    """A source that lists these tools, one list after the other."""

    def __init__(self, *lists: Listing) -> None:
        self.lists = list(lists)
        self.is_ready = False

    @property
    def is_listed(self) -> bool:
        return self.is_ready

    def listing(self) -> Listing:
        self.is_ready = True
        return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]

    async def alisting(self) -> Listing:
        await asyncio.sleep(0)
        return self.listing()


class Broken(Shelf):
    """A source that cannot be listed."""

    def listing(self) -> Listing:
        raise OSError("the shelf is gone")


def made(script: Any, *tools: Any) -> Agent:
    return Agent(Model("openai-compatible:m", via=script), tools)


def names_sent(script: Scripted) -> list[list[str]]:
    return [[tool["function"]["name"] for tool in request.body.get("tools", [])] for request in script.requests]


@sync_and_async
def test_the_next_step_sees_the_new_list(mode: str) -> None:
    script = Scripted(
        [Reply(call("old", {"text": "a"})), Reply(call("old", {}), call("new", {"text": "b"})), Reply(".")]
    )
    agent = made(script, Shelf((old,), (new,)))
    _, running = drive(streaming(agent), mode)
    assert names_sent(script) == [["old"], ["new"], ["new"]]
    assert texts_of(running.messages) == ["old a", "There is no tool called 'old'. There are: new.", "new b"]
    check_history(running.messages)


@sync_and_async
def test_a_source_cannot_take_the_name_of_a_tool(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    @tool(name="old")
    def impostor() -> str:
        """Takes the name of another."""
        return "impostor"

    script = Scripted([Reply(call("new", {})), Reply(call("old", {"text": "a"})), Reply(".")])
    _, running = drive(streaming(made(script, old, Shelf((new,), (new, impostor)))), mode)
    assert texts_of(running.messages) == ["new ", "old a"]
    assert "two tools have the name 'old'" in caplog.text

    script = Scripted([Reply(".")])
    _, running = drive(streaming(made(script, old, Shelf((impostor,)))), mode)
    assert isinstance(running.error, UsageError)
    assert "prefix" in str(running.error)
    assert script.requests == []


@sync_and_async
def test_a_run_whose_tools_cannot_be_listed_fails_before_its_request(mode: str) -> None:
    script = Scripted([Reply(".")])
    _, running = drive(streaming(made(script, Broken(()))), mode)
    assert (running.finish_reason, str(running.error)) == ("error", "the shelf is gone")
    assert script.requests == []


@sync_and_async
def test_a_stored_run_continues_with_the_tools_of_its_source(mode: str) -> None:
    script = Scripted([Reply(call("careful", {})), Reply(".")])
    agent = made(script, Shelf((careful,)))
    _, paused = drive(streaming(agent), mode)
    assert paused.finish_reason == "paused"

    def approve(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.decide(event.call_id, True)

    _, running = drive(resuming(made(script, Shelf((careful,))), paused.dump()), mode, approve)
    assert texts_of(running.messages) == ["careful"]
    _, failed = drive(resuming(made(script, Broken(())), paused.dump()), mode)
    assert (failed.finish_reason, str(failed.error)) == ("error", "the shelf is gone")
    check_history(failed.messages)


def test_tokens_are_processed_with_the_tools_of_a_source() -> None:
    from penstock import AgentStreamer

    text = '<tool_call>{"name": "old", "arguments": {"text": "a"}}</tool_call>'
    agent = AgentStreamer(tools=[Shelf((old,))], calls="hermes")
    assert texts_of(asyncio.run(agent.process_stream([text]))) == ["old a"]


def test_a_source_alone_is_not_a_fixed_list_of_tools() -> None:
    agent = Agent(Model("openai-compatible:m", via=Scripted([])), tools=Shelf((old,)))
    assert len(agent.config.sources) == 1
    assert not agent.config.tools
