"""The prompt cache: whether a request begins with the previous one of its conversation, message by message.

Servers reuse their work on the beginning of a prompt up to the first difference: tools first, then messages. Only
hashes are kept here, of what was sent upstream and of what the client sent; the second say who changed a message.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.events import Opaque, Usage
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, Media, Message, ToolResult

T = TypeVar("T")

MAX_CONVERSATIONS = 256
"""How many conversations are kept; the oldest are forgotten."""
MAX_HASHES = 500_000
"""How many hashes of messages and tools are kept, with 8 bytes each; the oldest conversations are forgotten."""

FIRST = "the first request of this conversation"

_encode = msgspec.json.Encoder(enc_hook=str).encode


class CacheReport(Struct, frozen=True):
    """What is known about the prompt cache of one request.

    `text` compares its prompt with the previous one, and `is_changed` says that the cache of that is lost, in part or
    whole. `cached` and `total` are the input tokens that the server reported; None if it did not.
    """

    text: str
    is_changed: bool = False
    cached: int | None = None
    total: int | None = None


class Prompt(Struct, frozen=True):
    """The hashes of a prompt: its tools, its messages with their roles, and the messages of the client."""

    tools: Sequence[tuple[str, int]]
    messages: array[int]
    roles: Sequence[str]
    client: array[int]

    @property
    def size(self) -> int:
        """How many hashes are kept."""
        return len(self.tools) + len(self.messages) + len(self.client)


def read_prompt(
    wire: str, tools: Iterable[ToolDeclaration], messages: Sequence[Message], client: Sequence[Message]
) -> Prompt:
    """The prompt of a request to an upstream of this wire: its tools and messages, and those that the client sent."""
    is_same = len(messages) == len(client) and all(one is other for one, other in zip(messages, client, strict=True))
    hashes = _hashes(wire, messages)
    return Prompt(
        [(tool.name, hash(_encode(tool))) for tool in tools], hashes, [message.role for message in messages],
        hashes if is_same else _hashes(wire, client),
    )  # fmt: skip


def _hashes(wire: str, messages: Sequence[Message]) -> array[int]:
    return array("q", [hash(_encode([message.role, [*_content(wire, message)]])) for message in messages])


def _content(wire: str, message: Message) -> Iterator[object]:
    """The parts of a message that count for the cache.

    Vendor state of other wires is not sent. Further fields of parts are not read by the model: clients mark the end of
    the prompt with them, and move the mark with each request.
    """
    for part in message.parts:
        match part:
            case Opaque():
                if part.wire == wire and part.kind not in (PART_FIELDS, MESSAGE_FIELDS):
                    yield part
            case ToolResult():
                yield part.call_id, [_without_state(one) for one in part.content], part.is_error
            case _:
                yield _without_state(part)


def _without_state(part: T) -> T:
    return replace(part, state=()) if isinstance(part, Media) and part.state else part


class PromptCache:
    """The last prompts of conversations. A conversation has the same place, and the same first message of the user."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], Prompt] = OrderedDict()
        self._size = 0

    def compare(self, prompt: Prompt, place: tuple[str, ...], usage: Usage | None) -> CacheReport:
        """Compare a prompt with the previous one of its conversation, and keep it. `place` is who asks whom."""
        first = next((number for number, role in enumerate(prompt.roles) if role == "user"), None)
        key = (*place, str(bool(prompt.tools)), "" if first is None else str(prompt.messages[first]))
        previous = self._kept.pop(key, None)
        self._size -= 0 if previous is None else previous.size
        self._kept[key] = prompt
        self._size += prompt.size
        while len(self._kept) > 1 and (len(self._kept) > MAX_CONVERSATIONS or self._size > MAX_HASHES):
            self._size -= self._kept.popitem(last=False)[1].size
        change = "" if previous is None else find_change(previous, prompt)
        text = FIRST if previous is None else change or _continued(previous, prompt)
        return CacheReport(text, bool(change), *_tokens(usage))


def find_change(old: Prompt, new: Prompt) -> str:
    """The first difference between two prompts; empty if the new one begins with the old one."""
    if old.tools != new.tools:
        return f"your client {_tool_change(dict(old.tools), dict(new.tools))}"
    place = _first_difference(old.messages, new.messages)
    if place == len(old.messages):
        return ""
    if place == len(new.messages):
        return f"your client left out message {place + 1} and all after it"
    is_client = _first_difference(old.client, new.client) < len(old.client)
    return f"{'your client' if is_client else 'the gateway'} changed message {place + 1} ({new.roles[place]})"


def _first_difference(old: Sequence[int], new: Sequence[int]) -> int:
    return next((place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
                min(len(old), len(new)))  # fmt: skip


def _tool_change(old: dict[str, int], new: dict[str, int]) -> str:
    for name, value in new.items():
        if name not in old:
            return f"added the tool {name!r}"
        if old[name] != value:
            return f"changed the tool {name!r}"
    gone = next((name for name in old if name not in new), "")
    return f"left out the tool {gone!r}" if gone else "changed the order of the tools"


def _continued(old: Prompt, new: Prompt) -> str:
    count = len(new.messages) - len(old.messages)
    return f"it begins with the previous prompt: {len(old.messages)} messages as before, {count} new"


def _tokens(usage: Usage | None) -> tuple[int | None, int | None]:
    """The cached tokens and all input tokens, if the server reported them."""
    if usage is None or not usage.input_tokens:
        return None, None
    is_reported = usage.cached_tokens > 0 or "cach" in str(usage.raw).lower()  # as the fields of all providers
    return usage.cached_tokens if is_reported else None, usage.input_tokens
