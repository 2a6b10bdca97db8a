"""Failures of a whole request, which a script may contain instead of a reply."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from penstock.testing.reply import Reply


class Status(Struct, frozen=True):
    """An HTTP error with the body that the provider sends; with status 200, an error body in a successful response.

    Without a message, the provider's usual one for that status.
    """

    status: int
    message: str = ""
    retry_after: float | None = None


class HTMLPage(Struct, frozen=True):
    """An HTML page instead of a response, as failing gateways send it."""

    status: int = 502
    html: str = "<html><head><title>Error</title></head><body><h1>Something went wrong</h1></body></html>"


class Redirect(Struct, frozen=True):
    """An HTTP redirect."""

    location: str = "/elsewhere"
    status: int = 307


class Hang(Struct, frozen=True):
    """Nothing arrives, not even a status; after `seconds`, if set, the connection breaks."""

    seconds: float | None = None


class Reset(Struct, frozen=True):
    """The connection breaks before anything arrives."""


class Mislabelled(Struct, frozen=True):
    """A reply with a wrong content type."""

    reply: Reply
    content_type: str = "text/plain"


class Raw(Struct, frozen=True):
    """Any response, sent unchanged."""

    body: bytes
    content_type: str = "text/event-stream"
    status: int = 200
    headers: Mapping[str, str] = {}


Fault = Status | HTMLPage | Redirect | Hang | Reset | Mislabelled | Raw
