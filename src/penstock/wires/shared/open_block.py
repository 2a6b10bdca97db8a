"""The parts of an answer whose blocks are numbered, while they are open: words, calls, and the vendor's own blocks."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from penstock.events import Reasoning, Text
from penstock.wires.shared.open_call import OpenCall

MAX_STATE = 32 * 1024 * 1024
"""How many characters of vendor state a part may gather; a piece that goes beyond comes out as `Unknown`."""
_ITEM = 1024  # what a piece counts that is no text
_EMPTY = ("", "{}")


class OpenPart:
    """A block that was begun. `block` is its number, -1 until it has said something.

    `given` is what the block's start said of the fields that also come in pieces, until the first piece shows whether
    it repeats that (QUIRKS 131). `state` is what must go back with the part: a signature in pieces, citations.
    """

    __slots__ = ("_size", "block", "given", "state")

    def __init__(self, given: dict[str, str] | None = None) -> None:
        self.block = -1
        self.given = given or {}
        self.state: dict[str, list[Any]] = {}
        self._size = 0

    def fresh(self, field: str, piece: str) -> str:
        """The piece, and before it what the start said, unless the piece repeats that."""
        given = self.given.pop(field, "")
        is_repeated = piece.startswith(given) or given.startswith(piece)
        return piece if is_repeated else given + piece

    def keep(self, field: str, value: Any) -> bool:
        """Gather a piece of state; False if there is no room for it."""
        self._size += len(value) if isinstance(value, str) else _ITEM
        if self._size > MAX_STATE:
            return False
        self.state.setdefault(field, []).append(self.fresh(field, value) if isinstance(value, str) else value)
        return True

    def take_state(self) -> dict[str, list[Any]]:
        """What was gathered, once."""
        for field, value in self.given.items():
            self.state.setdefault(field, []).insert(0, value)
        state, self.state, self.given = self.state, {}, {}
        return state


class OpenWords(OpenPart):
    """A text or a thought that is being written."""

    __slots__ = ()
    make: ClassVar[type[Text] | type[Reasoning]]


class OpenText(OpenWords):
    __slots__ = ()
    make = Text


class OpenThought(OpenWords):
    __slots__ = ()
    make = Reasoning


class OpenTool(OpenPart):
    """A call for the client. `input` is what its start said of the arguments, which counts if no pieces come."""

    __slots__ = ("call", "given_id", "input", "is_stopped")

    def __init__(self, call: OpenCall, given_id: str, input: str) -> None:
        super().__init__()
        self.block = call.block
        self.call = call
        self.given_id = given_id
        self.input = input
        self.is_stopped = False

    def is_begun_again(self, given_id: str, name: str, input: str) -> bool:
        """Whether this start repeats the one that the call had; once arguments have come, it may be another call."""
        if self.call.size or self.call.is_ended or (given_id, name) != (self.given_id, self.call.name):
            return False
        if self.input in _EMPTY:
            self.input = input
        return input == self.input or input in _EMPTY

    def take_input(self, even_empty: bool = False) -> None:
        """Nothing more comes: without pieces, the arguments are those of the start (QUIRKS 121)."""
        if not self.call.size and not self.call.is_ended and self.input and (even_empty or self.input not in _EMPTY):
            self.call.add(self.input)

    def is_plainly_whole(self) -> bool:
        """Whether arguments came and are a JSON object; that none came may also mean that they were cut off."""
        call = self.call
        return call.has_closed and call.has_arguments and call.whole_arguments() is not None


class OpenVendor(OpenPart):
    """A block that is none of ours: it is put together and comes out whole, as state if it must be sent back."""

    __slots__ = ("body", "is_state", "kind", "wrap")

    def __init__(self, kind: str, body: dict[str, Any], block: int, wrap: str = "") -> None:
        super().__init__({key: value for key, value in body.items() if isinstance(value, str)})
        self.kind = kind
        self.body = body
        self.block = block
        self.is_state = block >= 0
        self.wrap = wrap

    def whole(self) -> dict[str, Any]:
        """The block with all its pieces put in; `wrap` is the key under which the vendor sends such a block."""
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
    """The input of a tool that the provider runs, as an object; as its text if it is none."""
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
