"""What a wire reports besides content: errors, parts that cannot be read, and what has no event of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.events import Error, Unknown
from penstock.framing import Stray
from penstock.jsontext.portable import as_json_value
from penstock.wires.shared.decode_response.answers import Answers
from penstock.wires.shared.decode_response.in_band_errors import error_in
from penstock.wires.shared.decode_response.keep_alive import is_keep_alive, is_keep_alive_value
from penstock.wires.shared.decode_response.loose import is_empty
from penstock.wires.shared.decode_response.progress import ResponseProgress

MAX_ERRORS = 64
"""How many errors are remembered in order to report each once; further ones are reported as often as they come."""
MAX_FIELDS = 64
"""How many unknown fields are remembered, in order to report them again only when they change."""

KEEP_ALIVE = "a keep-alive sent as data"
"""The note of an `Unknown` that is no part of the response."""
UNREADABLE_FRAME = "unreadable_frame"
"""The code of the error for a part of the stream that cannot be read."""


class Reports:
    """The reports of a response. Its methods are named for what was found; events go to the `out` of the answers.

    `errors` are the messages that were reported. A response that `has_known_frames` had a frame of its protocol, even
    if it had no content; one that `has_unknown` had an `Unknown`. When it `is_closing` the bytes have ended: what
    cannot be read now was cut.
    """

    def __init__(self, answers: Answers, progress: ResponseProgress) -> None:
        self.errors: set[str] = set()
        self.has_known_frames = False
        self.has_unknown = False
        self.is_closing = False
        self._answers = answers
        self._progress = progress
        self._has_hole = False  # a part of the stream could not be read
        self._last_fields: dict[tuple[int, str, str], Any] = {}  # the unknown fields that were reported

    def unknown(self, raw: Any, note: str = "") -> None:
        """Reports what has no event of its own."""
        self.has_unknown = True
        self._answers.out.append(Unknown(as_json_value(raw), note))

    def keep_alive(self, text: str) -> None:
        """Reports a keep-alive that was sent as data, which is of any protocol (QUIRKS 104)."""
        self._answers.out.append(Unknown(as_json_value(text), KEEP_ALIVE))

    def rest(self, value: Any, note: str) -> None:
        """Reports what was not read, if it has any content."""
        if not is_empty(value):
            self.unknown(value, note)

    def fields(self, fields: Mapping[Any, Any], known: Collection[str], note: str, choice: int = 0) -> None:
        """Reports the fields that are neither known nor empty, each again only when its value changes."""
        for key, value in fields.items():
            if key not in known and not is_empty(value):
                self.field(key, value, note, choice)

    def each_field(self, fields: Mapping[Any, Any], known: Collection[str], note: str) -> None:
        """Reports the fields that are neither known nor empty, however often they come."""
        for key, value in fields.items():
            if key not in known and not is_empty(value):
                self.unknown({key: value}, note)

    def field(self, key: str, value: Any, note: str, choice: int = 0) -> None:
        """Reports an unknown field that may come with every frame: again only when its value changes."""
        if self._last_fields.get((choice, key, note)) == value:
            return
        if len(self._last_fields) >= MAX_FIELDS:
            self._last_fields.clear()
        self._last_fields[choice, key, note] = value
        self.unknown({key: value}, note)

    def error(self, error: Error) -> None:
        """Emits an error of the provider, unless the same one was emitted before (QUIRKS 139)."""
        self._progress.fail(len(self._answers.out))
        self._answers.end_signs.has_any = True
        self._emit(error)

    def error_or_unknown(self, error: Error | None, value: Any, note: str) -> None:
        """Emits the error, or, without one, the frame as unknown."""
        if error is not None:
            self.error(error)
        else:
            self.unknown(value, note)

    def error_in(self, value: Any) -> bool:
        """Emits the error if the frame is one; returns whether it is."""
        error = error_in(value)
        if error is not None:
            self.error(error)
        return error is not None

    def no_object(self, value: Any) -> None:
        """Reports a frame that is JSON but not an object; it may stand for a piece of any call."""
        if not is_keep_alive_value(value):
            self._answers.damage_calls()
        if value is not None:
            self.unknown(value, "a frame that is not an object")

    def stray(self, stray: Stray) -> None:
        """Reports bytes that are not a frame."""
        text = stray.data.decode("utf-8", "replace")
        if stray.code:
            self._answers.damage_calls()
            self._emit(Error(stray.note, stray.code, raw=text))
        elif stray.is_ignored or is_keep_alive(text):
            self.unknown(text, stray.note)
        else:
            self.hole(text, stray.note)

    def hole(self, text: str, note: str) -> None:
        """Reports a part of the stream that cannot be read: an error, because something is missing now.

        It may have been a piece of any open call. Before anything was understood it is only unknown, as the whole body
        may be another wire's; the end decides. At the end of the bytes it is a part that was cut.
        """
        self._answers.damage_calls()
        is_understood = self._has_content or self._answers.has_reason
        if self.is_closing or self._has_hole or not is_understood:
            self.unknown(text, note)
        else:
            self._first_hole(text, note)
        self._has_hole |= not self.is_closing

    def end(self, wire: str) -> None:
        """Reports an error if nothing of the body was understood (it may be another wire's), or not its beginning."""
        if self._has_content or not self.has_unknown:  # a reason for the end alone does not count
            if self._has_hole and not self.errors:
                self._first_hole(None, "its beginning")
        else:
            self._emit(Error(f"nothing in this body was understood: is it really {wire}?", "not_understood"))

    def restart(self) -> None:
        """Forgets what was reported: the provider started the response again."""
        self.errors.clear()
        self._progress.restart()
        self._last_fields.clear()

    @property
    def _has_content(self) -> bool:
        return bool(self._answers.blocks.next_block or self.errors or self.has_known_frames)

    def _first_hole(self, text: str | None, note: str) -> None:
        message = f"a part of the stream could not be read: {note}"
        self._emit(Error(message, UNREADABLE_FRAME, raw=as_json_value(text)))

    def _emit(self, error: Error) -> None:
        if error.message not in self.errors:
            if len(self.errors) < MAX_ERRORS:
                self.errors.add(error.message)
            self._answers.out.append(error)
