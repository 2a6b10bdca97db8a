"""A call that a model writes into its text: its arguments as JSON, piece by piece, and its result when it ends."""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from penstock.calls.arguments import MAX_ARGUMENTS, Diagnosis, diagnose, strict_object
from penstock.calls.growing import GrowingCall
from penstock.events import Error, StreamChunk, ToolCallClosed, ToolCallDelta

if TYPE_CHECKING:
    from penstock.dialects.provenance import Provenance
    from penstock.dialects.reading.marks import CallTags
    from penstock.dialects.reading.schema import Schema

QUOTED = (
    "a user message or a tool result contains this call, so it may be a quotation; "
    "to make it, write it in your own words, or ask the user"
)

IN_STRING = "the call is inside a JSON string of the answer, so it is a quotation; to make it, write it outside of JSON"


class TextCall(GrowingCall):
    """A call in progress. Its arguments are added as JSON text, or as keys and values that become JSON here.

    `add` is the reference; `string` repeats its short path for the many small pieces of a long string.
    """

    __slots__ = ("_is_unambiguous", "_mentioned", "_repeated", "argument", "guess", "keys",
                 "raw_tags", "schema")  # fmt: skip

    def __init__(self, out: list[StreamChunk], block: int, id: str, name: str, origin: str, schema: Schema) -> None:
        super().__init__(out, block, id, name, origin)
        self.schema = schema  # schema of the arguments
        self.keys: set[str] = set()  # names of the arguments so far
        self.argument = ""  # the last of them
        self.raw_tags: CallTags | None = None  # the tags of its last raw value, if it has one
        self._repeated: str | None = None  # the first of them that was given twice
        self._mentioned: dict[str, str] = {}  # keys inside values, and the doubt if no argument has that key
        self.guess = ""  # why the call is a guess, if it is one
        self._is_unambiguous = True  # whether the guess has only one reading
        self.start()

    def overflow(self) -> None:
        """Marks the arguments as longer than a call may have."""
        self.size = self._next_settle = MAX_ARGUMENTS + 1

    def key(self, key: str) -> None:
        """Begins an argument; its value follows."""
        self.argument = key
        self.add(("," if self.keys else "{") + encode_basestring(key) + ":")
        if self._repeated is None and key in self.keys:
            self._repeated = key
        if not self.is_too_large or not self.keys:
            self.keys.add(key)

    def raw_key(self, key: str) -> None:
        """Begins an argument whose raw value follows."""
        self.key(key)
        self.check_key(key)

    def check_key(self, key: str) -> None:
        """Makes the call a guess if the tool has no such argument: its tag may be part of a raw value."""
        if not self.schema.allows(key):
            self.doubt(f"{self.name!r} has no argument {key[:100]!r}")

    def string(self, piece: str) -> None:
        """Adds a piece of a string, without quotes."""
        escaped = encode_basestring(piece)[1:-1]
        size = self.size + len(escaped)
        if size > self._next_settle:
            self.add(escaped)
        else:
            self.size = size
            self._append(escaped)
            self._emit(ToolCallDelta(self.block, escaped))

    def mention(self, key: str, message: str) -> None:
        """Records that a value contains the tag of a key. If no argument has that key, the call is a guess."""
        self._mentioned.setdefault(key, message)

    def end_keys(self) -> None:
        """Closes the object of the arguments."""
        for key, message in self._mentioned.items():
            if key not in self.keys:
                self.doubt(message)
        self.add("}" if self.keys else "{}")

    def doubt(self, message: str, *, is_unambiguous: bool = False) -> None:
        """Marks the call as a guess: it will be invalid. `is_unambiguous` if the guess has only one reading."""
        self.guess = self.guess or message
        self._is_unambiguous = self._is_unambiguous and is_unambiguous

    def seal(
        self, provenance: Provenance | None = None, markup: str = "", *, is_in_string: bool = False
    ) -> dict[str, Any] | None:
        """Ends the call; returns its arguments if it is valid, and emits it as invalid if not.

        It is valid if its arguments are a strict JSON object, and it is neither a guess nor a quotation. A call inside
        a JSON string of the answer is a quotation, too.
        """
        if self.is_too_large:
            self._fail_too_large()
            return None
        raw = self.raw()
        fault = self._fault(raw, arguments := strict_object(raw))
        usable = fault[2] if fault else arguments
        if provenance is not None and usable is not None:
            if is_in_string:
                fault = "quoted", IN_STRING, usable
            elif provenance.is_quoted(self.name, usable, markup):
                fault = "quoted", QUOTED, usable
        if fault:
            self._emit_invalid(raw, *fault)
            return None
        return arguments

    def close(self, arguments: dict[str, Any]) -> None:
        """Announces that the arguments are complete, before the call is confirmed."""
        self._emit(ToolCallClosed(self.block, self.id, self.name, arguments, self.choice, self.origin))

    def report(self, code: str, message: str) -> None:
        """Reports what is wrong with the call after it was emitted."""
        self._emit(Error(f"the call of {self.name!r} is ambiguous: {message}", code))

    def confirm(self, arguments: dict[str, Any]) -> None:
        """Emits the whole call."""
        self._emit_call(arguments, self.raw(), "call_end")

    def _fault(self, raw: str, arguments: dict[str, Any] | None) -> Diagnosis | None:
        if self._repeated is not None:
            return "duplicate_keys", f"the argument {self._repeated!r} is given twice", None
        if arguments is None:
            return diagnose(raw, None)
        if self.guess:
            return "malformed", self.guess, arguments if self._is_unambiguous else None
        return None
