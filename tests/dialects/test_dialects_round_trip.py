"""Round trip: a dialect parses the calls that its prompt writes, with any values, text around them, and cuts."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import StreamChunk, Text, TextParser, ToolCall, ToolCallInvalid, ToolCallStart
from penstock.dialects.dialect import END_TOKENS
from penstock.dialects.prompt import NO_PROMPT, find_prompt, prompts
from penstock.dialects.registry import dialects, find_dialect
from tests.budget import share
from tests.cases import each
from tests.texts import calls_of, parse

DIALECTS = sorted(prompts())
a_few = settings(max_examples=share(50, 8))  # for each dialect

# -- limits of the dialects ----------------------------------------------------------------------------------------


class Limit(NamedTuple):
    """Strings that a dialect cannot represent: the reason, a pattern, and an example."""

    why: str
    pattern: str
    example: str


CLOSED = "a value ends at its closing tag if a tag follows that may follow it"
QUOTED = "text ends at the quote token, which has no escape"


def tagged(prefix: str, block: str) -> Limit:
    """Returns the limit of dialects with `<parameter …>` in `<invoke …>` in a block, all with a prefix."""
    after_call = rf"(<{prefix}invoke |</?{block}>)"
    pattern = (
        rf"</{prefix}parameter>\s*(<{prefix}parameter |</{prefix}invoke>|{after_call})|</{prefix}invoke>\s*{after_call}"
        rf"|<{prefix}parameter\s|</{block}>.*<{block}>"
    )
    return Limit(CLOSED, pattern, f"a</{prefix}parameter></{prefix}invoke>")


def keyed(block: str) -> Limit:
    """Returns the limit of dialects with `<parameter=…>` in `<function=…>` in a block."""
    after_call = rf"(<function=|</?{block}>)"
    pattern = rf"</parameter>\s*(<parameter=|</function>|{after_call})|</function>\s*{after_call}|<parameter=\w+>"
    return Limit(CLOSED, pattern, "a</parameter></function>")


ELEMENTS = Limit(CLOSED, r"</\w+>\s*(<|\Z)", "a</path>")
LIMITS: dict[str, list[Limit]] = {
    "anthropic_legacy": [ELEMENTS],
    "anthropic_xml": [tagged("", "function_calls")],
    "cline_xml": [ELEMENTS, Limit("white space around a value is layout", r"\A\s|\s\Z", " a ")],
    "deepseek_dsml": [tagged("｜DSML｜", "｜DSML｜function_calls")],
    "deepseek_dsml_v4": [tagged("｜DSML｜", "｜DSML｜tool_calls")],
    "dots": [tagged("", "dots_function_call")],
    "functiongemma": [Limit(QUOTED, "<escape>", "<escape>")],
    "gemma4": [Limit(QUOTED, r'<\|"\|>', '<|"|>')],
    "glm45": [
        Limit(
            CLOSED,
            r"</arg_value>\s*(<arg_key>|</?tool_call>)|</tool_call>\s*<tool_call>|<arg_key>\s*\w+\s*</arg_key>",
            "a</arg_value></tool_call>",
        )
    ],
    "hunyuan_v3": [
        Limit(
            CLOSED,
            r"</arg_value(:opensource)?>\s*(<arg_key|</?tool_call)|</tool_call(:opensource)?>\s*</?tool_call"
            r"|<arg_key(:opensource)?>\s*\w+\s*</arg_key",
            "a</arg_value></tool_call>",
        )
    ],
    "kimi_k3": [
        Limit(
            CLOSED,
            r"<\|close\|>argument<\|sep\|>\s*(<\|open\|>argument |<\|close\|>call)",
            "a<|close|>argument<|sep|><|close|>call<|sep|>",
        )
    ],
    "minicpm5": [Limit(CLOSED, r"\]\]>\s*</(param|function)>", "a\n]]></param>")],
    "minimax_m2": [tagged("", "minimax:tool_call")],
    "minimax_m3": [Limit(CLOSED, r"\]<\]minimax\[>\[</\w+>\s*(\]<\]minimax\[>\[|\Z)", "a]<]minimax[>[</path>")],
    "muse_glimmer": [tagged("atem:", "atem:function_calls")],
    "qwen3_coder": [keyed("tool_call"), Limit("a line break at each end of a value is layout", r"\r\Z", "a\r")],
    "seed_oss": [keyed("seed:tool_call")],
    "step3": [
        Limit(
            CLOSED,
            r"</steptml:(parameter|invoke)>\s*(</?steptml:(parameter |invoke)|(function)?<｜tool_)"
            r"|<steptml:parameter\s",
            "a</steptml:parameter></steptml:invoke>",
        )
    ],
}
"""JSON and Python literals can represent every string; raw values cannot."""
TEXT_LIMITS = {
    "functionary_v32": Limit("its mark `>>>` begins at the first `>`", r">\Z", "a >"),
    "harmony": Limit("the text may begin inside a header", r"\A\s*to=", " to=g<|message|>"),
    "llama3_json": Limit("a semicolon separates calls", r"\A\s*;\s*\Z", ";"),
    "react": Limit("its labels are words", r"(?m)^\s*(Thought|Action|Observation|Final Answer):", "Observation: a"),
}
"""Text that cannot come before, between or after calls, besides the dialect's own marks and open code."""
TYPED_BY_SCHEMA = {
    "anthropic_legacy", "anthropic_xml", "cline_xml", "dots", "glm45", "hunyuan_v3", "minicpm5", "minimax_m2",
    "minimax_m3", "qwen3_coder", "seed_oss", "step3",
}  # fmt: skip
"""Dialects in which only the schema of the tool says that 2 is a number."""
LINE_BY_LINE = {"cohere_r_plus", "gemma_tool_code", "md_json_fence", "react"}
"""Dialects in which a call occupies whole lines."""
WITH_IDS = {"cohere_action", "kimi_k2", "solar_open"}
"""Dialects in which the model writes the id of a call before its name, so that it is kept."""


