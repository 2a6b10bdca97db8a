"""Random responses whose calls share a world, played against the machine of a run: did they run as if in order?

`play(seed)` makes a response of one to seven calls with random tools, plays it in a random order of events (pieces of
the response, tools that return, decisions, results from elsewhere, a crash), and returns what was wrong. The judgement
is stated apart from the rules of `run.calls.call_order`, over the starts and ends that were seen.

An effect changes the world when its tool returns; a read looks at the world when it starts and when it returns, and so
does what prepares a call; some of that begins while the arguments are written. In half of the responses, hooks decide
about each call (run, run with other arguments, ask, refuse, answer, or they fail) and see its result.

python -m tests.call_orders --seconds 60
python -m tests.call_orders --seed "657 12"    # one response again
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.events import Finish, StreamChunk, Text, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.messages import user
from penstock.results import Outcome, error_outcome
from penstock.run.commands import (
    AskModel,
    CallReview,
    CancelTool,
    Command,
    Emit,
    ExpireLater,
    GrowTool,
    PrepareTool,
    ReviewCall,
    ReviseResult,
    StartTool,
)
from penstock.run.events import ApprovalRequest, LogEvent, RunStart, ToolEnd, ToolStart
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.tools.policy import ToolPolicy

READ, EFFECT, ALONE, FREE = "read", "effect", "alone", "free"
MAX_SHOWN = 5
"""How many violations are printed."""


def ask(arguments: dict[str, Any]) -> bool:
    """The predicate of tools that ask about some calls."""
    return bool(arguments.get("asks"))


POLICIES = {
    "read": ToolPolicy(start="closed", is_read_only=True),
    "late_read": ToolPolicy(start="turn", is_read_only=True),
    "write": ToolPolicy(),
    "eager_write": ToolPolicy(start="call"),
    "careful_write": ToolPolicy(needs_approval=True, expires=9.0),
    "wary_write": ToolPolicy(needs_approval=ask),
    "again": ToolPolicy(is_idempotent=True),
    "browser": ToolPolicy(is_deferred=True, expires=9.0),
    "edit": ToolPolicy(parallel=False),
    "eager_edit": ToolPolicy(parallel=False, start="call"),
    "careful_edit": ToolPolicy(parallel=False, needs_approval=True),
    "free_read": ToolPolicy(start="closed", is_read_only=True, parallel=True),
    "free_write": ToolPolicy(parallel=True),
    "read_more": ToolPolicy(),  # its name begins like that of a read
    "prepared_write": ToolPolicy(prepares=True),
    "prepared_edit": ToolPolicy(parallel=False, prepares=True),
    "careful_prepared_edit": ToolPolicy(parallel=False, needs_approval=True, prepares=True),
    "careful_prepared_write": ToolPolicy(needs_approval=True, prepares=True, expires=9.0),
    "wary_prepared_write": ToolPolicy(needs_approval=ask, prepares=True, start="call"),
    "free_prepared_write": ToolPolicy(parallel=True, prepares=True),
    "growing_write": ToolPolicy(prepares=True, grows=True),
    "growing_edit": ToolPolicy(parallel=False, prepares=True, grows=True, start="call"),
    "careful_growing_write": ToolPolicy(needs_approval=True, prepares=True, grows=True),
    "free_growing_write": ToolPolicy(parallel=True, prepares=True, grows=True),
}
VERDICTS = ["go"] * 5 + ["change", "change", "ask", "ask", "refuse", "answer", "failed"]


def order_of(name: str) -> str:
    """The class of a tool's calls in the order of a response; empty for an unknown tool."""
    if (policy := POLICIES.get(name)) is None:
        return ""
    if policy.parallel is not None:
        return FREE if policy.parallel else ALONE
    return READ if policy.is_read_only else EFFECT


def place_of(call_id: str) -> int:
    """The place of a call; the run makes the ids of a repeated response unique."""
    return int(call_id[1:].partition("_")[0])


