"""A vendor's own SDK reads the stream, and `decode` takes its objects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import penstock
from penstock import WireName
from penstock.wires import ALIASES, WIRES
from tests import streams

CONTENT_TYPES = {"ollama": "application/x-ndjson", "bedrock": "application/vnd.amazon.eventstream"}
PROMPT = [{"role": "user", "content": "How do I get to Rome, and do I need an umbrella?"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A loopback server that answers any request with the stream of the wire that is first in the path."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            wire = self.path.split("/")[1]
            body = streams.body(wire)
            self.send_response(200)
            self.send_header("content-type", CONTENT_TYPES.get(wire, "text/event-stream"))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def assert_right(turn: penstock.Turn, wire: WireName) -> None:
    assert turn.text == streams.TEXT
    assert [(call.name, call.arguments) for call in turn.tool_calls] == streams.CALLS
    assert turn.finish_reason == "tool_calls"
    assert turn.invalid_calls == []
    assert turn.unknown == ()
    raw = penstock.collect(penstock.decode(streams.body(wire), wire=wire))
    assert [part.type for part in turn.parts] == [part.type for part in raw.parts]
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (5, 7)


@pytest.mark.parametrize("wire", [*WIRES, *ALIASES])
def test_the_streams_of_these_tests_decode_as_expected(wire: WireName) -> None:
    assert_right(penstock.collect(penstock.decode(streams.body(wire), wire=wire)), wire)


def test_openai_chat(server: str) -> None:
    from openai import OpenAI

    with OpenAI(base_url=f"{server}/openai-chat/v1", api_key="-") as client:
        stream = client.chat.completions.create(model="m", messages=PROMPT, stream=True)
        assert_right(penstock.collect(penstock.decode(stream, wire="openai-chat")), "openai-chat")


def test_openai_chat_helper_stream(server: str) -> None:
    from openai import OpenAI

    with OpenAI(base_url=f"{server}/openai-chat/v1", api_key="-") as client:  # noqa: SIM117
        with client.chat.completions.stream(model="m", messages=PROMPT) as stream:
            assert_right(penstock.collect(penstock.decode(stream, wire="openai-chat")), "openai-chat")


def test_openai_chat_async(server: str) -> None:
    from openai import AsyncOpenAI

    async def run() -> penstock.Turn:
        async with AsyncOpenAI(base_url=f"{server}/openai-chat/v1", api_key="-") as client:
            stream = await client.chat.completions.create(model="m", messages=PROMPT, stream=True)
            return await penstock.aconsume(penstock.decode(stream, wire="openai-chat"))

    assert_right(asyncio.run(run()), "openai-chat")


def test_openai_responses(server: str) -> None:
    from openai import OpenAI

    with OpenAI(base_url=f"{server}/openai-responses/v1", api_key="-") as client:
        stream = client.responses.create(model="m", input="?", stream=True)
        assert_right(penstock.collect(penstock.decode(stream, wire="openai-responses")), "openai-responses")


def test_anthropic(server: str) -> None:
    from anthropic import Anthropic

    with Anthropic(base_url=f"{server}/anthropic", api_key="-") as client:
        stream = client.messages.create(model="m", max_tokens=9, messages=PROMPT, stream=True)
        assert_right(penstock.collect(penstock.decode(stream, wire="anthropic")), "anthropic")


def test_anthropic_helper_stream(server: str) -> None:
    from anthropic import Anthropic

    with Anthropic(base_url=f"{server}/anthropic", api_key="-") as client:  # noqa: SIM117
        with client.messages.stream(model="m", max_tokens=9, messages=PROMPT) as stream:
            assert_right(penstock.collect(penstock.decode(stream, wire="anthropic")), "anthropic")


def test_google_genai(server: str) -> None:
    from google import genai

    client = genai.Client(api_key="-", http_options=genai.types.HttpOptions(base_url=f"{server}/gemini"))
    stream = client.models.generate_content_stream(model="m", contents="?")
    turn = penstock.collect(penstock.decode(stream, wire="gemini"))
    assert_right(turn, "gemini")
    [signature] = [part for part in turn.parts if isinstance(part, penstock.Opaque)]
    assert signature.data == "c2lnbmVkPz8+Pg==", "the signature goes through the SDK's bytes and comes out as it was"
    client.close()


def test_google_genai_interactions(server: str) -> None:
    from google import genai

    wire: WireName = "gemini-interactions"
    client = genai.Client(api_key="-", http_options=genai.types.HttpOptions(base_url=f"{server}/{wire}"))
    stream = client.interactions.create(model="m", input="?", stream=True)
    assert_right(penstock.collect(penstock.decode(stream, wire="gemini-interactions")), wire)
    client.close()


def test_ollama(server: str) -> None:
    from ollama import Client

    stream = Client(host=f"{server}/ollama").chat(model="m", messages=PROMPT, stream=True)
    assert_right(penstock.collect(penstock.decode(stream, wire="ollama")), "ollama")


def test_cohere(server: str) -> None:
    from cohere import ClientV2

    client = ClientV2(api_key="-", base_url=f"{server}/cohere")
    stream = client.chat_stream(model="m", messages=PROMPT)
    assert_right(penstock.collect(penstock.decode(stream, wire="cohere")), "cohere")


def test_mistralai(server: str) -> None:
    from mistralai.client import Mistral

    with Mistral(api_key="-", server_url=f"{server}/mistral") as client:
        stream = client.chat.stream(model="m", messages=PROMPT)
        assert_right(penstock.collect(penstock.decode(stream, wire="mistral")), "mistral")


def test_boto3(server: str) -> None:
    import boto3

    client = boto3.client(
        "bedrock-runtime", region_name="eu-west-1", endpoint_url=f"{server}/bedrock",
        aws_access_key_id="-", aws_secret_access_key="-",
    )  # fmt: skip
    messages = [{"role": "user", "content": [{"text": "?"}]}]
    stream = client.converse_stream(modelId="m", messages=messages)["stream"]
    assert_right(penstock.collect(penstock.decode(stream, wire="bedrock")), "bedrock")


class EitherWay:
    """A stream for sync and async code, as litellm's are."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.frames)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for frame in self.frames:
            yield frame


def test_a_sync_and_async_stream_is_decoded_in_both_ways() -> None:
    frames = [streams.body("openai-chat")]
    events: Any = penstock.decode(EitherWay(frames), wire="openai-chat")
    assert_right(penstock.collect(events), "openai-chat")

    async def read() -> penstock.Turn:
        return await penstock.aconsume(penstock.decode(EitherWay(frames), wire="openai-chat"))

    assert_right(asyncio.run(read()), "openai-chat")


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"inner": value}
    return value


@pytest.mark.parametrize(
    "value", [10**5000, nested(50_000), {"\ud800": 10**5000}], ids=["digits", "levels", "surrogate"]
)
def test_an_object_that_cannot_be_json_is_a_frame_that_cannot_be_read(value: Any) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hello."}}], "usage": value}
    events = list(penstock.decode([chunk], wire="openai-chat"))
    assert [event.type for event in events] == ["unknown", "error", "finish"]
    assert "an object of type dict" in penstock.collect(events).unknown[0].raw
