"""msgflux: typed chunks, the parser of XML in the text, and the agent, row by row."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Literal, Optional, Union, cast  # the samples use them

import pytest
from openai import OpenAI

import penstock
from penstock.adapters import msgflux
from penstock.messages import user
from penstock.testing import Loopback, Raw, Reply, Scripted, Step, call, fail, frames, say, think, wait
from penstock.wires import wire_name
from tests.seeds.documents import block_with, indented, needs_documents, row, run_sample
from tests.seeds.shapes import chunk, piece, tool

NAMESPACE = "antml" + ":"
NOT_FOLLOWED = "where-the-documents-are-not-followed"


def block(*invokes: str) -> str:
    return "<function_calls>\n" + "".join(invokes) + "</function_calls>"


def invoke(name: str, **values: str) -> str:
    parameters = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in values.items())
    return f'<invoke name="{name}">\n{parameters}</invoke>\n'


def namespaced(text: str) -> str:
    """The text with the namespace of the document on its tags."""
    return re.sub(r"<(/?)(?=function_calls|invoke|parameter)", rf"<\1{NAMESPACE}", text)


READ = block(invoke("Read", file_path="/a/file"))
ANSWER = "I read it.\n\n" + namespaced(READ) + "\nDone."


def tokenized(text: str) -> list[str]:
    """The text in pieces as a model sends them: words with the space before them, and single signs."""
    return re.findall(r" ?\w+|</|\">|=\"|\W", text)


TOKENS = tokenized(ANSWER)


def parsed(tokens: Iterable[str], tools: list[Any] | None = None) -> tuple[str, list[dict[str, Any]]]:
    """All text and all tools that the parser of the adapter returns."""
    parser = msgflux.StreamingXMLParser(tools)
    results = [*map(parser.feed, tokens), parser.close()]
    return "".join(text for text, _ in results), [tool for _, tools in results for tool in tools]


async def as_async(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def model(*steps: Step | str, name: str = "openai:gpt-5", wire: str = "openai-chat") -> penstock.Model:
    script = Scripted(steps)
    return penstock.Model(name, wire=wire_name(wire), via=script, retries=penstock.Retries(attempts=1))


def chat(*steps: Step | str, **options: Any) -> msgflux.ChatCompletionModel:
    return msgflux.ChatCompletionModel(model(*steps, **options))


def weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {"sky": f"clear in {city}"}


CALL = block(invoke("weather", city="Rome"))
STEPS = Reply("I look. ", CALL, " One moment."), "It is sunny."


def streamer(*steps: Step | str, **options: Any) -> msgflux.AgentStreamer:
    quiet = {"on_text": lambda text: None}
    return msgflux.AgentStreamer("nome", model(*steps), tools=[weather], **{**quiet, **options})


# -- the samples -------------------------------------------------------------------------------------------------------


TYPING = {
    "Any": Any, "Callable": Callable, "Dict": dict, "Iterator": Iterator, "AsyncIterator": AsyncIterator,
    "List": list, "Literal": Literal, "Mapping": Mapping, "Optional": Optional, "Union": Union,
    "dataclass": dataclasses.dataclass, "Message": penstock.Message,
}  # fmt: skip
"""The names that the samples of the document use without importing them."""


def sample(words: str, **names: Any) -> dict[str, Any]:
    """Runs the only sample with these words, and returns its names."""
    code = block_with(indented(0), words)
    return asyncio.run(run_sample(code, {**TYPING, **names}, "from enum import Enum, auto"))


@needs_documents
def test_the_states_of_the_document_are_those_of_the_adapter() -> None:
    theirs = sample("class ParserState(Enum)")["ParserState"]
    assert [state.name for state in theirs] == [state.name for state in msgflux.ParserState]


@needs_documents
def test_the_types_of_the_document_are_those_of_the_adapter() -> None:
    names = {**sample("class ToolCallComplete:"), **sample("class StreamEvent:")}
    for name in ("StreamChunk", "ToolCallBuffer", "ToolCallComplete", "StreamEvent"):
        theirs, ours = names[name], getattr(msgflux, name)
        assert [(f.name, f.default) for f in dataclasses.fields(theirs)] == [
            (f.name, f.default) for f in dataclasses.fields(ours)
        ], name
    for text in ("", '{"a": 1}'):
        theirs, ours = names["ToolCallComplete"]("i", "n", text), msgflux.ToolCallComplete("i", "n", text)
        assert theirs.get_params() == ours.get_params()


@needs_documents
def test_the_parser_of_the_document_has_the_interface_of_ours_and_never_finds_a_call() -> None:
    theirs: Any = sample("class StreamingXMLParser:", ParserState=msgflux.ParserState)["StreamingXMLParser"]
    ours: Any = msgflux.StreamingXMLParser
    assert (theirs.TOOL_BLOCK_START, theirs.TOOL_BLOCK_END) == (ours.TOOL_BLOCK_START, ours.TOOL_BLOCK_END)
    for text in ("a < b", "1 <2", "<b>bold</b> text"):
        assert theirs().feed(text) == ours().feed(text) == (text, [])
    assert theirs().feed(ANSWER) == ("I read it.\n\n", [])  # its test for the closing tag never matches
    assert parsed([ANSWER])[1]


@needs_documents
def test_the_agent_streamer_of_the_document_runs_over_our_parser() -> None:
    """The class of the document, with our parser; only its method that takes the result is added."""
    names = sample("def __init__(self, tool_executor, on_text=None)", StreamingXMLParser=msgflux.StreamingXMLParser)
    shown: list[str] = []
    injected: list[tuple[str, Any]] = []

    class AgentStreamer(names["AgentStreamer"]):  # type: ignore[valid-type,misc]
        async def _inject_result(self, tool: dict[str, Any], result: Any) -> None:
            injected.append((tool["id"], result))

    async def tool_executor(name: str, params: dict[str, Any]) -> str:
        return f"{name} {params['file_path']}"

    asyncio.run(AgentStreamer(tool_executor, on_text=shown.append).process_stream(as_async(list(ANSWER))))
    assert "".join(shown) == "I read it.\n\n\nDone."
    assert injected == [("call_0", "Read /a/file")]

    ours: list[str] = []
    streamer = msgflux.AgentStreamer(tool_executor, ours.append)
    messages = asyncio.run(streamer.process_stream(as_async(list(ANSWER))))
    assert "".join(ours) == "".join(shown)
    assert messages[-1].results[0].text == "Read /a/file"


@needs_documents
def test_the_stream_method_of_the_document_yields_what_the_adapter_yields() -> None:
    """The method of the document over OpenAI's SDK, and ours over the same server: equal chunks."""
    chat_block = SimpleNamespace(
        user=lambda text: {"role": "user", "content": text}, system=lambda text: {"role": "system", "content": text}
    )
    types = {name: getattr(msgflux, name) for name in ("StreamChunk", "ToolCallBuffer", "ToolCallComplete")}
    code = block_with(indented(0), '"stream_options": {"include_usage": True}')
    names = asyncio.run(run_sample(code, {**TYPING, **types, "ChatBlock": chat_block}))
    reply = Reply(
        think("Hm."), say("Let me look."), call("weather", {"city": "Rome"}, id="call_1"), call("now", {}, id="call_2")
    )
    schemas = [tool("weather", city="string"), tool("now")]
    with Loopback([reply, reply]) as server:
        client = OpenAI(base_url=server.base_url("openai-chat"), api_key="-")
        itself = SimpleNamespace(model_id="gpt-5", sampling_run_params={}, parallel_tool_calls=True, client=client)
        theirs = list(names["stream"](itself, "How is Rome?", system_prompt="Be brief.", tool_schemas=schemas))
        url = server.base_url("openai-chat")
        openai = penstock.Model("openai:gpt-5", wire="openai-chat", base_url=url, api_key="-")
        ours_model = msgflux.ChatCompletionModel(openai, parallel_tool_calls=True)
        ours = list(ours_model.stream("How is Rome?", system_prompt="Be brief.", tool_schemas=schemas))
        bodies = [request.body for request in server.requests]
    assert merged(ours)[:-1] == merged(theirs)[:-1]
    assert cast("Any", ours[-1].usage)["total_tokens"] == theirs[-1].usage["total_tokens"]
    keys = ("model", "messages", "stream", "stream_options", "parallel_tool_calls")
    assert [bodies[0][key] for key in keys] == [bodies[1][key] for key in keys]


