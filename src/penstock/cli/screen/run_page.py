"""The page of an agent's run, as `run`, `runs` and `demo` show it: text, calls, tools and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from penstock.cli.runs.owners import parse_owner
from penstock.cli.screen.call_card import CallCard, Phase, Progress, Span
from penstock.cli.screen.page import Page
from penstock.cli.screen.remark import RESET, Remark, Shown
from penstock.cli.screen.rows import Row, Width
from penstock.events import Finish, Opaque, ToolCall, ToolCallClosed, Unknown, Usage
from penstock.inspector.excerpts import excerpt
from penstock.run.events import (
    ApprovalRequest,
    CallReviewed,
    Decision,
    Done,
    HistoryReplaced,
    Nested,
    OutputInvalid,
    RequestKind,
    Reset,
    RunStart,
    Said,
    StepEnd,
    StepStart,
    Taken,
    ToolEnd,
    ToolEnding,
    ToolPrepare,
    ToolProgress,
    ToolResults,
    ToolReturned,
    ToolStart,
    Waiting,
)
from penstock.run.forked import Forked
from penstock.run.inner_runs import unwrap
from penstock.run.limits import dollars

PHASES: dict[ToolEnding, Phase] = {
    "done": "done", "failed": "failed", "declined": "failed", "cancelled": "void", "discarded": "void",
    "skipped": "void",
}  # fmt: skip
WAITS: dict[RequestKind, str] = {
    "approval": "waits for your approval",
    "deferred": "waits for its result from elsewhere",
    "input": "asks a question",
}


class RunPage(Page[Shown]):
    """Shows a run. `spans` says when tools ran, by call id, if the caller knows it before their ends are reported.

    The end of a tool that started early is reported only when its call is confirmed.
    """

    def __init__(self, spans: Mapping[str, Span] | None = None) -> None:
        super().__init__(is_raw=False)
        self._spans = {} if spans is None else spans
        self._running: dict[str, CallCard] = {}  # by execution key

    def add(self, event: Shown, now: float) -> None:
        self._waiting_since = None
        match event:
            case RunStart() | Taken() | Waiting() | Forked() | Said() | Reset() | Remark():
                self._remark(event)
            case StepStart():
                self._waiting_since = now
                self.blocks.settle_text()
                self._cards = {}
            case StepEnd():
                self.blocks.settle_text()
                for card in self._cards.values():
                    if card.progress.phase == "held":
                        card.progress.message = "waits for other calls"
            case ToolPrepare():
                card = self._card_by_id(event.call_id, event.name, None)
                card.progress.message = "prepares"
            case ToolStart():
                card = self._card_by_id(event.call_id, event.name, event.arguments)
                card.progress = Progress("running", event.call_id, now, event.is_early)
                self._running[event.key] = card
            case ToolProgress():
                if event.key in self._running:
                    self._running[event.key].progress.report = event.data
            case ToolEnd():
                self._tool_end(event)
            case ApprovalRequest():
                card = self._card_by_id(event.call_id, event.name, event.shown)
                card.progress = Progress("asking", message=WAITS[event.kind])
            case Done():
                self._done(event)
            case HistoryReplaced():
                self._note("note", "· ", (replaced_text(event), "aside"))
            case OutputInvalid():
                self._note("note", "✗ ", (f"the output is not valid: {excerpt(event.problem, 400)}", "odd"))
            case Nested():
                self._inner_page(event.path[0]).add(unwrap(event), now)
            case Decision() | ToolResults() | CallReviewed() | ToolReturned():
                pass
            case _:
                self._add_chunk(event)

    def take(self, width: Width, now: float) -> list[Row]:
        """Take the rows that will not change any more."""
        return self.blocks.take(width, now)

    def moving(self, width: Width, now: float) -> list[Row]:
        for card in self._running.values():
            if span := self._spans.get(card.progress.call_id):
                card.progress.seconds = span.seconds
        return super().moving(width, now)

    def _remark(self, event: RunStart | Taken | Waiting | Forked | Said | Reset | Remark) -> None:
        match event:
            case RunStart():
                self._note("prompt", "› ", (prompt_of(event), "title"))
            case Said():
                self._note("prompt", "› ", (event.message.text, "title"))
            case Taken(epoch=1):
                self._note("worker", "· ", (f"taken by {parse_owner(event.owner).text}", "aside"))
            case Taken():
                self._note("worker", "↻ ", (f"{parse_owner(event.owner).text} has taken it over", "odd"))
            case Waiting(why=why) if why:
                self._note("worker", "‖ ", (f"parked: {why}", "odd"))
            case Waiting():
                pass  # the cards of the calls show it
            case Forked():
                self._note("note", "⑂ ", (forked_text(event), "aside"))
            case Reset():
                self._note("note", "↻ ", (RESET, "odd"))
            case Remark():
                self._note("remark", event.mark, (event.text, event.style))

    def _add_detail(self, event: ToolCallClosed | ToolCall | Unknown | Opaque | Usage | Finish) -> None:
        match event:
            case ToolCallClosed() | ToolCall():
                card = self._card(event.block, event.id, event.name)
                card.id, card.name = event.id, event.name
                card.set_arguments(event.arguments)
                if card.progress.phase == "writing":
                    card.progress.phase = "held"
            case Unknown() | Opaque() | Usage() | Finish():
                pass  # not shown, or shown by `Done`
            case _:
                assert_never(event)

    def _card_by_id(self, call_id: str, name: str, arguments: Mapping[str, Any] | None = None) -> CallCard:
        """The card of this call; a new one if there is none, as in a run that was resumed."""
        for card in reversed(self._cards.values()):
            if card.id == call_id:
                return card
        card = self._new_card(-1 - len(self._cards), call_id, name)
        if arguments is not None:
            card.set_arguments(arguments)
        return card

    def _inner_page(self, call_id: str) -> RunPage:
        """The page of the agent inside a call."""
        card = self._card_by_id(call_id, "agent")
        if not isinstance(card.inner, RunPage):
            card.inner = RunPage(self._spans)
        return card.inner

    def _tool_end(self, event: ToolEnd) -> None:
        card = self._running.pop(event.key, None)
        if card is None:
            card = self._card_by_id(event.result.call_id, event.result.name)
        if not card.is_settled:
            card.end(PHASES[event.ending], event.result.text, event.seconds)

    def _done(self, event: Done) -> None:
        self.blocks.settle_text()
        if event.usage.cost is not None and event.reason != "paused":
            self._note("cost", "· ", (cost_text(event.usage), "aside"))
        if event.reason != "answered":
            why = f": {excerpt(event.why)}" if event.why else ""
            self._note("done", "■ ", (f"{event.reason}{why}", "bad" if event.reason == "error" else "odd"))


def cost_text(usage: Usage) -> str:
    """The tokens of a run, and what they cost."""
    tokens = f"{usage.input_tokens + usage.output_tokens:,} tokens"
    return tokens if usage.cost is None else f"{tokens}, {dollars(usage.cost)}"


def forked_text(event: Forked) -> str:
    """Where a run was forked."""
    return f"forked from {event.run} at event {event.at}" + (f", with the model {event.model}" if event.model else "")


def replaced_text(event: HistoryReplaced) -> str:
    """A sentence about the replaced history of a run."""
    replaced = sum(splice.stop - splice.start for splice in event.splices)
    return f"{replaced} messages were replaced by {sum(len(splice.messages) for splice in event.splices)}"


def prompt_of(start: RunStart) -> str:
    """The last user message at the start of a run."""
    return next((message.text for message in reversed(start.messages) if message.role == "user"), "")
