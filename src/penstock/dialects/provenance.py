"""Provenance: whether a call in a model's text is a quotation from the conversation.

A model that reports a mail or a file also writes the calls that are in it. Such a call is text about a call, whatever
is around it, so it must not run. A call counts as quoted if a user message or a tool result contains

- its markup, if that has MIN_VALUE characters besides the name; or
- its name, and within the length of the call a distinctive value: an argument, or all arguments as JSON, of MIN_VALUE
  characters or more.

Texts are compared without white space, quotes, backslashes and the margins of quotes, lists, tables and listings, in
one case, and also with their encodings decoded.

A name and a value alone may also be a request: "use bash to run `make all-the-docs`". So one of these must hold too:
the name is written as in a call (`bash(`, `"name": "bash"`); the value follows its key (`command: make …`); or the text
is a tool result, which is not a request, and the name is not an ordinary word. Values that the model has used before
with the same tool are its own.

Each text is prepared once, when the first call ends. A call searches each text a bounded number of times.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from penstock.dialects.encodings import readings
from penstock.events import Text
from penstock.messages import Message

MIN_VALUE = 12
"""How many characters make a value, or the markup around a name, distinctive."""
MAX_VALUES = 32
"""How many values of one call are looked for: the longest ones."""
MAX_SEARCHES = 512
"""How many calls of one request are looked for. Later ones count as quoted if a text has their name as in a call."""

_MIN_FOLDED = 8  # how many characters of a distinctive value must remain when it is folded
_NEAR = 160  # how many characters of marks may be between a name and a value, besides the arguments

# -- folding -------------------------------------------------------------------------------------------------------

_LEVELS = 3  # how often HTML escapes are decoded
_LAYOUT = re.compile(r"</?(?:br|wbr|p|div|span|code|pre|b|i|em|strong|li|td|tr)\b[^<>]{0,200}>", re.IGNORECASE)
_NUMBERS = re.compile(r"^[\s>|*+#-]{0,40}\d{1,6}[ \t]{0,4}[\t:|.)\u2192]", re.MULTILINE)  # of lists and listings
_DROPPED = re.compile(r"[\s\"'`\\>|*+#\u00ab\u00bb\u2018-\u201f\u00ad\u200b-\u200f\u2060\ufeff-]+")


def _plain(text: str) -> str:
    """Returns a text in one case and one form of its characters, without HTML escapes."""
    for _ in range(_LEVELS):
        if "&" not in text or (decoded := html.unescape(text)) == text:
            break
        text = decoded
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()


def _fold(text: str) -> str:
    return _DROPPED.sub("", text)


def _variants(text: str) -> Iterable[str]:
    """Returns the readings of a text, each also without line numbers and the tags of a layout."""
    plain = [_plain(reading) for reading in readings(text)]
    return dict.fromkeys(text for one in plain for text in (one, _NUMBERS.sub("", _LAYOUT.sub("", one))))


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
    """A text of the conversation, in one of its readings."""

    def __init__(self, text: str, *, is_result: bool) -> None:
        self._text = text
        self._places: dict[str, Places] = {}
        self.folded = _fold(text)
        self.is_result = is_result

    def places(self, name: str) -> Places:
        """Finds a name, as a whole word; the text is searched once per name."""
        if name not in self._places:
            self._places[name] = self._find(name) if name in self._text else Places([], [])
        return self._places[name]

    def _find(self, name: str) -> Places:
        places, text, at, folded = Places([], []), self._text, 0, 0
        for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            folded += len(_fold(text[at : match.start()]))
            at = match.start()
            places.all.append(folded)
            before, after = text[max(0, at - _CONTEXT) : at], text[match.end() : match.end() + _CONTEXT]
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


def _source_texts(message: Message) -> list[SourceText]:
    """Returns the texts of a user message or of tool results. They are kept with the message for later requests."""
    if message.is_example or message.role not in ("user", "tool"):
        return []
    texts: list[SourceText] | None = message.__dict__.get("source_texts")
    if texts is None:
        own = "\n".join(part.text for part in message.parts if isinstance(part, Text))
        written = [(own, message.role == "tool"), *((result.text, True) for result in message.results)]
        texts = [SourceText(variant, is_result=is_result) for text, is_result in written for variant in _variants(text)]
        vars(message)["source_texts"] = texts
    return texts


# -- calls ---------------------------------------------------------------------------------------------------------


class Provenance:
    """The texts of a conversation that a model may quote: user messages and tool results.

    Messages with `is_example` do not count: they show the model how calls are written.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = list(messages)
        self._searches = 0

    def is_quoted(self, name: str, arguments: dict[str, Any], markup: str) -> bool:
        """Returns whether a call is a quotation; `markup` is the call as the model wrote it, "" if it is not known."""
        word, folded_name = _plain(name), _fold(_plain(name))
        texts = [text for text in self._texts if folded_name in text.folded]
        if not texts:
            return False
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return any(text.places(word).as_call for text in texts)
        written = _fold(_plain(markup))
        if len(written) - len(folded_name) >= MIN_VALUE and any(written in text.folded for text in texts):
            return True
        values = self._values(name, arguments)
        distance = len(_fold(json.dumps(arguments, ensure_ascii=False))) + _NEAR if values else 0
        is_word = name.isalpha() and (name.islower() or name.istitle())
        return any(_has_value(text, word, distance, values, is_word=is_word) for text in texts)

    def _values(self, name: str, arguments: dict[str, Any]) -> list[tuple[str, str]]:
        """Returns the distinctive values of a call with their keys, except those that the model has used before."""
        own = self._own_values.get(name, ())
        values = [(key, value) for key, value in _distinctive(arguments) if value not in own]
        return sorted(values, key=lambda pair: len(pair[1]), reverse=True)[:MAX_VALUES]

    @cached_property
    def _texts(self) -> list[SourceText]:
        return [text for message in self._messages for text in _source_texts(message)]

    @cached_property
    def _own_values(self) -> dict[str, set[str]]:
        """The values that the model has used before, by the name of the tool."""
        own: dict[str, set[str]] = {}
        for message in self._messages:
            for call in message.tool_calls:
                own.setdefault(call.name, set()).update(value for _, value in _distinctive(call.arguments))
        return own


def _has_value(text: SourceText, word: str, distance: int, values: list[tuple[str, str]], *, is_word: bool) -> bool:
    """Returns whether a text has a value of a call near its name, in what looks like a call."""
    places = text.places(word)
    likely = places.all if text.is_result and not is_word else places.as_call
    for key, value in values:
        if text.has_near(likely, distance, value):
            return True
        assigned = (f"{key}={value}", f"{key}:{value}", f"<{key}{value}", f"={key}{value}") if key else ()
        if any(text.has_near(places.all, distance, assignment) for assignment in assigned):
            return True
    return False


def _distinctive(arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the distinctive values of arguments, folded, with the key that each belongs to; all of them have none."""
    stack: list[tuple[str, Any]] = [("", arguments)]
    while stack:
        key, value = stack.pop()
        match value:
            case dict():
                stack += [(_fold(_plain(str(inner))), item) for inner, item in value.items()]
            case list():
                stack += [(key, item) for item in value]
        if isinstance(value, str) or value is arguments or isinstance(value, int | float):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if len(text) >= MIN_VALUE and len(folded := _fold(_plain(text))) >= _MIN_FOLDED:
                yield key, folded
