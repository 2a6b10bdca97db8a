"""MCP servers that lie, flood, or send what cannot be read: a clear error at once, and nothing else is lost."""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, Image, Model, ToolProgress
from penstock.results import MAX_PARTS
from penstock.testing import Reply, Scripted, call
from tests.scripted_runs import drive, streaming, sync_and_async, texts_of

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from penstock.mcp import MCPTools, ServerError, declared, server, tools
from penstock.mcp import connection as leniency
from penstock.mcp.stdio import without_superseded
from tests.mcp.test_mcp import LIAR, LONG, ends, made, run_calls

OBJECT = {"type": "object"}
RAW = {"name": "raw", "inputSchema": OBJECT}
FINE = {"name": "fine", "inputSchema": OBJECT}
OK = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"ok"}]}}'
PNG = base64.b64encode(b"\x89PNG").decode()


@contextmanager
def lying(*listed: Any, **options: Any) -> Iterator[MCPTools]:
    """A server with these tools."""
    with tools([*LIAR, "tools", json.dumps(listed)], connect_timeout=LONG, **options) as connected:
        yield connected


@pytest.fixture(scope="module")
def raw() -> Iterator[MCPTools]:
    """A server whose tool prints the lines that it is called with. Nothing here may wait for the timeout of a call."""
    with lying(RAW, FINE, timeout=LONG) as connected:
        yield connected


def results_of(source: Any, mode: str, *lines: str, times: int = 1) -> tuple[Any, str]:
    """The events of a run and the result of a call that is answered with these lines, if its server is still usable."""
    began = time.monotonic()
    calls = [[call("raw", {"lines": list(lines), "times": times})], [call("fine", {})]]
    events, running = run_calls(source, mode, *calls)
    answer, after = texts_of(running.messages)
    assert after == "fine ran"
    assert time.monotonic() - began < LONG
    return events, answer


UNREADABLE = [
    '{"jsonrpc":"2.0","id":$ID}',
    '{"jsonrpc":"2.0","id":$ID,"result":5}',
    '{"jsonrpc":"2.0","id":$ID,"error":"broken"}',
    '{"jsonrpc":"2.0","id":$ID,"result":{"content":[' + "[" * 50_000 + "]" * 50_000 + "]}}",
    '{"jsonrpc":"2.0","id":$ID,"result":{"content":[}',
]


@sync_and_async
@pytest.mark.parametrize("line", UNREADABLE, ids=["empty", "number", "error", "deep", "broken"])
def test_an_answer_that_cannot_be_read_is_an_error_at_once(raw: MCPTools, line: str, mode: str) -> None:
    _, answer = results_of(raw, mode, line)
    assert answer == "The MCP server sent a response that is not valid JSON-RPC, so the result is not known."


def test_what_is_not_an_answer_does_not_end_a_call(raw: MCPTools) -> None:
    noise = ["Listening on $ID", '{"level": "info", "id": "x"}', '{"jsonrpc":"2.0","id":$ID,"method":5}', "[]", "{"]
    noise.append('{"jsonrpc":"2.0","id":true,"result":5}')
    assert results_of(raw, "sync", *noise, OK)[1] == "ok"


@sync_and_async
def test_half_a_character_is_replaced(raw: MCPTools, mode: str) -> None:
    line = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"half \\ud83d"}]}}'
    assert results_of(raw, mode, line)[1] == "half \ufffd"
    with lying({"name": "fine", "description": "half \ud83d", "inputSchema": OBJECT}) as source:
        assert [one.description for one in source] == ["half \ufffd"]


@sync_and_async
def test_a_result_of_many_parts_is_shortened_before_it_is_validated(raw: MCPTools, mode: str) -> None:
    _, answer = results_of(raw, mode, '{"jsonrpc":"2.0","id":$ID,"result":{"content":[$PARTS]}}')
    assert answer == "x" * (MAX_PARTS - 1) + f"… {100_000 - MAX_PARTS + 1} more parts were left out …"


@pytest.mark.parametrize(
    "note",
    [
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":1}}',
        '{"method":"notifications/progress","params":{"progress":1,"progressToken":$TOKEN},"jsonrpc":"2.0"}',
    ],
    ids=["list", "log", "progress", "other order"],
)
def test_a_flood_of_notifications_does_not_reach_the_sdk(raw: MCPTools, note: str) -> None:
    """The SDK takes about ten seconds for as many."""
    kept = [
        line for line in without_superseded([note.encode()] * 1000 + [b"{}"] + [note.encode()] * 1000) if line != b"{}"
    ]
    assert len(kept) == 2
    events, answer = results_of(raw, "sync", note, OK, times=50_000)
    assert answer == "ok"
    assert len([event for event in events if isinstance(event, ToolProgress)]) < 100


