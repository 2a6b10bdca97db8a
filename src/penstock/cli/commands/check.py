"""`penstock check`: finds the problems of a history, and repairs or converts it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

import click
import msgspec

from penstock.cli.commands.completion import complete_provider
from penstock.cli.exit_codes import UNSUCCESSFUL
from penstock.cli.model_options import CommandError, WireOption
from penstock.cli.screen.terminal import write_lines
from penstock.errors import PenstockError
from penstock.jsontext.shown_text import escape
from penstock.wires import WireName, wire_name


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option("--provider", metavar="NAME", shell_complete=complete_provider,
              help="Check only what this provider refuses.")  # fmt: skip
@click.option("--repair", "is_repair", is_flag=True,
              help="Print the repaired history in its own format, and the changes on standard error.")  # fmt: skip
@click.option("--to", "wire", type=WireOption(), metavar="WIRE",
              help="Print the history as a request body for this wire: anthropic, gemini, …")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one problem per line as JSON.")
def check(file: IO[bytes], provider: str | None, is_repair: bool, wire: WireName | None, as_json: bool) -> None:
    """Find what a provider would refuse in a history.

    FILE holds messages as JSON, in the format of OpenAI (Chat Completions or Responses), Anthropic, Gemini, Bedrock,
    Cohere, Mistral, Ollama or penstock: a list, a whole request body, or one message per line. - is standard input.

    \b
      penstock check history.json --provider anthropic
      penstock check history.json --repair > repaired.json
      penstock check history.json --repair --to gemini > body.json

    \b
    Exit code:
      0  nothing is wrong
      1  there are problems
      2  the file is not a history
    """
    if is_repair and as_json:
        raise CommandError("--json prints problems and --repair prints the history: use one of them")
    try:
        has_problems = _check(file.read(), provider, is_repair, wire, as_json)
    except PenstockError as error:
        raise CommandError(f"{file.name}: {error}") from None
    raise SystemExit(UNSUCCESSFUL if has_problems else 0)


def _check(data: bytes, provider: Any, is_repair: bool, wire: WireName | None, as_json: bool) -> bool:
    """Prints the problems or the history; returns whether problems are left."""
    from penstock.history.check import check as find_problems
    from penstock.history.file import parse_history
    from penstock.history.repair import repair

    original = parse_history(data)
    history: Any = original
    if is_repair:
        history = repair(original, provider)
        _print_lines(history.changes, to_stderr=True)
    problems = find_problems(history, provider)
    prints_history = is_repair or wire is not None
    if as_json:
        write_lines(map(msgspec.json.encode, problems), to_stderr=prints_history)
    else:
        _print_lines(problems, to_stderr=prints_history)
    if prints_history:
        write_lines([_encode(history, original, wire, provider)])
    elif not problems and not as_json:
        _print_lines([f"no problems found{f' for {provider}' if provider else ''}"])
    return bool(problems)


def _print_lines(values: Iterable[object], *, to_stderr: bool = False) -> None:
    for value in values:
        click.echo(escape(str(value)), err=to_stderr)


def _encode(history: Any, original: Any, wire: WireName | None, provider: Any) -> bytes:
    """The history as a request body for the wire, or in the format of the original."""
    from penstock.history.export import export_messages, with_history
    from penstock.history.read import read
    from penstock.messages import encode_messages

    reading = read(original)
    if wire is None and not reading.wire:
        return encode_messages(read(history).messages)
    body: Any = export_messages(history, wire or wire_name(reading.wire), provider=provider)
    if wire is None:
        if isinstance(original, list) and len(body) == 1:
            body = next(iter(body.values()))
        elif isinstance(original, dict):
            body = with_history(original, body)
    return json.dumps(body, ensure_ascii=False, indent=1).encode()
