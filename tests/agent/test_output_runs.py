"""Runs with structured output: how they end, what they keep, and what their reader sees."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

import penstock
from penstock import (
    Agent,
    ArgumentDelta,
    Done,
    Limits,
    Model,
    OutputDelta,
    OutputError,
    OutputInvalid,
    Retry,
    StreamChunk,
    StreamEvent,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    UsageError,
)
from penstock.model.output_request import OUTPUT_TOOL
from penstock.output.find import find_output
from penstock.output.output_type import MAX_PROBLEM, OutputType
from penstock.output.partial import PartialOutput, PartialView
from penstock.run.events import LogEvent
from penstock.run.rebuild import rebuild
from penstock.testing import Reply, Scripted, always, call, refuse, say
from tests.growth import assert_linear


class City(BaseModel):
    name: str
    people: int


GOOD = '{"name": "Rome", "people": 3}'
BAD = '{"name": "Rome", "people": "many"}'


@penstock.tool(read_only=True)
def look(name: str) -> str:
    """Look a city up."""
    return name


def agent_of(*script: Any, name: str = "openai:gpt-5", **options: Any) -> Agent[Any, Any]:
    return Agent(Model(name, via=Scripted(list(script), strict=True)), output=City, name="cities", **options)


# -- how a run ends ----------------------------------------------------------------------------------------------------


def test_output_that_is_never_valid_ends_the_run_by_its_limit() -> None:
    result = agent_of(*[BAD] * 3, limits=Limits(output_retries=2)).run("Go.")
    assert result.reason == "limit"
    assert result.why.startswith("the output was not valid 3 times, and may be tried again 2 times: `people`")
    with pytest.raises(OutputError, match=r"the run has no output \(limit\)") as error:
        result.output  # noqa: B018
    assert error.value.text == BAD
    assert [message.role for message in result.messages] == ["user", *["assistant", "user"] * 2, "assistant"]


def test_no_retries_is_a_limit_too() -> None:
    assert agent_of(BAD, limits=Limits(output_retries=0)).run("Go.").reason == "limit"
    assert agent_of(BAD, limits=Limits(steps=1)).run("Go.").reason == "limit"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(refuse()), "refused"),
        (Reply(say('{"name": "Ro'), finish="length"), "length"),
        (Reply(say(GOOD), finish="content_filter"), "refused"),
    ],
)
def test_what_is_not_a_whole_answer_is_not_output(reply: Reply, reason: str) -> None:
    result = agent_of(reply).run("Go.")
    assert result.reason == reason
    with pytest.raises(OutputError, match=reason):
        result.output  # noqa: B018
    with pytest.raises(OutputError):
        Model("openai:gpt-5", via=Scripted(reply)).complete("Go.", output=City).output  # noqa: B018


def test_output_beside_calls_is_not_final() -> None:
    early = Reply(say(GOOD.replace("3", "2")), call("look", {"name": "Rome"}))
    result = agent_of(early, GOOD, tools=[look]).run("Go.")
    assert result.output == City(name="Rome", people=3)
    turn = Model("openai:gpt-5", via=Scripted(early)).complete("Go.", [look], output=City)
    with pytest.raises(OutputError, match="has tool calls"):
        turn.output  # noqa: B018


@pytest.mark.parametrize("name", ["anthropic:claude-3-7-sonnet", "cohere:command-a", "deepseek:deepseek-chat"])
def test_the_final_tool_beside_other_calls_is_called_again(name: str) -> None:
    early = Reply(call("look", {"name": "Rome"}), call(OUTPUT_TOOL, {"name": "Rome", "people": 2}))
    last = Reply(call(OUTPUT_TOOL, {"name": "Rome", "people": 3}), call(OUTPUT_TOOL, {"name": "Oslo", "people": 1}))
    result = agent_of(early, last, name=name, tools=[look]).run("Go.")
    assert result.output == City(name="Rome", people=3), "of two calls of the final tool, the first counts"
    assert [call.name for message in result.messages for call in message.tool_calls] == ["look"]


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```", "Here it is:\n{}", "{}\nIs that what you want?", "The name in {braces}: {}",
        "{}\nAnd {so} on.",
    ],
)  # fmt: skip
def test_the_object_is_found_in_other_text(text: str) -> None:
    assert agent_of(text.replace("{}", GOOD), calls="hermes").run("Go.").output == City(name="Rome", people=3)


def test_the_final_tool_counts_more_than_an_object_in_the_text_before_it() -> None:
    reply = Reply(say('{"name": "Oslo"} would be too short.'), call(OUTPUT_TOOL, {"name": "Rome", "people": 3}))
    agent = agent_of(reply, name="anthropic:claude-3-7-sonnet")
    with agent.stream("Go.") as run:
        list(run)
    assert (run.output, run.partial) == (City(name="Rome", people=3), {"name": "Rome", "people": 3})


def test_an_object_in_several_blocks_of_text_is_one() -> None:
    parts = [Text(0, '{"name": "Rome", "more": {"a": '), Text(1, '1}, "people": '), Text(2, '{"b": 2}}')]
    assert find_output(parts, OutputType(City)) == '{"name": "Rome", "more": {"a": 1}, "people": {"b": 2}}'


@pytest.mark.parametrize(
    "text",
    [
        '<think>Perhaps {"name": "Oslo", "people": 1}?</think>{}', 'Not {"name": "Oslo", "people": 1} but {}',
        'With the settings {"a": 3}:\n```json\n{}\n```', '{}\nNote: {"a": 3}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_last_object_with_the_required_fields_is_the_output(text: str, seed: int) -> None:
    model = Model(
        "openai-compatible:m", via=Scripted([Reply(text.replace("{}", GOOD), seed=seed)]), output_form="prompt"
    )
    with Agent(model, output=City).stream("Go.") as run:
        list(run)
    assert run.output == City(name="Rome", people=3)
    assert run.partial == ({"name": "Rome", "people": 3} if not text.startswith("{") else {"a": 3})


def test_a_message_during_the_answer_is_answered_before_the_run_ends() -> None:
    with agent_of(GOOD, GOOD.replace("3", "4")).stream("Go.") as run:
        for event in run:
            if isinstance(event, OutputDelta) and event.path == () and len(run.messages) == 2:
                run.say("No, count again.")
    assert run.output.people == 4


def test_the_output_is_not_there_before_the_end() -> None:
    with agent_of(GOOD).stream("Go.") as run:
        for event in run:
            if isinstance(event, Text):
                with pytest.raises(OutputError, match="not finished"):
                    run.output  # noqa: B018
    assert run.output.people == 3


def test_a_validator_that_raises_something_else_fails_the_run() -> None:
    class Odd(BaseModel):
        name: str

        def model_post_init(self, context: Any) -> None:
            raise RuntimeError("no")

    agent = Agent(Model("openai:gpt-5", via=Scripted(always(GOOD))), output=Odd, name="odd")
    result = agent.run("Go.")
    assert (result.reason, str(result.error)) == ("error", "no")
    assert [message.text for message in result.messages] == ["Go.", GOOD]  # the response is in it once

    from penstock.log.take_up import read_log

    store, config = penstock.log.memory(), agent.config
    logged = agent.run("Go.", log=store, run_id="one")
    log: list[LogEvent] = [event for _, _, event in read_log(store, "one")]
    rebuilt = rebuild(log, config.policies, config.limits, (), config.output)
    assert rebuilt.state.messages == list(logged.messages)


class BrokenError(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyError("name"), "KeyError: 'name'"),
        (BrokenError(), "BrokenError: <BrokenError whose __str__ raised ValueError>"),
        (RuntimeError("x" * 5_000), "RuntimeError: " + "x" * 1_000),
    ],
)
def test_what_a_validator_raises_is_named_and_cut(error: Exception, why: str) -> None:
    class Odd(BaseModel):
        name: str

        def model_post_init(self, context: Any) -> None:
            raise error

    agent: Agent[Any, Any] = Agent(Model("openai:gpt-5", via=Scripted(always(GOOD))), output=Odd)
    with agent.stream("Go.") as run:
        assert [event.why for event in run if isinstance(event, Done)] == [why]
    assert run.error is error


def test_what_is_wrong_with_an_output_is_cut() -> None:
    class Odd(BaseModel):
        name: str

        def model_post_init(self, context: Any) -> None:
            raise ValueError("x" * 50_000)

    agent: Agent[Any, Any] = Agent(Model("openai:gpt-5", via=Scripted(always(GOOD))), output=Odd)
    with agent.stream("Go.") as run:
        assert {len(event.problem) for event in run if isinstance(event, OutputInvalid)} == {MAX_PROBLEM}


# -- what a run keeps --------------------------------------------------------------------------------------------------


def test_an_output_survives_the_log_and_its_retries_are_counted() -> None:
    store = penstock.log.memory()
    agent = agent_of(BAD, GOOD)
    assert agent.run("Go.", log=store, run_id="one").output == City(name="Rome", people=3)
    with agent.stream("Go.", log=store, run_id="one") as again:
        events = list(again)
    assert again.output == City(name="Rome", people=3)
    assert again.partial == {"name": "Rome", "people": 3}
    assert sum(isinstance(event, OutputInvalid) for event in events) == 1


def test_what_is_derived_is_not_in_the_log() -> None:
    from penstock.log.take_up import read_log

    store = penstock.log.memory()
    agent = agent_of(Reply(call("look", {"name": "Rome"})), GOOD, tools=[look], partial_arguments=True)
    with agent.stream("Go.", log=store, run_id="one") as run:
        seen = {event.type for event in run}
    assert {"argument_delta", "output_delta"} <= seen
    assert {"argument_delta", "output_delta"}.isdisjoint(event.type for _, _, event in read_log(store, "one"))


def test_a_run_is_rebuilt_from_every_prefix_of_its_log() -> None:
    from penstock.log.take_up import read_log

    store = penstock.log.memory()
    agent = agent_of(BAD, GOOD)
    agent.run("Go.", log=store, run_id="one")
    log: list[LogEvent] = [event for _, _, event in read_log(store, "one")]
    config = agent.config
    run = rebuild(log[:1], config.policies)
    for end in range(1, len(log) + 1):
        run = rebuild(log[:end], config.policies, config.limits, (), config.output)
        assert run.state.tally.invalid_outputs == sum(isinstance(event, OutputInvalid) for event in log[:end])
    assert run.state.result == City(name="Rome", people=3)
    assert [message.text for message in run.state.messages][1::2] == [BAD, GOOD]


def test_a_stored_run_has_the_output_of_its_agent() -> None:
    @penstock.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = agent_of(Reply(call("pay")), BAD, GOOD, tools=[pay])
    paused = agent.run("Go.")
    with pytest.raises(OutputError, match="paused"):
        paused.output  # noqa: B018
    with agent.resume(paused.state) as run:
        run.decide(run.waiting[0].call_id, True)
        list(run)
    assert run.output == City(name="Rome", people=3)


def test_an_output_for_one_run_is_refused_with_a_log() -> None:
    options: Any = {"log": penstock.log.memory(), "output": City}
    with pytest.raises(UsageError, match="output="):
        agent_of(GOOD).run("Go.", **options)


# -- what the reader sees ----------------------------------------------------------------------------------------------


def test_fields_are_validated_once_and_the_whole_once() -> None:
    counted: list[str] = []

    class Name(str):
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            from pydantic_core import core_schema

            def count(value: str) -> str:
                counted.append(value)
                return value

            return core_schema.no_info_after_validator_function(count, core_schema.str_schema())

    class Person(BaseModel):
        first: Name
        last: Name

    agent = Agent(Model("openai:gpt-5", via=Scripted('{"first": "Ada", "last": "Lovelace"}')), output=Person)
    with agent.stream("Go.") as run:
        list(run)
    assert run.output.last == run.output.last == "Lovelace"
    assert counted == ["Ada", "Lovelace", "Ada", "Lovelace"]


def test_items_of_a_list_are_converted_as_they_close() -> None:
    view = PartialOutput(OutputType(list[City]))
    view.feed(Text(0, f'{{"value": [{GOOD}, {{"name": "Os'))
    assert view.value == [City(name="Rome", people=3), {"name": "Os"}]
    [*_, problem, whole] = view.feed(Text(0, 'lo"}]}'))
    assert (problem.path, problem.problem) == ((1,), "`1.people`: missing")
    assert (whole.path, whole.is_complete) == ((), True)


def test_text_before_the_output_does_not_count() -> None:
    view = PartialOutput(OutputType(City))
    assert view.feed(Text(0, "I looked at {x}: ")) == []
    view.feed(Text(1, GOOD))
    assert view.value == {"name": "Rome", "people": 3}


def test_a_withdrawn_response_starts_the_partial_output_again() -> None:
    view = PartialView(OutputType(City), has_arguments=True)
    view.feed(Text(0, '{"name": "Ro'))
    assert view.value == {"name": "Ro"}
    view.feed(Retry("again"))
    assert view.value is None


def test_the_reader_gets_no_derived_event_after_cancel() -> None:
    def read(run: Any) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for event in run:
            events.append(event)
            if isinstance(event, Text):
                run.cancel()
        return events

    with agent_of(GOOD, streaming=False).stream("Go.") as run:  # so that the text comes in one piece
        events = read(run)
    assert [event.type for event in events] == ["step_start", "text", "step_end", "done"]

    async def aread() -> list[StreamEvent]:
        async with agent_of(GOOD, streaming=False).astream("Go.") as run:
            events: list[StreamEvent] = []
            async for event in run:
                events.append(event)
                if isinstance(event, Text):
                    run.cancel()
            return events

    assert [event.type for event in asyncio.run(aread())] == ["step_start", "text", "step_end", "done"]


def test_arguments_are_parsed_as_they_arrive() -> None:
    script = Reply(call("look", {"name": "Reykjavik", "many": [1, {"a": "b"}]}), seed=0)
    model = Model("openai:gpt-5", via=Scripted(script))
    with model.stream("Go.", [look], partial_arguments=True) as stream:
        deltas = [event for event in stream if isinstance(event, ArgumentDelta)]
    assert "".join(delta.piece for delta in deltas if delta.path == ("name",)) == "Reykjavik"
    assert [(delta.path, delta.piece) for delta in deltas if delta.is_complete and delta.path[:1] != ("name",)] == [
        (("many", 0), 1), (("many", 1, "a"), "b"), (("many", 1), {"a": "b"}), (("many",), [1, {"a": "b"}]),
        ((), {"name": "Reykjavik", "many": [1, {"a": "b"}]}),
    ]  # fmt: skip


def test_sync_equals_async() -> None:
    def agent() -> Agent[Any, Any]:
        return agent_of(Reply(call("look", {"name": "Rome"})), BAD, GOOD, tools=[look], partial_arguments=True)

    with agent().stream("Go.") as run:
        plain = list(run)

    async def read() -> list[StreamEvent]:
        async with agent().astream("Go.") as run:
            return [event async for event in run]

    assert _joined(plain) == _joined(asyncio.run(read()))


def _joined(events: list[StreamEvent]) -> list[Any]:
    """What is derived: the order of a tool's end and the rest of the response may differ."""
    pieces = [
        (event.type, event.path, event.piece) for event in events if isinstance(event, OutputDelta | ArgumentDelta)
    ]
    return [event.problem for event in events if isinstance(event, OutputInvalid)] + pieces


