"""Prefixes in long sessions of agents: how requests are recorded, how pairs are judged, and the published table."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from penstock.testing import Loopback
from tests.agents.agents import AGENTS, version
from tests.agents.pairs import pairs
from tests.agents.prefix import STEPS
from tests.agents.prefix_page import read_sessions, with_sessions
from tests.agents.recorder import Recorder
from tests.agents.table import PAGE

A: Any = {"role": "user", "content": "a"}
B: Any = {"role": "assistant", "content": "b"}
C: Any = {"role": "user", "content": "c"}


def body(*messages: Any, **fields: Any) -> bytes:
    return json.dumps({"tools": [{"name": "t"}], **fields, "messages": messages}).encode()


CHANGES: dict[str, tuple[bytes, bytes, str]] = {
    "one message more": (body(A), body(A, B), ""),
    "another message": (body(A, B), body(A, C, B), "message 2 of 2"),
    "fewer messages": (body(A, B), body(A), "1 messages"),
    "another tool": (body(A), body(A, B, tools=[]), "tools"),
    "another system text": (body(A, system="x"), body(A, B, system="y"), "system"),
    "another choice": (body(A, tool_choice="auto"), body(A, B, tool_choice="required"), "tool_choice"),
    "another order of keys": (body(A), body({"content": "a", "role": "user"}), "message 1 of 1"),
    "another spelling of a character": (
        b'{"messages": [{"content": "\\u00e9"}]}',
        b'{"messages": [{"content": "\xc3\xa9"}]}',
        "message 1 of 1",
    ),
    "other fields": (body(A, max_tokens=1), body(A, B, max_tokens=2), ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_first_difference_of_a_pair_is_named(name: str) -> None:
    earlier, later, expected = CHANGES[name]
    [pair] = pairs([earlier, later], [earlier, later])
    assert (pair.upstream.startswith(expected), bool(pair.upstream)) == (True, bool(expected))
    assert not pair.is_broken


def test_a_pair_is_broken_if_only_the_gateway_changed_it() -> None:
    whole, changed = [body(A), body(A, B)], [body(A), body(C, B)]
    assert [pair.is_broken for pair in pairs(whole, changed)] == [True]
    assert [pair.is_broken for pair in pairs(changed, whole)] == [False]
    assert [pair.is_broken for pair in pairs(changed, changed)] == [False]


def test_a_request_that_is_missing_upstream_is_an_error() -> None:
    with pytest.raises(AssertionError, match="2 requests of the client, 1 upstream"):
        pairs([body(A), body(A, B)], [body(A)])


def test_marks_for_the_cache_may_move() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}
    plain = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    assert pairs([body(marked), body(plain, B)], [body(A), body(A, B)])[0].client == ""


def test_a_recorder_keeps_the_bytes_and_passes_everything_on() -> None:
    sent = b'{"model":"m",  "stream":true,"messages":[{"role":"user","content":"\xc3\xa9"}]}'
    with Loopback(["Hello."]) as server, Recorder(server.url) as recorder:
        address = f"{recorder.url}/v1/chat/completions?a=1"
        with urllib.request.urlopen(urllib.request.Request(address, sent), timeout=30) as reply:
            assert b"Hello." in reply.read()
            assert reply.headers["content-type"].startswith("text/event-stream")
        with urllib.request.urlopen(f"{recorder.url}/v1/models", timeout=30) as reply:
            assert b"sim" in reply.read()
    assert [(one.path, one.body) for one in recorder.requests] == [("/v1/chat/completions", sent)]


def test_every_agent_played_a_long_session_and_the_gateway_broke_no_pair() -> None:
    sessions = read_sessions()
    assert {one.agent: one.version for one in sessions} == {name: version(agent) for name, agent in AGENTS.items()}
    for one in sessions:
        assert (one.broken, one.problems) == ((), ()), one.agent
        assert min(one.steps, one.pairs) >= STEPS


def test_the_page_shows_the_published_sessions() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_sessions(page, read_sessions()), "python -m tests.agents.prefix --write writes it"
