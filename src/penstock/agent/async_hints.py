"""Hints for mistakes in async code: `for` or `with` on what is read with `async for`, and a forgotten `await`.

Python's own errors say what is wrong, but not what to write. Type checkers do not see these methods, and so still
report the mistake.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncOnly:
    """What is read in async code: `for` and `with` raise a `TypeError` that says what to write."""

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise TypeError(f"{_article(self)} is read in async code: use `async for event in …`, not `for`")

        def __enter__(self) -> NoReturn:
            raise TypeError(f"{_article(self)} is read in async code: use `async with …`, not `with`")

        def __exit__(self, *_: object) -> None:
            """`with` looks for it before it calls `__enter__`."""


class AwaitedResult(Coroutine[Any, Any, T]):
    """The coroutine of a `call`; an attribute of its result raises an error that says that it must be awaited."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str) -> None:
        named: Any = coroutine
        named.__qualname__ = call  # for Python's own warning if it is never awaited
        self._coroutine = coroutine
        self._call = call

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def __repr__(self) -> str:
        return repr(self._coroutine)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith(("cr_", "__")):  # what asyncio and debuggers ask of a coroutine
                return getattr(self._coroutine, name)
            raise AttributeError(f"{self._call} must be awaited before its {name!r} is used: `await {self._call}`")


def marked_async(function: F) -> F:
    """The function, which returns a coroutine, as one that tools such as `unittest.mock` take for an async function."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    return function


def _article(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
