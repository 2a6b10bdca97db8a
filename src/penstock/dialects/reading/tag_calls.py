"""Calls in tags with a name attribute: `<invoke name="…">…</invoke>`, in a block or alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from penstock.dialects.dialect import Block
from penstock.dialects.reading.marks import CallTags, TagPair
from penstock.dialects.reading.raw_values import Writer
from penstock.dialects.reading.recovery import expected, give_up, header
from penstock.dialects.reading.source import Mismatch, Reading, Source, TextEnded
from penstock.dialects.reading.tagged_values import KeyTags, ValueEnds, awaited, tagged_value
from penstock.dialects.reading.text_call import TextCall

_ATTRIBUTES = re.compile(r"[^<>\n]*")
_KEY = re.compile(r"""(?<![\w:.-])name\s*=\s*(?:"([^"]+)"|'([^']+)'|([^\s"'/]+))""")


class Tags(Struct, frozen=True):
    """The tags of a block of calls; tags with attributes end with a space.

    - `layout` are further marks that may surround each call.
    - `bare`: a call also counts if the tag that opens the block is missing.
    - `is_token`: the tags are control tokens, which are never part of a value.
    - `others` are alternative spellings of all tags.
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
        """Returns the same tags with a prefix on every tag name."""
        add_prefix = partial(re.sub, r"^(</?)", rf"\g<1>{prefix}")
        single = {field: add_prefix(getattr(self, field)) for field in ("call", "key", "value_end", "call_end")}
        opens, closes = tuple(map(add_prefix, self.opens)), tuple(map(add_prefix, self.closes))
        return msgspec.structs.replace(self, opens=opens, closes=closes, **single)

    def like(self, mark: str) -> Tags:
        """Returns the same tags, with the spelling of this mark first."""
        if mark in (*spaced(self.call), *spaced(self.key)):
            return self
        spellings = [msgspec.structs.replace(tags, others=()) for tags in self.spellings]
        first = next(tags for tags in spellings if mark in (*spaced(tags.call), *spaced(tags.key)))
        return msgspec.structs.replace(first, others=tuple(tags for tags in spellings if tags is not first))

    @property
    def spellings(self) -> tuple[Tags, ...]:
        return (self, *self.others)

    @property
    def opening_marks(self) -> tuple[str, ...]:
        return (*self.opens, *spaced(self.call)) if self.bare else self.opens

    @property
    def calls(self) -> tuple[str, ...]:
        return tuple(mark for tags in self.spellings for mark in spaced(tags.call))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(mark for tags in self.spellings for mark in spaced(tags.key))

    @property
    def call_ends(self) -> tuple[str, ...]:
        return tuple(tags.call_end for tags in self.spellings)

    @property
    def block_ends(self) -> tuple[str, ...]:
        return tuple(mark for tags in self.spellings for mark in tags.closes)

    @property
    def after(self) -> tuple[str, ...]:
        """The marks that can only follow a call: they end one without an end tag."""
        return (*self.calls, *self.block_ends, *self.layout)

    @property
    def pairs(self) -> CallTags:
        """The tags in pairs."""
        all_tags = self.spellings
        return CallTags(
            TagPair(self.keys, tuple(tags.value_end for tags in all_tags)),
            TagPair(self.calls, self.call_ends),
            TagPair(tuple(mark for tags in all_tags for mark in tags.opens), self.block_ends),
        )

    def ends(self, call: TextCall) -> ValueEnds:
        """Returns where a value of the call may end."""
        nameless = self.key.rstrip() + ">"  # a malformed tag, but not part of the value
        after = (*(f"{mark}name" for mark in self.calls), *self.block_ends, *self.layout)
        has_block = bool(self.opens and self.closes)
        return ValueEnds(
            own={self.value_end: (*self.keys, nameless, *self.call_ends, *after)},
            call_ends={self.call_end: after},
            keys=KeyTags(spaced(self.key), (">",), _KEY, awaited(call), self.is_token),
            calls=spaced(self.call),
            call_starts=(_ATTRIBUTES, (">",), (*spaced(self.key), self.call_end)),
            tags=self.pairs,
            blocks=dict.fromkeys(self.opens, (*self.calls, *self.layout)) if has_block else {},
            block_ends=self.closes if has_block else (),
        )


def spaced(tag: str) -> tuple[str, ...]:
    """Returns a tag up to its attributes, with each kind of white space that may precede them."""
    return tuple(tag[:-1] + space for space in " \n\r\t") if tag.endswith(" ") else (tag,)


Parameter = Callable[[Source, TextCall, Tags], Reading[None]]
"""Reads a parameter after `Tags.key`, up to its end. The tag is held while it is read."""


# -- calls ---------------------------------------------------------------------------------------------------------


def tag_block(parameter: Parameter, *variants: Tags) -> Block:
    """Returns the `Dialect.block` for these tags; the opening mark selects the variant."""
    by_mark = {mark: tags for tags in variants for mark in tags.opening_marks}

    def block(source: Source, mark: str) -> Reading[None]:
        yield from invokes(source, by_mark[mark], mark, parameter)

    return block


def invokes(source: Source, tags: Tags, mark: str, parameter: Parameter) -> Reading[None]:
    """Reads the calls of a block, and its end: `<invoke name="N">…</invoke></function_calls>`."""
    if mark in tags.calls:
        yield from bare_invoke(source, tags, parameter)
    elif own := (yield from next_invoke(source, tags)):
        yield from invoke_or_skip(source, own, parameter)
    else:
        source.fail(f"expected {tags.call!r}")
    while own := (yield from next_invoke(source, tags)):
        yield from invoke_or_skip(source, own, parameter)
    yield from source.accept_spaced(*tags.block_ends)


def next_invoke(source: Source, tags: Tags) -> Reading[Tags | None]:
    """Reads the opening tag of the next call up to its attributes; returns the tags in its spelling, None if none."""
    while (mark := (yield from source.accept_spaced(*tags.calls, *tags.layout))) in tags.layout:
        pass
    return tags.like(mark) if mark else None


def invoke_or_skip(source: Source, tags: Tags, parameter: Parameter) -> Reading[None]:
    """Reads a call, from its attributes. If it is malformed and only blocks contain calls, the block continues."""
    try:
        yield from invoke(source, tags, parameter)
    except Mismatch as why:
        if tags.bare or isinstance(why, TextEnded) or source.call is None:
            raise
        yield from give_up(source, why, tags.block_ends)


def invoke(source: Source, tags: Tags, parameter: Parameter) -> Reading[None]:
    """Reads a call, from its attributes: `name="N">…</invoke>`, or `name="N"/>` without arguments."""
    name, _, end = yield from named_tag(source)
    yield from invoke_body(source, source.begin(name), tags, end, parameter)


def bare_invoke(source: Source, tags: Tags, parameter: Parameter) -> Reading[None]:
    """Reads a call without a block around it. If it does not continue as a call, it is text about one."""
    name, _, end = yield from named_tag(source)
    if end == ">":
        yield from source.space()
        if not (yield from source.sees(*tags.keys, *tags.call_ends, "{")):
            source.fail(f"expected {tags.key!r} or {tags.call_end!r}")
    yield from invoke_body(source, source.begin(name), tags, end, parameter)


def invoke_body(source: Source, call: TextCall, tags: Tags, end: str, parameter: Parameter) -> Reading[None]:
    """Reads the parameters of a call, or a JSON object instead of them, and the call's end."""
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
    """Reads the end of a call, or a key instead, which is returned."""
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
    """Reads the attributes and the end of a tag: `name="N" string='true'>`, or `/>`.

    Returns the name, all attributes, and the end.
    """
    tag = attributes(source)
    return (yield from tag if source.call is None else header(source, source.call, "<", tag))


