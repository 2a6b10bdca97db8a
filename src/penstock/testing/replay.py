"""`replay:` models: respond from a recording, and report the first difference if a request does not match."""

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
    """A connector that responds from a recording: each exchange is used once, the first that matches.

    `speed` is relative to the recording (2 is twice as fast), 0 means no pauses; `cuts` splits the bytes differently.
    """

    def __init__(self, path: str | Path, *, speed: float = 0, cuts: Cutting = None) -> None:
        list(recut([b""], cuts))  # a wrong value is reported here, not in the middle of a response
        self.recordings = read_recordings(path)
        if not self.recordings:
            raise UsageError(f"the recording {str(path)!r} is empty")
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
            some = "1 response" if len(self.recordings) == 1 else f"{len(self.recordings)} responses"
            raise ReplayMissError(f"the recording has only {some}, and no unused one")
        for index, recording in enumerate(self._left):
            if recording.request.body == body:
                return self._play(self._left.pop(index))
        raise ReplayMissError(
            f"the recording has no response for this request: {difference(self._left[0].request.body, body)}"
        )

    def _play(self, recording: Recording) -> Response:
        actions: list[SendAction] = []
        now = 0.0
        for piece in recording.pieces:
            actions += [Wait((piece.at - now) / self._speed)] if self._speed else []
            actions.append(piece.data)
            now = piece.at
        if not recording.is_whole:
            actions.append(Drop())
        return Response(recording.response.status, recording.response.headers, tuple(recut(actions, self._cuts)))


def difference(recorded: Any, requested: Any, path: str = "$") -> str:
    """The first place at which two requests differ."""
    match recorded, requested:
        case dict(), dict():
            for key in [*recorded, *(key for key in requested if key not in recorded)]:
                if key not in requested or key not in recorded:
                    which = "is only in the recording" if key in recorded else "is only in the request"
                    return f"{path}.{key} {which}"
                if recorded[key] != requested[key]:
                    return difference(recorded[key], requested[key], f"{path}.{key}")
        case list(), list():
            for index, (left, right) in enumerate(zip(recorded, requested, strict=False)):
                if left != right:
                    return difference(left, right, f"{path}[{index}]")
            return f"{path} has {len(recorded)} entries in the recording, and {len(requested)} in the request"
        case _:
            pass
    return f"{path} is {_short(recorded)} in the recording, and {_short(requested)} in the request"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}…"


def connector(path: str, wire: str | None) -> tuple[str, Provider, Replay]:
    """The recorded model, its provider, and the connector that plays the recording."""
    replay = Replay(path)
    request = replay.recordings[0].request
    try:
        name, model = split_model(request.model)
        _, row = find_provider(name)
    except UnknownProviderError:
        model, row = request.model.partition(":")[2], Provider(wire=request.wire)
    return model, msgspec.structs.replace(row, wire=wire or request.wire), replay
