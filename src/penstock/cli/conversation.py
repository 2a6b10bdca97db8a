"""A conversation with an agent: what it does is shown, the person is asked, and what is to outlive it is kept."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from penstock.cli import INTERRUPTED
from penstock.cli.kept_file import HistoryFile, KeptFile
from penstock.cli.questions import (
    FAILED,
    MISTAKEN,
    asked,
    asked_decision,
    asked_result,
    is_unreached_here,
    named,
)
from penstock.cli.screen.output import Format, run_output
from penstock.cli.screen.terminal import escape
from penstock.errors import UsageError
from penstock.messages import Message
from penstock.run.events import ApprovalRequest, Done

if TYPE_CHECKING:
    from penstock.agent.agent import Agent
    from penstock.agent.sync_driver import AgentRun

LOST = 1
"""The exit code of a run whose history, or which itself, could not be kept."""
WAITING = 4
"""The exit code of a run that waits for a person, where there is none to ask."""


class Talk:
    """A conversation with an agent in a terminal."""

    def __init__(self, agent: Agent, format: Format, history: HistoryFile | None, state: KeptFile | None) -> None:
        self.code = 0
        self._agent = agent.with_approvals("pause")  # the person is asked here, or nobody can be
        self._format: Format = format
        self._history = history
        self._state = state
        self._messages: list[Message] = history.read() if history else []

    @property
    def _has_someone(self) -> bool:
        """Whether there is somebody to ask about a call."""
        return sys.stdin.isatty() and self._format != "json"

    def go_on(self) -> None:
        """Ask the person, and then the agent, again and again."""
        title = f"{self._agent.config.model.name} · Ctrl-D ends it, Ctrl-C ends a run\n"
        click.secho(escape(title), dim=True, err=True)
        while (line := asked("› ")) is not None:
            if line.strip():
                self.say(line)
                click.echo()

    def say(self, text: str) -> None:
        """Say this to the agent, and show what it does; calls that wait for a person are asked about."""
        run = self._agent.stream(text, messages=self._messages)
        self._show(run)
        self._settle(run)

    def resume(self, stored: bytes, verdict: bool | None) -> None:
        """Go on with a run that was kept. The verdict, if there is one, is on all calls that wait for approval now."""
        assert self._state is not None
        try:
            run = self._agent.resume(stored)
        except UsageError as error:
            raise UsageError(f"{self._state.path}: {error}") from None
        self._check(run, self._state)
        self.code = WAITING
        if run.waiting:
            self._settle(run, verdict)
        else:
            self._show(run)

    def _check(self, run: AgentRun, state: KeptFile) -> None:
        """Find out before anything happens that a run is not this agent's, or that its history has a later end."""
        if foreign := {one.name for one in run.waiting} - self._agent.config.tools.keys():
            names = ", ".join(map(repr, sorted(foreign)))
            raise UsageError(f"the run in {state.path} calls {names}: name the agent whose run it is, which has that")
        if self._history and self._messages != run.messages[: len(self._messages)]:
            gone_on = f"the history in {self._history.path} has gone on without the run in {state.path}"
            raise UsageError(f"{gone_on}: give another --history, or remove {state.path}")

    def _settle(self, run: AgentRun, verdict: bool | None = None) -> None:
        """Have the calls that wait answered, and go on, until none waits or there is nobody to answer."""
        while waiting := run.waiting:
            try:
                answers = [(request, self._answer(request, verdict)) for request in waiting]
            except KeyboardInterrupt:
                self.code = INTERRUPTED
                return
            if not any(answer for _, answer in answers):
                self._leave(waiting)
                return
            if self._state and (problem := self._state.remove()):  # what runs now must not be run from there again
                raise UsageError(problem)
            run = self._agent.resume(run.dump())
            for request, answer in answers:
                if answer:
                    _tell(run, request, *answer)
            self._show(run)
            verdict = None

    def _answer(self, request: ApprovalRequest, verdict: bool | None) -> tuple[bool, str] | None:
        """What is said to a call: yes or no, and why; or what it gave elsewhere. None, if nobody says anything."""
        if request.kind == "approval" and verdict is not None:
            return verdict, ""
        if not self._has_someone:
            return None
        if request.kind == "deferred":
            return True, asked_result(request.name, request.arguments)
        return asked_decision(request.name, request.arguments)

    def _leave(self, waiting: list[ApprovalRequest]) -> None:
        """Say what waits, and how it can go on."""
        told = ", ".join(f"{named(one.name, one.arguments)} waits for {_wanted(one)}" for one in waiting)
        if self._state is None:
            advice = "nothing is kept: give --state FILE to go on later"
        elif self.code != WAITING:
            advice = "nothing is kept"
        elif any(one.kind == "approval" for one in waiting):
            advice = f"go on with --state {self._state.path}, at a terminal or with --yes or --no"
        else:
            advice = f"go on with --state {self._state.path} at a terminal"
        click.echo(escape(f"Error: nobody is there to ask: {told}; {advice}"), err=True)

    def _show(self, run: AgentRun) -> None:
        """Show a run to its end, and keep what is to be kept of it."""
        try:
            with run, run_output(self._format) as see:
                for event in run:
                    if not (self._has_someone and isinstance(event, Done) and event.reason == "paused"):
                        see(event, time.monotonic())  # but not a pause, if somebody is asked right now
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
        finally:
            is_kept = self._keep(run)
        if is_unreached_here(run.error, self._agent.config.model):
            click.echo("Is it running?", err=True)
        code = exit_code(run.done, run.error)
        self.code = LOST if code in (0, WAITING) and not is_kept else code

    def _keep(self, run: AgentRun) -> bool:
        """Go on from here, and keep what was asked for; False if that failed, which is said."""
        self._messages = run.messages
        problems = [self._history.write(self._messages)] if self._history else []
        if self._state:
            problems.append(self._state.write(run.dump()) if run.waiting else self._state.remove())
        for problem in filter(None, problems):
            click.echo(escape(f"Error: {problem}"), err=True)
        return not any(problems)


def _tell(run: AgentRun, request: ApprovalRequest, is_yes: bool, words: str) -> None:
    if request.kind == "deferred":
        run.provide(request.call_id, words)
    else:
        run.decide(request.call_id, is_yes, reason=words)


def _wanted(request: ApprovalRequest) -> str:
    return "approval" if request.kind == "approval" else "its result"


def exit_code(done: Done | None, error: BaseException | None) -> int:
    """What the shell is told of a run's end."""
    match done, error:
        case _, UsageError():
            return MISTAKEN
        case _, BaseException():
            return FAILED
        case Done(reason="answered"), _:
            return 0
        case Done(reason="paused"), _:
            return WAITING
        case Done(reason="cancelled"), _:
            return INTERRUPTED
        case _:
            return 1
