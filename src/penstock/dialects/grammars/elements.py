"""Dialects in which tags are named after tools and parameters: `<path>…</path>`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.dialects.dialect import Dialect
from penstock.dialects.reading.marks import CallTags, TagPair
from penstock.dialects.reading.raw_values import Ends, Sink, Writer, raw_text, raw_value, write_value
from penstock.dialects.reading.recovery import header
from penstock.dialects.reading.schema import Schema, quote
from penstock.dialects.reading.source import Mismatch, Reading, Source
from penstock.dialects.reading.tag_calls import Tags, tag_block
from penstock.dialects.reading.text_call import TextCall

TagNames = Mapping[str, str]
"""Opening tags, and the names in them; "" where the name follows."""
ANY: TagNames = {"<": ""}

_NAME = re.compile(r"[^\s<>/]*")


def next_key(source: Source, keys: TagNames, *ends: str) -> Reading[tuple[str, str]]:
    """Reads an opening tag or one of the `ends`; returns the name in the tag and "", or "" and the end.

    For an element without content, `<path/>`, it returns the name and EMPTY.
    """
    yield from source.space()
    mark = yield from source.expect(*keys, *ends)
    if mark in ends:
        return "", mark
    return (keys[mark], "") if keys[mark] else (yield from tag_name(source, mark))


EMPTY = "/>"


def tag_name(source: Source, start: str) -> Reading[tuple[str, str]]:
    """Reads the name in an opening tag, and the tag's end: `path>`. A mismatch leaves the tag unread."""
    name = yield from source.match(_NAME)
    end = (yield from source.accept(">", EMPTY, f" {EMPTY}")) if name else ""
    if not end and (yield from source.peek()):
        source.refuse(start + name, "expected an opening tag")
    if not end:
        yield from source.expect(">")
    return name, end.strip().removeprefix(">")


def add_empty(call: TextCall, key: str) -> None:
    """Adds an argument whose element has no content."""
    write = call.schema.field(key).writer
    call.raw_key(key)
    call.add(write("") if write else '""')


# -- `<invoke><tool_name>N</tool_name><parameters><P>raw</P></parameters></invoke>` ----------------------------------

AFTER_INVOKE = ("<invoke>", "</function_calls>")
LEGACY = CallTags(
    TagPair(("<parameters>",), ("</parameters>",)),
    TagPair(("<invoke>",), ("</invoke>",)),
    TagPair(("<function_calls>",), ("</function_calls>",)),
)
"""The tags around the values of a call; the tag of a value itself may be any, also one of HTML."""


def anthropic_legacy(source: Source, mark: str) -> Reading[None]:
    """Reads `<function_calls><invoke>…</invoke>…</function_calls>`."""
    if mark != "<invoke>":
        yield from source.space()
        yield from source.expect("<invoke>")
    yield from legacy_invoke(source)
    while (yield from source.accept_spaced("<invoke>")):
        yield from legacy_invoke(source)
    yield from source.accept_spaced("</function_calls>")


def legacy_invoke(source: Source) -> Reading[None]:
    """Reads a call: `<tool_name>N</tool_name><parameters>…</parameters></invoke>`."""
    yield from source.space()
    yield from source.expect("<tool_name>")
    call = source.begin((yield from content_name(source, "</tool_name>")))
    if (yield from source.accept_spaced("<parameters>")):
        yield from legacy_parameters(source, call)
    yield from source.space()
    if not (yield from source.accept("</invoke>")) and not (yield from source.sees(*AFTER_INVOKE)):
        source.fail("expected '</invoke>'")
    call.end_keys()
    source.end()


def content_name(source: Source, end: str) -> Reading[str]:
    """Reads a name between tags: `N</tool_name>`."""
    name, mark = yield from source.upto(end, "<")
    if mark != end:
        raise Mismatch(f"expected {end!r} before {mark!r}")
    return name


def legacy_parameters(source: Source, call: TextCall) -> Reading[None]:
    """Reads the parameters of a call: `<P>raw</P>…</parameters>`."""
    end = ""
    while not end:
        key, end = yield from next_key(source, ANY, "</parameters>", "</invoke>", *AFTER_INVOKE)
        if key and end == EMPTY:
            add_empty(call, key)
            end = ""
        elif key:
            call.raw_key(key)
            own_end = f"</{key}>"
            ends = {"</parameters>": ("</invoke>",), own_end: ("<",)}
            call.raw_tags = LEGACY
            mark = yield from raw_value(source, call, call.schema.field(key).writer, ends)
            end = mark if mark != own_end else ""
    if end != "</parameters>":
        source.unread(end)


# -- `<tool>N</tool><tool_input>text</tool_input>` -------------------------------------------------------------------


INPUT = CallTags(TagPair(("<tool_input>",), ("</tool_input>",)), TagPair(("<tool>",), ("</tool>",)))


