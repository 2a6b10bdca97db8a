"""Texts of models, servers and clients as people see them: on a terminal, in a log, in an error.

Characters that act on a terminal, that break a line of a log, or that nobody sees are spelled out (`\\x1b`, `\\u200b`).
The invisible ones are those that Unicode says have no shape (`Default_Ignorable_Code_Point`): with them a name looks
like another one, and a text has words that only a model reads.

Joiners and variation selectors have a use, and people would see emoji and Persian words fall apart. One stays where it
has that use: a joiner after an emoji or a letter of a script that joins letters, a variation selector after a digit or
a visible character that is not ASCII. A second one in a row is spelled out: only hidden data has those. Tag characters
have no such exception: the flags of three regions are not worth an alphabet that nobody sees. A question for approval
has no exceptions at all.
"""

from __future__ import annotations

import re

MAX_LINE = 300
"""How many characters of a text are in a line of a log."""

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufff9-\ufffb"  # without tab and newline
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_JOINERS = "\u200c\u200d"
_SHAPELESS = (
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_JOINED = "\u0600-\u061b\u061d-\u180a\u1810-\u18af"  # scripts with joined letters, from Arabic to Mongolian
_VARIED = "0-9#*\xa1-\U0010ffff"
_EMOJI = "\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"

_HIDDEN = re.compile(
    f"[{_CONTROLS}{_BIDI}{_SHAPELESS}]"
    f"|(?<![{_JOINED}{_EMOJI}])[{_JOINERS}]"
    f"|(?<![{_VARIED}])[{_SELECTORS}]|(?<=[{_CONTROLS}{_BIDI}{_SHAPELESS}{_JOINERS}{_SELECTORS}])[{_SELECTORS}]"
)
_UNSETTLED = re.compile(f"[{_VARIED}][{_JOINERS}{_SELECTORS}]{{0,2}}\\Z")
_EVERY = re.compile(f"[{_CONTROLS}{_BIDI}{_SHAPELESS}{_JOINERS}{_SELECTORS}\t\n\u2800]")
_IN_JSON = re.compile(f"[{_CONTROLS}{_BIDI}{_SHAPELESS}{_JOINERS}{_SELECTORS}]")


def has_hidden(text: str) -> bool:
    """Whether a text has characters that `escape` spells out."""
    return _HIDDEN.search(text) is not None


def escape(text: str) -> str:
    """The text with its control and invisible characters spelled out; line breaks and tabs stay."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_spelled, text)


def one_line(text: str, limit: int | None = None) -> str:
    """The text on one line, for a log or a list: line breaks and tabs are spelled out too, and it is truncated."""
    limit = MAX_LINE if limit is None else limit
    excess = len(text) - limit
    line = escape(text[:limit] if excess > 0 else text).replace("\n", "\\n").replace("\t", "\\t")
    return f"{line}… ({excess:,} more characters)" if excess > 0 else line


def settled(text: str) -> str:
    """The beginning of a growing text whose last character cannot be joined with the next one."""
    match = _UNSETTLED.search(text, max(len(text) - 3, 0))
    return text if match is None else text[: match.start()]


def spell(text: str) -> str:
    """The text for a person who decides by it: everything is spelled out that cannot be seen, without exceptions."""
    return "".join(
        char if char.isprintable() and _EVERY.match(char) is None else _spelled_character(char) for char in text
    )


def escape_json(line: bytes) -> bytes:
    """JSON of the same value, with the characters escaped that JSON allows and that `escape` may spell out."""
    if line.isascii() and b"\x7f" not in line:
        return line
    return _IN_JSON.sub(_json_escape, line.decode("utf-8", "surrogatepass")).encode()


def _spelled(match: re.Match[str]) -> str:
    return _spelled_character(match[0])


def _spelled_character(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
