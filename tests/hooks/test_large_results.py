"""`LargeResults`: the model gets the head of a long result and pages of the rest, and the whole stays in the run."""

from __future__ import annotations

import re
from typing import Any

import pytest

import penstock
from penstock import Agent, Model, Tool, ToolResult, UsageError
from penstock.hooks import LargeResults, compact, estimate_tokens
from penstock.hooks.large_results import whole_text
from penstock.log.in_memory import MemoryStore
from penstock.messages import decode_messages, encode_messages, image
from penstock.testing import ReceivedRequest, Reply, Scripted, call
from tests.scripted_runs import drive, streaming, sync_and_async

LONG = "".join(f"line {number}\n" for number in range(500))
_NOTE = re.compile(r'\[characters .*; to read on, call (\w+) with id "([^"]+)" and start (\d+)\]\Z')


def book(result: Any = LONG, **options: Any) -> Tool[..., Any]:
    return Tool.from_schema("book", "Read a book.", {"type": "object"}, lambda **_: result, read_only=True, **options)


class Reader:
    """A scripted model that calls `book` once, and then follows the notes until the end of the result."""

    def __init__(self, *first: Reply) -> None:
        self._first = [*first]
        self.parts: list[str] = []

    def __call__(self, request: ReceivedRequest) -> Any:
        if self._first:
            return self._first.pop(0)
        self.parts = [result.text for result in request.results if result.name != "confirm"]
        if not self.parts:
            return Reply(call("book", {}))
        note = _NOTE.search(self.parts[-1])
        if note is None:
            return "Read."
        return Reply(call(note[1], {"id": note[2], "start": int(note[3])}))


def agent_with(
    large: LargeResults, script: Any, *tools: Any, model: str = "openai-compatible:m", **options: Any
) -> Agent:
    return Agent(Model(model, via=Scripted(script)), tools=[*tools, *large.tools], after_call=large, **options)


def texts_of(parts: list[str]) -> str:
    """The pages without their notes."""
    return "".join(re.sub(r"\n\[characters [^\n]*\]\Z", "", part) for part in parts)


@sync_and_async
def test_the_pages_of_a_result_are_the_whole(mode: str) -> None:
    reader = Reader()
    large = LargeResults(1000)
    _, running = drive(streaming(agent_with(large, reader, book())), mode)
    assert running.finish_reason == "answered"
    assert texts_of(reader.parts) == LONG
    assert len(reader.parts) == -(-len(LONG) // 1000)
    assert all(len(part) < 1200 for part in reader.parts)


def test_an_agent_without_its_tool_is_a_mistake() -> None:
    large = LargeResults(1000, name="read_on")
    with pytest.raises(UsageError, match=r"LargeResults needs its tool 'read_on': add it, as in tools=\[\*tools, "):
        Agent("openai:gpt-5", tools=[book()], after_call=[large])
    agent = Agent("openai:gpt-5", tools=[book()])
    with pytest.raises(UsageError, match="LargeResults needs its tool 'read_on'"):
        agent.stream("Go.", after_call=large)
    with pytest.raises(UsageError, match="LargeResults needs its tool 'read_on'"):
        Agent("openai:gpt-5", tools=[book(), *large.tools], after_call=large).stream("Go.", tools=[book()])
    agent.stream("Go.", tools=[book(), *large.tools], after_call=large)


def test_short_results_are_left_alone_and_the_end_is_named() -> None:
    result = agent_with(LargeResults(1000), [Reply(call("book", {})), "Read."], book("x" * 1000)).run("Go.")
    assert result.messages[2].results[0] == ToolResult(
        result.messages[2].results[0].call_id, "book", (penstock.Text(0, "x" * 1000),)
    )
    reader = Reader()
    agent_with(LargeResults(1000), reader, book("x" * 1001)).run("Go.")
    assert reader.parts[-1] == "x\n[characters 1000 to 1001 of 1001: this is the end]"


def test_images_and_failures_stay_as_they_are() -> None:
    picture = image(b"\x89PNG\r\n\x1a\n" + bytes(20))
    result = agent_with(LargeResults(200), [Reply(call("book", {})), "Read."], book([LONG, picture])).run("Go.")
    content = result.messages[2].results[0].content
    assert [type(part).__name__ for part in content] == ["Text", "Image"]

    def fail(**_: Any) -> str:
        raise penstock.ToolError(LONG)

    failing = Tool.from_schema("book", "Read.", {"type": "object"}, fail)
    [failed] = agent_with(LargeResults(200), [Reply(call("book", {})), "Read."], failing).run("Go.").messages[2].results
    assert failed.is_error
    assert len(failed.text) < 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": "nothing", "start": 0}, "There is no shortened result with the id 'nothing'."),
        ({"id": "c1", "start": -1}, "start must be between 0 and"),
        ({"id": "c1", "start": len(LONG)}, f"the result has {len(LONG)} characters."),
    ],
)
def test_a_page_that_does_not_exist_is_an_error_that_the_model_reads(arguments: dict[str, Any], message: str) -> None:
    script = [Reply(call("book", {}, id="c1")), Reply(call("read_result", arguments)), "Read."]
    result = agent_with(LargeResults(1000), script, book()).run("Go.")
    assert result.messages[4].results[0].is_error
    assert message in result.messages[4].results[0].text


