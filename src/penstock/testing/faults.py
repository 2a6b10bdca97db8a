"""What may go wrong with a request as a whole: values that stand in a script in place of a reply."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from penstock.testing.reply import Reply


class Status(Struct, frozen=True):
    """An HTTP error with the body that the vendor would send; with 200, an error in a body that pretends to be well.

    Without a message, the vendor's usual one for that status.
    """

    status: int
    message: str = ""
    retry_after: float | None = None


class HTMLPage(Struct, frozen=True):
    """A web page in place of an answer, as a gateway in trouble sends it."""

    status: int = 502
    html: str = "<html><head><title>Error</title></head><body><h1>Something went wrong</h1></body></html>"


class Redirect(Struct, frozen=True):
    """The answer is said to be elsewhere."""

    location: str = "/elsewhere"
    status: int = 307


class Hang(Struct, frozen=True):
    """Nothing comes, not even a status; after some time, if one is given, the connection breaks."""

    seconds: float | None = None


class Reset(Struct, frozen=True):
    """The connection breaks before anything came."""


class Mislabelled(Struct, frozen=True):
    """A reply whose content type is not what it is."""

    reply: Reply
    content_type: str = "text/plain"


class Raw(Struct, frozen=True):
    """Any response at all, as it stands."""

    body: bytes
    content_type: str = "text/event-stream"
    status: int = 200
    headers: Mapping[str, str] = {}


Fault = Status | HTMLPage | Redirect | Hang | Reset | Mislabelled | Raw
