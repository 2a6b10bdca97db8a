"""Dialects with the name of a call between marks, followed by the JSON of its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from penstock.dialects.dialect import LLAMA_ENDS, THINK, Dialect
from penstock.dialects.reading.call_arguments import (
    NAME,
    closed_call,
    last_text,
    name_ahead,
    named_call,
    object_end,
    text_call,
)
from penstock.dialects.reading.call_objects import another, fail_if_only_declared, names_tool, object_calls
from penstock.dialects.reading.code_spans import FENCE
from penstock.dialects.reading.json import as_value, value
from penstock.dialects.reading.marks import NO_TAGS, CallTags, TagPair, marks_of
from penstock.dialects.reading.source import Mismatch, Reading, Source
from penstock.dialects.reading.text_call import TextCall
from penstock.events import Reasoning, Text

# -- sections of calls ---------------------------------------------------------------------------------------------


class Section(Struct, frozen=True):
    """The tokens around a section of calls, and around each call."""

    opens: tuple[str, ...]
    call: tuple[str, ...]
    call_end: tuple[str, ...]
    closes: tuple[str, ...]

    @property
    def tags(self) -> CallTags:
        return CallTags(call=TagPair(self.call, self.call_end), block=TagPair(self.opens, self.closes))


def calls(source: Source, tokens: Section, call: Callable[[Source], Reading[None]]) -> Reading[None]:
    """Reads the calls of a section, after the token that begins the first."""
    yield from call(source)
    yield from source.accept_spaced(*tokens.call_end)
    while (yield from source.accept_spaced(*tokens.call)):
        yield from call(source)
        yield from source.accept_spaced(*tokens.call_end)
    yield from source.accept_spaced(*tokens.closes)


def first_call(source: Source, tokens: Section, mark: str) -> Reading[None]:
    """Reads the token that begins the first call, unless the opening mark was that token."""
    if mark in tokens.opens:
        yield from source.space()
        yield from source.expect(*tokens.call)


# -- the dialects --------------------------------------------------------------------------------------------------


def mistral(source: Source, mark: str) -> Reading[None]:
    """Reads `[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{…}`, with optional id and `[ARGS]`; or call objects."""
    yield from source.space()
    if (yield from source.peek()) in ("{", "[") and not (yield from source.sees("[CALL_ID]", "[ARGS]")):
        yield from object_calls(source)
        return
    name, id = (yield from name_ahead(source)), ""
    if (yield from source.accept("[CALL_ID]")):
        id = yield from name_ahead(source)
    if not (yield from source.accept("[ARGS]")) and not (yield from source.sees("{")):
        source.fail("expected the arguments")
    yield from named_call(source, name, id, (mark,))


PYTHON_TAG = "<|python_tag|>"


def functionary_v31(source: Source, mark: str) -> Reading[None]:
    """Reads `<function=N>{…}</function>`; or `<|python_tag|>` and code up to the end, a call of `python`.

    `<function>N</function>{…}` is read, too. An object after the tag of Python or at the start of the text that names a
    declared tool is a call of that tool.
    """
    if mark == PYTHON_TAG or not mark:
        if (mark or not source.only_declared) and (yield from names_tool(source)):
            yield from object_calls(source)
            return
        if not mark:
            source.fail("expected a call")
        if not (yield from source.peek()):
            source.fail("expected code")
        yield from text_call(source, source.begin("python"), "code", partial(python_code, source))
        return
    if mark == NAME_TAG:
        yield from named_before(source)
        return
    name = yield from source.match(NAME)
    yield from source.expect(">")
    yield from source.space()
    if not (yield from source.sees("{", "</function>")):  # the dialects of `keys` have tags here
        source.fail("expected an object")
    yield from closed_call(source, name, "", ("</function>",), ("<function=",))
    yield from source.accept_spaced("</function>")


NAME_TAG = "<function>"


def named_before(source: Source) -> Reading[None]:
    """Reads `N</function>{…}`: the tags end before the arguments, so the call has no end tag."""
    name = yield from name_ahead(source)
    if source.tools and name not in source.tools:  # prose may have such tags
        raise Mismatch(f"{name!r} is not a tool")
    yield from source.expect("</function>")
    if not (yield from another(source, "{")):
        source.fail("expected the arguments")
    source.tags, source.last_closer = NO_TAGS, "</function>"
    yield from named_call(source, name, "", (NAME_TAG,))


def python_code(source: Source, sink: Callable[[str], None]) -> Reading[str]:
    """Reads code up to the end of the message."""
    return (yield from last_text(source, sink, *LLAMA_ENDS))


def solar(source: Source, mark: str) -> Reading[None]:
    """Reads `<|tool_call:begin|>ID<|tool_call:name|>N<|tool_call:args|>{…}<|tool_call:end|>`, in a section or bare."""
    yield from first_call(source, SOLAR, mark)
    yield from calls(source, SOLAR, solar_call)


def solar_call(source: Source) -> Reading[None]:
    id = yield from source.match(NAME)
    yield from source.expect("<|tool_call:name|>")
    name = yield from name_ahead(source)
    yield from source.expect("<|tool_call:args|>")
    yield from closed_call(source, name, id, SOLAR.call_end, SOLAR.call + SOLAR.closes)


SOLAR = Section(("<|tool_calls|>",), ("<|tool_call:begin|>",), ("<|tool_call:end|>",), ("<|calls|>",))
SOLAR_THINK = (("<|think|>", "<|end|>"),)
SOLAR_TOKENS = ("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")


def deepseek(source: Source, mark: str) -> Reading[None]:
    """Reads `<｜tool▁call▁begin｜>…<｜tool▁call▁end｜>`, in a section or bare."""
    yield from first_call(source, DEEPSEEK, mark)
    yield from calls(source, DEEPSEEK, deepseek_call)


def deepseek_call(source: Source) -> Reading[None]:
    """Reads `NAME<｜tool▁sep｜>{…}`; or in the older form `function<｜tool▁sep｜>NAME` and the object in a fence."""
    name = yield from name_ahead(source)
    yield from source.expect(*DEEPSEEK_SEP)
    if name != "function" or (yield from another(source, "{")):
        yield from closed_call(source, name, "", DEEPSEEK.call_end, DEEPSEEK.call + DEEPSEEK.closes)
        return
    name = yield from name_ahead(source)
    if not (yield from source.accept(f"{FENCE}json", FENCE)) and not (yield from source.sees("{")):
        source.fail("expected a fence")
    yield from closed_call(source, name, "", (FENCE, *DEEPSEEK.call_end), DEEPSEEK.call + DEEPSEEK.closes)
    yield from source.accept_spaced(FENCE)


def spellings(*tokens: str) -> tuple[str, ...]:
    """Returns DeepSeek's tokens in all their spellings: with ASCII or full-width bars, and with `_` or `▁`."""
    return tuple(f"<{bar}{blank.join(token.split())}{bar}>" for token in tokens for bar in "｜|" for blank in "▁_")


