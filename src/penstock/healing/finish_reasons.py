"""Heals finish reasons: a response with calls must end with `tool_calls`, or clients ignore the calls."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.events import Finish, FinishReason, ToolCall
from penstock.healing.report import NO_REASON, STOP_WITH_CALLS, HealingReport
from penstock.wires import WireName, find_response_frames, find_wire

_NORMAL = ("stop", "tool_calls", "other")
"""The finish reasons of complete responses; all others mean that something is missing, and stay unchanged."""


class FinishReasons:
    """The finish reasons of one response, by choice; with `heals=False`, as the server sent them."""

    def __init__(self, wire: WireName, report: HealingReport, *, heals: bool) -> None:
        self._reasons = find_wire(wire).FINISH
        words = find_response_frames(wire).format.finish_reasons
        is_said = words["tool_calls"] != words["stop"]  # or the protocol has no reason for calls: STOP is right
        self._heals = heals or not is_said
        self._report = report
        self._has_native = False
        self._called: set[int] = set()  # choices with a call in the text
        self._damaged: set[int] = set()  # choices with a damaged call, which the decoder does not count as one

    def add_call(self, call: ToolCall) -> None:
        """Count a complete call."""
        if call.origin == "native":
            self._has_native = True
        else:
            self._called.add(call.choice)

    def add_damaged(self, choice: int) -> None:
        """Count a damaged call. A client that got one must look at it, and may answer that it is damaged."""
        self._damaged.add(choice)

    def clear(self) -> None:
        """Forget all calls: the response so far was withdrawn."""
        self._called.clear()
        self._damaged.clear()

    def heal(self, event: Finish) -> Finish:
        """The `Finish` with the reason that its calls need, or as the server sent it."""
        if event.reason not in _NORMAL:
            return event
        sent = None if event.raw_reason is None else self._reasons.get(event.raw_reason, "other")
        if sent in _NORMAL and not self._heals:
            return replace(event, reason=sent)
        healed = replace(event, reason="tool_calls") if self._needs_reason(event, sent) else event
        if healed.reason == "tool_calls" and self._has_native:
            if sent is None:
                self._report.add(NO_REASON)
            elif sent == "stop" and "tool_calls" in self._reasons.values():
                self._report.add(STOP_WITH_CALLS)
        return healed

    def _needs_reason(self, event: Finish, sent: FinishReason | None) -> bool:
        """Whether there are calls unknown to the decoder: damaged, or found in the text (QUIRKS 54)."""
        return event.choice in self._damaged or (sent == "tool_calls" and event.choice in self._called)