def can_represent(dialect: str, text: str) -> bool:
    return not any(re.search(limit.pattern, text, re.DOTALL) for limit in LIMITS.get(dialect, ()))


# -- tools with arguments of all types, and with names that occur in dialects ---------------------------------------

STRING, INTEGER, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
POINT = {"type": "object", "properties": {"x": NUMBER, "label": STRING}}
LIST, POINTS = {"type": "array", "items": STRING}, {"type": "array", "items": POINT}
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "texts": {"path": STRING, "content": STRING, "name": STRING, "from": {"type": ["string", "null"]}},
    "scalars": {"id": INTEGER, "value": NUMBER, "string": FLAG, "key": {"type": ["integer", "null"]}},
    "nested": {"arguments": LIST, "points": POINTS, "item": POINT},
    "free": {"parameters": {"type": "object"}, "input": {"type": "array"}},
    "nothing": {},
}
NAMES = ["get_weather", "f", "function", "tool_call", "invoke", "item", "print", "_x1", "Öl", "search2"]


def declaration(name: str, shape: str) -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "properties": SHAPES[shape]}}


def own_marks(dialect: str, names: tuple[str, ...]) -> set[str]:
    _, row = find_dialect(dialect)
    return {*row.opening_marks(names), *row.closes, *row.tokens, *(mark for pair in row.think for mark in pair)}


def markup(dialect: str) -> list[str]:
    """Returns what the dialect writes around values: in whole, by line, and by tag."""
    sample = find_prompt(dialect).calls([ToolCall("id0", "f", {"path": "@", "content": "@"}), ToolCall("id1", "f", {})])
    return [*sample.split("@"), *sample.splitlines(), *re.findall(r"</?[^<>@]*>|\[/?[A-Z_]+\]", sample)]


MARKS = sorted({mark for dialect in dialects() for mark in own_marks(dialect, ("f",))})
PIECES = [
    '"', "'", '"""', "\\", "\\n", "\\u0041", "\n", "\t", "\r\n", " ", "é", "日本", "🙂", "\u2028", "{", "}", "[", "]",
    "{}", "<", ">", "</", "&lt;", "&", "```", "`", "null", "None", "True", "2", "%s", "{name}", ":", ",", ";", "=",
    "(", ")", "]]>", "<![CDATA[", "</parameter>", "</invoke>", "<|message|>", '<|"|>', "Observation:", "\nObservation:",
]  # fmt: skip

# -- arguments -----------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
texts = st.lists(st.sampled_from(PIECES) | st.sampled_from(MARKS) | words, max_size=4).map("".join)


