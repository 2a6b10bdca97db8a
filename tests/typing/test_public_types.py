"""The types of the public API: mypy and pyright check this file (`make check`), and it runs as a test.

A line with `type: ignore` must be an error for both: an ignore that is not needed is an error itself.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import msgspec
import pytest

import penstock
from penstock import (
    Agent,
    AgentRun,
    AgentStreamer,
    AsyncAgentRun,
    AsyncStream,
    Context,
    Decoder,
    History,
    Message,
    Model,
    ModelOptions,
    Problem,
    ProviderName,
    Repaired,
    RequestOptions,
    RunResult,
    Stream,
    StreamChunk,
    StreamEvent,
    Text,
    Tool,
    ToolCall,
    ToolEnd,
    Turn,
    UnknownOptionError,
    UnknownProviderError,
    UnknownWireError,
    Usage,
    UsageError,
    WireName,
)
from penstock.events import FinishReason
from penstock.run.events import EndReason
from penstock.testing import Reply, Scripted, always, call

BODY = b'data: {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def scripted(*script: Reply | str) -> Model:
    return Model("openai:gpt-5", via=Scripted(list(script)))


@penstock.tool(read_only=True, timeout=10)
def weather(city: str, days: int = 1) -> dict[str, int]:
    """The weather of a city."""
    return {city: days}


@penstock.tool
async def look(context: Context[int], where: str) -> str:
    """Look somewhere."""
    return where * context.deps


def test_tools_keep_the_signature_of_their_function() -> None:
    assert_type(weather("Rome", days=2), dict[str, int])
    tools: list[Tool[..., Any]] = [weather, look, penstock.as_tool({"name": "f"}, lambda: 1)]
    assert [tool.name for tool in tools] == ["weather", "look", "f"]
    with pytest.raises(TypeError):
        weather(town="Rome")  # type: ignore[call-arg]
    with pytest.raises(UnknownOptionError):
        penstock.tool(readonly=True)  # type: ignore[call-overload]


def test_decoding() -> None:
    decoder = Decoder("openai-chat")
    assert_type(decoder.feed(BODY), list[StreamChunk])
    assert_type(decoder.close(), list[StreamChunk])
    chunks = penstock.decode(BODY, wire="openai-chat")
    assert_type(chunks, Iterator[StreamChunk])
    assert_type(penstock.collect(chunks), Turn)
    assert_type(penstock.classify([Text(0, "Hi.")]), Turn)
    assert_type(penstock.extract([Text(0, "Hi.")]), list[ToolCall])

    async def pieces() -> AsyncIterator[bytes]:
        yield BODY

    assert_type(penstock.decode(pieces(), "openai-chat"), AsyncIterator[StreamChunk])
    with pytest.raises(UnknownWireError):
        Decoder("openai_chat")  # type: ignore[arg-type]
    with pytest.raises(UnknownWireError):
        penstock.decode(BODY, wire="opnai")  # type: ignore[call-overload]


def test_a_stream() -> None:
    with scripted("Hi.").stream("Hello.", tools=[weather], temperature=0.5, reasoning="low") as stream:
        assert_type(stream, Stream)
        for chunk in stream:
            assert_type(chunk, StreamChunk)
            match chunk:
                case Text(text=text):
                    assert_type(text, str)
                case ToolCall():
                    assert_type(chunk.arguments, dict[str, Any])
                case _:
                    pass
    assert_type(stream.turn, Turn)
    assert_type(stream.text, str)
    assert_type(stream.tool_calls, list[ToolCall])
    assert_type(stream.finish_reason, FinishReason | None)
    assert_type(stream.usage, Usage | None)
    assert_type(scripted("Hi.").stream("Hello.").batches(), Iterator[list[StreamChunk]])


async def read_async(model: Model) -> Turn:
    async with model.astream("Hello.") as stream:
        assert_type(stream, AsyncStream)
        async for chunk in stream:
            assert_type(chunk, StreamChunk)
    assert_type(await model.acomplete("Hello."), Turn)
    assert_type(await model.aclose(), None)
    assert_type(await penstock.aclose(), None)
    assert_type(await model.astream_text_and_classify("Hello.", seed=1), Turn)
    return stream.turn


def test_a_model() -> None:
    model = Model("openai:gpt-5", via=Scripted(always("Hi.")), max_tokens=10, stop=["."])
    assert_type(model.wire, WireName)
    assert_type(model.complete("Hello.", system_prompt="Be brief.", parallel=False), Turn)
    assert_type(model.stream_text_and_classify([{"role": "user", "content": "Hello."}]), Turn)
    assert asyncio.run(read_async(model)).text == "Hi."
    assert_type(model.close(), None)
    assert_type(penstock.close(), None)
    options: ModelOptions = {"temperature": 0}
    request: RequestOptions = {"tool_choice": "none"}
    assert model.complete("Hello.", **request).text == model.complete("Hello.", **options).text


async def fresh_key() -> str:
    return "key"


def test_the_key_of_a_model_may_be_a_function() -> None:
    assert_type(Model("openai:gpt-5", api_key=lambda: "key"), Model)
    assert_type(Model("openai:gpt-5", api_key=fresh_key), Model)


def test_a_misspelt_option_of_a_model_is_an_error() -> None:
    model = scripted("Hi.")
    with pytest.raises(UnknownOptionError):
        Model("openai:gpt-5", temprature=1)  # type: ignore[call-arg]
    with pytest.raises(UnknownOptionError):
        model.stream("Hello.", temprature=1)  # type: ignore[call-overload]
    with pytest.raises(UnknownOptionError):
        model.astream("Hello.", max_token=1)  # type: ignore[call-overload]
    with pytest.raises(UnknownOptionError):
        model.complete("Hello.", system="Be brief.")  # type: ignore[call-overload]
    with pytest.raises(UnknownWireError):
        Model("openai:gpt-5", wire="openai_chat")  # type: ignore[arg-type]
    with pytest.raises(penstock.UsageError, match="temperature"):
        Model("openai:gpt-5", temperature="hot")  # type: ignore[arg-type]


def test_an_agent() -> None:
    agent = Agent(scripted(Reply(call("weather", {"city": "Rome"})), "Sunny.", "Again."), [weather], temperature=0)
    with agent.stream("Hello.") as run:
        assert_type(run, AgentRun)
        for event in run:
            assert_type(event, StreamEvent)
            if isinstance(event, ToolEnd):
                assert_type(event.name, str)
    assert_type(run.output, str)
    assert_type(run.finish_reason, EndReason | None)
    assert_type(run.why, str)
    result = agent.run("Hello.")
    assert_type(result, RunResult)
    assert_type(result.usage, Usage)
    assert (run.output, result.output) == ("Sunny.", "Again.")


async def run_async(agent: Agent) -> str:
    async with agent.astream("Hello.") as run:
        assert_type(run, AsyncAgentRun)
        async for event in run:
            assert_type(event, StreamEvent)
    assert_type(await agent.arun("Hello."), RunResult)
    return run.output


def test_the_histories_of_a_run_and_of_its_result_have_one_type() -> None:
    agent = Agent(scripted("Hi.", "Hi again."))
    with agent.stream("Hello.") as run:
        list(run)
    assert_type(run.messages, History)
    result = agent.run("Again.", messages=run.messages)
    assert_type(result.messages, History)
    assert result.messages[:2] == run.messages


class Deps:
    user = "Ada"


def test_an_agent_knows_the_type_of_its_deps() -> None:
    agent = Agent[Deps](scripted("Hi.", "Hi."))
    assert_type(agent.run("Hello.", deps=Deps()), RunResult)
    agent.run("Hello.", deps="Ada")  # type: ignore[call-overload]
    assert_type(agent.with_model("sim:fast"), Agent[Deps])


def test_an_agent_in_async_code() -> None:
    assert asyncio.run(run_async(Agent(scripted("Hi.", "Hi.")))) == "Hi."


def test_a_misspelt_option_of_an_agent_is_an_error() -> None:
    with pytest.raises(UnknownOptionError):
        Agent("sim:fast", temprature=1)  # type: ignore[call-overload]
    with pytest.raises(UnknownOptionError):
        AgentStreamer("sim:fast", on_txt=print)  # type: ignore[call-arg]
    with pytest.raises(penstock.UsageError):
        Agent("sim:fast", approvals="never")  # type: ignore[call-overload]


def test_histories() -> None:
    history = penstock.as_messages("Hello.")
    assert_type(history, list[Message])
    assert_type(penstock.check(history, "anthropic"), list[Problem])
    assert_type(penstock.repair(history, provider="google"), Repaired)
    names: list[ProviderName] = ["openai", "gemini"]
    assert [penstock.check(history, name) for name in names] == [[], []]
    with pytest.raises(UnknownProviderError):
        penstock.check(history, "antropic")  # type: ignore[arg-type]


class City(msgspec.Struct):
    name: str


def test_structured_output_has_its_type() -> None:
    rome = '{"name": "Rome"}'
    agent = Agent(scripted(rome, rome), [weather], output=City)
    assert_type(agent, Agent[Any, City])
    with agent.stream("Go.") as run:
        assert_type(run, AgentRun[City])
        for event in run:
            assert_type(event, StreamEvent)
    assert_type(run.output, City)
    assert_type(agent.run("Go."), RunResult[City])
    assert_type(Agent(scripted("Hi.")).run("Go.").output, str)
    assert_type(Agent(scripted('{"value": []}'), output=list[City]).run("Go.").output, list[City])
    either: Agent[int, City | int] = Agent(scripted('{"value": 3}'), output=City | int)
    assert_type(either.run("Go.", deps=1).output, City | int)
    schema: Agent[None, dict[str, Any]] = Agent(scripted("{}"), output={"type": "object"})
    assert_type(schema.run("Go.").output, dict[str, Any])
    with pytest.raises(UsageError):
        Agent(scripted("Hi."), output="City")


def test_structured_output_of_a_model_has_its_type() -> None:
    rome = '{"name": "Rome"}'
    model = scripted(rome, rome, rome)
    assert_type(model.complete("Go.", output=City), Turn[City])
    with model.stream("Go.", output=City, temperature=0.5) as stream:
        assert_type(stream, Stream[City])
        for chunk in stream:
            assert_type(chunk, StreamChunk)
    assert_type(stream.output, City)

    async def read() -> City:
        async with model.astream("Go.", output=City) as stream:
            assert_type(stream, AsyncStream[City])
            async for _ in stream:
                pass
        return stream.output

    assert asyncio.run(read()).name == "Rome"


def test_agents_with_structured_output_are_served_and_driven() -> None:
    plain: Agent[None] = Agent(scripted("Hi."), name="plain")
    cities: Agent[None, City] = Agent(scripted("{}"), name="cities", output=City)
    assert_type(penstock.serve.app([plain, cities]), penstock.serve.ServeApp)
    assert_type(penstock.serve.app(cities), penstock.serve.ServeApp)
    assert_type(penstock.Runs(penstock.log.memory(), {"plain": plain, "cities": cities}), penstock.Runs)
