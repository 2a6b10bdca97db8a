"""Provenance: whether a call in a model's text is a quotation from the conversation.

A model that reports a mail or a file also writes the calls that are in it. Such a call is text about a call, whatever
is around it, so it must not run. The texts of the conversation are its sources (see `source_texts`). A call is quoted
if a source contains

- a call of the same tool whose values are all among its own, in any dialect, notation, order or encoding
  (`source_calls`); or
- its markup, if that has MIN_VALUE characters besides the name, also line by line with a margin of any kind; or
- its name, and within the length of the call a distinctive value: an argument, or all arguments as JSON, of MIN_VALUE
  characters or more.

A user may ask for a call. So in a user message a call in plain notation, `run("make")`, is a request unless it has a
distinctive value, and a call without arguments counts only in results. A name and a value alone are a request too: "use
bash to run `make all-the-docs`". There, one of these must hold: the name is written as in a call (`bash(`, `"name":
"bash"`); the value follows its key (`command: make …`); or the text is a result, and the name is not an ordinary word.

Values that the model has used before with the same tool are its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any

from msgspec import Struct

from penstock.dialects.conversation import Conversation, KeptTexts
from penstock.dialects.encodings import readings
from penstock.dialects.folding import fold, layouts, plain
from penstock.dialects.quoted_lines import Comparisons, without_margin
from penstock.dialects.source_calls import MIN_VALUE, SourceCall, Work, is_word, values_of, wide_values_of
from penstock.dialects.source_texts import SourceText
from penstock.dialects.sources.segments import PIECE, pieces_of
from penstock.events import Opaque
from penstock.messages import Message

MAX_VALUES = 32
"""How many values of one call are looked for in the conversation: the longest ones."""
MAX_SEARCHES = 512
"""How many calls of one request are looked for. Later ones are `quoted` if a text has their name as in a call."""

_MIN_FOLDED = 8  # how many characters of a distinctive value must remain when it is folded
_FORMS = 3  # in how many readings the markup of a call is looked for
_NO_VALUES = ""  # stands for a call without arguments
_NEAR = 160  # how many characters of marks may be between a name and a value, besides the arguments


class Written(Struct, frozen=True):
    """A call as the model wrote it, in the forms in which it is looked for.

    `values` are all its values, `distinctive` those that are long enough to be looked for alone, with their keys.
    """

    name: str
    values: frozenset[str]
    distinctive: list[tuple[str, str]]
    distance: int
    forms: tuple[str, ...]

    @property
    def word(self) -> str:
        return plain(self.name)

    @property
    def folded_name(self) -> str:
        return fold(self.word)


class Provenance:
    """The texts of a conversation that a model may quote: user messages, tool results, and what hosted tools returned.

    Messages with `is_example` do not count: they show the model how calls are written. `fields` are those that the
    caller added to the request: some providers take documents there. Calls of the tools in `refused` never count as the
    model's own.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        fields: Mapping[str, Any] | KeptTexts | None = None,
        *,
        refused: Collection[str] = (),
    ) -> None:
        self._refused = refused
        self._messages = list(messages)
        self._sources = Conversation([*self._messages, *([fields] if fields else [])])
        self._searches = 0
        self._comparisons = Comparisons()
        self._work = Work()

    def add_state(self, state: Opaque) -> None:
        """Adds vendor state of the response itself: the model may quote what a hosted tool has just returned."""
        self._sources.add(state)

    def prepare(self) -> None:
        """Prepares the sources, which takes time if they are long; without it, the first call does."""
        self._sources.prepare()

    @property
    def unprepared(self) -> int:
        """How many characters `prepare` has to prepare."""
        return self._sources.size

    @property
    def is_long(self) -> bool:
        """Whether it may take long to compare a call with the sources: then do so in a thread, not on an event loop."""
        return self._sources.is_long

    def is_quoted(self, name: str, arguments: dict[str, Any], markup: str) -> bool:
        """Returns whether a call is a quotation; `markup` is the call as the model wrote it, "" if it is not known."""
        if name in self._refused:
            return True
        sources = self._sources
        sources.prepare()
        values = wide_values_of(arguments)
        if self._are_own(name, values):
            return False
        if sources.mentions(name):
            return True
        folded_name = fold(plain(name))
        texts = [text for text in sources.texts if folded_name in text.folded]
        joints = [joint for joint in sources.joints if any(folded_name in text.folded for text in joint.texts)]
        if not texts and not joints:
            return False
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return any(text.places(plain(name)).as_call for text in texts)
        distinctive = self._distinctive_values(name, arguments)
        distance = len(fold(json.dumps(arguments, ensure_ascii=False))) + _NEAR if distinctive else 0
        call = Written(name, values, distinctive, distance, tuple(_forms(markup)))
        if self._is_in(texts, call) or _have_value(texts, call):
            return True
        return any(joint.spans(lambda texts: self._is_in(texts, call)) for joint in joints)

    def _is_in(self, texts: list[SourceText], call: Written) -> bool:
        """Returns whether one of these texts has the whole call."""
        texts = [text for text in texts if call.folded_name in text.folded]
        if any(self._has_call(text, call) for text in texts):
            return True
        marked = [text for text in texts if text.is_result or call.values]
        return any(self._has_markup(marked, form, call) for form in call.forms)

    def _has_call(self, text: SourceText, call: Written) -> bool:
        """Returns whether a text has a call of the tool whose values are all among those of the call."""
        calls = text.calls(call.name, self._work)
        if calls is None:  # there is too much to read
            return True
        return any(
            found.values <= call.values and _counts(found, text, call) and not self._are_own(call.name, found.values)
            for found in calls
        )

    def _has_markup(self, texts: list[SourceText], markup: str, call: Written) -> bool:
        """Returns whether a text has the markup of a call, as it is or without a margin that the model has added."""
        lines = markup.split("\n")
        folded = [line for line in map(fold, lines) if line]
        if sum(map(len, folded)) - len(call.folded_name) < MIN_VALUE:
            return False
        if folded[0].startswith(f"{call.folded_name}("):  # plain notation, which `_has_call` reads
            texts = [text for text in texts if text.is_result]
        if self._has_lines(texts, folded):
            return True
        texts = [text for text in texts if folded[0] in text.folded]
        unmarked = without_margin(lines) if texts and len(folded) > 1 else ()
        return any(self._has_lines(texts, [left for left in map(fold, lines) if left]) for lines in unmarked)

    def _has_lines(self, texts: list[SourceText], lines: list[str]) -> bool:
        """Returns whether a text has these folded lines, in one piece or each in a margin."""
        if _have_pieces(texts, pieces_of("".join(lines))):
            return True
        lines = _first(lines)
        return len(lines) > 1 and any(text.has_lines(lines, self._comparisons) for text in texts)

    def _distinctive_values(self, name: str, arguments: dict[str, Any]) -> list[tuple[str, str]]:
        """Returns the distinctive values of a call with their keys, except those that the model has used before."""
        own = self._own_values.get(name, ())
        values = [(key, value) for key, value in _distinctive(arguments) if value not in own]
        return sorted(values, key=lambda pair: len(pair[1]), reverse=True)[:MAX_VALUES]

    def _are_own(self, name: str, values: frozenset[str]) -> bool:
        """Returns whether the model has used all these values with the tool; if there are none, whether without any."""
        return (values or {_NO_VALUES}) <= self._own_values.get(name, set())

    @cached_property
    def _own_values(self) -> dict[str, set[str]]:
        """The values that the model has used before, by the name of the tool."""
        own: dict[str, set[str]] = {}
        for message in self._messages:
            for call in message.tool_calls:
                values = own.setdefault(call.name, set())
                values.update(values_of(call.arguments) or {_NO_VALUES})
                values.update(value for _, value in _distinctive(call.arguments))
        return own


