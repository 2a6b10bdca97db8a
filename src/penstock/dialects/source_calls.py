"""Finds calls of a tool in a text of the conversation, in any dialect or notation.

The text is somebody else's: it may open marks that it never closes, so every call is looked for from its name. The
marks, braces and parentheses around a name are read independently, each with the readers of the dialects:

| notation | example | read by |
|---|---|---|
| inside the marks of a dialect | `<invoke name="pay">…` | the dialects, from the marks before the name |
| a JSON call object, in any order | `{"arguments": {…}, "name": "pay"}` | the objects around the name |
| arguments after the name | `Action: pay` and `Action Input: {…}` | the object after the name |
| attributes | `<pay to="bob"/>` | the attributes after the name |
| plain notation | `pay(to="bob")` | the parentheses after the name |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from penstock.dialects.folding import clean, fold, plain
from penstock.dialects.lenient_values import MAX_VALUE, read_value
from penstock.events import Finish, StreamChunk, Text, ToolCall, ToolCallInvalid

MIN_VALUE = 12
"""How many characters make a value distinctive."""
MAX_PARSED = 2_000_000
"""How many characters are parsed for the calls of one request. A call for which these do not suffice is quoted."""

_BEFORE = 400  # how far before a name its mark may be
_CLOSE = 120  # how far before a name a key that belongs to it may begin
_AROUND = 4096  # how far before a name the object that contains it may begin
_AFTER = 160  # how far after a name its arguments may begin
_MARKS = 6  # how many marks before a name are tried, the nearest ones
_SLOWER = 8  # how much longer the dialects take for a text than the readers of values
_PLACE = 20  # what it costs to look at a place with a name
_PIECE = 1024  # how much of a text a dialect gets at once

_NAME_KEYS = ("name", "tool", "tool_name", "toolname", "function", "function_name", "functionname", "action", "call",
              "method", "recipient_name", "recipient")  # fmt: skip
_ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "action_input", "tool_input", "toolinput",
                  "kwargs", "argument", "payload", "partial_json")  # fmt: skip
_OTHER_KEYS = frozenset({"id", "type", "tool_call_id", "call_id", "index", "tool_use_id", "status", "object"})
_ATTRIBUTE = re.compile(r"""\s+[\w:.-]+\s*=\s*("[^"<]{0,4096}"|'[^'<]{0,4096}')""")
_REACT = re.compile(r"\baction\s*:\s*[`*\"']*\Z", re.IGNORECASE)
_IN_OBJECT = re.compile(
    r"""(?:name|tool|function|action|call|method|recipient)["'`\\]{0,3}\s{0,8}[:=]\s{0,8}["'`\\]{0,3}(?:[\w-]{1,40}[.:/])?\Z""",
    re.IGNORECASE,
)
_AFTER_KEY = frozenset(":=./")  # after which a name may be the value of a key
_BLANKS = " \t\r\n\"'`\\"
_QUOTES = ('"', "'", "`", "{ ", "{")
_AS_KEY = re.compile(r"""["'`\\]{0,3}\s{0,8}[:=]\s{0,8}[\[{]""")
_MARK = re.compile(r"[<>\[\]|]")
_BRACE_AFTER = re.compile(r"[^{}();]{0,120}\{")
_LISTED = re.compile(r"\[\s{0,8}(?:[\w.]+\([^\[\]]{0,300}\)\s{0,8},\s{0,8})?\Z")  # `[pay(…), pay(…)]` is a dialect
_PROSE = re.compile(r"\w[,.;:]?\s+\Z")
_BRACES = re.compile(r"[{}]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:[_ ]\d+)*|\d{1,3}(?:,\d{3})+)(?:\.\d*)?(?:e[+-]?\d{1,3})?|0x[0-9a-f]{1,16}")


class SourceCall(NamedTuple):
    """A call in a text: its values, whether it is in plain notation, and whether a value of it is distinctive."""

    values: frozenset[str]
    is_plain: bool
    is_long: bool


class Work:
    """How much may still be parsed for one request."""

    def __init__(self) -> None:
        self.left = MAX_PARSED

    def spend(self, characters: int) -> None:
        self.left -= characters + 32


class WorkExceeded(Exception):
    """A text has too many beginnings of calls."""


# -- values --------------------------------------------------------------------------------------------------------


def values_of(arguments: Any) -> frozenset[str]:
    """The values of arguments at any depth, except empty ones, in a form that is equal however they are written."""
    return frozenset(filter(None, map(_canonical, leaves(arguments))))


def wide_values_of(arguments: Any) -> frozenset[str]:
    """The values, also of JSON within strings."""
    values = set(values_of(arguments))
    for leaf in leaves(arguments):
        if isinstance(leaf, str) and leaf.lstrip().startswith(("{", "[")):
            try:
                values |= values_of(json.loads(leaf, strict=False))
            except (ValueError, RecursionError):
                continue
    return frozenset(values)


def leaves(value: Any) -> Iterator[Any]:
    """Yields the values inside a value that are neither an object nor a list."""
    pending = [value]
    while pending:
        match pending.pop():
            case Mapping() as fields:
                pending.extend(fields.values())
            case list() | tuple() as items:
                pending.extend(items)
            case leaf:
                yield leaf


