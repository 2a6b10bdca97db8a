"""`penstock run`: an agent from a file, at work in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.conversation import Talk
from penstock.cli.kept_file import HistoryFile, KeptFile
from penstock.cli.questions import Mistake, what_to_ask
from penstock.cli.screen.output import Format
from penstock.errors import PenstockError, UsageError


@click.command()
@click.argument("target", metavar="FILE_OR_MODULE[:AGENT]", shell_complete=complete_file)
@click.argument("prompt", required=False)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on from this history, and keep it there; the file is made if there is none.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep a run that waits for a person in this file; given again, without a prompt, the run goes on from it.",
)
@click.option("--yes/--no", "verdict", default=None,
              help="Approve or decline the calls that wait in the file of --state, without being asked.")  # fmt: skip
@click.option("--plain", "format", flag_value="plain",
              help="One line for each thing that happens: no colours, nothing drawn anew.")  # fmt: skip
@click.option("--json", "format", flag_value="json", help="Print one event a line, as JSON, and nothing else.")
@click.option("-q", "--quiet", "format", flag_value="quiet", help="Print the final answer, and nothing else.")
def run(
    target: str, prompt: str | None, history: Path | None, state: Path | None, verdict: bool | None, format: Format
) -> None:
    """Run an agent of yours, and watch it work.

    FILE_OR_MODULE is a Python file or module in which there is a penstock.Agent: the one that is named, the one called
    agent, or the only one. With PROMPT, or if the input is no terminal, it is run once; else you are asked for what to
    say, until Ctrl-D. Calls that need approval are shown, and you say yes or no.

    \b
      penstock run agent.py "What is the weather in Rome?"
      penstock run agent.py:weather_agent --history talk.json
      echo "What is new?" | penstock run my.package.agents:news --json
      answer=$(penstock run agent.py --quiet "What is new?")
      penstock run agent.py "Pay the bill." --state run.json
      penstock run agent.py --state run.json --yes

    \b
    Exit code: 0 answered, 1 the run ended otherwise, 2 a mistake, 3 the provider failed, 4 a call waits for a person
    """
    from penstock.cli.agent_target import find_agent

    try:
        kept = KeptFile(state, "run") if state else None
        stored = kept.read() if kept else None
        _check(prompt, state, verdict, is_there=stored is not None)
        talk = Talk(find_agent(target), format, HistoryFile(history) if history else None, kept)
    except PenstockError as error:
        raise Mistake(str(error)) from None
    try:
        if stored is not None:
            talk.resume(stored, verdict)
        elif prompt is None and sys.stdin.isatty():
            talk.go_on()
        else:
            talk.say(what_to_ask(prompt))
    except UsageError as error:
        raise Mistake(str(error)) from None
    raise SystemExit(talk.code)


def _check(prompt: str | None, state: Path | None, verdict: bool | None, *, is_there: bool) -> None:
    """Find what does not go together in the options about a run that waits."""
    if is_there and prompt is not None:
        raise UsageError(f"a run waits in {state}: leave the prompt out to go on with it, or remove the file")
    if verdict is not None and not is_there:
        no_file = f"there is no {state}" if state else "give its file with --state"
        raise UsageError(f"--yes and --no are for a run that waits: {no_file}")
