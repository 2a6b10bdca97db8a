"""Schemas of tools as they are declared to providers: what one provider refuses would make every request fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Agent, Model, Tool
from penstock.declarations import ToolDeclaration
from penstock.schemas import looks_around
from penstock.testing import Reply, Scripted, call
from penstock.wires.shared.encode_request.tool_schema import declared_schema

MODELS = (
    "openai:gpt-5", "openai-compatible:m", "vllm:m", "anthropic:claude-sonnet-5", "google:gemini-3-pro", "ollama:qwen3",
    "cohere:command-a", "bedrock:anthropic.claude-sonnet-4-5",
)  # fmt: skip

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
INLINE = {"type": "object", "properties": {"content": TEXT, "name": TEXT}, "required": ["content", "name"]}
LINKED = {"type": "object", "properties": {"url": TEXT, "name": TEXT}, "required": ["url", "name"]}

FOLDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing to fold": (
        {"type": "object", "properties": {"a": {"anyOf": [TEXT, NUMBER]}}},
        {"type": "object", "properties": {"a": {"anyOf": [TEXT, NUMBER]}}},
    ),
    "alternatives with fields of their own": (
        {"type": "object", "anyOf": [INLINE, LINKED]},
        {
            "type": "object",
            "properties": {"content": TEXT, "name": TEXT, "url": TEXT},
            "required": ["name"],
            "description": "At least one of these must be given: content; url.",
        },
    ),
    "alternatives that only require fields": (
        {
            "type": "object",
            "description": "What to check.",
            "properties": {"project": TEXT, "paths": TEXT, "scopes": TEXT},
            "required": ["project"],
            "oneOf": [{"required": ["paths"]}, {"required": ["scopes"]}],
        },
        {
            "type": "object",
            "description": "What to check. Exactly one of these must be given: paths; scopes.",
            "properties": {"project": TEXT, "paths": TEXT, "scopes": TEXT},
            "required": ["project"],
        },
    ),
    "kinds of one field": (
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                {"type": "object", "properties": {"kind": {"const": "b"}, "n": NUMBER}, "required": ["kind"]},
            ]
        },
        {
            "type": "object",
            "properties": {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "n": NUMBER},
            "required": ["kind"],
        },
    ),
    "all of them": (
        {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": NUMBER}}], "$defs": {"A": LINKED}},
        {"type": "object", "properties": {"url": TEXT, "name": TEXT, "b": NUMBER}, "required": ["url", "name"]},
    ),
    "a reference": (
        {"$ref": "#/$defs/A", "$defs": {"A": INLINE}},
        INLINE,
    ),
    "a reference into an alternative": (
        {"anyOf": [{"type": "object", "properties": {"a": TEXT, "b": {"$ref": "#/anyOf/0/properties/a"}}}, {}]},
        {
            "type": "object",
            "properties": {"a": TEXT, "b": {"$ref": "#/$defs/root/anyOf/0/properties/a"}},
            "$defs": {
                "root": {
                    "anyOf": [
                        {
                            "type": "object",
                            "properties": {"a": TEXT, "b": {"$ref": "#/$defs/root/anyOf/0/properties/a"}},
                        },
                        {},
                    ]
                }
            },
        },
    ),
    "itself": ({"anyOf": [{"$ref": "#"}, INLINE]}, {"type": "object", "properties": {"content": TEXT, "name": TEXT}}),
    "no object": (
        {"type": "object", "properties": {"a": TEXT}, "anyOf": [{"type": "null"}, 5], "not": {"required": ["b"]}},
        {"type": "object", "properties": {"a": TEXT}},
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_a_schema_has_no_alternatives_at_its_root(name: str) -> None:
    schema, declared = FOLDED[name]
    assert declared_schema(ToolDeclaration("t", parameters=schema)) == declared


def attach() -> Tool[..., Any]:
    schema = {"type": "object", "anyOf": [INLINE, LINKED]}
    return Tool.from_schema("attach", "Attach a file.", schema, lambda **fields: f"attached {sorted(fields)}")


@pytest.mark.parametrize("model", MODELS)
def test_every_provider_accepts_a_tool_with_alternatives_and_they_are_validated_here(model: str) -> None:
    script = Scripted([
        Reply(call("attach", {"name": "a"})), Reply(call("attach", {"name": "a", "url": "b"})), "Done.",
    ], strict=True)  # fmt: skip
    result = Agent(Model(model, via=script, api_key="k"), [attach()]).run("Go.")
    first, second = (one for message in result.messages for one in message.results)
    assert (result.output, first.is_error, second.text) == ("Done.", True, "attached ['name', 'url']")
    assert "missing" in first.text


EMAIL = r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z.]+$"
SHARE = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "format": "email", "pattern": EMAIL, "description": "Whom."},
        "pattern": {"type": "array", "items": {"type": "string", "pattern": "[a-z]+", "maxLength": 65536}},
        "short": {"type": "string", "maxLength": 20},
    },
}


def declared(model: str) -> Any:
    """The schema of a tool in the first request for a model."""
    script = Scripted(["Done."], strict=True)
    tool = Tool.from_schema("share", "Share it.", SHARE, lambda **fields: "shared")
    Agent(Model(model, via=script, api_key="k"), [tool]).run("Go.")
    return script.requests[0].tools[0].parameters["properties"]


@pytest.mark.parametrize("model", ["openai:gpt-5", "openai-compatible:m"])
def test_patterns_that_look_around_are_not_sent_to_openai(model: str) -> None:
    fields = declared(model)
    assert fields["mail"] == {"type": "string", "format": "email", "description": f"Whom. (pattern: {EMAIL})"}
    assert {name: fields[name] for name in ("pattern", "short")} == {
        name: SHARE["properties"][name]  # type: ignore[index]
        for name in ("pattern", "short")
    }


def test_patterns_and_many_repetitions_are_not_sent_to_servers_with_grammars() -> None:
    fields = declared("vllm:m")
    assert "pattern" not in fields["mail"]
    assert fields["pattern"]["items"] == {"type": "string", "description": "(pattern: [a-z]+, maxLength: 65536)"}
    assert fields["short"] == {"type": "string", "maxLength": 20}


def test_other_providers_get_the_schema_as_it_is() -> None:
    assert declared("anthropic:claude-sonnet-5") == SHARE["properties"]


@pytest.mark.parametrize(
    ("pattern", "does"),
    [
        ("^(?!a)", True), ("(?=a)", True), ("(?<!a)b", True), ("(?<=a)b", True), (r"\\(?=a)", True), ("(?:a)", False),
        ("(?P<a>b)", False), (r"\(?=a", False), ("a", False), (5, False),
    ],
)  # fmt: skip
def test_which_patterns_look_around(pattern: Any, does: bool) -> None:
    assert looks_around(pattern) is does


@pytest.mark.parametrize("model", ["openai:gpt-5", "openai-compatible:m", "vllm:m"])
@pytest.mark.parametrize("more", [{}, {"additionalProperties": True}])
def test_an_output_has_no_pattern_that_looks_around_and_is_validated_here(model: str, more: dict[str, Any]) -> None:
    field = {"type": "string", "pattern": "^(?!x)", "maxLength": 5000}
    schema = {"type": "object", "properties": {"a": field}, "required": ["a"], **more}
    script = Scripted(['{"a": "x"}', '{"a": "y"}'], strict=True)
    result = Agent(Model(model, via=script, api_key="k"), output=schema).run("Go.")
    output: Any = result.output
    assert output == {"a": "y"}
    assert len(script.requests) == 2


def test_a_schema_with_many_references_to_the_same_is_folded_once() -> None:
    definitions = {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(60)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d60": INLINE}}
    assert declared_schema(ToolDeclaration("t", parameters=schema)) == INLINE


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [INLINE], "$defs": None},
        {"anyOf": [INLINE], "$defs": "a", "definitions": 1},
        {"anyOf": [{"$ref": "#"}, INLINE], "$defs": [INLINE]},
        {"anyOf": [{"$ref": "#/anyOf/²"}, INLINE]},
        {"anyOf": [{"$ref": f"#/anyOf/{'9' * 5000}"}, INLINE]},
        {"type": "OBJECT", "properties": {"content": {"type": "STRING", "maxLength": "9" * 5000}}},
        {"type": "OBJECT", "properties": {"content": {"type": "STRING", "maxLength": "٣"}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", MODELS)
def test_a_malformed_schema_is_declared_without_an_exception(model: str, schema: dict[str, Any]) -> None:
    server = Scripted(["Hi."])
    tool = ToolDeclaration("t", parameters=schema)
    assert Model(model, via=server, api_key="k").complete("Hi", tools=[tool]).text == "Hi."
    assert "content" in str(server.requests[0].body)


@pytest.mark.parametrize("model", MODELS)
def test_fields_of_any_name_can_be_used_with_every_provider(model: str) -> None:
    fields = {"$filter": TEXT, "page[size]": NUMBER, "top": NUMBER}
    schema = {"type": "object", "properties": fields, "required": ["$filter"], "additionalProperties": False}
    tool = Tool.from_schema("rows", "Find rows.", schema, lambda **fields: sorted(fields))
    script = Scripted([Reply(call("rows", {"$filter": "a", "top": 1})), "Done."], strict=True)
    result = Agent(Model(model, via=script, api_key="k"), [tool]).run("Go.")
    assert result.messages[2].results[0].text == '["$filter","top"]'
    declared = script.requests[0].tools[0].parameters
    assert {*declared["properties"]} | {name for name in fields if f'"{name}"' in declared.get("description", "")} == {
        *fields
    }


COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WHOLE = ["4", "4.0", "4e0", "40.00e-1", "-0.0", "9007199254740993"]
FRACTIONS = [
    "4.0000000000000000001e0",
    "40.00000000000000000001e-1",
    "0.99999999999999999999",
    "-4.0000000000000000001",
    "4000000000000000000001E-21",
]


@pytest.mark.parametrize("start", [None, "closed"])
@pytest.mark.parametrize("number", [*WHOLE, *FRACTIONS])
@pytest.mark.parametrize("model", ["openai:gpt-5", "anthropic:claude-sonnet-5", "ollama:qwen3"])
def test_a_number_that_is_not_an_integer_is_not_rounded_to_one(model: str, number: str, start: Any) -> None:
    """The float that is nearest to these fractions is an integer."""
    ran: list[int | float] = []
    count = Tool.from_schema("count", "Count.", COUNT, lambda n: ran.append(n), read_only=True, start=start)
    script = Scripted([Reply(call("count", f'{{"n": {number}}}')), "Done."], strict=True)
    result = Agent(Model(model, via=script, api_key="k"), [count]).run("Go.")
    [counted] = [one for message in result.messages for one in message.results]
    assert (ran, counted.is_error) == (([], True) if number in FRACTIONS else ([json.loads(number)], False))
    assert counted.text.startswith("`n`: expected an integer") == counted.is_error
