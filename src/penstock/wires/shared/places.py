"""Messages with their places in the history that they were read from."""

from __future__ import annotations

from msgspec import Struct

from penstock.messages import Message, ToolResult, join_messages, tool_results


class Places(Struct, frozen=True):
    """The place of a message, and of each of its parts: `messages[7]`, `messages[7].tool_calls[0]`."""

    message: str
    parts: tuple[str, ...]


class PlacedMessage(Struct, frozen=True):
    """A message and its place. Consecutive items of one role are joined to one message."""

    message: Message
    places: Places
    is_item: bool = False

    def continues(self, before: PlacedMessage) -> bool:
        """Whether it is joined with the message before it."""
        return self.is_item and before.is_item and self.message.role == before.message.role


def place_message(message: Message, place: str) -> PlacedMessage:
    """A `Message` and its place."""
    return PlacedMessage(message, Places(place, tuple(f"{place}.parts[{at}]" for at in range(len(message.parts)))))


def place_results(results: list[tuple[str, ToolResult]], place: str, *, is_item: bool = False) -> PlacedMessage:
    """The message with these results, each with its place."""
    message = tool_results(*(result for _, result in results))
    return PlacedMessage(message, Places(place, tuple(at for at, _ in results)), is_item)


def join_placed(items: list[PlacedMessage]) -> PlacedMessage:
    """One message of several, at the place of the first."""
    if len(items) == 1:
        return items[0]
    message = join_messages(*(item.message for item in items))
    parts = tuple(at for item in items for at in item.places.parts)
    return PlacedMessage(message, Places(items[0].places.message, parts))
