"""Texts of a conversation that a model may quote, in a form in which they can be compared with a call.

They are the texts of user messages, of tool results, and of the files in both with their names, vendor state (what
hosted tools returned), and documents in fields that the caller added to the request. State on reasoning or on a call is
the model's own. Each text is prepared once, when the first call ends. A call may also be split between two messages, so
the end of each text is read together with the beginning of the next (`Joint`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.dialects.encodings import FEWEST_READINGS, readings
from penstock.dialects.folding import clean, fold, layouts, plain, unescaped, visible
from penstock.dialects.quoted_lines import Comparisons, has_lines, split_lines, split_strings
from penstock.dialects.source_calls import SourceCall, Work, WorkExceeded, calls_in, passages
from penstock.dialects.sources.segments import segments
from penstock.events import Opaque, Reasoning, Text, ToolCall, ToolCallInvalid
from penstock.messages import File, Image, Message, ToolResult

MAX_DECODED = 2 * 1024 * 1024
"""How many characters of decoded readings a text has; then its segments have FEWEST_READINGS, of one form."""

_BEFORE = re.compile(
    r"(?:(?:[<=\]]|\w\.|[^\s>]>)|\b(?:action|name|tool|function|call|recipient)[\"'\\]*\s*[:=]\s*)[\"'\\]*\Z"
)
_AFTER = re.compile(r"[\"'\\]*(?:[(\[{]|<[|/\w]|\s*[:,]?\s*\{)")
_MARGIN = re.compile(
    r"^(?:[ \t]*(?:[>|\u2502\u2503*+#;%]|//+|--|\.\.\.)[ \t]?)+|[ \t]*[\u2502\u2503|][ \t]*$", re.MULTILINE
)


def _prefix(words: int) -> re.Pattern[str]:
    """Finds what grep, git blame, logs and chats write before a line; before the text of a log, up to some words."""
    return re.compile(
        rf"^(?:\[?\d{{4}}-\d\d-\d\d[T ][\d:.,]{{5,15}}Z?\]?(?: [\w./\[\]-]{{1,30}}){{0,{words}}}:? |"
        r"\d\d:\d\d?(?::\d\d)? <[^>\n]{1,30}> "
        r"|[\w./-]{1,80}[:-]\d{1,6}[:-]|[0-9a-f]{7,40} \([^)\n]{1,80}\) ?|L?\d{1,6}[:|)] ?|\w{1,3}> )",
        re.MULTILINE,
    )


_NUMBER = re.compile(r"^[ \t|]{0,8}\d{1,6}[ \t]{0,4}[\t:|.)\u2192] ?", re.MULTILINE)
_MARGINS = (_MARGIN, _prefix(3), _prefix(1), _NUMBER)
_LAYERS = 2  # how many margins there may be within one another
_CONTEXT = 40  # how many characters before and after a name show how it is written


def _without_margins(text: str) -> Iterable[str]:
    """Returns a text, and the same without the margins of quotes, comments, boxes, tables, listings and logs.

    There may be one within another.
    """
    forms = {text: None}
    for _ in range(_LAYERS if "\n" in text else 0):
        forms |= {margin.sub("", form): None for form in forms for margin in _MARGINS}
    return forms


class Places(NamedTuple):
    """Where a name is in a folded text: anywhere, and where it is written as in a call."""

    all: list[int]
    as_call: list[int]


class SourceText:
    """A text of the conversation, in one of its readings. `is_result`: it is not what a user asks for."""

    def __init__(self, text: str, *, is_result: bool) -> None:
        self._raw = text
        self._text = plain(text)
        self._places: dict[str, Places] = {}
        self._calls: dict[str, frozenset[SourceCall] | None] = {}
        self.folded = fold(self._text)
        self.is_result = is_result

    def calls(self, name: str, work: Work) -> frozenset[SourceCall] | None:
        """The calls of a tool in the text; None if there are too many beginnings of calls. It is read once per name."""
        if name not in self._calls:
            try:
                self._calls[name] = frozenset(chain(*(calls_in(form, name, work) for form in self._forms(name))))
            except WorkExceeded:
                self._calls[name] = None
        return self._calls[name]

    def _forms(self, name: str) -> Iterator[str]:
        """Yields what is around the name, in several forms."""
        for text in dict.fromkeys((self._raw, clean(self._raw), self._text)):
            for passage in passages(text, name):
                yield from _without_margins(passage)

    def places(self, name: str) -> Places:
        """Finds a name, as a whole word; the text is searched once per name."""
        if name not in self._places:
            self._places[name] = self._find(name) if name in self._text else Places([], [])
        return self._places[name]

    def _find(self, name: str) -> Places:
        places, text, position, folded = Places([], []), self._text, 0, 0
        for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            folded += len(fold(text[position : match.start()]))
            position = match.start()
            places.all.append(folded)
            before, after = text[max(0, position - _CONTEXT) : position], text[match.end() : match.end() + _CONTEXT]
            if _BEFORE.search(before) or _AFTER.match(after):
                places.as_call.append(folded)
        return places

    def has_near(self, places: list[int], distance: int, value: str) -> bool:
        """Returns whether a value is within this distance of one of the places, which must not be inside it."""
        start = self.folded.find(value) if places else -1
        while start >= 0:
            end = start + len(value)
            before, after = bisect_left(places, start), bisect_left(places, end)
            if before and start - places[before - 1] <= distance:
                return True
            if after < len(places) and places[after] - end <= distance:
                return True
            start = self.folded.find(value, end)
        return False

    def has_lines(self, lines: list[str], comparisons: Comparisons) -> bool:
        """Returns whether these folded lines follow each other in the text, each in the same margin."""
        return any(has_lines(own, lines, comparisons) for own in self._lines)

    @cached_property
    def _lines(self) -> list[list[str]]:
        split = [split_lines(self._text), split_strings(self._text)]
        return [[line for part in parts if (line := fold(part))] for parts in split if len(parts) > 1]


_OWN_FIELD = re.compile("tool|function|system|instruction", re.IGNORECASE)  # what the caller tells the model
Written = tuple[str, bool]
"""A text, and whether it is a result rather than what a user asks for."""


def written_texts(source: Message | Opaque | Mapping[str, Any]) -> list[Written]:
    """The texts of a message, of vendor state or of the fields of a request, as they are."""
    if isinstance(source, Opaque):
        return list(texts_of_state(source))
    if isinstance(source, Mapping):
        return list(_texts_of_fields(source))
    return [] if source.is_example else list(_texts_of_message(source))


def prepared(text: str, *, is_result: bool) -> list[SourceText]:
    """The readings of a text, each in its layouts. A long text is prepared in segments."""
    room = MAX_DECODED
    texts: list[SourceText] = []
    for segment in segments(text):
        forms = dict.fromkeys((segment, visible(segment), clean(segment)))  # an encoding may have other characters
        most = None
        if room <= 0:
            forms, most = {clean(segment): None}, FEWEST_READINGS
        decoded = [reading for form in forms for reading in readings(form, most)]
        room -= sum(map(len, decoded)) - len(segment)
        layouts_of = (layout for reading in decoded for layout in layouts(unescaped(reading)))
        texts += [SourceText(layout, is_result=is_result) for layout in dict.fromkeys(layouts_of)]
    return texts


def _texts_of_message(message: Message) -> Iterator[Written]:
    if message.role == "system":
        return
    if message.role == "assistant":
        own = {part.block for part in message.parts if isinstance(part, Reasoning | ToolCall | ToolCallInvalid)}
        for part in message.parts:
            if isinstance(part, Opaque) and part.block not in own:
                yield from texts_of_state(part)
        return
    if text := "\n".join(part.text for part in message.parts if isinstance(part, Text)):
        yield text, message.role == "tool"
    for part in message.parts:
        match part:
            case ToolResult():
                yield from texts_of_result(part)
            case File() | Image():
                yield from texts_of_media(part)
            case Opaque():
                yield from texts_of_state(part)
            case _:
                pass


def _texts_of_fields(fields: Mapping[str, Any]) -> Iterator[Written]:
    """Yields the fields of a request that may be documents: a text, or a structure, which is not a request."""
    for name, value in fields.items():
        if isinstance(value, str):
            yield value, False
        elif isinstance(value, Mapping | list | tuple) and not _OWN_FIELD.search(name):
            yield json.dumps(value, ensure_ascii=False, default=_as_json), True


def _as_json(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def texts_of_result(result: ToolResult) -> Iterator[Written]:
    """Yields the text of a result, the files in it, and its vendor state."""
    if result.text:
        yield result.text, True
    for part in result.content:
        if isinstance(part, File | Image):
            yield from texts_of_media(part)
    for state in result.state:
        yield from texts_of_state(state)


def texts_of_media(media: File | Image) -> Iterator[Written]:
    """Yields what a file or an image says if that is text, its name or address, and its vendor state, as a title."""
    if not media.is_inline:
        yield media.url, True
    elif (text := _text_of_data(media)) is not None:
        yield text, True
    if media.name:
        yield media.name, True
    for state in media.state:
        yield from texts_of_state(state)


def _text_of_data(media: File | Image) -> str | None:
    """Returns the text of a file; None if it is not text, or cannot be read without a library (PDF files, images)."""
    if media.media_type.startswith(("audio/", "video/")):
        return None
    head, _, written = media.url.partition(",")
    try:
        data = media.data if head.endswith(";base64") else unquote_to_bytes(written)
    except ValueError:  # it is not base64
        return None
    try:
        return data.decode("utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1") if media.media_type.startswith("text/") else None


def texts_of_state(state: Opaque) -> Iterator[Written]:
    """Yields vendor state as JSON, if it has any structure; other text in it is a signature."""
    if isinstance(state.data, dict | list):
        yield json.dumps(state.data, ensure_ascii=False, default=str), True
