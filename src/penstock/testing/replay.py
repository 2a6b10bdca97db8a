"""`replay:` models: a recording answers what it was asked, and says what differs if it is asked something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import ReplayMissError, UnknownProviderError, UsageError
from penstock.model.recording import Recording, read_recordings
from penstock.providers import Provider, find_provider, split_model
from penstock.testing.cuts import Cutting
from penstock.testing.in_process import AsyncPlayedConnection, PlayedConnection
from penstock.testing.reply import Drop, Wait
from penstock.testing.response import Response, recut
from penstock.testing.wires.play import SendAction
from penstock.transport.commands import OpenRequest


class Replay:
    """Answers from a recording: each exchange once, the first that fits.

    `speed` is how many times as fast as it was recorded, 0 without any waiting; `cuts` cuts the bytes anew.
    """

    def __init__(self, path: str | Path, *, speed: float = 0, cuts: Cutting = None) -> None:
        list(recut([b""], cuts))  # a wrong one is told here, not in the middle of a response
        self.recordings = read_recordings(path)
        if not self.recordings:
            raise UsageError(f"there is nothing in the recording {str(path)!r}")
        self._left = list(self.recordings)
        self._speed = speed
        self._cuts: Cutting = cuts

    def connect(self) -> PlayedConnection:
        return PlayedConnection(self._respond)

    def aconnect(self) -> AsyncPlayedConnection:
        return AsyncPlayedConnection(self._respond)

    def _respond(self, command: OpenRequest) -> Response:
        body = msgspec.json.decode(command.request.body)
        if not self._left:
            raise ReplayMissError(f"the recording is used up: it has {len(self.recordings)} answers")
        for at, found in enumerate(self._left):
            if found.asked.body == body:
                return self._play(self._left.pop(at))
        raise ReplayMissError(f"the recording has no answer to this: {difference(self._left[0].asked.body, body)}")

    def _play(self, found: Recording) -> Response:
        actions: list[SendAction] = []
        now = 0.0
        for piece in found.pieces:
            actions += [Wait((piece.at - now) / self._speed)] if self._speed else []
            actions.append(piece.data)
            now = piece.at
        if not found.is_whole:
            actions.append(Drop())
        return Response(found.began.status, found.began.headers, tuple(recut(actions, self._cuts)))


def difference(recorded: Any, asked: Any, path: str = "$") -> str:
    """The first place at which two requests differ."""
    match recorded, asked:
        case dict(), dict():
            for key in [*recorded, *(key for key in asked if key not in recorded)]:
                if key not in asked or key not in recorded:
                    which = "was recorded, and is not asked" if key in recorded else "is asked, and was not recorded"
                    return f"{path}.{key} {which}"
                if recorded[key] != asked[key]:
                    return difference(recorded[key], asked[key], f"{path}.{key}")
        case list(), list():
            for at, (one, other) in enumerate(zip(recorded, asked, strict=False)):
                if one != other:
                    return difference(one, other, f"{path}[{at}]")
            return f"{path} was recorded with {len(recorded)} entries, and is asked with {len(asked)}"
        case _:
            pass
    return f"{path} was recorded as {_shown(recorded)}, and is asked as {_shown(asked)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}…"


def connector(path: str, wire: str | None) -> tuple[str, Provider, Replay]:
    """The recorded model, its provider, and the connector that plays the recording."""
    replay = Replay(path)
    asked = replay.recordings[0].asked
    try:
        name, model = split_model(asked.model)
        _, row = find_provider(name)
    except UnknownProviderError:
        model, row = asked.model.partition(":")[2], Provider(wire=asked.wire)
    return model, msgspec.structs.replace(row, wire=wire or asked.wire), replay
