"""The types that a structured output can have, and what is sent of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from penstock import Agent, Model, OutputDelta, OutputError, UsageError
from penstock.model.output_request import OUTPUT_TOOL
from penstock.output.output_type import MAX_KNOWN, OutputType, known_types, output_type
from penstock.schemas import InexpressibleError, SchemaRules, fit_schema, resolve
from penstock.testing import Reply, Scripted, call
from penstock.wires import all_facts


class Item(BaseModel):
    """An item."""

    name: str
    when: date
    size: Annotated[int, Field(ge=1)] = 1

    @field_validator("name")
    @classmethod
    def _is_not_blank(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("a name must not be blank")
        return name


@dataclass
class Box:
    items: list[Item]
    label: str | None = None


class Row(TypedDict):
    id: int
    when: date


class Point(msgspec.Struct):
    x: int
    when: date


class Shelf(msgspec.Struct):
    rows: dict[int, str]
    days: dict[date, int] = {}


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
DAY = date(2026, 5, 1)
VALUES: list[tuple[Any, Any, Any]] = [
    (Item, {"name": "a", "when": "2026-05-01"}, Item(name="a", when=DAY)),
    (Box, {"items": [{"name": "a", "when": "2026-05-01"}]}, Box([Item(name="a", when=DAY)])),
    (Row, {"id": 1, "when": "2026-05-01"}, {"id": 1, "when": DAY}),
    (Point, {"x": 1, "when": "2026-05-01"}, Point(1, DAY)),
    (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree(name="a", children=[Tree(name="b")])),
    (list[Item], {"value": [{"name": "a", "when": "2026-05-01"}]}, [Item(name="a", when=DAY)]),
    (list[Point], {"value": [{"x": 1, "when": "2026-05-01"}]}, [Point(1, DAY)]),
    (Item | Box, {"value": {"items": []}}, Box([])),
    (Literal["yes", "no"], {"value": "yes"}, "yes"),
    (int, {"value": 3}, 3),
    (date | None, {"value": None}, None),
    (SCHEMA, {"n": 1}, {"n": 1}),
    ({"type": "ARRAY", "items": {"type": "STRING"}}, {"value": ["a"]}, ["a"]),
    (Shelf, {"rows": {"1": "a"}, "days": {"2026-05-01": 2}}, Shelf({1: "a"}, {DAY: 2})),
]


MODELS = ("openai:gpt-5", "anthropic:claude-sonnet-5", "google:gemini-3-pro", "cohere:command-a", "ollama:qwen3")


@pytest.mark.parametrize(("kind", "written", "output"), VALUES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("name", MODELS)
def test_an_output_of_each_type_is_accepted_by_strict_providers(
    name: str, kind: Any, written: Any, output: Any
) -> None:
    def answer(request: Any) -> Reply:
        is_tool = OUTPUT_TOOL in str(request.body)
        return Reply(call(OUTPUT_TOOL, written)) if is_tool else Reply(json.dumps(written))

    agent: Agent[Any, Any] = Agent(Model(name, via=Scripted(answer, strict=True)), output=kind)
    assert agent.run("Go.").output == output


class Plain:
    """A class that nothing can validate."""


@pytest.mark.parametrize(
    "kind",
    [
        Plain,
        Plain(),
        Annotated[str, Field(pattern="(")],
        lambda: 1,
        list[Plain],
        msgspec.defstruct("S", [("f", Plain)]),
    ],
)
def test_a_type_without_a_schema_is_refused_when_the_agent_is_made(kind: Any) -> None:
    with pytest.raises(UsageError, match=r"^output: .*(use|JSON)"):
        Agent("sim:demo", output=kind)


def test_a_schema_that_is_not_json_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        Agent("sim:demo", output={"enum": [object()]})


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "https://example.com/city.json"}, "Retrieval is disabled"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/city"}}}, "'/\\$defs/city' does not exist"),
        ({"type": "object", "properties": 3}, '3 is not of type "object", at properties'),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "at properties/a/pattern"),
        ({"type": "object", "required": "a"}, "at required"),
        ({"type": "nope"}, '"nope" is not a type, at type; use string, integer'),
        ({"type": ["object", 5]}, "5 is not a type, at type"),
        ({"type": []}, r"\[\] is not a type, at type"),
        ({"type": "object", "properties": {"a": {"items": {"type": "text"}}}}, "at properties/a/items/type"),
        ({"type": "object", "additionalProperties": "no"}, '"no" is not a schema, at additionalProperties'),
        ({"$ref": "#"}, "the reference '#' leads back to itself, at \\$ref"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "leads back to itself, at anyOf/1/\\$ref"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "'#/\\$defs/a' leads back to itself"),
    ],
)
def test_a_schema_that_is_not_valid_is_refused_when_the_agent_is_made(schema: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=rf"^output: the JSON Schema is not valid: .*{problem}"):
        Agent("sim:demo", output=schema)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Item, "", "there is none"),
        (Item, "Sure!", "it is not JSON"),
        (Item, '{"name": " ", "when": "2026-05-01"}', "`name`: a name must not be blank"),
        (Item, '{"name": "a", "when": "2026-05-01", "size": 0}', "`size`: must be greater than or equal to 1"),
        (Point, '{"x": "1", "when": "2026-05-01"}', "`x`: Expected `int`, got `str`"),
        (list[int], "[1]", "it must be a JSON object with the one field `value`"),
        (list[int], '{"value": [1, "a"]}', r"`value\[1\]`: expected an integer"),
        (SCHEMA, '{"n": 0}', "`n`: must be at least 1"),
        (float, '{"value": NaN}', "it is not JSON"),
        (float, '{"value": "nan"}', "must be a finite number"),
    ],
)
def test_what_is_wrong_with_an_output_is_said(kind: Any, text: str, problem: str) -> None:
    with pytest.raises(OutputError, match=problem):
        OutputType(kind).read(text)


# -- schemas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", all_facts())
def test_constraints_that_a_provider_does_not_enforce_are_in_the_description(wire: str) -> None:
    class Short(BaseModel):
        code: Annotated[str, Field(description="A code.", max_length=5, pattern="[a-z]+", json_schema_extra={"x-y": 1})]

    written = json.dumps(fit_schema(dict(OutputType(Short).declaration.schema), all_facts()[wire].output))
    assert "maxLength" in written, "as a keyword or in the description"
    assert '"x-y"' not in written


def test_a_reference_with_other_keywords_is_replaced_by_its_target() -> None:
    class Pair(BaseModel):
        left: Annotated[Item, Field(description="The first.")]

    fitted = fit_schema(dict(OutputType(Pair).declaration.schema), SchemaRules())
    assert fitted["properties"]["left"]["description"] == "The first."
    assert "$ref" not in fitted["properties"]["left"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(dict[str, int], "arbitrary fields"), (dict[str, Any], "arbitrary fields"), (list[Any], "any type"),
     (Tree, "contain themselves")],
)  # fmt: skip
def test_what_rules_cannot_express_is_named(kind: Any, reason: str) -> None:
    with pytest.raises(InexpressibleError, match=reason):
        fit_schema(dict(OutputType(kind).declaration.schema), SchemaRules(is_recursive=False))


def test_a_schema_that_refers_to_its_root_is_checked_at_every_level() -> None:
    tree = {"type": "object", "properties": {"n": {"type": "integer"}, "children": {"items": {"$ref": "#"}}}}
    output = output_type(tree)
    assert output is not None
    assert output.read('{"n": 1, "children": [{"n": 2}]}') == {"n": 1, "children": [{"n": 2}]}
    with pytest.raises(OutputError, match=r"`children\[0\].n`: expected an integer"):
        output.read('{"n": 1, "children": [{"n": "two"}]}')
    lists = output_type({"type": "array", "items": {"$ref": "#"}})
    assert lists is not None
    assert lists.read('{"value": [[], [[]]]}') == [[], [[]]]
    with pytest.raises(OutputError, match=r"`value\[0\]`: expected an array"):
        lists.read('{"value": [{"value": []}]}')


def test_a_schema_that_refers_to_a_part_of_itself_is_checked_there() -> None:
    fields = {"city": {"type": "string", "maxLength": 5}, "other": {"$ref": "#/properties/city"}}
    output = output_type({"type": "object", "properties": fields})
    assert output is not None
    assert output.read('{"city": "Rome", "other": "Oslo"}') == {"city": "Rome", "other": "Oslo"}
    with pytest.raises(OutputError, match="`other`"):
        output.read('{"city": "Rome", "other": "Reykjavik"}')
    script = Scripted(['{"city": "Rome", "other": "Oslo"}'], strict=True)
    Agent(Model("openai:gpt-5", via=script), output={"type": "object", "properties": fields}).run("Go.")
    schema = script.requests[0].body["text"]["format"]["schema"]
    assert resolve(schema, schema["properties"]["other"]["$ref"]) is not None


def test_a_type_with_a_dict_in_its_annotation_is_a_type() -> None:
    output = output_type(Annotated[int, {"unit": "euros"}])
    assert output is not None
    assert output.read('{"value": 3}') == 3


def test_a_schema_has_no_definitions_that_nothing_refers_to() -> None:
    assert "$defs" not in OutputType(Row).declaration.schema
    assert set(OutputType(Box).declaration.schema["$defs"]) == {"Item"}
    assert set(OutputType(Tree).declaration.schema["$defs"]) == {"Tree"}


def test_a_type_may_be_local_to_a_function() -> None:
    @dataclass
    class Inner:
        day: date

    @dataclass
    class Outer:
        inner: Inner

    agent = Agent(Model("openai:gpt-5", via=Scripted('{"inner": {"day": "2026-05-01"}}')), output=Outer)
    with agent.stream("Go.") as run:
        list(run)
    assert run.output == Outer(Inner(DAY))
    assert run.partial == {"inner": Inner(DAY)}


def test_the_types_that_are_kept_are_limited() -> None:
    model = Model("openai:gpt-5", via=Scripted(lambda request: "{}"))
    for number in range(MAX_KNOWN + 2):
        model.complete("Go.", output=dataclass(type(f"Type{number}", (), {})))
    assert len(known_types) <= MAX_KNOWN


def test_a_type_that_another_thread_drops_from_those_that_are_kept_is_still_returned() -> None:
    class Dropped(type):
        def __hash__(cls) -> int:
            known_types.clear()  # as another thread does between two steps
            return super().__hash__()

    class Kind(metaclass=Dropped):
        city: str

    output = output_type(dataclass(Kind))
    assert output is not None
    assert output.read('{"city": "Rome"}') == Kind("Rome")  # type: ignore[call-arg]


def test_a_name_in_quotes_means_what_it_means_to_the_caller() -> None:
    def first() -> Any:
        @dataclass
        class Trip:
            city: str

        return Trip, output_type(list["Trip"])

    def second() -> Any:
        @dataclass
        class Trip:
            city: int

        return Trip, output_type(list["Trip"])

    trip, output = first()
    assert output.read('{"value": [{"city": "Rome"}]}') == [trip("Rome")]
    trip, output = second()
    assert output.read('{"value": [{"city": 3}]}') == [trip(3)]
    assert output_type(Annotated[int, "a number"]) is output_type(Annotated[int, "a number"])


def test_a_list_of_types_is_refused_with_the_union_of_them() -> None:
    with pytest.raises(UsageError, match=r"a list of types is not a type; use Item \| Box for one of them"):
        Agent("sim:demo", output=[Item, Box])  # type: ignore[call-overload]


class Prices(RootModel[dict[str, Decimal]]):
    pass


def test_fields_are_converted_in_an_annotated_type_and_not_in_that_of_a_root() -> None:
    def partial(kind: Any, answer: str) -> Any:
        agent: Any = Agent(Model("openai:gpt-5", via=Scripted([answer])), output=kind)
        with agent.stream("Go.") as run:
            assert not [event for event in run if event.type == "output_delta" and event.problem]
        return run.partial

    trip = Annotated[Row, Field(description="A row.")]
    assert partial(trip, '{"id": 1, "when": "2026-05-01"}') == {"id": 1, "when": DAY}
    assert partial(Annotated[list[Row], Field(max_length=3)], '{"value": [{"id": 1, "when": "2026-05-01"}]}') == [
        {"id": 1, "when": DAY}
    ]
    assert partial(Prices, '{"root": 1, "leaf": 2}') == {"root": 1, "leaf": 2}


class Place(NamedTuple):
    latitude: float
    longitude: float


@pytest.mark.parametrize("wire", all_facts())
def test_the_fields_of_a_named_tuple_are_named_in_the_description(wire: str) -> None:
    written = json.dumps(fit_schema(dict(OutputType(list[Place]).declaration.schema), all_facts()[wire].output))
    assert "(items: Latitude, Longitude)" in written


def test_a_schema_with_more_values_or_fields_than_openai_takes_is_not_strict() -> None:
    codes = {"enum": [f"A{number}" for number in range(600)], "type": "string"}
    many = {f"f{number}": {"type": "integer"} for number in range(5001)}
    for fields, is_strict in (({"a": codes}, True), ({"a": codes, "b": codes}, False), (many, False)):
        script = Scripted(["{}"], strict=True)
        Agent(Model("openai:gpt-5", via=script), output={"type": "object", "properties": fields}).run("Go.")
        assert script.requests[0].body["text"]["format"]["strict"] is is_strict


def test_a_schema_with_arrays_of_anything_is_not_strict() -> None:
    for kind in ("array", ["array", "null"], ["object", "null"]):
        schema = {"type": "object", "properties": {"a": {"type": kind}}}
        script = Scripted(['{"a": []}' if "array" in kind else '{"a": null}'], strict=True)
        Agent(Model("openai:gpt-5", via=script), output=schema).run("Go.")
        assert script.requests[0].body["text"]["format"]["strict"] is False


@pytest.mark.parametrize(
    ("kind", "value"), [(Item | str, "It is all in Rome."), (Literal["yes", "no"], "yes"), (int, 12345)]
)
def test_an_output_that_is_no_object_comes_in_pieces_too(kind: Any, value: Any) -> None:
    script = Scripted([Reply(json.dumps({"value": value}), seed=1)])
    with Agent(Model("openai:gpt-5", via=script), output=kind).stream("Go.") as run:
        deltas = [event for event in run if isinstance(event, OutputDelta)]
    assert {delta.path for delta in deltas} == {()}
    assert [delta.is_complete for delta in deltas] == [*[False] * (len(deltas) - 1), True]
    pieces = [delta.piece for delta in deltas]
    assert ("".join(pieces) if isinstance(value, str) else pieces[-1]) == run.output == value


class Order(BaseModel):
    """A model with what only fields of models can have; warnings are errors here."""

    model_config = ConfigDict(alias_generator=str.upper)
    city: Annotated[str, Field(frozen=True, max_length=4)]
    when: date = Field(default=DAY, deprecated=True, alias="Day")
    pet: Annotated[Cat | Dog, Field(discriminator="kind", exclude=True)]


def test_fields_with_aliases_are_converted_without_a_warning() -> None:
    written = {"CITY": "Rome", "Day": "2026-05-01", "PET": {"kind": "dog", "age": 3}}
    script = Scripted([json.dumps({**written, "CITY": "Reykjavik"}), json.dumps(written)])
    with Agent(Model("openai:gpt-5", via=script), output=Order).stream("Go.") as run:
        problems = [event.problem for event in run if isinstance(event, OutputDelta) and event.problem]
    assert problems == ['`CITY`: string should have at most 4 characters, got "Reykjavik"']
    assert run.partial == {"CITY": "Rome", "Day": DAY, "PET": Dog(kind="dog", age=3)}


@pydantic_dataclass
class Ticket:
    seat: Annotated[int, Field(alias="Seat", ge=1)]
    when: date = DAY
    kinds: ClassVar[int] = 3


class Stop(TypedDict):
    place: Annotated[str, Field(alias="Place", max_length=4)]
    when: NotRequired[Annotated[date, "the day"]]


@pytest.mark.parametrize(
    ("kind", "written", "partial"),
    [
        (Ticket, {"Seat": 3, "when": "2026-05-01"}, {"Seat": 3, "when": DAY}),
        (Stop, {"Place": "Rome", "when": "2026-05-01"}, {"Place": "Rome", "when": DAY}),
    ],
)
def test_aliases_of_other_types_are_the_keys_of_their_fields(kind: Any, written: Any, partial: Any) -> None:
    with Agent(Model("openai:gpt-5", via=Scripted([json.dumps(written)])), output=kind).stream("Go.") as run:
        assert not [event for event in run if isinstance(event, OutputDelta) and event.problem]
    assert run.partial == partial
    assert OutputType(kind).fields.keys() == partial.keys()
