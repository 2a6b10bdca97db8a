"""Calls that are written as tags with a name in them: `<invoke name="…">…</invoke>`, in a block or alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from penstock.dialects.dialect import Block
from penstock.dialects.reading.cursor import Mismatch, Reading, TextEnded
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.raw_values import Writer
from penstock.dialects.reading.recovery import expected, give_up, header
from penstock.dialects.reading.source import Source
from penstock.dialects.reading.tagged_values import KeyTags, ValueEnds, awaited, tagged_value
from penstock.dialects.reading.text_call import TextCall

_ATTRIBUTES = re.compile(r"[^<>\n]*")
_KEY = re.compile(r"""(?<![\w:.-])name\s*=\s*(?:"([^"]+)"|'([^']+)'|([^\s"'/]+))""")


class Tags(Struct, frozen=True):
    """The tags of a block of calls; those that have attributes up to these.

    `layout` are further marks that may stand around each call. Where `bare`, a call also counts if the tag that opens
    the block is missing. Tags that are tokens (`is_token`) are never part of a value. Each tag may also be written as
    in one of the `others`.
    """

    opens: tuple[str, ...] = ("<function_calls>",)
    call: str = "<invoke "
    key: str = "<parameter "
    value_end: str = "</parameter>"
    call_end: str = "</invoke>"
    closes: tuple[str, ...] = ("</function_calls>",)
    layout: tuple[str, ...] = ()
    bare: bool = False
    is_token: bool = False
    others: tuple[Tags, ...] = ()

    def prefixed(self, prefix: str) -> Tags:
        """The same tags with a prefix on every tag name."""
        one = partial(re.sub, r"^(</?)", rf"\g<1>{prefix}")
        single = {field: one(getattr(self, field)) for field in ("call", "key", "value_end", "call_end")}
        opens, closes = tuple(map(one, self.opens)), tuple(map(one, self.closes))
        return msgspec.structs.replace(self, opens=opens, closes=closes, **single)

    def alone(self) -> Tags:
        return msgspec.structs.replace(self, others=()) if self.others else self

    def like(self, mark: str) -> Tags:
        """The same tags, first of all those that are written as this one."""
        if mark in (*spaced(self.call), *spaced(self.key)):
            return self
        styles = [style.alone() for style in self.styles]
        first = next(style for style in styles if mark in (*spaced(style.call), *spaced(style.key)))
        return msgspec.structs.replace(first, others=tuple(style for style in styles if style is not first))

    @property
    def styles(self) -> tuple[Tags, ...]:
        return (self, *self.others)

    @property
    def opening_marks(self) -> tuple[str, ...]:
        return (*self.opens, *spaced(self.call)) if self.bare else self.opens

    @property
    def calls(self) -> tuple[str, ...]:
        return tuple(mark for style in self.styles for mark in spaced(style.call))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(mark for style in self.styles for mark in spaced(style.key))

    @property
    def call_ends(self) -> tuple[str, ...]:
        return tuple(style.call_end for style in self.styles)

    @property
    def block_ends(self) -> tuple[str, ...]:
        return tuple(mark for style in self.styles for mark in style.closes)

    @property
    def after(self) -> tuple[str, ...]:
        """What can only follow a call: it ends one the end tag of which was left out."""
        return (*self.calls, *self.block_ends, *self.layout)

    def ends(self, call: TextCall) -> ValueEnds:
        """Where a value ends: at its own tag, or if that was left out at the call's, or where the next key begins."""
        nameless = self.key.rstrip() + ">"  # it breaks the call, but is no data
        after = (*(f"{mark}name" for mark in self.calls), *self.block_ends, *self.layout)
        has_block = bool(self.opens and self.closes)
        return ValueEnds(
            own={self.value_end: (*self.keys, nameless, *self.call_ends, *after)},
            call_ends={self.call_end: after},
            keys=KeyTags(spaced(self.key), (">",), _KEY, awaited(call), self.is_token),
            calls=spaced(self.call),
            call_starts=(_ATTRIBUTES, (">",), (*spaced(self.key), self.call_end)),
            blocks=dict.fromkeys(self.opens, (*self.calls, *self.layout)) if has_block else {},
            block_ends=self.closes if has_block else (),
        )


def spaced(tag: str) -> tuple[str, ...]:
    """A tag up to its attributes, with each kind of white space that may stand before them."""
    return tuple(tag[:-1] + space for space in " \n\r\t") if tag.endswith(" ") else (tag,)


Parameter = Callable[[Source, TextCall, Tags], Reading[None]]
"""Reads a parameter, from what follows `Tags.key` to its end. The tag is held until its end is read."""


# -- calls ---------------------------------------------------------------------------------------------------------


def tag_block(parameter: Parameter, *variants: Tags) -> Block:
    """The block of a dialect that has these tags, in one of several variants."""
    by_mark = {mark: tags for tags in variants for mark in tags.opening_marks}

    def block(source: Source, mark: str) -> Reading[None]:
        yield from invokes(source, by_mark[mark], mark, parameter)

    return block


