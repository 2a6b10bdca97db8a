"""Dialects that write a call as `call:N{k:…}`, with a token of their own for quotes and text as it is between them.

What models really write is looser: quotes as in Python, keys in quotes, parentheses for braces, a comma, a closing
brace or an opening quote left out. Where it is plain what was meant, it is read.
"""

from __future__ import annotations

import re

from msgspec import Struct

from penstock.dialects.dialect import Dialect
from penstock.dialects.reading.cursor import Mismatch, Reading
from penstock.dialects.reading.literals import AFTER_VALUE, plain_atom, string
from penstock.dialects.reading.raw_values import raw_value
from penstock.dialects.reading.schema import Schema, quote
from penstock.dialects.reading.source import Source
from penstock.dialects.reading.text_call import TextCall
from penstock.jsontext.scan import MAX_DEPTH

_NAME = re.compile(r"[\w.:/-]*")
_KEY = re.compile(r"""[^:={}\[\],<"']*""")
_BARE = re.compile(r"[^,{}\[\]<]*")
_BARE_IN_PARENTHESES = re.compile(r"[^,{}\[\]()<]*")
_CLOSERS = {"{": "}", "[": "]", "(": ")"}


class Level(Struct, frozen=True):
    """A bracket that is open, and what is known about the value that it holds."""

    bracket: str
    schema: Schema

    @property
    def closer(self) -> str:
        return _CLOSERS[self.bracket]

    @property
    def json_closer(self) -> str:
        return "]" if self.bracket == "[" else "}"


class Calls(Struct, frozen=True):
    """The tokens of a dialect; whether the schema says what a quoted value is, because all of them are quoted."""

    opens: str
    closes: str
    quote: str
    is_typed: bool = False

    def block(self, source: Source, mark: str) -> Reading[None]:
        """`call:N{k:…}`, or several of them, up to the closing token."""
        yield from self.call(source)
        while (yield from source.accept_spaced("call:")):
            yield from self.call(source)
        yield from source.accept_spaced(self.closes)

    def call(self, source: Source) -> Reading[None]:
        """A call; the word that it begins with may be missing."""
        yield from source.accept_spaced("call:", ":")
        yield from source.space()
        name = yield from source.match(_NAME)
        yield from source.space()
        bracket = yield from source.expect("{", "(")
        yield from self.arguments(source, source.begin(name), bracket)
        source.end()

    def arguments(self, source: Source, call: TextCall, bracket: str) -> Reading[None]:
        """The arguments, told as JSON. The open brackets are a list, so that a piece costs the same at every depth."""
        levels = [Level(bracket, call.schema)]
        bare = _BARE_IN_PARENTHESES if bracket == "(" else _BARE
        call.add("{")
        comma = ""
        while levels:
            if (yield from self.closes_here(source, call, levels, comma)):
                comma = ","
                continue
            call.add(comma)
            schema = yield from self.item(source, call, levels[-1])
            if bracket := (yield from source.accept("{", "[")):
                nest(call, levels, Level(bracket, schema))
            else:
                yield from self.scalar(source, call, schema, bare)
            comma = "" if bracket else ","

    def closes_here(self, source: Source, call: TextCall, levels: list[Level], comma: str) -> Reading[bool]:
        """Whether the innermost bracket closes here, or, before the closing token, all of them."""
        yield from source.space()
        if comma and (yield from source.accept(",")):
            yield from source.space()
        if (yield from source.accept(levels[-1].closer)):
            call.add(levels.pop().json_closer)
            return True
        is_end = yield from source.sees(self.closes)
        while is_end and levels:
            call.add(levels.pop().json_closer)
        return is_end

    def item(self, source: Source, call: TextCall, level: Level) -> Reading[Schema]:
        """The key of the next item, if it has one; returns what is known about its value. What is no key stays text."""
        if level.bracket == "[":
            return level.schema.items()
        source.hold()
        try:
            key = yield from self.key(source)
        except Mismatch:
            source.rewind()
            raise
        source.drop()
        call.add(quote(key) + ":")
        return level.schema.field(key)

    def key(self, source: Source) -> Reading[str]:
        """A key, in quotes of some kind or without them, and the sign after it."""
        if quotes := (yield from source.accept(self.quote, '"', "'")):
            key, _ = yield from source.upto(quotes)
        else:
            key = (yield from source.match(_KEY)).strip()
        yield from source.space()
        yield from source.expect(":", "=")
        yield from source.space()
        return key or source.fail("expected a key")

    def scalar(self, source: Source, call: TextCall, schema: Schema, bare: re.Pattern[str]) -> Reading[None]:
        """A string in quotes of some kind, or a word without them."""
        if (yield from source.accept(self.quote)):
            yield from raw_value(source, call, schema.writer if self.is_typed else None, {self.quote: ()})
            return
        if quotes := (yield from source.accept('"', "'")):
            call.add('"')
            yield from string(source, call.string, quotes, (*AFTER_VALUE, self.quote, self.closes))
            call.add('"')
            yield from source.accept(self.quote)
            return
        text = (yield from source.match(bare)).strip()
        is_string = yield from source.accept(self.quote)
        call.add(quote(text) if is_string else plain_atom(text) or quote(text or source.fail("expected a value")))


def nest(call: TextCall, levels: list[Level], level: Level) -> None:
    levels.append(level)
    if len(levels) > MAX_DEPTH:
        raise Mismatch(f"nested deeper than MAX_DEPTH ({MAX_DEPTH})")
    call.add(level.bracket)


GEMMA4 = Calls("<|tool_call>", "<tool_call|>", '<|"|>')
FUNCTIONGEMMA = Calls("<start_function_call>", "<end_function_call>", "<escape>", is_typed=True)

DIALECTS = {
    "gemma4": Dialect(
        block=GEMMA4.block,
        opens=(GEMMA4.opens,),
        tokens=(GEMMA4.closes, "<|tool_response>", "<tool_response|>", "<turn|>", "<|channel>thought<channel|>"),
        think=(("<|channel>thought\n", "<channel|>"), ("<|channel>", "<channel|>")),
    ),
    "functiongemma": Dialect(
        block=FUNCTIONGEMMA.block,
        opens=(FUNCTIONGEMMA.opens,),
        closes=(FUNCTIONGEMMA.closes, "<start_function_response>"),
        tokens=("<end_of_turn>",),
    ),
}
