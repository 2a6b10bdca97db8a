"""`penstock run`: an agent from a file, at work in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from penstock.cli.app import INTERRUPTED
from penstock.cli.asking import FAILED, MISTAKEN, Mistake, asked
from penstock.cli.screen import harmless, open_console, visible
from penstock.errors import PenstockError, UsageError
from penstock.happenings import ApprovalRequest, Done, StreamEvent, encode
from penstock.messages import Message, encode_messages

if TYPE_CHECKING:
    from penstock.agent import Agent
    from penstock.drive_sync import AgentRun

WAITING = 4
"""The exit code of a run that waits for a person, where there is none to ask."""


@click.command()
@click.argument("target", metavar="FILE_OR_MODULE[:AGENT]")
@click.argument("prompt", required=False)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on from this history, and keep it there; the file is made if there is none.",
)
@click.option("--plain", is_flag=True, help="One line for each thing that happens: no colours, nothing drawn anew.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON, and nothing else.")
def run(target: str, prompt: str | None, history: Path | None, plain: bool, as_json: bool) -> None:  # fmt: skip
    """Run an agent of yours, and watch it work.

    FILE_OR_MODULE is a Python file or module in which there is a penstock.Agent: the one that is named, the one called
    agent, or the only one. With PROMPT, or if the input is no terminal, it is run once; else you are asked for what to
    say, until Ctrl-D. Calls that need approval are shown, and you say yes or no.

    \b
      penstock run agent.py "What is the weather in Rome?"
      penstock run agent.py:weather_agent --history talk.json
      echo "What is new?" | penstock run my.package.agents:news --json

    \b
    Exit code: 0 answered, 1 the run ended otherwise, 2 a mistake, 3 the provider failed, 4 a call waits for a person
    """
    from penstock.cli.target import find_agent

    try:
        talk = Talk(find_agent(target), history, is_plain=plain, as_json=as_json)
    except PenstockError as error:
        raise Mistake(str(error)) from None
    if prompt is None and sys.stdin.isatty():
        talk.go_on()
    else:
        talk.say(prompt if prompt is not None else sys.stdin.read())
    raise SystemExit(talk.code)


class Talk:
    """A conversation with an agent in a terminal."""

    def __init__(self, agent: Agent, history: Path | None, *, is_plain: bool, as_json: bool) -> None:
        from penstock.shapes import read_history

        self.code = 0
        self._agent = agent
        agent.settings = replace(agent.settings, approvals="pause")  # somebody is asked here, or nobody is there
        self._file = history
        self._as_json = as_json
        self._is_plain = is_plain
        self._messages: list[Message] = read_history(history.read_bytes()) if history and history.exists() else []

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
        while waiting and sys.stdin.isatty() and not self._as_json:
            answers = [decision(request) for request in waiting]
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
            self._keep(run)
        self.code = exit_code(run.done, run.error)
        return waiting if run.done is not None and run.done.reason == "paused" else []

    def _events(self, run: AgentRun) -> Iterator[StreamEvent]:
        from penstock.cli.show import shown

        if self._as_json:
            for event in run:
                sys.stdout.buffer.write(harmless(encode(event)) + b"\n")
                sys.stdout.buffer.flush()
                yield event
            return
        with shown(open_console(is_plain=self._is_plain), is_plain=self._is_plain) as see:
            for event in run:
                see(event, time.monotonic())
                yield event

    def _keep(self, run: AgentRun) -> None:
        """Go on from here, and keep the history where it was asked for; a crash while it is written spoils nothing."""
        self._messages = run.messages
        if self._file is not None:
            beside = self._file.with_name(f"{self._file.name}.new")
            beside.write_bytes(encode_messages(self._messages))
            beside.replace(self._file)


def decision(request: ApprovalRequest) -> tuple[bool, str]:
    """What the person says to a call: yes or no, and why; or what came of it, if it ran elsewhere."""
    given = ", ".join(f"{name}={value!r}" for name, value in request.arguments.items())
    call = visible(f"{request.name}({given})")
    if request.kind == "deferred":
        return True, asked(f"{call} gives › ") or "(no answer)"
    answer = (asked(f"{call}: run it? [y/N, or why not] ") or "").strip()
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
