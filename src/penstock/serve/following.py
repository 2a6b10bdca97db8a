"""A run as a stream of a front end's protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Protocol

from penstock.asgi.response import Headers
from penstock.asgi.stream import SSE_HEADERS, ResponseStream
from penstock.log.store_retries import awith_retries
from penstock.run.events import LogEvent, Reset, Waiting
from penstock.serve.context import Call, ServeContext
from penstock.serve.feeds.feed import Item


class RunEncoder(Protocol):
    """Writes the events of a run in a protocol. Its output depends only on the events fed so far.

    If it `can_reset`, it withdraws everything after a `Reset`; else that is an error for its client.
    """

    @property
    def can_reset(self) -> bool: ...

    def open(self) -> list[bytes]: ...

    def feed(self, events: Iterable[LogEvent]) -> list[bytes]: ...

    def close(self) -> list[bytes]: ...


async def stream_run(
    context: ServeContext,
    call: Call,
    run_id: str,
    encoder: RunEncoder,
    *,
    after: int = 0,
    headers: Headers | None = None,
) -> None:
    """Stream a run after an event number, until it finishes or waits for a client.

    A disconnected client does not end the run, and may reconnect.
    """
    every = {**SSE_HEADERS, **(headers or {}), "x-run-id": run_id}
    stream = ResponseStream(call.request, call.send, context.limits, every)
    await stream.send_all(_pieces(context, run_id, encoder, after))


async def _pieces(context: ServeContext, run_id: str, encoder: RunEncoder, after: int) -> AsyncIterator[bytes]:
    yield b"".join(encoder.open())  # also if this is nothing, so that the response begins at once
    while True:
        async with context.feeds.reading(run_id) as reader:
            async for page in reader:
                encoder.feed(item.event for item in page.items if item.seq <= after)
                yield b"".join(encoder.feed(item.event for item in page.items if item.seq > after))
                if await _is_waiting(context, run_id, page.items[-1]):
                    break
        if not reader.has_other_past:
            yield b"".join(encoder.close())
            return
        yield b"".join(encoder.feed([Reset()]))
        if not encoder.can_reset:
            return
        after = 0


async def _is_waiting(context: ServeContext, run_id: str, last: Item) -> bool:
    """Whether the run waits since this event, without an answer."""
    if not isinstance(last.event, Waiting):
        return False
    row = await awith_retries(partial(context.host.store.find, run_id))
    return row is not None and row.state in ("waiting", "parked") and row.seq == last.seq
