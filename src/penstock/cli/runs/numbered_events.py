"""The events of a run with their numbers, one line each, as a fork needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from penstock.cli.screen.run_log import run_line
from penstock.events import Reasoning, Refusal, Text, ToolCallDelta
from penstock.inspector.excerpts import excerpt
from penstock.run.events import LogEvent, Nested, innermost

_LENGTH = 200
"""How many characters of an event are shown."""


def numbered_lines(events: Iterable[tuple[int, LogEvent]]) -> Iterator[str]:
    """One line per event; pieces of text that follow each other have one, with the number of the last."""
    for _, group in groupby(events, key=_piece):
        pieces = list(group)
        number, event = pieces[-1]
        text = "".join(_text(each) for _, each in pieces)
        yield _line(number, event, text) if text else numbered_line(number, event)


def numbered_line(number: int, event: LogEvent) -> str:
    """The line of one event."""
    return _line(number, event, _text(event))


def _line(number: int, event: LogEvent, text: str) -> str:
    inner = innermost(event)
    kind = "arguments" if isinstance(inner, ToolCallDelta) else inner.type
    label, message = (kind, text) if text else run_line(inner) or (kind, "")
    indent = "  " * len(event.path) if isinstance(event, Nested) else ""
    call = getattr(inner, "call_id", None) or (inner.id if inner.type == "tool_call" else "")
    return f"{number:>6}  {indent}{label:<9}  {excerpt(message, _LENGTH)}{f'  [{call}]' if call else ''}".rstrip()


def _piece(numbered: tuple[int, LogEvent]) -> object:
    """What pieces of one text have in common; any other event stands alone."""
    number, event = numbered
    inner = innermost(event)
    path = event.path if isinstance(event, Nested) else ()
    return (path, inner.type, inner.block) if isinstance(inner, Text | Reasoning | Refusal | ToolCallDelta) else number


def _text(event: LogEvent) -> str:
    match innermost(event):
        case Text(text=text) | Reasoning(text=text) | Refusal(text=text):
            return text
        case ToolCallDelta(piece=piece):
            return piece
        case _:
            return ""
