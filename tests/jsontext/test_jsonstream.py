"""The incremental JSON parser is compared with parsers of whole texts: its value is right after every piece."""

from __future__ import annotations

import copy
import json
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import JSONPiece, PartialJSON
from penstock.calls import closing_json
from penstock.calls.rope import Rope
from penstock.jsontext.partial import MAX_DEPTH, ValueScanner
from penstock.jsontext.portable import as_json_value
from tests.growth import assert_linear
from tests.sanity import without_lone_surrogates

Path = tuple[str | int, ...]

nasty = st.sampled_from(
    ['"', "\\", "/", "\b\f\n\r\t", "\x00\x1f\x7f", "{[", "]}", ",:", "é", "\u2028", "😀", "\ufffd", "\\u00e9", "ud83d"]
)
texts = st.lists(st.one_of(nasty, st.text(max_size=3)), max_size=4).map("".join)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


def spelled(value: Any, chance: random.Random) -> str:
    """The value as JSON with random white space and escapes."""
    space = lambda: chance.choice(["", "", "", " ", "\n", "\t\r "])  # noqa: E731  # used nine times, right here
    match value:
        case dict():
            items = (space() + spelled(key, chance) + space() + ":" + space() + spelled(item, chance) + space()
                     for key, item in value.items())  # fmt: skip
            return "{" + (",".join(items) or space()) + "}"
        case list():
            return "[" + (",".join(space() + spelled(item, chance) + space() for item in value) or space()) + "]"
        case str():
            return '"' + "".join(spelled_character(character, chance) for character in value) + '"'
        case _:
            return json.dumps(value)


def spelled_character(character: str, chance: random.Random) -> str:
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    units = character.encode("utf-16-be")
    long = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    ways = [long, long.upper().replace("\\U", "\\u")]
    if character in short:
        ways.append(short[character])
    if character not in '"\\' and character >= " ":
        ways += [character] * 4
    return chance.choice(ways)


json_texts = st.builds(spelled, values, st.randoms(use_true_random=False))


@st.composite
def cuttings(draw: st.DrawFn, text: str) -> list[str]:
    if draw(st.booleans()):
        return list(text)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=10)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


# Where a value ends


@given(st.data())
def test_the_scanner_finds_the_end(data: st.DataObject) -> None:
    text = data.draw(json_texts)
    rest = data.draw(st.sampled_from(["", "}", '"', ", 5", "\n{}", "]"]))
    if text[0] not in '{["':
        rest = rest if rest[:1] in set(',]}\n"') else ","  # a number ends where something else begins
    scanner, at = ValueScanner(), 0
    for piece in data.draw(cuttings(text + rest)):
        end = scanner.feed(piece)
        if end >= 0:
            assert at + end == len(text)
            return
        at += len(piece)
    pytest.fail("no end was found")


@given(st.text(alphabet='{}[]"\\ a\n', max_size=30))
def test_the_scanner_accepts_any_text(text: str) -> None:
    whole, scanner = ValueScanner().feed(text), ValueScanner()
    ends = [at + end for at, character in enumerate(text) if (end := scanner.feed(character)) >= 0]
    assert (ends[0] if ends else -1) == whole


def test_the_scanner_accepts_any_depth() -> None:
    assert ValueScanner().feed("[" * 1_000_000 + "]" * 1_000_000) == 2_000_000


# What a value is so far


def is_grown_from(partial: Any, final: Any) -> bool:
    """Whether the partial value can become the final one by growing."""
    match partial, final:
        case str(), str():
            return final.startswith(partial)
        case list(), list():
            return len(partial) <= len(final) and all(map(is_grown_from, partial, final))
        case dict(), dict():
            keys = list(final)[: len(partial)]
            return list(partial) == keys and all(is_grown_from(partial[key], final[key]) for key in keys)
    return type(partial) is type(final) and partial == final


def paths_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_in(item, (*path, key))


@given(st.data())
def test_every_partial_value_grows_into_the_final_one(data: st.DataObject) -> None:
    text = data.draw(json_texts)
    final = json.loads(text)
    view = PartialJSON()
    for piece in data.draw(cuttings(text)):
        before = copy.deepcopy(view.value)
        view.feed(piece)
        assert before is None or is_grown_from(before, view.value)
        assert view.value is None or is_grown_from(view.value, final)
    view.close()
    assert view.value == final
    assert (view.is_complete, view.error) == (True, "")


