"""Repairs damaged arguments of calls.

A safe repair is the only one that is possible, and changes no value: a comma too many, a code fence around the
arguments, raw control characters in strings, arguments that were sent twice or as a JSON string, brackets or quotes
after the end. All others are guesses: quotes and literals of Python, text after the end. Arguments that are cut are
never repaired: what is missing is not known.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from penstock.calls.arguments import strict_object
from penstock.events import ToolCallInvalid
from penstock.gateway.config.settings import Repair
from penstock.jsontext.controls import escape_controls

MAX_REPAIRED = 4 * 1024 * 1024
"""How many characters of arguments are looked at; longer ones are passed on as they came."""

COMMA, FENCE, CONTROL, SENT_AGAIN, CUMULATIVE, AS_STRING, TRAILING, PYTHON, OTHER = (
    171,
    172,
    41,
    36,
    37,
    43,
    44,
    173,
    46,
)
"""The numbers of the quirks that are repaired."""

_NEVER = ("cut", "unnamed", "too_large", "withdrawn", "quoted", "ambiguous")
_FENCE = re.compile(r"\s*```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?```\s*", re.DOTALL)
_TOKEN = re.compile(r'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<comma>,(?=\s*[}\]]))|[^",]++|.', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_CLOSERS = re.compile(r"[\s}\]\"]*")
_PYTHON = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\'[^\'\\]*+(?:\\.[^\'\\]*+)*+\'|\b(?:True|False|None)\b', re.DOTALL)
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_FAULTS = {"duplicated": SENT_AGAIN, "cumulative": CUMULATIVE, "double_encoded": AS_STRING}


class RepairedArguments(Struct, frozen=True):
    """Repaired arguments: their JSON text, their value, and the numbers of the quirks."""

    text: str
    arguments: dict[str, Any]
    quirks: tuple[int, ...]


def repair_arguments(call: ToolCallInvalid, mode: Repair) -> RepairedArguments | None:
    """The arguments of an invalid call, repaired; None if that is not possible, or not allowed."""
    raw = call.arguments_raw
    if mode == "off" or call.why in _NEVER or len(raw) > MAX_REPAIRED:
        return None
    for text, quirks in _safe(call) if mode == "safe" else _guesses(call):
        if (arguments := strict_object(text)) is not None and text.strip():
            return RepairedArguments(text, arguments, quirks)
    return None


def _safe(call: ToolCallInvalid) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The candidates of a safe repair, the least changed first."""
    raw, quirks = call.arguments_raw, []
    if fence := _FENCE.fullmatch(raw):
        raw, quirks = fence[1], [FENCE]
    mended = _mended(raw, quirks)
    if quirks:
        yield mended, tuple(quirks)
    if call.why in _FAULTS and call.repaired is not None:
        yield _first_value(call.arguments_raw, call.repaired), (_FAULTS[call.why],)
    if call.why == "trailing_text" and call.repaired is not None:
        end = _end_of(call.arguments_raw)
        if _CLOSERS.fullmatch(call.arguments_raw, end):
            yield call.arguments_raw[:end], (TRAILING,)


def _guesses(call: ToolCallInvalid) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _safe(call)
    quirks = [PYTHON]
    yield _mended(_PYTHON.sub(_as_json, call.arguments_raw), quirks), tuple(quirks)
    if call.repaired is not None:
        end = _end_of(call.arguments_raw)
        yield call.arguments_raw[:end], (TRAILING,)
        yield json.dumps(call.repaired, ensure_ascii=False), (OTHER,)


def _mended(text: str, quirks: list[int]) -> str:
    """The text without commas before closing brackets, and with control characters in strings escaped."""

    def mend(token: re.Match[str]) -> str:
        piece = token[0]
        if token.lastgroup == "comma":
            quirks.append(COMMA)
            return ""
        if token.lastgroup == "string" and _CONTROL.search(piece):
            quirks.append(CONTROL)
            return escape_controls(piece)
        return piece

    mended = _TOKEN.sub(mend, text)
    quirks[:] = dict.fromkeys(quirks)
    return mended


def _as_json(token: re.Match[str]) -> str:
    """A string or a literal of Python as JSON."""
    piece = token[0]
    if piece[0] != "'":
        return _LITERALS.get(piece, piece)
    try:
        return json.dumps(ast.literal_eval(escape_controls(piece)), ensure_ascii=False)
    except (ValueError, SyntaxError):
        return piece


def _first_value(raw: str, arguments: dict[str, Any]) -> str:
    """The text of the arguments if the raw text begins with it, so that the part already sent stays valid."""
    end = _end_of(raw)
    return raw[:end] if strict_object(raw[:end]) == arguments else json.dumps(arguments, ensure_ascii=False)


def _end_of(raw: str) -> int:
    """The position after the first JSON value of a text."""
    start = len(raw) - len(raw.lstrip())
    try:
        return json.JSONDecoder().raw_decode(raw, start)[1]
    except (ValueError, RecursionError):
        return len(raw)
