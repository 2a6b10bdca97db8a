"""Redaction: which fields hold secrets, and how secrets are kept out of errors, reprs, events and recordings.

A server may repeat a secret in any form: escaped for JSON, HTML or a URL, once or several times, in base64, in hex. So
a text is searched layer by layer: as it is, then with its escapes decoded, and so on until nothing is left to decode.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from html import unescape
from itertools import accumulate
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

MIN_SECRET = 8
"""Shorter values are not masked: people write "none" or "test" where a key is required."""
LAYERS = 6
"""How many layers of escapes are decoded."""
PIECE = 64 * 1024
"""How many characters are looked at by one call that cannot be interrupted: other threads run in between."""
PUBLIC_HEADERS = frozenset({
    "accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-length", "content-type",
    "host", "http-referer", "origin", "referer", "traceparent", "user-agent", "x-amz-content-sha256", "x-amz-date",
    "x-title",
})  # fmt: skip
"""Headers of a request that hold no secret, as those do that end in `PUBLIC_ENDINGS`. Others are masked, whatever their
name."""
PUBLIC_ENDINGS = ("-beta", "-version")
_NAMES = re.compile(r"auth|cookie|token|key|secret|signature|credential|password|passwd|passphrase", re.IGNORECASE)
_WHITE = "\x00\t\n\v\f\r\x1c\x1d\x1e\x1f "
_INVISIBLE = "\x85\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2800\u3000\u3164\ufeff\uffa0" + "".join(
    map(chr, (*range(0x180B, 0x1810), *range(0x2000, 0x2010), *range(0x2028, 0x2030), *range(0x205F, 0x2070),
              *range(0xFE00, 0xFE10)))
)  # fmt: skip
_IGNORED = dict.fromkeys(map(ord, _WHITE + _INVISIBLE))
_IGNORED_BYTES = _WHITE.encode()
_ESCAPE = re.compile(
    r"""[\\%&](?:   # a pattern that begins with a set of characters is ten times as fast
    (?<=\\)u\{0*(?P<braced>[0-9a-f]{1,6})\} | (?<=[\\%])u(?P<four>[0-9a-f]{4})   # JSON and JavaScript
    | (?:(?<=\\)x|(?<=%))(?P<two>[0-7][0-9a-f]) | (?<=\\)(?P<octal>[01][0-7]{2}) | (?<=\\)(?P<letter>["'\\/bfnrtv])
    | (?<=\\)x[89a-f][0-9a-f](?:\\x[89a-f][0-9a-f])* | (?<=%)[89a-f][0-9a-f](?:%[89a-f][0-9a-f])*   # not ASCII
    | (?<=\\)[23][0-7]{2}(?:\\[23][0-7]{2})*
    | (?<=&)\#0*(?P<decimal>\d{1,7});? | (?<=&)\#x0*(?P<hexadecimal>[0-9a-f]{1,6});? | (?<=&)[a-z][a-z0-9]{1,31};?
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_BASES = {"braced": 16, "four": 16, "two": 16, "octal": 8, "decimal": 10, "hexadecimal": 16}
_LETTERS = dict(zip("nrtbfv", "\n\r\t\b\f\v", strict=True))


def is_secret(name: str) -> bool:
    """Whether a header or a query parameter of this name holds a secret."""
    return _NAMES.search(name) is not None


def without_secrets(url: str) -> str:
    """A URL without user name and password, fragment, and query parameters that hold secrets."""
    address, question, query = url.partition("#")[0].partition("?")
    scheme, slashes, rest = address.partition("//")
    host, slash, path = rest.partition("/")
    if "@" in host:
        host = f"***@{host.rpartition('@')[2]}"
    elif "@" in path and not re.fullmatch(r"[\w.-]*|.*:\d*|\[.*\]", host):  # a password that contains a slash
        host, slash, path = f"***@{path.rpartition('@')[2]}", "", ""
    kept = [pair for pair in query.split("&") if not is_secret(unquote(pair.partition("=")[0]))]
    return scheme + slashes + host + slash + path + (question if kept else "") + "&".join(kept)


class Mask:
    """Masks the secrets of a request in other data."""

    def __init__(self, headers: Mapping[str, str], url: str = "") -> None:
        self._secrets = {secret for secret in _secrets(headers, url) if len(secret) >= MIN_SECRET}

    def learn(self, headers: Mapping[str, str], url: str = "") -> None:
        """Mask the secrets of these headers, and of this URL, too."""
        self._secrets |= {secret for secret in _secrets(headers, url) if len(secret) >= MIN_SECRET}
        for name in ("_forms", "_shortest", "_pattern"):
            self.__dict__.pop(name, None)

    @cached_property
    def _forms(self) -> list[str]:
        """The forms of the secrets that are searched for, without white space and in lower case, the longest first."""
        forms = {form for secret in self._secrets for form in _forms(secret) if len(form) >= MIN_SECRET}
        return sorted(forms, key=len, reverse=True)

    @cached_property
    def _shortest(self) -> list[str]:
        """The forms that contain no other: a text without these has none."""
        return [form for form in self._forms if not any(other in form for other in self._forms if other != form)]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._forms)))

    def occurs_in(self, text: str) -> bool:
        """Whether the text contains a secret in any form."""
        return any(self._is_in(layer) for layer in _layers(text)) if self._forms else False

    def _is_in(self, layer: str) -> bool:
        return any(form in layer for form in self._shortest) or self._cut_length(layer) > 0

    def _cut_length(self, layer: str) -> int:
        """The length of the beginning of a secret at the end of a layer, where a text was truncated."""
        last = layer[-len(self._forms[0]) :]
        for form in self._shortest:
            start = last.find(form[:MIN_SECRET])
            while start >= 0:
                if form.startswith(last[start:]):
                    return len(last) - start
                start = last.find(form[:MIN_SECRET], start + 1)
        return 0

    def text(self, text: str) -> str:
        """The text with each secret replaced by three stars."""
        return self._replaced(text, lambda secret: 3)

    def _replaced(self, text: str, count: Callable[[str], int]) -> str:
        """The text with each secret replaced by as many stars as `count` returns."""
        if not self.occurs_in(text):
            return text
        parts, end = [], 0
        for start, stop in _merged(self._places(text)):
            parts += [text[end:start], "*" * count(text[start:stop])]
            end = stop
        return "".join(parts) + text[end:]

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Where secrets are, as places in the text, in all layers."""
        for layer, places in _placed_layers(text):
            for match in self._pattern.finditer(layer):
                yield places[match.start()][0], places[match.end() - 1][1]
            if cut := self._cut_length(layer):
                yield places[-cut][0], places[-1][1]

    def data(self, data: bytes, *, keeps_length: bool = False) -> bytes:
        """The bytes with each secret replaced by three stars, or by as many as it has bytes."""
        try:
            text, encoding = data.decode(), "utf-8"
        except UnicodeDecodeError:
            text, encoding = data.decode("latin-1"), "latin-1"
        masked = self._replaced(text, lambda secret: len(secret.encode(encoding)) if keeps_length else 3)
        return masked.encode(encoding)

    def value(self, value: Any) -> Any:
        """A JSON value with the secrets masked, also in keys."""
        match value:
            case str():
                return self.text(value)
            case list() | tuple():
                return [*map(self.value, value)]
            case dict():
                return dict(zip(map(self.value, value), map(self.value, value.values()), strict=True))
        return value

    def pieces(self, pieces: Sequence[bytes]) -> Iterator[bytes]:
        """The pieces of one text with the secrets masked, also where one was split in two."""
        sizes = [len(piece) for piece in pieces]
        body = self.data(b"".join(pieces), keeps_length=True)
        return (body[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True))


def _secrets(headers: Mapping[str, str], url: str) -> Iterator[str]:
    """The secrets of a request: values of headers and of query fields, whole and in parts, and the password."""
    for name, value in headers.items():
        if name.lower() not in PUBLIC_HEADERS and not name.lower().endswith(PUBLIC_ENDINGS):
            yield value
            yield from _parts(value, headers)
    parts = urlsplit(url)
    for name, _, value in (pair.partition("=") for pair in parts.query.split("&")):
        if is_secret(unquote_plus(name)):
            yield from (value, unquote(value), unquote_plus(value))
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    yield unquote(password if colon else user)


def _parts(value: str, headers: Mapping[str, str]) -> Iterator[str]:
    """The parts of a header's value: what follows "Bearer", each cookie, user name and password of "Basic"."""
    names = {name.lower() for name in headers} | PUBLIC_HEADERS  # a signature lists them
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() == "basic":
        try:
            yield b64decode(rest).decode().partition(":")[2]
        except (Base64Error, ValueError):
            pass
    yield from value.split()
    for part in re.split(r"[\s,;]+", value):
        yield from (text for text in (part, part.partition("=")[2]) if text not in names)


