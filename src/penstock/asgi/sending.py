"""Sends the messages of a response, where possible without the task of the response.

In general the task that answers a request has to await `send`: a server, or an app around this one, may look at the
current task there, set timeouts, or wait. Waking that task costs more than everything else that is done for a small
piece. The `send` of the servers below only writes to the socket, or waits until the client has read enough. So it can
be started wherever a piece arrives: mostly it ends at once, and otherwise a task does the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

from penstock.asgi.request import Message, Send

DIRECT_SERVERS = ("uvicorn.protocols.http.",)
"""Where the classes are whose `send` does not depend on the task that calls it."""

Sending = Coroutine[Any, None, None]


class Sender:
    """Sends the messages of a response, and remembers its status; `body` sends all but its head."""

    def __init__(self, send: Send) -> None:
        self.status = 0
        self.is_direct = type(getattr(send, "__self__", None)).__module__.startswith(DIRECT_SERVERS)
        self.body = send

    @property
    def has_begun(self) -> bool:
        """Whether the head of the response was sent."""
        return bool(self.status)

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        return self.body(message)

    def begin(self, message: Message) -> Awaitable[None] | None:
        """Send a message without a task, if the sender `is_direct`; returns an awaitable for the rest, if any."""
        sending: Sending = self.body(message)  # type: ignore[assignment]  # `send` of these servers is a coroutine function
        try:
            awaited = sending.send(None)
        except StopIteration:
            return None
        return _Begun(sending, awaited)

    def abort(self) -> None:
        """Close the connection without waiting until the client reads, if the sender `is_direct`."""
        if self.is_direct:
            self.body.__self__.transport.abort()  # type: ignore[attr-defined]  # these servers have a transport


class _Begun:
    """The rest of a suspended coroutine that was started without a task."""

    def __init__(self, coroutine: Sending, awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited  # what the coroutine waits for: the task that awaits this has to get it

    def __await__(self) -> Generator[Any, Any, None]:
        coroutine, awaited = self._coroutine, self._awaited
        try:
            while True:
                try:
                    yield awaited
                except BaseException as error:  # noqa: BLE001  # also a cancellation is for the coroutine
                    awaited = coroutine.throw(error)
                else:
                    awaited = coroutine.send(None)
        except StopIteration:
            return
