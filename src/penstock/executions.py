"""The calls of one answer on their way: which wait, which run, which have a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Literal

from msgspec import Struct

from penstock.events import Text, ToolCall, ToolCallClosed, ToolCallInvalid
from penstock.happenings import ApprovalRequest, RequestKind, ToolEnd, ToolEnding, ToolStart
from penstock.messages import File, Image, ToolResult
from penstock.tool_outcome import Outcome as Found
from penstock.tool_outcome import failure

StartPolicy = Literal["closed", "call", "turn"]
State = Literal["held", "approval", "ready", "deferred", "running", "finished"]

SO_FAR: dict[State, str] = {
    "held": "Not run yet.",
    "approval": "Not run yet: it waits for approval.",
    "ready": "Not run yet.",
    "deferred": "It was handed on to run elsewhere, so it may have an effect; its result has not come yet.",
    "running": "It was still running when this was written, so it may have had an effect.",
}
"""What can be said to a model of a call that has no result yet."""


class ToolPolicy(Struct, frozen=True, kw_only=True):
    """What the machine knows of a tool: when it may start, and under what conditions.

    The calls of one that `is_deferred` run elsewhere; `check` raises if their arguments do not fit.
    """

    start: StartPolicy = "turn"
    needs_approval: Callable[[dict[str, Any]], bool] | None = None
    timeout: float | None = None
    retries: int | None = None
    is_parallel: bool = True
    is_deferred: bool = False
    check: Callable[[dict[str, Any]], Any] | None = None

    def starts_at(self, moment: StartPolicy, arguments: dict[str, Any]) -> bool:
        """Whether a call may start at this moment or has been free to before it."""
        order = ("closed", "call", "turn")
        return order.index(self.start) <= order.index(moment) and not self._asks(arguments)

    def _asks(self, arguments: dict[str, Any]) -> bool:
        """Whether a person is to be asked; also if that cannot be told, as the model may have written anything."""
        try:
            return self.needs_approval is not None and bool(self.needs_approval(arguments))
        except Exception:  # noqa: BLE001  # the predicate is a user's code, and the arguments are not checked yet
            return True

    def refusal(self, arguments: dict[str, Any]) -> Outcome | None:
        """What is wrong with the arguments of a call that is to be handed on; None if nothing is."""
        try:
            if self.check is not None:
                self.check(deepcopy(arguments))
        except Exception as error:  # noqa: BLE001  # checking runs a user's validators
            return ended(failure(error))
        return None


class Outcome(Struct, frozen=True):
    """How an execution ended: what the model reads, and what the program keeps."""

    content: tuple[Text | Image | File, ...] = ()
    data: Any = None
    is_error: bool = False
    ending: ToolEnding = "done"


def words(text: str, *, ending: ToolEnding = "failed") -> Outcome:
    """An outcome that is a sentence to the model about what went wrong."""
    return Outcome((Text(0, text),), is_error=True, ending=ending)


def ended(found: Found) -> Outcome:
    """The outcome of an execution of which this came."""
    return Outcome(found.content, found.data, found.is_error, "failed" if found.is_error else "done")


class Start(Struct, frozen=True):
    """Start a tool; say what came of it with `Run.tool_done`."""

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    timeout: float | None = None


class Cancel(Struct, frozen=True):
    """Cancel a tool, if it is still running; nobody wants its result any more."""

    key: str


class Execution(Struct):
    """A call on its way. `key` is its name in the run; a call that runs again has another."""

    key: str
    block: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    state: State = "held"
    is_confirmed: bool = False
    result: ToolResult | None = None
    ending: ToolEnding = "done"
    data: Any = None  # what the program keeps; not stored

    @property
    def request(self) -> ApprovalRequest:
        """The event that says what it waits for."""
        kind: RequestKind = "deferred" if self.state == "deferred" else "approval"
        return ApprovalRequest(self.call_id, self.name, self.arguments, kind)

    @property
    def result_so_far(self) -> ToolResult:
        """Its result, or one that says why there is none yet."""
        return self.result or ToolResult(self.call_id, self.name, (Text(0, SO_FAR[self.state]),), is_error=True)

    def finish(self, outcome: Outcome) -> ToolEnd:
        """It ended; the event that says so."""
        self.state, self.ending, self.data = "finished", outcome.ending, outcome.data
        self.result = ToolResult(self.call_id, self.name, outcome.content, outcome.is_error)
        return ToolEnd(self.key, self.result, outcome.ending, outcome.data)

    def discard(self, why: str) -> list[Move]:
        """Nothing of it counts; its end is told if its start was, and its end was not."""
        was = self.state
        told = self.finish(words(why, ending="discarded"))
        match was:
            case "finished":
                return [] if self.is_confirmed else [told]
            case "running":
                return [Cancel(self.key), told]
            case "deferred":
                return [told]
            case _:
                return []


Move = Start | Cancel | ToolStart | ToolEnd | ApprovalRequest
"""What changes: something to do, or something to tell."""


class Executions:
    """The calls of one step, by block. Its methods say what is to be done and told."""

    def __init__(self, step: int, policies: Mapping[str, ToolPolicy]) -> None:
        self._step = step
        self._policies = policies
        self._by_block: dict[int, Execution] = {}
        self._voided = 0
        self._is_over = False  # the answer has ended

    def __iter__(self) -> Iterator[Execution]:
        """In the order of the calls."""
        return iter([self._by_block[block] for block in sorted(self._by_block)])

    def load(self, executions: list[Execution]) -> None:
        """Go on with what was stored."""
        self._by_block = {execution.block: execution for execution in executions}
        self._is_over = True

    def interrupt(self) -> list[Move]:
        """What was running when the run was stored is running no more."""
        told = words("It was running when the run was interrupted, so it may have had an effect.", ending="cancelled")
        return [one.finish(told) for one in self if one.state == "running"]

    def closed(self, call: ToolCallClosed) -> list[Move]:
        """The arguments of a call have closed; the protocol may still change them."""
        policy = self._policies.get(call.name)
        if policy is None or not policy.starts_at("closed", call.arguments):
            return []
        early = self._by_block.get(call.block)
        if early is not None and (early.name, early.arguments) == (call.name, call.arguments):
            return []
        moves = self._void(call.block)
        self._add(call.block, call.id, call.name, call.arguments).state = "ready"
        return moves + self._start_ready()

    def confirmed(self, call: ToolCall, *, may_start: bool = True) -> list[Move]:
        """A call is whole, and will not change any more; whether it may start before the answer ends."""
        early = self._by_block.get(call.block)
        if early is not None and (early.name, early.arguments) == (call.name, call.arguments):
            early.is_confirmed, early.call_id = True, call.id
            return self._told_late(early)
        moves = self._void(call.block)
        execution = self._add(call.block, call.id, call.name, call.arguments)
        execution.is_confirmed = True
        policy = self._policies.get(call.name)
        if policy is None:
            known = ", ".join(self._policies) or "none"
            return [*moves, execution.finish(words(f"There is no tool called {call.name!r}. There are: {known}."))]
        if may_start and policy.starts_at("call", call.arguments):
            execution.state = "ready"
        return moves + self._start_ready()

    def invalid(self, call: ToolCallInvalid) -> list[Move]:
        """A call is cut or malformed: it gets a result that says so."""
        moves = self._void(call.block)
        execution = self._add(call.block, call.id, call.name, {})
        execution.is_confirmed = True
        fault = call.why.replace("_", " ")
        return [*moves, execution.finish(words(f"Not run: the call is {fault} ({call.message or 'no JSON object'})."))]

    def release(self) -> list[Move]:
        """The answer ended well: what was held may start, or waits for a person."""
        self._is_over = True
        requests: list[Move] = []
        for execution in self:
            policy = self._policies.get(execution.name)
            if execution.state == "held" and policy is not None:
                is_free = policy.starts_at("turn", execution.arguments)
                execution.state = "ready" if is_free else "approval"
                if not is_free:
                    requests.append(execution.request)
        return requests + self._start_ready()

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> list[Move]:
        """A person decided about a call that waits for it."""
        waiting = next(one for one in self if one.call_id == call_id and one.state == "approval")
        if not approved:
            return [waiting.finish(words(f"The user declined this call{f': {reason}' if reason else ''}."))]
        waiting.arguments = waiting.arguments if arguments is None else arguments
        waiting.state = "ready"
        return self._start_ready()

    def provide(self, call_id: str, outcome: Outcome) -> list[Move]:
        """The result of a call that was handed on has come."""
        waiting = next(one for one in self if one.call_id == call_id and one.state == "deferred")
        return [waiting.finish(outcome)]

    def done(self, key: str, outcome: Outcome) -> list[Move]:
        """An execution ended; of one that was voided nothing is wanted."""
        execution = next((one for one in self if one.key == key and one.state == "running"), None)
        if execution is None:
            return []
        told = execution.finish(outcome)
        return [*([told] if execution.is_confirmed else []), *self._start_ready()]

    def void_all(self) -> list[Move]:
        """The answer was withdrawn."""
        return [move for block in list(self._by_block) for move in self._void(block)]

    def abandon(self, why: str) -> list[Move]:
        """The run ends: what has no result gets one that tells the truth."""
        moves: list[Move] = []
        not_run = f"Not run: {why}."
        for execution in self:
            if not execution.is_confirmed:
                moves += execution.discard(not_run)
            elif execution.state == "running":
                told = f"Cancelled while it ran, so it may have had an effect: {why}."
                moves += [Cancel(execution.key), execution.finish(words(told, ending="cancelled"))]
            elif execution.state == "deferred":
                told = f"It was handed on to run elsewhere, so it may have an effect; nobody waits for it: {why}."
                moves.append(execution.finish(words(told, ending="cancelled")))
            elif execution.state != "finished":
                execution.finish(words(not_run, ending="cancelled"))
        return moves

    @property
    def had_effect(self) -> bool:
        """Whether something ran, or may have run, that is not read-only."""
        started = [one.name for one in self if one.state in ("deferred", "running", "finished")]
        return any(name in self._policies and self._policies[name].start != "closed" for name in started)

    @property
    def is_finished(self) -> bool:
        return all(execution.state == "finished" for execution in self)

    @property
    def waiting(self) -> list[Execution]:
        """The calls that wait for a person, or for their result from elsewhere."""
        return [execution for execution in self if execution.state in ("approval", "deferred")]

    @property
    def results(self) -> dict[int, ToolResult]:
        """What can be said by now of each confirmed call, by block."""
        return {one.block: one.result_so_far for one in self if one.is_confirmed}

    def _add(self, block: int, id: str, name: str, arguments: dict[str, Any]) -> Execution:
        again = f".{self._voided}" if self._voided else ""
        execution = Execution(f"{self._step}.{block}{again}", block, id, name, arguments)
        self._by_block[block] = execution
        return execution

    def _void(self, block: int) -> list[Move]:
        """What was started for a block too early counts for nothing."""
        early = self._by_block.pop(block, None)
        if early is None:
            return []
        self._voided += 1
        return early.discard("Discarded: the call changed.")

    def _told_late(self, early: Execution) -> list[Move]:
        """What an execution that was started early has to tell, now that its call is confirmed."""
        if early.state != "finished" or early.result is None:
            return []
        early.result = ToolResult(early.call_id, early.name, early.result.content, early.result.is_error)
        return [ToolEnd(early.key, early.result, early.ending, early.data)]

    def _start_ready(self) -> list[Move]:
        """Start what may start: a tool that is not to run beside others runs alone."""
        moves: list[Move] = []
        for execution in self:
            if execution.state == "ready" and self._policies[execution.name].is_deferred:
                moves.append(self._hand_on(execution))
            elif execution.state == "ready" and self._has_room_for(execution):
                execution.state = "running"
                timeout = self._policies[execution.name].timeout
                what = (execution.key, execution.call_id, execution.name, execution.arguments)
                moves += [ToolStart(*what, not self._is_over), Start(*what, timeout)]
        return moves

    def _hand_on(self, execution: Execution) -> Move:
        """Let somebody else run it, if it can be run."""
        if refused := self._policies[execution.name].refusal(execution.arguments):
            return execution.finish(refused)
        execution.state = "deferred"
        return execution.request

    def _has_room_for(self, execution: Execution) -> bool:
        running = [one for one in self if one.state == "running"]
        return not running or all(self._policies[one.name].is_parallel for one in [execution, *running])
