"""Dialects with calls as `call:N{k:…}`, with a special token for quotes and unescaped text between them.

Models also write Python's quotes, quoted keys, or parentheses for braces, and omit commas, closing braces or opening
quotes. All of these are read.
"""

from __future__ import annotations

import re

from msgspec import Struct

from penstock.dialects.dialect import Dialect
from penstock.dialects.reading.literals import AFTER_VALUE, NOT_ENDED, UNESCAPED, plain_atom, string
from penstock.dialects.reading.marks import CallTags, TagPair
from penstock.dialects.reading.raw_values import raw_value
from penstock.dialects.reading.schema import Schema, quote
from penstock.dialects.reading.source import Mismatch, Reading, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall
from penstock.jsontext.scan import MAX_DEPTH

_NAME = re.compile(r"[\w.:/-]*")
_KEY = re.compile(r"""[^:={}\[\],<"']*""")
_BARE = re.compile(r"[^,{}\[\]<]*")
_BARE_IN_PARENTHESES = re.compile(r"[^,{}\[\]()<]*")
_CLOSERS = {"{": "}", "[": "]", "(": ")"}


def call_word(source: Source) -> Reading[bool]:
    """Reads `call` and the colon after it, if they come next: `call:` or `call :`."""
    text = yield from source.space()
    text += yield from source.accept("call")
    is_word = text.endswith("call")
    spaces = (yield from source.space()) if is_word else ""
    if is_word and (yield from source.accept(":")):
        return True
    source.unread(text + spaces)
    return False


class Level(Struct, frozen=True):
    """An open bracket, and the schema of the value in it."""

    bracket: str
    schema: Schema

    @property
    def closer(self) -> str:
        return _CLOSERS[self.bracket]

    @property
    def json_closer(self) -> str:
        return "]" if self.bracket == "[" else "}"


class PlainStrings(Struct):
    """The strings of a call without the token for quotes: whether there are any, and whether an end was guessed."""

    are_present: bool = False
    has_guess: bool = False


