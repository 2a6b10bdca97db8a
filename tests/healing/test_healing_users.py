"""One healing, for all who use it: the model, the agent, the accumulator, `decode` and the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import (
    Agent,
    Healing,
    Model,
    StreamingToolCallAccumulator,
    Text,
    ToolCall,
    UsageError,
    collect,
    decode,
    gateway,
    tool,
)
from penstock.cli.app import penstock as command
from penstock.events import Fault
from penstock.messages import user
from penstock.testing import Raw, Reply, Scripted, call, think
from penstock.wires import WIRES, find_response_frames

ARGUMENTS = {"city": "Rome"}
DAMAGED = {
    '{"city": "Rome",}': "safe",
    '```json\n{"city": "Rome"}\n```': "safe",
    '{}{"city": "Rome"}': "safe",
    '"{\\"city\\": \\"Rome\\"}"': "safe",
    '{"city": "Rome"}\n</tool_call>': "safe",
    "{'city': 'Rome'}": "guess",
    '{"city": "Rome"} Done.': "guess",
}
TEXT_WIRES = [wire for wire in WIRES if find_response_frames(wire).format.has_text_arguments]


@tool(read_only=True)
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


def model(*replies: Any, wire: Any = "openai-chat", healing: Healing | None = None) -> Model:
    return Model("openai_compatible:m", "http://x", wire=wire, via=Scripted([*replies]), healing=healing)


def chunks(arguments: str, name: str = "weather", **message: Any) -> list[dict[str, Any]]:
    """A response with one call, whose arguments come in two pieces."""
    entry = {"index": 0, "id": "a", "function": {"name": name, "arguments": arguments[:2]}}
    pieces = [{"tool_calls": [entry]}, {"tool_calls": [{"index": 0, "function": {"arguments": arguments[2:]}}]}]
    deltas = [message] if message else pieces
    return [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas] + [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop" if message else "tool_calls"}]}
    ]


def test_the_gateway_has_the_same_settings() -> None:
    assert gateway.Healing is Healing
    assert Healing().repair == "safe"


@pytest.mark.parametrize("raw", DAMAGED)
@pytest.mark.parametrize("repair", ["off", "safe", "guess"])
def test_the_same_fault_has_the_same_repair_everywhere(raw: str, repair: Any) -> None:
    healing = Healing(repair=repair)
    is_repaired = repair == "guess" or repair == DAMAGED[raw]
    turn = model(Reply(call("weather", raw)), healing=healing).complete("hi", tools=[weather])
    decoded = collect(decode(chunks(raw), "openai-chat", [weather], healing=healing))
    accumulator = StreamingToolCallAccumulator([weather], healing=healing)
    for chunk in chunks(raw):
        accumulator.add_chunk(chunk)
    printed = decoded_by_command(chunks(raw), "--tools", "weather", "--repair", repair)
    found = [turn.tool_calls, decoded.tool_calls, accumulator.get_complete_tool_calls(), printed]
    assert [[one.arguments for one in calls] for calls in found] == [[ARGUMENTS] if is_repaired else []] * 4
    assert all(one.quirks for calls in found for one in calls), "the event says that it was repaired"


def decoded_by_command(sent: Sequence[Any], *options: str) -> list[ToolCall]:
    body = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in sent) + b"data: [DONE]\n\n"
    result = CliRunner().invoke(command, ["decode", "--wire", "openai-chat", "--json", *options, "-"], input=body)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    calls = [event for event in events if event["type"] == "tool_call"]
    return [ToolCall(one["id"], one["name"], one["arguments"], quirks=tuple(one.get("quirks", ()))) for one in calls]


@pytest.mark.parametrize("wire", TEXT_WIRES)
@pytest.mark.parametrize("streaming", [True, False])
def test_an_empty_object_before_the_arguments_is_one_call_on_every_wire(wire: Any, streaming: bool) -> None:
    turn = model(Reply(call("weather", '{}{"city": "Rome"}')), wire=wire, healing=Healing()).complete(
        "hi", tools=[weather], streaming=streaming
    )
    assert [(one.arguments, one.quirks) for one in turn.tool_calls] == [(ARGUMENTS, (180,))]
    assert turn.finish_reason == "tool_calls"


def test_a_call_without_arguments_stays_one() -> None:
    turn = model(Reply(call("weather", "{}")), healing=Healing()).complete("hi", tools=[weather])
    assert [(one.arguments, one.arguments_raw, one.quirks) for one in turn.tool_calls] == [({}, "{}", ())]


@pytest.mark.parametrize("raw", DAMAGED)
def test_by_default_nothing_is_repaired(raw: str) -> None:
    turn = model(Reply(call("weather", raw))).complete("hi", tools=[weather])
    assert not turn.tool_calls
    accumulator = StreamingToolCallAccumulator([weather])
    for chunk in chunks(raw):
        accumulator.add_chunk(chunk)
    assert not accumulator.get_complete_tool_calls()
    assert not decoded_by_command(chunks(raw))
    assert not run_of(Agent(model(Reply(call("weather", raw)), "Done."), [weather]))


def run_of(agent: Agent[Any, Any]) -> list[str]:
    """What the tools returned."""
    results = [result for message in agent.run("hi").messages for result in message.results]
    return [result.text for result in results if not result.is_error]


@pytest.mark.parametrize("raw", DAMAGED)
def test_an_agent_runs_repaired_calls_if_it_was_asked_to(raw: str) -> None:
    def agent(**options: Any) -> Agent[Any, Any]:
        return Agent(model(Reply(call("weather", raw)), "Done."), [weather], **options)

    [ran] = run_of(agent(run_repaired=True))
    assert "sunny in Rome" in ran
    assert run_of(agent(healing=Healing(repair="guess"))) == ["sunny in Rome"]
    assert bool(run_of(agent(healing=Healing()))) == (DAMAGED[raw] == "safe")


def test_an_agent_runs_only_the_faults_that_it_names() -> None:
    faults: list[Fault] = ["duplicated"]
    assert not run_of(Agent(model(Reply(call("weather", '{"city": "Rome",}')), "x"), [weather], run_repaired=faults))
    faults = ["malformed"]
    assert run_of(Agent(model(Reply(call("weather", '{"city": "Rome",}')), "x"), [weather], run_repaired=faults))


IN_TEXT = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def test_calls_in_the_text_are_found_in_all_of_them() -> None:
    turn = model(Reply(IN_TEXT), healing=Healing()).complete("hi", tools=[weather])
    decoded = collect(decode(chunks("", content=IN_TEXT), "openai-chat", [weather], healing=Healing()))
    printed = decoded_by_command(chunks("", content=IN_TEXT), "--rescue", "--tools", "weather")
    assert [[one.arguments for one in calls] for calls in (turn.tool_calls, decoded.tool_calls, printed)] == [
        [ARGUMENTS]
    ] * 3
    assert turn.finish_reason == decoded.finish_reason == "tool_calls"


def test_a_quoted_call_is_not_found() -> None:
    question = f"What does this mean? {IN_TEXT}"
    turn = model(Reply(IN_TEXT), healing=Healing()).complete(question, tools=[weather])
    assert not turn.tool_calls
    assert turn.text == IN_TEXT
    decoded = decode(
        chunks("", content=IN_TEXT), "openai-chat", [weather], healing=Healing(), messages=[user(question)]
    )
    assert not collect(decoded).tool_calls


def test_a_call_in_the_text_of_an_agent_with_healing_asks_for_approval() -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    text = '<tool_call>\n{"name": "pay", "arguments": {"amount": 1}}\n</tool_call>'
    for own, healing in ((None, Healing()), (Healing(), None)):
        run = Agent(model(Reply(text), "Done.", healing=own), [pay], healing=healing).run("hi")
        assert run.reason == "paused"


@pytest.mark.parametrize(
    ("reasoning", "is_call"),
    [
        (f"I need the weather. {IN_TEXT}", True),
        (f"I need the weather. {IN_TEXT}\n", True),
        (f"I could call {IN_TEXT} but I will not.", False),
        ("Nothing.", False),
        ('I could say {"name": "weather", "arguments": {"city": "Rome"}}', False),
    ],
)
def test_a_call_at_the_end_of_reasoning_is_a_call_if_it_was_asked_for(reasoning: str, is_call: bool) -> None:
    def turn(healing: Healing, *more: Any) -> Any:
        return model(Reply(think(reasoning), *more), healing=healing).complete("hi", tools=[weather])

    found = turn(Healing(reasoning_calls=True))
    assert [(one.arguments, one.quirks) for one in found.tool_calls] == ([(ARGUMENTS, (181,))] if is_call else [])
    assert found.finish_reason == ("tool_calls" if is_call else "stop")
    assert found.reasoning == reasoning
    assert not turn(Healing()).tool_calls
    assert not turn(Healing(reasoning_calls=True), "An answer.").tool_calls
    assert not turn(Healing(reasoning_calls=True, rescue=False)).tool_calls


def test_a_quoted_call_at_the_end_of_reasoning_is_not_a_call() -> None:
    healing = Healing(reasoning_calls=True)
    turn = model(Reply(think(IN_TEXT)), healing=healing).complete(f"What is {IN_TEXT}?", tools=[weather])
    assert not turn.tool_calls


def test_cut_reasoning_with_a_call_is_not_a_call() -> None:
    for finish in ("length", "content_filter"):
        reply = Reply(think(IN_TEXT), finish=finish)
        assert not model(reply, healing=Healing(reasoning_calls=True)).complete("hi", tools=[weather]).tool_calls


def test_without_allowed_calls_a_call_in_the_text_is_text() -> None:
    turn = model(Reply(IN_TEXT), healing=Healing()).complete("hi", tools=[weather], tool_choice="none")
    assert turn.text == IN_TEXT


def test_a_name_of_a_template_is_that_of_the_tool() -> None:
    accumulator = StreamingToolCallAccumulator([weather], healing=Healing())
    for chunk in chunks('{"city": "Rome"}', "functions.weather"):
        accumulator.add_chunk(chunk)
    assert [(one.name, one.quirks) for one in accumulator.get_complete_tool_calls()] == [("weather", (174,))]


def test_an_accumulator_repairs_nothing_before_the_end() -> None:
    accumulator = StreamingToolCallAccumulator([weather], healing=Healing())
    for chunk in chunks('{"city": "Rome"}}')[:-1]:
        accumulator.add_chunk(chunk)
        assert not accumulator.has_complete_tool_calls()


def test_healing_and_its_shorthands_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="rescue is a part of healing"):
        model("x", healing=Healing()).complete("hi", tools=[weather], rescue=True)
    with pytest.raises(UsageError, match="rescue is a part of healing"):
        Agent(model("x"), [weather], rescue=True, healing=Healing())
    with pytest.raises(UsageError, match="run_repaired is a part of healing"):
        Agent(model("x"), [weather], run_repaired=True, healing=Healing())
    with pytest.raises(UsageError, match="native calls"):
        Agent(model("x"), [weather], calls="hermes", healing=Healing())
    with pytest.raises(UsageError, match=r"must be a penstock\.Healing"):
        Model("openai:gpt-5", healing=True)  # type: ignore[arg-type]


def test_the_command_needs_tools_for_a_rescue() -> None:
    result = CliRunner().invoke(command, ["decode", "--rescue", "-"], input=b"")
    assert result.exit_code == 2
    assert "--rescue needs --tools" in result.output


def test_a_failed_response_stays_failed() -> None:
    raw = Raw(b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n')
    events = [*model(raw, healing=Healing()).stream("hi", tools=[weather])]
    assert collect(events).finish_reason == "cut"
    assert [event.text for event in events if isinstance(event, Text)] == ["Hi"]
