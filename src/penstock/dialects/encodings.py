"""Encodings of text within a text: JSON and HTML escapes, URLs, quoted-printable mails, base64, hexadecimal, tags.

A tool returns a mail in JSON or a link with a query, and a model that reports it writes what it says. So a text of the
conversation is compared with what a model writes as it is, and as it reads when its encodings are decoded.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import sys
from collections.abc import Callable
from urllib.parse import unquote, unquote_plus

from penstock.dialects.folding import without_colours
from penstock.jsontext.surrogates import join_surrogates

MAX_READINGS = 32
"""How many readings of one text of the conversation are compared: it may have several encodings, one in another."""
FEWEST_READINGS = 6
"""How many readings a text has at least, if it has as many encodings; others only while there is room for them."""

_SPACES = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(
    rf"\\(?:u\{{({_HEX}{{1,6}})\}}|u({_HEX}{{4}})|x({_HEX}{{2}})|U({_HEX}{{8}})|([0-3][0-7]{{2}})|(.))", re.DOTALL
)
_OCTAL, _PLAIN = 5, 6  # the groups that are not hexadecimal
_OCTETS = re.compile(r"\\(?:x[89a-fA-F][0-9a-fA-F]|[23][0-7]{2})(?:\\(?:x[89a-fA-F][0-9a-fA-F]|[23][0-7]{2}))*")
_PERCENT_U = re.compile(rf"%u({_HEX}{{4}})")
_QUOTED_PRINTABLE = re.compile(rf"=(?:{_HEX}{{2}}|[ \t]*\r?\n)(?:=(?:{_HEX}{{2}}|[ \t]*\r?\n))*")
_LINE_END = re.compile(r"=(?:[ \t]*\r?\n)?")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2}")

_BETWEEN_STRINGS = re.compile(r'"(?<!\\")\s{0,40}[,+]\s{0,40}"')  # a pattern that begins with a character is faster
_CONCATENATED = re.compile(r"""(["'])(?:\s{0,40}(?:[+.&]|\|\||\.\.)\s{0,40}|\s{1,40})\1""")
_FORM = re.compile(r"\w=[^\s&+]{0,400}\+")
_MARGIN = re.compile(r"^[ \t]*(?:[>|*+#;%]|//+|--)[ \t>]{0,8}", re.MULTILINE)
_QUOTED_RUN = re.compile(
    rf"(?:{_MARGIN.pattern}(?:[A-Za-z0-9+/_-]+={{0,2}}|[\[\]{{}}\"].*)[ \t]*\r?(?:\n|\Z)){{2,}}", re.MULTILINE
)  # lines of base64 or of strings, each with a margin
_TAG = re.compile("[\U000e0000-\U000e007f]")
_TAGS = {0xE0000 + code: chr(code) for code in (*b"\t\n\r", *range(0x20, 0x7F))}
_HEX_RUN = re.compile(rf"{_HEX}{{2}}(?:[ :]?{_HEX}{{2}}){{7,}}")


def readings(text: str, most: int | None = None) -> list[str]:
    """Returns the text, and what it says when its encodings are decoded, one after the other."""
    texts = [text]
    most = MAX_READINGS if most is None else most
    for reading in texts:
        for decode in _DECODERS:
            if len(texts) < most and (decoded := decode(reading)) not in texts:
                texts.append(decoded)
    return texts


def decode_escapes(text: str) -> str:
    """Returns the text with the escapes of JSON, JavaScript, Python and shells decoded."""
    return join_surrogates(_ESCAPE.sub(_character, text)) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    """Returns the character that an escape of JSON, JavaScript, Python or a shell stands for."""
    kind = escape.lastindex or 0
    if kind == _PLAIN:
        return _SPACES.get(escape[kind], escape[kind])
    number = int(escape[kind], 8 if kind == _OCTAL else 16)
    return chr(number) if number <= sys.maxunicode else escape[0]


def _decode_octet_escapes(text: str) -> str:
    """Decodes the octets of UTF-8 that Python and Git print as escapes."""
    return _OCTETS.sub(_escaped_octets, text) if "\\" in text else text


def _escaped_octets(match: re.Match[str]) -> str:
    numbers = (int(code[1:], 16) if code[0] == "x" else int(code, 8) for code in match[0].split("\\")[1:])
    return bytes(numbers).decode("utf-8", "replace")


def _decode_percent_u(text: str) -> str:
    return join_surrogates(_PERCENT_U.sub(lambda match: chr(int(match[1], 16)), text)) if "%" in text else text


def _decode_quoted_printable(text: str) -> str:
    return _QUOTED_PRINTABLE.sub(_octets, text) if "=" in text else text


def _octets(match: re.Match[str]) -> str:
    """Returns the characters of escaped octets; an escaped end of a line is not part of the text."""
    return bytes.fromhex(_LINE_END.sub("", match[0])).decode("utf-8", "replace")


def _decode_base64(text: str) -> str:
    return _BASE64.sub(_decoded_run, text)


def _decoded_run(match: re.Match[str]) -> str:
    """Returns the text that lines of base64 stand for; lines that are not base64 are kept.

    Lines of one length belong together, with the one that follows them if it does.
    """
    lines, decoded, start = match[0].splitlines(), list[str](), 0
    while start < len(lines):
        width = len(lines[start])
        end = next((index for index in range(start, len(lines)) if len(lines[index]) != width), len(lines))
        for stop in (end + 1, end):
            if (text := _base64_text("".join(lines[start:stop]))) is not None:
                decoded.append(text)
                start = stop
                break
        else:
            decoded += [_base64_text(line) or line for line in lines[start:end]]
            start = end
    return "\n".join(decoded)


def _base64_text(run: str) -> str | None:
    letters = run.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(letters + "=" * (-len(letters) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return _base64_text(run[1:]) if run.startswith("+") else None  # as in a diff


def _decode_tags(text: str) -> str:
    """Decodes tag characters, which are invisible and spell ASCII."""
    return text.translate(_TAGS) if not text.isascii() and _TAG.search(text) else text


def _join_strings(text: str) -> str:
    """Joins the strings of an array or a program, which may be the lines of a text."""
    return _BETWEEN_STRINGS.sub(r"\\n", text) if '"' in text else text


def _without_margins(text: str) -> str:
    """Removes the margins of lines that belong together: those of base64, and the strings of an array."""
    return _QUOTED_RUN.sub(lambda match: _MARGIN.sub("", match[0]), text) if "\n" in text else text


def _decode_form(text: str) -> str:
    """Decodes the fields of a form, where a plus sign is a space."""
    return unquote_plus(text) if "+" in text and _FORM.search(text) else text


def _concatenate(text: str) -> str:
    """Joins the strings that a program puts together."""
    return _CONCATENATED.sub("", text)


def _decode_doubled_quotes(text: str) -> str:
    """Decodes the quotes of CSV."""
    return text.replace('""', '"')


def _decode_hex(text: str) -> str:
    return _HEX_RUN.sub(_hex_text, text)


def _hex_text(match: re.Match[str]) -> str:
    """Returns the text that octets in hexadecimal stand for; what is not UTF-8 is kept."""
    try:
        return bytes.fromhex(match[0].replace(":", " ")).decode()
    except ValueError:
        return match[0]


_DECODERS: tuple[Callable[[str], str], ...] = (
    _decode_octet_escapes, decode_escapes, html.unescape, unquote, _decode_percent_u, _decode_quoted_printable,
    _decode_base64, _decode_hex, _decode_tags, _join_strings, _decode_form, _concatenate,
    _without_margins, without_colours, _decode_doubled_quotes,
)  # fmt: skip
