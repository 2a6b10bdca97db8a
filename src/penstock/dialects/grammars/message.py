"""Dialects in which a text is a sequence of messages with recipients: a call is a message to a tool."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from penstock.dialects.dialect import THINK, Dialect
from penstock.dialects.reading.call_arguments import (
    NAME,
    json_arguments,
    last_text,
    named_call,
    rest_of_arguments,
    text_call,
)
from penstock.dialects.reading.call_objects import another, fail_if_only_declared
from penstock.dialects.reading.json import value
from penstock.dialects.reading.marks import CallTags, TagPair, marks_of
from penstock.dialects.reading.raw_values import Writer, json_or_text, raw_value
from penstock.dialects.reading.recovery import rest_of_call
from penstock.dialects.reading.source import Mismatch, Reading, Source
from penstock.dialects.reading.tag_calls import Tags, invoke_body, named_tag, next_invoke, tag_value
from penstock.dialects.reading.text_call import TextCall
from penstock.events import Reasoning, Text

# -- headers and bodies --------------------------------------------------------------------------------------------

MESSAGE = "<|message|>"
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_HEADER = re.compile(r"[^<{\n]*")


class Routing(Struct, frozen=True):
    """The tokens of a sequence of messages.

    A header begins with one of `starts`, or with one of `inside` if its first part was in the prompt. A message ends
    with one of `ends`, and with the next header if `headers_end` it. `reasoning` is the usual header of reasoning.
    """

    starts: tuple[str, ...]
    inside: tuple[str, ...]
    ends: tuple[str, ...]
    reasoning: str
    headers_end: bool = False


def header(source: Source, mark: str, routing: Routing) -> Reading[str]:
    """Reads a header, and returns its text with the opening mark. A complete one ends with `<|message|>`."""
    if mark.endswith(MESSAGE):
        return mark
    text, end = yield from source.upto(MESSAGE, "<|start|>", "{", "\n", *routing.ends)
    if end == MESSAGE:
        return mark + text + end
    source.unread(end)
    return mark + text


def recipient(text: str) -> str:
    """Returns the recipient in a header, or ""."""
    match = _RECIPIENT.search(text)
    return match[1] if match else ""


def text_message(source: Source, text: str, routing: Routing, *, is_reasoning: bool) -> Reading[None]:
    """Reads the body of a message that is not a call. Reasoning that is not separated stays text, with its marks.

    A body ends at its own end tokens. A header inside it is a quotation, unless headers end messages.
    """
    if not text.endswith(MESSAGE):
        raise Mismatch("the message is not to a tool")
    if source.only_declared or (is_reasoning and not source.splits_reasoning):
        yield from verbatim_message(source, routing, is_reasoning=is_reasoning)
        return
    source.drop()
    source.output.kind = Reasoning if is_reasoning else Text
    yield from body(source, routing, is_reasoning=is_reasoning)
    source.output.kind = Text


def verbatim_message(source: Source, routing: Routing, *, is_reasoning: bool = False) -> Reading[None]:
    """Emits a message as text, with its header and its end token."""
    source.release()
    source.output.add((yield from body(source, routing, is_reasoning=is_reasoning)))


def body(source: Source, routing: Routing, *, is_reasoning: bool = False) -> Reading[str]:
    """Emits the text of a message, and returns the token that ends it; "" before the header of the next message.

    The header of a message to a tool does not end reasoning: the model may only think about the call.
    """
    add = source.output.add
    marks = marks_of(*routing.ends, *(routing.starts if routing.headers_end else ()))
    while (mark := (yield from source.flow(add, marks))) and mark not in routing.ends:
        text = yield from source.match(_HEADER)
        end = yield from source.accept(MESSAGE)
        source.unread(text + end)
        if end and not (is_reasoning and recipient(text) not in (*PEOPLE, "self")):
            source.unread(mark)
            return ""
        add(mark)
    return mark


def end_message(source: Source, routing: Routing) -> Reading[None]:
    """Reads the end of a message with a call. Text after the call is text up to the end token or the next header."""
    if (yield from source.accept_spaced(*routing.ends)):
        return
    spaces = yield from source.space()
    is_next = (yield from source.sees(*routing.starts)) or not (yield from source.peek())
    source.unread(spaces)
    if not is_next:
        source.release()
        yield from body(source, routing)


# -- Harmony -------------------------------------------------------------------------------------------------------

HARMONY = Routing(
    starts=("<|start|>", "<|channel|>"),
    inside=(
        "to=",
        "assistant to=",
        "assistant<|channel|>",
        "final<|message|>",
        "analysis<|message|>",
        "commentary<|message|>",
    ),
    ends=("<|end|>", "<|call|>", "<|return|>"),
    reasoning="<|channel|>analysis<|message|>",
)
PLAIN_HEADERS = ("commentary to=functions.", "assistantcommentary to=functions.")
"""How the header of a call begins if the server removed its control tokens."""
PEOPLE = ("", "user", "assistant", "all")
"""Recipients that are not tools."""

_ANALYSIS = re.compile(r"(?:\A|<\|channel\|>)\s*analysis\b")
_BEFORE_OBJECT = re.compile(r"to=functions\.[^\s<]+\s*(?:(?:<\|constrain\|>)?\s*(?:json|code))?\s*\Z")


def harmony(source: Source, mark: str) -> Reading[None]:
    """Reads `<|start|>assistant<|channel|>commentary to=functions.N <|constrain|>json<|message|>{…}<|call|>`.

    The recipient may also come before the channel, and the start may be in the prompt. A message without a recipient
    is visible text, except for the analysis.
    """
    if not mark and not (mark := (yield from source.accept_spaced(*HARMONY.inside))):
        return
    text = yield from header(source, mark, HARMONY)
    name = recipient(text)
    if name in PEOPLE:
        yield from text_message(source, text, HARMONY, is_reasoning=bool(_ANALYSIS.search(text)))
    elif text.endswith(MESSAGE) or ((yield from source.sees("{")) and _BEFORE_OBJECT.search(text)):
        yield from harmony_call(source, name.removeprefix("functions."), is_plain=mark in PLAIN_HEADERS)
    else:
        source.fail(f"expected {MESSAGE!r}")


def harmony_call(source: Source, name: str, *, is_plain: bool) -> Reading[None]:
    """Reads the body of a call: a JSON object. Any other text becomes the raw arguments of an invalid call.

    If the text `is_plain`, the server has removed the control tokens, and the object is the end of the call.
    """
    call = source.begin(name)
    yield from source.space()
    if not (yield from source.peek()):
        source.fail("expected the arguments")
    if (yield from source.sees(*HARMONY.ends)):
        call.add("{}")
    elif (yield from source.sees("{")):
        yield from value(source, call.add)
        if not is_plain:
            yield from rest_of_arguments(source, call, *HARMONY.ends, *HARMONY.starts)
    else:
        source.unread((yield from rest_of_call(source, call)))
    source.end()
    yield from end_message(source, HARMONY)


# -- Muse Glimmer --------------------------------------------------------------------------------------------------

MUSE = Routing(
    starts=("<|start|>",),
    inside=("to=", "assistant to=", MESSAGE, f"assistant{MESSAGE}"),
    ends=("<|eom|>", "<|eot|>"),
    reasoning=" to=self<|message|>",
    headers_end=True,
)
ATEM = Tags().prefixed("atem:")


def muse(source: Source, mark: str) -> Reading[None]:
    """Reads `<|start|>assistant to=R<|message|>…<|eom|>`: reasoning to `self`, text to `user`, calls to a tool."""
    if not mark and not (mark := (yield from source.accept_spaced(*MUSE.inside))):
        return
    text = yield from header(source, mark, MUSE)
    name = recipient(text)
    if name in PEOPLE or name == "self" or not text.endswith(MESSAGE):
        yield from text_message(source, text, MUSE, is_reasoning=name == "self")
        return
    yield from source.space()
    if not (yield from source.accept(*ATEM.opens)):
        yield from verbatim_message(source, MUSE)
        return
    if not (yield from next_invoke(source, ATEM)):
        source.fail(f"expected {ATEM.call!r}")
    yield from muse_call(source)
    while (yield from next_invoke(source, ATEM)):
        yield from muse_call(source)
    yield from source.accept_spaced(*ATEM.closes)
    yield from end_message(source, MUSE)


def muse_call(source: Source) -> Reading[None]:
    """Reads `name="NAMESPACE.N">…</atem:invoke>`; the namespace is removed if the tool was declared without it."""
    name, _, end = yield from named_tag(source)
    if name not in source.tools and (last := name.rpartition(".")[2]) in source.tools:
        name = last
    yield from invoke_body(source, source.begin(name), ATEM, end, muse_parameter)


def muse_parameter(source: Source, call: TextCall, tags: Tags) -> Reading[None]:
    """Reads `name="P">raw</atem:parameter>`; a value without a declared type is JSON if it can be."""
    key, _, end = yield from named_tag(source)
    call.raw_key(key)
    schema = call.schema.field(key)
    yield from tag_value(source, call, schema.writer if schema.types else json_or_text, end, tags)


# -- Functionary v3.2 ----------------------------------------------------------------------------------------------

TO = ">>>"
_BLANKS = re.compile(r"[ \t\r]*")


def functionary_v32(source: Source, mark: str) -> Reading[None]:
    """Reads `>>>RECIPIENT` and a line break, then text to `all`, code to `python`, or the arguments of a tool."""
    name = yield from source.match(NAME)
    yield from source.match(_BLANKS)
    yield from source.expect("\n")
    if name == "all":
        fail_if_only_declared(source)
        return
    if not mark and source.tools and name not in source.tools:
        source.fail("expected a declared tool")
    if (yield from another(source, "{")):
        yield from named_call(source, name, ends=(TO,))
    elif name == "python" and (yield from source.peek()):
        yield from text_call(source, source.begin(name), "code", partial(code, source))
    else:
        source.fail("expected the arguments")


def code(source: Source, sink: Callable[[str], None]) -> Reading[str]:
    """Reads code up to the next line with a recipient, or to the end of the text."""
    while mark := (yield from last_text(source, sink, TO)):
        name = yield from source.match(NAME)
        blanks = yield from source.match(_BLANKS)
        if name and (yield from source.sees("\n")):
            source.unread(mark + name + blanks)
            break
        sink(mark + name + blanks)
    return mark


# -- Kimi K3 -------------------------------------------------------------------------------------------------------

SEP = "<|sep|>"
TOOLS, TOOLS_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
CALL, CALL_END = "<|open|>call ", "<|close|>call<|sep|>"
ARGUMENT, ARGUMENT_END = "<|open|>argument ", "<|close|>argument<|sep|>"
OBJECT, OBJECT_END = "<|open|>json", "<|close|>json<|sep|>"
RESPONSE, RESPONSE_END = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
ASSISTANT, ASSISTANT_END = "<|open|>message ", "<|close|>message<|sep|>"

_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
KIMI_K3 = CallTags(
    TagPair((ARGUMENT,), (ARGUMENT_END,)), TagPair((CALL,), (CALL_END,)), TagPair((TOOLS,), (TOOLS_END,))
)


def kimi_k3(source: Source, mark: str) -> Reading[None]:
    """Reads `<|open|>call tool="N" index="1"<|sep|>…<|close|>call<|sep|>`, in a section or bare."""
    if mark == ASSISTANT:
        fail_if_only_declared(source)
        yield from attributes(source)
        return
    if mark == TOOLS and not (yield from source.accept_spaced(CALL)):
        source.fail(f"expected {CALL!r}")
    yield from kimi_k3_call(source)
    while (yield from source.accept_spaced(CALL)):
        yield from kimi_k3_call(source)
    yield from source.accept_spaced(TOOLS_END)


def kimi_k3_call(source: Source) -> Reading[None]:
    """Reads a call, from its attributes; its arguments may be `<|open|>json<|sep|>{…}<|close|>json<|sep|>`."""
    call = source.begin((yield from attributes(source)).get("tool", ""))
    yield from source.space()
    if (yield from source.accept(OBJECT)):
        yield from attributes(source)
        yield from json_arguments(source, call, OBJECT_END)
        yield from source.accept_spaced(OBJECT_END)
        yield from source.space()
        yield from source.expect(CALL_END)
    else:
        while (yield from source.expect(ARGUMENT, CALL_END)) == ARGUMENT:
            yield from kimi_k3_argument(source, call)
        call.end_keys()
    source.end()


def kimi_k3_argument(source: Source, call: TextCall) -> Reading[None]:
    """Reads `key="K" type="T"<|sep|>raw<|close|>argument<|sep|>`; every value but a string is JSON."""
    tag = yield from attributes(source)
    if not (key := tag.get("key", "")):
        raise Mismatch("an argument has no key")
    call.raw_key(key)
    writers: dict[str, Writer] = {"string": None, "": call.schema.field(key).writer}
    write = writers.get(tag.get("type", ""), json_or_text)
    call.raw_tags = KIMI_K3
    yield from raw_value(source, call, write, {ARGUMENT_END: (ARGUMENT, CALL_END)})


def attributes(source: Source) -> Reading[dict[str, str]]:
    """Reads the attributes of a tag, and its end: `tool="N" index="1"<|sep|>`."""
    header, end = yield from source.upto(SEP, "\n")
    if end != SEP:
        raise Mismatch(f"a line ended before {SEP!r}")
    return {key: text.replace("&quot;", '"').replace("&amp;", "&") for key, text in _ATTRIBUTE.findall(header)}


DIALECTS = {
    "harmony": Dialect(
        block=harmony,
        opens=(*HARMONY.starts, HARMONY.reasoning, *PLAIN_HEADERS),
        tags=CallTags(message=TagPair(HARMONY.starts[:1], HARMONY.ends)),
        tokens=HARMONY.ends,
        think=((HARMONY.reasoning, HARMONY.ends[0]),),
        begins_inside=True,
    ),
    "muse_glimmer": Dialect(
        block=muse,
        opens=(*MUSE.starts, MUSE.reasoning),
        closes=(*ATEM.closes, ATEM.call_end, ATEM.value_end),
        tags=msgspec.structs.replace(ATEM.pairs, message=TagPair(MUSE.starts, MUSE.ends)),
        tokens=MUSE.ends,
        think=((MUSE.reasoning, MUSE.ends[0]),),
        begins_inside=True,
    ),
    "functionary_v32": Dialect(block=functionary_v32, opens=(TO,), begins_inside=True),
    "kimi_k3": Dialect(
        block=kimi_k3,
        opens=(TOOLS, CALL, ASSISTANT),
        closes=(CALL_END, ARGUMENT_END, OBJECT_END, TOOLS_END),
        tags=KIMI_K3,
        tokens=(RESPONSE, RESPONSE_END, ASSISTANT_END),
        think=(("<|open|>think<|sep|>", "<|close|>think<|sep|>"), *THINK),
    ),
}
