"""The index of a conversation: which of its messages contain the argument values of a call.

A text contains a string if it has it as whole words, after the normalisation of `texts`. What others have written (tool
results, files, summaries) may hide a value in a longer word: there, a string counts anywhere if it has MIN_DISTINCTIVE
characters, or is not a single word or number. Numbers are compared by their value (see `numbers`).

A message is read once, when it is first there and something is asked. What could not be searched (MAX_INDEXED,
MAX_PLACES, MAX_ARGUMENTS) counts as containing a value if others have written it, and as not containing it if not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.calls.sources import Source, SourceKind, argument_values
from penstock.dialects.folding import fold, spaced
from penstock.dialects.sources.numbers import numbers_in, numbers_of
from penstock.dialects.sources.text_index import MIN_INDEXED, TextIndex
from penstock.dialects.sources.texts import MARKS, SourceText, texts_of, value_forms, variants
from penstock.messages import Message

MIN_DISTINCTIVE = 12
"""The characters of a word or number that counts anywhere in a tool result, also within a longer one."""
MAX_ARGUMENTS = 4096
"""How many values of one call are looked for; what others have written counts as containing any further one."""

_BY_OTHERS: frozenset[SourceKind] = frozenset({"tool", "file", "summary"})
_JOINED = 256  # how many characters of adjacent results are joined: a value may begin in one and end in the next
_WORD = re.compile(r"[^\W\d_]+|\d+")
_RUN = 24  # the characters of a run between white space that may be a short value with marks around it

Origin = tuple[SourceKind, str]
"""The kind and the name of a source: of each, one source of a value is reported."""
Found = dict[Origin, Source]


class SourceIndex:
    """Finds the sources of argument values in a conversation that grows."""

    def __init__(self) -> None:
        self._texts = TextIndex()
        self._sources: list[Source] = []  # by the number of the text
        self._words: dict[Origin, dict[str, Source]] = {}  # short words, and short runs of characters
        self._numbers: dict[Origin, dict[str, Source]] = {}
        self._left_out: Found = {}
        self._others: Found = {}
        self._messages: dict[int, Message] = {}  # by identity; a message stays here when it leaves the history
        self._instructions: set[str] = set()
        self._tail = ""

    def add(self, messages: Iterable[Message], instructions: str = "") -> None:
        """Reads what is new in the history and in the instructions."""
        if instructions and instructions not in self._instructions:
            self._instructions.add(instructions)
            self._add_text(SourceText(instructions, Source("instructions")))
        for index, message in enumerate(messages):
            if id(message) not in self._messages:
                self._messages[id(message)] = message
                for text in texts_of(message, index):
                    self._add_text(text)

    def find(self, arguments: Mapping[str, Any]) -> dict[str, tuple[Source, ...]]:
        """The sources of each string and number in the arguments, by its path; see `argument_values`."""
        sources: dict[str, tuple[Source, ...]] = {}
        for number, (path, value) in enumerate(argument_values(arguments)):
            found = self._find(value) if number < MAX_ARGUMENTS else self._others
            sources[path] = tuple(sorted(found.values(), key=lambda source: source.message))
        return sources

    # -- adding ----------------------------------------------------------------------------------------------------

    def _add_text(self, text: SourceText) -> None:
        source = text.source
        if not text.text:
            return
        origin = source.kind, source.name
        if source.kind in _BY_OTHERS:
            self._others.setdefault(origin, source)
        words, numbers = self._words.setdefault(origin, {}), self._numbers.setdefault(origin, {})
        readings = variants(text.text)
        for reading in readings:
            for number in numbers_in(reading):
                numbers.setdefault(number, source)
            for word in _short_words(reading):
                words.setdefault(word, source)
        for layout in dict.fromkeys(map(spaced, readings)):
            self._index(layout, source)
        if source.kind == "tool":
            self._join(spaced(readings[0]), source)

    def _join(self, layout: str, source: Source) -> None:
        """Adds the end of the last result with the beginning of this one."""
        if self._tail:
            self._index(self._tail + layout[:_JOINED], source)
        self._tail = layout[-_JOINED:]

    def _index(self, layout: str, source: Source) -> None:
        if not self._texts.add(layout):
            self._left_out.setdefault((source.kind, source.name), source)
        else:
            self._sources.append(source)

    # -- finding ---------------------------------------------------------------------------------------------------

    def _find(self, value: str | float) -> Found:
        """The sources of a value."""
        found: Found = {origin: source for origin, source in self._left_out.items() if origin[0] in _BY_OTHERS}
        for number in numbers_of(value):
            _merge(found, {origin: table[number] for origin, table in self._numbers.items() if number in table})
        for form in value_forms(value if isinstance(value, str) else _digits(value)):
            if len(folded := form.encode("utf-8", "replace")) >= MIN_INDEXED:
                self._find_text(form, folded, found)
            elif isinstance(value, str):
                self._find_short(form, found)
        return found

    def _find_text(self, form: str, folded: bytes, found: Found) -> None:
        is_word = len(form) < MIN_DISTINCTIVE and (form.isalpha() or form.isdigit())
        for place in self._texts.find(folded):
            if place is None:
                _merge(found, self._others)
                break
            number, is_whole = place
            source = self._sources[number]
            if is_whole or (source.kind in _BY_OTHERS and not is_word):
                _merge(found, {(source.kind, source.name): source})

    def _find_short(self, form: str, found: Found) -> None:
        """Finds a short value as a word; in what others have written, several words may be anywhere."""
        words = _WORD.findall(form)
        for origin, table in self._words.items():
            if form in table:
                _merge(found, {origin: table[form]})
            elif origin[0] in _BY_OTHERS and words and all(word in table for word in words):
                _merge(found, {origin: table[words[0]]})


def _digits(value: float) -> str:
    try:
        return str(abs(value))
    except ValueError:  # more digits than Python converts
        return ""


def _merge(found: Found, more: Found) -> None:
    """Adds sources; of each origin the first message is kept."""
    for origin, source in more.items():
        if origin not in found or source.message < found[origin].message:
            found[origin] = source


def _short_words(reading: str) -> Iterable[str]:
    """The words and numbers of a text that are too short for its index, and the short runs between white space."""
    runs = {fold(run).strip(MARKS) for run in {*reading.split()} if len(run) <= _RUN}
    words = {*_WORD.findall(reading)} | runs
    return [word for word in words if word and len(word.encode("utf-8", "replace")) < MIN_INDEXED]
