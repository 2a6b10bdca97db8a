"""Common mistakes of people who know other libraries: each error suggests what to use."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest

import penstock
from penstock import StreamChunk
from penstock.declarations import read_declarations
from penstock.testing import Reply, Scripted, call
from tests.cases import each


def ask(**options: Any) -> Any:
    model = penstock.Model("openai-compatible:m", via=Scripted(["Hi."]))
    return model.stream_text_and_classify("Hi", **options)


def agent(**options: Any) -> penstock.Agent:
    return penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(["Hi."])), **options)


@pytest.mark.parametrize(
    ("create", "option", "suggestion"),
    [
        (ask, "system", "system_prompt"),
        (ask, "instructions", "system_prompt"),
        (ask, "temprature", "temperature"),
        (ask, "tool", "tools"),
        (ask, "max_completion_tokens", "max_tokens"),
        (ask, "extra_body", "extra"),
        (ask, "parallel_tool_calls", "parallel"),
        (ask, "tool_schemas", "tools"),
        (lambda **options: penstock.Model("sim:fast", **options), "api_base", "base_url"),
        (lambda **options: agent().run("Hi", **options), "history", "messages"),
        (agent, "system", "instructions"),
        (agent, "system_prompt", "instructions"),
        (agent, "max_steps", "limits"),
        (agent, "max_turns", "limits"),
        (agent, "max_retries", "retries"),
        (agent, "tool", "tools"),
        (agent, "mcp_servers", "tools"),
        (agent, "hooks", "before_step"),
        (agent, "middleware", "before_step"),
        (agent, "output_guardrails", "guard"),
        (agent, "response_format", "output"),
        (lambda **options: agent().run("Hi", **options), "context", "deps"),
    ],
)
def test_an_option_named_as_in_other_libraries_gets_a_suggestion(create: Any, option: str, suggestion: str) -> None:
    with pytest.raises(penstock.UnknownOptionError, match=f"did you mean '{suggestion}'") as raised:
        create(**{option: 1})
    assert (raised.value.name, suggestion in raised.value.known) == (option, True)
    assert str(raised.value).endswith(f"did you mean '{suggestion}'?")
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)


@pytest.mark.parametrize(("option", "name"), [("tool_schemas", "tools"), ("parallel_tool_calls", "parallel")])
def test_options_of_tools_are_named_wherever_they_are_passed(option: str, name: str) -> None:
    makers: list[Any] = [
        penstock.Agent,
        penstock.Model,
        penstock.Model("sim:fast").stream,
        penstock.Agent("sim:fast").run,
    ]
    for refuse in makers:
        with pytest.raises(penstock.UnknownOptionError, match=rf"'{option}'.*\W{name}\W"):
            refuse("sim:fast", **{option: []})


def test_a_script_in_place_of_a_model_is_named_with_where_it_goes() -> None:
    script: Any = Scripted(["Hi."])
    with pytest.raises(
        penstock.UsageError,
        match=r"a Scripted replaces the connection to a provider.*use Model\('provider:model', via=…\)",
    ):
        penstock.Agent(script)


def test_an_agent_as_a_tool_is_told_how() -> None:
    with pytest.raises(penstock.UsageError, match=r"cannot be a tool: use agent.as_tool\(name, description\)"):
        penstock.Agent("sim:fast", tools=[agent()])


def test_an_unknown_option_without_a_similar_name_says_where_all_are_listed() -> None:
    with pytest.raises(penstock.UnknownOptionError) as raised:
        ask(zzz=1)
    assert str(raised.value) == (
        "a request has no option 'zzz'; help(penstock.Model.stream) lists all; "
        "options of a single provider go into extra"
    )


def test_a_stream_says_what_it_is() -> None:
    with penstock.Model("sim:fast").stream("Hi.") as stream:
        assert repr(stream) == "<Stream from sim://penstock/chat/completions: not read yet>"
        list(stream)
        assert repr(stream).endswith(": read>")


@each("method", ["run", "arun", "stream", "astream"])
@each(
    ("option", "advice"),
    [
        ("calls", "; pass it to the agent: Agent(..., calls=...)"),
        ("system_prompt", ", did you mean 'instructions'?"),
        ("temprature", ", did you mean 'temperature'?"),
        ("message_history", ", did you mean 'messages'?"),
        ("run_ids", ", did you mean 'run_id'?"),
        ("zzz", "; help(penstock.Agent.run) lists all"),
    ],
)
def test_an_option_of_the_agent_is_not_one_of_a_run(method: str, option: str, advice: str) -> None:
    start = getattr(agent(), method)
    with pytest.raises(penstock.UnknownOptionError) as raised:
        asyncio.run(start("Hi", **{option: 1}))  # only `arun` gets as far as `asyncio.run`
    assert str(raised.value) == f"a run has no option {option!r}{advice}"
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_an_option_of_resume_is_suggested_as_one_of_its_own() -> None:
    with pytest.raises(penstock.UnknownOptionError, match="a run has no option 'keys', did you mean 'key'\\?"):
        agent().resume(b"", keys="secret")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: penstock.Model("zzz:m"), "unknown provider 'zzz'; the command `penstock models` lists all"),
        (lambda: penstock.Model("opnai:m"), "unknown provider 'opnai', did you mean 'openai'?"),
        (lambda: penstock.TextParser("zzz"), "unknown dialect 'zzz'; use 'xml', which any model can write"),
        (
            lambda: penstock.Decoder("openai_chat"),  # type: ignore[arg-type]
            "unknown wire 'openai_chat', did you mean 'openai-chat'?",
        ),
        (
            lambda: penstock.Decoder("zzz"),  # type: ignore[arg-type]
            "unknown wire 'zzz'; use one of: anthropic, bedrock, cohere, gemini, gemini-interactions, ollama, "
            "openai-chat, openai-responses, mistral",
        ),
    ],
)
def test_an_unknown_name_gets_one_suggestion_or_a_short_list(wrong: Any, message: str) -> None:
    with pytest.raises(penstock.UnknownNameError) as raised:
        wrong()
    assert str(raised.value) == message
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (type(raised.value), message)


def test_tools_that_are_not_a_list_are_refused() -> None:
    def weather(city: str) -> str:
        """The weather."""
        return city

    tools: list[Any] = [weather, penstock.tool(weather), "weather", {"name": "weather"}, 7]
    for wrong in tools:
        with pytest.raises(penstock.UsageError, match=f"tools must be a list of tools, not an? {type(wrong).__name__}"):
            penstock.Model("sim:fast").complete("x", tools=wrong)


def test_a_missing_key_survives_pickling() -> None:
    error = penstock.MissingKeyError("openai", ("OPENAI_API_KEY",))
    again = pickle.loads(pickle.dumps(error))
    assert (
        str(again)
        == str(error)
        == ("no API key for openai: set OPENAI_API_KEY in the environment, or pass Model(..., api_key=...)")
    )


@pytest.mark.parametrize("nothing", ["", [], ()])
def test_a_request_without_messages_is_refused(nothing: Any) -> None:
    model = penstock.Model("openai-compatible:m", via=Scripted(["Hi."]))
    with pytest.raises(penstock.UsageError, match="nothing to answer"):
        model.stream(nothing, system_prompt="Be brief.")
    model.ask(nothing, extra={"previous_response_id": "r1"})  # it refers to the messages


def test_a_tool_end_names_its_tool() -> None:
    @penstock.tool
    def look() -> str:
        """Look."""
        return "seen"

    model = penstock.Model("openai-compatible:m", via=Scripted([Reply(call("look", id="c1")), "Done."]))
    with penstock.Agent(model, [look]).stream("Go.") as run:
        ends = [(event.call_id, event.name, event.result.text) for event in run if isinstance(event, penstock.ToolEnd)]
    assert ends == [("c1", "look", "seen")]
    match penstock.ToolEnd("1.0", penstock.ToolResult("c1", "look", ())):
        case penstock.ToolEnd(name=name):
            assert name == "look"


def test_async_events_are_refused_by_sync_functions() -> None:
    async def events() -> AsyncIterator[StreamChunk]:
        yield penstock.Text(0, "Hi.")

    for fold in (penstock.collect, penstock.classify, penstock.extract):
        with pytest.raises(penstock.UsageError, match="await aconsume"):
            fold(events())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"nme": 1},
        {"type": "function", "function": {}},
        {"type": "function"},
        {"type": 5},
        {"description": "Looks."},
        {"type": "function", "function": {"parameters": {}}},
    ],
)
def test_an_empty_declaration_is_refused(wrong: Any) -> None:
    with pytest.raises(penstock.UsageError, match="is not a tool declaration"):
        read_declarations([wrong])


@pytest.mark.parametrize(
    "hosted",
    [
        {"type": "web_search"},
        {"type": "web_search_20250305", "name": "web_search"},
        {"googleSearch": {}},
        {"google_search": {}, "url_context": {}},
        {"codeExecution": {}},
        {"type": "mcp", "server_label": "x"},
        {"systemTool": {"name": "nova_grounding"}},
        {"cachePoint": {"type": "default"}},
    ],
)
def test_the_declaration_of_a_hosted_tool_is_kept_unchanged(hosted: Any) -> None:
    [found] = read_declarations([hosted])
    assert found.hosted == hosted


def test_two_tools_with_one_name_are_refused() -> None:
    with pytest.raises(penstock.UsageError, match="two tools have the name 'look'; rename one of them"):
        ask(tools=["look", {"name": "look"}])
    ask(tools=[{"type": "web_search"}, {"type": "web_search"}])  # hosted tools are the provider's


def test_a_schema_that_is_not_a_dict_is_refused() -> None:
    with pytest.raises(penstock.UsageError, match="the schema of the tool 'look' must be a dict, not a str"):
        read_declarations([{"name": "look", "parameters": "city: str"}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        ({"top_p": True}, "top_p must be a number, not True"),
        ({"max_tokens": "many"}, "max_tokens must be a whole number, not 'many'"),
        ({"seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"stop": 3}, "stop must be a string or a list of strings, not 3"),
        ({"stop": ["a", 3]}, "stop must be a string or a list of strings, not ['a', 3]"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_wherever_it_is_passed(options: Any, message: str) -> None:
    for refuse in (agent, ask, lambda **options: penstock.Model("sim:fast", **options)):
        with pytest.raises(penstock.UsageError) as raised:
            refuse(**options)
        assert str(raised.value) == message
    ask(temperature=1, max_tokens=None, stop=("a", "b"), seed=7)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: penstock.Decoder("openai-chat").feed("data: {}"), "feed takes bytes, not a str"),  # type: ignore[arg-type]
        (lambda: penstock.Decoder("ollama").feed({"message": 1}), "feed takes bytes, not a dict"),  # type: ignore[arg-type]
        (lambda: penstock.TextParser("hermes").feed(None), "reads text, not None: skip chunks without text"),  # type: ignore[arg-type]
        (lambda: penstock.StreamingXMLParser().feed(b"Hi"), "reads text, not a bytes"),  # type: ignore[arg-type]
        (lambda: penstock.collect(3), "expected events, not an int"),  # type: ignore[arg-type]
        (lambda: penstock.consume([], on_message="print"), "on_message must be a function, not 'print'"),  # type: ignore[arg-type]
        (lambda: asyncio.run(penstock.aconsume(no_events(), on_error=3)), "on_error must be a function, not 3"),  # type: ignore[arg-type]
        (lambda: penstock.Message("usr"), "not 'usr'"),  # type: ignore[arg-type]
        (lambda: penstock.Message("user", "Hi."), r"to write text, use user\("),  # type: ignore[arg-type]
        (lambda: penstock.Model("sim:fast", via=Scripted), r"such as penstock.testing.Scripted\(\[...\]\), not"),  # type: ignore[arg-type]
        (lambda: penstock.AgentStreamer("guide", penstock.Model("sim:fast")), r"Agent\(model, tools, name='guide'\)"),  # type: ignore[arg-type]
        (lambda: penstock.AgentStreamer(tool_executor=print), r"agent.process_stream\(tokens, tool_executor\)"),  # type: ignore[call-arg]
        (lambda: asyncio.run(penstock.AgentStreamer().process_stream([], 3)), "the executor must be a function"),  # type: ignore[arg-type]
        (lambda: Scripted(3), "a script must be a reply, a list of replies or a function, not an int"),  # type: ignore[arg-type]
        (lambda: call("look", 3), "the arguments of look must be a dict or a string, not an int"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_named_with_what_to_pass(wrong: Any, message: str) -> None:
    with pytest.raises(penstock.UsageError, match=message):
        wrong()


async def no_events() -> AsyncIterator[StreamChunk]:
    events: list[StreamChunk] = []
    for event in events:
        yield event
