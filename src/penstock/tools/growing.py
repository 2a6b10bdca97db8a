"""The arguments of a call while they are written, for a `prepare` function that reads them as they arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any


class Growing(ABC):
    """The arguments of a call, while the model writes them: `async for path, piece in arguments`.

    A `prepare` function takes it instead of the arguments. For a string, `piece` is the new text at `path`; for any
    other value it is the value, once it is complete (see `ArgumentDelta`). The loop ends with the arguments. If the
    call is discarded before, it raises `asyncio.CancelledError`. A slow function gets longer pieces.
    """

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[tuple[tuple[str | int, ...], Any]]: ...

    @abstractmethod
    def on_discard(self, cleanup: Callable[[], object]) -> None:
        """Call this if the call is discarded, or `prepare` fails: to remove what must not be left behind.

        Also if `prepare` has returned, until the tool starts, which then owns what it returned. The last one is called
        first. Each is a plain function, and should be quick.
        """