def test_the_partial_view_of_a_long_output_is_linear() -> None:
    """A megabyte in pieces of eight characters, in a string and in a list."""

    class Page(BaseModel):
        body: str
        rows: list[str]

    def prepare(size: int) -> Any:
        text = json.dumps({"body": "word " * (size // 10), "rows": ["a row of text"] * (size // 34)})
        chunks = [Text(0, text[at : at + 8]) for at in range(0, len(text), 8)]

        def feed() -> None:
            view = PartialOutput(OutputType(Page))
            for chunk in chunks:
                view.feed(chunk)
            page: Any = view.value
            assert page["rows"]

        return feed

    assert_linear(prepare, 62_500, factor=16, exponent=1.1)


def test_the_partial_view_of_long_arguments_is_linear() -> None:
    def prepare(size: int) -> Any:
        text = json.dumps({"content": "word " * (size // 5)})
        pieces: list[StreamChunk] = [ToolCallDelta(0, text[at : at + 8]) for at in range(0, len(text), 8)]
        chunks = [ToolCallStart(0, "a", "look"), *pieces]

        def feed() -> None:
            view = PartialView(None, has_arguments=True)
            for chunk in chunks:
                view.feed(chunk)

        return feed

    assert_linear(prepare, 20_000)


def test_a_whole_call_of_the_final_tool_is_text() -> None:
    from penstock.model.output_request import OutputCall

    stage = OutputCall()
    assert stage.feed(ToolCall("a", OUTPUT_TOOL, {"a": 1}, block=0)) == [Text(0, '{"a":1}')]
    assert stage.close() == []
