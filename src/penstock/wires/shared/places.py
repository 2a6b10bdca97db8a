"""Where the messages stood in what was given."""

from __future__ import annotations

from msgspec import Struct

from penstock.messages import Message, ToolResult, join_messages, tool_results


class Places(Struct, frozen=True):
    """Where a message stood, and where each of its parts did: `messages[7]`, `messages[7].tool_calls[0]`."""

    message: str
    parts: tuple[str, ...]


class PlacedMessage(Struct, frozen=True):
    """A message, and where it stood. One that is an item is one message with the items of its role around it."""

    message: Message
    places: Places
    is_item: bool = False

    def continues(self, before: PlacedMessage) -> bool:
        """Whether it is one message with the one before it."""
        return self.is_item and before.is_item and self.message.role == before.message.role


def place_message(message: Message, place: str) -> PlacedMessage:
    """A message of ours, which stood there as it is."""
    return PlacedMessage(message, Places(place, tuple(f"{place}.parts[{at}]" for at in range(len(message.parts)))))


def place_results(results: list[tuple[str, ToolResult]], place: str, *, is_item: bool = False) -> PlacedMessage:
    """Results, each with its place, as the one message that they are."""
    message = tool_results(*(result for _, result in results))
    return PlacedMessage(message, Places(place, tuple(at for at, _ in results)), is_item)


def join_placed(items: list[PlacedMessage]) -> PlacedMessage:
    """The one message that several are; it stood where the first of them did."""
    if len(items) == 1:
        return items[0]
    message = join_messages(*(item.message for item in items))
    parts = tuple(at for item in items for at in item.places.parts)
    return PlacedMessage(message, Places(items[0].places.message, parts))
