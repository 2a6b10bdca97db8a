"""Arguments that must not reach a tool: numbers that are not finite, and what a declared schema does not allow."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
import threading
import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
from pydantic import ConfigDict, Field

import penstock
from penstock import ArgumentsError, Tool, UsageError, tool
from penstock.testing import Reply, Scripted, call
from tests.cases import each
from tests.scripted_runs import NAMES
from tests.tool_types import taking

INFINITE: list[Any] = ["nan", "NaN", " nan ", "inf", "-Infinity", "+inf", "1e999", "1_0e400", "1" + "0" * 400, 10**400,
                       float("nan"), float("-inf")]  # fmt: skip
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])


class Money(pydantic.BaseModel):
    amount: float
    currency: str = "EUR"
    limit: float = float("inf")  # the program's own default


class Order(pydantic.BaseModel):
    lines: list[Money]
    total: Money | None = None


@dataclasses.dataclass
class Line:
    amount: float


@dataclasses.dataclass(slots=True)
class Slot:
    amount: float


class Pair(NamedTuple):
    amount: float


class Wrapped:
    """A class of the program that a validator creates."""

    def __init__(self, amount: float) -> None:
        self._amount = amount


NESTED: list[tuple[Any, Any]] = [
    (float, lambda x: x),
    (float | None, lambda x: x),
    (complex, lambda x: x),
    (list[float], lambda x: [1, x]),
    (Iterable[float], lambda x: [1, x]),
    (dict[str, list[float]], lambda x: {"a": [1, x]}),
    (tuple[str, float], lambda x: ["nan", x]),
    (set[float], lambda x: [x]),
    (Money, lambda x: {"amount": x}),
    (list[Money], lambda x: [{"amount": 1}, {"amount": x}]),
    (Order, lambda x: {"lines": [{"amount": 1}], "total": {"amount": x}}),
    (Line, lambda x: {"amount": x}),
    (Slot, lambda x: {"amount": x}),
    (Pair, lambda x: [x]),
    (Annotated[float, pydantic.AfterValidator(Wrapped)], lambda x: x),
    (Annotated[float, Field(lt=1e300)] | None, lambda x: x),
    (Order, lambda x: {"lines": [{"amount": 1, "currency": "nan"}, {"amount": x}]}),
]


@pytest.mark.parametrize(("annotation", "wrap"), NESTED, ids=range(len(NESTED)))
def test_no_number_is_infinite(annotation: Any, wrap: Any) -> None:
    made = taking(annotation)
    made.check({"x": wrap(1.5)})
    for value in INFINITE:
        with pytest.raises(ArgumentsError):
            made.check({"x": wrap(value)})


@pytest.mark.parametrize("annotation", [dict[float, int], Iterable[float], list[dict[float, int]]])
def test_no_key_is_infinite(annotation: Any) -> None:
    """A type may convert the keys of an object, too; a predicate such as `min(limits) > 100` would not ask."""
    is_list = annotation == list[dict[float, int]]
    for key in ("nan", "-Infinity", "1e999"):
        with pytest.raises(ArgumentsError, match="finite"):
            taking(annotation).check({"x": [{key: 1}] if is_list else {key: 1}})
    taking(annotation).check({"x": [{"1.5": 1}] if is_list else {"1.5": 1}})
    assert taking(dict[str, int]).check({"x": {"nan": 1}}) == {"x": {"nan": 1}}


def test_the_error_names_the_place() -> None:
    with pytest.raises(ArgumentsError) as caught:
        taking(Order).check({"x": {"lines": [{"amount": "inf"}]}})
    assert str(caught.value) == '`x.lines[0].amount`: must be a finite number, got "inf"'


def test_words_and_defaults_may_look_like_infinity() -> None:
    assert taking(str).check({"x": "nan"}) == {"x": "nan"}
    assert taking(str | float).check({"x": "inf"}) == {"x": "inf"}
    assert taking(list[str]).check({"x": ["Nan", "Infinity", "1e999"]}) == {"x": ["Nan", "Infinity", "1e999"]}
    assert taking(Money).check({"x": {"amount": 1}})["x"].limit == float("inf")
    assert taking(Money).check({"x": {"amount": 1, "currency": "nan"}})["x"].currency == "nan"
    assert taking(Literal["nan", "b"]).check({"x": "nan"}) == {"x": "nan"}
    assert taking(int).check({"x": 10**400}) == {"x": 10**400}


def test_a_document_in_a_string_has_no_infinite_numbers() -> None:
    made = taking(pydantic.Json[dict[str, float]])
    assert made.check({"x": '{"a": 1.5}'}) == {"x": {"a": 1.5}}
    for text in ('{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": "inf"}'):
        with pytest.raises(ArgumentsError):
            made.check({"x": text})
    assert taking(str).check({"x": "[inf]"}) == {"x": "[inf]"}


class Physics(pydantic.BaseModel):
    model_config = ConfigDict(allow_inf_nan=True)
    energy: float


def test_infinity_can_be_allowed() -> None:
    assert taking(Annotated[float, Field(allow_inf_nan=True)]).check({"x": "inf"}) == {"x": float("inf")}
    assert taking(Physics).check({"x": {"energy": "-inf"}})["x"].energy == float("-inf")


def test_numbers_without_a_type_are_finite_too() -> None:
    for made in (taking(Any), Tool.from_schema("f", "", {"type": "object"}),
                 Tool.from_schema("f", "", {"properties": {"x": {"type": ["number", "array"]}}})):  # fmt: skip
        for value in (float("nan"), [1, float("inf")]):
            with pytest.raises(ArgumentsError, match="finite"):
                made.check({"x": value})


@both_modes
@pytest.mark.parametrize("amount", ["nan", "1e999", 10**400])
def test_an_approval_cannot_be_passed_with_a_number_that_is_not_one(amount: Any, mode: str) -> None:
    moved: list[Any] = []

    @tool(approval=lambda arguments: arguments["money"].amount > 100)
    def transfer(money: Money) -> str:
        """Move money."""
        moved.append(money)
        return "ok"

    script = Scripted([Reply(call("transfer", {"money": {"amount": amount}})), "Sorry."])
    agent = penstock.Agent(penstock.Model(NAMES["openai-chat"], via=script), tools=[transfer])
    ended = agent.run("Go.") if mode == "sync" else asyncio.run(agent.arun("Go."))
    assert (moved, ended.reason) == ([], "answered")
    [refused] = ended.messages[2].results
    assert refused.is_error
    assert "`money.amount`: must be a finite number" in refused.text


# -- declared schemas --------------------------------------------------------------------------------------------------


def problems(schema: Any, arguments: dict[str, Any]) -> str:
    try:
        assert Tool.from_schema("f", "", schema).check(arguments) == arguments
    except ArgumentsError as error:
        return str(error)
    return ""


X = {"x": {"type": "object", "properties": {"q": {}}, "additionalProperties": False}}
KEYWORDS: list[tuple[Any, dict[str, Any], str]] = [
    ({"properties": {"x": {"pattern": "^[A-Z]"}}}, {"x": "a"}, '`x`: must match the pattern ^[A-Z], got "a"'),
    ({"properties": {"x": {"pattern": "^[A-Z]"}}}, {"x": "Ab"}, ""),
    ({"properties": {"x": {"format": "email"}}}, {"x": "me"}, '`x`: must be in the format email, got "me"'),
    ({"properties": {"x": {"format": "date"}}}, {"x": "31.1.2026"}, '`x`: must be in the format date, got "31.1.2026"'),
    ({"properties": {"x": {"format": "date-time"}}}, {"x": "2026-01-31T12:00:00"}, ""),
    ({"properties": {"x": {"format": "date-time"}}}, {"x": "2026-01-31T12:00:00Z"}, ""),
    ({"properties": {"x": {"format": "date-time"}}}, {"x": "noon"}, '`x`: must be in the format date-time, got "noon"'),
    ({"properties": {"x": {"format": "time"}}}, {"x": "25:00"}, '`x`: must be in the format time, got "25:00"'),
    ({"properties": {"x": {"format": "uuid"}}}, {"x": "1"}, '`x`: must be in the format uuid, got "1"'),
    ({"properties": {"x": {"format": "int32"}}}, {"x": 3}, ""),
    ({"properties": {"x": {"not": {"const": 3}}}}, {"x": 3}, '`x`: must not match {"const": 3}, got 3'),
    ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": "b"}, '`n_a`: expected an integer, got "b"'),
    ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, {"m": 1},
     "`m`: unknown field; there are no fields here"),
    ({"additionalProperties": False}, {"m": 1}, "`m`: unknown field; there are no fields here"),
    ({"properties": X}, {"x": {"z": 1}}, "`x.z`: unknown field; the fields are: `q`"),
    ({"properties": {"y": {"$ref": "#/$defs/x"}}, "$defs": X}, {"y": {"z": 1}},
     "`y.z`: unknown field; the fields are: `q`"),
    ({"properties": {"x": {"multipleOf": 5}}}, {"x": 7}, "`x`: must be a multiple of 5, got 7"),
    ({"properties": {"x": {"uniqueItems": True}}}, {"x": [1, 1]}, "`x`: must not have equal items, got [1, 1]"),
    ({"properties": {"x": {"minimum": 3, "exclusiveMinimum": True}}}, {"x": 3}, "`x`: must be greater than 3, got 3"),
    ({"properties": {"x": {"items": [{"type": "string"}], "additionalItems": False}}}, {"x": ["a", 1]},
     "`x[1]`: must not be given, got 1"),
    ({"properties": {"x": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}, {"x": []},
     "`x`: expected a string or an integer, got []"),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, "`b`: missing"),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "`b`: missing"),
    ({"properties": {"x": {"type": "STRING", "enum": ["a"], "nullable": True}}}, {"x": None}, ""),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"x": {"type": "string"}}}, {"x": 1},
     "`x`: expected a string, got 1"),
    # Malformed keywords accept every value, the others are checked.
    ({"properties": {"x": {"pattern": "(["}, "y": {"type": "string"}}}, {"x": "a", "y": 1},
     "`y`: expected a string, got 1"),
    ({"properties": {"x": {"type": "string", "required": True}}}, {"x": 1}, "`x`: expected a string, got 1"),
    ({"properties": {"x": {"$ref": "file:///etc/passwd"}, "y": {"$ref": "#/none"}}}, {"x": 1, "y": 2}, ""),
]  # fmt: skip


@each(("schema", "arguments", "message"), KEYWORDS, ids=range(len(KEYWORDS)))
def test_every_keyword_is_checked(schema: Any, arguments: dict[str, Any], message: str) -> None:
    assert problems(schema, arguments) == message


TREE = {"type": "object", "properties": {"c": {"$ref": "#"}}, "additionalProperties": False}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"bad": 1}
    for _ in range(depth):
        value = {"c": value}
    return value


@pytest.mark.parametrize("depth", [3, 99, 101, 300, 600, 20_000])
def test_values_are_refused_however_deep_the_error_is(depth: int) -> None:
    """Also in a thread, which may have a small stack."""
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(problems(TREE, nested(depth))))
    thread.start()
    thread.join()
    assert ("unknown field" if depth < 500 else "nested deeper") in texts[0]


def test_schemas_that_refer_to_one_another_do_not_exhaust_the_stack() -> None:
    chain: dict[str, Any] = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}]} for at in range(150)}
    schema = {"properties": {"c": {"$ref": "#/$defs/d0"}}, "$defs": {**chain, "d150": TREE | {"properties": {
        "c": {"$ref": "#/$defs/d0"}}}}}  # fmt: skip
    assert "unknown field" in problems(schema, nested(2))
    assert "nested deeper" in problems(schema, nested(100))
    longer = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(5_000)}
    with pytest.raises(UsageError, match="tool 'f': the schema is nested too deeply"):
        Tool.from_schema("f", "", {"properties": {"c": {"$ref": "#/$defs/d0"}}, "$defs": longer})


def test_a_pattern_takes_bounded_time() -> None:
    began = time.process_time()
    for pattern in ("^(a+)+$", "^(a|a)*$", r"^(a|a)*\1$", "^(?!b)(a+)+$"):
        assert problems({"properties": {"x": {"pattern": pattern}}}, {"x": "a" * 5_000 + "!"})
    assert time.process_time() - began < 10


def test_a_declared_tool_can_be_copied_and_pickled() -> None:
    made = Tool.from_schema("f", "", {"properties": {"x": {"type": "string"}}})
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other.check({"x": "a"}) == {"x": "a"}
        with pytest.raises(ArgumentsError, match="expected a string"):
            other.check({"x": 1})


def test_values_that_are_not_json_are_refused() -> None:
    assert "cannot be read" in problems({"properties": {"x": {"type": "object"}}}, {"x": msgspec.UNSET})
