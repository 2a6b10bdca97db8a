"""Waiting runs: their calls, and the commands that answer them."""

from __future__ import annotations

import json
import shlex
import time
from typing import Any, Literal, get_args

import msgspec

from penstock.cli.human_time import ago
from penstock.cli.model_options import CommandError, FailureError
from penstock.cli.questions import call_text
from penstock.cli.runs.log_options import log_arguments
from penstock.cli.runs.logged_events import past_events, waiting_calls
from penstock.cli.runs.owners import parse_owner
from penstock.cli.runs.run_table import as_json
from penstock.log.follower import parked_reason
from penstock.log.store import Input, RunRow, Store
from penstock.run.events import ApprovalRequest, Done, RequestKind

Answer = Literal["decide", "provide"]
ANSWERS: dict[RequestKind, Answer] = {"approval": "decide", "deferred": "provide", "input": "provide"}
"""The command that answers a call, by what it waits for."""
NEEDS: dict[RequestKind, str] = {"approval": "approval", "deferred": "the result", "input": "an answer to the question"}


def check_open(row: RunRow) -> None:
    """Refuses a finished run."""
    if row.state == "over":
        raise CommandError(f"the run {row.id} is over: it ended {ago(row.updated, time.time())}")


def put_answer(store: Store, answer: Input) -> None:
    """Stores the answer to a call, if there is none."""
    if not store.put(answer):
        raise FailureError("the call was answered already, and only the first answer counts")


def find_call(store: Store, row: RunRow, call: str | None, answer: Answer) -> ApprovalRequest:
    """The waiting call with this id; without an id, the only waiting call."""
    check_open(row)
    waiting = waiting_calls(store, row)
    fitting = [request for request in waiting if ANSWERS[request.kind] == answer]
    chosen = [request for request in fitting if call is None or request.call_id.startswith(call)]
    match chosen:
        case [request]:
            return request
        case []:
            if not waiting and is_answered(store, row):
                raise CommandError(
                    f"the call of {row.id} was answered already: the next worker that takes the run continues with it"
                )
            other = "provide" if answer == "decide" else "decide"
            hint = f"; `penstock runs {other}` answers the one that waits" if waiting and not fitting else ""
            named, need = f" {call!r}" if call else "", "a decision" if answer == "decide" else "a result"
            raise CommandError(f"no call{named} of {row.id} waits for {need}{hint}")
        case _:
            calls = ", ".join(
                f"--call {candidate.call_id} ({call_text(candidate.name, candidate.shown)})" for candidate in chosen
            )
            raise CommandError(f"several calls of {row.id} wait: choose one with {calls}")


def is_answered(store: Store, row: RunRow) -> bool:
    """Whether a run has answers that no owner has taken yet."""
    return any(input.kind in get_args(Answer) for input in store.inputs([row.id]))


def answered_text(row: RunRow, what: str) -> str:
    """What happens with a stored answer, as a sentence."""
    if row.state == "running":
        return f"{what}; {parse_owner(row.owner).text} takes it"
    return f"{what}; the next worker, or `penstock run … --resume {row.id}`, continues the run with it"


def read_arguments(text: str | None) -> dict[str, Any] | None:
    """The replacement arguments for a call, from JSON."""
    try:
        value = None if text is None else json.loads(text)
    except ValueError as error:
        raise CommandError(f"--arguments is not JSON: {error}") from None
    if value is not None and not isinstance(value, dict):
        raise CommandError("--arguments must be a JSON object, as in '{\"amount\": 5}'")
    return value


def waiting_text(waiting: list[ApprovalRequest]) -> str:
    """The needs of the waiting calls, as text."""
    return ", ".join(f"{NEEDS[request.kind]} of {call_text(request.name, request.shown)}" for request in waiting)


def answer_commands(run_id: str, log: str, waiting: list[ApprovalRequest]) -> str:
    """The commands that answer the waiting calls."""
    head = shlex.join(["penstock", "runs", *log_arguments(log)])
    call = "" if len(waiting) == 1 else " --call ID"
    endings: dict[Answer, str] = {"decide": "--yes", "provide": "RESULT"}
    answers = {ANSWERS[request.kind] for request in waiting}
    return " or ".join(f"{head} {answer} {run_id}{call} {end}" for answer, end in endings.items() if answer in answers)


def run_json(store: Store, row: RunRow, waiting: list[ApprovalRequest], damage: str) -> dict[str, Any]:
    """A run with its waiting calls, its end, its damage, and why it is parked, as JSON."""
    done = next((event for _, _, event in past_events(store, row.id, row.seq - 1) if isinstance(event, Done)), None)
    calls = [
        {
            "call_id": request.call_id, "name": request.name, "arguments": request.shown, "kind": request.kind,
            "sources": msgspec.to_builtins(request.sources),
        }
        for request in waiting
    ]  # fmt: skip
    end = {"reason": done.reason, "why": done.why, "output": done.output} if done else None
    parked = parked_reason(store, row) or None
    return {**as_json(row), "waiting": calls, "end": end, "damage": damage or None, "parked": parked}
