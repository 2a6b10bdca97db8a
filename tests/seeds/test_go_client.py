"""The Go client: calls built from their pieces, and callbacks, row by row."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.adapters.go_client import AIClient, MCPFunctionCall, MCPToolCall, Message, StreamResponseCallback
from penstock.testing import HTMLPage, Raw, Reply, Scripted, Status, Step, call, drop, fail, say
from tests.growth import assert_linear
from tests.seeds.documents import document, fenced, needs_documents, row
from tests.seeds.shapes import CHUNKS, chunk, piece, tool

COMMAND = '{"command": "SCAN 0"}'
ID = "call_1"


def model(*steps: Step | str) -> penstock.Model:
    return penstock.Model("openai:gpt-5", wire="openai-chat", via=Scripted(steps), retries=penstock.Retries(attempts=1))


def body(*frames: Any) -> Raw:
    """A stream of Chat Completions with these frames; text is sent as it is."""
    lines = [frame if isinstance(frame, str) else json.dumps(frame) for frame in frames]
    return Raw("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode())


class Calls:
    """What the callbacks got, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.callback = StreamResponseCallback(
            OnMessage=lambda message: self.seen.append(("message", message)),
            OnComplete=lambda message: self.seen.append(("complete", message)),
            OnError=lambda error: self.seen.append(("error", error)),
        )

    def of(self, kind: str) -> list[Any]:
        return [value for name, value in self.seen if name == kind]


def send(*steps: Step | str) -> tuple[Calls, Any]:
    """Sends a request; returns what the callbacks got, and the error that Go would return."""
    calls = Calls()
    error = AIClient(model(*steps)).SendMessageStreamWithCallback("?", calls.callback, tools=["run_command"])
    return calls, error


# -- the samples -------------------------------------------------------------------------------------------------------


def sample_chunks() -> list[dict[str, Any]]:
    """The chunks of the problem statement."""
    [block] = fenced(4, "json")
    return [json.loads(line) for line in block.splitlines() if line.startswith("{")]


@needs_documents
@row(126)
def test_the_five_chunk_example_gives_the_call() -> None:
    first, *rest = sample_chunks()
    promised = dict(re.findall(r"^- (ID|Function|Arguments): `(.*)`$", document(4), re.MULTILINE))
    first["choices"][0]["delta"]["tool_calls"][0]["id"] = promised["ID"]  # the sample has a shorter one
    end = [chunk(piece(0, "")), chunk(finish="tool_calls")]  # chunks 4 and 5, which the document only describes
    calls, error = send(body(first, *rest, *end))
    assert error is None
    [final] = calls.of("complete")
    [complete] = final.ToolCalls
    assert promised == {
        "ID": complete.ID, "Function": complete.Function.Name, "Arguments": complete.Function.Arguments,
    }  # fmt: skip


@needs_documents
def test_the_names_of_the_document_are_the_names_of_the_adapter() -> None:
    names = (
        "OnMessage OnComplete OnError SendMessageStreamWithCallback StreamResponseCallback StreamingState MCPToolCall"
    )
    assert all(name in document(4) for name in names.split())
    message = Message(
        "assistant", "text", [MCPToolCall(ID="c", Type="function", Function=MCPFunctionCall(Name="f", Arguments="{}"))]
    )
    first = message.ToolCalls[0]
    assert (message.Role, message.Content) == ("assistant", "text")
    assert (first.ID, first.Type, first.Function.Name, first.Function.Arguments) == ("c", "function", "f", "{}")


def test_the_usage_example_line_by_line() -> None:
    """The usage example of the document, in Python: the same names, the same branches, the same order."""
    frontend: list[Any] = []

    def on_message(msg: Message) -> None:
        if msg.Content != "":
            frontend.append(("content", msg.Content))
        if len(msg.ToolCalls) > 0:
            frontend.append(("call", msg.ToolCalls[0].Function.Arguments))

    def on_complete(final_message: Message) -> None:
        if len(final_message.ToolCalls) > 0:
            frontend.append(("complete", final_message.ToolCalls[0].Function.Arguments))

    stream_callback = StreamResponseCallback(
        OnMessage=on_message, OnComplete=on_complete, OnError=lambda err: frontend.append(("error", err))
    )
    ai_client = AIClient(model(body(*CHUNKS)))
    messages = [Message("user", "Which keys are there?")]
    err = ai_client.SendMessageStreamWithCallback(messages, stream_callback)
    assert err is None
    assert frontend == [
        ("content", "Let me look."),
        ("call", ""),
        ("call", '{"command":'),
        ("call", '{"command": "SCAN 0'),
        ("call", COMMAND),
        ("complete", COMMAND),
    ]


