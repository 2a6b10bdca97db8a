"""`penstock run`: runs an agent from a Python file in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click
from click.core import ParameterSource
from msgspec import Struct

from penstock.cli.commands.completion import complete_file
from penstock.cli.conversation import AgentConversation
from penstock.cli.kept_file import HistoryFile, KeptFile
from penstock.cli.model_options import CommandError, read_prompt
from penstock.cli.runs.log_options import log_option, opened_log, show_option
from penstock.cli.screen.output import Format
from penstock.errors import PenstockError, UsageError
from penstock.log.opening import Show


@click.command()
@click.argument("target", metavar="FILE_OR_MODULE[:AGENT]", shell_complete=complete_file)
@click.argument("prompt", required=False)
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Continue the conversation in this file, and save it there; created if missing.")  # fmt: skip
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Save a run that waits for a person to this file; without PROMPT, continue it.")  # fmt: skip
@log_option("Keep the run in a log, so that the same command continues it if this process dies.")
@click.option(
    "--run-id", metavar="ID", help="The id of the run in the log; a run with this id that exists is continued."
)
@click.option(
    "--new", "is_new", is_flag=True, help="Start a new run in the log, even if an earlier one is not finished or shown."
)
@click.option("--resume", metavar="RUN", help="Continue the run of the log with this id, or whose id begins with it.")
@show_option
@click.option("--yes/--no", "verdict", default=None,
              help="Approve or decline all calls that wait for approval, without asking.")  # fmt: skip
@click.option("--plain", "format", flag_value="plain", help="Print one line per event, without colours or redrawing.")
@click.option("--json", "format", flag_value="json", help="Print one event per line as JSON, and nothing else.")
@click.option("-q", "--quiet", "format", flag_value="quiet", help="Print the final answer, and nothing else.")
def run(
    target: str, prompt: str | None, history: Path | None, state: Path | None, log: str | None, run_id: str | None,
    is_new: bool, resume: str | None, show: Show, verdict: bool | None, format: Format,
) -> None:  # fmt: skip
    """Run your own agent and watch it work.

    FILE_OR_MODULE is a Python file or module that has a penstock.Agent: the one named AGENT, the one called agent, or
    the only one. With PROMPT, or if standard input is not a terminal, the agent runs once. Otherwise you are prompted
    for messages until Ctrl-D; /help lists what the prompt understands. You are asked about calls that need approval.
    If several of --plain, --json and --quiet are given, the last one is used.

    \b
      penstock run agent.py "What is the weather in Rome?"
      penstock run agent.py:weather_agent --history talk.json
      echo "What is new?" | penstock run my.package.agents:news --json
      answer=$(penstock run agent.py --quiet "What is new?")
      penstock run agent.py "Pay the bill." --state run.json
      penstock run agent.py --state run.json --yes
      penstock run agent.py "Pay the bill." --log runs.db

    With --log, the run survives this process. The same command continues a run that is not over, and shows a run that
    ended after its process was killed; otherwise, or with --new, it starts a new one. Ctrl-C cancels the run; Ctrl-C
    twice leaves it in the log, from which --resume, `penstock worker` or the same command continues it.

    \b
    Exit code:
      0  the agent gave its answer
      1  the run ended without an answer
      2  the command line is not valid
      3  the provider failed
      4  a call waits for a person
    """
    if is_new and (run_id or resume):
        raise CommandError(f"--new cannot be combined with {'--run-id' if run_id else '--resume'}: omit one of them")
    if (log := _checked_log(log, state, run_id, resume)) is not None:
        _run_logged(LogOptions(target, log, run_id, is_new, resume, verdict, show), prompt, format, history)
    _run_unlogged(target, prompt, format, history, state, verdict)


class LogOptions(Struct, frozen=True):
    """The options of a run in a log."""

    target: str
    log: str
    run_id: str | None
    is_new: bool
    resume: str | None
    verdict: bool | None
    show: Show


def _checked_log(log: str | None, state: Path | None, run_id: str | None, resume: str | None) -> str | None:
    """The address of the log, if any: the variable counts only for runs without a state file."""
    if state is not None:
        if click.get_current_context().get_parameter_source("log") is ParameterSource.COMMANDLINE:
            raise CommandError("--state cannot be combined with --log, which keeps the run already: omit --state")
        log = None
    if (run_id or resume) and not log:
        raise CommandError(f"{'--run-id' if run_id else '--resume'} needs a log: name it with --log")
    return log or None


def _run_logged(options: LogOptions, prompt: str | None, format: Format, history: Path | None) -> NoReturn:
    """Runs the agent with a log."""
    from penstock.cli.agent_target import find_named_agent
    from penstock.cli.runs.logged_runs import LEASE, LoggedRuns

    is_conversation = prompt is None and options.resume is None and sys.stdin.isatty()
    if is_conversation and (options.run_id or options.verdict is not None):
        raise CommandError("--run-id, --yes and --no need a single run: pass a prompt, or --resume")
    if options.resume and (prompt is not None or options.run_id):
        raise CommandError("--resume cannot be combined with a prompt or --run-id: omit them")
    try:
        agent, file = find_named_agent(options.target), HistoryFile(history) if history else None
    except PenstockError as error:
        raise CommandError(str(error)) from None
    with opened_log(options.log, lease=LEASE, show=options.show) as store:
        logged = LoggedRuns(store, options.log, options.target, options.run_id, is_new=options.is_new)
        conversation = AgentConversation(agent, format, file, None, logged)
        if options.resume:
            conversation.resume_logged(options.resume, options.verdict)
        elif is_conversation:
            conversation.converse()
        else:
            conversation.say(read_prompt(prompt), options.verdict)
    raise SystemExit(conversation.code)


def _run_unlogged(
    target: str, prompt: str | None, format: Format, history: Path | None, state: Path | None, verdict: bool | None
) -> NoReturn:
    """Runs the agent without a log; a waiting run is saved to the state file, if any."""
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