@dataclass
class Ran:
    """One execution: when it began and ended, and the effects that were there."""

    name: str
    place: int
    began: int
    ended: int = 0
    ending: str = ""
    seen: list[frozenset[int]] = field(default_factory=list)


@dataclass
class Preparing:
    """What prepares a call, or has: the effects that were there when it began, and when it ended.

    It has no `arguments` while they are written.
    """

    name: str
    place: int
    began: int
    arguments: dict[str, Any] | None
    seen: list[frozenset[int]]


@dataclass
class Played:
    """One response, its world, and what happened in it."""

    chance: random.Random
    limit: int
    has_hooks: bool = False
    names: list[str] = field(default_factory=list)
    fails: set[int] = field(default_factory=set)
    asks: set[int] = field(default_factory=set)
    declines: set[int] = field(default_factory=set)
    world: set[int] = field(default_factory=set)
    clock: int = 0
    ran: dict[str, Ran] = field(default_factory=dict)
    ends: dict[int, tuple[int, str]] = field(default_factory=dict)  # by place: when, and how
    asked: dict[int, int] = field(default_factory=dict)  # by place: when a person was asked
    decided: dict[int, int] = field(default_factory=dict)
    appeared: set[int] = field(default_factory=set)  # blocks of which something has come
    handed: set[int] = field(default_factory=set)  # places of calls that were handed over
    log: list[LogEvent] = field(default_factory=list)
    running: dict[str, StartTool] = field(default_factory=dict)
    checks: list[ReviewCall] = field(default_factory=list)
    revising: list[ReviseResult] = field(default_factory=list)
    verdicts: dict[str, tuple[int, str]] = field(default_factory=dict)  # by key: the place, and the verdict
    preparing: dict[str, Preparing] = field(default_factory=dict)
    prepared: dict[str, Preparing] = field(default_factory=dict)
    waiting: dict[str, ApprovalRequest] = field(default_factory=dict)
    is_answered: bool = False
    problems: list[str] = field(default_factory=list)
    steps: int = 0
    crashes: int = 0

    # -- playing ---------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Play the response to its end."""
        chance = self.chance
        known = [*POLICIES, "unknown"]
        few = chance.sample(known, chance.randint(2, len(known)))  # with few tools, the same ones meet more often
        self.names = [chance.choice(few) for _ in range(chance.randint(1, 7))]
        self.fails = {place for place in range(len(self.names)) if chance.random() < 0.2}
        self.asks = {place for place in range(len(self.names)) if chance.random() < 0.5}
        self.declines = {place for place in range(len(self.names)) if chance.random() < 0.4}
        run = self._new_run()
        self.log.append(RunStart((user("go"),)))
        self._carry_out(run, run.begin())
        pieces = list(self._response())
        may_crash = chance.random() < 0.25
        for _ in range(500):
            if self.is_answered:
                return
            if may_crash and chance.random() < 0.1 and self.crashes < 2:
                run, pieces = self._crash(pieces)
                continue
            actions = [*self._actions(), *([None] if pieces else [])]
            if not actions:
                self.problems.append(f"stuck: {[repr(one.state) for one in run.state.executions.table]}")
                return
            action = chance.choice(actions)
            if action is None:
                piece = pieces.pop(0)
                self.appeared.add(getattr(piece, "block", -1))
                self._carry_out(run, run.chunks([piece]))
                if isinstance(piece, Finish):
                    self._carry_out(run, run.ended())
            else:
                self._act(run, action)
            self._check_rest(run)
        self.problems.append("too many steps")

    def _new_run(self) -> Run:
        return self._hooked(Run([user("go")], POLICIES, Limits(parallel=self.limit, takeovers=None)))

    def _hooked(self, run: Run) -> Run:
        run.state.rules.has_before_call = run.state.rules.has_after_call = self.has_hooks
        return run

    def _response(self) -> Iterator[StreamChunk]:
        """The events of the response: each call starts, closes and is confirmed; some wires mix or delay these."""
        style = self.chance.choice(["in turn", "at the end", "mixed"])
        lines = [list(self._call(place, style == "in turn")) for place in range(len(self.names))]
        if style == "in turn":
            yield from (event for line in lines for event in line)
        elif style == "at the end":
            yield from (event for line in lines for event in line[:-1])
            yield from (line[-1] for line in lines)
        else:
            begun = 0  # starts come in order, everything else in any
            while any(lines):
                open_lines = [at for at, line in enumerate(lines) if line and at <= begun]
                at = self.chance.choice(open_lines)
                begun = max(begun, at + 1)
                yield lines[at].pop(0)
        yield Finish("tool_calls")

    def _call(self, place: int, is_in_turn: bool) -> Iterator[StreamChunk]:
        """The events of a call. On some wires the first event of a call that is invalid comes late."""
        name, call_id, block = self.names[place], f"c{place}", place
        arguments = {"place": place, "asks": place in self.asks}
        is_growing = name == "read_more" and self.chance.random() < 0.7
        first = self.chance.choice(["read", "rea"]) if is_growing else name
        is_invalid = self.chance.random() < 0.08
        if self.chance.random() < 0.95 or not (is_invalid or is_in_turn):
            yield ToolCallStart(block, call_id, first)
        else:
            yield Text(100 + place, "-")
        if first != name and self.chance.random() < 0.7:
            yield ToolCallClosed(block, call_id, first, {"place": place, "asks": False})
        if self.chance.random() < 0.8 and not is_invalid:
            yield ToolCallClosed(block, call_id, name, arguments)
        if is_invalid:
            yield ToolCallInvalid(block, call_id, name, "{", "malformed", "no")
        else:
            yield ToolCall(call_id, name, arguments, block=block, sealed_by="call_end")

    def _crash(self, pieces: list[StreamChunk]) -> tuple[Run, list[StreamChunk]]:
        """The process ends: what ran may have had its effect, and the run is rebuilt from its log."""
        self.crashes += 1
        for start in self.running.values():
            ran = self.ran[start.key]
            if order_of(ran.name) in (EFFECT, ALONE, FREE) and self.chance.random() < 0.5:
                self.world.add(ran.place)
            ran.ended, ran.ending = self._tick(), "lost"
        self.running.clear()
        for pending in (self.checks, self.waiting, self.revising, self.preparing, self.prepared):
            pending.clear()
        run = self._hooked(rebuild(self.log, POLICIES, Limits(parallel=self.limit, takeovers=None)))
        was_answering = run.state.phase == "answer"
        for request in run.waiting:
            self.waiting[request.call_id] = request
        commands = run.begin()
        if was_answering and any(isinstance(command, AskModel) for command in commands):
            pieces = list(self._response())
            self.asked.clear()
            self.handed.clear()
            self.appeared.clear()
            self.ran.clear()
            self.ends.clear()
            self.verdicts.clear()
        elif was_answering:
            pieces = []
        self._carry_out(run, commands)
        return run, pieces

    def _actions(self) -> list[Any]:
        complete = [preparing for preparing in self.preparing.values() if preparing.arguments is not None]
        return [*self.running, *self.checks, *self.revising, *complete, *self.waiting.values()]

    def _act(self, run: Run, action: Any) -> None:
        match action:
            case ReviewCall():
                self.checks.remove(action)
                if run.state.executions.table.find(action.key) is not None:  # else the call has changed
                    self._carry_out(run, run.call_reviewed(action.key, self._verdict(action)))
            case ReviseResult():
                self.revising.remove(action)
                shorter = self._outcome(place_of(action.result.call_id)) if self.chance.random() < 0.5 else None
                self._carry_out(run, run.result_revised(action.key, shorter))
            case Preparing():
                key = next(key for key, preparing in self.preparing.items() if preparing is action)
                self.preparing.pop(key)
                action.seen.append(frozenset(self.world))
                self.prepared[key] = action
                problem = error_outcome("no") if self.chance.random() < 0.15 else None
                self._carry_out(run, run.tool_prepared(key, "preview", problem))
            case ApprovalRequest(kind="approval"):
                place = place_of(action.call_id)
                self.decided[place] = self._tick()
                self.waiting.pop(action.call_id)
                if place in self.declines and action.expires is not None and self.chance.random() < 0.5:
                    self._carry_out(run, run.call_expired(action.call_id))
                else:
                    is_changed = place not in self.declines and self.chance.random() < 0.2
                    arguments = {**action.arguments, "by": "a person"} if is_changed else None
                    self._carry_out(run, run.decide(action.call_id, place not in self.declines, arguments))
            case ApprovalRequest():
                place = place_of(action.call_id)
                self.waiting.pop(action.call_id)
                if place not in self.fails:
                    self.world.add(place)
                self._carry_out(run, run.provide(action.call_id, self._outcome(place)))
            case _:
                self._return(run, action)

    def _verdict(self, review: ReviewCall) -> CallReview:
        """What the hooks decide about a call, and its predicate after them."""
        if self.has_hooks and review.key in self.verdicts:
            self.problems.append(f"{review.name} {review.arguments['place']} is reviewed again")
        policy = POLICIES[review.name]
        asks = review.arguments["asks"] if callable(policy.needs_approval) else policy.needs_approval
        verdict = self.chance.choice(VERDICTS) if self.has_hooks else "go"
        known = "ask" if asks and verdict in ("go", "change") else verdict
        self.verdicts[review.key] = review.arguments["place"], known
        match verdict:
            case "refuse" | "answer" | "failed":
                return CallReview(verdict, outcome=Outcome((Text(0, "no"),), is_error=verdict != "answer"))
            case "change":
                return CallReview("ask" if asks else "go", {**review.arguments, "changed": True})
            case _:
                return CallReview("ask" if asks or verdict == "ask" else "go")

    def _return(self, run: Run, key: str) -> None:
        start, ran = self.running.pop(key), self.ran[key]
        if order_of(start.name) != READ and ran.place not in self.fails:
            self.world.add(ran.place)
        ran.seen.append(frozenset(self.world))
        ran.ended = self._tick()
        self._carry_out(run, run.tool_done(key, self._outcome(ran.place)))

    def _outcome(self, place: int) -> Outcome:
        return Outcome((Text(0, "failed" if place in self.fails else "done"),), is_error=place in self.fails)

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def _carry_out(self, run: Run, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Emit():
                    self.log.extend(command.logged)
                    for event in command.events:
                        self._see(event)
                case StartTool():
                    if run.reached(command) or not command.awaits_reader:
                        self._begin(command)
                case GrowTool():
                    self._grow(command)
                case PrepareTool():
                    self._prepare(command)
                case ReviseResult():
                    if run.reached(command):
                        self.revising.append(command)
                case CancelTool():
                    self.preparing.pop(command.key, None)
                    self.prepared.pop(command.key, None)
                    self.revising = [revise for revise in self.revising if revise.key != command.key]
                    if self.running.pop(command.key, None):
                        self.ran[command.key].ended = self._tick()
                case ReviewCall():
                    self.checks.append(command)
                case AskModel():
                    self.steps += 1
                    self.is_answered = self._has_results(command)
                case ExpireLater():
                    pass
                case _:
                    self.problems.append(f"unexpected: {command}")

    def _has_results(self, command: AskModel) -> bool:
        return command.messages[-1].role == "tool"

    def _grow(self, command: GrowTool) -> None:
        place = place_of(command.call_id)
        if self.has_hooks:
            self.problems.append(f"{command.name} {place} reads its arguments before its hook")
        if command.key in self.preparing or len(self.preparing) >= self.limit:
            self.problems.append("too many calls prepare")
        self.preparing[command.key] = Preparing(command.name, place, self._tick(), None, [frozenset(self.world)])

    def _prepare(self, command: PrepareTool) -> None:
        place = command.arguments["place"]
        if self._is_refused(command.key):
            self.problems.append(f"{command.name} {place} prepares, and does not run")
        grown = self.preparing.get(command.key)
        if grown is not None and grown.arguments is None and (grown.name, grown.place) == (command.name, place):
            grown.arguments = command.arguments
            return
        if grown is not None or len(self.preparing) >= self.limit:
            self.problems.append("too many calls prepare")
        self.preparing[command.key] = Preparing(
            command.name, place, self._tick(), command.arguments, [frozenset(self.world)]
        )

    def _is_refused(self, key: str) -> bool:
        return self.verdicts.get(key, (0, "go"))[1] in ("refuse", "answer", "failed")

    def _begin(self, command: StartTool) -> None:
        place = command.arguments["place"]
        if self._is_refused(command.key):
            self.problems.append(f"{command.name} {place} runs, although a hook said no")
        if (preparing := self.prepared.pop(command.key, None) or self.preparing.pop(command.key, None)) is not None:
            self._check_prepared(preparing)
            if preparing.arguments != command.arguments:
                self.problems.append(f"{command.name} {place} was prepared for other arguments")
        self.running[command.key] = command
        began = self.ran.get(command.key)
        if began is not None and not POLICIES[command.name].may_run_again:
            self.problems.append(f"{command.name} {place} ran twice")
        self.ran[command.key] = Ran(command.name, place, self._tick(), seen=[frozenset(self.world)])
        self._check_start(command.name, place)

    def _see(self, event: object) -> None:
        match event:
            case ToolEnd():
                place = place_of(event.call_id)
                self.waiting.pop(event.call_id, None)
                if event.key in self.ran:
                    self.ran[event.key].ending = event.ending
                if event.ending != "discarded":
                    if place in self.ends:
                        self.problems.append(f"{event.name} {place} ended twice")
                    self.ends[place] = self._tick(), event.ending
            case ApprovalRequest():
                place = place_of(event.call_id)
                self.waiting[event.call_id] = event
                if event.kind == "approval":
                    self.asked[place] = self._tick()
                else:
                    self.handed.add(place)
                    self._check_start(self.names[place], place)
            case ToolStart() if event.key in self.ran:
                self.problems.append(f"{event.key} was announced twice")
            case _:
                pass

    # -- judging ---------------------------------------------------------------------------------------------------

    def _check_prepared(self, prepared: Preparing) -> None:
        """Judge what a tool gets when it starts: it must be as if it had been prepared now."""
        order, first, last = order_of(prepared.name), prepared.seen[0], prepared.seen[-1]
        if order == FREE:
            return
        for before in range(prepared.place):
            earlier = order_of(self.names[before])
            is_ordered = earlier == ALONE or (earlier == EFFECT and order == ALONE)
            if is_ordered and before in self.world - first:
                self.problems.append(f"{prepared.name} {prepared.place} has a value from before {before}")
            if earlier == EFFECT and before in self.asked and self.decided.get(before, 0) > prepared.began:
                self.problems.append(f"{prepared.name} {prepared.place} prepared before the decision about {before}")
        if order == ALONE and any(after > prepared.place and order_of(self.names[after]) != FREE for after in last):
            self.problems.append(f"{prepared.name} {prepared.place} has a value from after later calls")

    def _check_start(self, name: str, place: int) -> None:
        """Judge a start by what has ended: law 12, as it is written."""
        order = order_of(name)
        if order == FREE:
            return
        for before in range(place):
            earlier = order_of(self.names[before])
            if earlier in (FREE, "") or before in self.ends or not self._has_appeared(before):
                continue
            if ALONE in (order, earlier):
                self.problems.append(f"{name} {place} is not apart from {self.names[before]} {before}")
            elif (order == READ) != (earlier == READ) and not (order == READ and self._has_other_name(before)):
                self.problems.append(f"{name} {place} started before {self.names[before]} {before} was over")
            elif order == EFFECT and self._may_ask(before):
                self.problems.append(f"{name} {place} overtook {self.names[before]} {before}")
            elif order == EFFECT and POLICIES[self.names[before]].is_deferred and not POLICIES[name].is_deferred:
                self.problems.append(f"{name} {place} overtook the handover {before}")
        if order == ALONE and (stop := self._stop_before(place)) is not None:
            self.problems.append(f"{name} {place} ran after {self.names[stop]} {stop} was not successful")

    def _has_appeared(self, place: int) -> bool:
        """Whether anything of a call has come; one whose first event comes late is invalid, and does not run."""
        return place in self.appeared

    def _has_other_name(self, place: int) -> bool:
        """Whether a call may have looked like a read when a later read started: that one is then discarded."""
        return self.names[place] == "read_more"

    def _may_ask(self, place: int) -> bool:
        policy = POLICIES[self.names[place]]
        if place in self.decided:
            return False
        if self.has_hooks:
            known = [verdict for where, verdict in self.verdicts.values() if where == place]
            return not known or known[-1] == "ask"
        return policy.needs_approval is True or (callable(policy.needs_approval) and place in self.asks)

    def _stop_before(self, place: int) -> int | None:
        for before in range(place):
            ending = self.ends.get(before, (0, "done"))[1]
            order = order_of(self.names[before])
            has_waited = before in self.asked or before in self.handed
            if ending != "done" and (order == ALONE or (order == EFFECT and has_waited and ending != "cancelled")):
                return before
        return None

    def _check_rest(self, run: Run) -> None:
        """Nothing that may start stays: every ready call is held by an earlier one, or by the limit."""
        executions = run.state.executions
        if any(each.state == "preparing" and each.prepare != "running" for each in executions.table):
            self.problems.append("a call has prepared, and nobody is asked")
        if run.state.phase != "tools" or executions.table.count("starting", "running") >= self.limit:
            return
        for execution in executions.table:
            if execution.state == "ready" and executions.order.holder(execution.block) is None:
                self.problems.append(f"{execution.name} {execution.block} may start, and does not")

    def judge(self) -> list[str]:
        """What was wrong, also with what the reads saw."""
        for ran in self.ran.values():
            if ran.ending not in ("done", "failed") or order_of(ran.name) not in (READ, ALONE):
                continue
            held = {place for place, name in enumerate(self.names) if order_of(name) in (EFFECT, ALONE)}
            for seen in ran.seen:
                if future := {place for place in seen & held if place > ran.place}:
                    self.problems.append(f"{ran.name} {ran.place} saw the effects of {future}, which come after it")
            happened = {place for place in self.world & held if place < ran.place}
            if missing := happened - ran.seen[0]:
                self.problems.append(f"{ran.name} {ran.place} did not see the effects of {missing}")
        if self.is_answered and (self.preparing or self.prepared):
            self.problems.append("something was prepared, and neither used nor discarded")
        if self.is_answered and not self.crashes and len(self.ends) != len(self.names):
            self.problems.append(f"{len(self.names)} calls have {len(self.ends)} ends")
        return self.problems


def play(seed: str) -> Played:
    """Play a random response, and judge it."""
    chance = random.Random(seed)
    played = Played(chance, chance.choice([1, 2, 32]), chance.random() < 0.5)
    played.play()
    played.judge()
    return played


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed")
    options = parser.parse_args()
    if options.seed is not None:
        played = play(options.seed)
        sys.stdout.writelines(f"{line}\n" for line in (", ".join(played.names), *played.problems))
        sys.exit(bool(played.problems))
    sys.exit(try_orders(options.seconds))


def try_orders(seconds: float) -> bool:
    """Plays responses until the time is over; returns whether one of them did not run as if in order."""
    start, number, crashes, violations = time.monotonic(), 0, 0, 0
    first = random.randrange(2**40)
    while time.monotonic() - start < seconds:
        played = play(f"{first} {number}")
        number += 1
        crashes += played.crashes
        if played.problems:
            violations += 1
            if violations <= MAX_SHOWN:
                again = f"python -m tests.call_orders --seed '{first} {number - 1}'"
                sys.stdout.write(f"{', '.join(played.names)}: {'; '.join(played.problems)}\nagain: {again}\n")
    sys.stdout.write(f"{number} responses tried, with {crashes} crashes, {violations} not as if in order\n")
    return bool(violations)


if __name__ == "__main__":
    main()