@cache
def strings(dialect: str) -> st.SearchStrategy[str]:
    pieces = st.sampled_from(PIECES) | st.sampled_from(MARKS) | st.sampled_from(markup(dialect)) | words
    return st.lists(pieces, max_size=5).map("".join).filter(lambda text: can_represent(dialect, text))


def values(dialect: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    match schema:
        case {"type": ["string", "null"]}:
            return st.none() | strings(dialect).filter(lambda text: text.strip() not in ("null", "None"))
        case {"type": ["integer", "null"]}:
            return st.none() | st.integers(-9, 9)
        case {"type": "string"}:
            return strings(dialect)
        case {"type": "integer"}:
            return st.integers(-(2**63), 2**63 - 1)
        case {"type": "number"}:
            return st.floats(allow_nan=False, allow_infinity=False) | st.integers(-99, 99)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "array", "items": items}:
            return st.lists(values(dialect, items), max_size=3)
        case {"type": "object", "properties": properties}:
            inner = {key: values(dialect, schema) for key, schema in properties.items()}
            return st.fixed_dictionaries({}, optional=inner)
        case {"type": "array"}:
            return st.lists(anything(dialect), max_size=3)
        case _:
            return st.dictionaries(keys(dialect), anything(dialect), max_size=3)


def anything(dialect: str) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | strings(dialect),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys(dialect), inner, max_size=3),
        max_leaves=5,
    )


def keys(dialect: str) -> st.SearchStrategy[str]:
    return strings(dialect).filter(bool) if "gemma" in dialect else strings(dialect)  # a bare key is not empty


@cache
def arguments(dialect: str, shape: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: values(dialect, schema) for key, schema in SHAPES[shape].items()})


class Example(NamedTuple):
    """Groups of calls, and the texts before, between and after the groups. A group is written as one block."""

    tools: list[dict[str, Any]]
    groups: list[list[ToolCall]]
    texts: list[str]

    @property
    def calls(self) -> list[ToolCall]:
        return [call for group in self.groups for call in group]

    def text(self, dialect: str) -> str:
        """Returns the example in a dialect."""
        write = find_prompt(dialect).calls
        pairs = zip(self.groups, self.texts[1:], strict=True)
        return self.texts[0] + "".join(write(group) + text for group, text in pairs)

    def gaps(self) -> list[str]:
        gaps = [self.texts[0]]
        for group, text in zip(self.groups, self.texts[1:], strict=True):
            gaps += [""] * (len(group) - 1) + [text]
        return [without_layout(gap) for gap in gaps]


@st.composite
def examples(draw: st.DrawFn, dialect: str) -> Example:
    shapes = draw(st.lists(st.sampled_from(shapes_of(dialect)), min_size=1, max_size=3, unique=True))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=len(shapes), max_size=len(shapes), unique=True))
    tools = dict(zip(names, shapes, strict=True))
    groups: list[list[ToolCall]] = []
    for number, name in enumerate(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))):
        id = f"functions.{name}:{number}" if dialect == "kimi_k2" else f"call0000{number}"
        call = ToolCall(id, name, draw(arguments(dialect, tools[name])))
        is_joined = draw(st.booleans())
        if groups and is_joined:
            groups[-1].append(call)
        else:
            groups.append([call])
    around = [draw(texts_of(dialect, tuple(names))) for _ in range(len(groups) + 1)]
    return Example([declaration(*pair) for pair in tools.items()], groups, placed(dialect, around))


def placed(dialect: str, around: list[str]) -> list[str]:
    """Returns the texts with the line breaks that calls between them need."""
    if dialect not in LINE_BY_LINE:
        return around
    return [around[0] and f"{around[0]}\n", *(f"\n{text}\n" for text in around[1:])]


def shapes_of(dialect: str) -> list[str]:
    return sorted(
        set(SHAPES) - ({"free"} if dialect == "minimax_m3" else set())
    )  # each leaf there needs a declared type


@cache
def texts_of(dialect: str, names: tuple[str, ...]) -> st.SearchStrategy[str]:
    marks = own_marks(dialect, names) | {"`", *END_TOKENS}
    marks |= {mark for mark in markup(dialect) if mark.startswith("</")}  # such a text makes calls ambiguous
    pattern = TEXT_LIMITS[dialect].pattern if dialect in TEXT_LIMITS else r"(?!)"
    return texts.filter(lambda text: not any(mark in text for mark in marks) and not re.search(pattern, text))


