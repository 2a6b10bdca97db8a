"""Finds the output in a response: the JSON object in its text, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from penstock.errors import OutputError
from penstock.events import Text
from penstock.jsontext.scan import ValueScanner
from penstock.output.output_type import OBJECT_BEGIN, VALUE, OutputType
from penstock.turn import Turn, TurnPart

T = TypeVar("T")

_BEGIN = re.compile(rf"\s*(?:```(?:json)?\s*)?{OBJECT_BEGIN}", re.IGNORECASE)
_WRAPPED_BEGIN = re.compile(rf'\{{\s*"{VALUE}"\s*:')


def find_output(parts: Iterable[TurnPart], output: OutputType[Any]) -> str:
    """The JSON text of the output. Where a model writes other text too, it is the last object with the required fields.

    Without such an object it is the last one, and without any the whole text. Models write examples, notes and drafts
    before their output, also in reasoning that the server does not separate from the text. Where text is an output too,
    only attempts count: text with other objects in it is that text.
    """
    texts = [part.text for part in parts if isinstance(part, Text)]
    text = "".join(texts)
    whole = text.strip()
    first = next(_objects_in(whole), "")
    if first == whole:  # also if its text is in several blocks
        return whole
    objects = [(each, keys) for block in texts for each in _objects_in(block) if (keys := _keys(each)) is not None]
    required: Any = output.declaration.schema.get("required", ())
    fitting = [(each, keys) for each, keys in objects if keys >= {*required}]
    if output.accepts_text and not fitting:
        attempts = [each for block in texts for each in _attempts_in(block)]
        return attempts[-1] if attempts else text
    return next((each for each, _ in reversed(fitting or objects)), first or whole)


def _attempts_in(text: str) -> Iterator[str]:
    """The objects in a text that were meant as an output, valid or not: the first if the text begins with it, perhaps
    in a code fence, and those that begin as a wrapped output does."""
    begins = _BEGIN.match(text) is not None
    for index, each in enumerate(_objects_in(text)):
        if (begins and index == 0) or _WRAPPED_BEGIN.match(each):
            yield each


def _objects_in(text: str) -> Iterator[str]:
    """What looks like an object in a text, one after the other; the last may be incomplete."""
    start = text.find("{")
    while start >= 0:
        end = ValueScanner().feed(text, start)
        yield text[start:] if end < 0 else text[start:end]
        start = -1 if end < 0 else text.find("{", end)


def _keys(text: str) -> set[str] | None:
    """The keys of an object; None if the text is not one."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return {*value} if isinstance(value, dict) else None


def outcome_of(output: OutputType[Any], turn: Turn[Any]) -> tuple[Any] | OutputError:
    """The output of a response, or why there is none: the `outcome` of its turn."""
    try:
        return (read_output(output, turn),)
    except OutputError as error:
        return error


def read_output(output: OutputType[T], turn: Turn[Any]) -> T:
    """The output of a response; an `OutputError` that says why there is none."""
    if turn.error is not None:
        raise OutputError(f"the response failed: {turn.error.message}", turn.text)
    if turn.refusal:
        raise OutputError(f"the model refused: {turn.refusal}", turn.text)
    if turn.tool_calls or turn.vendor_calls or turn.invalid_calls:
        raise OutputError("the response has tool calls; send their results, and the model will give the output")
    if turn.finish_reason not in ("stop", "other"):
        raise OutputError(f"the response is not complete (finish_reason {turn.finish_reason!r})", turn.text)
    try:
        return output.read(find_output(turn.parts, output))
    except OutputError as error:
        raise OutputError(f"the output is not valid: {error.problem}", error.text) from None