def attributes(source: Source) -> Reading[tuple[str, dict[str, str], str]]:
    """As `named_tag`. Attributes other than the name may have no value."""
    values: dict[str, str] = {}
    while not (end := (yield from source.accept_spaced(">", "/>"))):
        yield from source.space()
        key = (yield from source.match(_WORD)) or source.fail("expected an attribute")
        values[key] = ""
        if (yield from source.accept_spaced("=")):
            yield from source.space()
            values[key] = yield from attribute(source)
    if not (name := values.get("name")):
        raise Mismatch(f"a tag has no name attribute, only {values}")
    return name, values, end


def attribute(source: Source) -> Reading[str]:
    """Reads the value of an attribute, quoted or not. A quoted value contains no line break and no tag."""
    if not (quotes := (yield from source.accept('"', "'"))):
        return (yield from source.match(_UNQUOTED))
    value, mark = yield from source.upto(quotes, "\n", "<")
    if mark != quotes:
        raise Mismatch(f"expected {quotes!r} before {mark!r}")
    return value


def tag_value(source: Source, call: TextCall, write: Writer, end: str, tags: Tags) -> Reading[None]:
    """Reads the raw text of a parameter, and its end tag. If the opening tag ended with `/>`, the value is empty."""
    if end == "/>":
        call.add('""' if write is None else write(""))
        return
    mark = yield from tagged_value(source, call, write, tags.ends(call))
    if mark != tags.value_end:
        source.unread(mark)
