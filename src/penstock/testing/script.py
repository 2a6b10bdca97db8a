"""What is played: replies in order, or a function that answers each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.model.recording import read_recordings
from penstock.testing.faults import Fault, Raw, Status
from penstock.testing.reply import Reply, ReplyPart
from penstock.testing.request import ReceivedRequest

Step = Reply | Fault
"""What one request gets."""
Responder = Callable[[ReceivedRequest], Step | str]
"""A function that answers requests."""


class Script:
    """Replies, and things that go wrong, in order: each request gets the next one.

        Script([Reply(say("Let me look."), call("weather", {"city": "Rome"})), Reply("Sunny.")])

    A request too many gets a 400, which nobody tries again.
    """

    def __init__(self, steps: Iterable[Step | str]) -> None:
        self.steps = tuple(as_step(step) for step in steps)
        self._places = count()

    def __call__(self, request: ReceivedRequest) -> Step:
        place = next(self._places)
        if place < len(self.steps):
            return self.steps[place]
        return Status(400, f"the script is over after {len(self.steps)}, and this is request {place + 1}")


def always(step: Step | str) -> Responder:
    """A script that gives every request the same."""
    same = as_step(step)
    return lambda request: same


def as_script(given: Responder | Iterable[Step | str] | Step | str) -> Responder:
    """A script, however it is given: a function, a list, or the one reply to the one request."""
    if isinstance(given, Step | str):
        return Script([given])
    if callable(given):
        return given
    return Script(given)


def as_step(given: Any) -> Step:
    """What a request gets; text alone is a reply that says it."""
    if isinstance(given, str):
        return Reply(given)
    if isinstance(given, Step):
        return given
    if isinstance(given, ReplyPart):
        raise UsageError(f"{given!r} is a part of a reply: put it into one, as in Reply(say(...))")
    raise UsageError(f"a script is made of replies, not of an object of type {type(given).__name__}")


def recorded(path: str | Path) -> Responder:
    """A script that gives the answers of a recording, in order, to whatever is asked."""
    found = read_recordings(path)
    places = count()

    def answer(request: ReceivedRequest) -> Step:
        place = next(places)
        if place >= len(found):
            return Status(400, f"the recording is over after {len(found)}, and this is request {place + 1}")
        one = found[place]
        if one.asked.wire != request.wire:
            return Status(400, f"the recording is of {one.asked.wire}, but the request is on {request.wire}")
        return Raw(one.body, one.began.headers.get("content-type", "text/event-stream"), one.began.status)

    return answer
