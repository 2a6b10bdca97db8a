"""The execution of one tool call, the table of a step's executions, and the results of calls that did not end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from penstock.events import CallKind, Text
from penstock.jsontext.values import canonical_json, deep_copy
from penstock.messages import ToolResult
from penstock.results import Outcome, error_outcome
from penstock.run.events import ApprovalRequest, CallReviewed, RequestKind, ToolEnd, ToolEnding, ToolReturned
from penstock.run.input_checks import changed_note, hook_note
from penstock.sentences import (
    AWAITS_APPROVAL,
    NO_RESULT_YET,
    NOT_RUN_YET,
    UNCONFIRMED_YET,
    UNREAD_REST,
    UNREVISED_YET,
    awaits_call,
    cancelled,
    left_elsewhere,
    no_result_within,
    not_approved,
    not_run,
    still_running,
    unconfirmed,
    unrevised,
)
from penstock.tools.policy import ToolPolicy

State = Literal[
    "held", "checking", "preparing", "approval", "ready", "starting", "deferred", "running", "returned", "revising",
    "finished",
]  # fmt: skip

PrepareState = Literal["none", "waiting", "running", "done", "failed", "used"]
"""Whether what prepares a call waits for its turn, runs, or has ended; its tool has `used` it when it has started."""

STATES: tuple[State, ...] = get_args(State)


class ToolTime(Struct, frozen=True):
    """When the function of a tool began, in seconds since 1970, and how many seconds it ran. The driver measures it."""

    started: float
    seconds: float


class Execution(Struct):
    """A tool call until it has a result. `key` identifies it in the run; a call that runs again has another.

    While it is `checking`, hooks and a predicate decide about it (`review`); while it is `starting`, its start has been
    emitted, but not yet read: it has not begun. It has `returned` if its end is not emitted yet, because it or a call
    before it is not confirmed. While it is `revising`, hooks may change its result. While it is `preparing`, a person
    is not asked about it yet: `preview` is for them.

    `fingerprint` is equal for calls with the same name and arguments, and empty if the call cannot run.
    `needs_approval` is None until it is known. `note` stands before the result if the arguments were changed; `fault`
    is that of a damaged call that runs with repaired arguments. `is_in_text`: the model wrote the call into its text.
    `expires` is how many seconds a call that waits may wait. `kind` and `safety_checks` are those of the call.
    It `has_waited` for a person, or for its result from elsewhere; it `has_expired` if it waited or ran for too long.
    `time` is when its function ran; None if that is not known. `shown` are the arguments for the person who is asked.
    Its result `is_withheld` if a hook failed that should have passed it on.
    """

    key: str
    block: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    fingerprint: str = ""
    state: State = "held"
    is_confirmed: bool = False
    needs_approval: bool | None = None
    note: str = ""
    fault: str = ""
    is_in_text: bool = False
    result: ToolResult | None = None
    ending: ToolEnding = "done"
    data: Any = None  # for the program; not stored
    expires: float | None = None
    question: dict[str, Any] | None = None  # the question of the running tool; not stored
    kind: CallKind = "function"
    safety_checks: tuple[dict[str, Any], ...] = ()
    has_waited: bool = False
    has_expired: bool = False
    origin: str = "native"
    review: CallReviewed | None = None
    prepare: PrepareState = "none"  # not stored, and made again
    preview: str = ""
    problem: Outcome | None = None  # why it could not be prepared
    time: ToolTime | None = None
    shown: dict[str, Any] | None = None
    is_withheld: bool = False

    @property
    def has_failed_hook(self) -> bool:
        """Whether it ended because a hook failed, and not because of its tool."""
        return self.is_withheld or (self.review is not None and self.review.verdict == "failed")

    @property
    def request_kind(self) -> RequestKind:
        """The kind of request of a waiting call."""
        if self.question is not None:
            return "input"
        return "deferred" if self.state == "deferred" else "approval"

    @property
    def can_expire(self) -> bool:
        """Whether its decision or result has a deadline."""
        return self.expires is not None and self.state in ("approval", "deferred")

    @property
    def request(self) -> ApprovalRequest:
        """The event of a waiting call."""
        shown = self.arguments if self.shown is None or self.request_kind != "approval" else self.shown
        content = shown if self.question is None else self.question
        expires = self.expires if self.can_expire else None
        checks = self.safety_checks if self.request_kind == "approval" else ()
        note = self.approval_note if self.request_kind == "approval" else ""
        preview = self.preview if self.request_kind == "approval" else ""
        sources = self.review.sources if self.review and self.request_kind == "approval" else {}
        call = self.call_id, self.name, deep_copy(content), self.request_kind
        return ApprovalRequest(*call, expires, checks, note, preview, sources)

    @property
    def has_prepared(self) -> bool:
        """Whether what prepares it has begun, and its tool has not used it."""
        return self.prepare in ("running", "done", "failed")

    @property
    def approval_note(self) -> str:
        """What a person should know about the call: why a hook asks, and what a hook or a repair changed."""
        return " ".join(filter(None, [self.review.why if self.review else "", self.note]))

    @property
    def end(self) -> ToolEnd:
        """The event for its end."""
        assert self.result is not None
        return ToolEnd(self.key, self.result, self.ending, self.data, *self._times, self.is_withheld)

    @property
    def returned_event(self) -> ToolReturned:
        """The event for the result that hooks are about to see."""
        assert self.result is not None
        return ToolReturned(self.key, self.result, self.data, *self._times)

    @property
    def _times(self) -> tuple[float | None, float | None]:
        return (None, None) if self.time is None else (self.time.started, self.time.seconds)

    @property
    def failure(self) -> str:
        """How an unsuccessful call ended, as the end of a sentence."""
        match self.ending:
            case "declined":
                return "was not approved in time" if self.has_expired else "was declined"
            case "cancelled":
                return "was interrupted, so it may have had an effect"
            case "skipped" | "discarded":
                return "was not run"
            case "failed" if not self.fingerprint:
                return "was not a valid call"
            case _:
                return "timed out, so it may have had an effect" if self.has_expired else "failed"

    def finish(self, outcome: Outcome, ending: ToolEnding | None) -> None:
        """Set the result; the ending follows from the outcome unless it is given."""
        self.data = outcome.data
        self.ending = ending or ("failed" if outcome.is_error else "done")
        note = (Text(0, f"{self.note}\n"),) if self.note else ()
        self.result = ToolResult(self.call_id, self.name, (*note, *outcome.content), outcome.is_error, outcome.state)

    def take_review(self, review: CallReviewed) -> None:
        """Hooks have decided about the call, and may have changed its arguments."""
        self.review = review
        if review.arguments is not None:
            self.arguments = deep_copy(review.arguments)
            self.note = hook_note(self.arguments)

    def keep(self, outcome: Outcome, time: ToolTime | None, *, is_final: bool) -> None:
        self.finish(outcome, None) if is_final else self.returned(outcome)  # which hooks see first
        self.time = time

    def returned(self, outcome: Outcome) -> None:
        """The tool returned this, which hooks may change."""
        self.data = outcome.data
        self.result = ToolResult(self.call_id, self.name, outcome.content, outcome.is_error, outcome.state)

    def approve(self, arguments: dict[str, Any] | None) -> None:
        """A person approved the call, and may have changed its arguments."""
        known = [canonical_json(each) for each in (self.arguments, self.shown) if each is not None]
        if arguments is not None and canonical_json(arguments) not in known:
            self.arguments = deep_copy(arguments)
            self.note = changed_note(self.arguments)
            self.preview = ""
        self.needs_approval, self.shown = False, None

    def identify(self, call_id: str) -> None:
        """The call is confirmed, with this id."""
        self.is_confirmed, self.call_id = True, call_id
        if self.result is not None:
            self.result = replace(self.result, call_id=call_id)


class ExecutionTable:
    """The executions of one step, at most one per block; iterates in the order of the calls.

    Executions are added, removed and change their state here and nowhere else, so the indexes always agree.
    """

    def __init__(self) -> None:
        self._by_block: dict[int, Execution] = {}
        self._by_key: dict[str, Execution] = {}
        self._waiting: dict[str, Execution] = {}  # executions by call id
        self._counts: dict[State, int] = dict.fromkeys(STATES, 0)
        self._repeats: dict[str, int] = {}
        self.ended: list[Execution] = []  # executions whose ends the order has not seen yet

    def __iter__(self) -> Iterator[Execution]:
        return iter([self._by_block[block] for block in sorted(self._by_block)])

    def __len__(self) -> int:
        return len(self._by_block)

    def __contains__(self, block: int) -> bool:
        return block in self._by_block

    @property
    def is_finished(self) -> bool:
        return self._counts["finished"] == len(self._by_block)

    @property
    def waiting(self) -> Mapping[str, Execution]:
        """The calls waiting for a decision, a result from elsewhere or an answer, by call id."""
        return self._waiting

    @property
    def repeats(self) -> Mapping[str, int]:
        """How many calls have each fingerprint."""
        return self._repeats

    def at(self, block: int) -> Execution | None:
        """The execution of a block."""
        return self._by_block.get(block)

    def find(self, key: str) -> Execution | None:
        """The execution of this key."""
        return self._by_key.get(key)

    def running(self, key: str) -> Execution | None:
        """The execution of this key, if it is running."""
        execution = self.find(key)
        return execution if execution is not None and execution.state == "running" else None

    def count(self, *states: State) -> int:
        """How many executions are in one of these states."""
        return sum(map(self._counts.__getitem__, states))

    def add(self, execution: Execution) -> None:
        self._by_block[execution.block] = self._by_key[execution.key] = execution
        self._counts[execution.state] += 1
        if execution.fingerprint:
            self._repeats[execution.fingerprint] = self._repeats.get(execution.fingerprint, 0) + 1
        self._index(execution)

    def remove(self, execution: Execution) -> None:
        self._unindex(execution)
        del self._by_block[execution.block], self._by_key[execution.key]
        self._counts[execution.state] -= 1
        if execution.fingerprint:
            self._repeats[execution.fingerprint] -= 1

    def set_state(self, execution: Execution, state: State) -> None:
        if self._waiting:
            self._unindex(execution)
        counts = self._counts
        counts[execution.state] -= 1
        counts[state] += 1
        execution.state, execution.question = state, None
        self._index(execution)

    def ask(self, execution: Execution, question: dict[str, Any] | None) -> None:
        """The tool of a running execution asks this; None if the question was answered or withdrawn."""
        self._unindex(execution)
        execution.question = question
        self._index(execution)

    def open_question(self, key: str, question: dict[str, Any]) -> ApprovalRequest | None:
        """The request for a question of this running execution; None if it does not run, or asks another one."""
        execution = self.running(key)
        if execution is None or execution.question is not None:
            return None
        self.ask(execution, question)
        return execution.request

    def close_question(self, key: str) -> None:
        """The question of this execution is not to be answered any more."""
        execution = self.running(key)
        if execution is not None and execution.question is not None:
            self.ask(execution, None)

    def finish(self, execution: Execution, outcome: Outcome, ending: ToolEnding | None = None) -> ToolEnd:
        """End an execution with this outcome; returns the event for it."""
        execution.finish(outcome, ending)
        return self.end(execution)

    def end(self, execution: Execution) -> ToolEnd:
        """Emit the end of an execution that has a result."""
        self.set_state(execution, "finished")
        self.ended.append(execution)
        return execution.end

    def _index(self, execution: Execution) -> None:
        if execution.state in ("approval", "deferred") or execution.question is not None:
            self._waiting[execution.call_id] = execution

    def _unindex(self, execution: Execution) -> None:
        if self._waiting.get(execution.call_id) is execution:
            del self._waiting[execution.call_id]


def fingerprint_of(name: str, arguments: dict[str, Any]) -> str:
    """Text that is equal for calls with the same name and arguments."""
    return f"{name} {canonical_json(arguments)}"


APPROVED = Outcome((Text(0, "true"),))
"""The outcome of a call that the provider runs, after a person has approved it."""


def may_have_effect(policy: ToolPolicy | None) -> bool:
    """Whether a started tool may have had a side effect; an unknown tool may."""
    return policy is None or policy.may_have_effect


def expired_outcome(execution: Execution) -> tuple[Outcome, ToolEnding]:
    """The outcome of an expired call."""
    seconds = execution.expires or 0
    if execution.state == "approval":
        return error_outcome(not_approved(seconds)), "declined"
    return error_outcome(no_result_within(seconds)), "failed"


def abandoned_outcome(
    execution: Execution, state: State, policy: ToolPolicy | None, why: str
) -> tuple[Outcome, ToolEnding]:
    """The outcome of an open call in this state when its run ends."""
    match state:
        case "returned" | "finished":
            return error_outcome(unconfirmed(why)), "discarded"
        case "running":
            text = cancelled(why, may_have_effect=may_have_effect(policy))
            return error_outcome(text), "cancelled" if execution.is_confirmed else "discarded"
        case "deferred":
            return error_outcome(left_elsewhere(why)), "cancelled"
        case "revising":
            return error_outcome(unrevised(why)), "cancelled"
        case "held" | "checking" | "preparing" | "approval" | "ready" | "starting":
            return error_outcome(not_run(why)), "cancelled"


def discarded_result(known: ToolResult) -> ToolResult:
    """The result of a call that the reader read only in part."""
    return ToolResult(known.call_id, known.name, (Text(0, UNREAD_REST),), is_error=True)


def result_so_far(
    execution: Execution, state: State, policy: ToolPolicy | None, holder: Execution | None = None
) -> ToolResult:
    """The result of a call in this state; for an open call, a result with the reason: perhaps another call holds it."""
    match state:
        case "returned" | "finished" if execution.is_confirmed and execution.result is not None:
            return execution.result
        case "returned" | "finished":
            text = UNCONFIRMED_YET
        case "running":
            text = still_running(may_have_effect=may_have_effect(policy))
        case "deferred":
            text = NO_RESULT_YET
        case "revising":
            text = UNREVISED_YET
        case "approval":
            text = AWAITS_APPROVAL
        case _ if holder is not None:
            text = awaits_call(holder.name, holder.call_id)
        case _:
            text = NOT_RUN_YET
    return ToolResult(execution.call_id, execution.name, (Text(0, text),), is_error=True)