def test_progress_of_different_calls_and_other_messages_are_not_thinned_out() -> None:
    one, two = (
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}'.encode()
        for token in (1, 2)
    )
    cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    lines: list[Any] = [one, two, one, cancelled, cancelled, b"", b"", OK.encode(), OK.encode()]
    assert without_superseded(lines) == lines


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "image", "data": "@@not base64@@", "mimeType": "image/png"}, "'image/png' that cannot be shown"),
        ({"type": "image", "data": PNG, "mimeType": "image/png\r\nX-Y: z"}, "that cannot be shown: it is not valid"),
        ({"type": "image", "data": "", "mimeType": "image/png"}, "'image/png' that cannot be shown"),
        ({"type": "audio", "data": "A", "mimeType": "audio/wav"}, "'audio/wav' that cannot be shown"),
        ({"type": "resource", "resource": {"uri": "x://y", "blob": "é"}}, "'application/octet-stream' that cannot"),
    ],
    ids=["image", "kind", "empty", "audio", "blob"],
)
def test_media_that_a_provider_would_refuse_is_a_note(raw: MCPTools, block: Any, shown: str) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": "$ID", "result": {"content": [block]}}).replace('"$ID"', "$ID")
    events, answer = results_of(raw, "sync", line)
    assert shown in answer
    assert not any(isinstance(part, Image) for part in ends(events)[0].result.content)


def test_an_error_without_a_word_says_so(raw: MCPTools) -> None:
    events, answer = results_of(raw, "sync", '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"isError":true}}')
    assert (ends(events)[0].ending, answer) == ("failed", "The tool failed, and the MCP server does not say why.")


# -- lists of tools ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", r"did not (list its tools|answer) within 2 seconds"),
        ('{"jsonrpc":"2.0","id":$ID,"error":{"code":1,"message":"no token"}}', "cannot list its tools: no token"),
        ('{"jsonrpc":"2.0","id":$ID,"result":{"tools":null}}', "sent an invalid message"),
        (UNREADABLE[0], "cannot list its tools: The MCP server sent a response that is not valid"),
    ],
    ids=["hangs", "error", "null", "unreadable"],
)
def test_a_server_that_cannot_list_its_tools_is_named_with_the_reason(line: str, problem: str) -> None:
    source = tools([*LIAR, "list", line], name="liar", connect_timeout=LONG if line else 2.0)
    with pytest.raises(ServerError, match=problem) as raised, source:
        pass
    assert "MCP server liar" in str(raised.value)


@sync_and_async
@pytest.mark.parametrize("trusts", [False, True])
def test_of_two_claims_about_a_tool_the_careful_one_counts(trusts: bool, mode: str) -> None:
    """A server that says read-only and destructive at once does not get around the approval of a person."""
    hints = {"readOnlyHint": True, "destructiveHint": True}
    with lying({**FINE, "annotations": hints}, trust_hints=trusts) as source:
        events, _ = drive(streaming(made(source, Reply(call("fine", {})))), mode)
    assert any(isinstance(event, ApprovalRequest) for event in events) is not trusts


def test_a_schema_or_a_list_that_is_too_long_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(declared, "MAX_SCHEMA", 1000)
    monkeypatch.setattr(declared, "MAX_DECLARATIONS", 5000)
    monkeypatch.setattr(server, "MAX_REPORTED", 3)
    monkeypatch.setattr(leniency, "MAX_LISTED", 15)
    long = {"name": "long", "inputSchema": {"type": "object", "properties": {"a": {"description": "d" * 1000}}}}
    many = [{"name": f"tool_{number}", "description": "d" * 900, "inputSchema": OBJECT} for number in range(20)]
    with caplog.at_level(logging.WARNING, "penstock.mcp"), lying(long, *many) as source:
        assert [one.name for one in source] == [f"tool_{number}" for number in range(5)]
        assert "its schema has 10" in source.skipped["long"]
        assert "more than 5000 characters" in source.skipped["tool_5"]
        assert "lists 21 tools at once, of which only 15 are read" in source.skipped["…"]
    assert len(caplog.records) == 4
    assert "8 more tools" in caplog.text


# -- HTTP --------------------------------------------------------------------------------------------------------------


