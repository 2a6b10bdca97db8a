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
    the server wrote the prompt, the dialect is not known, and the rules for rescued calls apply. `is_parallel` says
    whether the request allows several calls.
    """

    dialects: tuple[str, ...]
    is_own: bool
    is_parallel: bool = True


class InTextNotes:
    """A stage that notes a call in another dialect, and several calls where the request allows one."""

    def __init__(self, calls: InTextCalls, tools: Sequence[ToolDeclaration], report: HealingReport) -> None:
        self._calls = calls
        self._report = report
        self._wrong = WrongDialect(calls.dialects, tools) if calls.is_own else None
        self._call_count = 0

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events of one network read, as they are."""
        for chunk in chunks:
            if self._wrong is not None:
                self._note_dialect(self._wrong.feed(chunk)[:-1])
            match chunk:
                case ToolCall(choice=0):
                    self._call_count += 1
                case Retry():
                    self._call_count = 0
                case Finish(choice=0, reason="stop" | "tool_calls") if (
                    self._call_count > 1 and not self._calls.is_parallel
                ):
                    self._report.note(f"the request allows one call, and the model made {self._call_count}")
                case _:
                    pass
        return chunks

    def _note_dialect(self, reports: list[StreamChunk]) -> None:
        for report in reports:
            if isinstance(report, Unknown):
                self._report.note(f"{report.note}: set `calls` to the dialect that the model writes")