def merged(chunks: list[msgflux.StreamChunk]) -> list[msgflux.StreamChunk]:
    """The chunks with adjacent pieces of text joined."""
    out: list[msgflux.StreamChunk] = []
    for one in chunks:
        if out and one.type == out[-1].type and one.content is not None:
            out[-1] = msgflux.StreamChunk(one.type, (out[-1].content or "") + one.content)
        else:
            out.append(one)
    return out


@needs_documents
def test_the_tags_of_the_document_are_a_call() -> None:
    """The structure of the tags, in which the document writes words for the brackets."""
    [text] = [one for one in indented(0) if "[OPEN_TAG]" in one]
    for word, sign in {"[OPEN_TAG]": "<", "[CLOSE_TAG]": ">", "[END_TAG]": "</"}.items():
        text = text.replace(word, sign)
    [found] = parsed([text])[1]
    assert (found["name"], list(found["params"])) == ("Read", ["file_path"])
    assert found["params"]["file_path"] in text


@needs_documents
def test_the_abbreviated_events_of_the_document_are_reported_as_cut() -> None:
    """They lack the index and the block that Anthropic sends, so that no call can be made of them."""
    [text] = [one for one in indented(0) if one.startswith("event: content_block_start")]
    turn = penstock.collect(penstock.decode(text.encode(), wire="anthropic"))
    assert turn.tool_calls == []
    assert turn.finish_reason in ("cut", "error")


