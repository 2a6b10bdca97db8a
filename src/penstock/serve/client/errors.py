"""Errors between a client and a server."""

from __future__ import annotations

from penstock.errors import PenstockError


class ServerError(PenstockError):
    """A request to a served agent failed."""


class RefusedError(ServerError):
    """The server refused the request: `status`, a `code` for programs, and the request id in the server's log.

    `run_id` is the current run of a busy thread.
    """

    def __init__(self, status: int, code: str, message: str, request_id: str = "", run_id: str = "") -> None:
        place = f" (request {request_id})" if request_id else ""
        super().__init__(f"{message}{place}")
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id
        self.run_id = run_id


class UnreachableError(ServerError):
    """The server cannot be reached, or did not answer in time. `was_sent` if it may have got the request."""

    def __init__(self, message: str, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent
