"""The sources of the argument values in a run: an index of its history that grows with it, used from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from penstock.calls.sources import Sources
from penstock.dialects.sources.index import SourceIndex
from penstock.messages import Message

MAX_SHOWN = 64
"""How many values of a call have their sources in its approval request."""


class CallSources:
    """Finds where argument values came from. Nothing is read before somebody asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index = SourceIndex()

    def find(self, messages: Iterable[Message], instructions: str, arguments: Mapping[str, Any]) -> Sources:
        """The sources of the values in the arguments. This takes time for what is new in the messages."""
        with self._lock:
            self._index.add(messages, instructions)
            return self._index.find(arguments)


def shown(sources: Sources) -> Sources:
    """The sources that a person sees beside an approval: those of the first values that have some."""
    return dict(islice(((path, found) for path, found in sources.items() if found), MAX_SHOWN))
