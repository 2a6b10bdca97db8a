"""Dialects that write a call as a JSON object without marks, or with marks that prose and code also contain.

Only its keys distinguish such an object from other JSON: see `reading/bare_objects`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from penstock.dialects.dialect import LLAMA_ENDS, Block, Dialect
from penstock.dialects.reading.bare_objects import FENCED, USUAL, BareKeys, NotACall, anything, bare_call, bare_fields
from penstock.dialects.reading.call_objects import ReadCall, call_array, fields, object_calls
from penstock.dialects.reading.code_spans import FENCE
from penstock.dialects.reading.marks import CallTags, TagPair
from penstock.dialects.reading.source import Mismatch, Reading, Source


def or_text(block: Block) -> Block:
    """Returns a block that ends at an object that is not a call."""

    def read(source: Source, mark: str) -> Reading[None]:
        try:
            yield from block(source, mark)
        except NotACall:
            return

    return read


def bare_json(source: Source, mark: str) -> Reading[None]:
    """Reads `{"name": …, "arguments": {…}}`, or an array of such objects, anywhere."""
    if mark == "[":
        yield from source.space()
        yield from call_array(source, bare_call)
    else:
        yield from bare_fields(source)


def xlam(source: Source, mark: str) -> Reading[None]:
    """Reads `[{"name": …, "arguments": {…}}, …]`, bare, in a fence, or after a mark."""
    if mark == FENCE:
        yield from fenced(source, mark, USUAL)
    elif mark == "[":
        yield from bare_json(source, mark)
    else:
        yield from object_calls(source)
        yield from source.accept_spaced("[/TOOL_CALLS]", "</tool_call>")


def fenced(source: Source, mark: str, keys: BareKeys = FENCED) -> Reading[None]:
    """Reads call objects in a fence, with or without `json`. If there are none, the fence is text."""
    calls = source.call_count
    try:
        yield from source.accept("json", "JSON")
        yield from object_calls(source, partial(bare_call, keys=keys))
        yield from source.accept_spaced(FENCE)
    except Mismatch:
        if source.call_count > calls:
            raise
        source.release()


def llama3_json(source: Source, mark: str) -> Reading[None]:
    """Reads `{"name": …, "parameters": {…}}; …`, or an array of such objects.

    At the start of the text or after `<|python_tag|>` any name counts, elsewhere those of declared tools. Built-in
    calls may follow the tag too.
    """
    read = READERS[mark]
    if mark not in ("{", "["):
        yield from source.space()
        if mark and not (yield from source.sees("{", "[")):
            yield from built_in_call(source)
            while (yield from source.accept_spaced(";")):
                yield from source.space()
                yield from built_in_call(source)
            return
        mark = yield from source.expect("{", "[")
    if mark == "[":
        yield from source.space()
        yield from call_array(source, partial(from_brace, read=read))
        return
    yield from read(source)
    while separator := (yield from source.accept_spaced(";", "{")):
        if separator == ";":
            yield from source.space()
            yield from source.expect("{")
        yield from read(source)


def from_brace(source: Source, read: ReadCall) -> Reading[None]:
    yield from source.expect("{")
    yield from read(source)


_WORD = re.compile(r"\w*")


def built_in_call(source: Source) -> Reading[None]:
    """Reads `brave_search.call(query="…")`; several are separated by `;`."""
    name = yield from source.match(_WORD)
    yield from source.expect(".call(")
    call = source.begin(name)
    while not (yield from source.accept_spaced(")")):
        yield from source.space()
        call.key((yield from source.match(_WORD)))
        _ = (yield from source.accept_spaced("=")) or source.fail("expected '='")
        yield from source.space()
        if (yield from source.sees('"', "{", "[")):
            yield from source.value(call.add)
        else:
            text, mark = yield from source.upto(",", ")")
            call.add(text.strip())
            source.unread(mark)
        yield from source.accept_spaced(",")
    call.end_keys()
    source.end()


def llama3_opens(tool_names: Sequence[str]) -> tuple[str, ...]:
    """Returns the opening marks. Without declared tools, only an object at the start of the text is a call."""
    return ("<|python_tag|>", "{", "[") if tool_names else ("<|python_tag|>",)


READERS: dict[str, ReadCall] = {"": partial(bare_fields, accepts=anything), "{": bare_fields, "[": bare_fields,
                                "<|python_tag|>": fields}  # fmt: skip

FENCE_TAGS = CallTags(block=TagPair((), (FENCE,)))

DIALECTS = {
    "bare_json": Dialect(block=or_text(bare_json), opens=("{", "[")),
    "xlam": Dialect(
        block=or_text(xlam),
        opens=("[", FENCE, "[TOOL_CALLS]", "<tool_call>"),
        closes=("[/TOOL_CALLS]", "</tool_call>"),
        tags=CallTags(call=TagPair(("<tool_call>",), ("</tool_call>",)), block=TagPair((), ("[/TOOL_CALLS]", FENCE))),
    ),
    "llama3_json": Dialect(
        block=or_text(llama3_json),
        opens=llama3_opens,
        tags=CallTags(message=TagPair((), LLAMA_ENDS)),
        begins_inside=True,
    ),
    "md_json_fence": Dialect(block=or_text(fenced), opens=(FENCE,), tags=FENCE_TAGS),
}
