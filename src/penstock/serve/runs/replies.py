"""The JSON replies of our own protocol."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.log.store import RunPhase, RunRow


class StartedRun(Struct, frozen=True):
    """A run was started: its id, and the path of its events."""

    id: str
    thread: str
    events: str


class RunSummary(Struct, frozen=True, kw_only=True):
    """The summary of a run; `seq` is the number of its last event, times are seconds since 1970."""

    id: str
    agent: str
    thread: str
    state: RunPhase
    seq: int
    created: float
    updated: float


class RunState(RunSummary, frozen=True, kw_only=True):
    """A run: the text of its last response, its usage, its waiting calls, and its end if it has finished."""

    output: str
    usage: dict[str, Any]
    waiting: list[dict[str, Any]]
    done: dict[str, Any] | None


class RunMessages(Struct, frozen=True):
    """The messages of a run, with those before it in its conversation, and without instructions."""

    id: str
    messages: list[dict[str, Any]]


class RunList(Struct, frozen=True):
    """Runs, the newest first."""

    runs: list[RunSummary]


class ThreadState(Struct, frozen=True):
    """A conversation: its messages, its runs with the newest first, and the id of the current run."""

    id: str
    messages: list[dict[str, Any]]
    runs: list[RunSummary]
    active: str | None


class Accepted(Struct, frozen=True):
    """An accepted input; not `is_new` if the run had an earlier one, which counts."""

    id: str
    is_new: bool


class ModelEntry(Struct, frozen=True):
    """An agent as an entry of a list of models."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "penstock"


class ModelList(Struct, frozen=True):
    """The agents that are served."""

    data: list[ModelEntry]
    object: str = "list"


class ErrorFields(Struct, frozen=True):
    """An error: a code for programs, a message for people, and the request id in the server's log."""

    code: str
    message: str
    request_id: str = ""


class ErrorReply(Struct, frozen=True):
    """The body of every error."""

    error: ErrorFields


def summary_of(row: RunRow) -> RunSummary:
    """The summary of a row of the log."""
    return RunSummary(**_fields(row))


def state_of(row: RunRow, **fields: Any) -> RunState:
    """The state of a run, rebuilt from its log."""
    return RunState(**_fields(row), **fields)


def _fields(row: RunRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in RunSummary.__struct_fields__}
