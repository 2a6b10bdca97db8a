"""`penstock serve`: serves agents from Python files over HTTP."""

from __future__ import annotations

import os
from pathlib import Path

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.model_options import CommandError
from penstock.errors import PenstockError


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="FILE_OR_MODULE[:AGENT]...", shell_complete=complete_file)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option("--log", "log", metavar="FILE_OR_URL", help="Keep runs in this SQLite file or postgresql:// database.")
@click.option("--token-env", metavar="VARIABLE", default="PENSTOCK_TOKEN", show_default=True,
              help="The environment variable with the token that clients must send.")  # fmt: skip
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A name under which clients may address the server."
)
@click.option("--allow-origin", "origins", multiple=True, metavar="ORIGIN",
              help="A web page of another host that may use the server, as in https://example.com.")  # fmt: skip
@click.option("--abandon-after", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="Cancel a run that nobody has read for so long. By default it goes on.")  # fmt: skip
@click.option("--reload", is_flag=True, help="Start again when a Python file beside the agents changes.")
def serve(
    targets: tuple[str, ...], host: str, port: int, log: str | None, token_env: str, hosts: tuple[str, ...],
    origins: tuple[str, ...], abandon_after: float | None, reload: bool,
) -> None:  # fmt: skip
    """Serve agents over HTTP, with runs that outlast their connection.

    FILE_OR_MODULE is a Python file or module that has a penstock.Agent with a name. Without --log, runs are kept in
    memory and end with the server. Without a token, only this machine is served.

    \b
      penstock serve agent.py --log runs.db
      PENSTOCK_TOKEN=… penstock serve support.py sales.py:agent --host 0.0.0.0
    """
    if reload:
        from penstock.cli.reloading import folders_of, run_and_reload

        options: list[tuple[str, object]] = [
            ("--host", host), ("--port", port), ("--token-env", token_env), ("--log", log),
            ("--abandon-after", abandon_after),
            *(("--allow-host", name) for name in hosts), *(("--allow-origin", name) for name in origins),
        ]  # fmt: skip
        given = [text for name, value in options if value is not None for text in (name, str(value))]
        run_and_reload(["serve", *targets, *given], folders_of(targets))
        return
    try:
        _serve(targets, host, port, log, os.environ.get(token_env, ""), hosts, origins, abandon_after)
    except PenstockError as error:
        raise CommandError(str(error)) from None


def _serve(
    targets: tuple[str, ...], host: str, port: int, log: str | None, token: str, hosts: tuple[str, ...],
    origins: tuple[str, ...], abandon_after: float | None,
) -> None:  # fmt: skip
    import penstock.log
    from penstock.asgi.access import is_loopback
    from penstock.asgi.server import address_of, listen, run_server
    from penstock.cli.agent_target import find_agent
    from penstock.errors import UsageError
    from penstock.serve.app import app

    if not token and not is_loopback(host):
        raise UsageError(f"to serve other machines on {host}, set a token: PENSTOCK_TOKEN=… penstock serve …")
    agents = [find_agent(target) for target in targets]
    store = penstock.log.open(log) if log else penstock.log.memory()
    try:
        served = app(agents, log=store, token=token, hosts=hosts, origins=origins, abandon_after=abandon_after)
        with listen(host, port) as listener:
            names = ", ".join(served.context.host.agents)
            kept = f"runs in {Path(log).name if '://' not in log else 'PostgreSQL'}" if log else "runs in memory"
            click.echo(f"serving {names} on {address_of(listener)} ({kept}); Ctrl-C stops", err=True)
            run_server(served, listener, served.context.limits, on_stop=served.context.feeds.close)
    finally:
        store.close()