def langchain_xml(source: Source, mark: str) -> Reading[None]:
    """Reads `<tool>N</tool><tool_input>…</tool_input>`; the input is a text, or the JSON object of the arguments."""
    name = yield from content_name(source, "</tool>")
    yield from source.space()
    yield from source.expect("<tool_input>")
    call = source.begin(name)
    if (yield from is_object(source)):
        yield from source.value(call.add)
        yield from source.space()
        yield from source.expect("</tool_input>")
    else:
        call.key("__arg1")
        call.raw_tags = INPUT
        call.add('"')
        yield from raw_text(source, call.string, {"</tool_input>": ()})
        call.add('"')
        call.end_keys()
    source.end()


def is_object(source: Source) -> Reading[bool]:
    """Returns whether a JSON object comes next; nothing is read."""
    text = yield from source.space()
    is_object = False
    if (yield from source.accept("{")):
        text += "{" + (yield from source.space())
        is_object = (yield from source.peek()) in ('"', "}")
    if text:
        source.unread(text)
    return is_object


# -- `<TOOL><P>raw</P></TOOL>` ---------------------------------------------------------------------------------------


def cline_xml(source: Source, mark: str) -> Reading[None]:
    """Reads `<TOOL><P>raw</P>…</TOOL>`. Only declared names are tags, and a tool's tag must be followed by another."""
    name = mark[1:-1]
    end = f"</{name}>"
    keys = {f"<{key}>": key for key in source.tools.schema(name).keys}
    (key, mark), others = yield from first_key(source, name, {**ANY, **keys}, end)
    source.tags = CallTags(call=TagPair((f"<{name}>",), (end,)))
    call = source.begin(name)
    for other in others:
        call.check_key(other)
    while key:
        if mark == EMPTY:
            add_empty(call, key)
        else:
            call.raw_key(key)
            yield from cline_value(source, call, key, (*keys, end) if key == "content" and keys else ("<",))
        key, mark = yield from next_key(source, {**ANY, **keys}, end)
    call.end_keys()
    source.end()


def first_key(source: Source, name: str, keys: TagNames, end: str) -> Reading[tuple[tuple[str, str], list[str]]]:
    """Reads up to the first tag of a parameter that the tool has; returns it as `next_key` does, and the others."""
    others: list[str] = []
    while True:
        key, mark = yield from next_key(source, keys, end)
        if not key or source.tools.schema(name).allows(key):
            return (key, mark), others
        others.append(key)
        if mark != EMPTY:
            yield from source.upto(f"</{key}>")


def cline_value(source: Source, call: TextCall, key: str, follow: tuple[str, ...]) -> Reading[None]:
    """Reads the raw value of a parameter. One that the tool does not have may lack its end tag: `<br>`."""
    [end] = source.tags.call.ends
    own_end = f"</{key}>"
    call.raw_tags = CallTags(TagPair((f"<{key}>",), (own_end,)), source.tags.call)
    ends = {own_end: follow} if call.schema.allows(key) else {own_end: (), end: ()}
    if (yield from trimmed_value(source, call, key, ends)) != own_end:
        source.unread(end)


def trimmed_value(source: Source, call: TextCall, key: str, ends: Ends) -> Reading[str]:
    """Reads a raw value, and trims it: `content` by a line break at each end, other values by all white space.

    Returns the mark that ended it.
    """

    def trimmed(sink: Sink) -> Reading[str]:
        out = Unframed(sink) if key == "content" else Trimmed(sink)
        mark = yield from raw_text(source, out.add, ends)
        out.end()
        return mark

    return (yield from write_value(call, call.schema.field(key).writer, trimmed))


class Trimmed:
    """Passes text to a sink without white space at both ends."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._spaces: list[str] | None = None  # white space at the end; None before there was any other text

    def add(self, text: str) -> None:
        if self._spaces is None:
            text = text.lstrip()
        if kept := text.rstrip():
            self._sink("".join([*(self._spaces or ()), kept]))
            self._spaces = [text[len(kept) :]]
        elif self._spaces is not None:
            self._spaces.append(text)

    def end(self) -> None:
        """Ends the text; white space at the end is dropped."""


class Unframed:
    """Passes text to a sink without a line break at its start and one at its end."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held = ""  # what may be the last line break, or at the start half of one
        self._has_begun = False

    def add(self, text: str) -> None:
        text = self._held + text
        if not self._has_begun:
            self._has_begun = text != "\r"
            text = text.removeprefix("\r\n") if text.startswith("\r\n") else text.removeprefix("\n")
        kept = text.removesuffix("\n").removesuffix("\r")
        self._held = text[len(kept) :]
        if kept:
            self._sink(kept)

    def end(self) -> None:
        if self._held == "\r":
            self._sink(self._held)


# -- `NS<invoke name="N">NS<P>raw NS</P>NS</invoke>`, nested ---------------------------------------------------------

