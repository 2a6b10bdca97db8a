"""Consecutive requests of a session: is the earlier one an exact prefix of the later one, byte for byte?

A model server keeps what it has read of a prompt, and goes on from the first byte that differs. A prompt is made of the
system text, the tools with the tool choice, and the history, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Raw, Struct

HEAD = (
    "system",
    "instructions",
    "systemInstruction",
    "system_instruction",
    "tools",
    "tool_choice",
    "toolConfig",
    "chat_template_kwargs",
)
"""What stands before the history, in the words of each protocol."""
HISTORY = ("messages", "input", "contents")
_CACHE_MARK = "cache_control"


class Prompt(Struct, frozen=True):
    """The parts of a request that become the model's prompt, as bytes of its JSON."""

    head: dict[str, bytes]
    history: tuple[bytes, ...]


class Pair(Struct, frozen=True):
    """Two consecutive requests: what changed in what the client sent, and in what the server got. Empty: nothing."""

    number: int
    client: str
    upstream: str

    @property
    def is_broken(self) -> bool:
        """Whether the gateway changed something, and not the client."""
        return not self.client and bool(self.upstream)


def pairs(client: Sequence[bytes], upstream: Sequence[bytes]) -> list[Pair]:
    """The pairs of a session: the bodies that the client sent, and the bodies that arrived at the server."""
    assert len(client) == len(upstream), f"{len(client)} requests of the client, {len(upstream)} upstream"
    changes = zip(_changes(client), _changes(upstream), strict=True)
    return [Pair(number, sent, received) for number, (sent, received) in enumerate(changes, 1)]


def _changes(bodies: Sequence[bytes]) -> Iterator[str]:
    if any(_CACHE_MARK.encode() in body for body in bodies):
        bodies = [msgspec.json.encode(_without_marks(msgspec.json.decode(body))) for body in bodies]
    for earlier, later in pairwise(map(prompt_of, bodies)):
        yield change(earlier, later)


def prompt_of(body: bytes) -> Prompt:
    """The prompt of a request."""
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    head = {name: bytes(fields[name]) for name in HEAD if name in fields}
    history = bytes(next(fields[name] for name in HISTORY if name in fields))
    messages = msgspec.json.decode(history, type=list[Raw]) if history.startswith(b"[") else [Raw(history)]
    return Prompt(head, tuple(map(bytes, messages)))


def change(earlier: Prompt, later: Prompt) -> str:
    """The first difference, in words; empty if the earlier prompt is an exact prefix of the later one."""
    for name in HEAD:
        if earlier.head.get(name) != later.head.get(name):
            return f"{name}: {_difference(earlier.head.get(name, b''), later.head.get(name, b''))}"
    for place, (one, other) in enumerate(zip(earlier.history, later.history, strict=False), 1):
        if one != other:
            return f"message {place} of {len(earlier.history)}: {_difference(one, other)}"
    if len(later.history) < len(earlier.history):
        return f"{len(later.history)} messages: there were {len(earlier.history)}"
    return ""


def _difference(one: bytes, other: bytes) -> str:
    """The surroundings of the first byte that differs."""
    shortest = min(len(one), len(other))
    place = next((at for at in range(shortest) if one[at] != other[at]), shortest)
    start = max(0, place - 40)
    texts = (text[start : place + 80].decode(errors="replace") for text in (one, other))
    return " -> ".join(f"…{text}…" for text in texts)


def _without_marks(value: Any) -> Any:
    """JSON without the marks of Messages that say where to cache: they move with each request."""
    match value:
        case dict():
            return {name: _without_marks(inner) for name, inner in value.items() if name != _CACHE_MARK}
        case list():
            return [_without_marks(inner) for inner in value]
    return value
