"""`penstock chat`: a conversation with a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from penstock.cli.exit_codes import INTERRUPTED, UNSUCCESSFUL
from penstock.cli.kept_file import HistoryFile
from penstock.cli.model_options import CommandError, model_options, open_model, print_error, read_prompt, read_tools
from penstock.cli.questions import NO_ANSWER, ask_result, print_title, prompt_lines
from penstock.cli.screen.output import show_response
from penstock.cli.screen.terminal import open_console
from penstock.errors import PenstockError
from penstock.events import ToolCall
from penstock.history.repair import repair
from penstock.jsontext.shown_text import escape
from penstock.messages import Message, result, tool_results, user
from penstock.model.model import Model
from penstock.wires import WireName


@click.command()
@model_options
@click.option("--history", "history_path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Continue the conversation in this file, and save it there; created if missing.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one event per line as JSON, and nothing else.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Append the exact requests and responses to this file; see `penstock replay`.")  # fmt: skip
@click.argument("prompt", required=False)
def chat(
    name: str, wire: WireName | None, base_url: str | None, system: str, calls: str | list[str],
    tool_file: Path | None,
    timeout: float | None, history_path: Path | None, as_json: bool, record: Path | None, prompt: str | None,
) -> None:  # fmt: skip
    """Chat with a model and watch its response stream.

    With PROMPT, or if standard input is not a terminal, the model is asked once. Otherwise you are prompted for
    messages until Ctrl-D; /help lists what the prompt understands. If tools are declared and the model calls one, you
    are asked for its result.

    \b
      penstock chat -m sim:demo
      penstock chat -m openai:gpt-5 "Why is the sky blue?"
      penstock chat -m anthropic:claude-sonnet-5 --history talk.json

    \b
    Exit code:
      0  the model answered
      1  a response was cut or failed
      2  the command line is not valid
      3  the provider failed
    """
    model = open_model(name, wire, base_url, timeout, record)
    tools = read_tools(tool_file)
    try:
        history = HistoryFile(history_path) if history_path else None
        conversation = Chat(model, {"tools": tools, "calls": calls, "system_prompt": system}, as_json, history)
    except PenstockError as error:
        raise CommandError(str(error)) from None
    if prompt is None and sys.stdin.isatty():
        conversation.converse()
    else:
        conversation.say(read_prompt(prompt))
    raise SystemExit(conversation.code)


class Chat:
    """A conversation with a model in a terminal."""

    def __init__(self, model: Model, options: dict[str, Any], as_json: bool, history: HistoryFile | None) -> None:
        self.code = 0
        self._console: Console = open_console()
        self._model = model
        self._options = options
        self._as_json = as_json
        self._history = history
        self._messages: list[Message] = history.read() if history else []

    def converse(self) -> None:
        """Alternates between the person and the model."""
        print_title(self._model, self._history, self._messages)
        for line in prompt_lines("› "):
            self.say(line)

    def say(self, text: str) -> None:
        """Sends a message and shows the response. Calls are answered by the person, if there is a terminal."""
        self._messages = [*repair(self._messages), user(text)]  # calls of an interrupted response have no result
        try:
            while (calls := self._ask_model()) and sys.stdin.isatty():
                if not self._add_results(calls):
                    self.code = INTERRUPTED
                    return
        finally:
            self._save()

    def _ask_model(self) -> list[ToolCall]:
        """Shows the next response, and returns its calls."""
        is_whole = False
        try:
            stream = self._model.stream(self._messages, **self._options)
        except PenstockError as error:
            return self._fail(error)
        try:
            with stream:
                batches = ([event] for event in stream)
                ended_well = show_response(self._console, self._model.wire, batches, as_json=self._as_json)
                self.code = 0 if ended_well else UNSUCCESSFUL
                is_whole = True
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            self.code = INTERRUPTED
        except PenstockError as error:
            return self._fail(error)
        if not self._as_json:
            self._console.print()
        self._messages += [Message("assistant", stream.turn.parts)] if stream.turn.parts else []
        return stream.tool_calls if is_whole else []

    def _fail(self, error: PenstockError) -> list[ToolCall]:
        """Withdraws the message after a failed response; results of tools stay."""
        self.code = print_error(error, self._model)
        if self._messages[-1].role == "user":
            self._messages.pop()
        return []

    def _add_results(self, calls: list[ToolCall]) -> bool:
        """Asks for the results of the calls and adds them; False if Ctrl-C interrupted that."""
        results = [NO_ANSWER] * len(calls)
        try:
            for index, call in enumerate(calls):
                results[index] = ask_result(call.name, call.arguments)
        except KeyboardInterrupt:
            return False
        finally:
            self._messages.append(tool_results(*map(result, calls, results)))
        return True

    def _save(self) -> None:
        if self._history and (problem := self._history.write([*repair(self._messages)])):
            click.echo(escape(f"Error: {problem}"), err=True)
            self.code = self.code or UNSUCCESSFUL