class Reconstruction:
    """The streaming loop and `processToolCallDelta` of the document, line by line."""

    def __init__(self, callback: StreamResponseCallback) -> None:
        self.callback = callback
        self.tool_calls: dict[int, dict[str, Any]] = {}
        self.content_buffer: list[str] = []
        self.has_mcp = False

    def read(self, responses: list[dict[str, Any]]) -> None:
        for stream_resp in responses:
            for choice in stream_resp["choices"]:
                delta = choice["delta"]
                if delta.get("content"):
                    self.content_buffer.append(delta["content"])
                    if self.callback.OnMessage is not None:
                        self.callback.OnMessage(Message(Role="assistant", Content=delta["content"]))
                if len(delta.get("tool_calls", [])) > 0:
                    self.has_mcp = True
                    self.process_tool_call_delta(delta["tool_calls"])
                if choice.get("finish_reason"):
                    tool_calls = [self.tool_call(i) for i in self.tool_calls] if self.has_mcp else []
                    if self.callback.OnComplete is not None:
                        self.callback.OnComplete(Message("assistant", "".join(self.content_buffer), tool_calls))

    def process_tool_call_delta(self, deltas: list[dict[str, Any]]) -> None:
        for i, delta in enumerate(deltas):
            if i not in self.tool_calls:
                self.tool_calls[i] = {"id": "", "type": "", "name": "", "arguments": ""}
            tool_call = self.tool_calls[i]
            function = delta["function"]
            tool_call["id"] = delta.get("id") or tool_call["id"]
            tool_call["type"] = delta.get("type") or tool_call["type"]
            tool_call["name"] = function.get("name") or tool_call["name"]
            tool_call["arguments"] += function.get("arguments") or ""
            if self.callback.OnMessage is not None:
                self.callback.OnMessage(Message(Role="assistant", ToolCalls=[self.tool_call(i)]))

    def tool_call(self, i: int) -> MCPToolCall:
        fields = self.tool_calls[i]
        return MCPToolCall(fields["id"], fields["type"], MCPFunctionCall(fields["name"], fields["arguments"]))


def test_the_streaming_loop_line_by_line_calls_back_as_the_adapter_does() -> None:
    by_document, (by_adapter, _) = Calls(), send(body(*CHUNKS))
    Reconstruction(by_document.callback).read(CHUNKS)
    assert repr(by_document.seen) == repr(by_adapter.seen)


def test_the_final_message_can_be_sent_back_with_its_result() -> None:
    script = Scripted([body(*CHUNKS), "Two keys."], strict=True)
    client, calls = AIClient(penstock.Model("openai:gpt-5", wire="openai-chat", via=script)), Calls()
    question = Message("user", "Which keys are there?")
    client.SendMessageStreamWithCallback([question], calls.callback, tools=[tool("run_command")])
    [final] = calls.of("complete")
    result = {"role": "tool", "tool_call_id": final.ToolCalls[0].ID, "content": "a, b"}
    error = client.SendMessageStreamWithCallback([question, final, result], calls.callback)
    assert error is None
    assert calls.of("complete")[1].Content == "Two keys."


# -- the rows ----------------------------------------------------------------------------------------------------------


@row(127)
@pytest.mark.parametrize("separator", ["", "\n"], ids=["objects in a row", "lines"])
@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "indented"])
def test_a_body_of_bare_json_objects_is_read(separator: str, indent: int | None) -> None:
    data = separator.join(json.dumps(frame, indent=indent) for frame in CHUNKS)
    calls, error = send(Raw(data.encode(), "application/json"))
    assert error is None
    assert calls.of("complete")[0].ToolCalls[0].Function.Arguments == COMMAND


