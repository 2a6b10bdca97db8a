"""Types of parameters, with their schemas, valid values and invalid values."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, Required, TypedDict, TypeVar

import msgspec
import pydantic
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field

from penstock import Tool, tool

Json = dict[str, Any]
Item = TypeVar("Item")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(str, enum.Enum):  # noqa: UP042  # what people wrote before StrEnum
    YES = "yes"
    NO = "no"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


@dataclasses.dataclass(frozen=True)
class Path:
    """A way through points."""

    points: list[Point]
    name: Annotated[str, Field(description="What it is called.")] = "path"


class Address(TypedDict):
    street: str
    number: NotRequired[int]


class Options(TypedDict, total=False):
    """How it is done."""

    depth: Required[int]
    home: Address


class Person(BaseModel):
    """Somebody."""

    title: str
    age: int = Field(ge=0, description="In years.")
    boss: Person | None = None


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    when: datetime.date
    ids: tuple[int, ...] = ()


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Pair(NamedTuple):
    left: int
    right: str


class Box(BaseModel, Generic[Item]):
    item: Item


class Vector(msgspec.Struct, frozen=True):
    """A type: the schema of its parameter, the types that it refers to, valid values and invalid ones.

    What is `near` does not fit, and is taken all the same.
    """

    annotation: Any
    schema: Json
    good: list[tuple[Any, Any]] = []
    bad: list[tuple[Any, str]] = []
    definitions: Json = {}
    near: list[tuple[Any, Any]] = []


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.5}},
    "required": ["x"],
}
PERSON = {
    "type": "object",
    "description": "Somebody.",
    "properties": {
        "title": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "description": "In years."},
        "boss": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}], "default": None},
    },
    "required": ["title", "age"],
}
ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["street"],
}
NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
ID = uuid.UUID(int=7)

VECTORS = {
    "str": Vector(
        str,
        {"type": "string"},
        [("a", "a"), ("", "")],
        [(3, "`x`: expected a string, got 3"), (None, "`x`: expected a string, got null")],
    ),
    "int": Vector(
        int,
        {"type": "integer"},
        [(3, 3), (3.0, 3), (10**30, 10**30)],
        [("three", '`x`: expected an integer, got "three"'), (3.5, "`x`: expected an integer, got 3.5")],
        near=[("3", 3), (True, 1)],
    ),
    "float": Vector(float, {"type": "number"}, [(3, 3.0), (0.1, 0.1)], [("a", '`x`: expected a number, got "a"')]),
    "bool": Vector(bool, {"type": "boolean"}, [(True, True)], [("maybe", '`x`: expected true or false, got "maybe"')]),
    "any": Vector(Any, {}, [(None, None), ([{"a": 1}], [{"a": 1}])]),
    "object": Vector(object, {}, [({"a": [None]}, {"a": [None]})]),
    "null": Vector(None, {"type": "null"}, [(None, None)], [(0, "`x`: expected null, got 0")]),
    "list": Vector(
        list[int],
        {"type": "array", "items": {"type": "integer"}},
        [([], []), ([1, 2], [1, 2])],
        [
            (["a", 2, "b"], '`x[0]`: expected an integer, got "a"\n`x[2]`: expected an integer, got "b"'),
            (7, "`x`: expected an array, got 7"),
        ],
    ),
    "bare list": Vector(list, {"type": "array", "items": {}}, [([1, "a"], [1, "a"])]),
    "sequence": Vector(Sequence[str], {"type": "array", "items": {"type": "string"}}, [(["a"], ["a"])]),
    "set": Vector(set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [([1, 2], {1, 2})]),
    "dict": Vector(
        dict[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
        [({"a": 1}, {"a": 1})],
        [({"a": "b"}, '`x.a`: expected an integer, got "b"'), ([], "`x`: expected an object, got []")],
    ),
    "dict of numbers": Vector(
        dict[int, str],
        {"type": "object", "additionalProperties": {"type": "string"}},
        [({"1": "a"}, {1: "a"})],
        [({"one": "a"}, '`x.one`: expected an integer as a key, got "one"')],
    ),
    "mapping": Vector(Mapping[str, Any], {"type": "object", "additionalProperties": True}, [({"a": []}, {"a": []})]),
    "tuple": Vector(
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        [([1, "a"], (1, "a"))],
        [([1], "`x[1]`: missing"), ([1, 2], "`x[1]`: expected a string, got 2")],
    ),
    "long tuple": Vector(tuple[float, ...], {"type": "array", "items": {"type": "number"}}, [([1, 2], (1.0, 2.0))]),
    "optional": Vector(
        Optional[int],  # noqa: UP045  # what people write
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        [(None, None), (3, 3)],
        [("a", '`x`: expected an integer, got "a"')],
    ),
    "union": Vector(
        int | str | list[bool],
        {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array", "items": {"type": "boolean"}}]},
        [(1, 1), ("1", "1"), ([True], [True])],
        [({}, "`x`: expected an integer, a string or an array, got {}")],
    ),
    "literal": Vector(
        Literal["a", "b"],
        {"type": "string", "enum": ["a", "b"]},
        [("a", "a")],
        [("c", "`x`: expected 'a' or 'b', got \"c\"")],
    ),
    "one literal": Vector(Literal["a"], {"type": "string", "const": "a"}, [("a", "a")]),
    "enum": Vector(
        Color,
        {"$ref": "#/$defs/Color"},
        [("red", Color.RED)],
        [("green", "`x`: expected 'red' or 'blue', got \"green\"")],
        {"Color": {"type": "string", "enum": ["red", "blue"]}},
    ),
    "int enum": Vector(
        Level, {"$ref": "#/$defs/Level"}, [(2, Level.HIGH)], [], {"Level": {"type": "integer", "enum": [1, 2]}}
    ),
    "str enum": Vector(
        Word, {"$ref": "#/$defs/Word"}, [("no", Word.NO)], [], {"Word": {"type": "string", "enum": ["yes", "no"]}}
    ),
    "datetime": Vector(
        datetime.datetime,
        {"type": "string", "format": "date-time"},
        [("2026-01-31T12:00:00Z", NOON)],
        [("noon", '`x`: expected a date and time such as 2026-01-31T12:00:00Z, got "noon"')],
    ),
    "date": Vector(
        datetime.date,
        {"type": "string", "format": "date"},
        [("2026-01-31", NOON.date())],
        [("31.1.", '`x`: expected a date such as 2026-01-31, got "31.1."')],
    ),
    "time": Vector(datetime.time, {"type": "string", "format": "time"}, [("12:00:00", datetime.time(12))]),
    "duration": Vector(
        datetime.timedelta,
        {"type": "string", "format": "duration"},
        [("PT1H", datetime.timedelta(hours=1))],
        [("long", '`x`: expected a duration such as PT1H30M, got "long"')],
    ),
    "uuid": Vector(
        uuid.UUID, {"type": "string", "format": "uuid"}, [(str(ID), ID)], [("7", '`x`: expected a UUID, got "7"')]
    ),
    "path": Vector(pathlib.Path, {"type": "string", "format": "path"}, [("a/b", pathlib.Path("a/b"))]),
    "bytes": Vector(bytes, {"type": "string", "format": "binary"}, [("ab", b"ab")]),
    "decimal": Vector(
        decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string"}]}, [("0.10", decimal.Decimal("0.10"))]
    ),
    "words": Vector(Annotated[int, "How many."], {"type": "integer", "description": "How many."}, [(1, 1)]),
    "Doc": Vector(
        Annotated[str, typing_extensions.Doc("Which.")], {"type": "string", "description": "Which."}, [("a", "a")]
    ),
    "words in a union": Vector(
        Annotated[int, "How many."] | None,
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "How many."},
        [(None, None)],
    ),
    "Field": Vector(
        Annotated[int, Field(ge=1, lt=9, description="How many.", title="Count", examples=[3])],
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "description": "How many.", "examples": [3]},
        [(1, 1)],
        [(0, "`x`: must be greater than or equal to 1, got 0")],
    ),
    "text of a length": Vector(
        Annotated[str, Field(min_length=2)],
        {"type": "string", "minLength": 2},
        [("ab", "ab")],
        [("a", '`x`: string should have at least 2 characters, got "a"')],
    ),
    "validator": Vector(
        Annotated[
            str, pydantic.AfterValidator(lambda value: value if value.islower() else _raise("use small letters"))
        ],
        {"type": "string"},
        [("ab", "ab")],
        [("AB", '`x`: use small letters, got "AB"')],
    ),
    "dataclass": Vector(
        Point,
        {"$ref": "#/$defs/Point"},
        [({"x": 1}, Point(1, 0.5)), ({"x": 1, "y": 2}, Point(1, 2.0))],
        [
            ({}, "`x.x`: missing"),
            ({"x": []}, "`x.x`: expected an integer, got []"),
            (1, "`x`: expected an object, got 1"),
        ],
        {"Point": POINT},
    ),
    "nested dataclass": Vector(
        Path,
        {"$ref": "#/$defs/Path"},
        [({"points": [{"x": 1}]}, Path([Point(1)]))],
        [({"points": [{"x": 1}, {"y": 1}]}, "`x.points[1].x`: missing")],
        {
            "Path": {
                "type": "object",
                "description": "A way through points.",
                "properties": {
                    "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
                    "name": {"type": "string", "default": "path", "description": "What it is called."},
                },
                "required": ["points"],
            },
            "Point": POINT,
        },
    ),
    "typed dict": Vector(
        Address,
        {"$ref": "#/$defs/Address"},
        [({"street": "Main"}, {"street": "Main"}), ({"street": "Main", "number": 3}, {"street": "Main", "number": 3})],
        [({"number": 1}, "`x.street`: missing")],
        {"Address": ADDRESS},
    ),
    "typed dicts": Vector(
        dict[str, list[Options] | None],
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Options"}}, {"type": "null"}]
            },
        },
        [({"a": [{"depth": 1, "home": {"street": "Main"}}]}, {"a": [{"depth": 1, "home": {"street": "Main"}}]})],
        [({"a": [{"home": {}}]}, "`x.a[0].depth`: missing\n`x.a[0].home.street`: missing")],
        {
            "Options": {
                "type": "object",
                "description": "How it is done.",
                "properties": {"depth": {"type": "integer"}, "home": {"$ref": "#/$defs/Address"}},
                "required": ["depth"],
            },
            "Address": ADDRESS,
        },
    ),
    "named tuple": Vector(
        Pair,
        {"$ref": "#/$defs/Pair"},
        [([1, "a"], Pair(1, "a"))],
        [([1], "`x[1]`: missing")],
        {
            "Pair": {
                "type": "array",
                "description": "(items: Left, Right)",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            }
        },
    ),
    "model": Vector(
        Person,
        {"$ref": "#/$defs/Person"},
        [({"title": "Dr", "age": 4}, Person(title="Dr", age=4))],
        [
            (
                {"title": "Dr", "age": 4, "boss": {"title": 1}},
                "`x.boss.title`: expected a string, got 1\n`x.boss.age`: missing",
            ),
            ({"title": "Dr", "age": -1}, "`x.age`: must be greater than or equal to 0, got -1"),
        ],
        {"Person": PERSON},
    ),
    "strict model": Vector(
        Strict,
        {"$ref": "#/$defs/Strict"},
        [({"when": "2026-01-31", "ids": [1]}, Strict(when=NOON.date(), ids=(1,)))],
        [({"when": "2026-01-31", "why": 1}, "`x.why`: unknown field")],
        {
            "Strict": {
                "type": "object",
                "properties": {
                    "when": {"type": "string", "format": "date"},
                    "ids": {"type": "array", "items": {"type": "integer"}, "default": []},
                },
                "required": ["when"],
                "additionalProperties": False,
            }
        },
    ),
    "a discriminated union": Vector(
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
        [({"kind": "cat", "lives": 9}, Cat(kind="cat", lives=9))],
        [({"kind": "dog"}, "`x.name`: missing")],
        {
            "Cat": {
                "type": "object",
                "properties": {"kind": {"type": "string", "const": "cat"}, "lives": {"type": "integer"}},
                "required": ["kind", "lives"],
            },
            "Dog": {
                "type": "object",
                "properties": {"kind": {"type": "string", "const": "dog"}, "name": {"type": "string"}},
                "required": ["kind", "name"],
            },
        },
    ),
    "generic model": Vector(
        Box[int],
        {"$ref": "#/$defs/Box_int_"},
        [({"item": 1}, Box[int](item=1))],
        [],
        {"Box_int_": {"type": "object", "properties": {"item": {"type": "integer"}}, "required": ["item"]}},
    ),
}


def _raise(message: str) -> Any:
    raise ValueError(message)


def taking(annotation: Any) -> Tool[..., Any]:
    """A tool with a parameter `x` of this type."""

    def function(x: Any) -> None: ...

    function.__annotations__["x"] = annotation
    return tool(function)


PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 9},
        "days": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
        "tags": {"type": ["array", "null"], "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
        "place": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/place"}]},
        "mode": {"const": "fast"},
        "note": {"type": "STRING", "nullable": True},
        "pair": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "boolean"}], "items": False},
        "all": {"allOf": [{"type": "integer"}, {"minimum": 3}]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "tag": {"enum": ["a", 1]},
        "place": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/place"}}, "required": ["lat"]},
    },
}


def google(city: str, days: int = 1, unit: Annotated[str, "Celsius or not."] = "C") -> None:
    """Look up the weather.

    It may rain.

    Args:
        city (str): Where, and
            in which country.
        days: How many.
        unit: Not this.

    Returns:
        The weather.

    Raises:
        ValueError: never.
    """
