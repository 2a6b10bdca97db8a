"""Call ids and tool names, rewritten where a provider does not accept them.

A history keeps the ids that it has. In a request, an id is rewritten if the provider's alphabet or length demands it,
always in the same way, so that a result still matches its call and a prompt cache still hits.
"""

from __future__ import annotations

import re
from hashlib import sha256

from penstock.calls.numbering import UniqueIds
from penstock.wires.shared.facts import LETTERS_AND_DIGITS, IdRules, WireFacts

_USUAL_LENGTH = 24  # length of a new id where any length is accepted
_ANY = WireFacts(wire="")


def fit_id(id: str, rules: IdRules) -> str:
    """The id if it fits the rules, else a hash of it that does."""
    longest = rules.length or rules.max_length or len(id)
    has_length = rules.length <= len(id) <= longest
    is_fit = bool(id) and has_length and (not rules.alphabet or set(id) <= set(rules.alphabet))
    return id if is_fit else _hash(id, rules.length or min(rules.max_length or _USUAL_LENGTH, _USUAL_LENGTH))


def _hash(id: str, length: int) -> str:
    number = int.from_bytes(sha256(id.encode("utf-8", "surrogatepass")).digest())
    letters: list[str] = []
    while len(letters) < length:
        number, digit = divmod(number, len(LETTERS_AND_DIGITS))
        letters.append(LETTERS_AND_DIGITS[digit])
    return "".join(letters)


class Ids:
    """The call ids of one request: valid for the provider, and unique (QUIRKS 21, 22)."""

    def __init__(self, rules: IdRules) -> None:
        self._rules = rules
        self._free = UniqueIds()

    def take(self, id: str) -> str:
        """The id for one more call; a new one if another call of the request has it."""
        return self._free.take(self.fit(id), lambda number: self.fit(f"{id}_{number}"))

    def keep(self, id: str) -> str:
        """The id of a call that is not in the request; no call of the request gets it."""
        fitted = self.fit(id)
        self._free.add(fitted)
        return fitted

    def fit(self, id: str) -> str:
        """The id as the provider accepts it."""
        return fit_id(id, self._rules)


def id_rules(facts: WireFacts, quirks: frozenset[str]) -> IdRules:
    """The id rules of a provider with these quirks."""
    return next((facts.quirk_ids[quirk] for quirk in quirks if quirk in facts.quirk_ids), facts.ids)


def fit_name(name: str, facts: WireFacts = _ANY) -> str:
    """A tool's name as the wire accepts it, or as all wires do: models make up others (QUIRKS 31)."""
    refused = rf"[^A-Za-z0-9_{facts.name_characters}-]+"
    return re.sub(refused, "_", name)[: facts.max_name] or "unnamed"
