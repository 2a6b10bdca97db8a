"""The results of tools: return values and exceptions converted to content."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import decimal
import fractions
import io
import ipaddress
import json
import pathlib
import sys
import time
import types
from typing import Any

import attrs
import msgspec
import numpy
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Agent,
    ArgumentsError,
    File,
    Image,
    Model,
    PenstockError,
    Text,
    ToolCall,
    ToolError,
    ToolOutput,
    ToolProgress,
    ToolResult,
    UsageError,
    export_messages,
    results,
)
from penstock.messages import assistant, image, result, tool_results, user
from penstock.results import MAX_RESULT, Outcome, as_outcome, failure
from penstock.run.events import encode
from penstock.testing import Reply, Scripted, call
from penstock.wires import WIRES
from tests.cases import each
from tests.tool_types import ID, NOON, Address, Color, Level, Pair, Path, Person, Point, Word

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Silent:
    def __init__(self) -> None:
        self.size = 3
        self._secret = 4


class Empty: ...


class Later(datetime.datetime): ...


@attrs.define
class Attrs:
    a: int


class Struct(msgspec.Struct):
    a: int


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Untouchable:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class BadDict(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("no")


def cycle() -> list[Any]:
    found: list[Any] = [1]
    found.append({"self": found})
    return found


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@dataclasses.dataclass
class Ring:
    next: Any = None


def ring() -> Ring:
    found = Ring()
    found.next = found
    return found


RETURNED = [
    ("text", "text"),
    ("", ""),
    (None, "null"),
    (True, "true"),
    (3, "3"),
    (1.5, "1.5"),
    ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'),
    ({1: "a", None: 2}, '{"1":"a","null":2}'),
    ({(1, 2): "a", Color.RED: 3}, '{"[1,2]":"a","red":3}'),
    ((1, 2), "[1,2]"),
    ({3, 1, 2}, "[1,2,3]"),
    (Color.RED, "red"),
    (Word.YES, "yes"),
    (Level.LOW, "1"),
    ([Color.RED, Word.YES, Level.LOW], '["red","yes",1]'),
    (Point(1), '{"x":1,"y":0.5}'),
    (Path([Point(1)]), '{"points":[{"x":1,"y":0.5}],"name":"path"}'),
    (Person(title="Dr", age=3), '{"title":"Dr","age":3,"boss":null}'),
    (Struct(1), '{"a":1}'),
    (Pair(1, "a"), '[1,"a"]'),
    (NOON, "2026-01-31T12:00:00Z"),
    ({"at": NOON.date(), "for": datetime.timedelta(hours=1)}, '{"at":"2026-01-31","for":"PT3600S"}'),
    (ID, str(ID)),
    (decimal.Decimal("0.10"), "0.10"),
    (pathlib.PurePosixPath("a/b"), "a/b"),
    (pydantic.SecretStr("key"), "**********"),
    (range(3), "[0,1,2]"),
    ({"a": 1}.keys(), '["a"]'),
    ({"a": 1}.values(), "[1]"),
    (types.MappingProxyType({"a": 1}), '{"a":1}'),
    (numpy.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
    (numpy.float64(0.5), "0.5"),
    (numpy.int64(3), "3"),
    (b"plain", "plain"),
    (bytearray(b"plain"), "plain"),
    # Not JSON.
    (float("nan"), "NaN"),
    ([float("inf"), -float("inf"), float("nan")], '["Infinity","-Infinity","NaN"]'),
    ({"a": float("nan")}, '{"a":"NaN"}'),
    ("half \ud83d", "half \ufffd"),
    ("pair \ud83d\ude00", "pair 😀"),
    ({"a\ud800": "\udc00"}, '{"a\ufffd":"\ufffd"}'),
    (b"\xff\x00", "<2 bytes that are not text>"),
    ({"a": b"\xff"}, '{"a":"<1 bytes that are not text>"}'),
    (cycle(), '[1,{"self":"<this list again>"}]'),
    (ring(), '{"next":"<this Ring again>"}'),
    ([Empty], '["Empty"]'),
    (Untouchable(), "<Untouchable that cannot be shown: RuntimeError>"),
    ([BadDict(a=1), {1}], "<list that cannot be shown: RuntimeError>"),
    (10**5000, "<int that cannot be shown: ValueError>"),
    (complex(1, 2), "(1+2j)"),
    (fractions.Fraction(1, 3), "1/3"),
    (ipaddress.ip_address("10.0.0.1"), "10.0.0.1"),
    ({"at": Later(2026, 1, 31)}, '{"at":"2026-01-31T00:00:00"}'),
    (Attrs(1), '{"a":1}'),
    (Address(street="A"), '{"street":"A"}'),
    (ValueError("odd"), "odd"),
]  # fmt: skip


@each(("value", "text"), RETURNED, ids=range(len(RETURNED)))
def test_a_return_value_becomes_text(value: Any, text: str) -> None:
    found = as_outcome(value)
    assert found.content == (Text(0, text),)
    assert found.text == text
    assert found.data is value
    assert not found.is_error
    assert type(found.text) is str
    msgspec.json.encode(ToolResult("", "", found.content))


HASH = "x1y2z3"
"""A secret in an attribute of an object."""


class User:
    def __init__(self) -> None:
        self.name = "Ada"
        self.password_hash = HASH


class Shown(User):
    def __repr__(self) -> str:
        return f"Shown({vars(self)})"


class Slots:
    __slots__ = ("password_hash",)

    def __init__(self) -> None:
        self.password_hash = HASH

    __str__ = Shown.__repr__


@dataclasses.dataclass
class Account:
    owner: Any


ARBITRARY = [User, Shown, Slots, Mute, Empty, lambda: types.SimpleNamespace(a=HASH), lambda: (c for c in HASH),
             lambda: iter([HASH]), lambda: io.StringIO(HASH), lambda: lambda: HASH, object]  # fmt: skip


@pytest.mark.parametrize("make", ARBITRARY, ids=range(len(ARBITRARY)))
def test_an_object_without_declared_fields_is_an_error_that_names_its_class(make: Any) -> None:
    name = type(make()).__name__
    pixel = image(PNG)
    for wrap in (lambda value: value, lambda value: [value], lambda value: {"a": {"b": (value,)}}, Account, ToolOutput,
                 lambda value: [pixel, value], lambda value: {1: value}.values()):  # fmt: skip
        outcome = as_outcome(wrap(make()))
        assert outcome.is_error
        assert outcome.text.startswith(f"The tool returned an object of type {name}, which cannot be sent")
        assert HASH not in outcome.text
        assert "Ada" not in outcome.text


def test_an_event_shows_only_the_class_of_an_object() -> None:
    line = encode(ToolProgress("1.0", "c", "who", {"user": User(), "users": [Slots()], "at": NOON}))
    assert msgspec.json.decode(line)["data"] == {"user": "<User>", "users": ["<Slots>"], "at": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_attributes_of_an_object_never_reach_a_provider(mode: str) -> None:
    def who() -> Any:
        """Who."""
        return [User()]

    script = Scripted([Reply(call("who", {})), "Sorry."])
    agent = Agent(Model("openai-compatible:m", base_url="http://x.test/v1", api_key="k", via=script), tools=[who])
    ended = agent.run("Who?") if mode == "sync" else asyncio.run(agent.arun("Who?"))
    [returned] = ended.messages[2].results
    assert returned.is_error
    assert "object of type User" in returned.text
    assert HASH not in json.dumps(script.requests[-1].body)


@each(("value", "text"), RETURNED, ids=range(len(RETURNED)))
def test_a_result_is_made_of_any_value(value: Any, text: str) -> None:
    made = result(ToolCall("c", "f", {}), value)
    assert (made.call_id, made.name, made.text, made.is_error) == ("c", "f", text, False)


def test_a_result_is_made_of_several_values() -> None:
    call = ToolCall("c", "f", {})
    assert result(call).content == ()
    assert result(call, "Look:", image(PNG), {"a": 1}).content == (Text(0, "Look:"), image(PNG), Text(0, '{"a":1}'))
    assert result(call, ToolOutput({"a": 1}, data="kept")).content == (Text(0, '{"a":1}'),)
    assert result(call, ToolOutput("no", is_error=True)).is_error
    assert result(call, "no", is_error=True).is_error
    assert result(call, {"user": User()}).is_error
    assert result(call, result(call)).content == ()


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_of_any_value_arrives_on_every_wire(wire: Any) -> None:
    call = ToolCall("call_1", "f", {})
    history = [user("Go."), assistant(call), tool_results(result(call, {"a": [1, None]}))]
    sent = json.dumps(export_messages(history, wire))
    assert '{"a":[1,null]}' in sent.replace("\\", "") or '"a": [1, null]' in sent


def test_content_that_is_not_a_part_is_refused() -> None:
    wrong: Any = {"a": 1}
    for make in (lambda: ToolResult("c", "f", (wrong,)), lambda: ToolResult("c", "f", wrong),
                 lambda: tool_results(wrong), lambda: user(wrong), lambda: assistant("a", wrong)):  # fmt: skip
        with pytest.raises(UsageError):
            make()


def test_deeply_nested_values_are_truncated() -> None:
    assert "…" in as_outcome([nested(5_000), {1}]).text
    assert as_outcome(nested(200)).text == "[" * 201 + "]" * 201
    assert len(as_outcome(nested(100_000)).text) < 1000


def test_long_text_is_truncated_in_the_middle() -> None:
    text = "a" * 50_000_000 + "é" + "b" * 50_000_000
    began = time.process_time()
    found = as_outcome(text)
    assert time.process_time() - began < 1, "only the kept text is processed"
    assert found.data is text
    assert len(found.text) <= MAX_RESULT
    assert found.text.startswith("aaa")
    assert found.text.endswith("bbb")
    head, note, tail = found.text.split("\n")
    assert note == f"… {len(text) - len(head) - len(tail)} characters omitted …"
    assert as_outcome("a" * MAX_RESULT).text == "a" * MAX_RESULT
    assert len(as_outcome({"rows": ["row"] * 1_000_000}).text) <= MAX_RESULT
    assert len(failure(ToolError("a" * 1_000_000)).text) <= MAX_RESULT


def test_the_parts_of_a_result_share_the_limit() -> None:
    found = as_outcome([image(PNG), *["a" * MAX_RESULT] * 10])
    assert len(found.text) <= MAX_RESULT
    assert len(found.content) == 11


def test_images_and_files_become_parts() -> None:
    jpeg, gif, webp = b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\x04\x00\x00\x00WEBP"
    for data, kind in ((PNG, "image/png"), (jpeg, "image/jpeg"), (gif, "image/gif"), (webp, "image/webp")):
        [found] = as_outcome(data).content
        assert isinstance(found, Image)
        assert (found.media_type, found.data) == (kind, data)
    [pdf] = as_outcome(b"%PDF-1.7").content
    assert isinstance(pdf, File)
    assert pdf.media_type == "application/pdf"
    assert as_outcome(memoryview(PNG)).content == as_outcome(PNG).content
    picture = image("https://x.test/a.png")
    assert as_outcome(picture).content == (picture,)
    assert as_outcome(["Look:", picture, {"size": 3}, PNG]).content == (
        Text(0, "Look:"), picture, Text(0, '{"size":3}'), image(PNG),
    )  # fmt: skip
    assert as_outcome(["Look:", "no picture"]).content == (Text(0, '["Look:","no picture"]'),)
    assert as_outcome([Text(0, "a"), Text(0, "b")]).content == (Text(0, "a"), Text(0, "b"))


def test_media_beyond_the_cap_become_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_MEDIA", 10)
    assert as_outcome(PNG).text == f"<{len(PNG)} bytes that are not text>"


def test_pil_images_become_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picture:
        """The part of PIL.Image that is used."""

        def __init__(self, mode: str) -> None:
            self.mode = mode

        def convert(self, mode: str) -> Picture:
            return Picture(mode)

        def save(self, buffer: io.BytesIO, format: str) -> None:
            assert format == "PNG"
            if self.mode == "broken":
                raise OSError("truncated")
            buffer.write(PNG)

    monkeypatch.setitem(sys.modules, "PIL.Image", types.SimpleNamespace(Image=Picture))
    assert as_outcome(Picture("RGB")).content == (image(PNG),)
    assert as_outcome([Picture("CMYK"), "seen"]).content == (image(PNG), Text(0, "seen"))
    monkeypatch.setattr(Picture, "convert", lambda self, mode: self)
    assert "an object of type Picture" in as_outcome(Picture("broken")).text


def test_content_and_data_may_differ() -> None:
    rows = [{"id": 1}]
    assert as_outcome(ToolOutput("1 row", data=rows)) == Outcome((Text(0, "1 row"),), rows)
    assert as_outcome(ToolOutput(["See:", PNG], is_error=True)) == Outcome((Text(0, "See:"), image(PNG)), None, True)
    returned = ToolResult("", "", (Text(0, "a"),), True)
    assert as_outcome(returned) == Outcome(returned.content, returned, True)
    assert as_outcome(as_outcome(rows)) == as_outcome(rows)


def test_an_exception_becomes_an_error_text() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    cases = [
        (ToolError("Ask for another city."), "Ask for another city."),
        (ArgumentsError("`city`: missing"), "`city`: missing"),
        (ValueError("bad \ud800"), "ValueError: bad \ufffd"),
        (KeyError("x"), "KeyError: 'x'"),
        (TimeoutError(), "TimeoutError"),
        (ToolError(), "ToolError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Odd(), "Odd: <Odd whose __str__ raised RuntimeError>"),
        (ExceptionGroup("two", [ValueError("a"), ToolError("b")]), "ValueError: a\nb"),
    ]
    for error, text in cases:
        assert failure(error) == Outcome((Text(0, text),), None, True)
    assert issubclass(ToolError, PenstockError)


odd_values = st.recursive(
    st.one_of(
        st.none(), st.floats(), st.binary(), st.characters(categories=["Cs"]), st.complex_numbers(), st.datetimes(),
        st.decimals(), st.timedeltas(), st.builds(Empty), st.builds(Mute), st.builds(Untouchable),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner),
        st.builds(Ring, inner),
        st.builds(ToolOutput, inner, inner, st.booleans()),
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=300)
@given(odd_values)
def test_any_return_value_can_be_converted(value: Any) -> None:
    found = as_outcome(value)
    msgspec.json.encode(ToolResult("", "", found.content, found.is_error))
