"""Scripts: replies in order, or a function that responds to each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from penstock.errors import UsageError, type_name
from penstock.model.recording import read_recordings
from penstock.testing.faults import Fault, Raw, Status
from penstock.testing.reply import Reply, ReplyPart
from penstock.testing.request import ReceivedRequest

Step = Reply | Fault
"""The response to one request."""
Script = Sequence[Step | str]
"""Replies and faults in order: each request gets the next one. A string is a reply with this text."""
Responder = Callable[[ReceivedRequest], Step | str]
"""A function that responds to requests."""


class ScriptPlayer:
    """Responds to each request with the next step of a script.

    A request after the last one gets status 400, which is not retried.
    """

    def __init__(self, steps: Iterable[Step | str]) -> None:
        self.steps = tuple(as_step(step) for step in steps)
        self._places = count()

    def __call__(self, request: ReceivedRequest) -> Step:
        place = next(self._places)
        if place < len(self.steps):
            return self.steps[place]
        return Status(400, _too_short("script", len(self.steps), "reply", "replies", place))


def always(step: Step | str) -> Responder:
    """A script that responds to every request with the same step."""
    same = as_step(step)
    return lambda request: same


def as_script(source: Responder | Iterable[Step | str] | Step | str) -> Responder:
    """Converts a function, a list of steps, or a single step to a script."""
    if isinstance(source, Step | str):
        return ScriptPlayer([source])
    if callable(source):
        return source
    if not isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller may pass anything
        raise UsageError(f"a script must be a reply, a list of replies or a function, not {type_name(source)}")
    return ScriptPlayer(source)


def as_step(value: Any) -> Step:
    """Converts a string to a reply with that text; a step is returned unchanged."""
    if isinstance(value, str):
        return Reply(value)
    if isinstance(value, Step):
        return value
    if isinstance(value, ReplyPart):
        raise UsageError(f"{value!r} is a part of a reply: wrap it, as in Reply(say(...))")
    raise UsageError(f"a step of a script must be a reply, not {type_name(value)}")


def _too_short(what: str, count: int, one: str, several: str, place: int) -> str:
    have = f"{count or 'no'} {one if count == 1 else several}"
    return f"the {what} is too short: it has {have}, and this is request {place + 1}"


def recorded(path: str | Path) -> Responder:
    """A script that responds with the responses of a recording, in order, whatever the requests are."""
    recordings = read_recordings(path)
    places = count()

    def answer(request: ReceivedRequest) -> Step:
        place = next(places)
        if place >= len(recordings):
            return Status(400, _too_short("recording", len(recordings), "response", "responses", place))
        recording = recordings[place]
        if recording.request.wire != request.wire:
            return Status(400, f"the recording is of {recording.request.wire}, but the request is on {request.wire}")
        return Raw(
            recording.body,
            recording.response.headers.get("content-type", "text/event-stream"),
            recording.response.status,
        )

    return answer
