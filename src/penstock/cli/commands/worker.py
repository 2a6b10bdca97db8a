"""`penstock worker`: claims the runs of a log and drives them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.exit_signals import exit_signals
from penstock.cli.model_options import CommandError
from penstock.cli.printed_log import LogFormat, announce, log_format_option, printed_records
from penstock.cli.runs.log_options import keep_of, keep_options, log_option, opened_log, show_option
from penstock.cli.runs.owners import parse_owner
from penstock.errors import PenstockError, UsageError
from penstock.log.follower import new_owner
from penstock.log.opening import Show
from penstock.log.store import LEASE, Store
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
@click.option("--metrics", metavar="[HOST:]PORT",
              help="Serve /metrics, /healthz and /readyz here; the host is 127.0.0.1 by default.")  # fmt: skip
@click.option("--token-env", metavar="VARIABLE", default="PENSTOCK_TOKEN", show_default=True,
              help="The environment variable with the token for /metrics.")  # fmt: skip
@log_format_option
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
def worker(
    targets: tuple[str, ...], log: str | None, parallel: int, lease: float, keep: str | None, archive: str | None,
    show: Show, metrics: str | None, token_env: str, log_format: LogFormat, quiet: bool,
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

        runs = Runs(store, agents)
        level, token = logging.WARNING if quiet else logging.INFO, os.environ.get(token_env, "")
        with (
            printed_records("penstock.runs", level, log_format),
            watched_at(metrics, token, store, runs, log_format) as drain,
        ):
            if not quiet:
                announce(_start_text(agents, log or "", parallel), log_format)
            asyncio.run(_work(runs, parallel, drain))
        if not quiet:
            announce("stopped", log_format)


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


@contextmanager
def watched_at(
    place: str | None, token: str, store: Store, runs: Runs, form: LogFormat
) -> Generator[Callable[[], None]]:
    """Serves metrics and probes at a place, if there is one; returns what says that the worker is about to stop."""
    if place is None:
        yield lambda: None
        return
    from penstock.asgi.access import is_loopback
    from penstock.asgi.server import address_of, listen, serving_beside
    from penstock.serve.operations.worker_app import WorkerApp

    host, port = read_place(place)
    try:
        if not token and not is_loopback(host):
            raise UsageError(
                f"listening on {host} lets other machines read the metrics: set a token, as in "
                f"PENSTOCK_TOKEN=… penstock worker …"
            )
        app = WorkerApp(store, runs, token=token)
        with listen(host, port) as listener, serving_beside(app, listener, is_logging=form == "json"):
            address = address_of(listener)
            announce(f"metrics on {address}/metrics", form, {"address": address})
            yield app.drain
    except UsageError as error:
        raise CommandError(str(error)) from None


def read_place(text: str) -> tuple[str, int]:
    """The host and the port of `HOST:PORT` or `PORT`."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise CommandError(f"--metrics {text}: write HOST:PORT or PORT, as in 127.0.0.1:9100")
    return host.strip("[]") or "127.0.0.1", int(port)


def _start_text(agents: dict[str, Agent], log: str, parallel: int) -> str:
    names, here = ", ".join(agents), parse_owner(new_owner()).text
    limit = "one run" if parallel == 1 else f"up to {parallel} runs"
    return f"worker {here}: {names} on {without_secrets(log)}, {limit} at a time; Ctrl-C stops it"


async def _work(runs: Runs, parallel: int, drain: Callable[[], None]) -> None:
    """Drives runs until a signal ends it."""
    task = asyncio.create_task(runs.awork(parallel=parallel))
    with cancelled_by_signals(task, drain):
        try:
            await task
        except asyncio.CancelledError:
            pass


@contextmanager
def cancelled_by_signals(task: asyncio.Task[None], on_stop: Callable[[], None] = lambda: None) -> Generator[None]:
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
        on_stop()
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, *exit_signals())}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
