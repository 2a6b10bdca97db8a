"""Questions to the person at the terminal: the prompt of a conversation, results of calls, and approvals."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.calls.sources import Sources, described
from penstock.jsontext.shown_text import escape, spell

if TYPE_CHECKING:
    from penstock.cli.kept_file import HistoryFile
    from penstock.messages import Message
    from penstock.model.model import Model

NO_ANSWER = "(no answer)"
"""The result of a call without an answer of the person."""

HELP = """\
/help   this help
/exit   leave; so does Ctrl-D, or Ctrl-C twice
Ctrl-C  clears the line, or interrupts a response"""

_LINE_COLORS = {"+": "green", "-": "red", "@": "cyan"}
"""The colors of the lines of a unified difference."""
_WORD = re.compile(r"[\w.:-]+")
_YES = {"y", "yes", "yep", "yeah", "yup", "ok", "okay", "sure", "approve", "approved", "go", "fine"}
_POLITE = {"please", "thanks", "thank", "you", "ahead", "do", "it", "go", "run", "of", "course", *_YES}
_NO = {"n", "no", "nope", "nah", "never", "decline", "declined", "deny", "reject", "don't", "dont", "stop"}


def print_title(model: Model, history: HistoryFile | None, messages: Sequence[Message]) -> None:
    """Prints the line above a conversation: the model, and the history that is continued."""
    count = "1 message" if len(messages) == 1 else f"{len(messages):,} messages"
    loaded = f" · {count} from {history.path}" if history and messages else ""
    click.secho(escape(f"{model.name}{loaded} · /help for help, Ctrl-D to leave\n"), dim=True, err=True)


def prompt_lines(prompt: str) -> Iterator[str]:
    """The messages that the person types, until Ctrl-D, Ctrl-C twice or /exit."""
    was_interrupted = False
    while True:
        try:
            line = ask(prompt)
        except KeyboardInterrupt:
            if was_interrupted:
                return
            was_interrupted = True
            click.secho("Ctrl-C again or Ctrl-D leaves; /help lists the commands.", dim=True, err=True)
            continue
        was_interrupted = False
        match line if line is None else line.strip():
            case None | "/exit" | "/quit":
                return
            case "":
                pass
            case "/help" | "/?":
                click.echo(escape(HELP), err=True)
            case command if command[0] == "/" and command[1:].isalpha():
                click.echo(escape(f"unknown command {command}; /help lists the commands"), err=True)
            case _:
                yield line or ""


def ask(question: str) -> str | None:
    """The line that the person types; None for Ctrl-D. If standard output is a pipe, the question goes to stderr."""
    if not sys.stdout.isatty():
        click.echo(escape(question), err=True, nl=False)
        question = ""
    try:
        return input(question)
    except EOFError:
        click.echo(err=True)
        return None
    except KeyboardInterrupt:
        click.echo(err=True)
        raise


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a person reads it: `pay(amount=5)`. Nothing in it is invisible or looks like another argument."""
    pairs = ", ".join(f"{_spell_name(key)}={spell(repr(value))}" for key, value in arguments.items())
    return f"{_spell_name(name)}({pairs})"


def _spell_name(name: str) -> str:
    """A name as it is if it is a plain word, else in quotes."""
    return name if _WORD.fullmatch(name) and spell(name) == name else spell(repr(name))


def ask_result(name: str, arguments: Mapping[str, Any]) -> str:
    """Asks for the result of a call."""
    return ask(f"{call_text(name, arguments)} returns › ") or NO_ANSWER


def source_lines(sources: Sources) -> list[str]:
    """Where the values of a call came from, one line per value that stands in the conversation."""
    return [
        f"  {spell(path)}: from {spell(', '.join(map(described, found)))}" for path, found in sources.items() if found
    ]


def ask_approval(name: str, arguments: Mapping[str, Any], sources: Sources, preview: str = "") -> tuple[bool, str]:
    """Asks whether a call may run: yes or no, and the reason for a no. Enter and Ctrl-D are a no."""
    for line in preview.split("\n") if preview else []:
        click.secho(f"  {spell(line.expandtabs())}", fg=_LINE_COLORS.get(line[:1]), err=True)
    for line in source_lines(sources):
        click.secho(escape(line), dim=True, err=True)
    while True:
        answer = ask(f"{call_text(name, arguments)}: run it? [y/N] ")
        decision = parse_approval(answer or "")
        if decision is not None:
            return decision
        click.echo("Answer y or n; 'n' can be followed by the reason, which the model reads.", err=True)


def parse_approval(answer: str) -> tuple[bool, str] | None:
    """Yes or no, and the reason for a no; None if the answer is neither."""
    words = [word.strip(".,;:!?").lower() for word in answer.split()]
    if not words:
        return False, ""
    if words[0] in _NO:
        return False, answer.strip()[len(answer.split()[0]) :].strip(" \t,;:-")
    if words[0] in _YES and _POLITE.issuperset(words[1:]):
        return True, ""
    return None
