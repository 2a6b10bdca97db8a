"""Finds the output in a response: the JSON object in its text, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from penstock.errors import OutputError
from penstock.events import Text
from penstock.jsontext.scan import ValueScanner
from penstock.output.output_type import OutputType
from penstock.turn import Turn, TurnPart

T = TypeVar("T")


def find_output(parts: Iterable[TurnPart]) -> str:
    """The JSON text of the output. Where a model writes other text too, it is the object in the last text block.

    If there is no object, it is the whole text.
    """
    texts = [part.text for part in parts if isinstance(part, Text)]
    whole = "".join(texts).strip()
    candidates = [whole, *reversed(texts)] if whole.startswith("{") else reversed(texts)
    for text in candidates:
        if (start := text.find("{")) >= 0:
            end = ValueScanner().feed(text, start)
            return text[start:] if end < 0 else text[start:end]
    return whole


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
        return output.read(find_output(turn.parts))
    except OutputError as error:
        raise OutputError(f"the output is not valid: {error.problem}", error.text) from None