@needs_documents
def test_the_loop_that_only_aggregates_has_its_calls_after_the_stream() -> None:
    seen: list[Any] = []
    names: dict[str, Any] = {
        "model_output": as_async([1, 2]),
        "delta": SimpleNamespace(tool_calls=True),
        "aggregator": SimpleNamespace(process=seen.append),
        "stream_response": SimpleNamespace(),
    }
    asyncio.run(run_sample(block_with(indented(0), "aggregator.process(...)"), names))
    assert (len(seen), names["stream_response"].data) == (2, names["aggregator"])


@needs_documents
def test_the_behaviour_that_the_document_needs_is_what_a_model_does() -> None:
    """The loop under "needed behaviour", over our events: it yields text at once, and a call when it is complete."""
    code = block_with(indented(0), "if tool_complete:")
    program = "async def loop():\n" + "".join(f"    {line}\n" for line in code.splitlines())
    names: dict[str, Any] = {"StreamChunk": msgflux.StreamChunk}

    async def model_output() -> AsyncIterator[penstock.StreamChunk]:
        """Sets the names that the loop reads."""
        async with model(Reply("Hm.", call("f", {"a": 1}))).astream("?", tools=["f"]) as stream:
            async for event in stream:
                is_call = isinstance(event, penstock.ToolCall)
                names["delta"] = SimpleNamespace(content=getattr(event, "text", None), tool_calls=is_call)
                names["tool_complete"], names["complete_tool"] = is_call, event
                yield event

    names["model_output"] = model_output()
    exec(program, names)

    async def read() -> list[msgflux.StreamChunk]:
        return [one async for one in names["loop"]()]

    chunks = asyncio.run(read())
    assert [one.type for one in merged(chunks)] == ["text", "tool_call"]
    assert cast("Any", chunks[-1].tool_call).arguments == {"a": 1}


@needs_documents
def test_the_class_of_the_second_stage_runs_over_our_model_and_parser() -> None:
    """`AgentStreamer(Agent)` of the document: its loop, with the methods that it expects from `Agent` over ours."""

    class Agent:
        def __init__(self, name: str, model: msgflux.ChatCompletionModel, tools: Any = ()) -> None:
            self.name, self.model = name, model
            self.tools = {tool.__name__: tool for tool in tools}

        def _default_text_handler(self, text: str) -> None:
            shown.append(text)

        def _prepare_task(self, message: Any) -> dict[str, Any]:
            return {"model_state": {"messages": penstock.as_messages(message), "results": []}, "vars": {}}

        def _stream_model(self, model_state: dict[str, Any], _: Any) -> Iterator[msgflux.StreamChunk]:
            results, model_state["results"] = model_state["results"], []
            model_state["messages"] += [user(json.dumps(results))] if results else []
            for one in self.model.stream(model_state["messages"]):
                if one.type == "text":
                    yield one

        def _execute_tool(self, tool: dict[str, Any], model_state: dict[str, Any], _: Any) -> Any:
            result = self.tools[tool["name"]](**tool["params"])
            model_state["results"].append(result)
            return result

        def _should_continue(self, model_state: dict[str, Any]) -> bool:
            return bool(model_state["results"])

    shown: list[str] = []
    seen: list[Any] = []
    code = block_with(indented(0), "class AgentStreamer(Agent):")
    names = {
        **TYPING, "Agent": Agent, "StreamEvent": msgflux.StreamEvent, "StreamingXMLParser": msgflux.StreamingXMLParser,
        "ChatCompletionModel": msgflux.ChatCompletionModel,
    }  # fmt: skip
    theirs: Any = asyncio.run(run_sample(code, names))["AgentStreamer"]
    agent = theirs(
        "nome",
        chat(*STEPS),
        tools=[weather],
        on_tool_start=lambda id, name, params: seen.append((name, params)),
        on_tool_end=lambda id, result: seen.append(result),
    )
    by_document = list(agent.stream("How is Rome?"))
    assert seen == [("weather", {"city": "Rome"}), {"sky": "clear in Rome"}]
    by_adapter = list(streamer(*STEPS).stream("How is Rome?"))
    for kind in ("tool_start", "tool_result"):
        [theirs_one] = [event for event in by_document if event.type == kind]
        [ours_one] = [event for event in by_adapter if event.type == kind]
        assert (theirs_one.tool_result, theirs_one.tool_name or ours_one.tool_name) == (
            ours_one.tool_result, ours_one.tool_name,
        )  # fmt: skip
    texts = ["".join(e.content or "" for e in events if e.type == "text") for events in (by_document, by_adapter)]
    assert texts[0] == texts[1] == "".join(shown) == "I look.  One moment.It is sunny."


