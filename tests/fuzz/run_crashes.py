"""Plays a script, and after each input also what follows if the process dies there and another one takes over."""

from __future__ import annotations

from itertools import cycle, islice

from penstock import Limits, StreamChunk, ToolCall, ToolCallInvalid, ToolCallStart
from penstock.tools.policy import ToolPolicy
from tests.fuzz.run_player import Player
from tests.fuzz.run_scripts import FAULTS, LAST, Script
from tests.fuzz.run_watch import Broken


class CrashingPlayer(Player):
    """Plays a script of a run with a log. At each boundary between two inputs, a copy of it dies and is continued."""

    def check_log(self) -> None:
        super().check_log()
        heir = _Heir(self)
        try:
            heir.take_over()
            heir.end()
        except Broken:
            self.inputs += ["(the process dies)", *heir.inputs]
            raise
        self.crashes += 1


class _Heir(Player):
    """Another process, which takes over the run of one that dies."""

    def __init__(self, player: Player) -> None:
        super().__init__(player.script)
        self.run, self.log, self.watch = player.run, [*player.log], player.watch.fork()
        self.answered = player.answered
        self.stale = [*player.stale, *player.running]

    def check_log(self) -> None:
        """The log was checked before the process died."""


POLICIES = [
    ToolPolicy(start="closed", is_read_only=True), ToolPolicy(start="call"), ToolPolicy(start="turn"),
    ToolPolicy(needs_approval=True), ToolPolicy(start="call", is_idempotent=True), ToolPolicy(is_deferred=True),
]  # fmt: skip


def vector_script(chunks: list[StreamChunk], number: int) -> Script:
    """The script of a run whose model first answers with these chunks, which come one by one.

    Each tool has one of the policies; which one depends on the number.
    """
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCallStart | ToolCall | ToolCallInvalid)]
    names = dict.fromkeys(call.name for call in calls)
    policies = dict(zip(names, islice(cycle(POLICIES), number % len(POLICIES), None), strict=False))
    repaired = FAULTS if number % 2 else []
    return Script(0, [], [chunks, LAST], policies, Limits(), repaired, is_logged=True, has_crashes=True, read_size=1)
