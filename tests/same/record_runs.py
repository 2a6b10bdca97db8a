"""A pytest plugin that writes, for each test, a digest of what its agents requested and of the events of their runs.

`dump.py` is for inputs that are data; this is for runs that only the code of a test describes. The order among events,
and among requests, is left out: tools that run side by side end in any order.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import AgentRun, AsyncAgentRun
from penstock.testing import Scripted

OUT = Path(os.environ["SAME_OUT"])
IN_FULL = os.environ.get("SAME_IN_FULL")
CHANGING = re.compile(r" at 0x[0-9a-f]+|\b[0-9a-f]{32}\b|/tmp/[^\"' ]+|127\.0\.0\.1:\d+")
"""Addresses of objects, random ids, temporary files and ports."""


class Recording:
    """The scripted models of a test, and the events that were read of its runs."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.models: list[Scripted] = []
        self.events: list[str] = []

    def lines(self) -> list[str]:
        requests = [_text([request.path, request.body]) for model in self.models for request in [*model.requests]]
        return [*sorted(requests), *sorted(self.events)]


recording = Recording()


def _text(value: Any) -> str:
    plain = msgspec.to_builtins(value, enc_hook=repr, str_keys=True)
    return CHANGING.sub("…", json.dumps(plain))


class _Read:
    """An iterator of events, which are recorded."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        event = next(self._events)
        recording.events.append(_text(event))
        return event

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        event = await anext(self._events)
        recording.events.append(_text(event))
        return event

    def close(self) -> None:
        self._events.close()

    async def aclose(self) -> None:
        await self._events.aclose()


def _recorded(kind: Any, name: str) -> None:
    method = getattr(kind, name)
    setattr(kind, name, lambda self: _Read(method(self)))


def _noted_models() -> None:
    begin = Scripted.__init__

    def note(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        recording.models.append(self)

    Scripted.__init__ = note  # type: ignore[method-assign]


_recorded(AgentRun, "__iter__")
_recorded(AsyncAgentRun, "__aiter__")
_noted_models()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    recording.start()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    if lines := recording.lines():
        value = "\n".join(lines)
        shown = json.dumps(lines) if IN_FULL else hashlib.sha256(value.encode()).hexdigest()[:16]
        with OUT.open("a", encoding="utf-8") as out:
            out.write(f"tests\t{item.path.stem}::{item.name}\t{shown}\n")
