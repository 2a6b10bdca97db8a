"""`penstock check`: what providers would refuse in a history, and the same history mended or in another shape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

import click
import msgspec

from penstock.cli.commands.completion import complete_provider, complete_wire
from penstock.cli.questions import Mistake
from penstock.cli.screen.terminal import escape, write_lines
from penstock.errors import PenstockError

FAULTY = 1
"""The exit code of a check that found something."""


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option("--provider", metavar="NAME", shell_complete=complete_provider,
              help="Look for what this provider refuses, and only that.")  # fmt: skip
@click.option(
    "--repair",
    "is_repair",
    is_flag=True,
    help="Print the history, mended, in its own shape; what was done is told beside it.",
)
@click.option("--to", "wire", metavar="WIRE", shell_complete=complete_wire,
              help="Print the history as the body of a request: anthropic, gemini, …")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON, one a line.")
def check(file: IO[bytes], provider: str | None, is_repair: bool, wire: str | None, as_json: bool) -> None:
    """Find what a provider would refuse in a history, before it does.

    FILE holds messages as JSON, in the shape of OpenAI (Chat Completions or Responses), Anthropic, Gemini, Bedrock,
    Cohere, Mistral, Ollama or penstock; or the whole body of a request; or a message a line. - is standard input.

    \b
    The exit code is 1 if something is wrong, 0 if nothing is, 2 if the file is no history.
      penstock check history.json --provider anthropic
      penstock check history.json --repair > mended.json
      penstock check history.json --repair --to gemini > body.json
    """
    if is_repair and as_json:
        raise Mistake("--json prints the problems, and --repair the history, mended: give one of them")
    try:
        found = _inspect(file.read(), provider, is_repair, wire, as_json)
    except PenstockError as error:
        raise Mistake(f"{file.name}: {error}") from None
    raise SystemExit(FAULTY if found else 0)


def _inspect(data: bytes, provider: Any, is_repair: bool, wire: Any, as_json: bool) -> bool:
    """Print what was asked for; whether something is wrong with what is left."""
    from penstock.history.check import check as find
    from penstock.history.file import parse_history
    from penstock.history.repair import repair

    given = parse_history(data)
    history: Any = given
    if is_repair:
        history = repair(given, provider)
        _say(history.changes, to_stderr=True)
    problems = find(history, provider)
    is_printed = is_repair or wire is not None
    if as_json:
        write_lines(map(msgspec.json.encode, problems), to_stderr=is_printed)
    else:
        _say(problems, to_stderr=is_printed)
    if is_printed:
        write_lines([_written(history, given, wire, provider)])
    elif not problems and not as_json:
        _say([f"nothing is wrong with it{f' for {provider}' if provider else ''}"])
    return bool(problems)


def _say(told: Iterable[object], *, to_stderr: bool = False) -> None:
    for line in told:
        click.echo(escape(str(line)), err=to_stderr)


def _written(history: Any, given: Any, wire: Any, provider: Any) -> bytes:
    """The history as the body of a request, or in the shape in which it was given."""
    from penstock.history.export import export_messages, with_history
    from penstock.history.read import read
    from penstock.messages import encode_messages
    from penstock.wires import wire_name

    reading = read(given)
    if wire is None and not reading.wire:
        return encode_messages(read(history).messages)
    body: Any = export_messages(history, wire or wire_name(reading.wire), provider=provider)
    if wire is None:
        is_alone = isinstance(given, list) and len(body) == 1
        body = next(iter(body.values())) if is_alone else with_history(given, body) if isinstance(given, dict) else body
    return json.dumps(body, ensure_ascii=False, indent=1).encode()
