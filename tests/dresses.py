"""The forms in which a server may send a secret back, for the tests of redaction."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from html import escape
from urllib.parse import quote

Dress = Callable[[str], str]


def _each(template: str) -> Dress:
    """Escapes each character."""
    return lambda text: "".join(template.format(ord(letter)) for letter in text)


def _bytes(template: str) -> Dress:
    """Escapes each byte."""
    return lambda text: "".join(map(template.format, text.encode()))


ESCAPES: dict[str, Dress] = {
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON with escaped slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "JSON escapes only": _each("\\u{:04x}"),
    "braces": _each("\\u{{{:x}}}"),
    "hexadecimal escapes": _bytes("\\x{:02X}"),
    "octal escapes": _bytes("\\{:03o}"),
    "HTML": escape,
    "HTML numbers": _each("&#{};"),
    "HTML numbers with zeros": _each("&#{:06};"),
    "HTML hexadecimal numbers": _each("&#x{:X};"),
    "URL": lambda text: quote(text, safe=""),
    "URL bytes": _bytes("%{:02x}"),
    "every second": lambda text: "".join(f"&#{ord(c)};" if at % 2 else c for at, c in enumerate(text)),
    "wrapped": lambda text: text[:5] + "\n  " + text[5:],
    "zero width": "\u200b".join,
    "nulls": "\0".join,
    "upper case": str.upper,
}
"""Escapes, which can be applied one after another."""
ENCODINGS: dict[str, Dress] = {
    "base64": lambda text: b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: urlsafe_b64encode(text.encode()).decode(),
    "base64 of more": lambda text: b64encode(f"u:{text}!".encode()).decode(),
    "base64 of JSON": lambda text: b64encode(f'{{"k":"{text}"}}'.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
}
"""Encodings of the secret itself."""
