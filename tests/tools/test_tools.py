"""Tools: what can be one, their options, declarations and context."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import json
import subprocess
import sys
import types
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, NamedTuple, assert_type

import anthropic
import msgspec
import pytest

import penstock
from penstock import (
    ArgumentsError,
    Context,
    Finish,
    PartialJSON,
    Rescue,
    StreamingXMLParser,
    Text,
    TextCalls,
    TextParser,
    Tool,
    UsageError,
    as_tool,
    tool,
)
from penstock.declarations import read_declarations, tool_names
from penstock.messages import user
from penstock.testing import Scripted
from penstock.tools.tool_table import as_tools, tool_table
from tests.tool_types import PARAMETERS, Json, Person, google, taking


@tool
def weather(city: str, days: int = 1) -> dict[str, int]:
    """Look up the weather."""
    return {city: days}


@tool(read_only=True, timeout=10)
async def rates(pair: str) -> float:
    """Look up exchange rates."""
    return 1.5


def test_a_decorated_function_can_still_be_called() -> None:
    assert_type(weather("Rome", days=2), dict[str, int])
    assert weather("Rome", days=2) == {"Rome": 2}
    assert asyncio.run(rates("EURUSD")) == 1.5
    assert (weather.__name__, weather.__doc__, weather.__module__) == ("weather", "Look up the weather.", __name__)
    assert str(inspect.signature(weather)) == "(city: 'str', days: 'int' = 1) -> 'dict[str, int]'"
    assert repr(weather) == "Tool('weather')"

    def function() -> None: ...

    function.cost = 3  # type: ignore[attr-defined]
    function.name = "other"  # type: ignore[attr-defined]
    made: Any = tool(function)
    assert (made.cost, made.name) == (3, "function")


def test_async_functions_and_generators_are_recognised() -> None:
    def plain() -> None: ...
    async def coroutine() -> None: ...
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    class Callable:
        async def __call__(self) -> None: ...

    kinds = {
        plain: (False, False),
        coroutine: (True, False),
        generator: (False, True),
        async_generator: (True, True),
        functools.partial(coroutine): (True, False),
        Callable(): (True, False),
    }
    for function, kind in kinds.items():
        made = as_tool(function)
        assert (made.is_async, made.is_generator) == kind
        assert not made.is_deferred


def test_options_have_defaults_and_are_stored() -> None:
    names = ("read_only", "start", "approval", "timeout", "retries", "parallel", "strict")
    assert [getattr(weather, name) for name in names] == [False, None, None, None, 3, None, None]

    def risky(arguments: Json) -> bool:
        return bool(arguments["days"] > 3)

    @tool(
        name="forecast", description="Foretell.", read_only=True, start="call", approval=risky, timeout=1.5, retries=0,
        parallel=False, strict=False,
    )  # fmt: skip
    def function(days: int) -> int:
        """Not this."""
        return days

    assert (function.name, function.description) == ("forecast", "Foretell.")
    assert [getattr(function, name) for name in names] == [True, "call", risky, 1.5, 0, False, False]
    assert function(3) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "early"}, "start must be 'closed', 'call' or 'turn', not 'early'"),
        ({"start": "closed"}, "read_only=True"),
        ({"timeout": 0}, "timeout must be a positive number of seconds or None, not 0"),
        ({"timeout": float("nan")}, "timeout must be .* not nan"),
        ({"retries": -1}, "retries must be a non-negative integer or None, not -1"),
        ({"name": ""}, "not a valid name"),
        ({"name": "two words"}, "not a valid name"),
        ({"name": "größe"}, "not a valid name"),
        ({"name": "n" * 129}, "not a valid name"),
    ],
)
def test_invalid_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tool(google, **options)


def test_unknown_options_are_refused() -> None:
    unfit: Any = tool
    for ask in (lambda: unfit(google, readonly=True), lambda: unfit(readonly=True), lambda: unfit(aproval=True)):
        with pytest.raises(UsageError, match=r"a tool has no option '\w+', did you mean '(read_only|approval)'"):
            ask()


def test_a_bound_method_is_a_tool_and_an_unbound_one_is_not() -> None:
    class Shop:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        @tool(read_only=True)
        def price(self, item: str, context: Context | None = None) -> int:
            """What it costs."""
            return self.factor * len(item)

        @classmethod
        @tool
        def count(cls, item: str) -> str:
            return cls.__name__ + item

        @staticmethod
        @tool
        def static(item: str) -> str:
            return item

        def plain(self, item: str) -> int:
            return self.factor

    shop = Shop(2)
    assert_type(shop.price("abc"), int)
    assert shop.price("abc") == 6
    assert Shop.price(shop, "abc") == 6
    assert shop.price.read_only
    assert list(shop.price.parameters["properties"]) == ["item"]
    assert shop.price.function(**shop.price.check({"item": "ab"})) == 4
    assert as_tool(shop.price).name == "price"
    assert as_tool(shop.plain).function(item="a") == 2
    assert as_tool(Shop.count).function(item="s") == "Shops"
    assert as_tool(Shop.static).function(item="s") == "s"
    with pytest.raises(UsageError, match=r"Shop\.price is an unbound method"):
        as_tool(Shop.price)


def test_any_callable_can_be_a_tool() -> None:
    class Search:
        """Search the web."""

        def __call__(self, query: str) -> str:
            return query

    class Named:
        def __init__(self, site: str) -> None: ...

        def __call__(self, query: str) -> str:
            """Search a site."""
            return query

    def scale(value: int, factor: int, secret: str = "") -> int:
        """Scale it."""
        return value * factor

    doubled = as_tool(functools.partial(scale, factor=2, secret="s"))
    assert (doubled.name, doubled.description, doubled.__doc__) == ("scale", "Scale it.", "Scale it.")
    assert list(doubled.parameters["properties"]) == ["value"], "arguments bound by a partial are not in the schema"
    assert doubled.function(**doubled.check({"value": 4})) == 8
    with pytest.raises(ArgumentsError):
        doubled.check({"value": 4, "secret": "mine"})
    assert list(as_tool(functools.partial(scale, 3)).parameters["properties"]) == ["factor", "secret"]

    for search in (as_tool(Search()), as_tool(Search)):
        assert (search.name, search.description) == ("Search", "Search the web.")
        assert search.function(query="q") == "q"
    assert as_tool(Named("x")).description == "Search a site."
    with pytest.raises(UsageError, match="Named cannot be created without arguments: pass an instance"):
        as_tool(Named)
    assert as_tool(weather) is weather
    assert as_tool(functools.lru_cache(scale)).function(value=1, factor=2) == 2
    assert as_tool(len, name="size").name == "size"

    @functools.wraps(scale)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return scale(*args, **kwargs)

    assert as_tool(wrapper).check({"value": "1", "factor": 2}) == {"value": 1, "factor": 2}
    assert as_tool(lambda city: city, name="echo").function(city="Rome") == "Rome"


def test_a_callable_object_that_is_falsy_can_be_a_tool() -> None:
    class Registry:
        def __len__(self) -> int:
            return 0

        def __call__(self, query: str) -> str:
            return query

    assert not as_tool(Registry()).is_deferred
    assert as_tool(OPENAI, Registry()).function(query="q") == "q"


def test_a_tool_does_not_keep_its_enclosing_scope_alive() -> None:
    class Large: ...

    def make() -> tuple[Tool[..., Any], weakref.ref[Large]]:
        large = Large()

        @tool
        def function(city: str) -> str:
            return city

        return function, weakref.ref(large)

    made, large = make()
    gc.collect()
    assert made("Rome") == "Rome"
    assert large() is None


@pytest.mark.parametrize("what", ["weather", 3, None, b"x", int, Person, lambda: None, classmethod(taking), json])
def test_an_object_that_is_not_a_tool_is_refused(what: Any) -> None:
    with pytest.raises(UsageError):
        as_tool(what)


OPENAI = {
    "type": "function",
    "function": {"name": "weather", "description": "Look.", "parameters": PARAMETERS, "strict": True},
}
RESPONSES = {"type": "function", "name": "weather", "description": "Look.", "parameters": PARAMETERS, "strict": True}
ANTHROPIC = {"name": "weather", "description": "Look.", "input_schema": PARAMETERS, "strict": True}


@pytest.mark.parametrize("declaration", [OPENAI, RESPONSES, ANTHROPIC])
def test_a_declaration_becomes_a_tool_with_its_function_or_deferred(declaration: Json) -> None:
    def function(context: Context, city: str) -> str:
        return city

    made = as_tool(declaration, function, read_only=True)
    assert (made.name, made.description, made.parameters, made.strict) == ("weather", "Look.", PARAMETERS, True)
    assert made.read_only
    assert made.function(**made.bind({"city": "Rome"}, Context(None))) == "Rome"
    assert not made.is_deferred

    deferred = as_tool(declaration)
    assert deferred.is_deferred
    assert deferred.check({"city": "Rome"}) == {"city": "Rome"}
    assert deferred.__doc__ == "Look."
    with pytest.raises(UsageError, match="has no function"):
        deferred.function(city="Rome")
    with pytest.raises(UsageError, match="has no function"):
        deferred(city="Rome")


def test_tools_of_sdks_are_accepted() -> None:
    @anthropic.beta_tool
    def lookup(city: str) -> str:
        """Look up.

        Args:
            city: Where.
        """
        return city

    made = as_tool(lookup)
    assert (made.name, made.description) == ("lookup", "Look up.")
    assert made.parameters["properties"]["city"]["description"] == "Where."
    assert made.function(**made.check({"city": "Rome"})) == "Rome"

    listed = types.SimpleNamespace(name="remote", description="Far away.", inputSchema={"type": "object"})
    assert as_tool(listed).is_deferred


def test_custom_and_hosted_tools_keep_their_declaration() -> None:
    custom = as_tool({"type": "custom", "custom": {"name": "shell"}}, lambda **given_values: given_values["input"])
    assert custom.declaration.is_custom
    assert custom.function(**custom.check({"input": "ls"})) == "ls"
    hosted = as_tool({"type": "web_search_20250305", "name": "web_search"})
    assert hosted.is_hosted
    assert as_tool({"google_search": {}}).is_hosted


def test_one_declaration_may_hold_several_tools() -> None:
    declaration = {"functionDeclarations": [{"name": "a"}, {"name": "b"}]}
    assert [made.name for made in as_tools([declaration, google])] == ["a", "b", "google"]
    with pytest.raises(UsageError, match="declares 2 tools"):
        as_tool(declaration)


def test_two_tools_with_one_name_are_refused() -> None:
    def lookup(city: str) -> None: ...

    assert list(tool_table([google, weather, OPENAI | {"function": {"name": "x"}}])) == ["google", "weather", "x"]
    assert tool_table(None) == {}
    with pytest.raises(UsageError) as caught:
        tool_table([weather, tool(lookup, name="weather")])
    assert str(caught.value).startswith("two tools have the name 'weather': ")
    assert f"{__name__}.weather" in str(caught.value)
    assert "lookup" in str(caught.value)
    with pytest.raises(UsageError, match="and the declaration of 'weather'"):
        tool_table([weather, OPENAI])
    hosted = {"type": "mcp", "server_label": "a"}
    assert len(tool_table([hosted, hosted | {"server_label": "b"}, weather])) == 3, (
        "hosted tools are not looked up by name"
    )
    for wrong in ("weather", weather, OPENAI):
        with pytest.raises(UsageError, match="tools must be a list of tools"):
            tool_table(wrong)  # type: ignore[arg-type]


def test_a_tool_is_accepted_as_a_declaration() -> None:
    [found] = read_declarations([weather])
    assert (found.name, found.description, found.parameters) == (weather.name, weather.description, weather.parameters)
    [deferred] = read_declarations([Tool.from_schema("f", "", {"type": "object"})])
    assert (deferred.name, deferred.description) == ("f", "")


# The context.


def note(n: int, ok: bool, tags: list[int] | None = None) -> str:
    """Take a note."""
    return f"{n} {ok} {tags}"


class Notes:
    def note(self, n: int, ok: bool, tags: list[int] | None = None) -> str:
        """Take a note."""
        return f"{n} {ok} {tags}"

    @tool
    def kept(self, n: int, ok: bool, tags: list[int] | None = None) -> str:
        """Keep a note."""
        return f"{n} {ok} {tags}"


class Taker:
    def __call__(self, n: int, ok: bool, tags: list[int] | None = None) -> str:
        """Take a note."""
        return f"{n} {ok} {tags}"


async def anote(n: int, ok: bool, tags: list[int] | None = None) -> str:
    """Take a note."""
    return f"{n} {ok} {tags}"


def titled(n: int, ok: bool, tags: list[int] | None = None) -> str:
    """Take a note."""
    return f"{n} {ok} {tags}"


titled.name = "an attribute"  # type: ignore[attr-defined]
FUNCTIONS: list[tuple[str, Any]] = [
    ("note", note), ("note", Notes().note), ("kept", Notes().kept), ("note", functools.partial(note)),
    ("Taker", Taker()), ("Taker", Taker), ("anote", anote), ("titled", titled), ("note", tool(note)),
    ("note", as_tool(note).declaration),
]  # fmt: skip
every_function = pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=range(len(FUNCTIONS)))
NOTED = {"n": 2, "ok": True, "tags": [1]}
XML = (
    '<function_calls><invoke name="NAME"><parameter name="n">2</parameter><parameter name="ok">true</parameter>'
    '<parameter name="tags">[1]</parameter></invoke></function_calls>'
)


@every_function
def test_a_function_is_a_tool_with_its_types_wherever_tools_are_taken(name: str, function: Any) -> None:
    text = XML.replace("NAME", name)
    parser = TextParser("xml", tools=[function])
    assert [call.arguments for call in penstock.extract(parser.feed(text) + parser.close())] == [NOTED]
    xml = StreamingXMLParser(tools=[function])
    assert [call.arguments for call in xml.feed(text)[1] + xml.close()[1]] == [NOTED]
    for stage in (TextCalls("xml", [function]), TextCalls(["hermes", "xml"], iter([function])), Rescue([function])):
        events = [event for chunk in (Text(0, text), Finish("stop")) for event in stage.feed(chunk)]
        assert [call.arguments for call in penstock.extract(events + stage.close())] == [NOTED]
    [system, _] = penstock.render([user("Hi")], [function], "hermes")
    assert '"integer"' in system.text
    assert name in system.text
    assert tool_names([function]) == (name,)
    penstock.Decoder("openai-chat", tools=[function])


@every_function
@pytest.mark.parametrize("calls", ["native", "xml"])
def test_a_function_is_declared_to_a_model_with_its_types(name: str, function: Any, calls: str) -> None:
    script = Scripted([XML.replace("NAME", name) if calls == "xml" else "Hi."])
    model = penstock.Model("openai-compatible:m", base_url="http://x.test/v1", api_key="k", via=script)
    turn = model.complete("Go.", [function], calls=calls)
    assert '\\"integer\\"' in json.dumps(script.requests[0].body) or '"integer"' in json.dumps(script.requests[0].body)
    assert [call.arguments for call in turn.tool_calls] == ([NOTED] if calls == "xml" else [])


def test_the_context_is_passed_and_not_in_the_schema() -> None:
    class Deps(NamedTuple):
        key: str

    def first(context: Context[Deps], city: str) -> str:
        return context.deps.key + city

    def last(city: str, *, context: Context[Deps] | None = None) -> str:
        return (context.deps.key if context else "") + city

    def middle(city: str, context: Annotated[Context, "not in the schema"], /, days: int = 1) -> str:
        return context.deps.key + city

    context = Context(Deps("k"), call_id="c1", tool="first", step=2)
    assert_type(context.deps, Deps)
    for function in (first, last, middle):
        made = tool(function)
        assert "context" not in made.parameters["properties"]
        assert made.parameters["required"] == ["city"]
        assert made.function(**made.bind({"city": "Rome"}, context)) == "kRome"
        with pytest.raises(ArgumentsError, match="`context`: unknown"):
            made.check({"city": "Rome", "context": 1})
    assert last("Rome") == "Rome"
    assert tool(google).bind({"city": "a"}, context) == {"city": "a"}


def test_a_model_cannot_pass_the_context() -> None:
    def function(context: Context, **rest: Any) -> None: ...

    with pytest.raises(ArgumentsError, match="`context`: unknown"):
        tool(function).check({"context": 1})


@pytest.mark.parametrize("fed", [b"{", None, 5])
def test_partial_json_accepts_only_text(fed: Any) -> None:
    with pytest.raises(UsageError, match=type(fed).__name__):
        PartialJSON().feed(fed)


def test_progress_is_reported_through_the_context() -> None:
    reports: list[Any] = []
    Context(None, report=reports.append).report(0.5)
    Context(None).report("unheard")
    assert reports == [0.5]


def test_pydantic_is_imported_with_the_first_tool() -> None:
    code = """
