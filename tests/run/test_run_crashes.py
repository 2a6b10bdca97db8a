"""The log is the run: after a crash at any boundary between two inputs, a run is rebuilt from its log and ends well."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import ToolEnd
from penstock.run.events import LogEvent
from penstock.run.rebuild import Replay
from tests.budget import sample
from tests.fuzz.run_crashes import POLICIES, CrashingPlayer, vector_script
from tests.fuzz.run_scripts import make_script
from tests.fuzz.run_watch import Broken
from tests.support import Vector, decode_pieces, vectors

VECTORS = vectors()
WIRES = sorted({vector.wire for vector in VECTORS})
INVALID = {"tools-of-connected-servers-and-unknown-tools-are-not-calls"}
"""Vectors whose response is not valid in a history without any crash: it has a result of a server without its call."""


def play(vector: Vector, number: int) -> CrashingPlayer:
    """A run whose model answers with a vector, with crashes everywhere."""
    player = CrashingPlayer(vector_script(decode_pieces(vector.wire, [vector.body()], vector.tools), number))
    try:
        player.play()
    except Broken as broken:
        raise AssertionError(f"{vector.name}: {broken.name}: {broken.seen}\n" + "\n".join(player.inputs)) from None
    return player


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_with_the_response_of_any_vector_survives_a_crash_anywhere(wire: str, record_property: Any) -> None:
    crashes = 0
    spoken = [vector for vector in VECTORS if vector.wire == wire]
    for number, vector in sample(list(enumerate(spoken)), few=60):
        if vector.name in INVALID:
            continue
        crashes += play(vector, number).crashes
    record_property("boundaries", crashes)
    record_property("crashes", crashes)
    assert crashes > len(POLICIES)


def test_an_event_that_is_not_rebuilt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Replay.apply

    def forgetful(replay: Replay, event: LogEvent) -> None:
        if not isinstance(event, ToolEnd):
            apply(replay, event)

    monkeypatch.setattr(Replay, "apply", forgetful)
    scripts = [script for script in map(make_script, range(300)) if script.has_crashes]
    broken = []
    for script in scripts:
        try:
            CrashingPlayer(script).play()
        except Broken as error:
            broken.append(error.name)
    assert "the log is the run" in broken
