"""Provenance: whether a call in a model's text is a quotation from the conversation.

A model that reports a mail or a file also writes the calls that are in it. Such a call is text about a call, whatever
is around it, so it must not run. A call counts as quoted if a text of the conversation (see `source_texts`) contains

- its markup, if that has MIN_VALUE characters besides the name, also line by line with a margin of any kind; or
- its name, and within the length of the call a distinctive value: an argument, or all arguments as JSON, of MIN_VALUE
  characters or more.

Texts are compared without white space, quotes, backslashes and the margins of quotes, lists, tables and listings, in
one case, and also with their encodings decoded.

A name and a value alone may also be a request: "use bash to run `make all-the-docs`". So one of these must hold too:
the name is written as in a call (`bash(`, `"name": "bash"`); the value follows its key (`command: make …`); or the text
is a tool result, which is not a request, and the name is not an ordinary word. Values that the model has used before
with the same tool are its own.

A call searches each text a bounded number of times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from penstock.dialects.encodings import readings
from penstock.dialects.quoted_lines import Comparisons, without_margin
from penstock.dialects.source_texts import SourceText, fold, layouts, plain, source_texts
from penstock.events import Opaque
from penstock.messages import Message

MIN_VALUE = 12
"""How many characters make a value, or the markup around a name, distinctive."""
MAX_VALUES = 32
"""How many values of one call are looked for in the conversation: the longest ones."""
MAX_SEARCHES = 512
"""How many calls of one request are looked for. Later ones are `quoted` if a text has their name as in a call."""

_MIN_FOLDED = 8  # how many characters of a distinctive value must remain when it is folded
_FORMS = 3  # in how many readings the markup of a call is looked for
_NEAR = 160  # how many characters of marks may be between a name and a value, besides the arguments


class Provenance:
    """The texts of a conversation that a model may quote: user messages, tool results, and what hosted tools returned.

    Messages with `is_example` do not count: they show the model how calls are written. `fields` are those that the
    caller added to the request: some providers take documents there.
    """

    def __init__(self, messages: Iterable[Message], fields: Mapping[str, Any] | None = None) -> None:
        self._messages = list(messages)
        self._unread: list[Message | Opaque | Mapping[str, Any]] = [*self._messages, *([fields] if fields else [])]
        self._texts: list[SourceText] = []
        self._searches = 0
        self._comparisons = Comparisons()

    def add_state(self, state: Opaque) -> None:
        """Adds vendor state of the response itself: the model may quote what a hosted tool has just returned."""
        self._unread.append(state)

    def is_quoted(self, name: str, arguments: dict[str, Any], markup: str) -> bool:
        """Returns whether a call is a quotation; `markup` is the call as the model wrote it, "" if it is not known."""
        word, folded_name = plain(name), fold(plain(name))
        texts = [text for text in self._prepare() if folded_name in text.folded]
        if not texts:
            return False
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return any(text.places(word).as_call for text in texts)
        if any(self._has_markup(texts, form, folded_name) for form in _forms(markup)):
            return True
        values = self._values(name, arguments)
        distance = len(fold(json.dumps(arguments, ensure_ascii=False))) + _NEAR if values else 0
        is_word = name.isalpha() and (name.islower() or name.istitle())
        return any(_has_value(text, word, distance, values, is_word=is_word) for text in texts)

    def _has_markup(self, texts: list[SourceText], markup: str, folded_name: str) -> bool:
        """Returns whether a text has the markup of a call, as it is or without a margin that the model has added."""
        lines = markup.split("\n")
        folded = [line for line in map(fold, lines) if line]
        if sum(map(len, folded)) - len(folded_name) < MIN_VALUE:
            return False
        if self._has_lines(texts, folded):
            return True
        texts = [text for text in texts if folded[0] in text.folded]
        unmarked = without_margin(lines) if texts and len(folded) > 1 else ()
        return any(self._has_lines(texts, [left for left in map(fold, lines) if left]) for lines in unmarked)

    def _has_lines(self, texts: list[SourceText], lines: list[str]) -> bool:
        """Returns whether a text has these folded lines, in one piece or each in a margin."""
        whole = "".join(lines)
        if any(whole in text.folded for text in texts):
            return True
        return len(lines) > 1 and any(text.has_lines(lines, self._comparisons) for text in texts)

    def _values(self, name: str, arguments: dict[str, Any]) -> list[tuple[str, str]]:
        """Returns the distinctive values of a call with their keys, except those that the model has used before."""
        own = self._own_values.get(name, ())
        values = [(key, value) for key, value in _distinctive(arguments) if value not in own]
        return sorted(values, key=lambda pair: len(pair[1]), reverse=True)[:MAX_VALUES]

    def _prepare(self) -> list[SourceText]:
        """Returns the texts of the conversation so far."""
        unread, self._unread = self._unread, []
        self._texts += [text for source in unread for text in source_texts(source)]
        return self._texts

    @cached_property
    def _own_values(self) -> dict[str, set[str]]:
        """The values that the model has used before, by the name of the tool."""
        own: dict[str, set[str]] = {}
        for message in self._messages:
            for call in message.tool_calls:
                own.setdefault(call.name, set()).update(value for _, value in _distinctive(call.arguments))
        return own


def _forms(markup: str) -> Iterable[str]:
    """Returns the markup of a call, also with its escapes decoded, and without line numbers."""
    forms = (form for reading in readings(markup)[:_FORMS] for form in layouts(plain(reading)))
    return dict.fromkeys(forms)


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
                stack += [(fold(plain(str(inner))), item) for inner, item in value.items()]
            case list():
                stack += [(key, item) for item in value]
        if isinstance(value, str) or value is arguments or isinstance(value, int | float):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if len(text) >= MIN_VALUE and len(folded := fold(plain(text))) >= _MIN_FOLDED:
                yield key, folded
