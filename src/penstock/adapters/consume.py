"""Reads a stream of events with callbacks."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeGuard

from penstock.events import Error, StreamChunk
from penstock.turn import Turn, TurnBuilder

OnMessage = Callable[[StreamChunk], Any]
OnComplete = Callable[[Turn], Any]
OnError = Callable[[Error | Exception], Any]


def consume(
    stream: Iterable[StreamChunk],
    on_message: OnMessage | None = None,
    on_complete: OnComplete | None = None,
    on_error: OnError | None = None,
) -> Turn:
    """Reads the stream: calls `on_message` for each event, then `on_complete` with the Turn, or `on_error`.

    Exactly one of the last two is called. A stream that was cut without an error counts as complete; its Turn has the
    finish reason "cut". `on_error` gets an error that the provider reported or that the stream raised; without
    `on_error`, an exception is raised. The Turn so far is returned in both cases.
    """
    builder, failure = TurnBuilder(), None
    events = iter(stream)
    while True:
        try:
            event = next(events)
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001  # the caller's stream may raise anything; `on_error` gets it
            failure = error
            break
        builder.add(event)
        if on_message:
            on_message(event)
    turn = builder.build()
    call_end_callback(turn, failure, on_complete, on_error)
    return turn


async def aconsume(
    stream: AsyncIterable[StreamChunk],
    on_message: OnMessage | None = None,
    on_complete: OnComplete | None = None,
    on_error: OnError | None = None,
) -> Turn:
    """`consume` for an async stream; the callbacks may be async too."""
    builder, failure = TurnBuilder(), None
    events = aiter(stream)
    while True:
        try:
            event = await anext(events)
        except StopAsyncIteration:
            break
        except Exception as error:  # noqa: BLE001  # as in `consume`
            failure = error
            break
        builder.add(event)
        if on_message and is_awaitable(waiting := on_message(event)):
            await waiting
    turn = builder.build()
    if is_awaitable(waiting := call_end_callback(turn, failure, on_complete, on_error)):
        await waiting
    return turn


def call_end_callback(
    turn: Turn, failure: Exception | None, on_complete: OnComplete | None, on_error: OnError | None
) -> Any:
    """Calls `on_complete` or `on_error`, and returns its result."""
    if failure is not None and on_error is None:
        raise failure
    problem = failure or turn.error
    if problem is not None:
        return on_error(problem) if on_error else None
    return on_complete(turn) if on_complete else None


def is_awaitable(value: Any) -> TypeGuard[Awaitable[Any]]:
    """Whether the value can be awaited; `inspect.isawaitable` would cost an import."""
    return isinstance(value, Awaitable)
