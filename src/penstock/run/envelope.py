"""The signed envelope of a stored run: with the key, one can verify that it was not changed.

The content is text in a JSON object, so its bytes stay the same when the object is stored as JSON and written again.
The envelope knows nothing of its content.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import UsageError

VERSION = 1
Key = bytes | str


class Envelope(Struct, frozen=True):
    """A content and its signature: HMAC-SHA256, in hexadecimal digits."""

    penstock_signed: int
    signature: str
    content: str


class _Mark(Struct, frozen=True):
    penstock_signed: int | None = None


def sign(content: bytes, key: Key | None) -> bytes:
    """The content in an envelope that is signed with this key; without one, the content as it is."""
    if key is None:
        return content
    return msgspec.json.encode(Envelope(VERSION, _signature(content, key), content.decode()))


def verify(data: bytes | str, key: Key | None) -> bytes | str:
    """The content of an envelope with a valid signature; without a key, the data, which must not be an envelope."""
    version = _version(data)
    if key is None:
        if version is not None:
            raise UsageError("the stored run is signed; pass the key that it was signed with: resume(…, key=…)")
        return data
    if version is None:
        raise UsageError("the stored run has no signature, and a key was passed; store it with dump(key=…)")
    if version > VERSION:
        raise UsageError(f"the stored run was signed by a later version ({version}; this one reads {VERSION})")
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
        content = envelope.content.encode()
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise UsageError(f"this is not a signed run: {error}") from None
    if not hmac.compare_digest(_signature(content, key).encode(), envelope.signature.encode("utf-8", "replace")):
        raise UsageError("the signature of the stored run is not valid: it was changed, or signed with another key")
    return content


def _version(data: bytes | str) -> int | None:
    """The version of an envelope; None if the data is something else."""
    try:
        return msgspec.json.decode(data, type=_Mark).penstock_signed
    except (TypeError, msgspec.MsgspecError, RecursionError):
        return None


def _signature(content: bytes, key: Key) -> str:
    return hmac.new(_secret(key), b"penstock run\n" + content, hashlib.sha256).hexdigest()


def _secret(key: Any) -> bytes:
    """The bytes of a key. A number is refused: `bytes(number)` would be that many zeros, which anyone can guess."""
    match key:
        case str():
            secret = key.encode("utf-8", "surrogatepass")
        case bytes() | bytearray() | memoryview():
            secret = bytes(key)
        case _:
            raise UsageError(f"the key of a stored run must be bytes or text, not {type(key).__name__}")
    if not secret:
        raise UsageError("the key of a stored run is empty")
    return secret
