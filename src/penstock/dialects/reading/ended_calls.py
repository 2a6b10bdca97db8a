"""Calls that have ended: emitted, waiting until what follows confirms them, or turned back into text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.dialects.provenance import Provenance
from penstock.dialects.reading.marks import CallTags
from penstock.dialects.reading.output import Output
from penstock.dialects.reading.text_call import TextCall
from penstock.dialects.reading.unconfirmed import EndedCall, Unconfirmed
from penstock.errors import UsageError
from penstock.events import Confirm, Fault, ToolCallInvalid


class EndedCalls:
    """Decides what becomes of a call at its end.

    `provenance` is the conversation, if it is known: a call that quotes it is invalid. `restores` says whether an
    invalid call becomes the text again that the model wrote.
    """

    __slots__ = ("_handed_over", "_is_restored", "_restores", "provenance")

    def __init__(
        self, provenance: Provenance | None, restores: Callable[[ToolCallInvalid], bool] | None, confirm: Confirm
    ) -> None:
        if confirm not in ("end", "close"):
            raise UsageError(f"confirm must be 'end' or 'close', not {confirm!r}")
        self.provenance = provenance
        self._restores = restores
        self._handed_over = confirm == "close"  # whether no call waits for what follows it
        self._is_restored = False  # whether the last call has become text

    def blank(self) -> EndedCalls:
        """Another one, for what is read without effect."""
        return EndedCalls(None, None, "end")

    def add(self, call: TextCall, output: Output, tags: CallTags, markup: str) -> None:
        """Emits a call, now or when what follows has confirmed it and the calls before it; or restores its text."""
        arguments = call.seal(self.provenance, markup, is_in_string=output.json.is_in_string)
        is_certain = arguments is not None or _has_certain_end(output)
        if call.raw_tags is not None or not is_certain:
            self._watch(output, call.raw_tags or tags, is_certain=is_certain)
        if arguments is not None:
            if output.unconfirmed is None:
                call.confirm(arguments)
            else:
                output.unconfirmed.add(EndedCall(call, arguments, [markup]))
        self.restore(output, markup)

    def add_invalid(self, output: Output, tags: CallTags, markup: str) -> None:
        """Ends a malformed call: calls after it wait, as its end tag may have been part of a value."""
        self._watch(output, tags, is_certain=False)
        self.restore(output, markup)

    def _watch(self, output: Output, tags: CallTags, *, is_certain: bool) -> None:
        """Looks for an end tag without its start tag from here on."""
        if output.unconfirmed is None:
            output.unconfirmed = Unconfirmed(partial(self.restore, output), handed_over=self._handed_over)
        output.unconfirmed.watch(tags, is_certain=is_certain)

    def restore(self, output: Output, markup: str) -> None:
        """Replaces a call that has just ended by its markup, if it is invalid and to be restored."""
        event = output.events[-1] if self._restores is not None else None
        self._is_restored = bool(markup) and isinstance(event, ToolCallInvalid) and self._restores(event)  # type: ignore[misc]
        if self._is_restored:
            output.restore(markup)

    def add_ends(self, output: Output, markup: str) -> None:
        """Adds end tags to the text of their call: it has become text again, or it may if it is not confirmed."""
        if self._is_restored:
            output.add(markup)
        elif output.unconfirmed is not None:
            output.unconfirmed.add_markup(markup)


def _has_certain_end(output: Output) -> bool:
    """Whether the call that has just ended as invalid has a certain end: its arguments are JSON."""
    event = output.events[-1]
    return isinstance(event, ToolCallInvalid) and event.why in _WHOLE


_WHOLE: tuple[Fault, ...] = ("not_an_object", "quoted", "duplicate_keys", "double_encoded")