# -- structured calls and calls in the text ----------------------------------------------------------------------------


@row(1)
def test_the_blocks_of_anthropic_are_a_call() -> None:
    data = b"".join(frames("anthropic", Reply(call("Read", {"file_path": "/path"}, id="toolu_xxx"))))
    events = list(penstock.decode(data, wire="anthropic"))
    types = [event.type for event in events if event.type.startswith("tool")]
    assert [types[0], *types[-2:]] == ["tool_call_start", "tool_call_closed", "tool_call"]
    turn = penstock.collect(events)
    [whole] = turn.tool_calls
    assert (whole.id, whole.arguments, whole.sealed_by) == ("toolu_xxx", {"file_path": "/path"}, "call_end")
    assert turn.finish_reason == "tool_calls"


@row(2)
def test_the_deltas_of_chat_completions_are_a_call() -> None:
    chunks = [chunk(piece(0, "", "c", "Read")), chunk(piece(0, '{"file_path": ')), chunk(piece(0, '"/path"}'))]
    turn = penstock.collect(penstock.decode([*chunks, chunk(finish="tool_calls")], wire="openai-chat"))
    assert [(whole.id, whole.arguments) for whole in turn.tool_calls] == [("c", {"file_path": "/path"})]


@row(3)
def test_tags_with_a_namespace_are_a_call() -> None:
    text, [found] = parsed([ANSWER])
    assert text == "I read it.\n\n\nDone."
    assert found == {"id": "call_0", "name": "Read", "params": {"file_path": "/a/file"}}


@row(4)
def test_the_same_tags_without_namespace_are_the_same_call() -> None:
    assert parsed([ANSWER.replace(NAMESPACE, "")]) == parsed([ANSWER])


@needs_documents
@row(5)
def test_the_tokens_of_the_document_give_the_text_and_the_call() -> None:
    [sample] = [one for one in indented(0) if one.startswith("Token stream chegando:")]
    tokens = [json.loads(token) for token in re.findall(r'"(?:[^"\\]|\\.)*"', sample)]
    text, tools = parsed([*tokens, *tokenized(namespaced(READ).partition('name="Read">\n')[2]), "\nDone."])
    assert text == "".join(tokens).partition("<")[0] + "\nDone."
    assert [(one["name"], one["params"]) for one in tools] == [("Read", {"file_path": "/a/file"})]


@row(6)
def test_character_by_character_no_piece_of_a_tag_is_shown() -> None:
    parser, shown = msgflux.StreamingXMLParser(), ""
    for character in "a < b <b>bold</b> " + namespaced(READ) + " z":
        text, _ = parser.feed(character)
        shown += text
        assert "function" not in shown
        assert "Read" not in shown
    assert shown + parser.close()[0] == "a < b <b>bold</b>  z"


@row(7)
def test_other_tags_and_signs_pass_at_once() -> None:
    parser = msgflux.StreamingXMLParser()
    assert parser.feed("1 < 2, 3<4 ")[0] == "1 < 2, 3<4 "
    assert parser.feed("<div>x</div> ")[0] == "<div>x</div> "


@row(8)
def test_a_sign_at_the_very_end_is_not_lost() -> None:
    parser = msgflux.StreamingXMLParser()
    assert parser.feed("1 <") == ("1 ", [])
    assert parser.close() == ("<", [])


@row(9)
def test_feed_returns_text_and_tools() -> None:
    assert msgflux.StreamingXMLParser().feed("text") == ("text", [])
    assert penstock.StreamingXMLParser().feed("text") == ("text", [])


@row(10)
def test_tools_are_dicts_with_id_name_and_params() -> None:
    [found] = parsed([READ])[1]
    assert (found["id"], found["name"], found["params"]) == ("call_0", "Read", {"file_path": "/a/file"})


@row(11)
def test_every_tool_has_an_id() -> None:
    assert [one["id"] for one in parsed([READ + READ])[1]] == ["call_0", "call_1"]


@row(12)
def test_a_block_may_have_several_calls() -> None:
    _, tools = parsed([block(invoke("a", x="1"), invoke("b", y="2"))])
    assert [(one["name"], one["params"]) for one in tools] == [("a", {"x": "1"}), ("b", {"y": "2"})]


@row(13)
def test_a_call_inside_a_value_is_a_part_of_the_value() -> None:
    [found] = parsed([block(invoke("Write", text=f"<b>{READ}</b>"))])[1]
    assert found["params"] == {"text": f"<b>{READ}</b>"}


