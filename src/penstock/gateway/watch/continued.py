"""One response to a client, made of several of an upstream: after the end of one, the upstream is asked again.

A `Follower` reads the events before the client. It passes on what the client may see at once, and holds back the rest.
At the end of each response it may return another request: the response to it continues the one to the client, with
blocks and call ids that are unique in it, and the sum of all token counts. If the upstream does not answer that
request, the follower decides how the response ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.errors import ProviderError, UsageError
from penstock.events import StreamChunk, Usage
from penstock.gateway.answer import Answer
from penstock.history.client_request import ClientRequest
from penstock.run.limits import add_usage
from penstock.run.numbering import RunNumbering
from penstock.transport.commands import Take

AskAgain = Callable[[Answer, ClientRequest], Awaitable[Answer]]
"""Sends another request to the upstream of an answer."""


class Follower(Protocol):
    """Reads the events of a response before the client does."""

    @property
    def is_done(self) -> bool:
        """Whether the rest of the response passes unread, and nothing is asked after it."""
        ...

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events that the client gets now."""
        ...

    async def follow_up(self) -> ClientRequest | None:
        """The request that continues the response, at its end; None if this was the end."""
        ...

    def fail(self, error: ProviderError | UsageError) -> None:
        """The upstream did not answer the request that continues the response."""
        ...

    def close(self) -> list[StreamChunk]:
        """The events that were held back: the end of the response."""
        ...


class ContinuedAnswer:
    """The events of an answer, and of those that continue it."""

    def __init__(self, answer: Answer, follower: Follower, ask_again: AskAgain) -> None:
        self._answer = answer
        self._follower = follower
        self._ask_again = ask_again
        self._numbering = RunNumbering(())
        self._is_first = True
        self._is_over = False
        self._earlier = Usage()  # the tokens of the responses before this one
        self._usage = Usage()  # of this one
        self.first = self._feed(answer.first)  # the first events for the client

    async def next_batch(self, take: Take | None = None) -> list[StreamChunk] | None:
        """The next events for the client, perhaps none; None at the end.

        `take` gets bytes of the first response that pass unread.
        """
        if self._is_over:
            return None
        is_done = self._follower.is_done
        take = take if is_done and self._is_first else None
        chunks = await self._answer.upstream_request.stream.next_batch(take)
        if chunks is None:
            return await self._end()
        if is_done:
            return chunks if self._is_first else self._joined(chunks)
        return self._feed(chunks)

    async def rest(self) -> list[StreamChunk]:
        """All events for the client, if those of the first response have been read."""
        events = [*self.first, *await self._end()]
        while (following := await self.next_batch()) is not None:
            events += following
        return events

    async def close(self) -> None:
        """Close the connection to the upstream."""
        await self._answer.close()

    async def _end(self) -> list[StreamChunk]:
        """The events after the end of a response: the first of the next one, or those that were held back."""
        request = None if self._follower.is_done else await self._follower.follow_up()
        if request is not None:
            await self._answer.close()
            try:
                self._answer = await self._ask_again(self._answer, request)
            except (ProviderError, UsageError) as error:
                self._follower.fail(error)
            else:
                self._is_first = False
                self._earlier, self._usage = add_usage(self._earlier, self._usage), Usage()
                self._numbering.next_response()
                return self._feed(self._answer.first)
        self._is_over = True
        return self._follower.close()

    def _feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        return self._follower.feed(self._joined(chunks))

    def _joined(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events with blocks, ids and token counts of the whole response."""
        return [self._counted(chunk) if isinstance(chunk, Usage) else chunk for chunk in self._numbering.feed(chunks)]

    def _counted(self, usage: Usage) -> Usage:
        self._usage = usage
        return usage if self._is_first else add_usage(self._earlier, usage)