def _canonical(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).casefold()
        case int() | float():
            return _number(value)
        case _:
            text = plain(str(value)).strip()
            number = text.strip("\"'` ")
            if len(number) < 400 and _NUMBER.fullmatch(number):
                return _number(_parsed_number(number))
            return fold(text) or text


def _parsed_number(text: str) -> int | float:
    digits = re.sub(r"[_ ,]", "", text)
    if digits.startswith("0x"):
        return int(digits, 16)
    return int(digits) if digits.lstrip("+-").isdigit() else float(digits)


def _number(value: int | float) -> str:
    """A number in one form: 5, 5.0 and 5e0 are equal."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e300
    number = int(value) if is_whole else value
    try:
        return repr(number)
    except ValueError:  # more digits than Python converts
        return hex(int(number))


def is_word(name: str) -> bool:
    """Whether the name of a tool is an ordinary word, which a text has for other reasons too."""
    return name.isalpha() and (name.islower() or name.istitle())


# -- calls ---------------------------------------------------------------------------------------------------------


def passages(text: str, name: str) -> Iterator[str]:
    """Yields the parts of a text that may contain a call of the tool."""
    start, end = 0, -1
    for match in _occurrences(text, name):
        if match.start() - _AROUND > end:
            if end >= 0:
                yield text[start:end]
            start = max(0, match.start() - _AROUND)
        end = min(len(text), match.end() + MAX_VALUE)
    if end >= 0:
        yield text[start:end]


def _occurrences(text: str, name: str) -> Iterator[re.Match[str]]:
    """Finds the name of a tool as a whole word, in any case."""
    return re.finditer(rf"(?<!\w){re.escape(clean(name))}(?!\w)", text, re.IGNORECASE)


def calls_in(text: str, name: str, work: Work) -> set[SourceCall]:
    """Returns the calls of a tool in a text; raises `WorkExceeded` if there are too many beginnings of calls."""
    calls: set[SourceCall] = set()
    for match in _occurrences(text, name):
        if work.left < 0:
            raise WorkExceeded
        for arguments, is_plain in _calls_at(text, match.start(), match.end(), name, work):
            calls.add(_source_call(arguments, is_plain))
    return calls


def _source_call(arguments: Any, is_plain: bool) -> SourceCall:
    is_long = any(len(str(leaf)) >= MIN_VALUE for leaf in leaves(arguments) if leaf is not None)
    return SourceCall(values_of(arguments), is_plain, is_long)


def _calls_at(text: str, start: int, end: int, name: str, work: Work) -> Iterator[tuple[Any, bool]]:
    """Yields the arguments of the calls whose name is at this place, and whether they are in plain notation."""
    work.left -= _PLACE
    before, after = text[max(0, start - _BEFORE) : start], text[end : end + _AFTER]
    if _is_in_object(before) or (before.endswith(_QUOTES) and _AS_KEY.match(after)):
        for found in _objects_around(text, start, work):
            if (arguments := _arguments_in(found, name)) is not None:
                yield arguments, False
    if (plain_notation := re.match(r"[`\"'*\\]{0,3}\s{0,4}\(", after)) is not None:
        if (read := _read(text, end + plain_notation.end() - 1, work)) is not None:
            yield read, "[" not in before or not _LISTED.search(before)
    elif "{" in after and (read := _object_after(text, end, before, name, work)) is not None:
        marks = text[end : text.index("{", end)]  # as in `NAME[ARGS]{…}`
        yield read, not _REACT.search(before[-_CLOSE:]) and not _MARK.search(marks)
    if before.rstrip().endswith("<") and (found := list(_attributes(text, end, work))):
        yield found, False
    yield from ((arguments, False) for arguments in _dialect_calls(text, start, name, work))


def _is_in_object(before: str) -> bool:
    """Whether a name after this text is the value of a key, as in a call object."""
    return before.rstrip(_BLANKS)[-1:] in _AFTER_KEY and _IN_OBJECT.search(before[-_CLOSE:]) is not None


def _read(text: str, start: int, work: Work) -> Any:
    value, end = read_value(text, start)
    work.spend(end - start)
    return value


def _object_after(text: str, end: int, before: str, name: str, work: Work) -> Any:
    """The object that follows a name soon; None after an ordinary word in a sentence."""
    brace = _BRACE_AFTER.match(text, end)
    before = before[-_CLOSE:]
    if brace is None or (is_word(name) and _PROSE.search(before) and not _REACT.search(before)):
        return None
    return _read(text, brace.end() - 1, work)


def _objects_around(text: str, place: int, work: Work) -> Iterator[Any]:
    """Yields the objects that contain a place, from the inside; braces within strings may hide one, so others too."""
    depth, tried = 0, 0
    first = max(0, place - _AROUND)
    for brace in reversed(list(_BRACES.finditer(text, first, place))):
        if brace[0] == "}":
            depth += 1
        elif depth and tried:
            depth -= 1
        else:
            depth, tried = max(0, depth - 1), tried + 1
            value, end = read_value(text, brace.start())
            work.spend(end - brace.start())
            if value is not None and end > place:
                yield value
        if tried == _MARKS:
            return


def _arguments_in(value: Any, name: str) -> Any:
    """The arguments of a call object for the tool; None if it is not one."""
    if not isinstance(value, dict):
        return None
    fields = {str(key).casefold(): field for key, field in value.items()}
    folded = name.casefold()
    if isinstance(inner := fields.get("function"), dict):
        return _arguments_in({**fields, "function": None, **inner}, name)
    if any(_names(fields.get(key), folded) for key in _NAME_KEYS):
        for key in _ARGUMENT_KEYS:
            if fields.get(key) is not None:
                return _parsed(fields[key])
        rest = {key: field for key, field in fields.items() if key not in _NAME_KEYS and key not in _OTHER_KEYS}
        return rest or None  # a name alone is not a call
    for key, field in fields.items():
        if _names(key, folded) and isinstance(field, dict | list):
            return field
    return None


def _names(value: Any, folded: str) -> bool:
    return isinstance(value, str) and re.search(rf"(?<!\w){re.escape(folded)}(?!\w)", value.casefold()) is not None


def _parsed(arguments: Any) -> Any:
    """Arguments that are JSON text are parsed."""
    if isinstance(arguments, str):
        start = arguments.find("{")
        value = read_value(arguments, start)[0] if start >= 0 else None
        return arguments if value is None else value
    return arguments


def _attributes(text: str, position: int, work: Work) -> Iterator[str]:
    while (attribute := _ATTRIBUTE.match(text, position)) is not None:
        work.spend(len(attribute[0]))
        position = attribute.end()
        yield attribute[1][1:-1]


# -- dialects ------------------------------------------------------------------------------------------------------


@cache
def _groups() -> tuple[tuple[str, ...], ...]:
    """The dialects that are read together; the last ones are read alone. Those of bare JSON are read by `_calls_at`."""
    from penstock.dialects.rescue import LEAKS
    from penstock.dialects.wrong_dialect import ALONE

    together = (*LEAKS, "cline_xml", "anthropic_legacy", "kimi_k3", "gemma_tool_code")
    return together, *((name,) for name in (*ALONE, "langchain_xml", "inkling"))


@cache
def _mark_hints() -> frozenset[str]:
    """What a text with an opening mark contains: the first character of the mark, or all of it if that is a word."""
    from penstock.dialects.registry import find_dialects

    rows = [row for group in _groups() for row in find_dialects(*group).rows.values()]
    marks = {mark for row in rows for mark in row.opening_marks(())}
    return frozenset(mark if mark[0].isalnum() or mark[0].isspace() else mark[0] for mark in marks)


@cache
def _mark_pattern(group: tuple[str, ...]) -> re.Pattern[str]:
    """Finds the opening marks of dialects, except those that are a tool's name."""
    from penstock.dialects.registry import find_dialects

    marks = {mark for row in find_dialects(*group).rows.values() for mark in row.opening_marks(())}
    return re.compile("|".join(sorted(map(re.escape, marks), key=len, reverse=True)))