def _forms(secret: str) -> Iterator[str]:
    """The forms of a secret that a text is searched for: itself, decoded, in base64 at any alignment, and in hex."""
    data = secret.encode("utf-8", "surrogatepass")
    yield from (*_layers(secret), *_layers(data.decode("latin-1")), data.hex())
    for shift in range(3):  # some bits of the characters at both ends belong to the text around the secret
        encoded = b64encode(b"\0" * shift + data).decode()
        core = encoded[(0, 2, 3)[shift] : (shift + len(data)) * 8 // 6].lower()
        yield from (core, core.replace("+", "-").replace("/", "_"))


def _layers(text: str) -> Iterator[str]:
    """The visible text in lower case; then with its escapes decoded; and so on."""
    for _ in range(LAYERS):
        text = _visible(text)
        yield text.lower()
        decoded = _ESCAPE.sub(_decode, text) if "\\" in text or "%" in text or "&" in text else text
        if decoded == text:
            return
        text = decoded


def _visible(text: str) -> str:
    """The text without white space and invisible characters."""
    if text.isascii():
        return text.encode().translate(None, _IGNORED_BYTES).decode()
    pieces = (text[start : start + PIECE] for start in range(0, len(text), PIECE))
    return "".join([piece.translate(_IGNORED) for piece in pieces])


def _decode(match: re.Match[str]) -> str:
    """The characters that an escape stands for."""
    kind = match.lastgroup
    if kind is None:
        return _decode_bytes(match[0]) if match[0][0] in "\\%" else unescape(match[0])
    if kind == "letter":
        return _LETTERS.get(match[kind], match[kind])
    code = int(match[kind], _BASES[kind])
    return chr(code) if code < 0x110000 else ""


def _decode_bytes(escapes: str) -> str:
    """The characters of escapes of bytes that are not ASCII."""
    base = 16 if escapes[0] == "%" or escapes[1] in "xX" else 8
    data = bytes(int(digits, base) for digits in re.findall(r"[0-9a-fA-F]+", escapes))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


_Place = tuple[int, int]


def _placed_layers(text: str) -> Iterator[tuple[str, list[_Place]]]:
    """The layers of a text, each with the place in the text that every character comes from."""
    places: list[_Place] = [(start, start + 1) for start in range(len(text))]
    for _ in range(LAYERS):
        places = [place for place, character in zip(places, text, strict=True) if ord(character) not in _IGNORED]
        text = _visible(text)
        lower = [character.lower() for character in text]  # several characters for some
        yield "".join(lower), [place for place, low in zip(places, lower, strict=True) for _ in low]
        text, places = _decoded(text, places)


def _decoded(text: str, places: list[_Place]) -> tuple[str, list[_Place]]:
    """A text with its escapes decoded, and the places that its characters come from."""
    parts: list[str] = []
    origins: list[_Place] = []
    end = 0
    for match in _ESCAPE.finditer(text):
        decoded = _decode(match)
        parts += [text[end : match.start()], decoded]
        origins += places[end : match.start()]
        origins += [(places[match.start()][0], places[match.end() - 1][1])] * len(decoded)
        end = match.end()
    return "".join([*parts, text[end:]]), origins + places[end:]


def _merged(places: Iterable[_Place]) -> Iterator[_Place]:
    """The places in order, with those that overlap joined."""
    last: _Place | None = None
    for start, end in sorted(places):
        if last is not None and start < last[1]:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last