def _counts(found: SourceCall, text: SourceText, call: Written) -> bool:
    """Returns whether a call in a text makes a call a quotation. A user may ask for a call, in plain notation."""
    if not found.values:
        return text.is_result and (not found.is_plain or not call.values)
    return text.is_result or not found.is_plain or found.is_long


def _forms(markup: str) -> Iterable[str]:
    """Returns the markup of a call, also with its escapes decoded, and without line numbers."""
    forms = (form for reading in readings(markup)[:_FORMS] for form in layouts(plain(reading)))
    return dict.fromkeys(forms)


def _have_pieces(texts: list[SourceText], pieces: list[str]) -> bool:
    """Returns whether texts have all these pieces: a long text is prepared in segments."""
    return all(any(piece in text.folded for text in texts) for piece in pieces)


def _first(lines: list[str]) -> list[str]:
    """Returns the lines of a call up to PIECE characters."""
    sizes = accumulate(map(len, lines))
    return [line for line, size in zip(lines, sizes, strict=True) if size <= PIECE]


def _have_value(texts: list[SourceText], call: Written) -> bool:
    """Returns whether texts have a value of a call near its name, in what looks like a call."""
    for key, value in call.distinctive:
        first, *rest = pieces_of(value)
        is_there = any(_has_value(text, call, key, first) for text in texts)
        if is_there and _have_pieces(texts, rest):
            return True
    return False


def _has_value(text: SourceText, call: Written, key: str, value: str) -> bool:
    """Returns whether a text has a value of a call near its name, in what looks like a call."""
    if not key and not text.is_result:  # all arguments as JSON: a user may ask for `pay({"to": "bob"})`
        return False
    places = text.places(call.word)
    likely = places.all if text.is_result and not is_word(call.name) else places.as_call
    if text.has_near(likely, call.distance, value):
        return True
    assigned = (f"{key}={value}", f"{key}:{value}", f"<{key}{value}", f"={key}{value}") if key else ()
    return any(text.has_near(places.all, call.distance, assignment) for assignment in assigned)


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