def ends_in_a_scalar(text: str) -> bool:
    """Whether the text ends in a number or literal, which other parsers return before it is complete."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return '"' not in outside.replace('""', "") and re.search(r"[\w.+-]\Z", outside) is not None


@given(json_texts)
def test_partial_values_agree_with_another_parser(text: str) -> None:
    view = PartialJSON()
    for end, character in enumerate(text, 1):
        view.feed(character)
        if text[:end].strip() and not ends_in_a_scalar(text[:end]):
            assert view.value == jiter.from_json(text[:end].encode(), partial_mode="trailing-strings")


@given(st.data())
def test_the_pieces_add_up(data: st.DataObject) -> None:
    text = data.draw(json_texts)
    view, added, complete = PartialJSON(), dict[Path, Any](), set[Path]()

    def take(pieces: list[JSONPiece]) -> None:
        for piece in pieces:
            assert piece.path not in complete
            is_text = isinstance(piece.piece, str)
            added[piece.path] = added.get(piece.path, "") + piece.piece if is_text else piece.piece
            if piece.is_complete:
                complete.add(piece.path)

    final = list(paths_in(json.loads(text)))
    for cut in data.draw(cuttings(text)):
        take(view.feed(cut))
        for path, value in final:
            assert view.is_field_complete(*path) == (path in complete)
            if path in complete:
                assert added[path] == value
    take(view.close())
    assert added == dict(final)
    assert complete == added.keys()


def test_a_field_is_visible_while_it_grows() -> None:
    view = PartialJSON()
    assert view.feed('{"path": "a.txt", "content": "Hel') == [
        JSONPiece(("path",), "a.txt", True),
        JSONPiece(("content",), "Hel", False),
    ]
    assert (view.is_field_complete("path"), view.is_field_complete("content")) == (True, False)
    assert view.feed('lo\\n"') == [JSONPiece(("content",), "lo\n", True)]
    assert not view.is_complete
    assert view.feed("}") == [JSONPiece((), {"path": "a.txt", "content": "Hello\n"}, True)]
    assert view.is_complete


# What is no JSON


def strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, strict=False, parse_constant=refuse)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = draw(json_texts)
    at = draw(st.integers(0, len(text)))
    gap = draw(st.integers(0, 2))
    return (
        text[:at]
        + draw(st.sampled_from(["", "x", '"', "\\", "{", "]", ",", ":", "1", " ", "\\u12", "\n"]))
        + text[at + gap :]
    )


@given(st.one_of(damaged(), st.text(alphabet='{}[]",:\\u0d83e1-. tfn\n', max_size=20)), st.data())
def test_invalid_json_is_an_error_and_valid_json_is_not(text: str, data: st.DataObject) -> None:
    view = PartialJSON()
    for piece in data.draw(cuttings(text)):
        before, had_error = copy.deepcopy(view.value), view.error
        view.feed(piece)
        if had_error:
            assert (view.value, view.error) == (before, had_error)
    view.close()
    try:
        expected = strictly(text)
    except ValueError:
        assert view.error
        assert not view.is_complete
    else:
        assert not view.error
        assert view.is_complete
        assert view.value == without_lone_surrogates(expected)


@given(
    st.lists(
        st.sampled_from(["\\ud83d", "\\ude00", "\\uD83D\\uDE00", "x", "\\u0041", "😀", "\\\\", "\\n"]), max_size=6
    ),
    st.data(),
)
def test_lone_surrogates_are_replaced_and_pairs_are_not(units: list[str], data: st.DataObject) -> None:
    text = '{"' + "".join(units) + '":"' + "".join(units) + '"}'
    view = PartialJSON()
    for piece in data.draw(cuttings(text)):
        view.feed(piece)
    assert view.value == without_lone_surrogates(json.loads(text))
    json.dumps(view.value, ensure_ascii=False).encode()


def test_raw_surrogates_are_joined_or_replaced() -> None:
    view = PartialJSON()
    for piece in ('{"a\ud83d', '\ude00":"b', "\ud83d", "\ude00c\ude00d\ud83d", 'e\ud83d"', "}"):
        view.feed(piece)
    assert view.value == {"a😀": "b😀c\ufffdd\ufffde\ufffd"}
    assert view.is_complete
    view.feed("\ud83d")
    view.close()
    assert view.error


def test_depth_is_limited_by_max_depth() -> None:
    view = PartialJSON()
    view.feed("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert view.is_complete
    view = PartialJSON()
    view.feed('{"kept": 1, "deep": ' + "[" * 1_000_000)
    assert "MAX_DEPTH" in view.error
    assert view.value["kept"] == 1


@pytest.mark.parametrize("number", ["1" * 5000, "-" + "9" * 4097, "0." + "3" * 6000])
def test_a_number_beyond_the_cap_is_an_error(number: str) -> None:
    view = PartialJSON()
    for piece in ('{"a": 1, "n": ', *number, "}"):
        view.feed(piece)
    assert view.error
    assert view.value == {"a": 1}


def test_a_key_beyond_the_cap_is_an_error() -> None:
    view = PartialJSON()
    for _ in range(100):
        view.feed('{"a": 1, "k' if not view.value else "k" * 1000)
    assert view.error
    assert view.value == {"a": 1}


def test_text_after_the_value_is_an_error() -> None:
    view = PartialJSON()
    view.feed('{"a": 1} ')
    assert view.is_complete
    view.feed("{")
    assert not view.is_complete
    assert view.error == "expected nothing after the value, at character 9: '{'"
    assert view.value == {"a": 1}


# What it costs

SHAPES = {
    "one long string": lambda size: json.dumps({"content": "words and\nlines, " * (size // 17)}),
    "escapes": lambda size: json.dumps({"content": '"\\é😀\n' * (size // 25)}),
    "many strings": lambda size: json.dumps(["a line of some eighty characters, more or less" * 2] * (size // 96)),
    "many objects": lambda size: json.dumps([{"line": 1, "new": "text"}] * (size // 28)),
    "many keys": lambda size: json.dumps({f"key {at}": at for at in range(size // 18)}),
}  # fmt: skip


def watch(text: str) -> None:
    view = PartialJSON()
    for start in range(0, len(text), 8):
        view.feed(text[start : start + 8])
        view.value  # noqa: B018  # looking is what costs in others
    assert view.is_complete


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_time_is_linear_in_the_text(shape: Any) -> None:
    def work(size: int) -> Callable[[], object]:
        text = shape(size)
        return lambda: watch(text)

    assert_linear(work, 10_000, 100, exponent=1.1)


@pytest.mark.parametrize("name", ["one long string", "many strings"])
def test_memory_is_a_few_times_the_text(name: str) -> None:
    text = SHAPES[name](300_000)
    tracemalloc.start()
    try:
        watch(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(text)


@given(st.lists(st.sampled_from([*'{}[]":,\\ \n1ta', '{"a":', '"}', "}}", '\\"', "\ud83d", "é"]), max_size=40))
def test_the_end_of_arguments_is_the_same_for_the_parser_and_the_scanner(pieces: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fast = closing_points(["{", *pieces])
        patch.setattr(closing_json, "_MAX_TRIES", 0)
        assert closing_points(["{", *pieces]) == fast


def closing_points(pieces: list[str]) -> list[Any]:
    """For each piece that may be the last of the arguments, whether they close there and to what."""
    rope = Rope()
    json_text, size, seen = closing_json.ClosingJSON(rope), 0, list[Any]()
    for piece in pieces:
        rope.append(piece)
        size += len(piece)
        if piece.rstrip().endswith("}"):
            seen.append((json_text.closes(size), json_text.arguments if json_text.has_closed else None))
    return seen


def test_integers_that_python_does_not_convert_become_text() -> None:
    for value in (10**5000, {"a": [10**5000]}, {10**5000: 1}, [float("nan"), -(10**5000)]):
        assert as_json_value(value) == "a value with an integer that is too long"
    assert as_json_value(10**4000) == 10**4000
