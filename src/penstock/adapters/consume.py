"""Callbacks over any stream of events, for those who would rather be called than loop."""

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
    """Run through the stream: `on_message` for each event, then `on_complete` with the Turn, or `on_error`.

    Exactly one of the two ends is called; a stream that was cut without an error is complete as far as it came, and its
    Turn says so. An error that the provider told, or that the stream raised, goes to `on_error`; without one, what the
    stream raised is raised. The Turn as far as it came is returned either way.
    """
    builder, failure = TurnBuilder(), None
    events = iter(stream)
    while True:
        try:
            event = next(events)
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001  # the caller's stream may fail in any way; the callback gets it
            failure = error
            break
        builder.add(event)
        if on_message:
            on_message(event)
    turn = builder.build()
    ending(turn, failure, on_complete, on_error)
    return turn


async def aconsume(
    stream: AsyncIterable[StreamChunk],
    on_message: OnMessage | None = None,
    on_complete: OnComplete | None = None,
    on_error: OnError | None = None,
) -> Turn:
    """`consume` over an async stream; the callbacks may be async too."""
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
    if is_awaitable(waiting := ending(turn, failure, on_complete, on_error)):
        await waiting
    return turn


def ending(turn: Turn, failure: Exception | None, on_complete: OnComplete | None, on_error: OnError | None) -> Any:
    """Call the one callback that fits how the stream ended."""
    if failure is not None and on_error is None:
        raise failure
    problem = failure or turn.error
    if problem is not None:
        return on_error(problem) if on_error else None
    return on_complete(turn) if on_complete else None


def is_awaitable(value: Any) -> TypeGuard[Awaitable[Any]]:
    """Whether the value is to be awaited; `inspect` has the same, at the price of its import."""
    return isinstance(value, Awaitable)
