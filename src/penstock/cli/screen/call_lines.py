"""Calls as they grow: each a block with its name on top, its arguments as they come, and a verdict at the bottom."""

from __future__ import annotations

from msgspec import Struct

from penstock.cli.screen.terminal import Screen, Styled, one_line
from penstock.events import SealedBy, ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart

SEALED: dict[SealedBy, str] = {
    "call_end": "the provider ended it",
    "whole": "it came in one piece",
    "finish": "the finish confirmed it",
    "done": "the end mark confirmed it",
    "caller": "the caller made it",
}


class Head(Struct, frozen=True):
    """What stands on top of a call."""

    id: str = ""
    name: str = ""


class CallView:
    """Prints the calls of a stream. Calls that are written at the same time interrupt each other, and say so."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._open: dict[int, Head] = {}

    def start(self, event: ToolCallStart) -> None:
        self._open[event.block] = Head(event.id, event.name)
        self._show(event.block)

    def delta(self, event: ToolCallDelta) -> None:
        self._show(event.block, "goes on")
        self._screen.write(event.piece, "arguments")

    def whole(self, event: ToolCall) -> None:
        how = f"{SEALED[event.sealed_by]}{', free-form' if event.kind == 'custom' else ''}"
        where = "" if event.origin == "native" else f", found in the {event.origin}"
        self._verdict(event, ("✓ whole", "good"), (f"  {how}{where}", "aside"))

    def invalid(self, event: ToolCallInvalid) -> None:
        if event.block not in self._open:  # it was never announced: its arguments are news
            self._show(event.block)
            self._screen.write(event.arguments_raw, "arguments")
        self._verdict(event, (f"✗ {event.why.replace('_', ' ')}", "bad"), (f"  {one_line(event.message)}", ""))
        if event.repaired is not None:
            self._screen.line("   ", ("probably meant: ", "odd"), (one_line(event.repaired, 400), ""))

    def _show(self, block: int, mark: str = "") -> None:
        """Go to the block of a call, with its head above if something else stood between."""
        if self._screen.begin(("call", block), "│  ", "arguments"):
            head = self._open.get(block, Head())
            self._screen.line("╭─ ", *_named(head), (f"  {mark}" if mark else "", "aside"))

    def _verdict(self, event: ToolCall | ToolCallInvalid, verdict: Styled, why: Styled) -> None:
        head = self._open.pop(event.block, Head())
        if self._screen.is_at(("call", event.block)):
            late_id = "" if event.id == head.id else f"  {one_line(event.id, 80)}"
            self._screen.line("╰─ ", verdict, why, (late_id, "aside"))
        else:
            self._screen.begin("verdicts")
            self._screen.line("", verdict, ("  ", ""), *_named(Head(event.id, event.name)), why)


def _named(head: Head) -> tuple[Styled, Styled]:
    id = f"  {one_line(head.id, 80)}" if head.id else ""
    return (one_line(head.name, 80) or "(no name)", "name"), (id, "aside")
