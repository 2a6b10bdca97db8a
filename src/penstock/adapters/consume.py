"""Reads a stream of events with callbacks: the response of a model, or an agent's run."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeGuard, TypeVar, get_args

from penstock.calls.partial_calls import PartialCalls, PartialToolCall
from penstock.errors import UsageError
from penstock.events import Error, Event
from penstock.run.events import Done, EndReason, RunEvent, StepStart
from penstock.tools.signature import count_required
from penstock.turn import Turn, TurnBuilder, check_iterable

E = TypeVar("E", bound=Event)
OnMessage = Callable[[E], Any] | Callable[[E, PartialToolCall | None], Any]
OnComplete = Callable[[Turn], Any]
OnError = Callable[[Error | Exception], Any]

FAILURES: tuple[EndReason, ...] = ("error", "cut", "limit", "cancelled")
"""The reasons with which a run ends without an answer, except `paused`."""

_RUN_EVENTS = frozenset(get_args(RunEvent))


def consume(
    stream: Iterable[E],
    on_message: OnMessage[E] | None = None,
    on_complete: OnComplete | None = None,
    on_error: OnError | None = None,
) -> Turn:
    """Reads the stream: calls `on_message` for each event, then `on_complete` with the Turn, or `on_error`.

    An `on_message` with two parameters also gets the call so far, if the event belongs to one (`PartialToolCall`).
    Exactly one of the last two is called. `on_error` gets an error that the provider reported, that the stream raised,
    or that says that the response was cut; without `on_error`, an exception is raised. Of an agent's run, the Turn is
    the last response, and `on_error` is also called if a limit or `cancel` ended it. The Turn so far is returned in
    both cases.
    """
    check_iterable(stream, "stream")
    check_callbacks(on_message=on_message, on_complete=on_complete, on_error=on_error)
    reader = _Reader(on_message)
    events = iter(stream)
    try:
        while True:
            try:
                event = next(events)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001  # the caller's stream may raise anything; `on_error` gets it
                reader.failure = error
                break
            reader.add(event)
    finally:
        if close := getattr(events, "close", None):
            close()  # a callback may have raised
    reader.end(on_complete, on_error)
    return reader.turn


async def aconsume(
    stream: AsyncIterable[E],
    on_message: OnMessage[E] | None = None,
    on_complete: OnComplete | None = None,
    on_error: OnError | None = None,
) -> Turn:
    """`consume` for an async stream; the callbacks may be async too."""
    if not hasattr(stream, "__aiter__"):
        raise UsageError(f"{type(stream).__name__} is not an async iterable: use `consume(stream)`")
    check_callbacks(on_message=on_message, on_complete=on_complete, on_error=on_error)
    reader = _Reader(on_message)
    events = aiter(stream)
    try:
        while True:
            try:
                event = await anext(events)
            except StopAsyncIteration:
                break
            except Exception as error:  # noqa: BLE001  # as in `consume`
                reader.failure = error
                break
            if is_awaitable(waiting := reader.add(event)):
                await waiting
    finally:
        if close := getattr(events, "aclose", None):
            await close()
    if is_awaitable(waiting := reader.end(on_complete, on_error)):
        await waiting
    return reader.turn


def check_callbacks(**callbacks: object) -> None:
    """Raises a `UsageError` for a callback that is not a function."""
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise UsageError(f"{name} must be a function, not {callback!r}")


class _Reader:
    """Folds the events, and calls back. What a callback returns may have to be awaited."""

    def __init__(self, on_message: Callable[..., Any] | None) -> None:
        self._on_message = on_message
        self._calls = PartialCalls() if on_message is not None and count_required(on_message) == 2 else None
        self._builder = TurnBuilder()
        self._done: Done | None = None
        self.failure: Exception | None = None

    def add(self, event: Any) -> Any:
        if type(event) not in _RUN_EVENTS:
            self._builder.add(event)
        elif isinstance(event, StepStart):
            self._builder = TurnBuilder()
        elif isinstance(event, Done):
            self._done = event
        if self._on_message is None:
            return None
        return self._on_message(event) if self._calls is None else self._on_message(event, self._calls.add(event))

    @property
    def turn(self) -> Turn:
        return self._builder.build()

    def end(self, on_complete: OnComplete | None, on_error: OnError | None) -> Any:
        """Calls `on_complete` or `on_error`."""
        if self.failure is not None and on_error is None:
            raise self.failure
        turn = self.turn
        problem = self.failure or turn.error or self._ending(turn)
        if problem is not None:
            return on_error(problem) if on_error else None
        return on_complete(turn) if on_complete else None

    def _ending(self, turn: Turn) -> Error | None:
        """The error of a stream that ended before its time, without one of its own."""
        if self._done is not None:
            reason, why = self._done.reason, self._done.why
            return Error(why, reason) if reason in FAILURES else None
        return Error("the response was cut off before its end", "cut") if turn.finish_reason == "cut" else None


def is_awaitable(value: Any) -> TypeGuard[Awaitable[Any]]:
    """Whether the value can be awaited; `inspect.isawaitable` would cost an import."""
    return isinstance(value, Awaitable)
