"""`penstock chat`: talk to a model, and watch its answers come."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from penstock.cli import INTERRUPTED
from penstock.cli.questions import (
    NO_ANSWER,
    asked,
    asked_result,
    complain,
    model_options,
    open_model,
    read_tools,
    what_to_ask,
)
from penstock.cli.screen.output import show_response
from penstock.cli.screen.terminal import escape, open_console
from penstock.errors import PenstockError
from penstock.events import ToolCall
from penstock.history.repair import repair
from penstock.messages import Message, result, tool_results, user
from penstock.model.model import Model
from penstock.model.stream import Stream


@click.command()
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON, and nothing else.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Keep the exchanges.")
@click.argument("prompt", required=False)
def chat(
    name: str, wire: str | None, base_url: str | None, system: str, calls: str, tool_file: Path | None,
    timeout: float | None, as_json: bool, record: Path | None, prompt: str | None,
) -> None:  # fmt: skip
    """Talk to a model, and watch its answers come.

    Text is shown as it flows, reasoning dimmed, and calls as they grow.
    With PROMPT, or if the input is no terminal, one answer is given; else you are asked for what to say, until Ctrl-D.
    If tools are declared and the model calls one, you are asked for what it gives back.

    \b
      penstock chat -m sim:demo
      penstock chat -m openai:gpt-5 "Why is the sky blue?"

    \b
    Exit code: 0 all is well, 1 an answer was cut or went wrong, 2 the command was not understood, 3 no answer came
    """
    model = open_model(name, wire, base_url, timeout, record)
    tools = read_tools(tool_file)
    talk = Chat(model, {"tools": tools, "calls": calls, "system_prompt": system}, as_json)
    if prompt is None and sys.stdin.isatty():
        talk.go_on()
    else:
        talk.say(what_to_ask(prompt))
    raise SystemExit(talk.code)


class Chat:
    """A conversation with a model in a terminal."""

    def __init__(self, model: Model, options: dict[str, Any], as_json: bool) -> None:
        self.code = 0
        self._console: Console = open_console()
        self._model = model
        self._options = options
        self._as_json = as_json
        self._messages: list[Message] = []

    def go_on(self) -> None:
        """Ask the person, and then the model, again and again."""
        title = f"{self._model.name} · Ctrl-D ends it, Ctrl-C ends an answer\n"
        self._console.print(escape(title), style="dim")
        while (line := asked("› ")) is not None:
            if line.strip():
                self.say(line)

    def say(self, text: str) -> None:
        """Say this, and show the answer; if that calls tools, and there is someone to ask, answer those too."""
        self._messages = [*repair(self._messages), user(text)]  # a call in an answer that was broken off has no result
        while (calls := self._answer()) and sys.stdin.isatty():
            if not self._provide(calls):
                self.code = INTERRUPTED
                return

    def _answer(self) -> list[ToolCall]:
        """Show the next answer; the calls in it."""
        is_whole = False
        try:
            stream = self._model.stream(self._messages, **self._options)
        except PenstockError as error:
            return self._failed(error)
        try:
            with stream:
                self.code = 0 if self._show(stream) else 1
                is_whole = True
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            self.code = INTERRUPTED
        except PenstockError as error:
            return self._failed(error)
        if not self._as_json:
            self._console.print()
        self._messages += [Message("assistant", stream.turn.parts)] if stream.turn.parts else []
        return stream.tool_calls if is_whole else []

    def _show(self, stream: Stream) -> bool:
        return show_response(self._console, self._model.wire, ([event] for event in stream), as_json=self._as_json)

    def _failed(self, error: PenstockError) -> list[ToolCall]:
        """No answer came: it is as if the question had not been asked, but what tools gave stays."""
        self.code = complain(error, self._model)
        if self._messages[-1].role == "user":
            self._messages.pop()
        return []

    def _provide(self, calls: list[ToolCall]) -> bool:
        """Ask what the calls give, and take it into the history, where each must have a result; False after Ctrl-C."""
        told = [NO_ANSWER] * len(calls)
        try:
            for at, call in enumerate(calls):
                told[at] = asked_result(call.name, call.arguments)
        except KeyboardInterrupt:
            return False
        finally:
            self._messages.append(tool_results(*map(result, calls, told)))
        return True
