"""Routing of Chat Completions fragments: calls are decoded exactly in every style that servers use."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Struct

import penstock
from penstock import StreamingToolCallAccumulator
from tests.support import decode_pieces, frame_bytes

TOOLS = ["read", "read_file", "write_file", "ls"]
Fragment = dict[str, Any]


class Call(Struct, frozen=True):
    """A call as the server intends it."""

    id: str
    name: str
    arguments: str


class Style(Struct, frozen=True):
    """How a server writes fragments.

    `index` gives a call's index from its position, None if it has none; `ids` and `names` say when these are sent.
    """

    index: Callable[[int], int | None] = lambda at: at
    ids: str = "once"
    names: str = "once"
    is_whole: bool = False
    may_interleave: bool = True


def fragments(call: Call, at: int, pieces: list[str], style: Style) -> list[Fragment]:
    """The fragments of one call; the first has its id and name."""
    out = []
    for number, piece in enumerate(pieces):
        function: dict[str, Any] = {"arguments": piece}
        fragment: Fragment = {"function": function}
        if (index := style.index(at)) is not None:
            fragment["index"] = index
        give(fragment, "id", int(call.id) if style.ids == "numeric" else call.id, style.ids, number)
        give(function, "name", call.name, style.names, number)
        out.append(fragment)
    return out


def give(where: dict[str, Any], key: str, value: Any, manner: str, number: int) -> None:
    """Adds an id or a name to the fragments that have it in this style."""
    match manner, number:
        case "never", _:
            pass
        case "repeated", _:
            where[key] = value
        case "late", 1:
            where[key] = value
        case "split", 0 | 1:
            half = max(1, len(value) // 2)
            where[key] = value[half:] if number else value[:half]
        case (("once" | "numeric" | "empty after" | "null after"), 0):
            where[key] = value
        case (("empty after" | "late"), _):
            where[key] = ""
        case "null after", _:
            where[key] = None


texts = st.one_of(st.text(max_size=6), st.sampled_from(["{}", '"}', "\\", "}{", "é😀", "]}\n"]))
arguments = st.dictionaries(
    st.text(max_size=3), st.one_of(st.integers(), texts, st.lists(texts, max_size=2)), max_size=3
)
names = st.sampled_from(TOOLS)


@st.composite
def call_lists(draw: st.DrawFn) -> list[Call]:
    count = draw(st.integers(1, 4))
    ids = draw(st.lists(st.integers(0, 10**9).map(str), min_size=count, max_size=count, unique=True))
    return [Call(id, draw(names), json.dumps(draw(arguments))) for id in ids]


@st.composite
def cut_arguments(draw: st.DrawFn, text: str, style: Style) -> list[str]:
    """The arguments in pieces; the first is often empty, as servers send it with the id and name."""
    if style.is_whole:
        return [text]
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    lead = 2 if style.names in ("split", "late") or style.ids == "late" else draw(st.integers(0, 1))
    return [""] * lead + pieces


@st.composite
def streams(draw: st.DrawFn, calls: list[Call], style: Style) -> list[list[Fragment]]:
    """The deltas of a stream: call after call, or interleaved where the style identifies each fragment."""
    queues = [fragments(call, at, draw(cut_arguments(call.arguments, style)), style) for at, call in enumerate(calls)]
    deltas: list[list[Fragment]] = []
    if not (style.may_interleave and draw(st.booleans())):
        deltas = [[fragment] for queue in queues for fragment in queue]
    else:
        opened = 0
        while any(queues):
            live = [queue for queue in queues[:opened] if queue]
            if opened < len(queues) and (not live or draw(st.booleans())):
                live, opened = [queues[opened]], opened + 1
            deltas.append([draw(st.sampled_from(live)).pop(0)])
    return grouped(draw, deltas)


def grouped(draw: st.DrawFn, deltas: list[list[Fragment]]) -> list[list[Fragment]]:
    """Joins some consecutive fragments into one chunk."""
    out: list[list[Fragment]] = []
    for delta in deltas:
        if out and draw(st.integers(0, 3)) == 0:
            out[-1] = out[-1] + delta
        else:
            out.append(delta)
    return out


def body(deltas: list[list[Fragment]], finish: str = "tool_calls") -> bytes:
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": delta}}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(frame_bytes("openai-chat", chunk) for chunk in chunks)


def decoded(deltas: list[list[Fragment]], tools: Any = None) -> list[tuple[str, str, str]]:
    turn = penstock.collect(decode_pieces("openai-chat", [body(deltas)], tools))
    assert (turn.invalid_calls, turn.unknown, turn.finish_reason) == ([], (), "tool_calls")
    return [(call.id, call.name, call.arguments_raw) for call in turn.tool_calls]


BY_INDEX = Style()
SEQUENTIAL = Style(may_interleave=False)
STYLES = {
    "by the book": BY_INDEX,
    "the index starts at 1": Style(index=lambda at: at + 1),
    "the index has gaps and runs down": Style(index=lambda at: 40 - 7 * at),
    "negative indexes": Style(index=lambda at: -1 - at),
    "empty ids after the first": Style(ids="empty after"),
    "null ids after the first": Style(ids="null after", names="null after"),
    "empty names after the first": Style(names="empty after"),
    "ids repeated": Style(ids="repeated"),
    "ids and names repeated": Style(ids="repeated", names="repeated"),
    "names repeated": Style(names="repeated"),
    "numeric ids": Style(ids="numeric"),
    "the name comes late": Style(names="late"),
    "the id comes late": Style(ids="late"),
    "no index, ids repeated": Style(index=lambda at: None, ids="repeated"),
    "no index, ids and names repeated": Style(index=lambda at: None, ids="repeated", names="repeated"),
    "no index, ids once": Style(index=lambda at: None, may_interleave=False),
    "no index, empty after": Style(index=lambda at: None, ids="empty after", names="empty after", may_interleave=False),
    "no index, whole": Style(index=lambda at: None, is_whole=True),
    "always index 0, ids once": Style(index=lambda at: 0, may_interleave=False),
    "always index 0, empty ids after": Style(index=lambda at: 0, ids="empty after", may_interleave=False),
    "always index 0, ids repeated": Style(index=lambda at: 0, ids="repeated"),
    "always index 0, ids and names repeated": Style(index=lambda at: 0, ids="repeated", names="repeated"),
    "always index 0, numeric ids": Style(index=lambda at: 0, ids="numeric", may_interleave=False),
    "always index 0, whole": Style(index=lambda at: 0, is_whole=True),
    "always index 0, null after": Style(index=lambda at: 0, ids="null after", names="null after", may_interleave=False),
}  # fmt: skip
a_few = settings(max_examples=settings().max_examples // 3)  # for each style
every_style = pytest.mark.parametrize("style", STYLES.values(), ids=list(STYLES))


@every_style
@a_few
@given(data=st.data())
def test_calls_are_read_back_whatever_the_style(style: Style, data: st.DataObject) -> None:
    calls = data.draw(call_lists())
    deltas = data.draw(streams(calls, style))
    tools = data.draw(st.sampled_from([None, TOOLS]))
    assert decoded(deltas, tools) == [(call.id, call.name, call.arguments) for call in calls]


@every_style
@a_few
@given(data=st.data())
def test_the_accumulator_reads_them_too(style: Style, data: st.DataObject) -> None:
    calls = data.draw(call_lists())
    accumulator = StreamingToolCallAccumulator()
    for delta in data.draw(streams(calls, style)):
        accumulator.add_chunk(delta)
        accumulator.has_complete_tool_calls()  # has no side effect
    got = [(call.id, call.name, call.arguments_raw) for call in accumulator.get_complete_tool_calls()]
    assert got == [(call.id, call.name, call.arguments) for call in calls]


SPLIT = {
    "by index": Style(names="split"),
    "ids repeated": Style(names="split", ids="repeated"),
    "no index": Style(index=lambda at: None, names="split", ids="repeated"),
}


@pytest.mark.parametrize("style", SPLIT.values(), ids=list(SPLIT))
@given(data=st.data())
def test_a_split_name_is_joined_if_the_tools_are_declared(style: Style, data: st.DataObject) -> None:  # QUIRKS 15
    calls = data.draw(call_lists())
    assert decoded(data.draw(streams(calls, style)), TOOLS) == [(call.id, call.name, call.arguments) for call in calls]


NAMELESS = {
    "an index each": Style(ids="never", names="repeated"),
    "an index each, the name once": Style(ids="never"),
    "an index each, from 1": Style(index=lambda at: at + 1, ids="never"),
    "no index, whole": Style(index=lambda at: None, ids="never", is_whole=True),
    "no index, the name once": Style(index=lambda at: None, ids="never", names="empty after", may_interleave=False),
}


@pytest.mark.parametrize("style", NAMELESS.values(), ids=list(NAMELESS))
@given(data=st.data())
def test_calls_without_ids_get_ids_of_their_own(style: Style, data: st.DataObject) -> None:  # QUIRKS 19
    calls = data.draw(call_lists())
    got = decoded(data.draw(streams(calls, style)))
    assert got == [(f"call_{at}", call.name, call.arguments) for at, call in enumerate(calls)]


@given(data=st.data())
def test_without_ids_another_name_at_the_same_index_is_another_call(data: st.DataObject) -> None:  # WIRE 9, rule 3
    calls = data.draw(call_lists())
    assume(all(first.name != second.name for first, second in pairwise(calls)))
    style = Style(index=lambda at: 0, ids="never", names="empty after", may_interleave=False)
    assert [name for _, name, _ in decoded(data.draw(streams(calls, style)))] == [call.name for call in calls]


@given(data=st.data())
def test_an_index_that_drifts_within_one_call_loses_nothing(data: st.DataObject) -> None:  # QUIRKS 6
    [call, *_] = data.draw(call_lists())
    pieces = data.draw(cut_arguments(call.arguments, SEQUENTIAL))
    deltas = [[{**fragment, "index": at}] for at, fragment in enumerate(fragments(call, 0, pieces, SEQUENTIAL))]
    assert decoded(deltas) == [(call.id, call.name, call.arguments)]


@given(data=st.data())
def test_shared_ids_do_not_merge_different_calls(data: st.DataObject) -> None:  # QUIRKS 21
    calls = [Call("grep:3", call.name, call.arguments) for call in data.draw(call_lists())]
    assume(len({(call.name, call.arguments) for call in calls}) in (1, len(calls)))
    deltas = data.draw(streams(calls, SEQUENTIAL))
    ids = ["grep:3", *(f"grep:3_{at}" for at in range(2, len(calls) + 1))]
    if all(call == calls[0] for call in calls):
        calls = calls[:1]  # the same call again is one call
    turn = penstock.collect(decode_pieces("openai-chat", [body(deltas)]))
    found = [(call.id, call.name, call.arguments_raw) for call in turn.tool_calls]
    assert found == [(id, call.name, call.arguments) for id, call in zip(ids, calls, strict=False)]


@every_style
@a_few
@given(data=st.data())
def test_a_cut_stream_does_not_confirm_a_call(style: Style, data: st.DataObject) -> None:  # law 7
    deltas = data.draw(streams(data.draw(call_lists()), style))
    stream = body(deltas)
    cut = stream[: data.draw(st.integers(0, len(body(deltas, "")) - len(b"data: ")))]
    assert penstock.extract(decode_pieces("openai-chat", [cut.rpartition(b"data: ")[0]])) == []