# -- comparison ----------------------------------------------------------------------------------------------------


def gaps(events: list[StreamChunk]) -> list[str]:
    """Returns the text before, between and after the calls."""
    texts = [""]
    for event in events:
        match event:
            case Text():
                texts[-1] += event.text
            case ToolCallStart():
                texts.append("")
            case _:
                pass
    return [without_layout(gap) for gap in texts]


def without_layout(gap: str) -> str:
    """Returns "" for white space, which may be layout between calls."""
    return "" if gap.isspace() else gap


def exact(value: Any) -> Any:
    """Returns the value with booleans as strings, so that they are not equal to numbers."""
    match value:
        case bool():
            return str(value)
        case list():
            return [exact(item) for item in value]
        case dict():
            return {key: exact(item) for key, item in value.items()}
        case _:
            return value


def is_read(dialect: str, example: Example) -> bool:
    events = parse(TextParser(dialect, example.tools), [example.text(dialect)])
    calls = [(call.name, call.arguments) for call in example.calls]
    return calls_of(events) == calls and trimmed(dialect, gaps(events)) == trimmed(dialect, example.gaps())


def trimmed(dialect: str, texts: list[str]) -> list[str]:
    return [gap.strip() for gap in texts] if dialect == "react" else texts  # line breaks are part of its marks


def cut(text: str, seed: int) -> list[str]:
    """Returns the text in pieces of a few characters; of one character if the seed is 0."""
    rng, at, pieces = random.Random(seed), 0, []
    while at < len(text):
        size = rng.randint(1, 9) if seed else 1
        pieces.append(text[at : at + size])
        at += size
    return pieces


# -- tests ---------------------------------------------------------------------------------------------------------


def test_every_dialect_has_a_prompt_or_a_reason_for_having_none() -> None:
    assert set(DIALECTS) | set(NO_PROMPT) == set(dialects())


@each("dialect", DIALECTS)
@a_few
@given(data=st.data())
def test_a_dialect_parses_what_its_prompt_writes(dialect: str, data: st.DataObject) -> None:
    example = data.draw(examples(dialect))
    text = example.text(dialect)
    whole = parse(TextParser(dialect, example.tools), [text])
    assert not [event for event in whole if isinstance(event, ToolCallInvalid)], text
    assert exact(calls_of(whole)) == exact([(call.name, call.arguments) for call in example.calls]), text
    if dialect in WITH_IDS:
        assert [event.id for event in whole if isinstance(event, ToolCall)] == [call.id for call in example.calls]
    assert trimmed(dialect, gaps(whole)) == trimmed(dialect, example.gaps()), text
    pieces = cut(text, data.draw(st.integers(0, 3)))
    assert parse(TextParser(dialect, example.tools), pieces) == whole, pieces


@each(("dialect", "limit"), [(dialect, limit) for dialect in LIMITS for limit in LIMITS[dialect]])
def test_a_string_beyond_the_limits_does_not_round_trip(dialect: str, limit: Limit) -> None:
    assert re.search(limit.pattern, limit.example)
    tools = [declaration("f", "texts")]
    assert is_read(dialect, Example(tools, [[ToolCall("call00000", "f", {"path": "a"})]], ["", ""]))
    assert not is_read(dialect, Example(tools, [[ToolCall("call00000", "f", {"path": limit.example})]], ["", ""]))


@each("dialect", TEXT_LIMITS)
def test_a_text_beyond_the_limits_does_not_round_trip(dialect: str) -> None:
    limit, groups = TEXT_LIMITS[dialect], [[ToolCall("call00000", "f", {})], [ToolCall("call00001", "f", {})]]
    assert re.search(limit.pattern, limit.example)
    tools = [declaration("f", "nothing")]
    assert is_read(dialect, Example(tools, groups, placed(dialect, ["a", "b", "c"])))
    assert not is_read(dialect, Example(tools, groups, placed(dialect, [limit.example] * 3)))


@each("dialect", DIALECTS)
def test_a_number_without_a_schema_stays_a_number_if_the_dialect_has_types(dialect: str) -> None:
    text = find_prompt(dialect).calls([ToolCall("call00000", "f", {"value": 2})])
    [(_, arguments)] = calls_of(parse(TextParser(dialect, ["f"]), [text]))
    assert arguments == {"value": "2" if dialect in TYPED_BY_SCHEMA else 2}
