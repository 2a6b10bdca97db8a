"""The log messages of HTTP clients, without the secrets of the request that is being sent.

httpx logs the URL of every request at the level INFO, and the headers of responses at the level DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.redaction import Mask
from penstock.transport.commands import HTTPRequest

LOGGERS = tuple(
    f"{library}{part}"
    for library, parts in (("httpx", ("",)), ("httpcore", (".connection", ".http11", ".http2", ".proxy", ".socks")))
    for version in ("", "2")
    for part in (f"{version}{part}" for part in parts)
)
"""The loggers of httpx and httpx2, and of the libraries below them."""
_request: ContextVar[HTTPRequest | None] = ContextVar("_request", default=None)


class _SecretsFilter(logging.Filter):
    """Masks the secrets of the request in the message of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if (request := _request.get()) is not None:
            record.msg, record.args = Mask(request.headers, request.url).text(record.getMessage()), None
        return True


_filter = _SecretsFilter()


@contextmanager
def redacted_logs(request: HTTPRequest) -> Generator[None]:
    """Masks the secrets of a request in what HTTP clients log inside `with`, in this thread or task."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)  # does nothing if it is there
    token = _request.set(request)
    try:
        yield
    finally:
        _request.reset(token)