@row(14)
def test_a_call_is_known_at_its_own_end_and_not_at_the_end_of_the_block() -> None:
    parser = msgflux.StreamingXMLParser()
    head, _, tail = READ.partition("</invoke>")
    assert parser.feed(head) == ("", [])
    assert [one["name"] for one in parser.feed("</invoke>")[1]] == ["Read"]
    assert parser.feed(tail) == ("", [])


@row(15)
def test_a_value_may_contain_the_sign() -> None:
    [found] = parsed([block(invoke("Run", code="if a < b: pass"))])[1]
    assert found["params"] == {"code": "if a < b: pass"}


@row(16)
def test_values_have_the_types_of_the_tool() -> None:
    def look(n: int, ok: bool, word: str) -> None:
        """Looks."""

    declaration = tool("look", n="integer", ok="boolean", word="string")
    text = block(invoke("look", n="2", ok="true", word="3"))
    for declared in (look, penstock.tool(look), declaration):
        assert parsed([text], [declared])[1][0]["params"] == {"n": 2, "ok": True, "word": "3"}, declared


@row(17)
def test_a_call_that_was_cut_is_not_returned() -> None:
    parser = penstock.StreamingXMLParser()
    parser.feed(READ[:60])
    assert parser.close() == ("", [])
    assert [one.why for one in parser.invalid_calls] == ["cut"]
    assert parsed([READ[:60]])[1] == []


@row(18)
def test_the_parser_has_a_state() -> None:
    state = msgflux.ParserState
    parser: Any = msgflux.StreamingXMLParser()
    states = [parser.state]
    for token in ["Hm.", "<", "function_calls", ">", '<invoke name="Read">', "</invoke>", "</function_calls>", " ok"]:
        parser.feed(token)
        states.append(parser.state)
    text, in_block = state.TEXT, state.IN_TOOL_BLOCK
    assert states[:4] == [text, text, state.MAYBE_TAG, state.IN_TAG_NAME]
    assert states[4:] == [in_block, in_block, in_block, text, text]


@row(19, decision=NOT_FOLLOWED)
def test_the_names_of_the_block_are_constants_and_the_buffers_are_not_public() -> None:
    parser = msgflux.StreamingXMLParser()
    assert f"{NAMESPACE}function_calls" == parser.TOOL_BLOCK_START
    assert f"/{NAMESPACE}function_calls" == parser.TOOL_BLOCK_END
    for name in ("buffer", "tag_buffer", "tool_block_buffer", "depth"):
        assert not hasattr(parser, name)


async def executor(name: str, params: dict[str, Any]) -> str:
    return f"{name}: {params}"


@row(20)
def test_an_agent_streamer_is_made_of_an_executor_and_on_text() -> None:
    shown: list[str] = []
    assert msgflux.AgentStreamer(executor, shown.append).tool_executor is executor
    by_name = msgflux.AgentStreamer(tool_executor=executor, on_text=shown.append)
    asyncio.run(by_name.process_stream(["text"]))
    assert shown == ["text"]


@row(21)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync tokens", "async tokens"])
def test_process_stream_takes_any_iterator_of_tokens(is_async: bool) -> None:
    seen: list[str] = []

    async def executes(name: str, params: dict[str, Any]) -> dict[str, Any]:
        seen.append(f"[{name}]")
        return {"read": params["file_path"]}

    streamer = msgflux.AgentStreamer(executes, seen.append)
    messages = asyncio.run(streamer.process_stream(as_async(TOKENS) if is_async else TOKENS))
    assert "".join(seen) == "I read it.\n\n[Read]\nDone."  # inline, in order
    assert json.loads(messages[-1].results[0].text) == {"read": "/a/file"}
    assert penstock.check([user("Leia."), *messages]) == []


@row(22)
def test_the_same_loop_can_be_written_over_the_parser() -> None:
    async def loop() -> list[Any]:
        parser, seen = penstock.StreamingXMLParser(), list[Any]()
        async for token in as_async(TOKENS):
            text, calls = parser.feed(token)
            seen += [text] if text else []
            seen += [await executor(call.name, call.arguments) for call in calls]
        return seen

    assert "Read: {'file_path': '/a/file'}" in asyncio.run(loop())


