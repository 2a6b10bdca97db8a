"""What the prompt side of a dialect writes, its reader reads: nasty values, text around the calls, cuts anywhere."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dialects.parser import TextParser
from penstock.dialects.prompt import NO_PROMPT, find_prompt, prompts
from penstock.dialects.reading.schema import Tools
from penstock.dialects.registry import dialects, find_dialect
from penstock.events import StreamChunk, Text, ToolCall, ToolCallInvalid
from tests.texts import calls_of, parse

DIALECTS = sorted(prompts())
a_few = settings(max_examples=settings().max_examples // 2)  # for each dialect

# -- what the dialects cannot carry --------------------------------------------------------------------------------


class Limit(NamedTuple):
    """Strings that a dialect cannot carry: why, which they are, and one of them."""

    why: str
    pattern: str
    example: str


CLOSED = "a value ends at its closing tag, if what may come next follows"
QUOTED = "text ends at the quote token, which has no escape"


def tagged(prefix: str, block: str) -> Limit:
    """The limit of the dialects that have `<parameter …>` in `<invoke …>` in a block, all with a prefix."""
    after_call = rf"(<{prefix}invoke |</?{block}>)"
    pattern = (
        rf"</{prefix}parameter>\s*(<{prefix}parameter |</{prefix}invoke>|{after_call})|</{prefix}invoke>\s*{after_call}"
        rf"|<{prefix}parameter\s|</{block}>.*<{block}>"
    )
    return Limit(CLOSED, pattern, f"a</{prefix}parameter></{prefix}invoke>")


def keyed(block: str) -> Limit:
    """The limit of the dialects that have `<parameter=…>` in `<function=…>` in a block."""
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
    "qwen3_coder": [keyed("tool_call"), Limit("a line break at each side of a value is layout", r"\r\Z", "a\r")],
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
"""JSON and Python literals carry every string; raw values do not."""
TEXT_LIMITS = {
    "functionary_v32": Limit("its mark `>>>` counts where it begins first", r">\Z", "a >"),
    "harmony": Limit("the text may begin within a header", r"\A\s*to=", " to=g<|message|>"),
    "llama3_json": Limit("a semicolon stands between calls", r"\A\s*;\s*\Z", ";"),
    "react": Limit("its labels are words", r"(?m)^\s*(Thought|Action|Observation|Final Answer):", "Observation: a"),
}
"""Text that cannot stand before, between or after calls, besides the marks of the dialect itself and open code."""
TYPED_BY_SCHEMA = {
    "anthropic_legacy", "anthropic_xml", "cline_xml", "dots", "glm45", "hunyuan_v3", "minicpm5", "minimax_m2",
    "minimax_m3", "qwen3_coder", "seed_oss", "step3",
}  # fmt: skip
"""Where only the tool's schema says that 2 is a number."""
LINE_BY_LINE = {"cohere_r_plus", "gemma_tool_code", "md_json_fence", "react"}
"""Where a call begins on a new line and ends its last."""
WITH_IDS = {"cohere_action", "kimi_k2", "solar_open"}
"""Where the model's own id comes before the call has begun, and is kept."""


def carries(dialect: str, text: str) -> bool:
    return not any(re.search(limit.pattern, text, re.DOTALL) for limit in LIMITS.get(dialect, ()))


# -- tools whose arguments have all types, and names that are words of the dialects ---------------------------------

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
    return {*row.opening_marks(Tools(names)), *row.closes, *row.tokens, *(mark for pair in row.think for mark in pair)}


def markup(dialect: str) -> list[str]:
    """What the dialect writes around values: all of it, by lines, and by tags."""
    sample = find_prompt(dialect).calls([ToolCall("id0", "f", {"path": "@", "content": "@"}), ToolCall("id1", "f", {})])
    return [*sample.split("@"), *sample.splitlines(), *re.findall(r"</?[^<>@]*>|\[/?[A-Z_]+\]", sample)]


MARKS = sorted({mark for dialect in dialects() for mark in own_marks(dialect, ("f",))})
PIECES = [
    '"', "'", '"""', "\\", "\\n", "\\u0041", "\n", "\t", "\r\n", " ", "é", "日本", "🙂", "\u2028", "{", "}", "[", "]",
    "{}", "<", ">", "</", "&lt;", "&", "```", "`", "null", "None", "True", "2", "%s", "{name}", ":", ",", ";", "=",
    "(", ")", "]]>", "<![CDATA[", "</parameter>", "</invoke>", "<|message|>", '<|"|>', "Observation:", "\nObservation:",
]  # fmt: skip

# -- what they are called with -------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
texts = st.lists(st.sampled_from(PIECES) | st.sampled_from(MARKS) | words, max_size=4).map("".join)


@cache
def strings(dialect: str) -> st.SearchStrategy[str]:
    pieces = st.sampled_from(PIECES) | st.sampled_from(MARKS) | st.sampled_from(markup(dialect)) | words
    return st.lists(pieces, max_size=5).map("".join).filter(lambda text: carries(dialect, text))


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