NS = "]<]minimax[>["
ANY_ELEMENT: TagNames = {f"{NS}<": ""}
MAX_NESTING = 64
"""How deep the elements of a call may be nested; a call with deeper ones is malformed."""
MINIMAX = Tags(
    opens=(f"{NS}<tool_call>",),
    call=f"{NS}<invoke ",
    key=f"{NS}<",
    value_end="",  # it contains the name of the parameter
    call_end=f"{NS}</invoke>",
    closes=(f"{NS}</tool_call>",),
    bare=True,
)
INVOKES = CallTags(call=MINIMAX.pairs.call, block=MINIMAX.pairs.block)


def element_parameter(source: Source, call: TextCall, tags: Tags) -> Reading[None]:
    """Reads a parameter, raw or with elements in it: `P>raw NS</P>`, or `P>NS<Q>…NS</Q>NS</P>`."""
    tag = yield from header(source, call, tags.key, tag_name(source, ""))
    call.raw_key(tag[0])
    yield from element(source, call, tag, call.schema.field(tag[0]), 0)


def element(source: Source, call: TextCall, tag: tuple[str, str], schema: Schema, depth: int) -> Reading[None]:
    """Reads the content of an element, and its end. If the schema allows a string, the content is a string."""
    name, mark = tag
    if mark == EMPTY:
        write = leaf_writer(schema)
        call.add(write("") if write else '""')
        return
    if "string" not in schema.types and (yield from has_elements(source)):
        yield from elements(source, call, name, schema, depth)
        return
    own_end = f"{NS}</{name}>"
    call.raw_tags = CallTags(TagPair((f"{NS}<{name}>",), (own_end,)), INVOKES.call, INVOKES.block)
    ends = {MINIMAX.call_end: MINIMAX.after, own_end: (NS,)}
    if (yield from raw_value(source, call, leaf_writer(schema), ends)) != own_end:
        raise Mismatch(f"the call ended within {name!r}")


def has_elements(source: Source) -> Reading[bool]:
    """Returns whether an opening tag comes next, after white space; if not, nothing is read."""
    spaces = yield from source.space()
    if (yield from source.sees(f"{NS}<")) and not (yield from source.sees(f"{NS}</")):
        return True
    if spaces:
        source.unread(spaces)
    return False


def elements(source: Source, call: TextCall, name: str, schema: Schema, depth: int) -> Reading[None]:
    """Reads the elements in an element as a list or an object, and its end: `NS<Q>…NS</Q>…NS</P>`."""
    if depth == MAX_NESTING:
        raise Mismatch(f"the elements are nested deeper than MAX_NESTING ({MAX_NESTING})")
    key, mark = yield from next_key(source, ANY_ELEMENT, f"{NS}</{name}>")
    is_items = is_list(schema, key)
    call.add("[" if is_items else "{")
    while key:
        if not is_items:
            call.add(quote(key) + ":")
        field = schema.items() if is_items else schema.field(key)
        yield from element(source, call, (key, mark), field, depth + 1)
        key, mark = yield from next_key(source, ANY_ELEMENT, f"{NS}</{name}>")
        if key:
            call.add(",")
    call.add("]" if is_items else "}")


def is_list(schema: Schema, first: str) -> bool:
    """Returns whether elements are the items of a list; without a schema, the name of the first element decides."""
    if ("array" in schema.types) != ("object" in schema.types):
        return "array" in schema.types
    return first == "item" and "item" not in schema.keys


def leaf_writer(schema: Schema) -> Writer:
    return None if schema.is_text else partial(write_leaf, schema)


def write_leaf(schema: Schema, raw: str) -> str:
    """Returns raw text as JSON; an empty text is an empty list or object if the schema expects one."""
    if not raw.strip() and "string" not in schema.types:
        for kind, empty in (("array", "[]"), ("object", "{}")):
            if kind in schema.types:
                return empty
    return schema.write(raw)


# -- dialects ------------------------------------------------------------------------------------------------------


def tool_tags(tool_names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"<{name}>" for name in tool_names)


DIALECTS = {
    "anthropic_legacy": Dialect(
        block=anthropic_legacy,
        opens=("<function_calls>", "<invoke>"),
        closes=("</function_calls>",),
        tags=LEGACY,
    ),
    "langchain_xml": Dialect(
        block=langchain_xml,
        opens=("<tool>",),
        tokens=("<final_answer>", "</final_answer>"),
        closes=("</tool_input>",),
        tags=CallTags(call=INPUT.value),
    ),
    "cline_xml": Dialect(block=cline_xml, opens=tool_tags, is_marked=False),
    "minimax_m3": Dialect(
        block=tag_block(element_parameter, MINIMAX),
        opens=MINIMAX.opening_marks,
        closes=(*MINIMAX.closes, MINIMAX.call_end),
        tags=INVOKES,
        think=(("<mm:think>", "</mm:think>"),),
    ),
}
