"""A call that a model is writing into its text: its arguments as JSON, piece by piece, and the verdict at its end."""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING

from penstock.calls.arguments import MAX_ARGUMENTS, diagnose, strict_object
from penstock.calls.rope import PIECES, Rope
from penstock.events import Fault, StreamChunk, ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart

if TYPE_CHECKING:
    from penstock.dialects.reading.schema import Schema


class TextCall:
    """A call in the making. Its arguments are added as JSON text, or as keys and values that become JSON here."""

    __slots__ = ("_append", "_doubt", "_emit", "_is_plain", "_mentioned", "_next_care", "_raw", "_size", "_values",
                 "argument", "block", "id", "keys", "name", "origin", "schema")  # fmt: skip

    def __init__(self, out: list[StreamChunk], block: int, id: str, name: str, origin: str, schema: Schema) -> None:
        self._emit = out.append
        self.block = block
        self.id = id
        self.name = name
        self.origin = origin
        self.schema = schema  # of the arguments
        self._raw = Rope()
        self._append = self._raw.append
        self._size = 0
        self._next_care = PIECES
        self.keys: set[str] = set()  # of the arguments that it has so far
        self.argument = ""  # the last of them
        self._values: list[tuple[str, int, int]] = []  # their keys, and where key and value begin in the JSON
        self._mentioned: dict[str, str] = {}  # keys that stand in values, and what is wrong if they are not given
        self._doubt = ""  # why it is a guess, if it is one
        self._is_plain = True  # whether it is plain all the same what was meant
        self._emit(ToolCallStart(block, id, name))

    def add(self, piece: str) -> None:
        """A piece of the arguments' JSON."""
        self._size = size = self._size + len(piece)
        if size > self._next_care:
            if size > MAX_ARGUMENTS:
                return
            self._raw.settle()
            self._next_care = size + PIECES
        self._append(piece)
        self._emit(ToolCallDelta(self.block, piece))

    def overflow(self) -> None:
        """There is more of the arguments than a call may have."""
        self._size = self._next_care = MAX_ARGUMENTS + 1

    @property
    def raw(self) -> str:
        """The arguments' JSON so far."""
        return self._raw.text()

    def key(self, key: str) -> None:
        """The value that comes next is this argument's."""
        self.argument = key
        start = self._size
        self.add(("," if self.keys else "{") + encode_basestring(key) + ":")
        if self._size <= MAX_ARGUMENTS or not self.keys:
            self.keys.add(key)
            self._values.append((key, start, self._size))

    def string(self, piece: str) -> None:
        """A piece of a string, without its quotes."""
        written = encode_basestring(piece)[1:-1]
        self._size = size = self._size + len(written)
        if size > self._next_care:
            self._size -= len(written)
            self.add(written)
        else:  # as most do, and with less ado
            self._append(written)
            self._emit(ToolCallDelta(self.block, written))

    def mention(self, key: str, message: str) -> None:
        """A value has the tag of a key in it. If that key is not given elsewhere, the call is a guess."""
        self._mentioned.setdefault(key, message)

    def end_keys(self) -> None:
        """There are no more arguments."""
        for key, message in self._mentioned.items():
            if key not in self.keys:
                self.doubt(message)
        self.add("}" if self.keys else "{}")

    def doubt(self, message: str, *, is_plain: bool = False) -> None:
        """What the call says is a guess: it will not be whole, even if it is plain what was meant."""
        self._doubt = self._doubt or message
        self._is_plain = self._is_plain and is_plain

    def seal(self) -> None:
        """The call ended as it should: it is whole if its arguments are a strict JSON object."""
        if self._size > MAX_ARGUMENTS:
            self.fail("too_large", f"the arguments are longer than MAX_ARGUMENTS ({MAX_ARGUMENTS} characters)")
            return
        raw = self._raw.text()
        if len(self._values) > len(self.keys):
            self._compare(raw)
        if (arguments := strict_object(raw)) is None:
            self._invalid(raw, *diagnose(raw, None))
        elif self._doubt:
            self._invalid(raw, "malformed", self._doubt, arguments if self._is_plain else None)
        else:
            self._emit(ToolCall(self.id, self.name, arguments, raw, self.origin, "call_end", block=self.block))

    def _compare(self, raw: str) -> None:
        """An argument that is given twice, and not as the same, makes the call a guess."""
        ends = [*(start for _, start, _ in self._values[1:]), len(raw) - 1]
        written: dict[str, str] = {}
        for (key, _, start), end in zip(self._values, ends, strict=True):
            if written.setdefault(key, raw[start:end]) != raw[start:end]:
                self.doubt(f"the argument {key!r} is given twice")

    def fail(self, why: Fault, message: str) -> None:
        """The call was cut, or broke off."""
        self._invalid(self._raw.text(), why, message, None)

    def _invalid(self, raw: str, why: Fault, message: str, repaired: dict[str, object] | None) -> None:
        self._emit(ToolCallInvalid(self.block, self.id, self.name, raw, why, message, repaired, self.origin))
