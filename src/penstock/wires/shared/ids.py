"""Ids and names of calls, as far as a provider takes them.

A history keeps the ids that it was given. In a request they are rewritten where the provider's alphabet or length
demands it, always in the same way, so that a call and its result still go together and a prompt cache still matches.
"""

from __future__ import annotations

import re
from hashlib import sha256
from string import ascii_letters, digits

from penstock.calls.numbering import UniqueIds

LETTERS_AND_DIGITS = digits + ascii_letters
WORD = LETTERS_AND_DIGITS + "_-"
NINE_LETTER_IDS = "nine-letter-ids"
"""The quirk that ids of calls are exactly nine letters and digits (QUIRKS 165)."""

_USUAL_LENGTH = 24  # of an id that is made up where any length is taken
_MAX_NAME = 64
_LONG_NAMES = {"anthropic": 128, "openai-responses": 128}
"""The wires that take longer names."""
_OTHER_NAMES = {"gemini": ".:"}
"""What some wires take in names beside letters, digits, _ and -."""


def fit_id(id: str, *, alphabet: str = "", length: int = 0, max_length: int = 0) -> str:
    """The id if it fits, else another that depends on it alone.

    An empty `alphabet` is any; `length` is the exact one and `max_length` the largest, 0 if there is none.
    """
    longest = length or max_length or len(id)
    is_fit = bool(id) and len(id) <= longest and len(id) >= length and (not alphabet or set(id) <= set(alphabet))
    return id if is_fit else _hashed(id, length or min(max_length or _USUAL_LENGTH, _USUAL_LENGTH))


def _hashed(id: str, length: int) -> str:
    number = int.from_bytes(sha256(id.encode("utf-8", "surrogatepass")).digest())
    letters: list[str] = []
    while len(letters) < length:
        number, at = divmod(number, len(LETTERS_AND_DIGITS))
        letters.append(LETTERS_AND_DIGITS[at])
    return "".join(letters)


class Ids:
    """The ids of the calls of one request: each as the provider takes it, and no two alike (QUIRKS 21, 22)."""

    def __init__(self, *, alphabet: str = "", length: int = 0, max_length: int = 0) -> None:
        self._alphabet = alphabet
        self._length = length
        self._max_length = max_length
        self._free = UniqueIds()

    def take(self, id: str) -> str:
        """The id for one more call; if another call of the request has it, one that none has."""
        return self._free.take(self._fit(id), lambda number: self._fit(f"{id}_{number}"))

    def takes(self, id: str) -> bool:
        """Whether the provider takes the id as it is."""
        return self._fit(id) == id

    def keep(self, id: str) -> str:
        """The id of a call that is not in the request: what it is called there, and no other call here."""
        made = self._fit(id)
        self._free.add(made)
        return made

    def _fit(self, id: str) -> str:
        return fit_id(id, alphabet=self._alphabet, length=self._length, max_length=self._max_length)


def ids_for(wire: str, quirks: frozenset[str]) -> Ids:
    """The ids of one request, in the way of this wire and of a provider with these quirks."""
    if NINE_LETTER_IDS in quirks:
        return Ids(alphabet=LETTERS_AND_DIGITS, length=9)
    match wire:
        case "openai-chat":
            return Ids(max_length=40)
        case "openai-responses":
            return Ids(max_length=64)
        case "anthropic":
            return Ids(alphabet=WORD)
        case "bedrock":
            return Ids(alphabet=WORD + ".:", max_length=64)
        case _:
            return Ids()


def fit_name(name: str, wire: str = "") -> str:
    """A tool's name as the wire takes it, or as all do: models make up others (QUIRKS 31)."""
    strange = rf"[^A-Za-z0-9_{_OTHER_NAMES.get(wire, '')}-]+"
    return re.sub(strange, "_", name)[: _LONG_NAMES.get(wire, _MAX_NAME)] or "unnamed"
