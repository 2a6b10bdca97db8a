"""`penstock serve`: serves agents from Python files over HTTP."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click
from msgspec import Struct

from penstock.cli.commands.completion import complete_file
from penstock.cli.exit_signals import exit_signals
from penstock.cli.model_options import CommandError
from penstock.cli.printed_log import LogFormat, announce, log_format_option, printed_records
from penstock.cli.runs.drain_option import drain_option
from penstock.cli.runs.log_options import VARIABLE, keep_of, keep_options, log_option, show_option, wait_for_store
from penstock.errors import PenstockError
from penstock.log.opening import Show


class Options(Struct, frozen=True, kw_only=True):
    """The options of the command."""

    targets: tuple[str, ...]
    host: str
    port: int
    log: str | None
    keep: str | None
    archive: str | None
    show: Show
    token_env: str
    admin_token_env: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    proxies: tuple[str, ...]
    abandon_after: float | None
    drain_seconds: float
    log_format: LogFormat
    reload: bool
    quiet: bool


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="FILE_OR_MODULE[:AGENT]...", shell_complete=complete_file)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), metavar="PORT",
              help="The port to listen on; 0 picks a free one.")  # fmt: skip
@log_option("Keep runs in a log, so that they outlast the server.")
@keep_options
@show_option
@click.option("--token-env", metavar="VARIABLE", default="PENSTOCK_TOKEN", show_default=True,
              help="The environment variable with the token that clients must send.")  # fmt: skip
@click.option("--admin-token-env", metavar="VARIABLE", default="PENSTOCK_ADMIN_TOKEN", show_default=True,
              help="The environment variable with the token of operators, which opens /admin.")  # fmt: skip
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Accept requests for this host name; repeatable."
)
@click.option("--allow-origin", "origins", multiple=True, metavar="ORIGIN",
              help="Let web pages of this origin use the server, as in https://example.com; repeatable.")  # fmt: skip
@click.option("--trust-proxy", "proxies", multiple=True, metavar="ADDRESS",
              help="Believe X-Forwarded-For of the proxy at this address; repeatable.")  # fmt: skip
@click.option("--abandon-after", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="Cancel a run after it had no reader for this many seconds; by default, it continues.")  # fmt: skip
@drain_option
@log_format_option
@click.option("--reload", is_flag=True, help="Restart when a Python file in the folder of an agent changes.")
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
def serve(**options: object) -> None:
    """Serve agents over HTTP, with runs that outlast their connection.

    FILE_OR_MODULE is a Python file or module that has a penstock.Agent with a name. Without --log, runs are kept in
    memory and end with the server. Without a token, the server accepts only clients on this machine. It prints a line
    to standard error for each run that starts or ends.

    \b
      penstock serve agent.py --log runs.db
      penstock serve agents.py:support agents.py:sales
      PENSTOCK_TOKEN=… penstock serve support.py sales.py:agent --host 0.0.0.0
    """
    chosen = Options(**options)  # type: ignore[arg-type]
    try:
        if chosen.reload:
            _reload(chosen)
        else:
            _serve(chosen)
    except PenstockError as error:
        raise CommandError(str(error)) from None


def _reload(options: Options) -> None:
    """Run the same command without `--reload`, and again after each change of a file."""
    from penstock.cli.reloading import folders_of, run_and_reload

    is_inherited = options.log == os.environ.get(VARIABLE)  # a list of processes must not show the password in it
    values: list[tuple[str, object]] = [
        ("--host", options.host), ("--port", options.port), ("--token-env", options.token_env),
        ("--admin-token-env", options.admin_token_env),
        ("--log", None if is_inherited else options.log), ("--keep", options.keep), ("--archive", options.archive),
        ("--show", options.show),
        ("--abandon-after", options.abandon_after), ("--drain-seconds", options.drain_seconds),
        ("--log-format", options.log_format),
        *(("--allow-host", name) for name in options.hosts), *(("--allow-origin", name) for name in options.origins),
        *(("--trust-proxy", address) for address in options.proxies),
    ]  # fmt: skip
    words = [text for name, value in values if value is not None for text in (name, str(value))]
    quiet = ["--quiet"] if options.quiet else []
    run_and_reload(["serve", *options.targets, *words, *quiet], folders_of(options.targets))


def _serve(options: Options) -> None:
    import penstock.log
    from penstock.asgi.access import is_loopback
    from penstock.asgi.server import address_of, listen, run_server
    from penstock.cli.agent_target import find_agent
    from penstock.errors import UsageError
    from penstock.serve.app import app

    token, host, log = os.environ.get(options.token_env, ""), options.host, options.log
    if not token and not is_loopback(host):
        raise UsageError(
            f"listening on {host} lets other machines use the server: set a token, as in "
            f"PENSTOCK_TOKEN=… penstock serve …"
        )
    agents = [find_agent(target, is_one_of_many=True) for target in options.targets]
    keep = keep_of(options.keep, options.archive)
    if keep is not None and not log:
        raise UsageError("--keep needs --log: without it, runs end with the server")
    store = wait_for_store(log, show=options.show) if log else penstock.log.memory()
    store.keep = keep
    try:
        served = app(
            agents, log=store, token=token, hosts=options.hosts, origins=options.origins,
            proxies=options.proxies, abandon_after=options.abandon_after,
            admin_token=os.environ.get(options.admin_token_env, ""),
        )  # fmt: skip
        level = logging.WARNING if options.quiet else logging.INFO
        form = options.log_format
        with listen(host, options.port) as listener, printed_records("penstock.runs", level, form):
            names = ", ".join(served.context.host.agents)
            kept = f"runs in {Path(log).name if '://' not in log else 'PostgreSQL'}" if log else "runs in memory"
            address = address_of(listener)
            announce(f"serving {names} on {address} ({kept}); Ctrl-C stops", form, {"address": address})
            run_server(
                served, listener, served.context.limits, exit_signals(), access=served.access,
                on_stop=served.context.feeds.close, drain_seconds=options.drain_seconds, is_logging=form == "json",
            )  # fmt: skip
    finally:
        store.close()
