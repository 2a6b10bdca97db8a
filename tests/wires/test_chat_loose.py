"""Chat Completions in undocumented shapes: nothing is lost, and a call that lacks a piece does not run.

Each case is decoded whole, cut everywhere, frame by frame, and as parsed dicts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pytest
from msgspec import Struct

import penstock
from penstock import Finish, Message, StreamChunk, Unknown, check, messages
from penstock.wires import find_encoder
from penstock.wires.openai_chat import fragments as fragment
from penstock.wires.shared.request import Request
from tests.budget import places
from tests.cases import each
from tests.growth import assert_linear
from tests.support import decode_pieces, frame_bytes, joined, pieces_of, random_pieces
from tests.wires.test_laws import assert_expected

WIRE: Final = "openai-chat"
Frame = dict[str, Any]


class Case(Struct, frozen=True):
    """The frames and the expected turn, in the keys of a vector; `unknown` are the values of `Unknown` events."""

    frames: list[Frame]
    expected: dict[str, Any]
    unknown: list[Any] = []
    tools: list[str] = []


def chunk(delta: Any = None, finish: str | None = None, **beside: Any) -> Frame:
    return {"id": "c", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish, **beside}]}


def piece(index: Any = None, id: Any = None, name: str | None = None, arguments: Any = None, **beside: Any) -> Frame:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    head = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {**head, "function": function, **beside}


def calls(*entries: Any) -> Frame:
    return chunk({"tool_calls": list(entries)})


def body(*entries: Any, finish: str = "tool_calls", **beside: Any) -> Frame:
    message = {"role": "assistant", "content": None, "tool_calls": list(entries), **beside}
    return {
        "id": "b",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }


def call(id: str, name: str, arguments: Any, **beside: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments, **beside}


def invalid(id: str, name: str, raw: str, why: str) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments_raw": raw, "why": why}


def ran(*whole: Any, broken: Iterable[Any] = (), finish: str = "tool_calls", **more: Any) -> dict[str, Any]:
    """The expected turn of an answer with calls."""
    return {"finish_reason": finish, "tool_calls": list(whole), "invalid_calls": list(broken), **more}


END = chunk({}, "tool_calls")
STOP = chunk({}, "stop")
STOPPED = {"finish_reason": "stop"}
WEATHER, BOOK = piece(None, "0", "weather", '{"city":"Rome"}'), piece(None, "0", "book", '{"city":"Oslo"}')
SIGNED = {"provider_specific_fields": {"thought_signature": "UzI="}}

CASES: dict[str, Case] = {
    # Lost pieces.
    "a new id on a piece without a name": Case(
        [calls(piece(0, "A", "pay", "")), calls(piece(0, "B", None, '{"eur":5}')), END],
        ran(broken=[invalid("A", "pay", "", "cut"), invalid("B", "", '{"eur":5}', "unnamed")]),
    ),
    "a new id in the middle of the arguments": Case(
        [
            calls(piece(0, "A", "rm", '{"p":"/')),
            calls(piece(0, "B", None, "tmp")),
            calls(piece(0, "A", None, '"}')),
            END,
        ],
        ran(broken=[invalid("A", "rm", '{"p":"/"}', "cut"), invalid("B", "", "tmp", "unnamed")]),
    ),
    "an unnamed call invalidates only a call without arguments": Case(
        [
            calls(piece(0, "A", "now", "")),
            calls(piece(1, "B", "pay", '{"eur":5}')),
            calls(piece(2, "C", None, "{}")),
            END,
        ],
        ran(call("B", "pay", {"eur": 5}), broken=[invalid("A", "now", "", "cut"), invalid("C", "", "{}", "unnamed")]),
    ),
    "a late name does not affect the call before it": Case(
        [
            calls(piece(0, "A", "rm", '{"p":')),
            calls(piece(0, "B", None, '{"q":')),
            calls(piece(0, "A", None, "1}")),
            calls(piece(None, "B", "ls", "2}")),
            END,
        ],
        ran(call("A", "rm", {"p": 1}), call("B", "ls", {"q": 2})),
    ),
    "a piece that could belong to two calls invalidates both": Case(
        [
            calls(piece(0, "A", "rm", '{"p":"/'), piece(1, "B", "ls", '{"p":"/')),
            calls(piece(7, None, None, "tmp")),
            calls(piece(0, None, None, '"}'), piece(1, None, None, '"}')),
            END,
        ],
        ran(broken=[invalid("A", "rm", '{"p":"/"}', "cut"), invalid("B", "ls", '{"p":"/"}', "cut")], unknown=1),
        [
            {
                "index": 7,
                "function": {"arguments": "tmp"},
            }
        ],
    ),
    "arguments before their call while another is open": Case(
        [
            calls(piece(0, "A", "ls", "")),
            calls(piece(1, None, None, '{"eur":5}')),
            calls(piece(0, None, None, "{}")),
            calls(piece(1, "B", "pay", "")),
            END,
        ],
        ran(broken=[invalid("A", "ls", '{"eur":5}{}', "malformed"), invalid("B", "pay", "", "cut")]),
    ),
    "the middle of the arguments before their call": Case(
        [calls(piece(0, None, None, '"p":1')), calls(piece(0, "A", "rm", "{")), calls(piece(0, None, None, "}")), END],
        ran(broken=[invalid("A", "rm", "{}", "cut")], unknown=1),
        [
            {
                "index": 0,
                "function": {"arguments": '"p":1'},
            }
        ],
    ),
    "an empty piece before a call loses nothing": Case(
        [calls(piece(0, None, None, "")), calls(piece(0, "A", "now", "")), END], ran(call("A", "now", {}))
    ),
    "a changing index does not damage the next call": Case(
        [
            calls(piece(0, "A", "ls", '{"p":')),
            calls(piece(1, None, None, "1}")),
            calls(piece(1, "B", "pay", "")),
            calls(piece(1, None, None, '{"eur":5}')),
            END,
        ],
        ran(call("A", "ls", {"p": 1}), call("B", "pay", {"eur": 5})),
    ),
    "a function that is text": Case(
        [
            calls(piece(0, "A", "rm", '{"p":"/tmp')),
            calls({"index": 0, "function": "/x"}),
            calls(piece(0, None, None, '"}')),
            END,
        ],
        ran(broken=[invalid("A", "rm", '{"p":"/tmp"}', "cut")], unknown=1),
        [{"tool_calls": {"index": 0, "function": "/x"}}],
    ),
    "a custom call that is text": Case(
        [
            calls({"index": 0, "id": "A", "custom": {"name": "sql", "input": "SELECT"}}),
            calls({"index": 0, "custom": " 1"}),
            END,
        ],
        ran(broken=[invalid("A", "sql", "SELECT", "cut")], unknown=1),
        [{"tool_calls": {"index": 0, "custom": " 1"}}],
    ),
    "an entry that is text may belong to any open call": Case(
        [
            calls(piece(0, "A", "ls", "{}"), piece(1, "B", "rm", '{"p":"')),
            calls("/x"),
            calls(piece(1, None, None, '"}')),
            END,
        ],
        ran(call("A", "ls", {}), broken=[invalid("B", "rm", '{"p":""}', "cut")], unknown=1),
        [{"tool_calls": "/x"}],
    ),
    "a call of another kind does not affect others": Case(
        [calls(piece(0, "A", "now", ""), {"index": 1, "id": "W", "type": "web_search", "web_search": {"q": "x"}}), END],
        ran(call("A", "now", {}), unknown=1),
        [{"tool_calls": {"index": 1, "id": "W", "type": "web_search", "web_search": {"q": "x"}}}],
    ),
    "a delta that is text may belong to any call": Case(
        [
            calls(piece(0, "A", "rm", '{"p":"/')),
            {"choices": [{"delta": "tmp"}]},
            calls(piece(0, None, None, '"}')),
            END,
        ],
        ran(broken=[invalid("A", "rm", '{"p":"/"}', "cut")], unknown=1),
        [{"delta": "tmp"}],
    ),
    "a delta outside of any choice may belong to any call": Case(
        [
            calls(piece(0, "A", "rm", '{"p":"/')),
            {"id": "c", "delta": {"tool_calls": [piece(0, None, None, "tmp")]}},
            calls(piece(0, None, None, '"}')),
            END,
        ],
        ran(broken=[invalid("A", "rm", '{"p":"/"}', "cut")], unknown=1),
        [{"delta": {"tool_calls": [piece(0, None, None, "tmp")]}}],
    ),
    # Whole messages, and ids that do not identify a call.
    "a body whose calls share an id": Case(
        [body(WEATHER, BOOK)], ran(call("0", "weather", {"city": "Rome"}), call("0_2", "book", {"city": "Oslo"}))
    ),
    "a body whose calls share an id and a name": Case(
        [body(WEATHER, piece(None, "0", "weather", '{"city":"Oslo"}'))],
        ran(call("0", "weather", {"city": "Rome"}), call("0_2", "weather", {"city": "Oslo"})),
    ),
    "a body whose calls share an id and have no arguments": Case(
        [body(piece(None, "0", "list_a", ""), piece(None, "0", "list_b", ""))],
        ran(call("0", "list_a", {}), call("0_2", "list_b", {})),
    ),
    "a body whose calls share an index": Case(
        [body(piece(0, None, "f", '{"a":1}'), piece(0, None, "f", '{"a":2}'))],
        ran(call("call_0", "f", {"a": 1}), call("call_1", "f", {"a": 2})),
    ),
    "a body with two invalid calls": Case(
        [body(piece(None, None, "f", '{"a":'), piece(None, None, "f", "1}"))],
        ran(broken=[invalid("call_0", "f", '{"a":', "cut"), invalid("call_1", "f", "1}", "not_an_object")]),
    ),
    "a body with a call without a name": Case(
        [body(piece(None, "A", "pay", ""), piece(None, None, None, '{"eur":5}'))],
        ran(broken=[invalid("A", "pay", "", "cut"), invalid("call_0", "", '{"eur":5}', "unnamed")]),
    ),
    "a body with a call of another kind": Case(
        [body(piece(None, "A", "now", ""), {"type": "web_search", "web_search": {"q": "x"}})],
        ran(call("A", "now", {}), unknown=1),
        [{"tool_calls": {"type": "web_search", "web_search": {"q": "x"}}}],
    ),
    "a shared id and no index: another name is another call": Case(
        [calls(WEATHER), calls(BOOK), END],
        ran(call("0", "weather", {"city": "Rome"}), call("0_2", "book", {"city": "Oslo"})),
    ),
    "a shared id and no index: other arguments after whole ones are another call": Case(
        [calls(WEATHER), calls(piece(None, "0", "weather", '{"city":"Oslo"}')), END],
        ran(call("0", "weather", {"city": "Rome"}), call("0_2", "weather", {"city": "Oslo"})),
    ),
    "a shared id and no index: pieces go to the latest": Case(
        [
            calls(piece(None, "0", "f", '{"a":')),
            calls(piece(None, "0", None, "1}")),
            calls(piece(None, "0", "g", '{"b":')),
            calls(piece(None, "0", None, "2}")),
            END,
        ],
        ran(call("0", "f", {"a": 1}), call("0_2", "g", {"b": 2})),
    ),
    "a shared id and no index: a repeated call runs once": Case(
        [calls(WEATHER), calls(WEATHER), END],
        {**ran(call("0", "weather", {"city": "Rome"})), "unknown": 1},
        [{"id": "0", "name": "weather", "arguments": '{"city":"Rome"}'}],
    ),
    "a shared id and no index: a name in pieces, and an empty piece at the end": Case(
        [
            calls(piece(None, "0", "list_", "")),
            calls(piece(None, "0", "all", "{}")),
            calls(piece(None, "0", "list_all", "")),
            END,
        ],
        ran(call("0", "list_all", {})),
        tools=["list_all", "list_some"],
    ),
    "a shared id and a shared index: another name after whole arguments is another call": Case(
        [calls(piece(0, "0", "f", "{}")), calls(piece(0, "0", "g", "{}")), END],
        ran(call("0", "f", {}), call("0_2", "g", {})),
    ),
    "a late id that was generated for another": Case(
        [
            calls(piece(0, None, "f", '{"a":1')),
            calls(piece(1, None, "g", '{"b":1')),
            calls(piece(0, "call_1", None, "}")),
            calls(piece(1, None, None, "}")),
            END,
        ],
        ran(call("call_1_2", "f", {"a": 1}), call("call_1", "g", {"b": 1})),
    ),
    "a late id that another call has": Case(
        [
            calls(piece(0, None, "f", "")),
            calls(piece(1, "A", "g", "")),
            calls(piece(0, "A", None, '{"a":1}')),
            calls(piece(1, "A", None, '{"b":1}')),
            END,
        ],
        ran(call("A_2", "f", {"a": 1}), call("A", "g", {"b": 1})),
    ),
    "a late id that equals the generated one": Case(
        [calls(piece(0, None, "f", '{"a":1')), calls(piece(0, "call_0", None, "}")), END],
        ran(call("call_0", "f", {"a": 1})),
    ),
    "an id with another name is not a late one": Case(
        [calls(piece(0, None, "f", "")), calls(piece(0, "B", "g", "{}")), END],
        ran(call("call_0", "f", {}), call("B", "g", {})),
    ),
    # State beside a call.
    "signatures beside a call and in its function": Case(
        [calls({"index": 0, "id": "A", "function": {"name": "f", "arguments": "{}", **SIGNED}, **SIGNED}), END],
        ran(call("A", "f", {}), opaque=[{"kind": "fields", "data": {**SIGNED, "function": SIGNED}}]),
    ),
    "a signature on a later piece": Case(
        [calls(piece(0, "A", "f", "{")), calls(piece(0, None, None, "}", **SIGNED)), END],
        ran(call("A", "f", {}), opaque=[{"kind": "fields", "data": SIGNED}], parts=["opaque", "tool_call"]),
    ),
    "a signature beside a call in a body": Case(
        [body(piece(None, "A", "f", "{}", **SIGNED))],
        ran(call("A", "f", {}), opaque=[{"kind": "fields", "data": SIGNED}]),
    ),
    "fields beside a call and in its function": Case(
        [
            calls({"index": 0, "id": "A", "function": {"name": "f", "arguments": "{}", "mood": 1}, "cost": {"usd": 2}}),
            END,
        ],
        ran(call("A", "f", {}), unknown=1),
        [{"tool_calls": {"cost": {"usd": 2}, "function": {"mood": 1}}}],
    ),
    "empty fields beside a call": Case(
        [
            calls(
                {
                    "index": 0,
                    "id": "A",
                    "function": {"name": "f", "arguments": "{}", "mood": None},
                    "cost": {"usd": None},
                }
            ),
            END,
        ],
        ran(call("A", "f", {})),
    ),
    # Errors.
    "an error in a base_resp": Case(
        [{"id": "x", "choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}],
        {"finish_reason": "error", "error": "insufficient balance", "error_code": "1008"},
    ),
    "a base_resp without an error": Case([{**STOP, "base_resp": {"status_code": 0, "status_msg": ""}}], STOPPED),
    "an error in a base_resp beside choices": Case(
        [{**chunk({"content": "x"}), "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}],
        {"text": "x", "finish_reason": "error", "error": "rate limit", "error_code": "1002"},
    ),
    "an error_code and an error_msg": Case(
        [{"id": "as-1", "error_code": 336003, "error_msg": "bad"}],
        {"finish_reason": "error", "error": "bad", "error_code": "336003"},
    ),
    "an error_code that is zero": Case([{**STOP, "error_code": 0, "error_msg": "ok"}], STOPPED),
    "an error_msg alone": Case([{"id": "x", "error_msg": "bad"}], {"finish_reason": "error", "error": "bad"}),
    "an error that is a number beside choices": Case(
        [{**chunk({"content": "x"}), "error": 500}, STOP],
        {"text": "x", "finish_reason": "error", "error": "error: 500", "error_code": "500"},
    ),
    "an error that is true": Case(
        [{"id": "x", "error": True, "message": "no such model"}], {"finish_reason": "error", "error": "no such model"}
    ),
    "an error that is false": Case([{**STOP, "error": False}], STOPPED),
    "a message and an id": Case([{"id": "x", "message": "no"}], {"finish_reason": "error", "error": "no"}),
    "a detail and an error_message that are null": Case(
        [{"id": "x", "detail": None, "error_message": None}, STOP], STOPPED
    ),
    "a frame with an id and an unknown field": Case(
        [{"id": "x", "model": "m", "choices": [], "weather": "fair"}, STOP],
        {**STOPPED, "unknown": 1},
        [{"weather": "fair"}],
    ),
    "an error of one answer": Case(
        [
            chunk({"content": "a"}),
            STOP,
            {
                "choices": [
                    {"index": 1, "delta": {}, "error": {"message": "bad", "code": 502}, "finish_reason": "error"}
                ]
            },
        ],
        {"text": "a", "finish_reason": "stop", "error": "bad", "choices": {"1": {"finish_reason": "error"}}},
    ),
    "an error of one answer that its finish does not show": Case(
        [calls(piece(0, "A", "now", "")), chunk({}, "tool_calls", error="bad"), chunk({}, None, error="bad")],
        ran(broken=[invalid("A", "now", "", "cut")], finish="error", error="bad"),
    ),
    "two answers with text as index": Case(
        [
            {"choices": [{"index": "0", "delta": {"content": "A"}}, {"index": "1", "delta": {"content": "B"}}]},
            {"choices": [{"index": "0", "finish_reason": "stop"}, {"index": 1.0, "finish_reason": "length"}]},
        ],
        {"text": "A", **STOPPED, "choices": {"1": {"text": "B", "finish_reason": "length"}}},
    ),
    "two answers without an index": Case(
        [{"choices": [{"delta": {"content": "A"}, "finish_reason": "stop"}, {"delta": {"content": "B"}}]}],
        {"text": "A", **STOPPED, "choices": {"1": {"text": "B", "finish_reason": "cut"}}},
    ),
    # Text of unusual types.
    "reasoning that is a number, an object, a list": Case(
        [
            chunk({"reasoning_content": "["}),
            chunk({"reasoning_content": 1}),
            chunk({"reasoning": {"text": "a", "n": 2}}),
            chunk({"thinking": ["b", {"type": "text", "text": "c"}, {"n": 3}]}),
            STOP,
        ],
        {**STOPPED, "reasoning": "[1abc", "unknown": 2},
        [{"reasoning": {"n": 2}}, {"thinking": [{"n": 3}]}],
    ),
    "reasoning that is a boolean": Case(
        [chunk({"reasoning": False}), chunk({"thinking": True}), STOP], {**STOPPED, "unknown": 1}, [{"thinking": True}]
    ),
    "details that are an object, text, a number": Case(
        [
            chunk({"reasoning_details": {"type": "reasoning.text", "text": "a"}}),
            chunk({"reasoning_details": ["b", 7]}),
            STOP,
        ],
        {
            **STOPPED,
            "reasoning": "ab",
            "unknown": 1,
            "opaque": [{"kind": "reasoning_details", "data": [{"type": "reasoning.text", "text": "a"}]}],
        },
        [{"reasoning_details": [7]}],
    ),
    "details without a type, and with text of another type": Case(
        [
            chunk({"reasoning_details": [{"k": 1}]}),
            chunk({"reasoning_details": [{"text": {"k": 2}}, {"text": "a"}]}),
            STOP,
        ],
        {
            **STOPPED,
            "reasoning": "a",
            "opaque": [{"kind": "reasoning_details", "data": [{"k": 1}, {"text": {"k": 2}}, {"text": "a"}]}],
        },
    ),
    "a refusal that is a number, and one that is an object": Case(
        [chunk({"refusal": "no "}), chunk({"refusal": 5}), chunk({"refusal": {"code": 1}}), STOP],
        {**STOPPED, "refusal": "no 5", "unknown": 1},
        [{"refusal": {"code": 1}}],
    ),
    "a thought with a signature and more than text": Case(
        [
            chunk(
                {
                    "content": [
                        {
                            "type": "thinking",
                            "signature": "U0lH",
                            "closed": True,
                            "mood": "calm",
                            "thinking": [{"type": "text", "text": "t"}, {"type": "reference", "reference_ids": [1]}],
                        }
                    ]
                }
            ),
            chunk({"content": [{"type": "thinking", "thinking": "u"}]}),
            STOP,
        ],
        {
            **STOPPED,
            "reasoning": "tu",
            "unknown": 2,
            "parts": ["reasoning", "opaque", "reasoning"],
            "opaque": [{"kind": "thinking", "data": {"signature": "U0lH"}}],
        },
        [
            {"thinking": [{"type": "reference", "reference_ids": [1]}]},
            {"content": {"mood": "calm", "closed": True, "type": "thinking"}},
        ],
    ),
    "text parts with other fields": Case(
        [
            chunk(
                {
                    "content": [
                        {"type": "text", "text": "a", "index": 0, "note": None},
                        {"type": "text", "text": "b", "by": "x"},
                    ]
                }
            ),
            STOP,
        ],
        {**STOPPED, "text": "ab", "unknown": 1},
        [{"content": {"type": "text", "by": "x"}}],
    ),
    "usage that is a list": Case(
        [{**chunk({"content": "x"}), "usage": [1]}, chunk({}, "stop", usage="many")],
        {**STOPPED, "text": "x", "unknown": 2},
        [{"usage": [1]}, {"usage": "many"}],
    ),
    # The legacy protocol, and repetitions.
    "a legacy call with its arguments first": Case(
        [
            chunk({"function_call": {"arguments": '{"a":'}}),
            chunk({"function_call": {"name": "f", "arguments": "1}"}}),
            chunk({}, "function_call"),
        ],
        ran(call("call_0", "f", {"a": 1})),
    ),
    "a legacy call that is text": Case(
        [
            chunk({"function_call": {"name": "rm", "arguments": '{"p":"/'}}),
            chunk({"function_call": "tmp"}),
            chunk({"function_call": {"arguments": '"}'}}),
            chunk({}, "function_call"),
        ],
        ran(broken=[invalid("call_0", "rm", '{"p":"/"}', "cut")], unknown=1),
        [{"function_call": "tmp"}],
    ),
    "one call in both protocols": Case(
        [
            chunk(
                {
                    "function_call": {"name": "pay", "arguments": '{"eur":'},
                    "tool_calls": [piece(0, "A", "pay", '{"eur":')],
                }
            ),
            chunk({"function_call": {"arguments": "5}"}, "tool_calls": [piece(0, None, None, "5}")]}),
            END,
        ],
        ran(call("A", "pay", {"eur": 5})),
    ),
    "one call in both protocols of a body": Case(
        [body(piece(None, "A", "pay", '{"eur":5}'), function_call={"name": "pay", "arguments": '{"eur":5}'})],
        ran(call("A", "pay", {"eur": 5})),
    ),
    "a legacy call that differs from the modern ones": Case(
        [calls(piece(0, "A", "pay", '{"eur":5}')), chunk({"function_call": {"name": "log", "arguments": "{}"}}), END],
        ran(call("A", "pay", {"eur": 5}), unknown=1),
        [{"function_call": {"name": "log", "arguments": "{}"}}],
    ),
    "a message beside a delta": Case(
        [chunk({"role": "assistant", "content": ""}, "stop", message={"content": "hello"})],
        {**STOPPED, "text": "hello"},
    ),
    "a message beside the delta that it repeats": Case(
        [chunk({"content": "hello", "refusal": "no"}, "stop", message={"content": "hello", "refusal": "no"})],
        {**STOPPED, "text": "hello", "refusal": "no"},
    ),
    "a message that is text": Case(
        [chunk({}, "stop", message="hello")], {**STOPPED, "unknown": 1}, [{"message": "hello"}]
    ),
    "a custom call beside an empty function": Case(
        [
            calls(
                {
                    "index": 0,
                    "id": "A",
                    "function": {"name": "", "arguments": ""},
                    "custom": {"name": "sql", "input": "SEL"},
                }
            ),
            calls({"index": 0, "function": {"arguments": ""}, "custom": {"input": "ECT"}}),
            END,
        ],
        ran(call("A", "sql", {"input": "SELECT"}, kind="custom")),
    ),
    "a custom call beside a function with content": Case(
        [calls(piece(0, "A", "f", "{}", custom={"name": "sql", "input": "SEL"})), END],
        ran(call("A", "f", {}), unknown=1),
        [
            {
                "index": 0,
                "custom": {"name": "sql", "input": "SEL"},
            }
        ],
    ),
}
every_case = each("case", CASES.values(), ids=list(CASES))


def stream(case: Case) -> bytes:
    return b"".join(frame_bytes(WIRE, frame) for frame in case.frames)


def assert_as_expected(case: Case, events: list[StreamChunk]) -> None:
    assert_expected(penstock.collect(events), case.expected)
    for choice, expected in case.expected.get("choices", {}).items():
        assert_expected(penstock.collect(events, int(choice)), {"error": case.expected.get("error", ""), **expected})
    assert [event.raw for event in events if isinstance(event, Unknown)] == case.unknown


@every_case
def test_an_unusual_shape_is_decoded_as_expected(case: Case) -> None:
    assert_as_expected(case, decode_pieces(WIRE, [stream(case)], case.tools))


@every_case
def test_parsed_frames_give_the_same_turn(case: Case) -> None:
    assert_as_expected(case, list(penstock.decode(case.frames, WIRE, tools=case.tools)))


@every_case
def test_cuts_do_not_show(case: Case) -> None:
    data = stream(case)
    whole = joined(decode_pieces(WIRE, [data], case.tools))
    cuttings = [list(pieces_of(data, size)) for size in (1, 2, 7, 64)]
    cuttings.append([frame_bytes(WIRE, frame) for frame in case.frames])
    cuttings += [random_pieces(data, seed) for seed in range(3)]
    cuttings += [[data[:at], data[at:]] for at in places(len(data), few=60)]
    for cutting in cuttings:
        assert joined(decode_pieces(WIRE, cutting, case.tools)) == whole


@every_case
def test_a_prefix_does_not_confirm_a_call(case: Case) -> None:
    data = stream(case)
    for end in range(0, len(data), 7):
        events = decode_pieces(WIRE, [data[:end]], case.tools)
        reasons = {event.choice: event.raw_reason for event in events if isinstance(event, Finish)}
        assert all(reasons[call.choice] for call in penstock.collect(events).tool_calls)


@every_case
def test_a_history_with_the_turn_is_valid(case: Case) -> None:
    turn = penstock.collect(decode_pieces(WIRE, [stream(case)], case.tools))
    problems = check([messages.user("Hi"), Message("assistant", turn.parts)], "openai-compatible")
    assert not [problem for problem in problems if problem.kind == "misplaced_state"]


# Tests that a case cannot express.


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning", "thinking", "refusal"])
@pytest.mark.parametrize("place", ["delta", "message"])
def test_a_number_keeps_its_digits(field: str, place: str) -> None:  # QUIRKS 67
    data = b'data: {"choices":[{"%s":{"%s":0.10},"finish_reason":"stop"}]}\n\n' % (place.encode(), field.encode())
    turn = penstock.collect(decode_pieces(WIRE, [data]))
    assert turn.text + turn.reasoning + turn.refusal == "0.10"


def test_an_end_mark_alone_does_not_confirm_a_call_without_arguments() -> None:  # QUIRKS 33, 55
    head = frame_bytes(WIRE, calls(piece(0, "A", "delete_all", "")))
    turn = penstock.collect(decode_pieces(WIRE, [head, b"data: [DONE]\n\n"]))
    assert [(call.id, call.why) for call in turn.invalid_calls] == [("A", "cut")]
    assert turn.tool_calls == []


def test_an_end_mark_does_not_confirm_the_calls_of_a_failed_choice() -> None:
    head = frame_bytes(WIRE, chunk({"tool_calls": [piece(0, "A", "pay", "{}")]}, error="bad"))
    turn = penstock.collect(decode_pieces(WIRE, [head, b"data: [DONE]\n\n"]))
    assert ([call.why for call in turn.invalid_calls], turn.finish_reason) == (["cut"], "error")


def test_an_unreadable_frame_damages_the_open_call() -> None:  # law 7
    frames = [
        frame_bytes(WIRE, calls(piece(0, "A", "rm", '{"p":"/tmp'))),
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":\n\n',
        *(frame_bytes(WIRE, frame) for frame in (calls(piece(0, None, None, '"}')), END)),
    ]
    turn = penstock.collect(decode_pieces(WIRE, frames))
    assert [(call.arguments_raw, call.why) for call in turn.invalid_calls] == [('{"p":"/tmp"}', "cut")]


def test_a_signature_is_sent_back_in_its_own_field() -> None:  # QUIRKS 149
    entry = {"id": "A", "type": "function", "function": {"name": "f", "arguments": "{}", **SIGNED}, **SIGNED}
    turn = penstock.collect(
        decode_pieces(WIRE, [frame_bytes(WIRE, calls({"index": 0, **entry})), frame_bytes(WIRE, END)])
    )
    request = Request(model="m", messages=(messages.user("Hi"), Message("assistant", turn.parts)))
    assert find_encoder(WIRE)(request, frozenset()).body["messages"][1]["tool_calls"] == [entry]
    assert fragment.FIELDS == messages.PART_FIELDS


def after_many(at: int, size: int, later: Any) -> Any:
    return piece(at, f"c{at}", "f", "{}") if at < size else later


MANY = {
    "pieces of no call after many calls": lambda at, size: after_many(at, size, piece(-at, None, None, "x")),
    "entries of another kind after many calls": lambda at, size: after_many(at, size, "x"),
    "late ids for many calls": lambda at, size: after_many(at, size, piece(at % size, "A", None, " ")),
    "one id for all": lambda at, size: piece(None, "0", "f", json.dumps({"n": at})),
    "a new id on every piece": lambda at, size: piece(0, f"c{at}", None, "{"),
}


@pytest.mark.parametrize("fragment_at", MANY.values(), ids=list(MANY))
def test_many_unusual_fragments_are_linear(fragment_at: Any) -> None:  # law 4
    def work(size: int) -> Any:
        data = b"".join(frame_bytes(WIRE, calls(fragment_at(at, size))) for at in range(2 * size))
        return lambda: decode_pieces(WIRE, [data])

    assert_linear(work, 500)
