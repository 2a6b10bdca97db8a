"""Calls that were asked for in the text of a response: how they are read, and what is noted about them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.declarations import ToolDeclaration
from penstock.dialects.wrong_dialect import WrongDialect
from penstock.events import Finish, Retry, StreamChunk, ToolCall, Unknown
from penstock.healing.report import HealingReport


class InTextCalls(Struct, frozen=True):
    """Calls that were asked for in the text, in these dialects.

    Where the prompt `is_own`, it asks for the first dialect, which then is read as in `Model.ask(calls=…)`. Otherwise
    the server wrote the prompt, the dialect is not known, and the rules for rescued calls apply. `tool_choice` is that
    of the request, and `is_parallel` whether it allows several calls.
    """

    dialects: tuple[str, ...]
    is_own: bool
    tool_choice: str = ""
    is_parallel: bool = True


class InTextNotes:
    """A stage that notes a call in another dialect, and what the request asked for and the model did not do."""

    def __init__(self, calls: InTextCalls, tools: Sequence[ToolDeclaration], report: HealingReport) -> None:
        self._calls = calls
        self._report = report
        self._wrong = WrongDialect(calls.dialects, tools) if calls.is_own else None
        self._called: list[str] = []

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events of one network read, as they are."""
        for chunk in chunks:
            if self._wrong is not None:
                self._note_dialect(self._wrong.feed(chunk)[:-1])
            match chunk:
                case ToolCall(choice=0):
                    self._called.append(chunk.name)
                case Retry():
                    self._called.clear()
                case Finish(choice=0, reason="stop" | "tool_calls"):
                    self._note_choice()
                case _:
                    pass
        return chunks

    def _note_dialect(self, reports: list[StreamChunk]) -> None:
        for report in reports:
            if isinstance(report, Unknown):
                self._report.note(f"{report.note}: set `calls` to the dialect that the model writes")

    def _note_choice(self) -> None:
        choice, called = self._calls.tool_choice, self._called
        if choice not in ("", "auto", "none"):
            wanted = "a call" if choice == "required" else f"a call of {choice!r}"
            if not called:
                self._report.note(f"the request requires {wanted}, and the model made none")
            elif choice != "required" and {*called} != {choice}:
                self._report.note(f"the request requires {wanted}, and the model called {', '.join(map(repr, called))}")
        if len(called) > 1 and not self._calls.is_parallel:
            self._report.note(f"the request allows one call, and the model made {len(called)}")