class GemmaCalls(Struct, frozen=True):
    """The tokens of a dialect. `is_typed`: all values are quoted, so the schema decides about their types.

    `follows` are the tokens that may follow a block without its closing token.
    """

    opens: str
    closes: str
    quote: str
    follows: tuple[str, ...]
    is_typed: bool = False

    @property
    def tags(self) -> CallTags:
        return CallTags(call=TagPair((self.opens,), (self.closes,)))

    def block(self, source: Source, mark: str) -> Reading[None]:
        """Reads `call:N{k:…}`, or several of them, and the closing token."""
        yield from self.call(source)
        while (yield from call_word(source)):
            yield from self.call(source)
        yield from source.accept_spaced(self.closes)

    def call(self, source: Source) -> Reading[None]:
        """Reads a call; the word `call` may be missing."""
        yield from call_word(source)
        yield from source.accept_spaced(":")
        yield from source.space()
        name = yield from source.match(_NAME)
        yield from source.space()
        bracket = yield from source.expect("{", "(")
        call = source.begin(name)
        yield from self.arguments(source, call, bracket)
        if call.guess:  # what follows may be the rest of a string
            raise Mismatch(call.guess)
        source.end()

    def arguments(self, source: Source, call: TextCall, bracket: str) -> Reading[None]:
        """Reads the arguments as JSON. It does not recurse: a piece costs the same at every depth."""
        levels, plain = [Level(bracket, call.schema)], PlainStrings()
        bare = _BARE_IN_PARENTHESES if bracket == "(" else _BARE
        call.add("{")
        comma = ""
        while levels:
            if (yield from self.closes_here(source, call, levels, comma)):
                comma = ","
                continue
            call.add(comma)
            schema = yield from self.item(source, call, levels[-1], plain)
            if bracket := (yield from source.accept("{", "[")):
                nest(call, levels, Level(bracket, schema))
            else:
                yield from self.scalar(source, call, schema, bare, plain)
            comma = "" if bracket else ","
        if not (yield from self.is_followed(source)):
            if source.is_cut:
                raise TextEnded("the text was cut off before it was clear where a string of the call ends")
            call.doubt(UNESCAPED if plain.are_present else NOT_ENDED)

    def is_followed(self, source: Source) -> Reading[bool]:
        """Returns whether what may follow a call does; if not, a string of the call ended too early.

        If the text was cut before that, it is not known.
        """
        spaces = yield from source.space()
        is_end = yield from source.sees(self.closes, self.opens, "call:", "call :", *self.follows)
        if not is_end and (yield from source.ends_with(self.closes)):
            is_end = not source.is_cut
        source.unread(spaces)
        return is_end

    def closes_here(self, source: Source, call: TextCall, levels: list[Level], comma: str) -> Reading[bool]:
        """Returns whether the innermost bracket closes here; the closing token closes all of them."""
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

    def item(self, source: Source, call: TextCall, level: Level, plain: PlainStrings) -> Reading[Schema]:
        """Reads the key of the next item in an object, and returns the schema of its value."""
        if level.bracket == "[":
            return level.schema.items()
        source.hold()
        try:
            key = yield from self.key(source)
        except Mismatch:
            source.rewind()
            raise
        source.drop()
        if plain.has_guess and level.schema.keys and key not in level.schema.keys:
            call.doubt(UNESCAPED)
        call.add(quote(key) + ":")
        return level.schema.field(key)

    def key(self, source: Source) -> Reading[str]:
        """Reads a key with any quotes or without, and the colon or `=` after it."""
        if quotes := (yield from source.accept(self.quote, '"', "'")):
            key, _ = yield from source.upto(quotes)
        else:
            key = (yield from source.match(_KEY)).strip()
        yield from source.space()
        yield from source.expect(":", "=")
        yield from source.space()
        return key or source.fail("expected a key")

    def scalar(
        self, source: Source, call: TextCall, schema: Schema, bare: re.Pattern[str], plain: PlainStrings
    ) -> Reading[None]:
        """Reads a string with any quotes, or a word without."""
        if (yield from source.accept(self.quote)):
            call.raw_tags = self.tags
            yield from raw_value(source, call, schema.writer if self.is_typed else None, {self.quote: ()})
            return
        if quotes := (yield from source.accept('"', "'")):
            call.add('"')
            is_certain = yield from string(source, call.string, quotes, (*AFTER_VALUE, self.quote, self.closes))
            plain.are_present, plain.has_guess = True, plain.has_guess or not is_certain
            call.add('"')
            yield from source.accept(self.quote)
            return
        text = (yield from source.match(bare)).strip()
        if (yield from source.accept(self.quote)):  # the opening one is missing, unless this is the opening one
            call.add(quote(text))
            yield from source.space()
            if not (yield from source.sees(*AFTER_VALUE, self.closes)):
                call.doubt(UNESCAPED)
        elif atom := plain_atom(text):
            call.add(atom)
        else:
            plain.are_present = plain.has_guess = True
            call.add(quote(text or source.fail("expected a value")))


def nest(call: TextCall, levels: list[Level], level: Level) -> None:
    levels.append(level)
    if len(levels) > MAX_DEPTH:
        raise Mismatch(f"nested deeper than MAX_DEPTH ({MAX_DEPTH})")
    call.add(level.bracket)


GEMMA4 = GemmaCalls("<|tool_call>", "<tool_call|>", '<|"|>', ("<|tool_response>", "<turn|>"))
FUNCTIONGEMMA = GemmaCalls(
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    ("<start_function_response>", "<end_of_turn>"),
    is_typed=True,
)

DIALECTS = {
    "gemma4": Dialect(
        block=GEMMA4.block,
        opens=(GEMMA4.opens,),
        closes=(GEMMA4.closes,),
        tags=GEMMA4.tags,
        tokens=("<|tool_response>", "<tool_response|>", "<|channel>thought<channel|>", "<channel|>"),
        think=(("<|channel>thought\n", "<channel|>"), ("<|channel>", "<channel|>")),
    ),
    "functiongemma": Dialect(
        block=FUNCTIONGEMMA.block,
        opens=(FUNCTIONGEMMA.opens,),
        closes=(FUNCTIONGEMMA.closes, "<start_function_response>"),
        tags=FUNCTIONGEMMA.tags,
    ),
}
