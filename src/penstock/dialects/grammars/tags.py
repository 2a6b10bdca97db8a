"""Dialects with calls in tags that have the names as attributes: `<invoke name="…"><parameter name="…">…`."""

from __future__ import annotations

from functools import partial

import msgspec

from penstock.dialects.dialect import Dialect
from penstock.dialects.reading.call_objects import object_calls
from penstock.dialects.reading.raw_values import Writer, json_or_text, raw_value
from penstock.dialects.reading.schema import Schema, quote
from penstock.dialects.reading.source import Reading, Source
from penstock.dialects.reading.tag_calls import Tags, invokes, named_tag, tag_block, tag_value
from penstock.dialects.reading.text_call import TextCall

# -- parameters ----------------------------------------------------------------------------------------------------


def parameter(source: Source, call: TextCall, tags: Tags) -> Reading[None]:
    """Reads a parameter with raw text in it: `name="P">raw</parameter>`."""
    write, end = yield from key_of(source, call)
    yield from tag_value(source, call, write, end, tags)


def cdata_parameter(source: Source, call: TextCall, tags: Tags) -> Reading[None]:
    """Reads a parameter with text in a CDATA section or without: `name="P"><![CDATA[raw]]></param>`."""
    write, end = yield from key_of(source, call)
    if end == ">" and (yield from source.accept_spaced("<![CDATA[")):
        call.raw_tags = tags.pairs
        yield from raw_value(source, call, write, {"]]>": (tags.value_end, tags.call_end)})
        yield from source.accept_spaced(tags.value_end)
    else:
        yield from tag_value(source, call, write, end, tags)


def key_of(source: Source, call: TextCall) -> Reading[tuple[Writer, str]]:
    """Reads the key of a parameter into the call; returns the writer of its value, and the end of the tag."""
    key, attributes, end = yield from named_tag(source)
    call.raw_key(key)
    return writer(call.schema.field(key), attributes.get("string")), end


def writer(schema: Schema, is_string: str | None) -> Writer:
    """Returns the writer of a value. The tag may have the attribute `string` (`true` or `false`).

    The attribute counts unless the schema contradicts it.
    """
    match is_string:
        case "true":
            return None if "string" in schema.types else schema.writer
        case "false":
            return partial(_json_for, schema)
        case _:
            return schema.writer


def _json_for(schema: Schema, raw: str) -> str:
    written = json_or_text(raw)
    if schema.types and schema.is_text:
        return written if written.startswith('"') else quote(raw)
    return written if written == raw.strip() else schema.write(raw)


# -- dialects ------------------------------------------------------------------------------------------------------


def dots(source: Source, mark: str) -> Reading[None]:
    """Reads `<dots_function_call>` with invokes or call objects in it."""
    yield from source.space()
    if (yield from source.sees("{", "[")):
        yield from object_calls(source)
        yield from source.accept_spaced(*DOTS.closes)
    else:
        yield from invokes(source, DOTS, mark, parameter)


_PLAIN = Tags(bare=True)
_PREFIXED = _PLAIN.prefixed("antml:")
ATEM = _PLAIN.prefixed("atem:")
ANTHROPIC = msgspec.structs.replace(_PLAIN, others=(_PREFIXED,))
ANTML = msgspec.structs.replace(_PREFIXED, others=(_PLAIN,))
DSML = Tags(bare=True, is_token=True).prefixed("｜DSML｜")
DSML_V4 = msgspec.structs.replace(DSML, opens=("<｜DSML｜tool_calls>",), closes=("</｜DSML｜tool_calls>",))
MINIMAX = Tags(opens=("<minimax:tool_call>",), closes=("</minimax:tool_call>",))
STEP = Tags(
    opens=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>"),
    call="<steptml:invoke ",
    key="<steptml:parameter ",
    value_end="</steptml:parameter>",
    call_end="</steptml:invoke>",
    closes=("<｜tool_calls_end｜>",),
    layout=("<｜tool_call_begin｜>", "function<｜tool_sep｜>", "<｜tool_sep｜>", "<｜tool_call_end｜>"),
    bare=True,
    is_token=True,
)
DOTS = Tags(opens=("<dots_function_call>",), closes=("</dots_function_call>",))
MINICPM = Tags((), "<function ", "<param ", "</param>", "</function>", (), bare=True)


def _closing(*variants: Tags) -> tuple[str, ...]:
    return tuple(mark for tags in variants for mark in (*tags.closes, tags.call_end, tags.value_end))


def _dsml(tags: Tags) -> Dialect:
    return Dialect(
        block=tag_block(parameter, tags),
        opens=tags.opening_marks,
        closes=_closing(tags),
        tags=tags.pairs,
    )


DIALECTS = {
    "anthropic_xml": Dialect(
        block=tag_block(parameter, ANTHROPIC, ANTML, ATEM),
        opens=ANTHROPIC.opening_marks + ANTML.opening_marks + ATEM.opening_marks,
        closes=_closing(ANTHROPIC, ANTML, ATEM),
        tags=msgspec.structs.replace(_PLAIN, others=(_PREFIXED, ATEM)).pairs,
    ),
    "deepseek_dsml": _dsml(DSML),
    "deepseek_dsml_v4": _dsml(DSML_V4),
    "minimax_m2": Dialect(
        block=tag_block(parameter, MINIMAX), opens=MINIMAX.opens, closes=_closing(MINIMAX), tags=MINIMAX.pairs
    ),
    "step3": Dialect(
        block=tag_block(parameter, STEP),
        opens=STEP.opening_marks,
        closes=(STEP.call_end, STEP.value_end, "<｜tool_sep｜>", "<｜tool_call_end｜>", *STEP.closes),
        tags=STEP.pairs,
    ),
    "dots": Dialect(
        block=dots, opens=DOTS.opens, closes=(DOTS.call_end, DOTS.value_end, *DOTS.closes), tags=DOTS.pairs
    ),
    "minicpm5": Dialect(
        block=tag_block(cdata_parameter, MINICPM),
        opens=MINICPM.opening_marks,
        closes=_closing(MINICPM),
        tags=MINICPM.pairs,
    ),
}