import sys
import penstock.tools.tool
heavy = {"pydantic", "docstring_parser", "asyncio"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
@penstock.tools.tool.tool
def nothing(anything):
    "Do nothing."
assert not heavy & set(sys.modules), heavy & set(sys.modules)
@penstock.tools.tool.tool
def weather(city: str):
    "Look up the weather."
assert "pydantic" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


DECLARATIONS: list[dict[str, Any]] = [
    {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True},
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}},
    {"type": "custom", "name": "f", "format": {"type": "text"}},
    {"type": "custom", "custom": {"name": "f"}},
    {"type": "custom", "custom": {"name": "f"}, "function": {"name": "g"}},
    {"type": "custom", "name": "f", "input_schema": {"type": "object"}},
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "web_search"},
    {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}},
    {"functionDeclarations": [{"name": "f"}, {"name": "g", "parametersJsonSchema": {"type": "object"}}]},
    {"name": "f", "function": {"name": "g"}},
    {"function": {"function": {"name": "g"}, "name": 1}},
    {"googleSearch": {}},
]


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=repr)
def test_a_dict_declares_what_any_mapping_does(declaration: dict[str, Any]) -> None:
    def as_mapping(value: Any) -> Any:
        return (
            types.MappingProxyType({key: as_mapping(one) for key, one in value.items()})
            if type(value) is dict
            else value
        )

    assert as_json(read_declarations([declaration])) == as_json(read_declarations([as_mapping(declaration)]))


def as_json(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=dict)


# -- tools that the model has to guess about ---------------------------------------------------------------------------


def unclear(function: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        penstock.tool(function, **options)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def untyped(x, y: int = 1, *, z=None):
    return x


def test_a_tool_without_type_hints_or_description_warns() -> None:
    def undescribed(x: int) -> int:
        return x

    def described(x, context: penstock.Context) -> int:
        """Described."""
        return x

    def clear(x: Any, context: penstock.Context) -> int:
        """Clear."""
        return x

    assert unclear(untyped) == [
        "the tool 'untyped' has no type hint for `x`, `z` and no description (a docstring): the model has to guess"
    ]
    assert unclear(untyped, description="Described.", name="f") == [
        "the tool 'f' has no type hint for `x`, `z`: the model has to guess"
    ]
    assert unclear(undescribed) == ["the tool 'undescribed' has no description (a docstring): the model has to guess"]
    assert unclear(described) == ["the tool 'described' has no type hint for `x`: the model has to guess"]
    assert unclear(clear) == []
    assert unclear(undescribed, vendor={"type": "bash_20250124", "name": "bash"}) == []


def test_the_warning_comes_once_per_function() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            penstock.tool(untyped)
    assert len(caught) == 1
