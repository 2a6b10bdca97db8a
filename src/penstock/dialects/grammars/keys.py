"""Dialects with each argument as raw text after its key: `<parameter=K>…`, or `<arg_key>K</arg_key>…`."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from penstock.dialects.dialect import THINK, Dialect
from penstock.dialects.reading.call_arguments import json_arguments
from penstock.dialects.reading.call_objects import object_call, tagged_objects
from penstock.dialects.reading.marks import CallTags, TagPair
from penstock.dialects.reading.raw_values import Ends
from penstock.dialects.reading.recovery import expected, header
from penstock.dialects.reading.source import Mismatch, Reading, Source
from penstock.dialects.reading.tagged_values import KeyTags, ValueEnds, awaited, tagged_value
from penstock.dialects.reading.text_call import TextCall

# -- functions and parameters --------------------------------------------------------------------------------------

FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETERS, PARAMETER_ENDS = ("<parameter=", "<param="), ("</parameter>", "</param>")
PARAMETER, PARAMETER_END = PARAMETERS[0], PARAMETER_ENDS[0]
WRITTEN_BREAK = "\\n"
"""A line break between tags as two characters, as some servers send it.

It counts only in a call that has one before its first key: a value may be a program that writes the tags of a call.
"""
_TAG_NAME = re.compile(r"[^<>\n]*")
_KEY = re.compile(r".*\S")


class Functions(Struct, frozen=True):
    """The tags of a block of functions. A line break in `layout` at each end of a value belongs to the tags."""

    opens: str
    closes: str
    layout: tuple[str, ...] = ()

    def block(self, source: Source, mark: str) -> Reading[None]:
        """Reads `<tool_call><function=N>…</function></tool_call>`; the outer tags may be missing, or have an object."""
        if mark == self.opens:
            yield from source.space()
            if (yield from source.sees("{", "[")):
                yield from tagged_objects(source, mark, (self.closes,), object_call)
                return
            yield from source.expect(FUNCTION)
            yield from self.function(source, source.begin((yield from tag_name(source))))
        else:
            yield from self.bare(source)
        while (yield from source.accept_spaced(FUNCTION)):
            yield from self.function(source, source.begin((yield from tag_name(source))))
        yield from source.accept_spaced(self.closes)

    def bare(self, source: Source) -> Reading[None]:
        """Reads a function without a block around it. If it does not continue as a call, it is text about one."""
        name = yield from tag_name(source)
        yield from source.space()
        if not (yield from source.sees(*PARAMETERS, FUNCTION_END, "{")):
            source.fail(f"expected {PARAMETER!r} or {FUNCTION_END!r}")
        yield from self.function(source, source.begin(name))

    def function(self, source: Source, call: TextCall) -> Reading[None]:
        """Reads the parameters of a call, and its end: `<parameter=K>…</parameter></function>`."""
        spaces = yield from source.space()
        if (yield from source.sees("{")):
            yield from self.json_object(source, call)
            return
        if WRITTEN_BREAK not in spaces:
            source.tags = source.tags.without_layout()
        source.unread(spaces)
        mark, spaces = yield from self.tag(source)
        while mark in PARAMETERS:
            mark, spaces = yield from self.parameter(source, call, mark, spaces)
        if mark != FUNCTION_END:
            source.unread(mark)
        call.end_keys()
        source.end()

    def json_object(self, source: Source, call: TextCall) -> Reading[None]:
        """Reads arguments that are a JSON object instead of parameters, and the end of the call."""
        yield from json_arguments(source, call)
        yield from source.space()
        mark = yield from expected(source, (FUNCTION_END, *self.after), FUNCTION_END)
        if mark != FUNCTION_END:
            source.unread(mark)
        source.end()

    def parameter(self, source: Source, call: TextCall, mark: str, spaces: str) -> Reading[tuple[str, str]]:
        """Reads a parameter, from its key; returns the mark after it, and the white space before that.

        If the `spaces` before it have a line break as two characters, those around its value are layout, too.
        """
        source.hold(mark)
        key = yield from header(source, call, "<", tag_name(source))
        call.raw_key(key)
        layout = (*self.layout, WRITTEN_BREAK) if self.layout and WRITTEN_BREAK in spaces else self.layout
        if layout and (yield from source.accept(*layout)) != WRITTEN_BREAK:
            layout = self.layout
        write = call.schema.field(key).writer
        mark = yield from tagged_value(source, call, write, self.ends(call, layout))
        mark = mark[mark.index("<") :]
        if mark in PARAMETER_ENDS and (yield from self.is_left_open(source, call)):
            return FUNCTION_END, ""
        return (yield from self.tag(source)) if mark in PARAMETER_ENDS else (mark, "")

    def is_left_open(self, source: Source, call: TextCall) -> Reading[bool]:
        """Whether the model ended its text after a parameter, with all that the tool requires: only the end tag lacks.

        That counts in a rescue only. If the text was cut, another parameter may be missing.
        """
        if not source.only_declared:
            return False
        spaces = yield from source.space()
        is_over = not (yield from source.peek())
        source.unread(spaces)
        return is_over and not source.is_cut and call.schema.required <= call.keys

    def tag(self, source: Source) -> Reading[tuple[str, str]]:
        """Reads the next tag, a parameter's start tag or the call's end tag, and the white space before it."""
        spaces = yield from source.space()
        return (yield from expected(source, self.next, PARAMETER, FUNCTION_END)), spaces

    @property
    def after(self) -> tuple[str, ...]:
        """The tags that can only follow a call: they end one without an end tag."""
        return (FUNCTION, self.closes, self.opens)

    @property
    def next(self) -> tuple[str, ...]:
        """The tags that may follow a parameter."""
        return (*PARAMETERS, FUNCTION_END, *self.after)

    def ends(self, call: TextCall, layout: tuple[str, ...]) -> ValueEnds:
        """Returns where a value of the call may end; a line break in the `layout` belongs to the tag after it."""
        return ValueEnds(
            own=laid_out(dict.fromkeys(PARAMETER_ENDS, self.next), layout),
            call_ends=laid_out({FUNCTION_END: self.after}, layout),
            keys=KeyTags(PARAMETERS, (">",), _KEY, awaited(call)),
            calls=(FUNCTION,),
            call_starts=(_TAG_NAME, (">",), (*PARAMETERS, FUNCTION_END)),
            tags=self.pairs,
            blocks={self.opens: (FUNCTION,)},
            block_ends=(self.closes,),
        )

    @property
    def pairs(self) -> CallTags:
        """The tags in pairs."""
        return CallTags(
            TagPair(PARAMETERS, PARAMETER_ENDS),
            TagPair((FUNCTION,), (FUNCTION_END,)),
            TagPair((self.opens,), (self.closes,)),
        )


def laid_out(ends: Ends, layout: tuple[str, ...]) -> Ends:
    return {line + mark: after for line in ("", *layout) for mark, after in ends.items()}


def tag_name(source: Source) -> Reading[str]:
    """Reads the name in a tag, and the tag's end: `N>`. A name contains no line break and no tag."""
    name, mark = yield from source.upto(">", "\n", "<")
    if mark != ">" or not name.strip():
        source.refuse(mark, f"expected the end of the tag after {name!r}")
    return name.strip()


