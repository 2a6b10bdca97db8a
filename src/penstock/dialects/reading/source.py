"""The source of a grammar: a cursor on the arriving text that can hold text back, and the calls in that text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.calls.numbering import Numbering
from penstock.dialects.provenance import Provenance
from penstock.dialects.reading.cursor import Cursor, Mismatch, Reading
from penstock.dialects.reading.held_text import HeldText
from penstock.dialects.reading.markup import Markup, Recording
from penstock.dialects.reading.output import Output
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.text_call import TextCall
from penstock.dialects.reading.unconfirmed import NO_TAGS, EndedCall, Unconfirmed
from penstock.errors import UsageError
from penstock.events import Confirm, ToolCallInvalid


class Source(Cursor):
    """What a grammar reads from, and reports its calls to. Its `output` collects the events.

    It is a cursor rather than has one: grammars read several times per piece of text, and a delegating method for
    each of the cursor's would cost a call each time.
    """

    __slots__ = (
        "call",
        "call_count",
        "call_ends",
        "dialect",
        "is_restored",
        "last_closer",
        "markup",
        "only_declared",
        "output",
        "provenance",
        "recording",
        "restores",
        "splits_reasoning",
        "tools",
        "undeclared",
        "waits",
    )

    def __init__(
        self,
        tools: Tools,
        numbering: Numbering,
        *,
        only_declared: bool = False,
        provenance: Provenance | None = None,
        restores: Callable[[ToolCallInvalid], bool] | None = None,
        undeclared: Callable[[str], None] | None = None,
        confirm: Confirm = "end",
    ) -> None:
        super().__init__()
        self.tools = tools
        self.output = Output(numbering)
        self.only_declared = only_declared  # whether only declared tools are called
        self.provenance = provenance  # the conversation, if it is known: a call that quotes it is invalid
        self.markup = None if provenance is None else Markup()
        self.restores = restores  # whether an invalid call becomes the text again that the model wrote
        self.is_restored = False  # whether the last call did
        self.undeclared = undeclared  # is called with the name of a call that stays text, as nobody declared its tool
        if confirm not in ("end", "close"):
            raise UsageError(f"confirm must be 'end' or 'close', not {confirm!r}")
        self.waits = confirm == "end"  # whether a call with raw values waits for what follows it
        self.recording: Recording | None = None  # what is read of a call that may be reasoning
        self.splits_reasoning = False  # whether reasoning is separated from the answer
        self.dialect = ""
        self.call_ends: tuple[str, ...] = ()  # the marks that show that a call of the dialect is over
        self.call: TextCall | None = None  # the call that is open
        self.call_count = 0  # how many calls there have been, invalid ones too
        self.last_closer = ""  # the mark that `accept_spaced` read last

    def accept_spaced(self, *marks: str) -> Reading[str]:
        """Reads white space and the mark after it; nothing if the mark is none of these."""
        spaces = yield from self.space()
        mark = yield from self.accept(*marks)
        if mark:
            self.last_closer = mark
        else:
            self.unread(spaces)
        return mark

    # -- calls -----------------------------------------------------------------------------------------------------

    def begin(self, name: str, id: str = "") -> TextCall:
        """Starts a call: what was held is its markup. From here on a mismatch makes the call invalid."""
        name = name.strip()
        if not name or (self.only_declared and name not in self.tools):
            if name and self.undeclared is not None:
                self.undeclared(name)
            raise Mismatch(f"{name!r} is not a tool")
        self.drop()
        if self.output.unconfirmed is not None and not self.output.unconfirmed.is_followed:
            self.output.confirm()
        self.call_count += 1
        self.call = self.output.new_call(name, id, f"text:{self.dialect}", self.tools.schema(name))
        return self.call

    def end(self) -> None:
        """Ends the call, and holds what follows until it is known what it is."""
        if self.call is not None:
            markup = "" if self.markup is None else self.markup.take(self.unread_size)
            arguments = self.call.seal(self.provenance, markup)
            if arguments is not None:
                self._await_confirmation(self.call, arguments, markup)
            self.call = None
            self.restore(markup)
        self.hold()

    def _await_confirmation(self, call: TextCall, arguments: dict[str, Any], markup: str) -> None:
        """Emits a call that has ended, now or when what follows has confirmed it and the calls before it."""
        output = self.output
        if output.unconfirmed is None and call.raw_tags is not None and self.waits:
            output.unconfirmed = Unconfirmed(self.restore)
        if output.unconfirmed is None:
            call.confirm(arguments)
        else:
            output.unconfirmed.add(EndedCall(call, call.raw_tags or NO_TAGS, arguments, [markup]))

    def restore(self, markup: str) -> None:
        """Replaces a call that has just ended by its markup, if it is invalid and to be restored."""
        event = self.output.events[-1] if self.restores is not None else None
        self.is_restored = bool(markup) and isinstance(event, ToolCallInvalid) and self.restores(event)  # type: ignore[misc]
        if self.is_restored:
            self.output.events.pop()
            self.output.add(markup)

    # -- held text (see `held_text`) -------------------------------------------------------------------------------

    def hold(self, mark: str = "", written: str = "") -> None:
        """Holds back what is read from here on, and the mark before it; `written` is the mark with what was dropped."""
        self._held = HeldText(mark)
        if self.markup is not None and self.call is None:
            self.markup.begin(written or mark, self._text, self._position)

    def release(self) -> None:
        """Emits what was held as text."""
        if self._held is not None:
            self.output.add(self._held.text())
        self.drop()

    def drop(self) -> None:
        """Discards what was held: it was markup."""
        self._held = None

    def drop_ends(self) -> None:
        """Discards the end tags after a call, unless the call has become text again."""
        if self._held is not None:
            self.add_ends(self._held.text())
        self.drop()

    def add_ends(self, markup: str) -> None:
        """Adds end tags to the text of their call: it has become text again, or it may if it is not confirmed."""
        if self.is_restored:
            self.output.add(markup)
        elif self.output.unconfirmed is not None:
            self.output.unconfirmed.add_markup(markup)

    def record(self, mark: str) -> Recording:
        """Starts a recording of what is read from here on, after a mark."""
        self.recording = Recording()
        self.recording.begin(mark, self._text, self._position)
        return self.recording

    @property
    def is_in_block(self) -> bool:
        """Whether an opening mark was read, and not yet the end of its block."""
        return self.call is not None or self._held is not None

    @property
    def unread_text(self) -> str:
        """The text that has arrived and is not read yet."""
        return self._text[self._position :]

    @property
    def unread_size(self) -> int:
        """How much of the arrived text is not read yet."""
        return len(self._text) - self._position

    def rewind(self) -> None:
        """Puts back what was held, to be read again."""
        text = "" if self._held is None else self._held.text()
        self.drop()
        self.unread(text)
