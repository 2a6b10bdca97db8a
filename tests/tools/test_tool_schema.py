"""The schema of a typed function, and the validation of its arguments."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import io
import json
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from penstock import ArgumentsError, Tool, UsageError, as_tool, tool
from penstock.results import as_outcome
from tests.cases import each
from tests.tool_types import PARAMETERS, VECTORS, Address, Color, Json, Person, Point, Vector, google, taking

each_vector = each("vector", VECTORS.values(), ids=VECTORS)


@each_vector
def test_a_type_has_the_expected_schema(vector: Vector) -> None:
    parameters = taking(vector.annotation).parameters
    definitions = {"$defs": vector.definitions} if vector.definitions else {}
    assert parameters == {
        "type": "object",
        "properties": {"x": vector.schema},
        "required": ["x"],
        "additionalProperties": False,
        **definitions,
    }
    assert json.loads(json.dumps(parameters, allow_nan=False)) == parameters


@each_vector
def test_valid_arguments_are_converted(vector: Vector) -> None:
    for given_value, wanted in vector.good + vector.near:
        checked = taking(vector.annotation).check({"x": given_value})
        assert checked == {"x": wanted}
        assert type(checked["x"]) is type(wanted)


@each_vector
def test_invalid_arguments_are_named(vector: Vector) -> None:
    for given_value, message in vector.bad:
        with pytest.raises(ArgumentsError) as caught:
            taking(vector.annotation).check({"x": given_value})
        assert str(caught.value) == message


@each_vector
def test_the_generated_schema_accepts_valid_arguments(vector: Vector) -> None:
    declared = Tool.from_schema("f", "", taking(vector.annotation).parameters)
    for given_value, _ in vector.good:
        assert declared.check({"x": given_value}) == {"x": given_value}


# Signatures.


def schema_of(function: Callable[..., Any], **options: Any) -> Json:
    return tool(function, **options).parameters


def test_defaults_are_in_the_schema_if_they_are_json() -> None:
    class Marker: ...

    def function(
        a: int = 3,
        b: str | None = None,
        c: Color = Color.RED,
        d: Point = Point(1),  # noqa: B008
        e: Any = Marker,
        f: float = float("nan"),
        g: int = None,  # type: ignore[assignment]  # noqa: RUF013  # what people write
        h="x",
        i: list[int] = [],  # noqa: B006
    ) -> None: ...

    parameters = schema_of(function)
    assert {name: schema.get("default", ...) for name, schema in parameters["properties"].items()} == {
        "a": 3, "b": None, "c": "red", "d": {"x": 1, "y": 0.5}, "e": ..., "f": ..., "g": None, "h": "x", "i": [],
    }  # fmt: skip
    assert "required" not in parameters
    assert tool(function).check({}) == {}, "the function applies its defaults"


def test_null_for_an_optional_argument_means_its_default() -> None:
    def function(a: int = 3, b: int | None = 4) -> None: ...

    assert tool(function).check({"a": None, "b": None}) == {"b": None}


def test_defaults_of_fields_are_used() -> None:
    listed: Any = Field(default_factory=list, description="B.")

    def function(a: Annotated[int, Field(default=3)], b: list[int] = listed) -> None: ...

    made = tool(function)
    assert made.parameters["properties"] == {
        "a": {"type": "integer", "default": 3},
        "b": {"type": "array", "items": {"type": "integer"}, "description": "B."},
    }
    assert "required" not in made.parameters
    assert made.check({}) == {"a": 3, "b": []}
    assert made.check({"a": 1, "b": [2]}) == {"a": 1, "b": [2]}


def test_a_function_needs_neither_parameters_nor_hints() -> None:
    def nothing() -> None: ...

    def unhinted(a, b=2): ...

    assert schema_of(nothing) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert schema_of(unhinted) == {
        "type": "object",
        "properties": {"a": {}, "b": {"default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_kwargs_become_additional_properties() -> None:
    def some(a: int, **rest: int) -> dict[str, int]:
        return {"a": a, **rest}

    def anything(**rest): ...

    assert schema_of(some)["additionalProperties"] == {"type": "integer"}
    assert schema_of(anything)["additionalProperties"] is True
    assert tool(some).check({"a": 1, "b": "2", "self": 3}) == {"a": 1, "b": 2, "self": 3}
    with pytest.raises(ArgumentsError, match="`b`: expected an integer"):
        tool(some).check({"a": 1, "b": "x"})


def test_unknown_and_missing_arguments_are_named() -> None:
    def function(city: str, days: int = 1) -> None: ...

    with pytest.raises(ArgumentsError) as caught:
        tool(function).check({"citty": "Rome"})
    assert str(caught.value) == "`city`: missing\n`citty`: unknown field; the fields are: `city`, `days`"
    with pytest.raises(ArgumentsError, match="`a`: unknown field; there are no fields here"):
        tool(lambda: None, name="f").check({"a": 1})


def test_a_message_about_many_or_large_values_is_short() -> None:
    with pytest.raises(ArgumentsError) as caught:
        taking(list[int]).check({"x": ["a" * 1000] * 1000})
    assert len(str(caught.value)) < 2000
    assert str(caught.value).endswith("… and 990 more")


def test_positional_only_parameters_are_passed_by_name() -> None:
    def function(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
        return a, b, c, d

    made = tool(function)
    assert made.function(**made.check({"a": 1, "d": 5})) == (1, 2, 3, 5)
    assert made(1, 9) == (1, 9, 3, 4)


def test_parameter_names_may_be_reserved_in_pydantic() -> None:
    def function(model_config: int, schema: str, json: bool, _hidden: int, self: int, validate: int = 1) -> None: ...

    given_values = {"model_config": 1, "schema": "a", "json": True, "_hidden": 2, "self": 3}
    assert tool(function).check(given_values) == given_values


def test_two_types_with_one_name_stay_separate() -> None:
    def inner() -> Any:
        @dataclasses.dataclass
        class Point:
            z: str

        return Point

    def function(a: Any, b: Any) -> None: ...

    function.__annotations__ |= {"a": Point, "b": inner()}
    parameters = schema_of(function)
    assert parameters["properties"]["a"] != parameters["properties"]["b"]
    assert len(parameters["$defs"]) == 2


def test_a_property_called_title_is_kept() -> None:
    def function(title: str, default: str, discriminator: Person, extra: Any = {"title": "x"}) -> None:  # noqa: B006
        ...

    parameters = schema_of(function)
    assert list(parameters["properties"]) == ["title", "default", "discriminator", "extra"]
    assert parameters["properties"]["extra"] == {"default": {"title": "x"}}
    assert "title" in parameters["$defs"]["Person"]["properties"]


def test_variadic_positional_parameters_are_refused() -> None:
    def function(*names: str) -> None: ...

    with pytest.raises(UsageError, match=r"function: parameter `\*names`: .*a list"):
        tool(function)


def test_unsupported_annotations_are_refused_with_the_name_of_the_parameter() -> None:
    class Plain: ...

    for annotation in (Plain, Callable[[int], int], type, io.StringIO, list[Plain], dict[str, Plain | None]):
        with pytest.raises(UsageError, match=r"parameter `x`: .* has no JSON Schema"):
            taking(annotation)
    for words in ("Missing", "list[Missing]", "1 +", "Point.missing", "1/0"):
        with pytest.raises(UsageError, match=r"parameter `x`: its annotation .* cannot be evaluated"):
            taking(words)
    with pytest.raises(UsageError, match="signature cannot be read"):
        tool(min)


# The namespace of annotations, which are all strings in this module.


def test_annotations_need_not_be_strings() -> None:
    source = "def function(a: int, b: list[Point], c: 'Point | None' = None): ..."
    names: dict[str, Any] = {"Point": Point, "__name__": "elsewhere"}
    exec(compile(source, "elsewhere", "exec", dont_inherit=True), names)
    assert tool(names["function"]).check({"a": 1, "b": [{"x": 1}]}) == {"a": 1, "b": [Point(1)]}


def test_annotations_may_refer_to_local_types() -> None:
    @dataclasses.dataclass
    class Leaf:
        value: int

    @dataclasses.dataclass
    class Tree:
        leaves: list[Leaf]
        trees: list[Tree] = dataclasses.field(default_factory=list)

    class Local(BaseModel):
        tree: Tree

    class Keys(TypedDict):
        leaf: Leaf

    @tool
    def function(tree: Tree, local: Local, keys: Keys | None = None) -> None: ...

    tree: Json = {"leaves": [{"value": 1}], "trees": [{"leaves": []}]}
    assert function.check({"tree": tree, "local": {"tree": tree}, "keys": {"leaf": {"value": 2}}}) == {
        "tree": Tree([Leaf(1)], [Tree([])]),
        "local": Local(tree=Tree([Leaf(1)], [Tree([])])),
        "keys": {"leaf": Leaf(2)},
    }


def test_annotations_may_refer_to_types_of_enclosing_functions_and_classes() -> None:
    class Outer(enum.Enum):
        A = "a"

    class Shop:
        class Item(enum.Enum):
            B = "b"

        def sell(self, item: Item, outer: Outer) -> tuple[Item, Outer]:
            return item, outer

        @tool
        def buy(self, item: Item) -> Item:
            return item

    def inner() -> Tool[..., Any]:
        @tool
        def function(outer: Outer, shop: Shop.Item) -> None: ...

        return function

    assert inner().check({"outer": "a", "shop": "b"}) == {"outer": Outer.A, "shop": Shop.Item.B}
    assert as_tool(Shop().sell).check({"item": "b", "outer": "a"}) == {"item": Shop.Item.B, "outer": Outer.A}
    assert Shop().buy.check({"item": "b"}) == {"item": Shop.Item.B}


# Docstrings.


def numpy_style(city: str, days: int = 1, unit: Annotated[str, "Celsius or not."] = "C") -> None:
    """Look up the weather.

    It may rain.

    Parameters
    ----------
    city : str
        Where, and
        in which country.
    days : int, optional
        How many.

    Returns
    -------
    None
    """


def sphinx(city: str, days: int = 1, unit: Annotated[str, "Celsius or not."] = "C") -> None:
    """Look up the weather.

    It may rain.

    :param city: Where, and
        in which country.
    :param int days: How many.
    :returns: The weather.
    """


@pytest.mark.parametrize("function", [google, numpy_style, sphinx])
def test_docstrings_describe_tools_and_parameters(function: Callable[..., Any]) -> None:
    made = tool(function)
    assert made.description == "Look up the weather.\n\nIt may rain."
    assert {name: schema["description"] for name, schema in made.parameters["properties"].items()} == {
        "city": "Where, and\nin which country.",
        "days": "How many.",
        "unit": "Celsius or not.",
    }


def test_a_docstring_without_a_known_style_is_the_description() -> None:
    def function(a: int) -> None: ...

    for text in (
        "",
        "One line: with a colon.",
        "Two\nlines.",
        "A list:\n\n- one\n- two",
        "Args:\n",
        ":param",
        "@",
        ":",
    ):
        function.__doc__ = text
        assert tool(function).description == inspect.cleandoc(text).strip()
    function.__doc__ = None
    assert tool(function).description == ""


# Strict schemas.


def test_a_strict_schema_is_closed_and_requires_every_field() -> None:
    class Node(BaseModel):
        value: Annotated[Point, Field(description="Where.")]
        next: Annotated[Node | None, Field(description="What follows.")] = None
        peers: list[Node] = []

    def function(node: Annotated[Node, "The first."], days: int = 3, note: str | None = None) -> None: ...

    point = {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
        "required": ["x", "y"],
        "additionalProperties": False,
    }
    node = {
        "type": "object",
        "properties": {
            "value": {**point, "description": "Where."},
            "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "description": "What follows."},
            "peers": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
        "required": ["value", "next", "peers"],
        "additionalProperties": False,
    }
    made = tool(function, strict=True)
    assert made.parameters == {
        "type": "object",
        "properties": {
            "node": {**node, "description": "The first."},
            "days": {"type": "integer"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["node", "days", "note"],
        "additionalProperties": False,
        "$defs": {"Node": node, "Point": point},
    }
    assert made.strict
    assert made.declaration.extra == {"strict": True}


def test_a_strict_schema_has_only_supported_keywords() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int = 9

    class Dog(BaseModel):
        kind: Literal["dog"]

    def function(
        pet: Annotated[Cat | Dog, Field(discriminator="kind")],
        spot: tuple[int, str],
        pair: tuple[int, int],
        tags: set[str],
        many: int = 3,
    ) -> None: ...

    made = tool(function, strict=True)
    either = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    two = {"type": "array", "minItems": 2, "maxItems": 2}
    assert made.parameters["properties"] == {
        "pet": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
        "spot": {**two, "items": either},
        "pair": {**two, "items": {"type": "integer"}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "many": {"type": "integer"},
    }
    assert "oneOf" in tool(function).parameters["properties"]["pet"], "without strict, all keywords are kept"
    assert "default" not in str(made.parameters)


def test_a_strict_schema_of_a_recursive_type_is_finite() -> None:
    class Node(BaseModel):
        next: Annotated[Node, Field(description="What follows.")] | None

    def function(node: Annotated[Node, "The first."]) -> None: ...

    assert json.dumps(schema_of(function, strict=True))


def test_a_schema_that_cannot_be_strict_is_refused() -> None:
    def scores(scores: dict[str, int]) -> None: ...

    def rest(**rest: int) -> None: ...

    for function in (scores, rest):
        with pytest.raises(UsageError, match="cannot have objects with arbitrary fields"):
            tool(function, strict=True)


# Tools declared with a schema.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"city": "Rome"}, ""),
        ({"city": "Rome", "days": 3.0, "tags": ["a", 1], "place": {"lat": 1, "other": 2}, "mode": "fast"}, ""),
        ({"city": "Rome", "tags": None, "note": None, "pair": [1, True], "all": 3}, ""),
        ({}, "`city`: missing"),
        ({"city": 3}, "`city`: expected a string, got 3"),
        ({"city": "R"}, '`city`: must have at least 2 characters, got "R"'),
        ({"city": "Rome", "days": 0}, "`days`: must be at least 1, got 0"),
        ({"city": "Rome", "days": 10}, "`days`: must be less than 10, got 10"),
        ({"city": "Rome", "days": True}, "`days`: expected an integer, got true"),
        ({"city": "Rome", "days": 1.5}, "`days`: expected an integer, got 1.5"),
        ({"city": "Rome", "tags": ["a", "b"]}, '`tags[1]`: expected "a" or 1, got "b"'),
        ({"city": "Rome", "tags": [True]}, '`tags[0]`: expected "a" or 1, got true'),
        ({"city": "Rome", "tags": ["a", "a", "a"]}, '`tags`: must have at most 2 items, got ["a", "a", "a"]'),
        ({"city": "Rome", "tags": {}}, "`tags`: expected an array or null, got {}"),
        ({"city": "Rome", "place": 3}, "`place`: expected a string or an object, got 3"),
        ({"city": "Rome", "mode": "slow"}, '`mode`: expected "fast", got "slow"'),
        ({"city": "Rome", "note": 3}, "`note`: expected a string or null, got 3"),
        ({"city": "Rome", "pair": [1, True, 2]}, "`pair[2]`: must not be given, got 2"),
        ({"city": "Rome", "all": 2}, "`all`: must be at least 3, got 2"),
        (
            {"city": "Rome", "cty": 1},
            "`cty`: unknown field; the fields are: `city`, `days`, `tags`, `place`, `mode`, `note`, `pair`, `all`",
        ),
    ],
)
def test_arguments_are_validated_by_a_given_schema(arguments: Json, message: str) -> None:
    made = Tool.from_schema("f", "Do it.", PARAMETERS, lambda **given_values: given_values)
    assert made.parameters == PARAMETERS
    if not message:
        assert made.function(**made.check(arguments)) == arguments
        return
    with pytest.raises(ArgumentsError) as caught:
        made.check(arguments)
    assert str(caught.value) == message


def test_a_malformed_schema_accepts_everything() -> None:
    odd = {"properties": {"a": {"type": 3, "enum": "x", "required": 1, "$ref": "http://x.test", "minimum": "one"},
                          "b": 7, "c": {"$ref": "#/$defs/c"}, "d": {"type": "thing"}}, "$defs": {"c": {"$ref": "#/$defs/c"}}}  # fmt: skip # noqa: E501
    given_values = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    assert Tool.from_schema("f", "", odd).check(given_values) == given_values


def test_parameters_that_are_not_a_schema_are_refused() -> None:
    schemas: list[Any] = [[], "x", {"type": "string"}, {"default": float("nan")}, {"x": object()}]
    for schema in schemas:
        with pytest.raises(UsageError, match="tool 'f'"):
            Tool.from_schema("f", "", schema)


# Laws.

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: st.text(),
    Any: json_values,
    list[Any]: st.lists(json_values, max_size=4),
    dict[str, Any]: st.dictionaries(st.text(), json_values, max_size=4),
    dict[str, list[int | None]]: st.dictionaries(st.text(), st.lists(st.none() | st.integers()), max_size=4),
    tuple[int, str]: st.tuples(st.integers(), st.text()).map(list),
    Literal["a", 1, True]: st.sampled_from(["a", 1]),
    Color: st.sampled_from(["red", "blue"]),
    int | str | None: st.none() | st.integers() | st.text(),
    Point: st.fixed_dictionaries({"x": st.integers(), "y": st.floats(allow_nan=False, allow_infinity=False)}),
    Address: st.fixed_dictionaries({"street": st.text()}, optional={"number": st.integers()}),
    datetime.date: st.dates().map(str),
    uuid.UUID: st.uuids().map(str),
}  # fmt: skip
TOOLS = {annotation: taking(annotation) for annotation in TYPES}


@given(st.sampled_from(list(TYPES)).flatmap(lambda annotation: st.tuples(st.just(annotation), TYPES[annotation])))
def test_checked_arguments_dump_to_the_same_json(case: tuple[Any, Any]) -> None:
    annotation, value = case
    checked = TOOLS[annotation].check({"x": value})
    assert json.loads(as_outcome(checked).text) == {"x": value}
    assert Tool.from_schema("f", "", TOOLS[annotation].parameters).check({"x": value}) == {"x": value}


@given(st.sampled_from(list(TYPES)), st.dictionaries(st.sampled_from("xyz") | st.text(), json_values, max_size=3))
def test_any_arguments_are_accepted_or_refused(annotation: Any, arguments: Json) -> None:
    try:
        TOOLS[annotation].check(arguments)
    except ArgumentsError:
        pass


@given(json_values, st.dictionaries(st.sampled_from("ab") | st.text(), json_values, max_size=3))
def test_with_any_schema_arguments_are_accepted_or_refused(schema: Any, arguments: Json) -> None:
    try:
        made = Tool.from_schema("f", "", {"properties": {"a": schema, "b": {"anyOf": [schema, {"type": "null"}]}}})
        made.check(arguments)
    except ArgumentsError:
        pass