# -- keys and values -----------------------------------------------------------------------------------------------

_NAME = re.compile(r"\w[\w.:/-]*")
_WORD = re.compile(r"[\w.:/-]*")


class Pairs(Struct, frozen=True):
    """The tags of calls with keys and values in turn, each in all its spellings; `opens` and `closes` surround them."""

    opens: tuple[str, ...] = ()
    call: tuple[str, ...] = ("<tool_call>",)
    separator: tuple[str, ...] = ()
    key: tuple[str, ...] = ("<arg_key>",)
    key_end: tuple[str, ...] = ("</arg_key>",)
    value: tuple[str, ...] = ("<arg_value>",)
    value_end: tuple[str, ...] = ("</arg_value>",)
    call_end: tuple[str, ...] = ("</tool_call>",)
    closes: tuple[str, ...] = ()

    def block(self, source: Source, mark: str) -> Reading[None]:
        """Reads `<tool_call>N<arg_key>K</arg_key><arg_value>…</arg_value></tool_call>`, or several in a block."""
        if mark in self.opens:
            yield from source.space()
            yield from source.expect(*self.call)
        yield from self.call_body(source)
        while self.opens and (yield from source.accept_spaced(*self.call)):
            yield from self.call_body(source)
        if self.closes:
            yield from source.accept_spaced(*self.closes)

    def call_body(self, source: Source) -> Reading[None]:
        """Reads a call, from its name; it may also be a call object, or a name and a JSON object."""
        yield from source.space()
        if (yield from source.peek()) == "{":
            yield from object_call(source)
            yield from source.accept_spaced(*self.call_end)
            return
        name, mark = yield from self.name(source)
        call = source.begin(name)
        if mark:
            yield from self.pairs(source, call, mark)
        else:
            yield from source.value(call.add)
        source.end()
        if not mark:
            yield from source.accept_spaced(*self.call_end)

    def name(self, source: Source) -> Reading[tuple[str, str]]:
        """Reads the name of a call and the mark after it, without which it is prose; "" if a JSON object follows."""
        marks = (*self.separator, *self.key, *self.call_end)
        breaks = ("\n", *source.tags.layout)
        name, mark = yield from source.upto(*marks, *breaks, "<")
        if mark not in source.tags.layout:
            source.tags = source.tags.without_layout()
        if mark in breaks:
            yield from source.space()
            mark = yield from source.accept(*marks)
            if not mark and (yield from source.peek()) != "{":
                source.fail("expected a key")
        if mark == "<" or not _NAME.fullmatch(name.strip()):
            source.refuse(mark, "expected a name and a key")
        if mark in self.call_end and source.tools and name.strip() not in source.tools:
            raise Mismatch(f"{name!r} is not a tool")  # probably prose about the tags
        return name, mark

    def pairs(self, source: Source, call: TextCall, mark: str) -> Reading[None]:
        """Reads the keys and values of a call, and its end."""
        if mark in self.separator:
            mark = yield from self.tag(source)
        while mark in self.key:
            mark = yield from self.pair(source, call, mark)
        if mark not in self.call_end:
            source.unread(mark)
        call.end_keys()

    def pair(self, source: Source, call: TextCall, mark: str) -> Reading[str]:
        """Reads a key, and its value if it has one; returns the mark after it."""
        source.hold(mark)
        key, mark = yield from header(source, call, mark, self.key_name(source), self.key_end)
        if mark not in self.value:
            return mark
        call.raw_key(key)
        write = call.schema.field(key).writer
        mark = (yield from tagged_value(source, call, write, self.ends(call))).lstrip()
        return (yield from self.tag(source)) if mark in self.value_end else mark

    def key_name(self, source: Source) -> Reading[tuple[str, str]]:
        """Reads a key, and the mark after its end tag: the value's start tag, or another mark if there is no value."""
        key, mark = yield from source.upto(*self.key_end, *self.value, *self.call_end)
        if mark in self.call_end:
            source.refuse(mark, f"expected the end of the key {key!r}")
        if mark in self.key_end:
            yield from source.space()
            mark = yield from expected(source, (*self.value, *self.next), self.value[0], self.call_end[0])
        return key.strip(), mark

    def tag(self, source: Source) -> Reading[str]:
        """Reads the next tag: a key's start tag, or the call's end tag."""
        yield from source.space()
        return (yield from expected(source, self.next, self.key[0], self.call_end[0]))

    @property
    def after(self) -> tuple[str, ...]:
        """The tags that can only follow a call: they end one without an end tag."""
        return (*self.call, *self.closes)

    @property
    def next(self) -> tuple[str, ...]:
        """The tags that may follow a value."""
        return (*self.key, *self.call_end, *self.after)

    def ends(self, call: TextCall) -> ValueEnds:
        """Returns where a value of the call may end."""
        call_ends = dict.fromkeys(self.call_end, self.after)
        return ValueEnds(
            own=dict.fromkeys(self.value_end, self.next),
            call_ends=call_ends | {f"\n{mark}": after for mark, after in call_ends.items()},
            keys=KeyTags(self.key, (*self.key_end, *self.value), _KEY, awaited(call)),
            calls=self.call,
            call_starts=(_WORD, *([self.separator] if self.separator else ()), (*self.key, *self.call_end)),
            tags=self.tag_pairs,
            blocks=dict.fromkeys(self.opens, self.call),
            block_ends=self.closes,
        )

    @property
    def tag_pairs(self) -> CallTags:
        """The tags in pairs."""
        return CallTags(
            TagPair(self.value, self.value_end), TagPair(self.call, self.call_end), TagPair(self.opens, self.closes)
        )


