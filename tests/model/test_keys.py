"""API keys that a function returns, and AWS signatures: made for each attempt, and never on the event loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, AuthenticationError, MissingKeyError, Model, Retries, TimedOut, Timeouts, UsageError, tool
from penstock.testing import Loopback, Reply, Status, always, call
from penstock.transport import aws_signature
from penstock.transport.commands import HTTPRequest, OpenRequest
from penstock.transport.deadlines import Deadlines
from tests.asking import KEY, LONG, every_wire, failure, model_on, read, sync_and_async, within

SOON = Retries(first_delay=0.001)


def plain_key(keys: Any) -> Callable[[], Any]:
    return lambda: next(keys)


def async_key(keys: Any) -> Callable[[], Any]:
    async def key() -> str:
        await asyncio.sleep(0)
        return str(next(keys))

    return key


def late_key(keys: Any) -> Callable[[], Any]:
    """A plain function that returns a coroutine."""
    return lambda: async_key(keys)()


every_kind = pytest.mark.parametrize("kind", [plain_key, async_key, late_key])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The credentials of each request that is sent; the loopback server does not show them."""
    keys, open_request = list[str](), Deadlines.open
    names = ("authorization", "x-api-key", "x-goog-api-key", "api-key")

    def watched(deadlines: Deadlines, request: HTTPRequest) -> OpenRequest:
        headers = {name.lower(): value for name, value in request.headers.items()}
        keys.append(next(headers[name] for name in names if name in headers).removeprefix("Bearer "))
        return open_request(deadlines, request)

    monkeypatch.setattr(Deadlines, "open", watched)
    return keys


@every_wire
@every_kind
@sync_and_async
def test_a_function_is_called_for_each_request(wire: str, kind: Any, mode: str, sent: list[str]) -> None:
    keys = (f"secret-key-{number}" for number in itertools.count())
    with Loopback(always("Hi.")) as server:
        url = server.url if wire == "mistral" else server.base_url(wire)
        model = model_on(wire, url, api_key=kind(keys))
        for _ in range(2):
            assert read(mode, model)[1].text == "Hi."
        assert sent == ["secret-key-0", "secret-key-1"]
    assert "secret-key" not in repr(model)


@every_kind
@sync_and_async
def test_a_function_is_called_again_for_another_attempt(kind: Any, mode: str, sent: list[str]) -> None:
    keys = iter(["first-key", "second-key"])
    with Loopback([Status(503), "Hi."]) as server:
        model = Model("openai-compatible:m", server.base_url("openai-chat"), kind(keys), retries=SOON)
        assert read(mode, model)[1].text == "Hi."
        assert sent == ["first-key", "second-key"]


@sync_and_async
def test_a_returned_key_is_hidden(mode: str, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    with Loopback([Status(401, f"the key {KEY} is wrong"), f"Your key is {KEY}."]) as server:
        model = Model("openai-compatible:m", server.base_url("openai-chat"), lambda: KEY, record=record)
        with pytest.raises(AuthenticationError) as raised:
            read(mode, model)
        assert KEY not in f"{raised.value!r} {vars(raised.value)}"
        read(mode, model)
    assert KEY not in record.read_text(encoding="utf-8")


@sync_and_async
@pytest.mark.parametrize(
    ("key", "error", "message"),
    [(7, UsageError, "must return a string, not int"), ("", MissingKeyError, "no API key for openai"),
     ("a\nb", UsageError, "characters that keys cannot have")],
)  # fmt: skip
def test_a_wrong_key_is_an_error(mode: str, key: Any, error: type[Exception], message: str) -> None:
    with Loopback("Hi.") as server:
        with pytest.raises(error, match=message):
            read(mode, Model("openai:m", server.base_url("openai-chat"), lambda: key))
        assert not server.requests


@sync_and_async
def test_an_error_of_the_function_is_raised(mode: str) -> None:
    def key() -> str:
        raise LookupError("no token")

    with Loopback("Hi.") as server, pytest.raises(LookupError, match="no token"):
        read(mode, Model("openai:m", server.base_url("openai-chat"), key))


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_function_that_takes_too_long_is_an_error(mode: str, is_async: bool) -> None:
    is_over, calls = threading.Event(), []

    def key() -> str:
        calls.append("plain")
        is_over.wait(LONG * 2)
        return KEY

    async def slow_key() -> str:
        calls.append("async")
        await asyncio.sleep(LONG * 2)
        return KEY

    with Loopback("Hi.") as server, within(LONG):
        for timeouts, limit in (
            (Timeouts(first_event=0.1), "credentials took longer than 0.1 seconds (timeouts.first_event)"),
            (Timeouts(total=0.1), "took longer than 0.1 seconds (timeouts.total)"),
        ):
            function = slow_key if is_async else key
            model = Model("openai:m", server.base_url("openai-chat"), function, timeouts=timeouts, retries=SOON)
            assert limit in failure(mode, TimedOut, model).message
        assert (len(calls), server.requests) == (2, []), "it is not called again"
    is_over.set()


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_timeout_of_the_function_itself_is_raised(mode: str, is_async: bool) -> None:
    def key() -> str:
        raise TimeoutError("the vault is slow")

    async def late() -> str:
        return key()

    with Loopback("Hi.") as server, pytest.raises(TimeoutError, match="the vault is slow"):
        read(mode, Model("openai:m", server.base_url("openai-chat"), late if is_async else key))


def test_a_blocking_function_does_not_block_the_event_loop() -> None:
    is_beating = threading.Event()

    def key() -> str:
        assert is_beating.wait(20), "the event loop is blocked"
        return "key"

    async def main(model: Model) -> str:
        asyncio.get_running_loop().call_later(0.05, is_beating.set)
        return (await model.acomplete("Hi.")).text

    with Loopback("Hi.") as server:
        assert asyncio.run(main(Model("openai-compatible:m", server.base_url("openai-chat"), key))) == "Hi."


@sync_and_async
def test_agents_use_keys_that_a_function_returns(mode: str, sent: list[str]) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    with Loopback([Reply(call("look")), "Done."]) as server:
        model = Model("openai-compatible:m", server.base_url("openai-chat"), async_key(iter(["one-key", "two-key"])))
        agent = Agent(model, [look])
        result = agent.run("Hi.") if mode == "sync" else asyncio.run(agent.arun("Hi."))
        assert result.output == "Done."
        assert sent == ["one-key", "two-key"]


def test_aws_sessions_are_made_once_and_not_on_the_event_loop(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> None:
    for name, value in (
        ("ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("SECRET_ACCESS_KEY", KEY),
        ("EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    threads = list[str]()

    def slow_import(name: str) -> Any:
        if name == "botocore.session":
            threads.append(threading.current_thread().name)
            time.sleep(0.05)
        return import_module(name)

    monkeypatch.setattr(aws_signature, "import_module", slow_import)
    aws_signature._sessions.reset()

    async def main(model: Model) -> None:
        for _ in range(3):
            assert (await model.acomplete("Hi.")).text == "Hi."

    with Loopback(always("Hi.")) as server:
        model = Model("bedrock:m", server.base_url("bedrock"))
        asyncio.run(main(model))
        assert model.complete("Hi.").text == "Hi."
        assert len(threads) == 1
        assert threads[0] != threading.main_thread().name
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
        model.complete("Hi.")
    assert [("AKIAOTHER" in one, "AKIAEXAMPLE" in one) for one in sent] == [(False, True)] * 4 + [(True, False)]
    aws_signature._sessions.reset()
