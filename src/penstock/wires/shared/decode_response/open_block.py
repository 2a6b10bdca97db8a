"""Open blocks of a response with numbered blocks: text, reasoning, calls, and the vendor's own blocks."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from penstock.events import Reasoning, Text
from penstock.wires.shared.decode_response.open_call import OpenCall

MAX_STATE = 32 * 1024 * 1024
"""How many characters of vendor state a block may collect; a piece beyond that is reported as `Unknown`."""
_ITEM = 1024  # the size that is counted for a piece that is not text
_EMPTY = ("", "{}")


class OpenBlock:
    """A block that has started. `block` is its number in events, -1 until it has any content.

    `start` holds the fields of the block's start that also come in pieces, until the first piece shows whether it
    repeats them (QUIRKS 131). `state` must go back with the block: a signature in pieces, citations.
    """

    __slots__ = ("_size", "block", "start", "state")

    def __init__(self, start: dict[str, str] | None = None) -> None:
        self.block = -1
        self.start = start or {}
        self.state: dict[str, list[Any]] = {}
        self._size = 0

    def with_start(self, field: str, piece: str) -> str:
        """The first piece of a field with the text of the start before it, unless the piece repeats that."""
        start = self.start.pop(field, "")
        is_repeated = piece.startswith(start) or start.startswith(piece)
        return piece if is_repeated else start + piece

    def add_state(self, field: str, value: Any) -> bool:
        """Adds a piece of state; returns False if it goes beyond `MAX_STATE`."""
        self._size += len(value) if isinstance(value, str) else _ITEM
        if self._size > MAX_STATE:
            return False
        self.state.setdefault(field, []).append(self.with_start(field, value) if isinstance(value, str) else value)
        return True

    def take_state(self) -> dict[str, list[Any]]:
        """Returns the state and forgets it."""
        for field, value in self.start.items():
            self.state.setdefault(field, []).insert(0, value)
        state, self.state, self.start = self.state, {}, {}
        return state


class OpenContent(OpenBlock):
    """A block of text or reasoning."""

    __slots__ = ()
    event_type: ClassVar[type[Text] | type[Reasoning]]


class OpenText(OpenContent):
    __slots__ = ()
    event_type = Text


class OpenReasoning(OpenContent):
    __slots__ = ()
    event_type = Reasoning


class OpenTool(OpenBlock):
    """A call for the client. `input` holds the arguments of its start, which count if no pieces come."""

    __slots__ = ("call", "input", "is_stopped", "provider_id")

    def __init__(self, call: OpenCall, provider_id: str, input: str) -> None:
        super().__init__()
        self.block = call.block
        self.call = call
        self.provider_id = provider_id
        self.input = input
        self.is_stopped = False

    @property
    def is_over(self) -> bool:
        """Whether the call has ended and its state was emitted."""
        return self.call.is_ended and not self.state and not self.start

    def is_repeated_start(self, provider_id: str, name: str, input: str) -> bool:
        """Whether this start repeats the call's own; after arguments have come, it is another call."""
        if self.call.size or self.call.is_ended or (provider_id, name) != (self.provider_id, self.call.name):
            return False
        if self.input in _EMPTY:
            self.input = input
        return input == self.input or input in _EMPTY

    def use_start_input(self, even_empty: bool = False) -> None:
        """Takes the arguments from the start if no pieces came (QUIRKS 121)."""
        is_wanted = self.input not in _EMPTY or (even_empty and self.input and not self.call.has_unknown_pieces)
        if is_wanted and not self.call.size and not self.call.is_ended:
            self.call.add(self.input)

    def has_whole_arguments(self) -> bool:
        """Whether the arguments are a JSON object; if none came, they may have been cut off."""
        call = self.call
        return call.has_closed and call.has_arguments and call.whole_arguments() is not None


class OpenVendor(OpenBlock):
    """A block that has no event of its own: it is assembled and emitted whole, as state if it must be sent back."""

    __slots__ = ("body", "is_state", "kind", "wrap")

    def __init__(self, kind: str, body: dict[str, Any], block: int, wrap: str = "") -> None:
        super().__init__({key: value for key, value in body.items() if isinstance(value, str)})
        self.kind = kind
        self.body = body
        self.block = block
        self.is_state = block >= 0
        self.wrap = wrap

    def replace(self, field: str, value: Any) -> bool:
        """Sets a field that came again; returns False if all that came goes beyond `MAX_STATE`."""
        self._size += len(value) if isinstance(value, str) else _ITEM
        if self._size > MAX_STATE:
            return False
        self.start.pop(field, None)
        self.body[field] = value
        return True

    def whole(self) -> dict[str, Any]:
        """The block with all its pieces, under the key `wrap` if the vendor sends such blocks under a key."""
        body = {
            **self.body,
            **{key: _merged(key, self.body.get(key), pieces) for key, pieces in self.take_state().items()},
        }
        return {self.wrap: body} if self.wrap else body


def _merged(key: str, first: Any, pieces: list[Any]) -> Any:
    if all(isinstance(piece, str) for piece in pieces):
        text = "".join(pieces)
        return _parsed(text) if key == "input" else text
    items = [item for piece in pieces for item in (piece if isinstance(piece, list) else [piece])]
    if isinstance(first, list):
        return first + items
    return items[0] if len(items) == 1 and not isinstance(pieces[0], list) else items


def _parsed(text: str) -> Any:
    """The input of a hosted tool as an object; as text if it is not JSON."""
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