@row(128)
def test_calls_are_told_apart_by_their_index_and_not_by_their_place() -> None:
    two = [
        chunk(piece(0, '{"a":', "c0", "f")),
        chunk(piece(1, '{"b":', "c1", "g")),  # alone in its chunk: its place is 0, its index 1
        chunk(piece(1, " 2}")),
        chunk(piece(0, " 1}")),
        chunk(finish="tool_calls"),
    ]
    calls, _ = send(body(*two))
    [final] = calls.of("complete")
    assert [(one.ID, one.Function.Arguments) for one in final.ToolCalls] == [("c0", '{"a": 1}'), ("c1", '{"b": 2}')]


@row(129)
def test_on_message_gets_content() -> None:
    calls, _ = send(Reply("It is sunny."))
    assert "".join(message.Content for message in calls.of("message")) == "It is sunny."
    assert {message.Role for message in calls.of("message")} == {"assistant"}


@row(130)
def test_on_message_gets_the_call_so_far() -> None:
    calls, _ = send(body(*CHUNKS))
    shown = [message.ToolCalls[0] for message in calls.of("message") if message.ToolCalls]
    assert [one.Function.Arguments for one in shown] == ["", '{"command":', '{"command": "SCAN 0', COMMAND]
    assert {(one.ID, one.Function.Name, one.Type) for one in shown} == {(ID, "run_command", "function")}


@row(131)
def test_on_complete_is_called_once_after_everything_else() -> None:
    calls, _ = send(Reply(say("Hm."), call("a", {"x": 1}), call("b", {"y": 2})))
    assert [kind for kind, _ in calls.seen].count("complete") == 1
    assert calls.seen[-1][0] == "complete"
    final = calls.seen[-1][1]
    assert final.Content == "Hm."
    assert [one.Function.Name for one in final.ToolCalls] == ["a", "b"]


ERRORS: dict[str, Step] = {
    "in band": Reply("Hm.", fail("server_error", "broken")),
    "dropped": Reply("Hm. " * 20, drop()),
    "401": Status(401, "wrong key"),
    "a page": HTMLPage(),
    "500": Status(500, "broken"),
}


@row(132)
@pytest.mark.parametrize("step", ERRORS.values(), ids=ERRORS)
def test_on_error_gets_every_failure(step: Step) -> None:
    calls, error = send(step)
    assert calls.of("error") == [error]
    assert calls.of("complete") == []


@row(133)
@pytest.mark.parametrize("place", [1, 3], ids=["in the text", "in a call"])
def test_on_error_gets_a_malformed_chunk(place: int) -> None:
    broken = [*CHUNKS[:place], '{"choices": [{"del', *CHUNKS[place:]]
    calls, error = send(body(*broken))
    assert calls.of("error") == [error]
    assert calls.of("complete") == []
    assert error.code == "unreadable_frame"


@row(134)
def test_on_error_gets_a_stream_that_ends_without_a_finish_reason() -> None:
    calls, error = send(Raw(b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in CHUNKS[:4])))
    assert calls.of("error") == [error]
    assert error is not None
    assert calls.of("complete") == []


@row(135)
def test_an_incomplete_call_is_never_in_the_final_message() -> None:
    for finish in ("length", "tool_calls"):
        calls, error = send(body(*CHUNKS[:4], chunk(finish=finish)))
        assert (calls.of("complete"), calls.of("error")) == ([], [error])
        assert error.code == "cut"
        assert error.message == "Not run: the call is cut (the JSON of the arguments is incomplete)."
    turn = penstock.collect(penstock.decode(CHUNKS[:4], wire="openai-chat"))
    assert (turn.tool_calls, turn.invalid_calls[0].why) == ([], "cut")


@row(136)
def test_a_callback_that_raises_closes_the_connection_and_leaves_no_state() -> None:
    client = AIClient(model(body(*CHUNKS), body(*CHUNKS)))

    def fail_at_once(message: Message) -> None:
        raise RuntimeError(message.Content)

    with pytest.raises(RuntimeError, match="Let me look"):
        client.SendMessageStreamWithCallback("?", StreamResponseCallback(OnMessage=fail_at_once))
    calls = Calls()
    assert client.SendMessageStreamWithCallback("?", calls.callback) is None
    assert [one.Function.Arguments for one in calls.of("complete")[0].ToolCalls] == [COMMAND]