# -- dialects ------------------------------------------------------------------------------------------------------


def _forms(*tags: str) -> tuple[str, ...]:
    """Returns the tags, and the same tags with the suffix of some releases of Hunyuan."""
    return (*tags, *(f"{tag[:-1]}:opensource>" for tag in tags))


GLM = Pairs()
HUNYUAN = Pairs(
    opens=_forms("<tool_calls>"),
    call=_forms("<tool_call>"),
    separator=_forms("<tool_sep>"),
    key=_forms("<arg_key>"),
    key_end=_forms("</arg_key>"),
    value=_forms("<arg_value>"),
    value_end=_forms("</arg_value>"),
    call_end=_forms("</tool_call>"),
    closes=_forms("</tool_calls>"),
)
LONGCAT = Pairs(
    call=("<longcat_tool_call>",),
    key=("<longcat_arg_key>",),
    key_end=("</longcat_arg_key>",),
    value=("<longcat_arg_value>",),
    value_end=("</longcat_arg_value>",),
    call_end=("</longcat_tool_call>",),
)


def longcat(source: Source, mark: str) -> Reading[None]:
    """Reads `<longcat_tool_call>` with call objects, or with a name, keys and values."""
    spaces = yield from source.space()
    has_objects = yield from source.sees("{", "[", "```")
    source.unread(spaces)
    if has_objects:
        yield from tagged_objects(source, mark, LONGCAT.call_end, object_call)
    else:
        yield from LONGCAT.block(source, mark)


