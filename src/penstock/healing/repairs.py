"""Repairs damaged arguments of calls, by one table of rules.

The rule of all repairs is *exactly one reading*. A safe rule takes away or escapes what cannot belong to the arguments
and changes no value. All ways to apply the safe rules to a text are tried, and it is repaired only if all that lead to
a strict JSON object lead to the same one. A guess is the likeliest of several readings. Arguments that are cut are
never repaired: what is missing is not known.

`docs/healing.md` has this table, written by `python -m tests.reference_tables`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.calls.arguments import strict_object
from penstock.events import Fault, StreamChunk, ToolCallInvalid
from penstock.healing.settings import Repair
from penstock.jsontext.controls import escape_controls

MAX_REPAIRED = 4 * 1024 * 1024
"""How many characters of arguments are looked at; longer ones are passed on as they came."""

COMMA, FENCE, CONTROL, SENT_AGAIN, CUMULATIVE, AS_STRING, TRAILING, PYTHON, OTHER, EMPTY_FIRST = (
    171,
    172,
    41,
    36,
    37,
    43,
    44,
    173,
    46,
    180,
)
"""The numbers of the quirks that are repaired."""

_NEVER: tuple[Fault, ...] = ("cut", "unnamed", "too_large", "withdrawn", "quoted", "ambiguous")
_FENCE = re.compile(r"\s*```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?```\s*", re.DOTALL)
_EMPTY = re.compile(r"(?P<space>\s*+)(?:\{\s*+\}\s*+)++(?=[{\"`])")
# A string without an end goes up to the end of the text: tried again at each quote in it, it would be quadratic.
_TOKEN = re.compile(r'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"?)|(?P<comma>,(?=\s*[}\]]))|[^",]++|.', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_END_MARKS = re.compile(r"(?:[\s}\]\"]|```|</[A-Za-z_][\w.:-]{0,63}>|<[|｜][^<>|｜\s]{1,63}[|｜]>|\[/[A-Z_]{1,63}\])*+")
_PYTHON = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|\'[^\'\\]*+(?:\\.[^\'\\]*+)*+\'?|\b(?:True|False|None)\b', re.DOTALL
)
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_lenient = json.JSONDecoder(strict=False)


class RepairedArguments(Struct, frozen=True):
    """Repaired arguments: their JSON text, their value, and the numbers of the quirks."""

    text: str
    arguments: dict[str, Any]
    quirks: tuple[int, ...]


class RepairRule(Struct, frozen=True):
    """A row of the table: a damage, what its text must mean, and the function that repairs it.

    `apply` gets the invalid call and its text so far, which other rules may have changed; it returns None if the text
    does not have this damage.
    """

    quirk: int
    mode: Literal["safe", "guess"]
    damage: str
    reading: str
    apply: Callable[[ToolCallInvalid, str], str | None]


def repair_arguments(call: ToolCallInvalid, mode: Repair, sent: str = "") -> RepairedArguments | None:
    """The arguments of an invalid call, repaired; None if that is not possible, or not allowed.

    `sent` is the beginning of the arguments that a reader has already; their text must continue it.
    """
    raw = call.arguments_raw
    if mode == "off" or call.why in _NEVER or len(raw) > MAX_REPAIRED:
        return None
    readings = [*_safe_readings(call)]
    if not readings and mode == "guess":
        readings = [*_guesses(call)][:1]
    if len({json.dumps(one.arguments, sort_keys=True) for one in readings}) != 1:
        return None
    return next(filter(None, (_continuing(one, sent) for one in readings)), None)


def _continuing(reading: RepairedArguments, sent: str) -> RepairedArguments | None:
    """The reading, if its text continues what was sent; white space after the object may have been sent, too."""
    if reading.text.startswith(sent):
        return reading
    is_more = sent.startswith(reading.text) and not sent[len(reading.text) :].strip()
    return replace(reading, text=sent) if is_more else None


def with_repairs(chunks: list[StreamChunk]) -> list[StreamChunk]:
    """The events, with `repaired` arguments of invalid calls where any rule finds some: the fault decides further."""
    if ToolCallInvalid not in map(type, chunks):
        return chunks
    return [_with_repair(chunk) if isinstance(chunk, ToolCallInvalid) else chunk for chunk in chunks]


def _with_repair(call: ToolCallInvalid) -> ToolCallInvalid:
    if call.repaired is not None or call.kind != "function":
        return call
    repair = repair_arguments(call, "guess")
    return call if repair is None else replace(call, repaired=repair.arguments)


def _safe_readings(call: ToolCallInvalid) -> Iterator[RepairedArguments]:
    """Every strict object that safe rules lead to, those with the fewest rules first."""
    paths: list[tuple[str, tuple[int, ...]]] = [(call.arguments_raw, ())]
    seen = {call.arguments_raw}
    for text, quirks in paths:
        if quirks and text.strip() and (arguments := strict_object(text)) is not None:
            yield RepairedArguments(text, arguments, quirks)
            continue
        for rule in SAFE:
            if rule.quirk not in quirks and (changed := rule.apply(call, text)) is not None and changed not in seen:
                seen.add(changed)
                paths.append((changed, (*quirks, rule.quirk)))


def _guesses(call: ToolCallInvalid) -> Iterator[RepairedArguments]:
    """The strict objects that a guess leads to, the likeliest first; safe rules may complete it."""
    for rule in GUESSES:
        if (text := rule.apply(call, call.arguments_raw)) is None:
            continue
        if (arguments := strict_object(text)) is not None and text.strip():
            yield RepairedArguments(text, arguments, (rule.quirk,))
        else:
            for reading in _safe_readings(replace(call, arguments_raw=text)):
                yield RepairedArguments(reading.text, reading.arguments, (rule.quirk, *reading.quirks))


# The functions of the rules.


def _without_fence(_call: ToolCallInvalid, text: str) -> str | None:
    fence = _FENCE.fullmatch(text)
    return fence[1] if fence else None


def _without_empty_object(_call: ToolCallInvalid, text: str) -> str | None:
    empty = _EMPTY.match(text)
    return empty["space"] + text[empty.end() :] if empty else None


def _out_of_string(_call: ToolCallInvalid, text: str) -> str | None:
    text = text.strip()
    if not text.startswith('"'):
        return None
    try:
        value = _lenient.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _without_end_marks(_call: ToolCallInvalid, text: str) -> str | None:
    end = _end_of(text)
    return text[:end] if end and text[end:].strip() and _END_MARKS.fullmatch(text, end) else None


def _once(call: ToolCallInvalid, text: str) -> str | None:
    return _first_value(text, call.repaired) if call.why == "duplicated" and call.repaired is not None else None


def _last_piece(call: ToolCallInvalid, text: str) -> str | None:
    return _first_value(text, call.repaired) if call.why == "cumulative" and call.repaired is not None else None


def _without_commas(_call: ToolCallInvalid, text: str) -> str | None:
    changed = _TOKEN.sub(lambda token: "" if token.lastgroup == "comma" else token[0], text)
    return changed if changed != text else None


def _with_escapes(_call: ToolCallInvalid, text: str) -> str | None:
    if not _CONTROL.search(text):
        return None
    changed = _TOKEN.sub(lambda token: escape_controls(token[0]) if token.lastgroup == "string" else token[0], text)
    return changed if changed != text else None


def _from_python(_call: ToolCallInvalid, text: str) -> str | None:
    changed = _PYTHON.sub(_as_json, text)
    return changed if changed != text else None


def _before_text(call: ToolCallInvalid, text: str) -> str | None:
    return text[: _end_of(text)] if call.repaired is not None else None


def _as_diagnosed(call: ToolCallInvalid, _text: str) -> str | None:
    return None if call.repaired is None else json.dumps(call.repaired, ensure_ascii=False)


def _as_json(token: re.Match[str]) -> str:
    """A string or a literal of Python as JSON."""
    piece = token[0]
    if piece[0] != "'":
        return _LITERALS.get(piece, piece)
    import ast  # seldom needed

    try:
        return json.dumps(ast.literal_eval(escape_controls(piece)), ensure_ascii=False)
    except (ValueError, SyntaxError):
        return piece


def _first_value(raw: str, arguments: dict[str, Any]) -> str:
    """The text of the arguments if the raw text begins with it, so that the part already sent stays valid."""
    end = _end_of(raw)
    return raw[:end] if strict_object(raw[:end]) == arguments else json.dumps(arguments, ensure_ascii=False)


def _end_of(raw: str) -> int:
    """The position after the JSON value with which a text begins; 0 if there is none."""
    start = len(raw) - len(raw.lstrip())
    try:
        return _lenient.raw_decode(raw, start)[1]
    except (ValueError, RecursionError):
        return 0


REPAIRS = (
    RepairRule(
        FENCE, "safe", "a Markdown code fence around the arguments", "the text between the fences", _without_fence
    ),
    RepairRule(
        EMPTY_FIRST, "safe", "an empty object first, then the arguments: `{}{\"city\": \"Rome\"}`",
        "the object after it, because an empty object says nothing", _without_empty_object,
    ),
    RepairRule(
        AS_STRING, "safe", "a JSON string that contains the object (double encoding)", "the object in the string",
        _out_of_string,
    ),
    RepairRule(
        TRAILING, "safe",
        "brackets, quotes or end marks after the object: `}`, `</tool_call>`, `<|im_end|>`, a code fence",
        "the object, because none of these can begin a value", _without_end_marks,
    ),
    RepairRule(SENT_AGAIN, "safe", "the same object several times", "the object, once", _once),
    RepairRule(CUMULATIVE, "safe", "pieces that each repeat all earlier ones", "the last piece", _last_piece),
    RepairRule(COMMA, "safe", "a comma before a closing bracket", "no comma", _without_commas),
    RepairRule(
        CONTROL, "safe", "raw control characters in strings, such as line ends",
        "the same characters, escaped; a backslash before one stays", _with_escapes,
    ),
    RepairRule(
        PYTHON, "guess", "the notation of Python: single quotes, `True`, `False`, `None`", "the same values in JSON",
        _from_python,
    ),
    RepairRule(TRAILING, "guess", "other text after the object", "the object", _before_text),
    RepairRule(
        OTHER, "guess", "half of a surrogate pair in a string", "the replacement character instead of it", _as_diagnosed
    ),
)  # fmt: skip
"""The rules: all repairs of arguments, wherever they are made."""

SAFE = tuple(rule for rule in REPAIRS if rule.mode == "safe")
GUESSES = tuple(rule for rule in REPAIRS if rule.mode == "guess")