def test_the_whole_is_there_after_a_pause_in_another_process_and_in_another_run() -> None:
    def agent(reader: Reader) -> Agent:
        confirm = Tool.from_schema("confirm", "Confirm.", {"type": "object"}, lambda: "confirmed", approval=True)
        return agent_with(LargeResults(1000), reader, book(), confirm, name="reader")

    store = MemoryStore()
    first = agent(Reader(Reply(call("book", {})), Reply(call("confirm", {}))))
    with first.stream("Go.", log=store, run_id="r") as running:
        for _ in running:
            pass
        stored = running.dump()
    [waiting] = running.waiting

    logged = Reader()
    with agent(logged).stream("Go.", log=store, run_id="r") as again:  # as another process would
        again.decide(waiting.call_id, True)
        for _ in again:
            pass
    from_dump = Reader()
    resumed = agent(from_dump).resume(stored)
    resumed.decide(waiting.call_id, True)
    with resumed:
        for _ in resumed:
            pass
    for finished in (again, resumed):
        call_id = finished.messages[2].results[0].call_id
        assert whole_text(finished.messages, call_id) == LONG
        assert whole_text(decode_messages(encode_messages(finished.messages)), call_id) == LONG

    note = _NOTE.search(again.messages[2].results[0].text)
    assert note is not None
    script = [Reply(call("read_result", {"id": note[2], "start": 3000})), "Read."]
    later = agent_with(LargeResults(1000), script, book()).run("And then?", messages=again.messages)
    assert later.messages[-2].results[0].text.startswith(LONG[3000:4000])


MODELS = ("openai:gpt-5", "openai-compatible:m", "anthropic:claude-sonnet-5", "gemini:gemini-3-pro", "ollama:qwen3",
          "cohere:command-a", "mistral:mistral-large", "bedrock:anthropic.claude-sonnet-5")  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_no_provider_gets_the_whole(model: str) -> None:
    script = Scripted([Reply(call("book", {})), "Read."])
    large = LargeResults(1000)
    agent = Agent(Model(model, via=script), tools=[book(), *large.tools], after_call=large)
    result = agent.run("Go.")
    assert "line 10" in str(script.requests[1].body)
    assert "line 400" not in str(script.requests[1].body)
    assert penstock.check(result.messages) == []
    assert estimate_tokens(result.messages) < 600
    repaired = penstock.repair(result.messages)
    assert whole_text(repaired, result.messages[2].results[0].call_id) == LONG


def test_the_whole_survives_compaction_of_its_result() -> None:
    nap = Tool.from_schema("nap", "Sleep.", {"type": "object"}, lambda: "slept " * 20, read_only=True)
    script = [Reply(call("book", {})), Reply(call("nap", {})), Reply(call("nap", {})), "Read."]
    hook = compact(320, keep=1, max_result=300, target=0.95)
    result = agent_with(LargeResults(1000), script, book(), nap, before_step=hook).run("Go.")
    [kept] = [each for message in result.messages for each in message.results if each.name == "book"]
    assert len(kept.text) <= 300
    assert whole_text(result.messages, kept.call_id) == LONG


def test_the_name_can_be_chosen_and_a_tiny_limit_is_refused() -> None:
    reader = Reader()
    agent_with(LargeResults(1000, name="more"), reader, book()).run("Go.")
    assert texts_of(reader.parts) == LONG
    with pytest.raises(UsageError, match="limit must be 200 characters or more"):
        LargeResults(10)
