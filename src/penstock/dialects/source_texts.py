"""Texts of a conversation that a model may quote, in a form in which they can be compared with a call.

They are the texts of user messages, of tool results, and of the files in both with their names, vendor state (what
hosted tools returned), and documents in fields that the caller added to the request. State on reasoning or on a call is
the model's own. Each text is prepared once, when the first call ends.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from bisect import bisect_left
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.dialects.encodings import readings
from penstock.dialects.quoted_lines import Comparisons, has_lines, split_lines, split_strings
from penstock.events import Opaque, Reasoning, Text, ToolCall, ToolCallInvalid
from penstock.messages import File, Image, Message, ToolResult

# -- folding -------------------------------------------------------------------------------------------------------

_LEVELS = 3  # how often HTML escapes are decoded
_COLOURS = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\))")  # terminal colours
_BREAKS = re.compile(r"</?(?:br|p|div|pre|li|tr)\b[^<>]{0,200}>", re.IGNORECASE)
_LAYOUT = re.compile(r"</?(?:wbr|span|code|b|i|em|strong|td)\b[^<>]{0,200}>", re.IGNORECASE)
_NUMBERS = re.compile(r"^[\s>|*+#-]{0,40}\d{1,6}[ \t]{0,4}[\t:|.)\u2192]", re.MULTILINE)  # item and line numbers
_DROPPED = re.compile(
    r"[\s\"'`\\>|*+#\u00ab\u00bb\u2010-\u201f\u2039\u203a\u2212\u2500-\u257f\u00ad\u200b-\u200f\u2060\ufeff-]+"
)


def plain(text: str) -> str:
    """Returns a text in one case and one form of its characters, without HTML escapes and colours."""
    for _ in range(_LEVELS):
        if "&" not in text or (decoded := html.unescape(text)) == text:
            break
        text = decoded
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()


def fold(text: str) -> str:
    """Returns a plain text without white space, quotes, backslashes and the margins of quotes, lists and tables."""
    return _DROPPED.sub("", text)


def spaced(text: str) -> str:
    """Returns a plain text with one space for each run of what `fold` removes."""
    return _DROPPED.sub(" ", text).strip(" ")


def layouts(text: str) -> Iterable[str]:
    """Returns a plain text, and the same without line numbers and the tags of a layout."""
    return dict.fromkeys((text, _NUMBERS.sub("", _LAYOUT.sub("", _BREAKS.sub("\n", text)))))


def _variants(text: str) -> Iterable[str]:
    """Returns the readings of a text, each in its layouts."""
    return dict.fromkeys(layout for reading in readings(text) for layout in layouts(plain(reading)))


# -- texts ---------------------------------------------------------------------------------------------------------

_BEFORE = re.compile(
    r"(?:(?:[<=\]]|\w\.|[^\s>]>)|\b(?:action|name|tool|function|call|recipient)[\"'\\]*\s*[:=]\s*)[\"'\\]*\Z"
)
_AFTER = re.compile(r"[\"'\\]*(?:[(\[{]|<[|/\w]|\s*[:,]?\s*\{)")
_CONTEXT = 40  # how many characters before and after a name show how it is written


class Places(NamedTuple):
    """Where a name is in a folded text: anywhere, and where it is written as in a call."""

    all: list[int]
    as_call: list[int]


class SourceText:
    """A text of the conversation, in one of its readings. `is_result`: it is not what a user asks for."""

    def __init__(self, text: str, *, is_result: bool) -> None:
        self._text = text
        self._places: dict[str, Places] = {}
        self.folded = fold(text)
        self.is_result = is_result

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


_KEPT = "source_texts"
"""The name under which a message keeps its texts beside its fields: they are prepared once, not for each response."""


def source_texts(source: Message | Opaque | Mapping[str, Any]) -> list[SourceText]:
    """Returns the texts of a message, of vendor state or of the fields of a request. Messages keep theirs for later."""
    if isinstance(source, Opaque):
        return _prepared(texts_of_state(source))
    if isinstance(source, Mapping):
        return _prepared(_texts_of_fields(source))
    texts: list[SourceText] | None = vars(source).get(_KEPT)
    if texts is None:
        texts = [] if source.is_example else _prepared(_texts_of_message(source))
        vars(source)[_KEPT] = texts
    return texts


_OWN_FIELD = re.compile("tool|function|system|instruction", re.IGNORECASE)  # what the caller tells the model
Written = tuple[str, bool]
"""A text, and whether it is a result rather than what a user asks for."""


def _prepared(written: Iterable[Written]) -> list[SourceText]:
    return [SourceText(variant, is_result=is_result) for text, is_result in written for variant in _variants(text)]


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
