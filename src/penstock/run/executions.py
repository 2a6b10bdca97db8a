"""The calls of one answer on their way: which wait, which run, which have a result.

Every change of a state goes through here, so that what is asked often (what runs, what waits, whether all have ended)
is known without looking at each call.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from penstock.errors import ArgumentsError, UsageError
from penstock.events import ToolCall, ToolCallClosed, ToolCallInvalid
from penstock.jsontext.values import canonical_json, deep_copy, readable_json
from penstock.messages import ToolResult
from penstock.run.commands import CancelTool, Move, StartTool
from penstock.run.events import ToolEnd, ToolEnding, ToolStart
from penstock.run.execution import STATES, Execution, State, effect, last_words, no_such_tool, result_so_far, words
from penstock.tools.outcome import Outcome
from penstock.tools.policy import ToolPolicy

MayStart = Callable[[Execution], bool]
"""Whether the limits leave room for this one to start while the model still speaks."""


class Ready:
    """The calls that may start, in order; a tool that is not to run beside others runs alone."""

    def __init__(self) -> None:
        self._together: deque[Execution] = deque()
        self._alone: deque[Execution] = deque()
        self._is_alone = False  # what was taken last runs alone

    def add(self, execution: Execution, is_parallel: bool) -> None:
        (self._together if is_parallel else self._alone).append(execution)

    def take(self, running: int) -> Execution | None:
        """The next that may start while so many are running; None if there is none."""
        if running and self._is_alone:
            return None
        together, alone = _head(self._together), _head(self._alone)
        if together is not None and (alone is None or together.block < alone.block):
            self._is_alone = False
            return self._together.popleft()
        if alone is not None and not running:
            self._is_alone = True
            return self._alone.popleft()
        return None


def _head(queue: deque[Execution]) -> Execution | None:
    """The first that is still ready."""
    while queue and queue[0].state != "ready":
        queue.popleft()
    return queue[0] if queue else None


class Executions:
    """The calls of one step, by block. Its methods say what is to be done and told."""

    def __init__(self, step: int, policies: Mapping[str, ToolPolicy]) -> None:
        self._step = step
        self._policies = policies
        self._by_block: dict[int, Execution] = {}
        self._by_key: dict[str, Execution] = {}
        self._waiting: dict[str, Execution] = {}  # by the id of the call
        self._ready = Ready()
        self._voided = 0
        self._is_over = False  # the answer has ended
        self._counts: dict[State, int] = dict.fromkeys(STATES, 0)
        self.times: dict[str, int] = {}  # how often each call came

    def __iter__(self) -> Iterator[Execution]:
        """In the order of the calls."""
        return iter([self._by_block[block] for block in sorted(self._by_block)])

    # -- what happened ---------------------------------------------------------------------------------------------

    def load(self, executions: list[Execution]) -> None:
        """Go on with what was stored. What was ready has yet to start."""
        self._is_over = True
        for execution in executions:
            self._enter(execution)
            if execution.state == "ready":
                self._set(execution, "held")

    def interrupt(self) -> list[Move]:
        """What was running when the run was stored is running no more."""
        running = [one for one in self if one.state == "running"]
        told = "It was running when the run was interrupted"
        return [self._finish(one, words(f"{told}{effect(self._policy(one))}."), "cancelled") for one in running]

    def closed(self, call: ToolCallClosed, may_start: MayStart) -> list[Move]:
        """The arguments of a call have closed; the protocol may still change them."""
        policy, early = self._policies.get(call.name), self._by_block.get(call.block)
        if policy is not None and policy.start != "closed":
            policy = None  # it is not for now
        if policy is None and early is None:
            return []
        fingerprint = _fingerprint(call.name, call.arguments)
        if early is not None and early.fingerprint == fingerprint:
            return []
        moves = self._void(call.block, "the call changed")
        if policy is None:
            return moves
        execution = self._add(call.block, call.id, call.name, call.arguments, fingerprint)
        if self._asks(execution, policy) is False and may_start(execution):
            moves += self._make_ready(execution)
        return moves + self._start_ready()

    def confirmed(self, call: ToolCall, may_start: MayStart) -> list[Move]:
        """A call is whole, and will not change any more."""
        execution, fingerprint = self._by_block.get(call.block), _fingerprint(call.name, call.arguments)
        moves: list[Move] = []
        if execution is None or execution.fingerprint != fingerprint:
            moves += self._void(call.block, "the call changed")
            execution = self._add(call.block, call.id, call.name, call.arguments, fingerprint)
        execution.identify(call.id)
        if execution.state == "finished":
            moves.append(execution.end)
        elif execution.state == "held":
            is_early = call.sealed_by not in ("finish", "done")  # else the same frame may end the answer badly
            moves += self._offer(execution, lambda one: is_early and may_start(one))
        return moves + self._start_ready()

    def invalid(self, call: ToolCallInvalid, *, is_mended: bool = False) -> list[Move]:
        """A call is cut or malformed: it gets a result that says so, or is run as it was probably meant."""
        fault = call.why.replace("_", " ")
        moves = self._void(call.block, f"the call is {fault}")
        if is_mended and call.repaired is not None:
            execution = self._add(call.block, call.id, call.name, call.repaired, _fingerprint(call.name, call.repaired))
            execution.mended = call.why
            execution.note = f"The call is {fault}, and its arguments were mended to {readable_json(call.repaired)}."
            execution.identify(call.id)
            return moves + self._start_ready()
        execution = self._add(call.block, call.id, call.name, {})
        execution.identify(call.id)
        told = f"Not run: the call is {fault} ({call.message or 'no JSON object'})."
        if moves:
            told += " What was started before that was known has been discarded."
        return [*moves, self._finish(execution, words(told)), *self._start_ready()]

    def release(self) -> list[Move]:
        """The answer ended well: what was held may start, or waits for a person."""
        self._is_over = True
        moves: list[Move] = []
        for execution in self:
            if not execution.is_confirmed:
                moves += self._void(execution.block, "the call was never confirmed")
            elif execution.state == "held":
                moves += self._release(execution)
        return moves + self._start_ready()

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> list[Move]:
        """A person decided about a call that waits for it."""
        waiting = self._waiting[call_id]
        if not approved:
            told = f"The user declined this call{f': {reason}' if reason else ''}."
            return [self._finish(waiting, words(told), "declined")]
        if arguments is not None and (given := _json(arguments)) != canonical_json(waiting.arguments):
            waiting.arguments = json.loads(given)
            waiting.note = f"The user changed the arguments to {readable_json(waiting.arguments)}."
        waiting.asks = False
        return self._make_ready(waiting) + self._start_ready()

    def provide(self, call_id: str, outcome: Outcome) -> list[Move]:
        """The result of a call that was handed on has come."""
        return [self._finish(self._waiting[call_id], outcome)]

    def done(self, key: str, outcome: Outcome) -> list[Move]:
        """An execution ended; of one that was voided nothing is wanted."""
        execution = self.running(key)
        if execution is None:
            return []
        told = self._finish(execution, outcome)
        return [*([told] if execution.is_confirmed else []), *self._start_ready()]

    def late(self, key: str) -> list[Move]:
        """An execution took longer than it may."""
        execution = self.running(key)
        if execution is None:
            return []
        policy = self._policies[execution.name]
        told = f"The tool took longer than {policy.timeout:g} seconds and was given up{effect(policy)}."
        return self.done(key, words(told))

    def void_all(self, why: str) -> list[Move]:
        """The answer counts for nothing."""
        return [move for block in list(self._by_block) for move in self._void(block, why)]

    def complete(self, calls: Iterable[ToolCall | ToolCallInvalid]) -> None:
        """These calls are in the answer, some of them only in part: each is to have a result."""
        for call in calls:
            if call.block not in self._by_block:
                self._add(call.block, call.id, call.name, {})

    def abandon(self, why: str) -> list[Move]:
        """The run ends: what has no result gets one that tells the truth."""
        moves: list[Move] = []
        for execution in self:
            if execution.state == "finished" and execution.is_confirmed:
                continue
            if execution.state == "running":
                moves.append(CancelTool(execution.key))
            moves.append(self._finish(execution, *last_words(execution, self._policy(execution), why)))
            execution.is_confirmed = True  # as far as it ever will be
        return moves

    # -- what can be asked -----------------------------------------------------------------------------------------

    def running(self, key: str) -> Execution | None:
        """The execution of this key, if it is running."""
        found = self._by_key.get(key)
        return found if found is not None and found.state == "running" else None

    def has_result(self, block: int) -> bool:
        """Whether the call of this block is known to be whole, or not to be."""
        found = self._by_block.get(block)
        return found is not None and found.is_confirmed

    def check(self, call_id: str, arguments: Any) -> None:
        """Raise if a call that waits cannot run with these arguments of a person's."""
        given = json.loads(_json(arguments))
        execution = self._waiting.get(call_id)
        policy = None if execution is None else self._policy(execution)
        found = None if policy is None else policy.checked(given)
        if isinstance(found, Outcome):
            raise ArgumentsError(found.text)

    def count(self, *states: State) -> int:
        """How many are in one of these states."""
        return sum(self._counts[state] for state in states)

    @property
    def had_effect(self) -> bool:
        """Whether something ran, or may have run, that is not read-only."""
        started = {one.name for one in self if one.state in ("deferred", "running", "finished")}
        return any(name in self._policies and self._policies[name].may_have_effect for name in started)

    @property
    def is_finished(self) -> bool:
        return self._counts["finished"] == len(self._by_block)

    @property
    def waiting(self) -> Mapping[str, Execution]:
        """The calls that wait for a person, or for their result from elsewhere, by their ids."""
        return self._waiting

    @property
    def results(self) -> dict[int, ToolResult]:
        """What can be said by now of each call, by block."""
        return {one.block: result_so_far(one, self._policy(one)) for one in self}

    # -- how it goes on --------------------------------------------------------------------------------------------

    def _policy(self, execution: Execution) -> ToolPolicy | None:
        return self._policies.get(execution.name)

    def _add(self, block: int, id: str, name: str, arguments: dict[str, Any], fingerprint: str = "") -> Execution:
        again = f".{self._voided}" if self._voided else ""
        execution = Execution(f"{self._step}.{block}{again}", block, id, name, arguments, fingerprint)
        self._enter(execution)
        return execution

    def _enter(self, execution: Execution) -> None:
        self._by_block[execution.block] = self._by_key[execution.key] = execution
        self._counts[execution.state] += 1
        if execution.fingerprint:
            self.times[execution.fingerprint] = self.times.get(execution.fingerprint, 0) + 1
        if execution.state in ("approval", "deferred"):
            self._waiting[execution.call_id] = execution

    def _set(self, execution: Execution, state: State) -> None:
        self._counts[execution.state] -= 1
        self._counts[state] += 1
        if execution.state in ("approval", "deferred"):
            del self._waiting[execution.call_id]
        if state in ("approval", "deferred"):
            self._waiting[execution.call_id] = execution
        execution.state = state

    def _finish(self, execution: Execution, outcome: Outcome, ending: ToolEnding | None = None) -> ToolEnd:
        self._set(execution, "finished")
        execution.finish(outcome, ending)
        return execution.end

    def _void(self, block: int, why: str) -> list[Move]:
        """What was started for a block too early counts for nothing; its end is told if its start was."""
        early = self._by_block.get(block)
        if early is None:
            return []
        was = early.state
        told = self._finish(early, words(f"Discarded: {why}."), "discarded")
        del self._by_block[block], self._by_key[early.key]
        self._counts["finished"] -= 1
        if early.fingerprint:
            self.times[early.fingerprint] -= 1
        self._voided += 1
        match was:
            case "running":
                return [CancelTool(early.key), told]
            case "deferred":
                return [told]
            case "finished" if not early.is_confirmed:
                return [told]
            case _:
                return []

    def _asks(self, execution: Execution, policy: ToolPolicy) -> bool | Outcome:
        """Whether a person is to be asked, or why it cannot run; the predicate is asked once."""
        if execution.asks is None:
            found = policy.asks(execution.arguments)
            if isinstance(found, Outcome):
                return found
            execution.asks = found
        return execution.asks

    def _offer(self, execution: Execution, may_start: MayStart) -> list[Move]:
        """Its call is whole: it may start now, if it is free to; if it cannot run at all, that is known now."""
        policy = self._policy(execution)
        if policy is None:
            return [self._finish(execution, no_such_tool(execution.name, self._policies))]
        asks = self._asks(execution, policy)
        if isinstance(asks, Outcome):
            return [self._finish(execution, asks)]
        is_free = not asks and policy.start != "turn" and may_start(execution)
        return self._make_ready(execution) if is_free else []

    def _release(self, execution: Execution) -> list[Move]:
        """It may start now, unless a person is to be asked."""
        policy = self._policy(execution)
        asks = False if policy is None else self._asks(execution, policy)
        if isinstance(asks, Outcome):
            return [self._finish(execution, asks)]
        if not asks:
            return self._make_ready(execution)
        self._set(execution, "approval")
        return [execution.request]

    def _make_ready(self, execution: Execution) -> list[Move]:
        """It starts as soon as there is room; one that runs elsewhere is handed on."""
        policy = self._policy(execution)
        if policy is None:
            return [self._finish(execution, no_such_tool(execution.name, self._policies))]
        if policy.is_deferred:
            return [self._hand_on(execution, policy)]
        self._set(execution, "ready")
        self._ready.add(execution, policy.is_parallel)
        return []

    def _hand_on(self, execution: Execution, policy: ToolPolicy) -> Move:
        """Let somebody else run it, if it can be run."""
        given = policy.checked(execution.arguments)
        if isinstance(given, Outcome):
            return self._finish(execution, given)
        self._set(execution, "deferred")
        return execution.request

    def _start_ready(self) -> list[Move]:
        """Start what may start."""
        moves: list[Move] = []
        while (execution := self._ready.take(self._counts["running"])) is not None:
            self._set(execution, "running")
            what = execution.key, execution.call_id, execution.name
            moves += [
                ToolStart(*what, deep_copy(execution.arguments), not self._is_over, execution.mended),
                StartTool(*what, execution.arguments, self._policies[execution.name].timeout),
            ]
        return moves


def _fingerprint(name: str, arguments: dict[str, Any]) -> str:
    return f"{name} {canonical_json(arguments)}"


def _json(arguments: Any) -> str:
    """Arguments of a person's as JSON; a `UsageError` if they are none."""
    try:
        if isinstance(arguments, dict):
            return canonical_json(arguments)
    except (TypeError, ValueError, RecursionError):
        pass
    raise UsageError(f"the arguments of a call are a dict that JSON can hold, and not {arguments!r}")
