"""Errors and chunks of a response without the secrets of its request, which a server may repeat anywhere.

Messages of errors are also without characters that nobody sees, or that act on a terminal.
What the model produced (text, reasoning, calls, vendor state) is left as it is: it belongs to the caller, and calls and
vendor state must be sent back unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import ProviderError, UnexpectedReplyError
from penstock.events import Error, Finish, Retry, StreamChunk, Unknown, Usage, encode
from penstock.jsontext.portable import as_json_value, as_text
from penstock.jsontext.shown_text import escape
from penstock.jsontext.surrogates import join_surrogates
from penstock.redaction import Mask

REDACTED = frozenset({Error, Finish, Retry, Unknown, Usage})
"""The chunks that a server fills with its own words."""
MAX_NAMES = 100
"""How many names of counts are remembered as harmless."""
_NO_NAMES: frozenset[str] = frozenset()


class Redactor:
    """Masks the secrets of a request in the errors and chunks of its response."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        # Names of counts that hold no secret: some providers send counts with every frame.
        self._names: frozenset[str] = _NO_NAMES

    def error(self, error: ProviderError) -> ProviderError:
        """The error, with its attributes masked and without the exceptions that led to it: these hold the request."""
        error.message, error.code, error.request_id = (
            escape(self._text(text)) for text in (error.message, error.code, error.request_id)
        )
        if isinstance(error, UnexpectedReplyError):
            error.location = escape(self._text(error.location))
        error.raw = self._value(error.raw)
        error.args = (error.message,)
        error.__cause__ = error.__context__ = None
        return error

    def chunk(self, chunk: StreamChunk) -> StreamChunk:
        """The chunk, with secrets masked if it is one of `REDACTED`."""
        if isinstance(chunk, Error):
            chunk = msgspec.structs.replace(chunk, message=escape(chunk.message))
        if type(chunk) not in REDACTED or (isinstance(chunk, Usage) and self._has_only_counts(chunk.raw)):
            return chunk
        try:
            if not self.mask.occurs_in(encode(chunk).decode()):
                return chunk
        except (UnicodeEncodeError, TypeError, RecursionError):  # it is converted below
            pass
        fields = msgspec.structs.asdict(chunk)
        return type(chunk)(**{name: self._value(value) for name, value in fields.items()})

    def _text(self, text: str) -> str:
        return join_surrogates(self.mask.text(join_surrogates(text)))

    def _value(self, value: Any) -> Any:
        try:
            return self.mask.value(as_json_value(value))
        except RecursionError:
            return self._text(as_text(value))

    def _has_only_counts(self, usage: dict[str, Any]) -> bool:
        """Whether these are numbers, with names that hold no secret."""
        for name, value in usage.items():
            if not (type(value) is int or value is None or (type(value) is dict and self._has_only_counts(value))):
                return False
            if name not in self._names:
                if self.mask.occurs_in(name):
                    return False
                self._names |= {name} if len(self._names) < MAX_NAMES else _NO_NAMES
        return True
