"""A conversation with an agent: shows its runs, asks about waiting calls, and saves the history and the run.

A run is kept in a log, in a file while it waits, or not at all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click
import msgspec

from penstock.cli.exit_codes import INTERRUPTED, PROVIDER_FAILED, UNSUCCESSFUL, USAGE, WAITING
from penstock.cli.interrupts import Interrupts
from penstock.cli.kept_file import HistoryFile, KeptFile
from penstock.cli.model_options import command_message, is_local_server_down
from penstock.cli.questions import ask_approval, ask_result, call_text, print_title, prompt_lines
from penstock.cli.screen.output import Format, run_output
from penstock.cli.screen.remark import Remark, Shown
from penstock.cli.screen.run_log import NEEDS
from penstock.errors import UsageError
from penstock.jsontext.shown_text import escape
from penstock.log.store import DamagedRunError, LostRunError, StoreError
from penstock.messages import Message
from penstock.run.events import ApprovalRequest, Done, StreamEvent, innermost

if TYPE_CHECKING:
    from penstock.agent.agent import Agent
    from penstock.agent.agent_run import AgentRun
    from penstock.cli.runs.logged_runs import LoggedRuns
    from penstock.log.follower import LoggedStart

Answer = tuple[bool, str]
"""Whether a call may run and why not; or True and the result of a deferred call."""


class AgentConversation:
    """A conversation with an agent in a terminal. `code` is the exit code so far."""

    def __init__(
        self, agent: Agent, format: Format, history: HistoryFile | None, state: KeptFile | None,
        log: LoggedRuns | None = None,
    ) -> None:  # fmt: skip
        self.code = 0
        self._log = log
        self._agent = agent.with_approvals("pause")  # the person at the terminal decides, in `_resolve`
        self._format: Format = format
        self._history = history
        self._state = state
        self._messages: list[Message] = history.read() if history else []

    @property
    def _has_person(self) -> bool:
        """Whether there is a person who can be asked about a call."""
        return sys.stdin.isatty() and self._format != "json"

    def converse(self) -> None:
        """Alternates between the person and the agent."""
        model = self._agent.config.model
        try:
            model.check_endpoint()
        except UsageError as error:
            raise UsageError(command_message(error)) from None
        print_title(model, self._history, self._messages)
        for line in prompt_lines("› "):
            self.say(line)
            click.echo()

    def say(self, text: str, verdict: bool | None = None) -> None:
        """Sends a message, shows the run, and asks about waiting calls."""
        if self._log is not None:
            self._continue_logged(self._log.start(self._agent, text, self._messages), verdict)
        else:
            run = self._agent.stream(text, messages=self._messages)
            self._show(run)
            self._resolve(run)

    def resume_logged(self, id: str, verdict: bool | None) -> None:
        """Continues a run in the log."""
        assert self._log is not None
        self._continue_logged(self._log.resume(self._agent, id), verdict)

    def _continue_logged(self, start: LoggedStart, verdict: bool | None) -> None:
        """Starts or continues a run in the log. `verdict` answers the calls that wait for approval now."""
        assert self._log is not None
        if verdict is not None and start.row.state != "waiting":
            row = start.row
            state = f"the run {row.id} is {row.state}" if row.seq else "there is none with this prompt yet"
            raise UsageError(f"--yes and --no are for a run that waits: {state}")
        self._log.explain(start)
        run = self._log.open(self._agent, start)
        self._show(run, self._log.heading(start), is_answered=verdict is not None)
        self._resolve(run, verdict)

    def resume(self, stored: bytes, verdict: bool | None) -> None:
        """Continues a stored run. `verdict`, if not None, answers all calls that wait for approval now."""
        assert self._state is not None
        try:
            run = self._agent.resume(stored)
        except UsageError as error:
            raise UsageError(f"{self._state.path}: {error}") from None
        self._check_resumed(run, self._state)
        self.code = WAITING
        if run.waiting:
            self._resolve(run, verdict)
        else:
            self._show(run)

    def _check_resumed(self, run: AgentRun, state: KeptFile) -> None:
        """Checks that the run belongs to this agent, and that the history has not changed meanwhile."""
        config = self._agent.config
        unknown = {request.name for request in run.waiting} - config.tools.keys()
        if unknown and not config.sources:  # sources may add tools that are not known yet
            names = ", ".join(map(repr, sorted(unknown)))
            raise UsageError(
                f"the run in {state.path} calls {names}, which this agent does not have: run its own agent"
            )
        if self._history and self._messages != run.messages[: len(self._messages)]:
            problem = f"the history in {self._history.path} was continued without the run in {state.path}"
            raise UsageError(f"{problem}: use another --history, or remove {state.path}")

    def _resolve(self, run: AgentRun, verdict: bool | None = None) -> None:
        """Answers waiting calls and continues the run, until no call waits or nobody can answer."""
        while waiting := run.waiting:
            answered = self._answered(run, waiting, verdict)
            if answered is None:
                return
            if self._state and (problem := self._state.remove()):  # its calls run now, and must not run twice
                raise UsageError(problem)
            run, verdict = answered, None
            self._show(run)

    def _answered(self, run: AgentRun, waiting: list[ApprovalRequest], verdict: bool | None) -> AgentRun | None:
        """The run with each answer applied as it is given, so that a question that it withdraws is not asked.

        None if nobody can answer, or Ctrl-C was pressed. Calls with side effects start when the run is read.
        """
        answered: AgentRun | None = None
        try:
            for request in waiting:
                if answered is not None and not self._is_open(answered, request):
                    continue
                if (answer := self._answer(request, verdict)) is not None:
                    if answered is None:
                        answered = self._log.again(self._agent, run.id) if self._log else self._agent.resume(run.dump())
                    _apply(answered, request, answer)
        except KeyboardInterrupt:
            self.code = INTERRUPTED
            if answered is not None:
                answered.close()
            if self._log:
                self._log.print_resume(run.id)
            return None
        if answered is None:
            self._print_waiting(run, waiting)
        return answered

    def _is_open(self, run: AgentRun, request: ApprovalRequest) -> bool:
        """Whether the call still waits: an answer to another one may have withdrawn the question."""
        waiting = self._log.waiting(self._agent, run.id) if self._log else run.waiting
        return any((other.call_id, other.kind) == (request.call_id, request.kind) for other in waiting)

    def _answer(self, request: ApprovalRequest, verdict: bool | None) -> Answer | None:
        """The answer to a waiting call; None if nobody can answer."""
        if request.kind == "approval" and verdict is not None:
            return verdict, ""
        if not self._has_person:
            return None
        if request.kind == "deferred":
            return True, ask_result(request.name, request.arguments)
        arguments = msgspec.structs.replace(request, preview="").shown
        return ask_approval(request.name, arguments, request.sources, request.preview)

    def _print_waiting(self, run: AgentRun, waiting: list[ApprovalRequest]) -> None:
        """Prints the waiting calls, and how to continue."""
        calls = ", ".join(f"{call_text(request.name, request.shown)} waits for {_need(request)}"
                          for request in waiting)  # fmt: skip
        if self._log is not None:
            advice = self._log.waiting_advice(run.id, waiting)
        elif self._state is None:
            advice = "the run is not saved: use --state FILE to continue it later"
        elif self.code != WAITING:
            advice = "the run is not saved"
        elif any(request.kind == "approval" for request in waiting):
            advice = f"continue with --state {self._state.path}, at a terminal or with --yes or --no"
        else:
            advice = f"continue with --state {self._state.path} at a terminal"
        click.echo(escape(f"Error: there is no terminal to ask a person: {calls}; {advice}"), err=True)

    def _show(self, run: AgentRun, heading: Remark | None = None, *, is_answered: bool = False) -> None:
        """Shows a run to its end, and saves it. A pause is not shown if it `is_answered`, or a person is asked next."""
        events = _without_pause(run) if is_answered or self._has_person else run
        try:
            if self._log is None:
                self._read(run, events)
            else:
                self._read_logged(run, events, self._log, heading)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
        finally:
            is_saved = self._save(run)
        if self._log is not None and run.done is not None and run.done.reason != "paused":
            sys.stdout.flush()
            self._log.note_shown(run.id)
        if run.done is not None and run.done.reason == "paused" and not run.waiting:
            click.echo(escape(f"Error: {run.done.why}"), err=True)
        if is_local_server_down(run.error, self._agent.config.model):
            click.echo("Is it running?", err=True)
        code = exit_code(run.done, run.error)
        self.code = UNSUCCESSFUL if code in (0, WAITING) and not is_saved else code

    def _read(self, run: AgentRun, events: Iterable[Shown]) -> None:
        """Reads a run and prints it."""
        with run, run_output(self._format) as print_event:
            for event in events:
                request = None if isinstance(event, Remark) else innermost(event)
                if isinstance(request, ApprovalRequest) and request.kind == "input":
                    _refuse_question(run, request)
                print_event(event, time.monotonic())

    def _read_logged(self, run: AgentRun, events: Iterable[Shown], log: LoggedRuns, heading: Remark | None) -> None:
        """Reads a logged run and prints it; Ctrl-C cancels it, or leaves it for another process."""
        with Interrupts() as interrupts:
            try:
                self._read(run, chain([heading] if heading else [], events))
            except KeyboardInterrupt:
                if run.done is None and not log.stop(run.id, interrupts):
                    raise SystemExit(INTERRUPTED) from None
                raise
            except SystemExit:  # SIGTERM
                if run.done is None:
                    log.print_resume(run.id)
                raise
            except (LostRunError, StoreError) as error:  # the machine slept, or the store is away
                click.echo(escape(f"Error: {error}"), err=True)
                log.print_resume(run.id, is_damaged=isinstance(error, DamagedRunError))
                raise SystemExit(UNSUCCESSFUL) from None

    def _save(self, run: AgentRun) -> bool:
        """Saves the history and the run; prints an error and returns False if that fails."""
        self._messages = run.messages
        problems = [self._history.write(self._messages)] if self._history else []
        if self._state:
            problems.append(self._state.write(run.dump()) if run.waiting else self._state.remove())
        for problem in filter(None, problems):
            click.echo(escape(f"Error: {problem}"), err=True)
        return not any(problems)


def _without_pause(run: AgentRun) -> Iterator[StreamEvent]:
    for event in run:
        if not (isinstance(event, Done) and event.reason == "paused"):
            yield event


def _refuse_question(run: AgentRun, request: ApprovalRequest) -> None:
    """Refuses the question of a running tool, unless it is a past question."""
    if any(waiting.call_id == request.call_id and waiting.kind == "input" for waiting in run.waiting):
        run.provide(request.call_id, "questions of tools cannot be answered in this command", is_error=True)


def _apply(run: AgentRun, request: ApprovalRequest, answer: Answer) -> None:
    is_approved, text = answer
    if request.kind == "deferred":
        run.provide(request.call_id, text)
    else:
        run.decide(request.call_id, is_approved, reason=text)


def _need(request: ApprovalRequest) -> str:
    return NEEDS[request.kind]


def exit_code(done: Done | None, error: BaseException | None) -> int:
    """The exit code for the end of a run."""
    match done, error:
        case _, UsageError():
            return USAGE
        case _, BaseException():
            return PROVIDER_FAILED
        case Done(reason="answered"), _:
            return 0
        case Done(reason="paused"), _:
            return WAITING
        case Done(reason="cancelled"), _:
            return INTERRUPTED
        case _:
            return UNSUCCESSFUL