DEEPSEEK = Section(*map(spellings, ("tool calls begin", "tool call begin", "tool call end", "tool calls end")))
DEEPSEEK_SEP = spellings("tool sep")
DEEPSEEK_TOKENS = spellings(
    "tool outputs begin", "tool output begin", "tool output end", "tool outputs end", "end of sentence"
)


def kimi(source: Source, mark: str) -> Reading[None]:
    """Reads `<|tool_call_begin|>ID<|tool_call_argument_begin|>{…}<|tool_call_end|>`, in a section or bare.

    A section may begin with other text, which is dropped.
    """
    if mark in KIMI.opens:
        if not source.only_declared:
            source.hold("", mark)  # drops the opening token, which is markup even if no call follows
        noise, end = yield from source.upto(*KIMI.call, *KIMI.closes)
        if end in KIMI.closes:
            if noise.strip():
                source.unread(end)
                raise Mismatch("there is no call in the section")
            fail_if_only_declared(source)
            return
    yield from calls(source, KIMI, kimi_call)


def kimi_call(source: Source) -> Reading[None]:
    """Reads `functions.NAME:INDEX<|tool_call_argument_begin|>{…}`; everything before the token is the id."""
    id = yield from name_ahead(source)
    yield from source.expect("<|tool_call_argument_begin|>")
    name = _AROUND_NAME.sub("", id)
    if name.isdecimal() and name not in source.tools:
        name = (yield from tool_ahead(source)) or name
    yield from closed_call(source, name, id, KIMI.call_end, KIMI.call + KIMI.closes)


def tool_ahead(source: Source) -> Reading[str]:
    """Returns the only declared tool that the arguments fit, "" if there is none or several; nothing is read.

    Kimi K2 sometimes writes only the index of a call.
    """
    pieces: list[str] = []
    arguments = None
    try:
        yield from value(source, pieces.append)
        arguments = as_value("".join(pieces))
    except Mismatch:
        pass
    source.unread("".join(pieces))
    fitting = [name for name in source.tools.names if isinstance(arguments, dict) and source.tools.fit(name, arguments)]
    return fitting[0] if len(fitting) == 1 else ""