class Odd(http.server.BaseHTTPRequestHandler):
    """A server over HTTP that answers as `mode` says."""

    protocol_version = "HTTP/1.1"
    mode = ""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        id, method = message.get("id"), message.get("method")
        if self.mode.isdigit():
            self._send(int(self.mode), b"<html>no</html>", "text/html")
        elif id is None:
            self._send(202, b"")
        elif method == "initialize":
            info = {"name": "odd", "version": "1"}
            self._result(id, protocolVersion="2025-06-18", capabilities={"tools": {}}, serverInfo=info)
        elif method == "tools/list":
            self._result(id, tools=[FINE])
        else:
            body = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": []}}).encode()
            self._send(200, gzip.compress(body), headers={"content-encoding": "gzip"})

    def do_GET(self) -> None:
        self._send(405, b"")

    do_DELETE = do_GET  # noqa: N815

    def _result(self, id: Any, **fields: Any) -> None:
        self._send(200, json.dumps({"jsonrpc": "2.0", "id": id, "result": fields}).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json", headers: Any = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def odd(mode: str) -> Iterator[str]:
    handler = type("Handler", (Odd,), {"mode": mode})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/mcp"
        running.shutdown()
        thread.join()


@sync_and_async
@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ("401", "status 401: it needs a key"), ("403", "status 403"), ("502", "status 502"),
        ("405", "status 405: if it is a server of the older transport SSE"),
    ],
)  # fmt: skip
def test_the_status_of_a_server_that_refuses_is_named(status: str, problem: str, mode: str) -> None:
    with odd(status) as url:
        _, running = drive(streaming(made(tools(url, connect_timeout=LONG))), mode)
    assert problem in str(running.error)


@sync_and_async
def test_a_compressed_response_is_an_error_at_once(mode: str) -> None:
    with odd("compressed") as url, tools(url, connect_timeout=LONG, timeout=LONG) as source:
        _, running = run_calls(source, mode, [call("fine", {})])
    assert texts_of(running.messages) == ["the response is compressed, which was not asked for"]


def test_an_empty_cursor_ends_a_list(caplog: pytest.LogCaptureFixture) -> None:
    """Some servers write one on the last page."""
    schema = {"type": "object"}
    result = {"tools": [{"name": "fine", "inputSchema": schema}], "nextCursor": ""}
    listing = json.dumps({"jsonrpc": "2.0", "id": "$ID", "result": result}).replace('"$ID"', "$ID")
    with tools([*LIAR, "list", listing], connect_timeout=LONG) as source:
        assert [one.name for one in source] == ["fine"]
        assert source.skipped == {}
    assert "pages" not in caplog.text


def test_names_of_tools_that_the_server_does_not_have_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Else a misspelt `approval` would be no approval."""
    from tests.mcp_server import server as bench

    with tools(bench, name="bench", only=["add", "wipe", "ad"], overrides={"wipee": {"approval": True}}) as source:
        assert [one.name for one in source] == ["add", "wipe"]
    assert [record.getMessage() for record in caplog.records] == [
        "the MCP server bench has no tool 'ad', which only= or overrides= names",
        "the MCP server bench has no tool 'wipee', which only= or overrides= names",
    ]


def test_a_long_name_is_shortened_and_calls_reach_the_tool() -> None:
    """The protocol allows 128 characters, and most providers 64: they would refuse every request."""
    names = [f"{'a' * 90}_{number}" for number in range(2)]
    listed = [{"name": name, "inputSchema": OBJECT} for name in names]
    with lying(*listed, prefix="liar_") as source:
        short = [one.name for one in source]
        assert [len(name) for name in short] == [64, 64]
        assert len({*short}) == 2
        assert all(name.startswith("liar_aaaa") for name in short)
        _, running = run_calls(source, "sync", [call(short[1], {})])
    assert texts_of(running.messages) == [f"unknown tool {names[1]}"]


def test_a_schema_that_a_provider_refuses_does_not_break_the_run() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?!x)"}}, "anyOf": [{}, OBJECT]}
    with lying({"name": "fine", "inputSchema": schema}) as source:
        for name in ("openai:gpt-5", "openai-compatible:m", "anthropic:claude-sonnet-5"):
            script = Scripted([Reply(call("fine", {"a": "b"})), "Done."], strict=True)
            result = Agent(Model(name, via=script), [source]).run("Go.")
            assert (result.output, result.messages[2].results[0].text) == ("Done.", "fine ran")