@row(23)
def test_results_go_back_as_text_to_a_model_without_tools() -> None:
    script = Scripted(STEPS)
    streamer = penstock.AgentStreamer(penstock.Model("ollama:gemma3", via=script), tools=[weather])
    assert streamer.run("How is Rome?").output == "It is sunny."
    assert "clear in Rome" in str(script.requests[1].body["messages"][-1])
    history: Any = [
        {"role": "user", "content": "How is Rome?"},
        {"role": "assistant", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]  # fmt: skip
    rendered = penstock.render(history, [weather], "xml")
    assert '<parameter name="city">Rome</parameter>' in str(rendered)
    assert "sunny" in str(rendered)
    assert "city" in str(penstock.render(history[:1], [weather], "xml"))


# -- chunks ------------------------------------------------------------------------------------------------------------


FULL = Reply(think("Hm."), say("Let me look."), call("weather", {"city": "Rome"}, id="call_1"))


@row(24)
def test_the_types_of_chunks_are_those_of_the_document() -> None:
    chunks = list(chat(FULL).stream("?", tool_schemas=[tool("weather", city="string")]))
    assert [one.type for one in merged(chunks)] == ["reasoning", "text", "tool_call", "usage"]
    with model(FULL).stream("?", tools=["weather"]) as stream:
        assert {"reasoning", "text", "tool_call", "usage"} <= {event.type for event in stream}


@row(25)
def test_a_chunk_has_content_tool_call_and_usage() -> None:
    reasoning, text, whole, usage = merged(list(chat(FULL).stream("?", tool_schemas=[tool("weather")])))
    assert (reasoning.content, text.content) == ("Hm.", "Let me look.")
    assert whole.tool_call is not None
    assert (whole.tool_call.id, whole.tool_call.name) == ("call_1", "weather")
    assert usage.usage
    assert "total_tokens" in usage.usage


@row(26)
def test_a_chunk_can_be_made() -> None:
    one = msgflux.StreamChunk(type="text", content="Hm.")
    assert (one.type, one.content, one.tool_call, one.usage) == ("text", "Hm.", None, None)


@row(27)
def test_there_are_buffers_and_complete_calls() -> None:
    buffer = msgflux.ToolCallBuffer(index=0)
    buffer.arguments += "{}"
    assert (buffer.id, buffer.name, buffer.arguments) == (None, None, "{}")
    assert msgflux.ToolCallComplete("i", "n", "{}").arguments == "{}"


@row(28)
def test_get_params_parses_the_arguments() -> None:
    assert msgflux.ToolCallComplete("i", "n", '{"a": 1}').get_params() == {"a": 1}
    assert msgflux.ToolCallComplete("i", "n", "").get_params() == {}
    [whole] = [one for one in chat(Reply(call("now", ""))).stream("?", tool_schemas=[tool("now")]) if one.tool_call]
    assert cast("Any", whole.tool_call).get_params() == {}


@row(29)
def test_the_system_prompt_comes_first() -> None:
    script = Scripted(["Hm."])
    list(penstock.Model("openai:gpt-5", wire="openai-chat", via=script).stream("?", system_prompt="Be brief."))
    first = script.requests[0].body["messages"][0]
    assert (first["role"] in ("system", "developer"), first["content"]) == (True, "Be brief.")


@row(30)
def test_tool_schemas_are_the_tools_of_a_request() -> None:
    script = Scripted(["Hm.", "Hm."])
    openai = penstock.Model("openai:gpt-5", wire="openai-chat", via=script)
    list(msgflux.ChatCompletionModel(openai).stream("?", tool_schemas=[tool("weather", city="string")]))
    assert [one["function"]["name"] for one in script.requests[0].body["tools"]] == ["weather"]
    unknown: Any = {"tool_schemas": [tool("weather")]}
    with pytest.raises(penstock.UnknownOptionError, match="'tools'"):
        openai.stream("?", **unknown)


@row(31)
def test_messages_may_be_a_string() -> None:
    assert merged(list(chat("Hm.").stream("?")))[0].content == "Hm."


@row(32)
def test_the_list_of_the_caller_is_not_changed() -> None:
    messages = [{"role": "user", "content": "?"}]
    before = copy.deepcopy(messages)
    list(chat("Hm.").stream(messages, system_prompt="Be brief."))
    assert messages == before


@row(33)
def test_the_usage_is_asked_for_and_read_from_its_own_chunk() -> None:
    script = Scripted([Reply("Hm.", usage=penstock.Usage(5, 7))])
    turn = penstock.Model("openai:gpt-5", wire="openai-chat", via=script).complete("?")
    assert script.requests[0].body["stream_options"] == {"include_usage": True}
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (5, 7)


@row(34)
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_from_both_of_its_fields(field: str) -> None:
    delta = {"choices": [{"index": 0, "delta": {field: "Hm."}}]}
    assert penstock.collect(penstock.decode([delta, chunk(finish="stop")], wire="openai-chat")).reasoning == "Hm."


@row(35)
def test_parallel_calls_can_be_forbidden() -> None:
    script = Scripted(["Hm.", "Hm."])
    openai = penstock.Model("openai:gpt-5", wire="openai-chat", via=script)
    list(msgflux.ChatCompletionModel(openai, parallel_tool_calls=False).stream("?", tool_schemas=[tool("f")]))
    openai.complete("?", tools=[tool("f")], parallel=False)
    assert [request.body["parallel_tool_calls"] for request in script.requests] == [False, False]
    unknown: Any = {"parallel_tool_calls": False}
    with pytest.raises(penstock.UnknownOptionError, match="'parallel'"):
        openai.stream("?", **unknown)


@row(36)
def test_the_first_chunk_comes_before_the_end_and_without_a_thread() -> None:
    threads = threading.active_count()
    chunks = chat(Reply("first ", wait(30), "never")).stream("?")
    assert (next(chunks).content or "").startswith("f")
    assert threading.active_count() == threads
    cast("Any", chunks).close()


@row(37)
def test_a_stream_can_be_read_without_with() -> None:
    assert "".join(event.text for event in model("Hm.").stream("?") if isinstance(event, penstock.Text)) == "Hm."


@row(38)
def test_astream_is_the_same_in_async_code() -> None:
    async def read() -> list[msgflux.StreamChunk]:
        return [one async for one in chat(FULL).astream("?", tool_schemas=[tool("weather")])]

    assert merged(asyncio.run(read())) == merged(list(chat(FULL).stream("?", tool_schemas=[tool("weather")])))


@row(39, decision=NOT_FOLLOWED)
def test_calls_come_in_the_order_in_which_the_model_wrote_them() -> None:
    late = [chunk(piece(1, "{}", "c1", "second")), chunk(piece(0, "{}", "c0", "first")), chunk(finish="tool_calls")]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in late) + "data: [DONE]\n\n"
    chunks = chat(Raw(body.encode())).stream("?", tool_schemas=[tool("first"), tool("second")])
    assert [one.tool_call.id for one in chunks if one.tool_call] == ["c1", "c0"]
    usual = [chunk(piece(0, "{}", "c0", "first")), chunk(piece(1, "{}", "c1", "second")), chunk(finish="tool_calls")]
    turn = penstock.collect(penstock.decode(usual, wire="openai-chat"))
    assert [whole.id for whole in turn.tool_calls] == ["c0", "c1"]


