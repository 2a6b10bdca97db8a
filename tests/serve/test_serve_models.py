"""Agents that are served as models: the clients of OpenAI and Anthropic talk to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec import Struct

import penstock.serve
from penstock import Agent, Model, Retries
from penstock.log import SQLiteStore
from penstock.serve import ServerLimits
from penstock.serve.models import api as models_api
from penstock.testing import Reply, Scripted, call, fail, wait
from tests.asgi_client import Browser, serving
from tests.gateways import anthropic_client, openai_client
from tests.serve.test_serve import agent_of, look

ASK: Any = [{"role": "user", "content": "Weather in Rome?"}]
TWO_STEPS = (Reply("Let me look. ", call("look", {"city": "Rome"})), "Sunny.")


def run(path: Path, answers: Any, test: Callable[[Browser], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        store = SQLiteStore(path / "runs.db")
        agent = agent_of(*answers) if isinstance(answers, tuple) else answers
        app = penstock.serve.app(agent, log=store, shutdown_seconds=0.1, **options)
        async with serving(app) as browser:
            await test(browser)

    asyncio.run(main())


def test_the_client_of_openai_reads_an_agent_in_both_protocols(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        client = openai_client(browser)
        assert [model.id async for model in client.models.list()] == ["support"]
        whole = await client.chat.completions.create(model="support", messages=ASK)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("Let me look. \nSunny.", "stop")
        assert whole.usage is not None
        chunks = [
            chunk async for chunk in await client.chat.completions.create(model="support", messages=ASK, stream=True)
        ]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "Let me look. \nSunny."
        response = await client.responses.create(model="support", input="Weather in Rome?")
        assert (response.output_text, response.status) == ("Let me look. \nSunny.", "completed")
        async with client.responses.stream(model="support", input="Weather in Rome?") as stream:
            assert (await stream.get_final_response()).output_text == "Let me look. \nSunny."

    run(tmp_path, TWO_STEPS * 4, test)


def test_the_client_of_anthropic_reads_an_agent(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        client = anthropic_client(browser)
        whole = await client.messages.create(model="support", max_tokens=100, messages=ASK)
        assert ["".join(part.text for part in whole.content if part.type == "text"), whole.stop_reason] == [
            "Let me look. \nSunny.",
            "end_turn",
        ]
        async with client.messages.stream(model="support", max_tokens=100, messages=ASK) as stream:
            assert await stream.get_final_text() == "Let me look. \nSunny."

    run(tmp_path, TWO_STEPS * 2, test)


def test_calls_that_need_a_person_are_declined(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        whole = await openai_client(browser).chat.completions.create(model="support", messages=ASK)
        assert whole.choices[0].message.content == "I could not pay."
        [row] = (await browser.get("/runs")).json["runs"]
        assert "this client cannot approve calls" in (await browser.get(f"/runs/{row['id']}/events")).body.decode()

    run(tmp_path, (Reply(call("pay", {"amount": 7})), "I could not pay."), test)


def test_a_run_that_fails_is_an_error_without_the_words_of_its_provider(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        client = openai_client(browser)
        with pytest.raises(openai.APIStatusError) as whole:
            await client.chat.completions.create(model="support", messages=ASK)
        assert whole.value.status_code >= 500
        with pytest.raises(openai.APIError) as streamed:
            async for _ in await client.chat.completions.create(model="support", messages=ASK, stream=True):
                pass
        assert "s3cret" not in f"{whole.value} {streamed.value}"

    run(tmp_path, (Reply("Hm.", fail("server_error", "s3cret")), Reply("Hm.", fail("server_error", "s3cret"))), test)


@pytest.mark.parametrize("path", models_api.WIRES)
def test_what_the_model_withdrew_ends_a_stream_without_the_words_of_its_provider(tmp_path: Path, path: str) -> None:
    asked: list[str] = []

    def answer(request: Any) -> Reply | str:
        asked.append(request.prompt)
        if asked.count(request.prompt) == 1:
            return Reply("Lost ", fail("server_error", "s3cret"))
        return "This counts." if request.prompt == "whole" else Reply(wait(60))

    async def post(browser: Browser, prompt: str) -> Any:
        history: Any = [{"role": "user", "content": prompt}]
        body = {"model": "support", "max_tokens": 9, "stream": prompt == "streamed"}
        return await browser.post(path, body | {"input" if path == "/v1/responses" else "messages": history})

    async def test(browser: Browser) -> None:
        streamed, [row] = await post(browser, "streamed"), (await browser.get("/runs")).json["runs"]
        assert b"cannot be continued" in streamed.body
        assert b"s3cret" not in streamed.body
        assert (await browser.get(f"/runs/{row['id']}/events")).frames[-1][1]["reason"] == "cancelled"
        whole = await post(browser, "whole")
        assert b"This counts." in whole.body
        assert b"Lost" not in whole.body

    run(tmp_path, agent_of(answer, retries=Retries(after_start=True, first_delay=0)), test)


BAD = [
    ({"model": "other", "messages": ASK}, 404),
    ({"model": "support"}, 400),
    ({"model": "support", "messages": [{"role": "user", "content": 7}]}, 400),
    ({"model": "support", "messages": ASK, "tools": [{"type": "function", "function": {"name": "look"}}]}, 400),
    ([], 400),
]


@pytest.mark.parametrize(("body", "status"), BAD)
def test_a_bad_request_is_refused_in_the_shape_of_the_protocol(tmp_path: Path, body: Any, status: int) -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post("/v1/chat/completions", body)
        assert (reply.status, set(reply.json)) == (status, {"error"})
        assert reply.json["error"]["message"]
        other = await browser.post("/v1/messages", body)
        assert (other.status, other.json["type"]) == (status, "error")
        assert (await browser.get("/runs")).json["runs"] == []

    run(tmp_path, TWO_STEPS, test)


def test_a_client_that_leaves_cancels_its_run(tmp_path: Path) -> None:
    async def test(browser: Browser) -> None:
        connection = browser.connect(
            "POST", "/v1/chat/completions", {"model": "support", "messages": ASK, "stream": True}
        )
        await connection.reply.until("first")
        connection.leave()
        await asyncio.wait_for(connection.task, 20)
        [row] = (await browser.get("/runs")).json["runs"]
        events = await browser.get(f"/runs/{row['id']}/events")
        assert events.frames[-1][1]["reason"] == "cancelled"

    run(tmp_path, (Reply("first ", wait(60), "last"),), test, limits=ServerLimits(retry_seconds=0))


@pytest.mark.parametrize("is_streaming", [True, False])
def test_an_answer_that_is_too_large_is_an_error_and_cancels_its_run(tmp_path: Path, is_streaming: bool) -> None:
    async def test(browser: Browser) -> None:
        body = {"model": "support", "messages": ASK, "stream": is_streaming}
        reply = await browser.post("/v1/chat/completions", body)
        assert (reply.status, b"answer_too_large" in reply.body) == (200 if is_streaming else 502, True)
        [row] = (await browser.get("/runs")).json["runs"]
        async with asyncio.timeout(20):
            while not (done := (await browser.get(f"/runs/{row['id']}")).json["done"]):
                pass
        assert done["reason"] == "cancelled"

    run(tmp_path, (Reply("x" * 5000, wait(60)),), test, limits=ServerLimits(answer=4000))


class Trip(Struct):
    """A trip."""

    city: str
    nights: int


def test_an_agent_with_structured_output_sends_that_alone(tmp_path: Path) -> None:
    script: list[Any] = [Reply("Let me look. ", call("look", {"city": "Rome"})), '{"city": "Rome", "nights": 2}']
    model = Model("openai-compatible:m", via=Scripted([*script, *script]))
    agent: Any = Agent(model, [look], name="trips", output=Trip)

    async def test(browser: Browser) -> None:
        client = openai_client(browser)
        whole = await client.chat.completions.create(model="trips", messages=ASK)
        assert whole.choices[0].message.content == '{"city": "Rome", "nights": 2}'
        async with client.responses.stream(model="trips", input="Where?") as stream:
            assert (await stream.get_final_response()).output_text == '{"city": "Rome", "nights": 2}'

    run(tmp_path, agent, test)


def test_a_missing_key_of_the_provider_does_not_look_like_one_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async def test(browser: Browser) -> None:
        for path in models_api.WIRES:
            body = {"model": "support", "max_tokens": 9, "messages" if path != "/v1/responses" else "input": ASK}
            reply = await browser.post(path, body)
            assert reply.status == 502
            assert "provider_key_missing" in reply.json["error"].values()
            assert "the server has no API key for the provider" in reply.json["error"]["message"]
            streamed = await browser.post(path, body | {"stream": True})
            assert b"provider_key_missing" in streamed.body
        started = await browser.post("/runs", {"prompt": "Go."})
        [error] = [event for _, event in (await browser.get(started.json["events"])).frames if event["type"] == "error"]
        assert (error["code"], error["retryable"]) == ("MissingKeyError", False)
        assert "no API key" in error["message"]

    run(tmp_path, Agent(Model("openai:gpt-5"), name="support"), test)
