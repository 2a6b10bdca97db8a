"""Opaque text that its maker knows again: the signatures that the loopback issues, and no others.

Real providers check what they once signed or encrypted. The last letters here depend on all the others, so that a
strict server can tell what was altered, or what another vendor wrote, without remembering what it gave out.
"""

from __future__ import annotations

from hashlib import sha256
from string import ascii_letters, digits

SEAL = 8
"""How many letters of sealed text are the seal."""
CLAUDE = "Eq"
"""How Claude's signatures begin, whoever serves it: they are taken by all who do."""
GEMINI = "Ev"
OPENAI = "gAAAAA"

_LETTERS = ascii_letters + digits


def sealed(text: str) -> str:
    """The text, with its seal behind it."""
    return text + "".join(_LETTERS[byte % len(_LETTERS)] for byte in sha256(text.encode()).digest()[:SEAL])


def is_sealed(text: object, prefix: str) -> bool:
    """Whether this is sealed text that begins so."""
    return isinstance(text, str) and text.startswith(prefix) and text == sealed(text[:-SEAL])
