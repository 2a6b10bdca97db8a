"""The scripted provider: decoding gives what was scripted on every wire, and faults occur as scripted."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

import penstock
from penstock import Opaque, Reasoning, StreamChunk, Text, ToolCall, Usage, WireName
from penstock.framing import Body, Frames
from penstock.testing import (
    Hang,
    HTMLPage,
    Loopback,
    Mislabelled,
    Raw,
    ReceivedRequest,
    Redirect,
    Reply,
    Reset,
    Scripted,
    Status,
    Step,
    always,
    call,
    cuts,
    cuttings,
    drop,
    fail,
    frames,
    recorded,
    refuse,
    say,
    think,
    wait,
)
from penstock.testing.script import ScriptPlayer
from penstock.wires import RESPONSE_FRAMES, find_wire
from tests.sanity import assert_sane
from tests.support import NO_CORPUS, SHARED, decode_pieces, joined

WIRES = sorted(RESPONSE_FRAMES)
PATHS = {
    "anthropic": "/v1/messages",
    "bedrock": "/model/m/converse-stream",
    "cohere": "/v2/chat",
    "gemini": "/v1beta/models/m:streamGenerateContent",
    "gemini-interactions": "/v1beta/interactions",
    "mistral": "/mistral/v1/chat/completions",
    "ollama": "/api/chat",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}
WHOLE_PATHS = {**PATHS, "bedrock": "/model/m/converse", "gemini": "/v1beta/models/m:generateContent"}
USAGE = Usage(input_tokens=25, output_tokens=17, cached_tokens=5, reasoning_tokens=4)
UNTOLD = {
    "bedrock": {"reasoning_tokens"},
    "mistral": {"reasoning_tokens"},
    "ollama": {"reasoning_tokens", "cached_tokens"},
}
"""The counts that a provider does not report."""
WEATHER = Reply(
    think("They ask about “Rome”. 日本語 😀"),
    say("Let me look…\n\n- first, the *weather* 🌤"),
    call("weather", {"city": "Rome", "days": [1, 2.5, None], "note": 'é "\\ \u2028 😀'}, id="abc123def"),
    call("trains", {"to": "Rome"}, id="ghi456jkl"),
    call("now"),
    usage=USAGE,
)

every_wire = pytest.mark.parametrize("wire", WIRES)


def events_of(wire: str, reply: Reply, is_streaming: bool = True) -> list[StreamChunk]:
    return decode_pieces(wire, frames(wire, reply, is_streaming))


def turn_of(wire: str, reply: Reply, is_streaming: bool = True) -> penstock.Turn:
    return penstock.collect(events_of(wire, reply, is_streaming))


def connect(server: Loopback, timeout: float = 10) -> http.client.HTTPConnection:
    address = urlsplit(server.url)
    assert address.hostname
    return http.client.HTTPConnection(address.hostname, address.port or 0, timeout=timeout)


def post(
    server: Loopback, wire: str, body: Any = None, is_streaming: bool = True, timeout: float = 10
) -> tuple[http.client.HTTPResponse, bytes]:
    """The response and its body, or the part that arrived before the connection broke."""
    path = (PATHS if is_streaming else WHOLE_PATHS)[wire]
    sent = {"model": "m", "stream": is_streaming, **(body or {})}
    connection = connect(server, timeout)
    try:
        connection.request("POST", path, json.dumps(sent), {"content-type": "application/json"})
        response = connection.getresponse()
        try:
            data = response.read()
        except http.client.IncompleteRead as cut:
            data = cut.partial
        return response, data
    finally:
        connection.close()


# Decoded replies.


@every_wire
def test_decoding_a_scripted_reply_gives_its_text_and_calls(wire: str) -> None:
    events = events_of(wire, WEATHER)
    assert_sane(events)
    turn = penstock.collect(events)
    assert (turn.text, turn.reasoning) == (WEATHER.text, WEATHER.reasoning)
    made = [(call.name, call.arguments, call.arguments_raw) for call in turn.tool_calls]
    assert made == [(call.name, json.loads(call.arguments), call.arguments) for call in WEATHER.calls]
    assert [call.id for call in turn.tool_calls[:2]] == ["abc123def", "ghi456jkl"]
    assert turn.finish_reason == "tool_calls"
    assert (turn.invalid_calls, turn.unknown, turn.error) == ([], (), None)


@every_wire
def test_scripted_usage_is_sent(wire: str) -> None:
    usage = turn_of(wire, WEATHER).usage
    assert usage is not None
    counts = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    expected = {key: 0 if key in UNTOLD.get(wire, ()) else getattr(USAGE, key) for key in counts}
    assert {key: getattr(usage, key) for key in counts} == expected


@every_wire
def test_usage_is_estimated_if_the_script_has_none(wire: str) -> None:
    usage = turn_of(wire, Reply("Sunny, with a little wind.")).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (1, 7)


@every_wire
def test_cuts_do_not_show(wire: str) -> None:
    body = b"".join(frames(wire, WEATHER))
    expected = joined(events_of(wire, WEATHER))
    for pieces in cuttings(body):
        assert joined(decode_pieces(wire, pieces)) == expected


@every_wire
@pytest.mark.parametrize(
    "reply",
    [
        WEATHER,
        Reply("Sunny."),
        Reply(think("Hm."), say("Sunny.")),
        Reply(call("now")),
        Reply(refuse("I'd rather not.")),
        Reply("It is su", finish="length"),
        Reply(),
    ],
    ids=["calls", "text", "thought", "no arguments", "refusal", "length", "nothing"],
)
def test_streamed_equals_whole(wire: str, reply: Reply) -> None:
    def facts(turn: penstock.Turn) -> penstock.Turn:
        parts = [
            msgspec.structs.replace(part, sealed_by="whole", arguments_raw="") if isinstance(part, ToolCall) else part
            for part in turn.parts
        ]
        return msgspec.structs.replace(turn, parts=tuple(parts))

    assert facts(turn_of(wire, reply)) == facts(turn_of(wire, reply, is_streaming=False))


@every_wire
def test_reasoning_has_the_state_that_must_go_back(wire: str) -> None:
    parts = turn_of(wire, WEATHER).parts
    states = [part for part in parts if isinstance(part, Opaque)]
    signed = {"anthropic": Reasoning, "bedrock": Reasoning, "openai-responses": Reasoning, "gemini": ToolCall,
              "gemini-interactions": Reasoning}  # fmt: skip
    owners = [part for state in states for part in parts if not isinstance(part, Opaque) and part.block == state.block]
    assert [type(owner) for owner in owners] == ([signed[wire]] if wire in signed else [])


@every_wire
def test_a_refusal_has_the_format_of_the_wire(wire: str) -> None:
    turn = turn_of(wire, Reply(refuse("I'd rather not.")))
    assert "I'd rather not." in (turn.refusal, turn.text, turn.finish_message)
    assert turn.finish_reason == ("content_filter" if wire in ("anthropic", "bedrock", "gemini") else "stop")


@every_wire
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_finish_reasons_are_translated_for_the_provider(wire: str, reason: str) -> None:
    turn = turn_of(wire, Reply("It is", finish=reason))
    assert turn.finish_reason == reason
    assert turn.raw_finish_reason in find_wire(wire).FINISH


@every_wire
def test_a_finish_reason_of_the_provider_is_sent_unchanged(wire: str) -> None:
    turn = turn_of(wire, Reply("It is", finish="pause_turn"))
    assert (turn.raw_finish_reason or "").removeprefix("incomplete:") == "pause_turn"


@every_wire
def test_a_drop_cuts_the_stream(wire: str) -> None:
    turn = turn_of(wire, Reply(say("Let me look."), drop(), say("Never said.")))
    assert (turn.text, turn.finish_reason) == ("Let me look.", "cut")


@every_wire
def test_a_drop_in_the_middle_of_a_call_leaves_no_complete_call(wire: str) -> None:
    turn = turn_of(wire, Reply(say("Let me look."), call("weather", '{"city": "Ro'), drop()))
    assert (turn.text, turn.tool_calls, turn.finish_reason) == ("Let me look.", [], "cut")
    is_whole_or_nothing = wire in ("gemini", "mistral", "ollama")
    assert [call.arguments_raw for call in turn.invalid_calls] == ([] if is_whole_or_nothing else ['{"city": "Ro'])


@every_wire
def test_a_failure_is_sent_in_band(wire: str) -> None:
    turn = turn_of(wire, Reply(say("Let me look."), fail("overloaded_error", "Try later."), say("Never said.")))
    assert (turn.text, turn.finish_reason) == ("Let me look.", "error")
    assert turn.error is not None
    assert turn.error.message == "Try later."


@every_wire
def test_equal_replies_have_equal_bytes_and_other_requests_other_ids(wire: WireName) -> None:
    reply = Reply(call("now"))
    assert frames(wire, reply) == frames(wire, reply)
    first, second = (ReceivedRequest(wire, {"messages": ["…"] * turn}) for turn in (1, 2))
    ids = [penstock.collect(penstock.decode(frames(wire, reply, request=request), wire)).tool_calls[0].id
           for request in (first, second)]  # fmt: skip
    assert len(set(ids)) == (1 if wire == "gemini" else 2), "Gemini sends no ids of its own"


@pytest.mark.parametrize("wire", ["gemini", "ollama"])
def test_a_wire_that_sends_objects_refuses_incomplete_arguments(wire: str) -> None:
    with pytest.raises(penstock.UsageError, match="complete arguments"):
        frames(wire, Reply(call("weather", '{"city": "Ro')))


@every_wire
def test_long_replies_are_sent_in_many_pieces(wire: str) -> None:
    text = "One word after another, as they come. " * 20
    pieces = [event.text for event in events_of(wire, Reply(text)) if isinstance(event, Text)]
    assert "".join(pieces) == text
    assert len(pieces) > 50
    others = [event.text for event in events_of(wire, Reply(text, seed=1)) if isinstance(event, Text)]
    assert others != pieces
    assert "".join(others) == text


RECORDED = {"bedrock": "bedrock-converse"}


@pytest.mark.skipif(not (SHARED / "corpus").exists(), reason=NO_CORPUS)
@every_wire
def test_every_key_occurs_in_a_recording(wire: str) -> None:
    recorded: set[str] = set()
    for case in sorted((SHARED / "corpus" / "cases").glob(f"*__{RECORDED.get(wire, wire)}_*")):
        recorded |= keys_of(wire, (case / "body").read_bytes())
    reply = Reply(think("Hm, well."), say("Let me look."), call("a", {"x": 1}), call("b", {"x": 1}))
    assert keys_of(wire, b"".join(frames(wire, reply))) <= recorded


def keys_of(wire: str, data: bytes) -> set[str]:
    """The paths of the keys in the frames, by the type of the frame."""

    def paths(value: Any, at: str) -> Iterator[str]:
        match value:
            case dict():
                for key, inner in value.items():
                    yield f"{at}.{key}"
                    if key not in ("args", "arguments", "tools"):
                        yield from paths(inner, f"{at}.{key}")
            case list():
                for inner in value:
                    yield from paths(inner, f"{at}[]")

    body = Body(find_wire(wire).framing)
    found = [
        (item.event, json.loads(payload))
        for item in body.feed(data) + body.close()
        if isinstance(item, Frames)
        for payload in item.data
        if payload.startswith(b"{")
    ]
    return {path for event, frame in found for path in paths(frame, str(frame.get("type") or event))}


# Scripts.


def test_a_reply_accepts_parts_and_text() -> None:
    assert Reply("Sunny.") == Reply(say("Sunny."))
    with pytest.raises(penstock.UsageError, match="parts of a reply must be"):
        Reply(3)  # type: ignore[arg-type]
    with pytest.raises(penstock.UsageError, match="cannot be written as JSON"):
        call("weather", {"city": object()})


def test_a_script_accepts_only_replies() -> None:
    assert ScriptPlayer(["Sunny.", Status(429)]).steps == (Reply("Sunny."), Status(429))
    with pytest.raises(penstock.UsageError, match="wrap it, as in Reply"):
        ScriptPlayer([say("Sunny.")])  # type: ignore[list-item]
    with pytest.raises(penstock.UsageError, match="must be a reply"):
        ScriptPlayer([3])  # type: ignore[list-item]


def test_an_unknown_wire_is_refused() -> None:
    with pytest.raises(penstock.UnknownWireError, match="did you mean 'openai-chat'"):
        frames("openai_chat", Reply("Hi."))


# The server.


@every_wire
@pytest.mark.parametrize("is_streaming", [True, False])
def test_the_server_sends_the_frames(wire: WireName, is_streaming: bool) -> None:
    with Loopback(WEATHER) as server:
        response, data = post(server, wire, {"stream_options": {"include_usage": True}}, is_streaming)
    assert response.status == 200
    turn = penstock.collect(penstock.decode(data, wire))
    assert (turn.text, turn.reasoning, turn.finish_reason) == (WEATHER.text, WEATHER.reasoning, "tool_calls")
    [request] = server.requests
    assert (request.wire, request.model, request.is_streaming) == (wire, "m", is_streaming)


@every_wire
def test_responses_have_the_content_type_of_the_wire(wire: str) -> None:
    usual = {"ollama": "application/x-ndjson", "bedrock": "application/vnd.amazon.eventstream"}
    with Loopback(always("Hi.")) as server:
        assert post(server, wire)[0].headers["content-type"] == usual.get(wire, "text/event-stream")
        assert post(server, wire, is_streaming=False)[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("how", ["bytes", 7])
def test_the_server_cuts_bytes_anywhere(how: Any) -> None:
    async def pieces(url: str) -> list[bytes]:
        async with aiohttp.ClientSession() as session, session.post(url, json={"stream": True}) as response:
            return [piece async for piece, _ in response.content.iter_chunks()]

    with Loopback(WEATHER, cuts=how) as server:
        got = asyncio.run(pieces(server.url + PATHS["anthropic"]))
    assert b"".join(got) == b"".join(frames("anthropic", WEATHER, request=server.requests[0]))
    turn = penstock.collect(decode_pieces("anthropic", got))
    assert turn.text == WEATHER.text
    if how == "bytes":
        assert max(map(len, got)) == 1


def test_requests_are_kept_with_their_keys_masked() -> None:
    secrets = {"Authorization": "Bearer s3cret", "x-api-key": "s3cret", "x-goog-api-key": "s3cret", "X-Other": "plain"}
    with Loopback("Hi.") as server:
        connection = connect(server)
        connection.request("POST", "/some/prefix/chat/completions?key=s3cret&alt=sse", '{"model": "m"}', secrets)
        connection.getresponse().read()
        connection.close()
        [request] = server.requests
    assert "s3cret" not in repr(request)
    assert request.headers["X-Other"] == "plain"
    assert request.headers["x-api-key"] == "***"
    assert (request.path, request.query["alt"], request.body) == (
        "/some/prefix/chat/completions",
        "sse",
        {"model": "m"},
    )


def test_a_list_is_played_in_order_and_then_ends() -> None:
    with Loopback(["One.", "Two."]) as server:
        bodies = [post(server, "openai-chat", is_streaming=False) for _ in range(3)]
    texts = [json.loads(data)["choices"][0]["message"]["content"] for _, data in bodies[:2]]
    assert texts == ["One.", "Two."]
    assert bodies[2][0].status == 400
    assert b"the script is too short: it has 2 replies, and this is request 3" in bodies[2][1]


def test_a_function_gets_the_request() -> None:
    def echo(request: ReceivedRequest) -> str:
        return f"{request.prompt} ({', '.join(tool.name for tool in request.tools)})"

    body = {"messages": [{"role": "user", "content": "Hi!"}], "tools": [{"name": "weather", "input_schema": {}}]}
    with Loopback(echo) as server:
        _, data = post(server, "anthropic", body, is_streaming=False)
    assert json.loads(data)["content"][0]["text"] == "Hi! (weather)"


def test_a_script_that_raises_gives_an_http_error() -> None:
    def broken(request: ReceivedRequest) -> Reply:
        raise KeyError("oops")

    with Loopback(broken) as server:
        response, data = post(server, "anthropic")
    assert response.status == 400
    assert json.loads(data)["error"]["message"] == "the script failed: KeyError: 'oops'"


def test_a_reply_that_cannot_be_encoded_gives_an_http_error() -> None:
    with Loopback(Reply(call("f", "{"))) as server:
        response, data = post(server, "gemini")
    assert response.status == 400
    assert b"complete arguments" in data


def test_an_invalid_request_is_refused() -> None:
    with Loopback("Hi.") as server:
        connection = connect(server)
        connection.request("POST", "/v1/messages", "no JSON")
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["error"]["type"]) == (400, "invalid_request_error")
        connection.request("POST", "/v1/nonsense", "{}")
        response = connection.getresponse()
        assert (response.status, b"no POST /v1/nonsense" in response.read()) == (404, True)
        connection.request("GET", "/v1/models")
        assert json.loads(connection.getresponse().read())["data"][0]["id"] == "sim"
        connection.close()


def test_the_server_works_in_async_code() -> None:
    async def run() -> str:
        async with Loopback("Hi.") as server, aiohttp.ClientSession() as session:
            body = {"model": "m", "stream": True}
            async with session.post(server.base_url("openai-chat") + "/chat/completions", json=body) as response:
                return penstock.collect(penstock.decode(await response.read(), "openai-chat")).text

    assert asyncio.run(run()) == "Hi."


def test_invalid_cuts_are_refused_at_once() -> None:
    with pytest.raises(penstock.UsageError, match="not 'lines'"):
        Loopback("Hi.", cuts="lines")  # type: ignore[arg-type]


def test_the_server_runs_only_inside_with() -> None:
    server = Loopback("Hi.")
    with pytest.raises(penstock.UsageError, match="not running"):
        server.base_url("anthropic")
    with server:
        port = urlsplit(server.url).port
        with pytest.raises(penstock.UsageError, match="already running"):
            server.__enter__()
        with pytest.raises(penstock.UnknownWireError):
            server.base_url("nonsense")
        with pytest.raises(OSError, match="in use"), Loopback("Hi.", port=port or 0):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port or 0), timeout=1)


def test_pauses_and_pace_change_only_the_time() -> None:
    with Loopback(Reply(say("Let me"), wait(0.001), say(" look.")), pace=0.0001) as server:
        _, data = post(server, "ollama")
    assert penstock.collect(penstock.decode(data, "ollama")).text == "Let me look."


# Faults.


@every_wire
@pytest.mark.parametrize("status", [401, 404, 429, 500, 529])
def test_http_errors_have_the_body_of_the_provider(wire: WireName, status: int) -> None:
    with Loopback(Status(status, "The model is on leave.")) as server:
        response, data = post(server, wire)
    assert response.status == status
    turn = penstock.collect(penstock.decode(data, wire))
    assert turn.error is not None
    assert turn.error.message == "The model is on leave."
    assert "retry-after" not in response.headers


def test_http_errors_have_the_codes_of_the_provider() -> None:
    with Loopback(always(Status(429, retry_after=1.5))) as server:
        replies = {wire: post(server, wire) for wire in WIRES}
    bodies = {wire: json.loads(data) for wire, (_, data) in replies.items()}
    assert all(response.headers["retry-after"] == "1.5" for response, _ in replies.values())
    assert bodies["anthropic"]["error"]["type"] == "rate_limit_error"
    assert bodies["openai-chat"]["error"]["code"] == "rate_limit_exceeded"
    assert bodies["gemini"]["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert bodies["gemini-interactions"]["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert bodies["gemini"]["error"]["details"][0]["retryDelay"] == "1.5s"
    assert replies["bedrock"][0].headers["x-amzn-ErrorType"].startswith("ThrottlingException:")
    assert bodies["mistral"]["raw_status_code"] == 429
    assert bodies["cohere"]["message"] == bodies["ollama"]["error"]


@every_wire
def test_a_failure_without_streaming_is_an_http_error(wire: str) -> None:
    with Loopback(Reply(say("Let me"), fail("busy", "Try later."))) as server:
        response, data = post(server, wire, is_streaming=False)
    assert response.status == 500
    assert b"Try later." in data
    assert b"Let me" not in data


@every_wire
def test_a_response_with_status_200_may_be_an_error(wire: WireName) -> None:
    with Loopback(Status(200, "The model is on leave.")) as server:
        response, data = post(server, wire)
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    turn = penstock.collect(penstock.decode(data, wire))
    assert turn.error is not None
    assert turn.finish_reason == "error"


def test_faults_are_sent_as_scripted() -> None:
    steps: list[Step] = [
        HTMLPage(500),
        Redirect("/v1/elsewhere"),
        Mislabelled(Reply("Hi."), "text/html"),
        Raw(b"data: nonsense\n\n", status=203, headers={"x-thing": "y"}),
    ]
    with Loopback(steps) as server:
        page, redirect, labelled, raw = (post(server, "openai-chat") for _ in steps)
    assert (page[0].status, page[0].headers["content-type"]) == (500, "text/html; charset=utf-8")
    assert page[1].startswith(b"<html>")
    assert (redirect[0].status, redirect[0].headers["location"]) == (307, "/v1/elsewhere")
    assert labelled[0].headers["content-type"] == "text/html"
    assert penstock.collect(penstock.decode(labelled[1], "openai-chat")).text == "Hi."
    assert (raw[0].status, raw[0].headers["x-thing"], raw[1]) == (203, "y", b"data: nonsense\n\n")


@every_wire
def test_a_drop_breaks_the_connection(wire: str) -> None:
    with Loopback(always(Reply(say("Let me look."), drop()))) as server:
        for is_streaming in (True, False):
            path = (PATHS if is_streaming else WHOLE_PATHS)[wire]
            connection = connect(server)
            connection.request("POST", path, json.dumps({"stream": is_streaming}))
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                connection.getresponse().read()
            connection.close()


def test_a_clean_drop_closes_the_connection_in_good_order() -> None:
    with Loopback(Reply(say("Let me look."), drop(clean=True))) as server:
        _, data = post(server, "openai-chat")
    turn = penstock.collect(penstock.decode(data, "openai-chat"))
    assert (turn.text, turn.finish_reason) == ("Let me look.", "cut")


def test_a_reset_and_a_hang_send_nothing() -> None:
    with Loopback([Reset(), Hang(seconds=0.01), Hang()]) as server:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                post(server, "openai-chat")
        with pytest.raises(TimeoutError):
            post(server, "openai-chat", timeout=0.1)


# Cuts.


def test_cuts_lose_nothing() -> None:
    data = bytes(range(256)) * 20
    whole, single, *others = cuttings(data)
    assert whole == [data]
    assert {len(piece) for piece in single} == {1}
    assert all(b"".join(pieces) == data for pieces in (single, *others))
    assert others[0] != others[1]
    assert cuts(data, 1) == others[1]
    with pytest.raises(penstock.UsageError, match="not 'lines'"):
        cuts(data, "lines")  # type: ignore[arg-type]


def test_importing_testing_does_not_import_aiohttp() -> None:
    code = "import sys, penstock.testing as t; t.frames('anthropic', t.Reply('Hi.')); print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "bedrock"])
def test_a_recording_can_be_played_as_a_script(wire: str, tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    names = {"openai-chat": "openai-compatible:m", "anthropic": "anthropic:m", "bedrock": "bedrock:m"}
    reply = Reply(think("Hm."), say("Let me look."), call("weather", {"city": "Rome"}))
    first = penstock.Model(names[wire], via=Scripted([reply]), record=file).stream_text_and_classify("Hi.")
    with Loopback(recorded(file), cuts="bytes") as server:
        model = penstock.Model(names[wire], server.base_url(wire), "a-key-of-some-kind")
        assert model.stream_text_and_classify("Something else.") == first
        with pytest.raises(penstock.BadRequestError, match="the recording is too short: it has 1 response"):
            model.stream_text_and_classify("And more.")


def test_a_server_that_stops_closes_connections_that_it_has_just_accepted() -> None:
    def knock(address: tuple[str, int]) -> None:
        with suppress(OSError):  # the server has stopped
            for _ in range(20):
                socket.create_connection(address, timeout=10).close()

    for _ in range(5):
        with Loopback(always("Hi.")) as server:
            parts = urlsplit(server.url)
            thread = threading.Thread(target=knock, args=((str(parts.hostname), parts.port or 0),))
            thread.start()
        thread.join()
        gc.collect()  # an open socket warns here, and warnings are errors
