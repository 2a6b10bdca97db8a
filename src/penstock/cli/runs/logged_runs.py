"""The runs of `penstock run --log`: which one a command continues, and what Ctrl-C does to it.

The id of a run is made from the name of its agent and the messages with which it starts, and a number. The same command
again has the same beginning of the id: if the last run with it is not over, that run continues; if it is over and no
command has shown its end, it is shown; otherwise a new one starts, with the next number.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from contextlib import suppress

import click
import msgspec
from msgspec.structs import replace

from penstock.agent.agent import Agent
from penstock.agent.agent_run import AgentRun
from penstock.agent.config import expect_model
from penstock.agent.pricing import expect_prices
from penstock.cli.human_time import ago, duration_text
from penstock.cli.interrupts import Interrupts
from penstock.cli.runs.log_options import find_run, log_arguments
from penstock.cli.runs.logged_events import past_events
from penstock.cli.runs.owners import parse_owner
from penstock.cli.runs.waiting import answer_commands
from penstock.cli.screen.remark import Remark
from penstock.errors import UsageError
from penstock.jsontext.shown_text import escape
from penstock.log.bodies import body_of
from penstock.log.ending import cancel_claimed, release_claimed
from penstock.log.follower import LoggedStart, new_owner, stored_start
from penstock.log.inputs import cancel_input
from penstock.log.start import new_start
from penstock.log.starts.requests import StartRequest
from penstock.log.store import Store, StoreError
from penstock.messages import Message
from penstock.redaction import without_secrets
from penstock.run.events import ApprovalRequest, Decision, RunStart
from penstock.run.rebuild import rebuild

LEASE = 5.0
"""The seconds after a kill until the same command can continue the run."""
GRACE = 1.0
"""How many seconds after Ctrl-C a second one leaves the run."""
_DIGITS = 10  # digits of an id that are derived from the start of the run
_RECENT = 20  # examined runs of one command; the last one has the highest number


class LoggedRuns:
    """Starts and continues runs in a log."""

    def __init__(
        self, store: Store, address: str, target: str, run_id: str | None = None, *, is_new: bool = False
    ) -> None:
        self._store = store
        self._address = address
        self._target = target
        self._run_id = run_id
        self._is_new = is_new

    def start(self, agent: Agent, text: str, messages: list[Message]) -> LoggedStart:
        """A new run with this text, or the unfinished run that started with it, or one whose end was not shown."""
        expect_model(agent.config.model)
        expect_prices(agent.config)
        row, first = new_start(agent.name, agent.first_messages(text, messages), self._run_id)
        id = self._run_id or next_id(self._store, first, is_new=self._is_new)
        request = StartRequest(id=request_id(id), seconds=LEASE)
        known = self._store.find(id)
        return LoggedStart(self._store, known or replace(row, id=id), first, outlives_reader=True, request=request)

    def resume(self, agent: Agent, id: str) -> LoggedStart:
        """The run with this id."""
        row = find_run(self._store, id)
        if row.agent != agent.name:
            raise UsageError(
                f"the run {row.id} belongs to the agent {row.agent!r}, and {self._target} is {agent.name!r}"
            )
        return stored_start(self._store, row.id, outlives_reader=True)

    def open(self, agent: Agent, start: LoggedStart) -> AgentRun:
        """The run as a context, which releases the run if this process leaves it."""
        return AgentRun(agent.config, start, None)

    def again(self, agent: Agent, run_id: str) -> AgentRun:
        """The same run, whose reader already has all logged events."""
        row = find_run(self._store, run_id)
        return self.open(agent, stored_start(self._store, run_id, row.seq, outlives_reader=True))

    def waiting(self, agent: Agent, run_id: str) -> list[ApprovalRequest]:
        """The calls that will wait when the answers in the store have been taken: nobody may own the run yet."""
        run = rebuild((event for _, _, event in past_events(self._store, run_id)), agent.config.policies)
        run.begin()
        for answer in self._store.inputs([run_id]):
            if answer.kind == "decide" and run.state.waits_for(answer.key, "approval"):
                decision = msgspec.json.decode(answer.body, type=Decision)
                run.decide(answer.key, decision.approved, decision.arguments, decision.reason)
        return run.waiting

    def heading(self, start: LoggedStart) -> Remark:
        """What this command does with the run: starts or continues it, or waits for its owner."""
        row, now = start.row, time.time()
        if row.seq == 0:
            return Remark(f"run {row.id} in {without_secrets(self._address)}", "aside", "· ")
        begun = f"run {row.id}, started {ago(row.created, now)}"
        if row.state == "running" and row.lease_until > now:
            owner = parse_owner(row.owner)
            left = duration_text(row.lease_until - now + 1)
            is_gone = f"is {owner.condition}: it is taken over in" if owner.condition else "runs it; if it dies, in"
            return Remark(f"{begun}: {owner.text} {is_gone} {left}", "odd", "↻ ")
        if row.state == "over":
            return Remark(f"{begun}, and over: this is what happened", "odd", "↻ ")
        return Remark(f"{begun}: continued", "odd", "↻ ")

    def explain(self, start: LoggedStart) -> None:
        """Says that the command shows an earlier run, and starts none."""
        if start.row.state == "over" and not self._run_id and not is_shown(self._store, start.row.id):
            click.echo(
                "The run has ended, but its end was not shown; with --new, the command starts another.", err=True
            )

    def note_shown(self, run_id: str) -> None:
        """Records that the end of a run was shown, so that the same command starts another."""
        with suppress(StoreError):  # else it is shown again
            self._store.starts.answer(request_id(run_id))

    def stop(self, run_id: str, interrupts: Interrupts) -> bool:
        """Cancels a run after Ctrl-C, unless another Ctrl-C comes soon; then it is left. Whether it was cancelled."""
        claim = self._store.claim(new_owner(), run_id=run_id)  # so that no worker continues it meanwhile
        click.echo("Cancelling the run; Ctrl-C again leaves it, to be resumed later.", err=True)
        if interrupts.comes_again(GRACE):
            if claim is not None:
                release_claimed(self._store, claim)
            self.print_resume(run_id)
            return False
        why = "Ctrl-C"
        if claim is not None and cancel_claimed(self._store, claim, why):
            click.echo("The run was cancelled.", err=True)
        else:
            self._store.put(cancel_input(run_id, why))
            click.echo("The process that owns the run cancels it.", err=True)
        self.note_shown(run_id)
        return True

    def print_resume(self, run_id: str, *, is_damaged: bool = False) -> None:
        """Prints the command that resumes a run, or says what to do about a damaged one; nothing if there is none."""
        with suppress(StoreError):  # it may be there
            if self._store.find(run_id) is None:
                return
        if is_damaged:
            command = shlex.join(["penstock", "runs", *log_arguments(self._address), "show", run_id])
            click.echo(escape(f"The run is left as it is; how to continue or end it: {command}"), err=True)
            return
        command = shlex.join(["penstock", "run", self._target, *log_arguments(self._address), "--resume", run_id])
        click.echo(escape(f"The run is left; to resume it: {command}"), err=True)

    def waiting_advice(self, run_id: str, waiting: list[ApprovalRequest]) -> str:
        """How to continue a waiting run."""
        flags = " or with --yes or --no" if any(request.kind == "approval" for request in waiting) else ""
        commands = answer_commands(run_id, self._address, waiting)
        return f"the run waits in the log: repeat the command at a terminal{flags}, or use `{commands}`"


def request_id(run_id: str) -> str:
    """The id of the request that started a run; it is answered when a command has shown the end of the run."""
    return f"run:{run_id}"


def is_shown(store: Store, run_id: str) -> bool:
    """Whether a command has shown the end of a run, or the run was not started by a command."""
    request = store.starts.find(request_id(run_id))
    return request is None or request.answered


def next_id(store: Store, start: RunStart, *, is_new: bool = False) -> str:
    """The id for a run with this start: the last one if it has not finished or was not shown, else the next."""
    stem = hashlib.sha256(body_of(start)).hexdigest()[:_DIGITS]
    pattern = re.compile(rf"{stem}-(\d+)", re.ASCII)
    numbers = {
        int(match[1]): row
        for row in store.list(prefix=f"{stem}-", limit=_RECENT)
        if (match := pattern.fullmatch(row.id))
    }
    last = max(numbers, default=0)
    is_open = last and not is_new and (numbers[last].state != "over" or not is_shown(store, numbers[last].id))
    return f"{stem}-{last if is_open else last + 1}"
