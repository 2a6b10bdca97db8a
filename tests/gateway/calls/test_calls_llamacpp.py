"""A real llama.cpp: it returns unparsed text if asked in the right way, and its own parser fails on some texts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from penstock.gateway import Upstream, app
from tests.asgi_client import Browser, serving
from tests.gateways import openai_client
from tests.llamacpp.model import CALL, CALL_END, write_model
from tests.llamacpp.process import running

FOLDER = Path(__file__).parents[2] / "llamacpp"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "forecast", "parameters": CITY}}]
ASK: Any = [{"role": "user", "content": "What will the weather be?"}]
BODY = (' {"name": "forecast",', ' "arguments": {"city": "Rome"}}')
EXPECTED = [("forecast", '{"city": "Rome"}')]
MISSED = ("I look.", CALL, *BODY, CALL_END)
"""A call with a space where the template has a line break: the server's parser misses it."""
BROKEN = ("The code is ", "int main() {", " return 0; }.", CALL, *BODY, CALL_END)
"""Code before the call, which the server's parser takes for a call."""
THOUGHT = ("I wonder.", "</think>", "I look.", CALL, *BODY, CALL_END)
FAILURE = "does not match the expected"


def server(folder: Path, script: tuple[str, ...], template: str) -> Iterator[str]:
    pytest.importorskip("xllamacpp", reason="there is no wheel of llama.cpp for this platform", exc_type=ImportError)
    write_model(folder / "tiny.gguf", script, FOLDER / template)
    with running(folder / "tiny.gguf") as address:
        yield address


@pytest.fixture(scope="module")
def missing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose parser misses the call."""
    yield from server(tmp_path_factory.mktemp("missing"), MISSED, "template.jinja")


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose parser fails."""
    yield from server(tmp_path_factory.mktemp("failing"), BROKEN, "bare.jinja")


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose template ends with the opening mark of the reasoning."""
    yield from server(tmp_path_factory.mktemp("thinking"), THOUGHT, "thinking.jinja")


async def complete(browser: Browser, *, is_streaming: bool) -> Any:
    """The completion, by the vendor's SDK."""
    client = openai_client(browser)
    fields: Any = {"model": "m", "messages": ASK, "tools": TOOLS, "temperature": 0}
    if not is_streaming:
        return await client.chat.completions.create(**fields)
    async with client.chat.completions.stream(**fields, stream_options={"include_usage": True}) as stream:
        return await stream.get_final_completion()


def ask(address: str, calls: str, *, is_streaming: bool, count: int = 1, model: str = "qwen3-tiny") -> Any:
    """The last of some completions through a gateway, and the reports."""

    async def run() -> Any:
        upstream = Upstream(
            name="local", provider="llamacpp", url=f"{address}/v1", retries=0 if calls == "native" else 2
        )
        async with serving(app(upstream, model=model, calls=calls)) as browser:
            completions = [await complete(browser, is_streaming=is_streaming) for _ in range(count)]
            return completions[-1], (await browser.get("/healed")).json["requests"]

    return asyncio.run(run())


def calls_of(completion: Any) -> list[tuple[str, str]]:
    found = completion.choices[0].message.tool_calls or []
    return [(one.function.name, one.function.arguments) for one in found]


def direct(address: str, **fields: Any) -> Any:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        return client.chat.completions.create(model="m", messages=ASK, temperature=0, **fields)


def test_with_the_choice_none_the_tools_are_in_the_prompt_and_the_text_is_not_parsed(failing: str) -> None:
    plain, raw = (direct(failing, **fields) for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}))
    assert raw.choices[0].message.content == "".join(BROKEN)
    assert raw.usage.prompt_tokens > plain.usage.prompt_tokens + 50
    with pytest.raises(openai.InternalServerError, match=FAILURE):
        direct(failing, tools=TOOLS)
    with pytest.raises(openai.InternalServerError, match=FAILURE):  # it has this field, and does not use it
        direct(failing, tools=TOOLS, extra_body={"parse_tool_calls": False})


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ["missing", "failing", "thinking"])
def test_raw_text_is_read_by_the_gateway(name: str, is_streaming: bool, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue(name)
    completion, (report,) = ask(address, "raw", is_streaming=is_streaming)
    assert calls_of(completion) == EXPECTED
    assert completion.choices[0].finish_reason == "tool_calls"
    text = "The code is int main() { return 0; }." if name == "failing" else "I look."
    assert completion.choices[0].message.content == text
    native = direct(address, tools=TOOLS, tool_choice="none")
    assert completion.usage.prompt_tokens == native.usage.prompt_tokens  # the prompt is the server's own
    assert (report["calls"], report["healed"]) == ("raw", [] if name != "thinking" else report["healed"])
    reasoning = getattr(completion.choices[0].message, "reasoning_content", None)
    assert (reasoning or "").strip() == ("I wonder." if name == "thinking" else "")


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_the_failure_of_its_parser_is_avoided_with_auto(failing: str, is_streaming: bool) -> None:
    completion, (last, first) = ask(failing, "auto", is_streaming=is_streaming, count=2)
    assert calls_of(completion) == EXPECTED
    assert completion.choices[0].message.content == "The code is int main() { return 0; }."
    assert (first["calls"], last["calls"]) == ("hermes", "hermes")
    assert FAILURE in first["asked"][0]["failure"]
    assert [len(report["asked"]) for report in (first, last)] == [2, 1]
    assert any(FAILURE in note for note in first["notes"])


def test_natively_the_failure_of_its_parser_reaches_the_client(failing: str) -> None:
    with pytest.raises(openai.APIError, match=FAILURE):
        ask(failing, "native", is_streaming=False)


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_a_dialect_is_read_from_its_text(missing: str, is_streaming: bool) -> None:
    completion, (report,) = ask(missing, "hermes", is_streaming=is_streaming)
    assert calls_of(completion) == EXPECTED
    assert (report["calls"], report["healed"]) == ("hermes", [])
