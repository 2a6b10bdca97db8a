"""Values while they stream: the structured output and the arguments of calls, as events derived from other events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.calls.partial_calls import PartialCalls
from penstock.errors import ArgumentsError
from penstock.events import ArgumentDelta, Event, JSONValue, OutputDelta, Retry, Text, ToolCallDelta, ToolCallStart
from penstock.jsontext.error_text import named_message
from penstock.jsontext.partial import JSONPiece, PartialJSON
from penstock.jsontext.scan import ValueScanner
from penstock.output.output_type import VALUE, OutputType
from penstock.output.value_type import ValueType


class PartialOutput:
    """The output so far: `value` grows in place, at the cost of each new piece.

    Fields that are complete have been validated, once, and converted to their types; the others are JSON so far. The
    fields are those of an object, or the items of a list; what is inside of them is validated with them.
    """

    def __init__(self, output: OutputType[Any]) -> None:
        self._output = output
        self._skipped = 1 if output.is_wrapped else 0  # the steps of a path that are not the output's own
        self.reset()

    def reset(self) -> None:
        """Forget the value: another response begins."""
        self._view: PartialJSON | None = None
        self._scanner: ValueScanner | None = None  # scans the open object
        self._block = -1
        self._json: dict[str | int, Any] = {}  # the fields that were converted, as they came
        self._converted: tuple[Any] | None = None  # the output so far, until more comes

    @property
    def output(self) -> Any:
        """The value so far as the output, with defaults for the rest; None if it is not valid."""
        if self._converted is None:
            self._converted = (None if self.value is None else self._output.convert(self._as_it_came()),)
        return self._converted[0]

    def _as_it_came(self) -> Any:
        """The value so far, without conversions."""
        match self.value:
            case dict() as fields:
                return {key: self._json.get(key, value) for key, value in fields.items()}
            case list() as items:
                return [self._json.get(index, item) for index, item in enumerate(items)]
            case value:
                return value

    @property
    def value(self) -> JSONValue | None:
        """The value so far; None if nothing of it has come."""
        value = None if self._view is None else self._view.value
        if self._output.is_wrapped:
            return value.get(VALUE) if isinstance(value, dict) else None
        return value

    def feed(self, text: Text) -> list[OutputDelta]:
        """Add a piece of text; returns what it added to the value.

        Another object after one that has ended is the output, until a third one comes: see `find_output`.
        """
        if text.block != self._block and self._view is not None and self._view.error:
            self._scanner = None  # what began in another block is not JSON
        self._converted = None
        self._block, piece, end = text.block, text.text, 0
        deltas: list[OutputDelta] = []
        while end >= 0:
            start = end
            if self._scanner is None:
                if (start := piece.find("{", end)) < 0:
                    break
                self._view, self._scanner, self._json = PartialJSON(), ValueScanner(), {}
            end = self._scanner.feed(piece, start)
            deltas += self._add(piece[start:] if end < 0 else piece[start:end])
            if end >= 0:
                self._scanner = None
        return deltas

    def _add(self, piece: str) -> list[OutputDelta]:
        """Add a piece of the object."""
        assert self._view is not None  # it has begun
        return [delta for one in self._view.feed(piece) for delta in self._delta(one)]

    def _delta(self, piece: JSONPiece) -> Iterator[OutputDelta]:
        path = piece.path[self._skipped :]
        if not self._skipped or piece.path[:1] == (VALUE,):
            problem = self._validate(path[0]) if piece.is_complete and len(path) == 1 else ""
            is_all = not path and isinstance(piece.piece, dict | list)  # all its pieces have come already
            yield OutputDelta(path, None if is_all else piece.piece, piece.is_complete, problem)

    def _validate(self, key: str | int) -> str:
        """Convert a field that is complete; returns what is wrong with it."""
        kind = self._type_of(key)
        if kind is None:
            return ""
        fields: Any = self.value
        try:
            self._json[key], fields[key] = fields[key], kind.convert(fields[key], str(key))
        except ArgumentsError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001  # validators are user code; the whole output is validated again
            return f"`{key}`: {named_message(error)}"
        return ""

    def _type_of(self, key: str | int) -> ValueType | None:
        if isinstance(key, int):
            return self._output.items
        return None if self._output.is_wrapped else self._output.fields.get(key)


class PartialView:
    """Derives `OutputDelta`s and `ArgumentDelta`s from the events of a response or a run."""

    def __init__(self, output: OutputType[Any] | None, *, has_arguments: bool) -> None:
        self._output = None if output is None else PartialOutput(output)
        self._calls = PartialCalls() if has_arguments else None

    @property
    def value(self) -> JSONValue | None:
        """The JSON of the output so far; None if there is none."""
        return None if self._output is None else self._output.value

    @property
    def output(self) -> Any:
        """The output so far, with defaults for the rest; None if that is not valid."""
        return None if self._output is None else self._output.output

    def reset(self) -> None:
        """Another response begins."""
        if self._output is not None:
            self._output.reset()

    def feed(self, event: Event) -> list[OutputDelta] | list[ArgumentDelta]:
        """What the event adds to the output or to the arguments of a call."""
        match event:
            case Text(choice=0) if self._output is not None:
                return self._output.feed(event)
            case ToolCallDelta() if self._calls is not None:
                return self._calls.pieces(event)
            case Retry():
                self.reset()
                if self._calls is not None:
                    self._calls.add(event)
            case ToolCallStart() if self._calls is not None:
                self._calls.add(event)
            case _:
                pass
        return []


def partial_view(output: OutputType[Any] | None, *, has_arguments: bool) -> PartialView | None:
    """The view of a response or a run; None if there is nothing to derive."""
    return PartialView(output, has_arguments=has_arguments) if output is not None or has_arguments else None