@row(40)
@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_a_whole_call_comes_while_the_response_goes_on(wire: str) -> None:
    reply = Reply(call("f", {"a": 1}), wait(30), call("g", {}))
    with model(reply, name="openai:m", wire=wire).stream("?", tools=["f", "g"]) as stream:
        seen = next(event for event in stream if event.type == "tool_call")
    assert cast("Any", seen).name == "f"


# -- the agent ---------------------------------------------------------------------------------------------------------


@row(41)
def test_an_agent_streamer_is_made_of_a_name_and_a_model() -> None:
    for form in (chat(*STEPS), model(*STEPS)):
        agent = msgflux.AgentStreamer("nome", form, tools=[weather], on_text=lambda text: None)
        assert agent.name == agent.agent.name == "nome"
        assert [event.type for event in agent.stream("?")][-1] == "done"


@row(42)
def test_the_callbacks_have_the_signatures_of_the_document() -> None:
    texts: list[str] = []
    starts: list[tuple[str, str, dict[str, Any]]] = []
    agent = streamer(
        *STEPS, on_text=texts.append, on_tool_start=lambda id, name, params: starts.append((id, name, params))
    )
    list(agent.stream("?"))
    assert "".join(texts) == "I look.  One moment.It is sunny."
    assert [(name, params) for _, name, params in starts] == [("weather", {"city": "Rome"})]


@row(43)
def test_on_tool_end_gets_what_the_tool_returned() -> None:
    ends: list[tuple[str, Any]] = []
    list(streamer(*STEPS, on_tool_end=lambda id, result: ends.append((id, result))).stream("?"))
    assert [result for _, result in ends] == [{"sky": "clear in Rome"}]


@row(44)
def test_text_is_printed_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    list(msgflux.AgentStreamer("nome", model(*STEPS), tools=[weather]).stream("?"))
    assert capsys.readouterr().out == "I look.  One moment.It is sunny."
    asyncio.run(msgflux.AgentStreamer(executor).process_stream(TOKENS[:6]))
    assert capsys.readouterr().out == "I read it.\n\n"


@row(45)
def test_stream_yields_the_events_of_the_document() -> None:
    types = [event.type for event in streamer(*STEPS).stream("?")]
    assert list(dict.fromkeys(types)) == ["text", "tool_start", "tool_result", "done"]
    failed = [event.type for event in streamer(Reply("Hm.", fail("server_error", "broken"))).stream("?")]
    assert failed[-2:] == ["error", "done"]


@row(46)
def test_an_event_has_content_tool_name_tool_params_tool_result_and_error() -> None:
    events = {event.type: event for event in streamer(*STEPS).stream("?")}
    assert events["done"].content == "It is sunny."
    assert (events["tool_start"].tool_name, events["tool_start"].tool_params) == ("weather", {"city": "Rome"})
    assert events["tool_result"].tool_result == {"sky": "clear in Rome"}
    failed = {event.type: event for event in streamer(Reply("Hm.", fail("server_error", "broken"))).stream("?")}
    assert "broken" in (failed["error"].error or "")
    assert msgflux.StreamEvent(type="text", content="Hm.").error is None


