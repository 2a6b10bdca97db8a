"""Dialects that write a call as tags with names in them: `<invoke name="…"><parameter name="…">…`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from penstock.dialects.call import TextCall
from penstock.dialects.dialect import Block, Dialect
from penstock.dialects.objects_in_text import object_calls
from penstock.dialects.raw import Ends, json_or_text, raw_value
from penstock.dialects.schema import Schema, quote
from penstock.dialects.source import Mismatch, Reading, Source


class Tags(Struct, frozen=True):
    """The tags of a block of calls; those that have attributes up to these.

    `layout` are further marks that may stand around each call. Where `bare`, a call also counts if the tag that opens
    the block is missing.
    """

    opens: tuple[str, ...] = ("<function_calls>",)
    call: str = "<invoke "
    key: str = "<parameter "
    value_end: str = "</parameter>"
    call_end: str = "</invoke>"
    closes: tuple[str, ...] = ("</function_calls>",)
    layout: tuple[str, ...] = ()
    bare: bool = False

    def prefixed(self, prefix: str) -> Tags:
        """The same tags with a prefix on every tag name."""
        one = partial(re.sub, r"^(</?)", rf"\g<1>{prefix}")
        single = {field: one(getattr(self, field)) for field in ("call", "key", "value_end", "call_end")}
        opens, closes = tuple(map(one, self.opens)), tuple(map(one, self.closes))
        return msgspec.structs.replace(self, opens=opens, closes=closes, **single)

    @property
    def opening_marks(self) -> tuple[str, ...]:
        return (*self.opens, self.call) if self.bare else self.opens

    @property
    def after(self) -> tuple[str, ...]:
        """What can only follow a call: it ends one the end tag of which was left out."""
        return (self.call, *self.closes, *self.layout)

    @property
    def ends(self) -> Ends:
        """Where a value ends: at its own tag, or at the call's if that was left out."""
        nameless = self.key.rstrip() + ">"  # it breaks the call, but is no data
        return {self.value_end: (self.key, nameless, self.call_end, *self.after), self.call_end: self.after}


Parameter = Callable[[Source, TextCall, Tags], Reading[None]]
"""Reads a parameter, from what follows `Tags.key` to its end."""
Writer = Callable[[str], str] | None
"""How raw text becomes JSON once it is complete; None if it is a string, which need not wait."""


# -- calls ---------------------------------------------------------------------------------------------------------


def invokes(source: Source, tags: Tags, mark: str, parameter: Parameter) -> Reading[None]:
    """The calls of a block, and its end: `<invoke name="N">…</invoke></function_calls>`"""
    if mark == tags.call:
        yield from bare_invoke(source, tags, parameter)
    elif (yield from next_invoke(source, tags)):
        yield from invoke(source, tags, parameter)
    else:
        source.fail(f"expected {tags.call!r}")
    while (yield from next_invoke(source, tags)):
        yield from invoke(source, tags, parameter)
    yield from source.close(*tags.closes)


def next_invoke(source: Source, tags: Tags) -> Reading[bool]:
    """Whether another call comes; its tag is read up to the attributes, and so are the marks before it."""
    while (mark := (yield from source.close(tags.call, *tags.layout))) in tags.layout:
        pass
    return mark == tags.call


def invoke(source: Source, tags: Tags, parameter: Parameter) -> Reading[None]:
    """A call, from its attributes on: `name="N">…</invoke>`, or `name="N"/>` if it has no arguments."""
    name, _, end = yield from named_tag(source)
    yield from invoke_body(source, source.begin(name), tags, end, parameter)


def bare_invoke(source: Source, tags: Tags, parameter: Parameter) -> Reading[None]:
    """A call without a block around it: it must go on as calls do, or it is only text about one."""
    name, _, end = yield from named_tag(source)
    if end == ">":
        yield from source.space()
        if not (yield from source.sees(tags.key, tags.call_end, "{")):
            source.fail(f"expected {tags.key!r} or {tags.call_end!r}")
    yield from invoke_body(source, source.begin(name), tags, end, parameter)


def invoke_body(source: Source, call: TextCall, tags: Tags, end: str, parameter: Parameter) -> Reading[None]:
    """The parameters of a call, or a JSON object instead of them, up to the call's end."""
    if end == ">":
        yield from source.space()
        if (yield from source.peek()) == "{":
            yield from source.value(call.add)
            yield from invoke_end(source, tags)
            source.end()
            return
        while (yield from invoke_end(source, tags, tags.key)):
            yield from parameter(source, call, tags)
    call.end_keys()
    source.end()


def invoke_end(source: Source, tags: Tags, *keys: str) -> Reading[bool]:
    """The end of a call, or a key instead of it; whether there was a key."""
    yield from source.space()
    mark = yield from source.expect(tags.call_end, *tags.after, *keys)
    if mark in tags.after:
        source.unread(mark)
    return mark in keys


# -- attributes ----------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[\w:.-]*")
_UNQUOTED = re.compile(r"""[^\s"'<>/]*""")


def named_tag(source: Source) -> Reading[tuple[str, dict[str, str], str]]:
    """The name that a tag's attributes give, all of them, and the tag's end: `name="N" string='true'>`, or `/>`."""
    found: dict[str, str] = {}
    while not (end := (yield from source.close(">", "/>"))):
        yield from source.space()
        key = yield from source.match(_WORD)
        yield from source.space()
        yield from source.expect("=")
        yield from source.space()
        found[key] = yield from attribute(source)
    if not (name := found.get("name")):
        raise Mismatch("a tag that should have a name has none")
    return name, found, end