@row(137)
def test_one_call_sends_the_request_and_calls_back() -> None:
    seen: list[str] = []
    turn = penstock.consume(
        model(Reply("Sunny.")).stream("?"),
        on_message=lambda event: seen.append(event.type),
        on_complete=lambda turn: seen.append(turn.text),
    )
    assert (seen[0], seen[-1], turn.text) == ("text", "Sunny.", "Sunny.")


@row(138)
def test_the_callbacks_may_be_async() -> None:
    seen: list[str] = []

    async def on_message(event: penstock.StreamChunk) -> None:
        await asyncio.sleep(0)
        seen.append(event.type)

    async def on_complete(turn: penstock.Turn) -> None:
        await asyncio.sleep(0)
        seen.append(turn.text)

    asyncio.run(penstock.aconsume(model(Reply("Sunny.")).astream("?"), on_message, on_complete))
    assert (seen[0], seen[-1]) == ("text", "Sunny.")


@row(139)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_the_same_callbacks_read_a_run_of_an_agent(is_async: bool) -> None:
    def look(city: str) -> str:
        """Looks."""
        return f"sunny in {city}"

    seen: list[str] = []
    agent = penstock.Agent(model(Reply(call("look", {"city": "Rome"})), "Sunny."), tools=[look])

    def on_message(event: penstock.StreamEvent, so_far: penstock.PartialToolCall | None) -> None:
        seen.append(f"{event.type} {so_far.arguments}" if so_far else event.type)

    def on_complete(turn: penstock.Turn) -> None:
        seen.append(turn.text)

    if is_async:
        turn = asyncio.run(penstock.aconsume(agent.astream("?"), on_message, on_complete))
    else:
        turn = penstock.consume(agent.stream("?"), on_message, on_complete)
    assert (turn.text, seen[-1]) == ("Sunny.", "Sunny.")
    assert "tool_call {'city': 'Rome'}" in seen
    assert "tool_end" in seen


@row(140)
def test_the_arguments_can_be_watched_while_they_are_written() -> None:
    view, shown = penstock.PartialJSON(), list[Any]()
    for event in penstock.decode(CHUNKS, wire="openai-chat"):
        if isinstance(event, penstock.ToolCallDelta):
            view.feed(event.piece)
            shown.append(view.value)
    assert shown[-1] == {"command": "SCAN 0"}
    assert len(shown) == 3


def test_an_update_of_a_long_call_costs_what_is_new_in_it() -> None:
    seen: list[int] = []
    callback = StreamResponseCallback(OnMessage=lambda message: seen.append(len(message.ToolCalls)))

    def prepare(count: int) -> Callable[[], object]:
        pieces = [chunk(piece(0, '{"x": "', "c", "f")), *[chunk(piece(0, "abc" * 20))] * count, chunk(piece(0, '"}'))]
        client = AIClient(model(body(*pieces, chunk(finish="tool_calls"))))
        return lambda: client.SendMessageStreamWithCallback("?", callback)

    assert_linear(prepare, 500)
    assert sum(seen) > 500


def choice_chunk(index: int, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {}, **fields}]}


def test_each_of_two_choices_is_completed() -> None:
    calls = [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]
    frames_of_two = [
        choice_chunk(0, delta={"content": "One"}),
        choice_chunk(1, delta={"content": "Two", "tool_calls": calls}),
        choice_chunk(1, finish_reason="tool_calls"),
        choice_chunk(0, finish_reason="stop"),
    ]
    done: list[Message] = []
    failed: list[Any] = []
    callback = StreamResponseCallback(OnComplete=done.append, OnError=failed.append)
    error = AIClient(model(body(*frames_of_two))).SendMessageStreamWithCallback("?", callback, extra={"n": 2})
    assert (error, failed) == (None, [])
    assert [(message.Content, len(message.ToolCalls)) for message in done] == [("One", 0), ("Two", 1)]


def test_a_failed_response_of_two_choices_is_one_error() -> None:
    frames_of_two = [
        choice_chunk(0, delta={"content": "One"}),
        choice_chunk(1, delta={"content": "Two"}),
        {"error": {"message": "no more boats"}},
    ]
    done: list[Message] = []
    failed: list[Any] = []
    callback = StreamResponseCallback(OnComplete=done.append, OnError=failed.append)
    AIClient(model(body(*frames_of_two))).SendMessageStreamWithCallback("?", callback)
    assert (len(done), len(failed)) == (0, 1)