@row(47)
def test_tools_are_described_after_the_own_system_prompt() -> None:
    script = Scripted(STEPS)
    openai = penstock.Model("openai:gpt-5", wire="openai-chat", via=script)
    list(msgflux.AgentStreamer("nome", openai, [weather], "Be brief.", on_text=lambda text: None).stream("?"))
    prompt = script.requests[0].body["messages"][0]["content"]
    assert prompt.startswith("Be brief.")
    assert "weather" in prompt
    assert "tools" not in script.requests[0].body


@row(48)
def test_a_tool_runs_inline_and_the_model_is_asked_again() -> None:
    script = Scripted([Reply("I look. ", CALL, wait(0.2), " One moment."), "It is sunny."])
    agent = penstock.AgentStreamer(penstock.Model("openai:gpt-5", wire="openai-chat", via=script), tools=[weather])
    with agent.stream("?") as run:
        order = [event.type for event in run if event.type in ("tool_start", "text", "step_end")]
    first_step = order[: order.index("step_end")]
    assert first_step.index("tool_start") < len(first_step) - 1  # text followed
    assert len(script.requests) == 2
    assert "clear in Rome" in str(script.requests[1].body)


@row(49)
def test_the_text_continues_after_the_tag() -> None:
    events = list(streamer(*STEPS).stream("?"))
    start = next(at for at, event in enumerate(events) if event.type == "tool_start")
    assert "One moment." in "".join(event.content or "" for event in events[start:] if event.type == "text")


@row(50)
def test_the_text_after_a_call_stays_after_it_in_the_history() -> None:
    script = Scripted(STEPS)
    agent = penstock.AgentStreamer(penstock.Model("openai:gpt-5", wire="openai-chat", via=script), tools=[weather])
    agent.run("?")
    [sent] = [one["content"] for one in script.requests[1].body["messages"] if one["role"] == "assistant"]
    assert sent.index("I look.") < sent.index("<invoke") < sent.index("</function_calls>") < sent.index("One moment.")


@row(51)
def test_astream_of_the_agent_takes_async_tools_and_callbacks() -> None:
    texts: list[str] = []

    async def on_text(text: str) -> None:
        await asyncio.sleep(0)
        texts.append(text)

    async def weather(city: str) -> str:
        """The weather in a city."""
        await asyncio.sleep(0)
        return f"clear in {city}"

    async def read() -> list[msgflux.StreamEvent]:
        agent = msgflux.AgentStreamer("nome", model(*STEPS), tools=[weather], on_text=on_text)
        return [event async for event in agent.astream("?")]

    events = asyncio.run(read())
    assert [event.tool_result for event in events if event.type == "tool_result"] == ["clear in Rome"]
    assert "".join(texts) == "I look.  One moment.It is sunny."


@row(52)
@pytest.mark.parametrize(
    "message",
    ["?", {"role": "user", "content": "?"}, user("?"), [user("?")]],
    ids=["text", "mapping", "Message", "list"],
)
def test_a_message_is_text_a_mapping_a_message_or_a_list(message: Any) -> None:
    assert [event.content for event in streamer("Hm.").stream(message) if event.type == "done"] == ["Hm."]


@row(53)
def test_an_unknown_tool_is_a_result_for_the_model() -> None:
    asks = block(invoke("nope"))
    events = list(streamer(asks, "Sorry.").stream("?"))
    [result] = [event.tool_result for event in events if event.type == "tool_result"]
    assert "nope" in result
    assert events[-1].content == "Sorry."


@row(54)
def test_an_error_is_an_event_and_then_the_run_ends() -> None:
    errors: list[str] = []
    agent = streamer(Reply("Hm.", fail("server_error", "broken")), on_error=errors.append)
    assert [event.type for event in agent.stream("?")][-2:] == ["error", "done"]
    assert len(errors) == 1


@row(55)
def test_the_loop_ends_when_there_are_no_more_tools() -> None:
    script = Scripted([CALL, block(invoke("weather", city="Oslo")), "Both are sunny."])
    openai = penstock.Model("openai:gpt-5", wire="openai-chat", via=script)
    events = list(msgflux.AgentStreamer("nome", openai, [weather], on_text=lambda text: None).stream("?"))
    assert [event.type for event in events].count("tool_result") == 2
    assert len(script.requests) == 3


def test_an_error_in_a_stream_of_chunks_is_raised() -> None:
    with pytest.raises(penstock.ProviderError, match="broken"):
        list(chat(Reply("Hm.", fail("server_error", "broken"))).stream("?"))