def attribute(source: Source) -> Reading[str]:
    """The value of an attribute, quoted or not. No quotes go on over a line break or a tag."""
    if not (quotes := (yield from source.ahead('"', "'"))):
        return (yield from source.match(_UNQUOTED))
    value, mark = yield from source.upto(quotes, "\n", "<")
    if mark != quotes:
        raise Mismatch(f"expected {quotes!r} before {mark!r}")
    return value


# -- parameters ----------------------------------------------------------------------------------------------------


def parameter(source: Source, call: TextCall, tags: Tags) -> Reading[None]:
    """A parameter with raw text in it: `name="P">raw</parameter>`"""
    write, end = yield from key_of(source, call)
    yield from value(source, call, write, end, tags)


def cdata_parameter(source: Source, call: TextCall, tags: Tags) -> Reading[None]:
    """A parameter the text of which may be quoted: `name="P"><![CDATA[raw]]></param>`"""
    write, end = yield from key_of(source, call)
    if end == ">" and (yield from source.close("<![CDATA[")):
        yield from raw_value(source, call, write, {"]]>": (tags.value_end, tags.call_end)})
        yield from source.close(tags.value_end)
    else:
        yield from value(source, call, write, end, tags)


def key_of(source: Source, call: TextCall) -> Reading[tuple[Writer, str]]:
    """The key of a parameter, told to the call; returns how the value is written, and how the tag ended."""
    key, found, end = yield from named_tag(source)
    call.key(key)
    return writer(call.schema.field(key), found.get("string")), end


def value(source: Source, call: TextCall, write: Writer, end: str, tags: Tags) -> Reading[None]:
    """The raw text of a parameter, up to its end tag; none at all if its only tag ended as `/>`."""
    if end == "/>":
        call.add('""' if write is None else write(""))
        return
    ended_by = yield from raw_value(source, call, write, tags.ends)
    if ended_by != tags.value_end:
        source.unread(ended_by)


def writer(schema: Schema, is_string: str | None) -> Writer:
    """How a value is written if its parameter says itself whether it is a string.

    That counts, unless the schema rules it out; where it says nothing, only the schema does.
    """
    match is_string:
        case "true":
            return None if "string" in schema.types else schema.writer
        case "false":
            return partial(_json_for, schema)
        case _:
            return schema.writer


def _json_for(schema: Schema, raw: str) -> str:
    written = json_or_text(raw)
    if schema.types and schema.is_text:
        return written if written.startswith('"') else quote(raw)
    return written if written == raw.strip() else schema.write(raw)


# -- dialects ------------------------------------------------------------------------------------------------------


def tagged(*variants: Tags, parameter: Parameter = parameter) -> Block:
    """The block of a dialect that has these tags, in one of several variants."""
    by_mark = {mark: tags for tags in variants for mark in tags.opening_marks}

    def block(source: Source, mark: str) -> Reading[None]:
        yield from invokes(source, by_mark[mark], mark, parameter)

    return block


def dots(source: Source, mark: str) -> Reading[None]:
    """`<dots_function_call>` with invokes or call objects in it."""
    yield from source.space()
    if (yield from source.sees("{", "[")):
        yield from object_calls(source)
        yield from source.close(*DOTS.closes)
    else:
        yield from invokes(source, DOTS, mark, parameter)


ANTHROPIC = Tags(bare=True)
ANTML = ANTHROPIC.prefixed("antml:")
DSML = ANTHROPIC.prefixed("｜DSML｜")
DSML_V4 = Tags(opens=("<tool_calls>",), closes=("</tool_calls>",), bare=True).prefixed("｜DSML｜")
MINIMAX = Tags(opens=("<minimax:tool_call>",), closes=("</minimax:tool_call>",))
STEP = Tags(
    opens=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>"),
    call="<steptml:invoke ",
    key="<steptml:parameter ",
    value_end="</steptml:parameter>",
    call_end="</steptml:invoke>",
    closes=("<｜tool_calls_end｜>",),
    layout=("<｜tool_call_begin｜>", "function<｜tool_sep｜>", "<｜tool_sep｜>", "<｜tool_call_end｜>"),
    bare=True,
)
DOTS = Tags(opens=("<dots_function_call>",), closes=("</dots_function_call>",))
MINICPM = Tags((), "<function ", "<param ", "</param>", "</function>", (), bare=True)


def _dsml(tags: Tags) -> Dialect:
    return Dialect(
        block=tagged(tags),
        opens=tags.opening_marks,
        closes=(*tags.closes, tags.call_end, tags.value_end),
        tokens=("<｜end▁of▁sentence｜>",),
        call_ends_reasoning=True,
    )


DIALECTS = {
    "anthropic_xml": Dialect(
        block=tagged(ANTHROPIC, ANTML),
        opens=ANTHROPIC.opening_marks + ANTML.opening_marks,
        closes=ANTHROPIC.closes + ANTML.closes,
    ),
    "deepseek_dsml": _dsml(DSML),
    "deepseek_dsml_v4": _dsml(DSML_V4),
    "minimax_m2": Dialect(block=tagged(MINIMAX), opens=MINIMAX.opens, closes=MINIMAX.closes, tokens=("[e~[",)),
    "step3": Dialect(
        block=tagged(STEP),
        opens=STEP.opening_marks,
        closes=(STEP.call_end, STEP.value_end),
        tokens=("<｜tool_sep｜>", "<｜tool_call_end｜>", *STEP.closes),
        call_ends_reasoning=True,
    ),
    "dots": Dialect(block=dots, opens=DOTS.opens, tokens=DOTS.closes),
    "minicpm5": Dialect(
        block=tagged(MINICPM, parameter=cdata_parameter), opens=MINICPM.opening_marks, tokens=("<|im_end|>",)
    ),
}
