"""Dialects that write a call as tags with names in them: `<invoke name="…"><parameter name="…">…`."""

from __future__ import annotations

import re
from functools import partial

from msgspec import Struct

from penstock.dialects.call import TextCall
from penstock.dialects.dialect import Block, Dialect
from penstock.dialects.raw import Ends, json_or_text, raw_value
from penstock.dialects.source import Reading, Source


class Tags(Struct, frozen=True):
    """The tags of a block of calls; those with a name in them up to the name."""

    opens: tuple[str, ...] = ("<function_calls>",)
    call: str = '<invoke name="'
    key: str = '<parameter name="'
    value_end: str = "</parameter>"
    call_end: str = "</invoke>"
    closes: tuple[str, ...] = ("</function_calls>",)

    def prefixed(self, prefix: str) -> Tags:
        """The same tags with a prefix on every tag name."""
        one = partial(re.sub, r"^(</?)", rf"\g<1>{prefix}")
        opens, closes = tuple(map(one, self.opens)), tuple(map(one, self.closes))
        return Tags(opens, one(self.call), one(self.key), one(self.value_end), one(self.call_end), closes)

    @property
    def ends(self) -> Ends:
        """Where a value ends: at its tag, or, if that was left out, at the call's."""
        return {self.value_end: (self.key, self.call_end), self.call_end: (self.call, *self.closes)}


def invokes(source: Source, tags: Tags, mark: str) -> Reading[None]:
    """The calls of a block."""
    if mark != tags.call:
        yield from source.space()
        yield from source.expect(tags.call)
    yield from invoke(source, tags)
    while (yield from source.close(tags.call)):
        yield from invoke(source, tags)
    yield from source.close(*tags.closes)


def invoke(source: Source, tags: Tags) -> Reading[None]:
    """A call, from its name on."""
    name, _ = yield from source.upto('"')
    mark = (yield from source.close(">", "/>")) or source.fail("expected the end of the tag")
    call = source.begin(name)
    if mark == ">":
        yield from source.space()
        while (yield from source.expect(tags.key, tags.call_end)) == tags.key:
            yield from parameter(source, call, tags)
            yield from source.space()
    call.end_keys()
    source.end()


def parameter(source: Source, call: TextCall, tags: Tags) -> Reading[None]:
    """A parameter, from its name on. Where it says itself whether it is a string, that counts and not the schema."""
    name, _ = yield from source.upto('"')
    attributes, _ = yield from source.upto(">")
    call.key(name)
    write = call.schema.field(name).writer
    if "string=" in attributes:
        write = None if '"true"' in attributes else json_or_text
    ended_by = yield from raw_value(source, call, write, tags.ends)
    if ended_by != tags.value_end:
        source.unread(ended_by)


def tagged(*variants: Tags) -> Block:
    """The block of a dialect that has these tags, in one of several variants."""

    def block(source: Source, mark: str) -> Reading[None]:
        tags = next(tags for tags in variants if mark in (*tags.opens, tags.call))
        yield from invokes(source, tags, mark)

    return block


def _row(*variants: Tags, bare: bool = False) -> Dialect:
    opens = tuple(mark for tags in variants for mark in (*tags.opens, *([tags.call] if bare else ())))
    closes = tuple(mark for tags in variants for mark in tags.closes)
    return Dialect(block=tagged(*variants), opens=opens, closes=closes)


ANTHROPIC = Tags()

DIALECTS = {
    "anthropic_xml": _row(ANTHROPIC, ANTHROPIC.prefixed("antml:"), bare=True),
}