def _dialect_calls(text: str, start: int, name: str, work: Work) -> Iterator[Any]:
    """Yields the arguments of calls that the dialects read from the marks before a name."""
    first = max(0, start - _BEFORE)
    before = text[first:start]
    if not any(hint in before for hint in _mark_hints()):
        return
    for group in _groups():
        places = [match.start() for match in _mark_pattern(group).finditer(before)][-_MARKS:]
        if before.endswith("<") and "cline_xml" in group:
            places.append(len(before) - 1)
        for place in places:
            for arguments in _read_dialects(text, first + place, start + len(name), group, name, work):
                if arguments or not (is_word(name) and before.endswith("<")):  # `<html>` is not a call
                    yield arguments


def _read_dialects(
    text: str, position: int, end: int, group: Iterable[str], name: str, work: Work
) -> Iterator[dict[str, Any]]:
    """Reads a text in the dialects from a mark on, up to the end of the first call of the tool."""
    from penstock.dialects.stage import TextCalls

    spelled = text[end - len(name) : end]  # the case of the name may differ
    stage = TextCalls(group, [spelled], confirm="close")
    last = min(len(text), position + MAX_VALUE)
    for piece in range(position, last, _PIECE):
        work.spend(_PIECE * _SLOWER)
        if calls := _arguments_of(stage.feed(Text(0, text[piece : min(piece + _PIECE, last)])), spelled):
            yield from calls
            return
        reader = stage.reader()
        if piece + _PIECE > end and (reader is None or not reader.is_in_call):
            return
    yield from _arguments_of(stage.feed(Finish("stop")), spelled)  # the text was not cut


def _arguments_of(events: list[StreamChunk], name: str) -> list[dict[str, Any]]:
    """The arguments of the calls of a tool; of an invalid one, those that were probably meant."""
    arguments = [event.arguments for event in events if isinstance(event, ToolCall) and event.name == name]
    repaired = (event.repaired for event in events if isinstance(event, ToolCallInvalid) and event.name == name)
    return [*arguments, *(meant for meant in repaired if meant is not None)]
