"""Servers that remember: a request continues from the last response, and sends only what is new.

One rule for all protocols that have it: a response that ended well is remembered with the items of its request, and its
own as they are sent back. A later request whose fields are equal, and whose items begin with these, continues from it;
any other is sent whole. What is remembered may be lost at any time: the whole request then takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

PARENT = "$parent"
"""Stands for the id of the remembered response in the fields of a request that continues from it."""


class ServerMemory(Struct, frozen=True, kw_only=True):
    """How the servers of a wire remember; see `Remembered`.

    - `history`: the field of a body with the items of the history.
    - `following`: the fields with which a request continues; it leaves out the fields `inherited`.
    - `stored`: the fields of each request, if the server is to remember its response for longer than a connection.
    - `single`: the fields that hold for one request only, and may differ in the next.
    - `warm_up`: the fields of a request that the server only prepares, and generates nothing for.
    - `client_roles`, `client_types`: the items that a client writes; all others are parts of responses.
    - `lost`: the codes of errors of a server that has forgotten.
    - `seconds`: for how long it remembers; None without a limit.
    - `is_used_once`: whether a response can be continued only once.
    """

    history: str
    following: Mapping[str, Any]
    inherited: tuple[str, ...] = ()
    stored: Mapping[str, Any] = {}
    single: tuple[str, ...] = ()
    warm_up: Mapping[str, Any] = {}
    client_roles: frozenset[str] = frozenset()
    client_types: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    seconds: float | None = None
    is_used_once: bool = False

    def is_clients(self, item: Mapping[str, Any]) -> bool:
        """Whether an item of the history is one that the client wrote."""
        return item.get("role") in self.client_roles or item.get("type") in self.client_types


class SplitBody(Struct, frozen=True):
    """A request body in parts: its fields as JSON, the items of its history as JSON, and the fields of it alone.

    Each item but the first begins with a comma, so that requests can share them.
    """

    fields: bytes
    items: tuple[bytes, ...]
    single: Mapping[str, Any] = {}


class Remembered(Struct, frozen=True, kw_only=True):
    """A response that a server remembers: its id, and the items up to its end, in a request with these fields.

    It holds at one `place` (a connection) or anywhere, and until a time or without a limit. `is_open` says that a
    request may continue from it without new items: nothing was generated yet.
    """

    parent: str
    fields: bytes
    items: tuple[bytes, ...]
    place: Any = None
    until: float | None = None
    is_open: bool = False

    def rest(self, body: SplitBody, now: float) -> tuple[bytes, ...] | None:
        """The items of a request that are new; None if it does not continue from here."""
        count = len(self.items)
        if self.fields != body.fields or (self.until is not None and now >= self.until):
            return None
        if len(body.items) < count + (not self.is_open) or body.items[:count] != self.items:
            return None
        return body.items[count:]


def split_body(parts: tuple[bytes, ...], memory: ServerMemory, *, is_stored: bool) -> SplitBody | None:
    """The body of a request, whose parts are its beginning, the items, and its end; None if it has no items."""
    if len(parts) < 2:
        return None
    fields = msgspec.json.decode(parts[0] + parts[-1])
    if fields.pop(memory.history, None) != []:
        return None
    single = {name: fields.pop(name) for name in memory.single if name in fields}
    return SplitBody(msgspec.json.encode({**fields, **(memory.stored if is_stored else {})}), parts[1:-1], single)


def whole_body(body: SplitBody, memory: ServerMemory) -> tuple[bytes, ...]:
    """The parts of a whole request."""
    fields = (
        body.fields if not body.single else msgspec.json.encode({**msgspec.json.decode(body.fields), **body.single})
    )
    return _written(fields, body.items, memory)


def following_body(body: SplitBody, memory: ServerMemory, parent: str, rest: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The parts of a request that continues from a response with these items."""
    fields = msgspec.json.decode(body.fields)
    kept = {name: value for name, value in fields.items() if name not in memory.inherited}
    written = msgspec.json.encode({**kept, **body.single, **_with_parent(memory.following, parent)})
    return _written(written, (rest[0].removeprefix(b","), *rest[1:]) if rest else (), memory)


def _written(fields: bytes, items: tuple[bytes, ...], memory: ServerMemory) -> tuple[bytes, ...]:
    return (b'%s,"%s":[' % (fields[:-1], memory.history.encode()), *items, b"]}")


def joined_items(items: tuple[bytes, ...], more: Iterable[bytes]) -> tuple[bytes, ...]:
    """The items of a history, followed by more, which have no commas yet."""
    added = [b"," + item for item in more]
    if not items and added:
        added[0] = added[0][1:]
    return (*items, *added)


def _with_parent(fields: Mapping[str, Any], parent: str) -> dict[str, Any]:
    return {
        name: _with_parent(value, parent) if isinstance(value, Mapping) else parent if value == PARENT else value
        for name, value in fields.items()
    }
