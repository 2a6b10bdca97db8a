"""Dialects with a call as a JSON object between marks: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from __future__ import annotations

import re
from functools import partial

from penstock.dialects.dialect import THINK, Dialect
from penstock.dialects.reading.call_objects import (
    Keys,
    ReadCall,
    arguments,
    call_array,
    fail_if_only_declared,
    object_call,
    object_calls,
    object_end_ahead,
    tagged_objects,
)
from penstock.dialects.reading.json import colon, short_string
from penstock.dialects.reading.marks import CallTags, TagPair
from penstock.dialects.reading.raw_values import raw_value
from penstock.dialects.reading.source import Reading, Source

# -- a tag, and call objects ---------------------------------------------------------------------------------------


def tagged(source: Source, mark: str) -> Reading[None]:
    """Reads `<tool_call>{"name": …, "arguments": {…}}</tool_call>`; another opening tag also closes the block."""
    yield from tagged_objects(source, mark, CLOSERS.get(mark, ()), READERS.get(mark, object_call))


def functools(source: Source, mark: str) -> Reading[None]:
    """Reads `functools[{"name": …, "arguments": {…}}, …]`."""
    yield from source.space()
    yield from call_array(source, object_call)


def internlm2(source: Source, mark: str) -> Reading[None]:
    """Reads `<|action_start|><|plugin|>{"name": …, "parameters": {…}}<|action_end|>`."""
    yield from source.space()
    yield from source.expect("<|plugin|>")
    yield from object_calls(source)
    yield from source.accept_spaced("<|action_end|>")


def gigachat3(source: Source, mark: str) -> Reading[None]:
    """Reads `<|function_call|>{"name": …, "arguments": {…}}`, or a message with the header `function call`."""
    if mark == "<|message_sep|>":
        if not (yield from source.accept_spaced("function call")):
            fail_if_only_declared(source)
            return  # the end of another message
        yield from source.accept_spaced("<|role_sep|>")
    yield from object_calls(source)


def cohere_r_plus(source: Source, mark: str) -> Reading[None]:
    """Reads `Action:`, and in a fence `[{"tool_name": …, "parameters": {…}}, …]`."""
    yield from source.space()
    yield from source.expect("```")
    yield from source.accept("json")
    yield from object_calls(source, partial(object_call, keys=COHERE))
    yield from source.accept_spaced("```")


# -- names as keys -------------------------------------------------------------------------------------------------


def apertus(source: Source, mark: str) -> Reading[None]:
    """Reads `<|tools_prefix|>[{"NAME": {…}}, …]<|tools_suffix|>`."""
    yield from object_calls(source, named_values)
    yield from source.accept_spaced("<|tools_suffix|>")


def named_values(source: Source) -> Reading[None]:
    """Reads `{"NAME": {…}}`: each key is the name of a call, and its value the arguments."""
    separator = yield from source.expect("{")
    while separator != "}":
        yield from source.space()
        name = yield from short_string(source)
        yield from colon(source)
        yield from arguments(source, source.begin(name))
        separator = (yield from source.accept_spaced(",", "}")) or source.fail("expected the end of a call")
        if separator == "}":
            yield from object_end_ahead(source)
        source.end()


# -- answers -------------------------------------------------------------------------------------------------------

GRANITE_OPENS = ("<|tool_call|>", "<tool_call>")


def granite3(source: Source, mark: str) -> Reading[None]:
    """Reads `<|tool_call|>[…]`; or `<response>…</response>`, which is markup only around the answer."""
    if mark in GRANITE_OPENS:
        yield from tagged(source, mark)
        return
    fail_if_only_declared(source)
    if mark == "<response>":
        if source.output.has_answer:
            source.fail("expected the start of the answer")
        return
    spaces = yield from source.space()
    if (yield from source.peek()) and not (yield from source.sees(*GRANITE_OPENS, "<|end_of_text|>")):
        source.fail("expected the end of the answer")
    source.unread(spaces)


# -- messages ------------------------------------------------------------------------------------------------------

_HEADER = re.compile(r"[\w.:/-]*")
_INVOKES = ("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>")
_KINDS = ("<|content_text|>", "<|content_thinking|>", "<|content_tool_error|>", "<|content_xml|>", "<|content_image|>",
          "<|content_audio_input|>")  # fmt: skip
_MESSAGE_ENDS = ("<|end_message|>", "<|content_model_end_sampling|>")
_MESSAGES = ("<|message_user|>", "<|message_system|>", "<|message_tool|>", "<|audio_end|>", *_MESSAGE_ENDS)


def inkling(source: Source, mark: str) -> Reading[None]:
    """Reads `<|message_model|>NAME<|content_invoke_tool_json|>{"name": …, "args": {…}}<|end_message|>`."""
    if not source.only_declared:
        source.hold()  # drops the opening mark, which is markup even if no call follows
    name, kind = "", mark
    if mark not in _INVOKES:
        name = yield from source.match(_HEADER)
        kind = yield from source.accept(*_INVOKES)
    if not kind:
        fail_if_only_declared(source)
        if not (yield from source.sees(*_KINDS)):
            source.release()
        elif not source.splits_reasoning:
            yield from source.accept("<|content_thinking|>")
        return
    if not source.only_declared:
        source.hold(name, name + kind)
    if kind == "<|content_invoke_tool_json|>":
        yield from source.space()
        yield from object_call(source, INKLING, name)
        yield from source.accept_spaced(*_MESSAGE_ENDS)
    else:
        call = source.begin(name)
        call.key("input")
        yield from raw_value(source, call, None, dict.fromkeys(_MESSAGE_ENDS, ()))
        call.end_keys()
        source.end()


# -- the tables ----------------------------------------------------------------------------------------------------

HERMES = Keys(("name", "tool_name"))
COHERE = Keys(
    ("tool_name", "name"),
    ("parameters", "arguments"),
    ("tool_call_id",),
    no_calls=("directly-answer", "directly_answer"),
)
INKLING = Keys(("name",), ("args", "arguments"))
GRANITE_20B = Keys(no_calls=("no_function",))

BRACKETS = "[TOOL_CALLS]"
"""A mark whose closing mark is mostly missing."""
CLOSERS = {
    "<tool_call>": ("</tool_call>",),
    "<tool_calls>": ("</tool_calls>",),
    "<TOOLCALL>": ("</TOOLCALL>",),
    BRACKETS: ("[/TOOL_CALLS]",),
    "<|START_ACTION|>": ("<|END_ACTION|>",),
}
READERS: dict[str, ReadCall] = {
    "<tool_call>": partial(object_call, keys=HERMES),
    "<function_call>": partial(object_call, keys=GRANITE_20B),
    "<|START_ACTION|>": partial(object_call, keys=COHERE),
}
RESPONSE = ("<response>\n", "<response>", "\n</response>", "</response>")
COHERE_TURNS = ("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
COHERE_ANSWERS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
FENCED = CallTags(block=TagPair((), ("```",)))
APRIEL = ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")


def _row(opening: str, *, tokens: tuple[str, ...] = (), think: tuple[tuple[str, str], ...] = THINK) -> Dialect:
    closes = CLOSERS.get(opening, ())
    tags = CallTags(block=TagPair((opening,) if opening != BRACKETS else (), closes))
    return Dialect(block=tagged, opens=(opening,), closes=closes, tags=tags, tokens=tokens, think=think)


DIALECTS = {
    "hermes": _row("<tool_call>"),
    "ernie45": _row("<tool_call>", tokens=RESPONSE),
    "tool_calls_json_array": _row("<tool_calls>", think=(*THINK, APRIEL), tokens=("[END FINAL RESPONSE]",)),
    "minimax_m1": _row("<tool_calls>"),
    "nemotron_v2": _row("<TOOLCALL>"),
    "granite3": Dialect(
        block=granite3,
        opens=(*GRANITE_OPENS, "<response>", "</response>"),
        closes=("</tool_call>",),
        tags=CallTags(block=TagPair(("<tool_call>",), ("</tool_call>",))),
    ),
    "granite_20b": _row("<function_call>"),
    "mistral_array": _row("[TOOL_CALLS]"),
    "cohere_action": _row(
        "<|START_ACTION|>",
        tokens=COHERE_ANSWERS + COHERE_TURNS,
        think=(("<|START_THINKING|>", "<|END_THINKING|>"),),
    ),
    "cohere_r_plus": Dialect(block=cohere_r_plus, opens=("Action:",), tags=FENCED, tokens=COHERE_TURNS),
    "functools": Dialect(block=functools, opens=("functools[",)),
    "internlm2": Dialect(
        block=internlm2,
        opens=("<|action_start|>",),
        closes=("<|action_end|>",),
        tags=CallTags(block=TagPair(("<|action_start|>",), ("<|action_end|>",))),
    ),
    "gigachat3": Dialect(
        block=gigachat3,
        opens=("<|function_call|>", "<|message_sep|>", "function call<|role_sep|>"),
        tags=CallTags(block=TagPair((), ("<|message_sep|>",))),
        tokens=("<|role_sep|>",),
    ),
    "apertus": Dialect(
        block=apertus,
        opens=("<|tools_prefix|>",),
        closes=("<|tools_suffix|>",),
        tags=CallTags(block=TagPair(("<|tools_prefix|>",), ("<|tools_suffix|>",))),
        tokens=("<|assistant_start|>", "<|assistant_end|>"),
        think=(("<|inner_prefix|>", "<|inner_suffix|>"),),
    ),
    "inkling": Dialect(
        block=inkling,
        opens=("<|message_model|>", *_INVOKES),
        tags=CallTags(block=TagPair((), _MESSAGE_ENDS)),
        tokens=_KINDS + _MESSAGES,
        think=(("<|content_thinking|>", "<|end_message|>"),),
        begins_inside=True,
    ),
}
