"""Folding: forms of a text in which a quotation can be compared with its source, however either is written.

`clean` removes what a reader does not see and replaces characters that look like others, `plain` also ignores case, and
`fold` leaves only what carries the content.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable

_LEVELS = 3  # how often HTML escapes are decoded
_COLOURS = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\))")  # terminal colours
_BARE_COLOURS = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m")
_BREAKS = re.compile(r"</?(?:br|p|div|pre|li|tr)\b[^<>]{0,200}>", re.IGNORECASE)
_LAYOUT = re.compile(r"</?(?:wbr|span|code|b|i|em|strong|td)\b[^<>]{0,200}>", re.IGNORECASE)
_NUMBERS = re.compile(r"^[\s>|*+#-]{0,40}\d{1,6}[ \t]{0,4}[\t:|.)\u2192]", re.MULTILINE)  # item and line numbers
_DROPPED = re.compile(r"[\s\"'`\\>|*+#\u00ab\u00bb\u2010-\u201f\u2039\u203a\u2212\u2500-\u257f-]+")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\uffa0\U000e0000-\U000e0fff]+"
)
"""Characters without a shape: joiners, directions, selectors, tags. `encodings` reads what tags spell."""
_PHRASES = re.compile("[\ufdfa\ufdfb\u3300-\u3357]")
"""Characters that stand for whole words, of up to 18 characters: texts full of them would grow as much."""

_LOOK_ALIKES = {
    # Cyrillic
    "а": "a", "в": "b", "е": "e", "к": "k", "м": "m", "н": "h", "о": "o", "р": "p", "с": "c", "т": "t", "у": "y",
    "х": "x", "ѕ": "s", "і": "i", "ј": "j", "ԁ": "d", "һ": "h", "ԛ": "q", "ԝ": "w", "ӏ": "l", "ѵ": "v", "ү": "y",
    "А": "A", "В": "B", "Е": "E", "К": "K", "М": "M", "Н": "H", "О": "O", "Р": "P", "С": "C", "Т": "T", "У": "Y",
    "Х": "X", "Ѕ": "S", "І": "I", "Ј": "J", "Ԛ": "Q", "Ԝ": "W", "Ү": "Y",
    # Greek
    "α": "a", "ε": "e", "ι": "i", "κ": "k", "ν": "v", "ο": "o", "ρ": "p", "τ": "t", "υ": "u", "χ": "x", "ϲ": "c",
    "ϳ": "j", "Α": "A", "Β": "B", "Ε": "E", "Ζ": "Z", "Η": "H", "Ι": "I", "Κ": "K", "Μ": "M", "Ν": "N", "Ο": "O",
    "Ρ": "P", "Τ": "T", "Υ": "Y", "Χ": "X",
    # Armenian, and Latin letters of phonetic alphabets
    "օ": "o", "ս": "u", "հ": "h", "ո": "n", "ց": "g", "զ": "q", "ı": "i", "ɑ": "a", "ɡ": "g", "ɩ": "i", "ᴀ": "a",
    "ʙ": "b", "ᴄ": "c", "ᴅ": "d", "ᴇ": "e", "ꜰ": "f", "ɢ": "g", "ʜ": "h", "ɪ": "i", "ᴊ": "j", "ᴋ": "k", "ʟ": "l",
    "ᴍ": "m", "ɴ": "n", "ᴏ": "o", "ᴘ": "p", "ʀ": "r", "ꜱ": "s", "ᴛ": "t", "ᴜ": "u", "ᴠ": "v", "ᴡ": "w", "ʏ": "y",
    "ᴢ": "z",
    # Cherokee
    "Ꭺ": "A", "Ᏼ": "B", "Ꮯ": "C", "Ꭰ": "D", "Ꭼ": "E", "Ꮐ": "G", "Ꮋ": "H", "Ꭻ": "J", "Ꮶ": "K", "Ꮮ": "L", "Ꮇ": "M",
    "Ꮲ": "P", "Ꭱ": "R", "Ꮪ": "S", "Ꭲ": "T", "Ꮩ": "V", "Ꮃ": "W", "Ꮓ": "Z",
    # signs
    "\u27e8": "<", "\u27e9": ">", "\u3008": "<", "\u3009": ">", "\u276c": "<", "\u276d": ">", "\u02c2": "<",
    "\u02c3": ">", "\u1438": "<", "\u1433": ">", "\u2768": "(", "\u2769": ")", "\u27ee": "(", "\u27ef": ")",
    "\u2774": "{", "\u2775": "}", "\ua789": ":", "\u2236": ":", "\u02d0": ":", "\ua78a": "=", "\u2044": "/",
    "\u2215": "/", "\u02ba": '"', "\u2033": '"', "\u02cd": "_", "\u201a": ",",
}  # fmt: skip
_TABLE = str.maketrans(_LOOK_ALIKES)
_LOOKS_ALIKE = re.compile(f"[{''.join(_LOOK_ALIKES)}]")  # much faster than the table, for texts without any
_DROPPED_BYTES = bytes(code for code in range(128) if _DROPPED.match(chr(code)))


def visible(text: str) -> str:
    """Returns a text without invisible characters."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def clean(text: str) -> str:
    """Returns a text without invisible characters, and with one character for all that look like it."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _PHRASES.sub("\u25a1", visible(text)))
    return text.translate(_TABLE) if _LOOKS_ALIKE.search(text) else text


def unescaped(text: str) -> str:
    """Returns a text without HTML escapes and the colours of terminals."""
    for _ in range(_LEVELS):
        if "&" not in text or (decoded := html.unescape(text)) == text:
            break
        text = decoded
    return without_colours(text)


def without_colours(text: str) -> str:
    """Returns a text without the colours of terminals, also where the escape character was removed from them."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    return _BARE_COLOURS.sub("", text) if "m" in text and "[" in text else text


def plain(text: str) -> str:
    """Returns a text in one case and one form of its characters, without HTML escapes and colours."""
    return clean(unescaped(text)).casefold()


def fold(text: str) -> str:
    """Returns a plain text without white space, quotes, backslashes and the margins of quotes, lists and tables."""
    if text.isascii():
        return text.encode().translate(None, _DROPPED_BYTES).decode()
    return _DROPPED.sub("", text)


def spaced(text: str) -> str:
    """Returns a plain text with one space for each run of what `fold` removes."""
    return _DROPPED.sub(" ", text).strip(" ")


def layouts(text: str) -> Iterable[str]:
    """Returns a text, and the same without line numbers and the tags of a layout."""
    return dict.fromkeys((text, _NUMBERS.sub("", _LAYOUT.sub("", _BREAKS.sub("\n", text)))))