QWEN = Functions("<tool_call>", "</tool_call>", layout=("\n", "\r\n"))
SEED = Functions("<seed:tool_call>", "</seed:tool_call>")

DIALECTS = {
    "qwen3_coder": Dialect(
        block=QWEN.block,
        opens=(QWEN.opens, FUNCTION),
        closes=(QWEN.closes, FUNCTION_END, *PARAMETER_ENDS),
        tags=replace(QWEN.pairs, layout=(WRITTEN_BREAK,)),
    ),
    "seed_oss": Dialect(
        block=SEED.block,
        opens=(SEED.opens, FUNCTION),
        closes=(SEED.closes, FUNCTION_END, *PARAMETER_ENDS),
        tags=SEED.pairs,
        think=(("<seed:think>", "</seed:think>"),),
    ),
    "longcat": Dialect(
        block=longcat,
        opens=LONGCAT.call,
        closes=LONGCAT.call_end,
        tags=LONGCAT.tag_pairs,
        think=(*THINK, ("<longcat_think>", "</longcat_think>")),
    ),
    "glm45": Dialect(
        block=GLM.block,
        opens=GLM.call,
        closes=GLM.call_end,
        tags=replace(GLM.tag_pairs, layout=(WRITTEN_BREAK,)),
    ),
    "hunyuan_v3": Dialect(
        block=HUNYUAN.block,
        opens=(*HUNYUAN.opens, *HUNYUAN.call),
        closes=(*HUNYUAN.closes, *HUNYUAN.call_end),
        tags=HUNYUAN.tag_pairs,
        think=(("<think>", "</think>"), ("<think:opensource>", "</think:opensource>")),
    ),
}
