"""`penstock run`: runs an agent from a Python file in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.conversation import AgentConversation
from penstock.cli.kept_file import HistoryFile, KeptFile
from penstock.cli.model_options import CommandError, read_prompt
from penstock.cli.screen.output import Format
from penstock.errors import PenstockError, UsageError


@click.command()
@click.argument("target", metavar="FILE_OR_MODULE[:AGENT]", shell_complete=complete_file)
@click.argument("prompt", required=False)
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Continue the conversation in this file, and save it there; created if missing.")  # fmt: skip
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Save a run that waits for a person in this file; without PROMPT, continue that run.")  # fmt: skip
@click.option("--yes/--no", "verdict", default=None,
              help="Approve or decline the calls that wait in the --state file, without asking.")  # fmt: skip
@click.option("--plain", "format", flag_value="plain", help="Print one line per event, without colours or redrawing.")
@click.option("--json", "format", flag_value="json", help="Print one event per line as JSON, and nothing else.")
@click.option("-q", "--quiet", "format", flag_value="quiet", help="Print the final answer, and nothing else.")
def run(
    target: str, prompt: str | None, history: Path | None, state: Path | None, verdict: bool | None, format: Format
) -> None:
    """Run your own agent and watch it work.

    FILE_OR_MODULE is a Python file or module that has a penstock.Agent: the one named AGENT, the one called agent, or
    the only one. With PROMPT, or if standard input is not a terminal, the agent runs once. Otherwise you are prompted
    for messages until Ctrl-D; /help lists what the prompt understands. You are asked about calls that need approval.
    Of --plain, --json and --quiet, the last one counts.

    \b
      penstock run agent.py "What is the weather in Rome?"
      penstock run agent.py:weather_agent --history talk.json
      echo "What is new?" | penstock run my.package.agents:news --json
      answer=$(penstock run agent.py --quiet "What is new?")
      penstock run agent.py "Pay the bill." --state run.json
      penstock run agent.py --state run.json --yes

    \b
    Exit code:
      0  answered
      1  ended otherwise
      2  the command is wrong
      3  the provider failed
      4  a call waits for a person
    """
    from penstock.cli.agent_target import find_agent

    try:
        kept = KeptFile(state, "run") if state else None
        stored = kept.read() if kept else None
        _check_state_options(prompt, state, verdict, is_stored=stored is not None)
        conversation = AgentConversation(find_agent(target), format, HistoryFile(history) if history else None, kept)
    except PenstockError as error:
        raise CommandError(str(error)) from None
    try:
        if stored is not None:
            conversation.resume(stored, verdict)
        elif prompt is None and sys.stdin.isatty():
            conversation.converse()
        else:
            conversation.say(read_prompt(prompt))
    except UsageError as error:
        raise CommandError(str(error)) from None
    raise SystemExit(conversation.code)


def _check_state_options(prompt: str | None, state: Path | None, verdict: bool | None, *, is_stored: bool) -> None:
    """Checks that the options about a stored run fit together."""
    if is_stored and prompt is not None:
        raise UsageError(f"a run waits in {state}: omit the prompt to continue it, or remove the file")
    if verdict is not None and not is_stored:
        missing = f"there is no {state}" if state else "name its file with --state"
        raise UsageError(f"--yes and --no are for a run that waits: {missing}")