def invokes(source: Source, tags: Tags, mark: str, parameter: Parameter) -> Reading[None]:
    """The calls of a block, and its end: `<invoke name="N">…</invoke></function_calls>`"""
    if mark in tags.calls:
        yield from bare_invoke(source, tags, parameter)
    elif found := (yield from next_invoke(source, tags)):
        yield from mended(source, tags, invoke(source, found, parameter))
    else:
        source.fail(f"expected {tags.call!r}")
    while found := (yield from next_invoke(source, tags)):
        yield from mended(source, tags, invoke(source, found, parameter))
    yield from source.accept_spaced(*tags.block_ends)


def next_invoke(source: Source, tags: Tags) -> Reading[Tags | None]:
    """The tags of the next call, if one comes; its own is read up to the attributes, and so are the marks before it."""
    while (mark := (yield from source.accept_spaced(*tags.calls, *tags.layout))) in tags.layout:
        pass
    return tags.like(mark) if mark else None


def mended(source: Source, tags: Tags, reading: Reading[None]) -> Reading[None]:
    """A call after which the block goes on even if it breaks, where only a block can have calls."""
    try:
        yield from reading
    except Mismatch as why:
        if tags.bare or isinstance(why, TextEnded) or source.call is None:
            raise
        give_up(source, why)
        yield from rest_of_invoke(source, tags)


def rest_of_invoke(source: Source, tags: Tags) -> Reading[None]:
    """What is left of a broken call: text, but for the closing tags."""
    marks = marks_of(tags.value_end, tags.call_end, *tags.calls, *tags.closes, *tags.opens)
    while (mark := (yield from source.flow(source.output.add, marks))) == tags.value_end:
        pass
    if mark != tags.call_end:
        source.unread(mark)
    source.hold()


def invoke(source: Source, tags: Tags, parameter: Parameter) -> Reading[None]:
    """A call, from its attributes on: `name="N">…</invoke>`, or `name="N"/>` if it has no arguments."""
    name, _, end = yield from named_tag(source)
    yield from invoke_body(source, source.begin(name), tags, end, parameter)


def bare_invoke(source: Source, tags: Tags, parameter: Parameter) -> Reading[None]:
    """A call without a block around it: it must go on as calls do, or it is only text about one."""
    name, _, end = yield from named_tag(source)
    if end == ">":
        yield from source.space()
        if not (yield from source.sees(*tags.keys, *tags.call_ends, "{")):
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
        while key := (yield from invoke_end(source, tags, *tags.keys)):
            source.hold(key)
            yield from parameter(source, call, tags.like(key))
    call.end_keys()
    source.end()


def invoke_end(source: Source, tags: Tags, *keys: str) -> Reading[str]:
    """The end of a call, or a key instead of it, which is returned."""
    yield from source.space()
    marks = (*tags.call_ends, *tags.after, *keys)
    mark = yield from expected(source, marks, *((tags.key,) if keys else ()), tags.call_end)
    if mark in tags.after:
        source.unread(mark)
    return mark if mark in keys else ""


# -- attributes ----------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[\w:.-]*")
_UNQUOTED = re.compile(r"""[^\s"'<>/]*""")


def named_tag(source: Source) -> Reading[tuple[str, dict[str, str], str]]:
    """The name that a tag's attributes give, all of them, and the tag's end: `name="N" string='true'>`, or `/>`."""
    tag = attributes(source)
    return (yield from tag if source.call is None else header(source, source.call, "<", tag))


def attributes(source: Source) -> Reading[tuple[str, dict[str, str], str]]:
    """The attributes of a tag, of which any but the name may have no value, and its end."""
    found: dict[str, str] = {}
    while not (end := (yield from source.accept_spaced(">", "/>"))):
        yield from source.space()
        key = (yield from source.match(_WORD)) or source.fail("expected an attribute")
        found[key] = ""
        if (yield from source.accept_spaced("=")):
            yield from source.space()
            found[key] = yield from attribute(source)
    if not (name := found.get("name")):
        raise Mismatch(f"a tag that should have a name has none, but {found}")
    return name, found, end


def attribute(source: Source) -> Reading[str]:
    """The value of an attribute, quoted or not. No quotes go on over a line break or a tag."""
    if not (quotes := (yield from source.accept('"', "'"))):
        return (yield from source.match(_UNQUOTED))
    value, mark = yield from source.upto(quotes, "\n", "<")
    if mark != quotes:
        raise Mismatch(f"expected {quotes!r} before {mark!r}")
    return value


def tag_value(source: Source, call: TextCall, write: Writer, end: str, tags: Tags) -> Reading[None]:
    """The raw text of a parameter, up to its end tag; none at all if its only tag ended as `/>`."""
    if end == "/>":
        call.add('""' if write is None else write(""))
        return
    ended_by = yield from tagged_value(source, call, write, tags.ends(call))
    if ended_by != tags.value_end:
        source.unread(ended_by)
