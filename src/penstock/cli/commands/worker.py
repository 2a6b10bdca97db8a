"""`penstock worker`: claims the runs of a log and drives them."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.exit_signals import exit_signals
from penstock.cli.model_options import CommandError
from penstock.cli.printed_log import printed_records
from penstock.cli.runs.log_options import keep_of, keep_options, log_option, opened_log, show_option
from penstock.cli.runs.owners import parse_owner
from penstock.errors import PenstockError
from penstock.jsontext.shown_text import escape
from penstock.log.follower import new_owner
from penstock.log.opening import Show
from penstock.log.store import LEASE
from penstock.redaction import without_secrets

if TYPE_CHECKING:
    from penstock.agent.agent import Agent
    from penstock.runs.runs import Runs


@click.command()
@click.argument("targets", metavar="FILE_OR_MODULE[:AGENT] …", nargs=-1, required=True, shell_complete=complete_file)
@log_option("The log with the runs.")
@click.option("--parallel", type=click.IntRange(1), default=100, show_default=True, metavar="N",
              help="How many runs to drive at the same time.")  # fmt: skip
@click.option("--lease", type=click.FloatRange(1), default=LEASE, show_default=True, metavar="SECONDS",
              help="How long other workers wait before they take over the runs of a process that died.")  # fmt: skip
@keep_options
@show_option
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
def worker(
    targets: tuple[str, ...], log: str | None, parallel: int, lease: float, keep: str | None, archive: str | None,
    show: Show, quiet: bool,
) -> None:  # fmt: skip
    """Continue runs of a log: those that were started elsewhere, or whose process died.

    Each agent needs a name, which connects it with its runs: Agent(…, name="support"). Any number of workers may share
    a log, on many machines if it is PostgreSQL. Each run is driven by one of them; if that one dies, another takes it
    over.

    \b
      penstock worker agent.py --log runs.db
      penstock worker agents.py:support agents.py:sales --log postgresql://db.example/runs --parallel 50

    Ctrl-C, SIGTERM and SIGHUP release the runs, so that other workers continue them at once; a second Ctrl-C does not
    wait for that. The worker prints a line to standard error for each run that it takes over or ends.
    """
    agents = named_agents(targets)
    kept = keep_of(keep, archive)
    with opened_log(log, lease=lease, is_patient=True, show=show) as store:
        store.keep = kept
        from penstock.runs.runs import Runs

        with printed_records("penstock.runs", logging.WARNING if quiet else logging.INFO):
            if not quiet:
                _print_start(agents, log or "", parallel)
            asyncio.run(_work(Runs(store, agents), parallel))
        if not quiet:
            click.echo("stopped", err=True)


def named_agents(targets: tuple[str, ...]) -> dict[str, Agent]:
    """The agents by their names."""
    from penstock.cli.agent_target import find_named_agent

    agents: dict[str, Agent] = {}
    for target in targets:
        try:
            agent = find_named_agent(target, is_one_of_many=True)
        except PenstockError as error:
            raise CommandError(str(error)) from None
        if agent.name in agents and agents[agent.name] is not agent:
            raise CommandError(
                f"two agents have the name {agent.name!r}, by which a worker finds the agent of a run: rename one"
            )
        agents[agent.name] = agent
    return agents


def _print_start(agents: dict[str, Agent], log: str, parallel: int) -> None:
    names, here = ", ".join(agents), parse_owner(new_owner()).text
    limit = "one run" if parallel == 1 else f"up to {parallel} runs"
    click.echo(
        escape(f"worker {here}: {names} on {without_secrets(log)}, {limit} at a time; Ctrl-C stops it"), err=True
    )


async def _work(runs: Runs, parallel: int) -> None:
    """Drives runs until a signal ends it."""
    task = asyncio.create_task(runs.awork(parallel=parallel))
    with cancelled_by_signals(task):
        try:
            await task
        except asyncio.CancelledError:
            pass


@contextmanager
def cancelled_by_signals(task: asyncio.Task[None]) -> Generator[None]:
    """Cancels a task on Ctrl-C, SIGTERM and SIGHUP; the second one raises `KeyboardInterrupt`.

    Without the signal handlers of the event loop, which Windows does not have.
    """
    loop = asyncio.get_running_loop()
    is_cancelled = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_cancelled
        if is_cancelled:
            raise KeyboardInterrupt
        is_cancelled = True
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, *exit_signals())}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
