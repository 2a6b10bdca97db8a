"""What is random in a scripted reply: its ids and signatures, its padding, and where its text is cut.

It depends only on the reply and the request: the calls of two turns of a conversation have different ids, and equal
requests get equal responses.
"""

from __future__ import annotations

import re
import string
import zlib
from collections import Counter
from collections.abc import Iterator
from hashlib import shake_128
from random import Random

from penstock.testing.reply import Reply
from penstock.testing.wires.signatures import CHECKSUM_LENGTH, sign

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE64 = LETTERS + "+/"
SIGNATURE = 90
"""The length of signatures, without their prefix."""
_PADDINGS = [string.ascii_letters[:length].encode() for length in range(1, 31)]
_WORD = re.compile(r"\s*\S+|\s+")


class Randomness:
    """The random parts of one reply to a request with this body."""

    def __init__(self, reply: Reply, body: bytes) -> None:
        self._seed = zlib.crc32(body, zlib.crc32(repr(reply).encode("utf-8", "surrogatepass")))
        self._id_counts: Counter[str] = Counter()
        self._random = Random(reply.seed)
        self._padded = 0  # how often

    def id(self, prefix: str, length: int, letters: str = LETTERS) -> str:
        """Generates an id or other opaque text with this prefix."""
        self._id_counts[prefix] += 1
        source = f"{self._seed}/{prefix}/{self._id_counts[prefix]}".encode()
        return prefix + "".join([letters[byte % len(letters)] for byte in shake_128(source).digest(length)])

    def signature(self, prefix: str) -> str:
        """Generates a signature or encrypted text that a strict server can verify."""
        return sign(self.id(prefix, SIGNATURE - CHECKSUM_LENGTH, BASE64))

    def padding(self) -> bytes:
        """Letters of some length, as some providers add them to hide the length of a frame."""
        self._padded += 1
        return _PADDINGS[self._padded * self._padded % len(_PADDINGS)]

    def text_pieces(self, text: str) -> Iterator[str]:
        """Splits text as models stream it: one or two words at a time."""
        words = _WORD.findall(text)
        start = 0
        while start < len(words):
            size = self._random.choice((1, 1, 2))
            yield "".join(words[start : start + size])
            start += size

    def argument_pieces(self, text: str) -> Iterator[str]:
        """Splits arguments as models stream them: a few characters at a time."""
        start = 0
        while start < len(text):
            size = self._random.randint(2, 9)
            yield text[start : start + size]
            start += size
