"""Messages with their places in the history that they were read from."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.events import Opaque, Reasoning, Text
from penstock.messages import Message, Part, ToolResult, join_messages, tool_results

Joins = Literal["alone", "item", "chunk"]
"""How a message is joined with neighbours of its role: not at all, as the next item, or with texts joined."""


class Places(Struct, frozen=True):
    """The place of a message, and of each of its parts: `messages[7]`, `messages[7].tool_calls[0]`."""

    message: str
    parts: tuple[str, ...]


class PlacedMessage(Struct, frozen=True):
    """A message and its place. Consecutive items of one role are joined to one message, and so are chunks."""

    message: Message
    places: Places
    joins: Joins = "alone"

    def continues(self, before: PlacedMessage) -> bool:
        """Whether it is joined with the message before it."""
        return "alone" not in (self.joins, before.joins) and self.message.role == before.message.role


def place_message(message: Message, place: str) -> PlacedMessage:
    """A `Message` and its place."""
    return PlacedMessage(
        message, Places(place, tuple(f"{place}.parts[{index}]" for index in range(len(message.parts))))
    )


def place_results(results: list[tuple[str, ToolResult]], place: str, *, joins: Joins = "alone") -> PlacedMessage:
    """The message with these results, each with its place."""
    message = tool_results(*(result for _, result in results))
    return PlacedMessage(message, Places(place, tuple(part_place for part_place, _ in results)), joins)


def join_placed(items: list[PlacedMessage]) -> PlacedMessage:
    """One message of several, at the place of the first."""
    if len(items) == 1:
        return items[0]
    message = join_messages(*(item.message for item in items))
    places = [place for item in items for place in item.places.parts]
    placed = [*zip(message.parts, places, strict=True)]
    if all(item.joins == "chunk" for item in items):
        placed = _join_texts(placed)
    message = replace(message, parts=tuple(part for part, _ in placed))
    return PlacedMessage(message, Places(items[0].places.message, tuple(place for _, place in placed)))


def _join_texts(placed: list[tuple[Part, str]]) -> list[tuple[Part, str]]:
    """The parts, with texts and reasonings that follow each other as one; vendor state on one keeps it apart."""
    stateful = {part.block for part, _ in placed if isinstance(part, Opaque)}
    groups: list[tuple[Part, str, list[str]]] = []  # the first part of each, its place, and all texts
    for part, place in placed:
        last = groups[-1][0] if groups else None
        if (
            isinstance(part, Text | Reasoning)
            and isinstance(last, Text | Reasoning)
            and type(part) is type(last)
            and not stateful & {part.block, last.block}
        ):
            groups[-1][2].append(part.text)
        else:
            groups.append((part, place, [part.text] if isinstance(part, Text | Reasoning) else []))
    return [(replace(part, text="".join(texts)) if len(texts) > 1 else part, place) for part, place, texts in groups]
