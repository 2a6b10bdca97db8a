"""Signatures that the loopback server can verify.

Real providers verify what they signed or encrypted. Here, the last characters are a checksum of the others, so that a
strict server detects altered signatures and those of other vendors without storing any.
"""

from __future__ import annotations

from hashlib import sha256
from string import ascii_letters, digits

CHECKSUM_LENGTH = 8
"""The length of the checksum."""
CLAUDE = "Eq"
"""The prefix of Claude's signatures, which all of its hosts accept."""
GEMINI = "Ev"
OPENAI = "gAAAAA"

_LETTERS = ascii_letters + digits


def sign(text: str) -> str:
    """The text with its checksum appended."""
    return text + "".join(_LETTERS[byte % len(_LETTERS)] for byte in sha256(text.encode()).digest()[:CHECKSUM_LENGTH])


def is_signature(text: object, prefix: str) -> bool:
    """Whether this is text with this prefix and a valid checksum."""
    return isinstance(text, str) and text.startswith(prefix) and text == sign(text[:-CHECKSUM_LENGTH])
