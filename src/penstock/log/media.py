"""Large media in the events of a log: stored once, by hash, beside the events that refer to them.

Images and files are base64 text in an event. A store takes long runs of it out of what it writes, and puts them back
when it reads, so nobody else notices. A reference stands between two NUL bytes, which JSON cannot contain: no text of
a user or a model can look like one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

from penstock.log.store import DamagedRunError

MEDIA_SIZE = 65_536
"""Base64 text of this many characters or more is stored by hash."""

_BASE64 = re.compile(rb"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{%d,}+={0,2}" % MEDIA_SIZE)  # tried once for each run of text
_REFERENCE = re.compile(rb"\0([0-9a-f]{64})\0")

Rows = list[tuple[int, float, bytes]]


def take_out(body: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The body with references instead of its large media, and the media by hash."""
    media: dict[str, bytes] = {}
    if len(body) < MEDIA_SIZE:
        return body, media

    def reference(match: re.Match[bytes]) -> bytes:
        digest = hashlib.sha256(match[0]).hexdigest()
        media[digest] = match[0]
        return b"\0%s\0" % digest.encode()

    return _BASE64.sub(reference, body), media


def put_back(run_id: str, rows: Rows, find: Callable[[Sequence[str]], Mapping[str, bytes]]) -> Rows:
    """The original events before `take_out`; `find` returns media by their hashes."""
    hashes = {match.decode() for _, _, body in rows if b"\0" in body for match in _REFERENCE.findall(body)}
    if not hashes:
        return rows
    media = find(sorted(hashes))
    whole: Rows = []
    try:
        for seq, at, body in rows:
            whole.append((seq, at, _REFERENCE.sub(lambda match: media[match[1].decode()], body)))
    except KeyError as error:
        if not whole:  # else those before it are read first
            raise DamagedRunError(
                f"the log of the run {run_id} is damaged: the media {error.args[0]} are missing"
            ) from None
    return whole