class Written(NamedTuple):
    """Calls, those of a group written at once, and the texts before, between and after the groups."""

    tools: list[dict[str, Any]]
    groups: list[list[ToolCall]]
    texts: list[str]

    @property
    def calls(self) -> list[ToolCall]:
        return [call for group in self.groups for call in group]

    def text(self, dialect: str) -> str:
        """The text that all of it is in a dialect."""
        write = find_prompt(dialect).calls
        pairs = zip(self.groups, self.texts[1:], strict=True)
        return self.texts[0] + "".join(write(group) + text for group, text in pairs)

    def gaps(self) -> list[str]:
        found = [self.texts[0]]
        for group, text in zip(self.groups, self.texts[1:], strict=True):
            found += [""] * (len(group) - 1) + [text]
        return [plain(gap) for gap in found]


@st.composite
def examples(draw: st.DrawFn, dialect: str) -> Written:
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
    return Written([declaration(*pair) for pair in tools.items()], groups, placed(dialect, around))


def placed(dialect: str, around: list[str]) -> list[str]:
    """The texts such that calls may stand between them."""
    if dialect not in LINE_BY_LINE:
        return around
    return [around[0] and f"{around[0]}\n", *(f"\n{text}\n" for text in around[1:])]


def shapes_of(dialect: str) -> list[str]:
    return sorted(
        set(SHAPES) - ({"free"} if dialect == "minimax_m3" else set())
    )  # each leaf there needs a declared type


@cache
def texts_of(dialect: str, names: tuple[str, ...]) -> st.SearchStrategy[str]:
    marks = own_marks(dialect, names) | {"`"}
    pattern = TEXT_LIMITS[dialect].pattern if dialect in TEXT_LIMITS else r"(?!)"
    return texts.filter(lambda text: not any(mark in text for mark in marks) and not re.search(pattern, text))


# -- what comes out ------------------------------------------------------------------------------------------------


def gaps(events: list[StreamChunk]) -> list[str]:
    """The text before, between and after the calls."""
    found = [""]
    for event in events:
        match event:
            case Text():
                found[-1] += event.text
            case ToolCall():
                found.append("")
            case _:
                pass
    return [plain(gap) for gap in found]


def plain(gap: str) -> str:
    """White space alone may be layout between calls, and counts as nothing."""
    return "" if gap.isspace() else gap


def exact(value: Any) -> Any:
    """The value such that a flag is not equal to a number."""
    match value:
        case bool():
            return str(value)
        case list():
            return [exact(item) for item in value]
        case dict():
            return {key: exact(item) for key, item in value.items()}
        case _:
            return value


def is_read(dialect: str, example: Written) -> bool:
    events = parse(TextParser(dialect, example.tools), [example.text(dialect)])
    calls = [(call.name, call.arguments) for call in example.calls]
    return calls_of(events) == calls and trimmed(dialect, gaps(events)) == trimmed(dialect, example.gaps())


def trimmed(dialect: str, found: list[str]) -> list[str]:
    return [gap.strip() for gap in found] if dialect == "react" else found  # line breaks are part of its marks


def cut(text: str, seed: int) -> list[str]:
    """The text in pieces of a few characters; of one each if the seed is 0."""
    rng, at, pieces = random.Random(seed), 0, []
    while at < len(text):
        size = rng.randint(1, 9) if seed else 1
        pieces.append(text[at : at + size])
        at += size
    return pieces


# -- tests ---------------------------------------------------------------------------------------------------------


def test_every_dialect_is_written_or_says_why_not() -> None:
    assert set(DIALECTS) | set(NO_PROMPT) == set(dialects())


@pytest.mark.parametrize("dialect", DIALECTS)
@a_few
@given(data=st.data())
def test_what_is_written_is_read(dialect: str, data: st.DataObject) -> None:
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


@pytest.mark.parametrize(("dialect", "limit"), [(dialect, limit) for dialect in LIMITS for limit in LIMITS[dialect]])
def test_a_string_beyond_the_limits_is_not_carried(dialect: str, limit: Limit) -> None:
    assert re.search(limit.pattern, limit.example)
    tools = [declaration("f", "texts")]
    assert is_read(dialect, Written(tools, [[ToolCall("call00000", "f", {"path": "a"})]], ["", ""]))
    assert not is_read(dialect, Written(tools, [[ToolCall("call00000", "f", {"path": limit.example})]], ["", ""]))


@pytest.mark.parametrize("dialect", TEXT_LIMITS)
def test_a_text_beyond_the_limits_is_not_carried(dialect: str) -> None:
    limit, groups = TEXT_LIMITS[dialect], [[ToolCall("call00000", "f", {})], [ToolCall("call00001", "f", {})]]
    assert re.search(limit.pattern, limit.example)
    tools = [declaration("f", "nothing")]
    assert is_read(dialect, Written(tools, groups, placed(dialect, ["a", "b", "c"])))
    assert not is_read(dialect, Written(tools, groups, placed(dialect, [limit.example] * 3)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_number_is_one_without_a_schema_unless_the_dialect_has_no_types(dialect: str) -> None:
    text = find_prompt(dialect).calls([ToolCall("call00000", "f", {"value": 2})])
    [(_, found)] = calls_of(parse(TextParser(dialect, ["f"]), [text]))
    assert found == {"value": "2" if dialect in TYPED_BY_SCHEMA else 2}