_AROUND_NAME = re.compile(r"^functions\.|:\d+$")
KIMI = Section(
    ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
    ("<|tool_call_begin|>",),
    ("<|tool_call_end|>",),
    ("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
)

# -- ReAct ---------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"[^\n]*")
OBSERVATION = "Observation:"
LABELS = ("Thought:", "Action:", OBSERVATION, "Final Answer:")


def react(source: Source, mark: str) -> Reading[None]:
    """Reads a line that begins with a label: thoughts and observations are reasoning, the final answer is text."""
    before = mark + (yield from source.space())
    label = yield from source.accept(*LABELS)
    if not label:
        source.fail("expected a label")
    while label == "Action:":
        if not (yield from react_call(source)):
            return
        mark, before = "", (yield from source.space())
        label = yield from source.accept(*LABELS)
    fail_if_only_declared(source)
    yield from source.space()
    source.drop()
    if label == "Final Answer:":
        if mark and source.output.kind is Text:  # the answer continues in another line
            source.output.add(before)
        source.output.kind = Text
        yield from source.flow(source.output.add, marks_of())
        return
    if source.output.kind is Reasoning:
        source.output.add("\n")
    source.output.kind = Reasoning


def react_call(source: Source) -> Reading[bool]:
    """Reads `NAME` and `Action Input: …` on lines of their own; an input that is not an object is text.

    Returns whether another label follows.
    """
    yield from source.space()
    name = yield from source.match(_LINE)
    if not (yield from source.accept_spaced("Action Input:")):
        source.fail("expected an action input")
    call, label = source.begin(name), (yield from source.accept_spaced(OBSERVATION))
    if label:
        call.add("{}")
        source.end()
    elif not (yield from react_object(source, call)):
        label = yield from text_call(source, call, "__arg1", partial(react_input, source))
    source.output.kind = Reasoning if label else Text
    if label:
        yield from source.space()
        return False
    return (yield from label_ahead(source))


def react_object(source: Source, call: TextCall) -> Reading[bool]:
    """Reads an input that is an object, which may be in a fence; returns False if it is not an object."""
    fence = yield from source.accept_spaced(f"{FENCE}json", FENCE)
    if not (yield from another(source, "{")):
        source.unread(fence)
        return False
    yield from value(source, call.add)
    if not fence:
        yield from object_end(source, call)
    source.end()
    if fence:
        yield from source.accept_spaced(FENCE)
    return True


def label_ahead(source: Source) -> Reading[bool]:
    """Returns whether the next line that is not blank begins with a label; nothing is read."""
    spaces = yield from source.space()
    is_label = "\n" in spaces and (yield from source.sees(*LABELS))
    source.unread(spaces)
    return is_label


def react_input(source: Source, sink: Callable[[str], None]) -> Reading[str]:
    """Reads an input that is text, up to the observation or the end of the text."""
    yield from source.space()
    if not (yield from source.peek()):
        source.fail("expected an input")
    return (yield from last_text(source, sink, f"\n{OBSERVATION}", f"\r\n{OBSERVATION}"))


DIALECTS = {
    "mistral_v11": Dialect(block=mistral, opens=("[TOOL_CALLS]",), think=(("[THINK]", "[/THINK]"), *THINK)),
    "functionary_v31": Dialect(
        block=functionary_v31,
        opens=("<function=", PYTHON_TAG, NAME_TAG),
        closes=("</function>",),
        tags=CallTags(call=TagPair(("<function=",), ("</function>",))),
        begins_inside=True,
    ),
    "solar_open": Dialect(
        block=solar,
        opens=SOLAR.opens + SOLAR.call,
        closes=SOLAR.call_end + SOLAR.closes,
        tags=SOLAR.tags,
        tokens=SOLAR_TOKENS,
        think=SOLAR_THINK,
    ),
    "deepseek_v3": Dialect(
        block=deepseek,
        opens=DEEPSEEK.opens + DEEPSEEK.call,
        closes=DEEPSEEK.call_end + DEEPSEEK.closes,
        tags=DEEPSEEK.tags,
        tokens=DEEPSEEK_TOKENS,
    ),
    "kimi_k2": Dialect(
        block=kimi,
        opens=KIMI.opens + KIMI.call,
        closes=KIMI.call_end + KIMI.closes,
        tokens=KIMI.closes,
        tags=KIMI.tags,
    ),
    "react": Dialect(block=react, opens=("\n", "\r\n"), begins_inside=True),
}
DIALECTS["deepseek_v31"] = DIALECTS["deepseek_v3"]
