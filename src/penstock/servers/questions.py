"""Questions to a server without I/O: a generator yields each request, gets its reply, and returns what it found out.

Replies come from outside: everything in them is read by its type, and what does not fit is unknown.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeVar

from msgspec import Struct

T = TypeVar("T")
Json = dict[str, Any]


class Ask(Struct, frozen=True):
    """A request: GET, or POST if it has a body. The path is below the address of the server, without its version."""

    path: str
    body: Json | None = None


class Reply(Struct, frozen=True):
    """The reply: its status, its JSON object if that is 200, and its `Server` header; `failure` if there was none."""

    status: int = 0
    body: Mapping[str, Any] = {}
    server: str = ""
    failure: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether the server has no such endpoint."""
        return self.status in (404, 405, 501)


Questions = Generator[Ask, Reply, T]

MODELS = "models"
"""The path of the list of models: the only one that is below the version."""


def rows(body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list in a body."""
    value = body.get(key)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def table(body: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """An object inside an object, by its keys; empty if there is none."""
    value: Any = body
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text(body: Mapping[str, Any], key: str) -> str:
    """A text in a body; empty if there is none."""
    value = body.get(key)
    return value if isinstance(value, str) else ""


def count(body: Mapping[str, Any], key: str) -> int | None:
    """A number of tokens in a body."""
    value = body.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def switch(body: Mapping[str, Any], key: str) -> bool | None:
    """A truth value in a body."""
    value = body.get(key)
    return value if isinstance(value, bool) else None


def words(body: Mapping[str, Any], key: str) -> list[str] | None:
    """A list of words in a body; None if there is none."""
    value = body.get(key)
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else None


def row_of(listed: list[Mapping[str, Any]], model: str, key: str = "id") -> Mapping[str, Any] | None:
    """The row of a model in a list: by its name, or by one of its aliases."""
    return next((row for row in listed if row.get(key) == model or model in (words(row, "aliases") or ())), None)
