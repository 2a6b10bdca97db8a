"""`penstock run`: an agent from a file, at work in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from penstock.cli import INTERRUPTED
from penstock.cli.asking import FAILED, MISTAKEN, Mistake, answered, asked, what_to_ask
from penstock.cli.complete import complete_file
from penstock.cli.history import HistoryFile
from penstock.cli.screen import visible
from penstock.cli.telling import Manner, telling
from penstock.errors import PenstockError, UsageError
from penstock.happenings import ApprovalRequest, Done, StreamEvent
from penstock.messages import Message

if TYPE_CHECKING:
    from penstock.agent import Agent
    from penstock.drive_sync import AgentRun

LOST = 1
"""The exit code of a run that answered, but whose history could not be kept."""
WAITING = 4
"""The exit code of a run that waits for a person, where there is none to ask."""


@click.command()
@click.argument("target", metavar="FILE_OR_MODULE[:AGENT]", shell_complete=complete_file)
@click.argument("prompt", required=False)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on from this history, and keep it there; the file is made if there is none.",
)
@click.option("--plain", "manner", flag_value="plain",
              help="One line for each thing that happens: no colours, nothing drawn anew.")  # fmt: skip
@click.option("--json", "manner", flag_value="json", help="Print one event a line, as JSON, and nothing else.")
@click.option("-q", "--quiet", "manner", flag_value="quiet", help="Print the final answer, and nothing else.")
def run(target: str, prompt: str | None, history: Path | None, manner: Manner) -> None:
    """Run an agent of yours, and watch it work.

    FILE_OR_MODULE is a Python file or module in which there is a penstock.Agent: the one that is named, the one called
    agent, or the only one. With PROMPT, or if the input is no terminal, it is run once; else you are asked for what to
    say, until Ctrl-D. Calls that need approval are shown, and you say yes or no.

    \b
      penstock run agent.py "What is the weather in Rome?"
      penstock run agent.py:weather_agent --history talk.json
      echo "What is new?" | penstock run my.package.agents:news --json
      answer=$(penstock run agent.py --quiet "What is new?")

    \b
    Exit code: 0 answered, 1 the run ended otherwise, 2 a mistake, 3 the provider failed, 4 a call waits for a person
    """
    from penstock.cli.target import find_agent

    try:
        talk = Talk(find_agent(target), HistoryFile(history) if history else None, manner)
    except PenstockError as error:
        raise Mistake(str(error)) from None
    try:
        if prompt is None and sys.stdin.isatty():
            talk.go_on()
        else:
            talk.say(what_to_ask(prompt))
    except UsageError as error:
        raise Mistake(str(error)) from None
    raise SystemExit(talk.code)


class Talk:
    """A conversation with an agent in a terminal."""

    def __init__(self, agent: Agent, history: HistoryFile | None, manner: Manner) -> None:
        self.code = 0
        self._agent = agent
        agent.settings = replace(agent.settings, approvals="pause")  # somebody is asked here, or nobody is there
        self._file = history
        self._manner: Manner = manner
        self._messages: list[Message] = history.read() if history else []

    @property
    def _has_someone(self) -> bool:
        """Whether there is somebody to ask about a call."""
        return sys.stdin.isatty() and self._manner != "json"

    def go_on(self) -> None:
        """Ask the person, and then the agent, again and again."""
        click.secho(f"{self._agent.settings.model.name} · Ctrl-D ends it, Ctrl-C ends a run\n", dim=True, err=True)
        while (line := asked("› ")) is not None:
            if line.strip():
                self.say(line)
                click.echo()

    def say(self, text: str) -> None:
        """Say this to the agent, and show what it does; calls that wait for a person are asked about."""
        run = self._agent.stream(text, messages=self._messages)
        waiting = self._shown(run)
        while waiting and self._has_someone:
            try:
                answers = [decision(request) for request in waiting]
            except KeyboardInterrupt:
                self.code = INTERRUPTED
                return
            run = self._agent.resume(run.dump())
            for request, (is_yes, words) in zip(waiting, answers, strict=True):
                if request.kind == "deferred":
                    run.provide(request.call_id, words)
                else:
                    run.decide(request.call_id, is_yes, reason=words)
            waiting = self._shown(run)

    def _shown(self, run: AgentRun) -> list[ApprovalRequest]:
        """Show a run; the calls that it waits for at its end."""
        waiting: list[ApprovalRequest] = []
        try:
            with run:
                waiting += [event for event in self._events(run) if isinstance(event, ApprovalRequest)]
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
        finally:
            is_kept = self._keep(run)
        self.code = exit_code(run.done, run.error) or (0 if is_kept else LOST)
        return waiting if run.done is not None and run.done.reason == "paused" else []

    def _events(self, run: AgentRun) -> Iterator[StreamEvent]:
        with telling(self._manner) as see:
            for event in run:
                if not (self._has_someone and isinstance(event, Done) and event.reason == "paused"):
                    see(event, time.monotonic())  # but not a pause, if somebody is asked right now
                yield event

    def _keep(self, run: AgentRun) -> bool:
        """Go on from here, and keep the history where it was asked for; False if that failed, which is said."""
        self._messages = run.messages
        problem = "" if self._file is None else self._file.write(self._messages)
        if problem:
            click.echo(f"Error: {problem}", err=True)
        return not problem


def decision(request: ApprovalRequest) -> tuple[bool, str]:
    """What the person says to a call: yes or no, and why; or what came of it, if it ran elsewhere."""
    given = ", ".join(f"{name}={value!r}" for name, value in request.arguments.items())
    call = visible(f"{request.name}({given})")
    if request.kind == "deferred":
        return True, answered(f"{call} gives › ") or "(no answer)"
    answer = (answered(f"{call}: run it? [y/N, or why not] ") or "").strip()
    is_yes = answer.lower() in ("y", "yes")
    return is_yes, "" if is_yes or answer.lower() in ("", "n", "no") else answer


def exit_code(done: Done | None, error: Exception | None) -> int:
    """What the shell is told of a run's end."""
    match done, error:
        case _, UsageError():
            return MISTAKEN
        case _, Exception():
            return FAILED
        case Done(reason="answered"), _:
            return 0
        case Done(reason="paused"), _:
            return WAITING
        case Done(reason="cancelled"), _:
            return INTERRUPTED
        case _:
            return 1
