"""`AgentStreamer.process_stream`: a response that the caller reads itself, with the calls in its text run inline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from penstock import AgentStreamer, Limits, Message, Model, UsageError, check, tool
from penstock.messages import user
from penstock.testing import Scripted

TEXT = """I look.

<function_calls>
<invoke name="read">
<parameter name="path">/a</parameter>
</invoke>
<invoke name="read">
<parameter name="path">/b</parameter>
</invoke>
</function_calls>
Done."""
READ = {"type": "function", "function": {"name": "read", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}}}}  # fmt: skip


async def as_async(tokens: Iterable[Any]) -> AsyncIterator[Any]:
    for token in tokens:
        await asyncio.sleep(0)
        yield token


def cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def results(messages: list[Message]) -> list[tuple[str, str, bool]]:
    return [(result.call_id, result.text, result.is_error) for message in messages for result in message.results]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("executor", ["sync", "async"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_text_and_calls_come_in_their_order(kind: str, executor: str, size: int) -> None:
    log: list[Any] = []

    def read(name: str, arguments: dict[str, Any]) -> Any:
        log.append((name, arguments["path"]))
        return {"lines": 3}

    async def read_later(name: str, arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return read(name, arguments)

    streamer = AgentStreamer(on_text=log.append)
    tokens: Any = cut(TEXT, size) if kind == "sync" else as_async(cut(TEXT, size))
    messages = asyncio.run(streamer.process_stream(tokens, read if executor == "sync" else read_later))
    calls = [entry for entry in log if isinstance(entry, tuple)]
    assert calls == [("read", "/a"), ("read", "/b")]
    before, between, after = (
        "".join(part)
        for part in (log[: log.index(calls[0])], log[log.index(calls[0]) + 1 : log.index(calls[1])],
                     log[log.index(calls[1]) + 1 :])
    )  # fmt: skip
    assert (before.strip(), between.strip(), after.strip()) == ("I look.", "", "Done.")
    assert [message.role for message in messages] == ["assistant", "tool"]
    assert results(messages) == [("call_0", '{"lines":3}', False), ("call_1", '{"lines":3}', False)]
    assert not check([user("Look."), *messages])


def test_the_next_token_is_read_when_the_call_has_ended() -> None:
    log: list[str] = []

    async def tokens() -> AsyncIterator[str]:
        yield TEXT.partition("Done.")[0]
        log.append("next token")
        yield "Done."

    async def read(name: str, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(0.01)
        log.append(arguments["path"])
        return ""

    asyncio.run(AgentStreamer().process_stream(tokens(), read))
    assert log == ["/a", "/b", "next token"]


def test_the_tools_of_the_agent_run_without_an_executor() -> None:
    log: list[Any] = []

    @tool
    def read(path: str, lines: int = 2) -> list[str]:
        return [path] * lines

    streamer = AgentStreamer(None, [read], on_tool_start=lambda *start: log.append(start))
    text = TEXT.replace("/b</parameter>", '/b</parameter><parameter name="lines">1</parameter>')
    messages = asyncio.run(streamer.process_stream([text]))
    assert [text for _, text, _ in results(messages)] == ['["/a","/a"]', '["/b"]']
    assert log == [("call_0", "read", {"path": "/a"}), ("call_1", "read", {"path": "/b", "lines": 1})]


@pytest.mark.parametrize("executor", [False, True], ids=["tools", "executor"])
def test_an_error_is_a_result(executor: bool) -> None:
    def read(path: str) -> str:
        raise ValueError(f"no {path}")

    run = (lambda name, arguments: read(**arguments)) if executor else None
    messages = asyncio.run(AgentStreamer(None, [read]).process_stream([TEXT], run))
    assert results(messages) == [("call_0", "ValueError: no /a", True), ("call_1", "ValueError: no /b", True)]


def test_a_model_continues_with_the_results_and_the_same_executor() -> None:
    texts: list[str] = []
    paths: list[str] = []
    again = (
        TEXT.partition("<invoke")[0]
        + '<invoke name="read"><parameter name="path">/c</parameter></invoke></function_calls>'
    )
    line = Scripted([again, "All is well."])

    async def read(name: str, arguments: dict[str, Any]) -> str:
        paths.append(arguments["path"])
        return "text of " + arguments["path"]

    streamer = AgentStreamer(Model("openai-compatible:m", via=line), [READ], on_text=texts.append)
    messages = asyncio.run(streamer.process_stream(as_async(cut(TEXT, 5)), read, messages="Look."))
    assert paths == ["/a", "/b", "/c"]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert messages[-1].text == "All is well."
    assert "".join(texts).endswith("All is well.")
    assert not check(messages)
    ids = [id for id, _, _ in results(messages)]
    assert len(set(ids)) == 3, "no two calls have one id"


def test_without_calls_a_model_is_not_asked() -> None:
    streamer = AgentStreamer(Model("openai-compatible:m", via=Scripted([])), [READ])
    messages = asyncio.run(streamer.process_stream(["Hel", None, "", "lo."]))
    assert [message.text for message in messages] == ["Hello."]
    assert asyncio.run(streamer.process_stream([])) == []


def test_a_call_that_is_cut_does_not_run() -> None:
    ran: list[str] = []
    text = TEXT.partition("</invoke>")[0]
    messages = asyncio.run(AgentStreamer().process_stream([text], lambda name, arguments: ran.append(name)))
    assert ran == []
    [(_, why, is_error)] = results(messages)
    assert why.startswith("Not run: the call is cut")
    assert is_error


def test_a_quotation_does_not_run() -> None:
    ran: list[str] = []
    asyncio.run(AgentStreamer().process_stream([TEXT], lambda name, arguments: ran.append(name), messages=TEXT))
    assert ran == []


def test_what_cannot_run_here_says_so() -> None:
    @tool(approval=True)
    def read(path: str) -> str:
        pytest.fail("it needs approval")

    for streamer, why in [
        (AgentStreamer(None, [read]), "needs approval"),
        (AgentStreamer(None, [READ]), "from elsewhere"),
        (AgentStreamer(), "There is no tool called 'read'"),
        (AgentStreamer(None, [READ], limits=Limits(calls=0)), "there may be 0 calls"),
    ]:
        assert all(
            why in text and is_error for _, text, is_error in results(asyncio.run(streamer.process_stream([TEXT])))
        )


def test_an_approval_predicate_that_raises_requires_approval() -> None:
    async def failing(arguments: dict[str, Any]) -> bool:
        raise RuntimeError("the service for approvals does not answer")

    @tool(approval=failing)
    def read(path: str) -> str:
        pytest.fail("it needs approval")

    found = results(asyncio.run(AgentStreamer(None, [read]).process_stream([TEXT])))
    assert ["needs approval" in text for _, text, _ in found] == [True, True]


def test_a_plain_approval_predicate_does_not_block_the_loop() -> None:
    threads: list[threading.Thread] = []

    def note_thread(arguments: dict[str, Any]) -> bool:
        threads.append(threading.current_thread())
        return False

    @tool(approval=note_thread)
    def read(path: str) -> str:
        return path

    asyncio.run(AgentStreamer(None, [read]).process_stream([TEXT]))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_a_tool_that_takes_too_long_is_cancelled() -> None:
    @tool(timeout=0.05)
    async def read(path: str) -> str:
        await asyncio.sleep(60)
        return path

    messages = asyncio.run(AgentStreamer(None, [read]).process_stream([TEXT]))
    assert ["0.05 seconds" in text for _, text, _ in results(messages)] == [True, True]


def test_the_callbacks_of_the_agent_are_called_and_may_be_async() -> None:
    log: list[Any] = []

    async def ended(call_id: str, result: Any) -> None:
        await asyncio.sleep(0)
        log.append((call_id, result))

    streamer = AgentStreamer(on_tool_end=ended, on_reasoning=log.append, separate_text=True, on_text=log.append)
    asyncio.run(streamer.process_stream(["<think>Hm.</think>" + TEXT], lambda name, arguments: arguments["path"]))
    assert log[0] == "Hm."
    assert [entry for entry in log if isinstance(entry, tuple)] == [("call_0", "/a"), ("call_1", "/b")]


@pytest.mark.parametrize("tokens", [5, [b"x"], [{"text": "x"}]], ids=repr)
def test_tokens_must_be_text(tokens: Any) -> None:
    with pytest.raises(UsageError, match="tokens must be"):
        asyncio.run(AgentStreamer().process_stream(tokens))


def test_an_error_of_the_tokens_is_raised() -> None:
    async def tokens() -> AsyncIterator[str]:
        yield "x"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        asyncio.run(AgentStreamer().process_stream(tokens()))


def test_an_agent_without_a_model_has_no_runs() -> None:
    for begin in (AgentStreamer().run, AgentStreamer().stream, AgentStreamer().astream):
        with pytest.raises(UsageError, match="has no model"):
            begin("Hi.")
