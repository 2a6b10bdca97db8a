"""The vocabulary of the inspector: an exchange as an append-only list of entries.

`at` is in seconds since the exchange began. `frame` is the number of the provider's last frame so far, so that a reader
can show frames, events and sent bytes side by side.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

Outcome = Literal["complete", "cut", "failed", "left"]
"""How an exchange ended; `left` if the client went away."""


class Asked(Struct, frozen=True, tag="asked"):
    """The request of a client of a gateway or server, in its own protocol; its body is JSON, without secrets."""

    at: float
    wire: str
    model: str
    body: msgspec.Raw


class Requested(Struct, frozen=True, tag="request"):
    """A request to a provider; its body is JSON, without secrets. A retry is a new entry."""

    at: float
    wire: str
    model: str
    url: str
    body: msgspec.Raw


class Responded(Struct, frozen=True, tag="response"):
    """The head of a provider's response."""

    at: float
    status: int
    headers: dict[str, str]


class FrameEntry(Struct, frozen=True, tag="frame"):
    """A frame of the provider: its number, its event name, and its payload as text; a long one is shortened.

    A comment of server-sent events has the name `:`.
    """

    at: float
    frame: int
    name: str
    text: str
    size: int


class EventEntry(Struct, frozen=True, tag="event"):
    """An event that was decoded from a frame."""

    at: float
    frame: int
    event: msgspec.Raw


class SentEntry(Struct, frozen=True, tag="sent"):
    """Bytes that were sent on to the client."""

    at: float
    frame: int
    text: str
    size: int


class OddEntry(Struct, frozen=True, tag="odd"):
    """Something odd in a frame. `quirk` is its number in docs/quirks.md; 0 if it has none."""

    at: float
    frame: int
    quirk: int
    text: str


class HealedEntry(Struct, frozen=True, tag="healed"):
    """A healed quirk in the sent response, and how often it occurred."""

    at: float
    frame: int
    quirk: int
    text: str
    count: int


class ToolEntry(Struct, frozen=True, tag="tool"):
    """A tool that ran, from `begun` until `at`."""

    at: float
    begun: float
    id: str
    name: str
    is_error: bool


class CacheEntry(Struct, frozen=True, tag="cache"):
    """The prompt, compared with the previous one of its conversation; `is_changed` if it does not begin with it.

    `cached` and `total` are the input tokens as the server reported them; None if it did not.
    """

    at: float
    text: str
    is_changed: bool
    cached: int | None
    total: int | None


class Note(Struct, frozen=True, tag="note"):
    """A remark for the reader, such as that an exchange was too large to be kept whole."""

    at: float
    text: str


class Ended(Struct, frozen=True, tag="end"):
    """The end of an exchange."""

    at: float
    outcome: Outcome
    text: str = ""


Entry = (
    Asked
    | Requested
    | Responded
    | FrameEntry
    | EventEntry
    | SentEntry
    | OddEntry
    | HealedEntry
    | ToolEntry
    | CacheEntry
    | Note
    | Ended
)


class Summary(Struct, frozen=True, kw_only=True):
    """An exchange in the list: who was asked, when (seconds since 1970), and how it went.

    `odd` counts what is odd; it is None until the entries of the exchange were read.
    """

    id: str
    began: float
    seconds: float
    wire: str
    client_wire: str
    model: str
    status: int
    size: int
    outcome: Outcome | None
    odd: int | None
    healed: int
