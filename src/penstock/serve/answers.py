"""Answers of front ends to a waiting run: approvals, and results of client tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from penstock.asgi.request import RejectedRequest
from penstock.log.store import RunRow
from penstock.run.events import ApprovalRequest, LogEvent, Waiting, innermost
from penstock.serve.hosting import Host
from penstock.serve.public_events import approval_hash


class Approval(Struct, frozen=True):
    """A person's decision on the call of the approval request with this id."""

    id: str
    approved: bool
    reason: str = ""

    @property
    def call_id(self) -> str:
        return self.id.partition(":")[2].rpartition(":")[0]


class ClientResult(Struct, frozen=True):
    """The result of a client tool."""

    call_id: str
    value: Any
    is_error: bool = False


Answer = Approval | ClientResult


def approval_id(run_id: str, request: ApprovalRequest) -> str:
    """The id of an approval request: it names the run, the call, and the hash of what was shown."""
    return f"{run_id}:{request.call_id}:{approval_hash(request)}"


class RunAnswers:
    """The answers of a client to a run with these events.

    The first answer to a call counts: repeated answers, and later ones of other clients, change nothing.
    """

    def __init__(self, host: Host, row: RunRow, events: Sequence[LogEvent], answers: Sequence[Answer]) -> None:
        self._host = host
        self._row = row
        self._events = events
        self._requests = {request.call_id: request for request in host.rebuild(row, events).waiting}
        asked = _asked(events)
        if any(answer.call_id not in asked for answer in answers):
            raise RejectedRequest(409, "not_waiting", "this call has not asked for a decision or a result")
        self._last_asked = max((asked[answer.call_id] for answer in answers), default=0)
        self._open = [answer for answer in answers if _is_open(answer, self._requests)]

    @property
    def has_open(self) -> bool:
        """Whether the run waits for one of the answers."""
        return bool(self._open)

    @property
    def position(self) -> int:
        """The number of the event at which the client stopped reading: the first pause after the request.

        If it stopped at a later one, it gets the ends of other calls of this step a second time.
        """
        waits = (number for number, event in enumerate(self._events, 1) if isinstance(event, Waiting))
        return next((number for number in waits if number > self._last_asked), self._last_asked)

    async def give(self) -> None:
        """Store the answers that the run waits for; a `RejectedRequest` if an answer matches no request."""
        puts = [_input(self._host, self._row, answer, self._requests[answer.call_id]) for answer in self._open]
        await self._host.steer(self._row, *puts)


def _asked(events: Sequence[LogEvent]) -> dict[str, int]:
    """The calls that asked for an answer, with the number of the last request for each."""
    requests = ((number, innermost(event)) for number, event in enumerate(events, 1))
    return {request.call_id: number for number, request in requests if isinstance(request, ApprovalRequest)}


def _is_open(answer: Answer, requests: Mapping[str, ApprovalRequest]) -> bool:
    """Whether the run still waits for the answer. An approved call may then wait for its result."""
    request = requests.get(answer.call_id)
    return request is not None and not (isinstance(answer, Approval) and request.kind != "approval")


def _input(host: Host, row: RunRow, answer: Answer, request: ApprovalRequest) -> Callable[[], bool]:
    match answer:
        case Approval() if answer.id != approval_id(row.id, request):
            raise RejectedRequest(409, "shown_something_else", "the call has changed since it was shown: load it again")
        case Approval():
            return partial(host.runs.decide, row.id, answer.call_id, answer.approved, reason=answer.reason)
        case ClientResult() if request.kind == "approval":
            raise RejectedRequest(409, "not_deferred", "this call waits for a decision, not for its result")
        case ClientResult():
            return partial(host.runs.provide, row.id, answer.call_id, answer.value, answer.is_error)
