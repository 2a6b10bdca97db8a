"""`penstock log`: checks a log, and upgrades its tables."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.app import SuggestingGroup
from penstock.cli.model_options import CommandError
from penstock.cli.runs.log_options import VARIABLE, count_text, log_option, opened_log, store_error
from penstock.errors import PenstockError
from penstock.jsontext.shown_text import escape
from penstock.log.retention.status import LogStatus, status_of
from penstock.redaction import without_secrets

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@click.group(cls=SuggestingGroup)
def log() -> None:
    """Check a log, and upgrade its tables.

    \b
      penstock log check --log runs.db
      penstock log migrate --log postgresql://db.example/runs
    """


@log.command("check", short_help="Print the version, runs, size and problems of a log.")
@log_option("The log.")
def check_log(log: str | None) -> None:
    """Print the version of a log's tables, its runs and its size, and what is wrong with it. Nothing is changed.

    The exit code is 1 if something is wrong. It reads all events, which takes a while on a large log.
    """
    status = _status(log)
    click.echo(escape(f"{without_secrets(log or '')}: {_versions_text(status)}, {size_text(status.size)}"))
    if status.is_current:
        by_state = ", ".join(f"{count:,} {state}" for state, count in status.runs.items())
        click.echo(escape(f"{count_text(sum(status.runs.values()))}{f': {by_state}' if by_state else ''}"))
    for problem in status.problems:
        click.secho(escape(problem), fg="red")
    if status.problems:
        click.echo("Restore the log from a backup; runs that are damaged stop nobody else.", err=True)
        raise SystemExit(1)
    click.echo("nothing is wrong" if status.is_current else "the file is readable; `penstock log migrate` upgrades it")


@log.command("migrate", short_help="Upgrade the tables of a log to this version.")
@log_option("The log.")
def migrate_log(log: str | None) -> None:
    """Upgrade the tables of a log to this version of penstock, before a deployment does.

    Any command or server that opens a log does the same. Earlier versions can still use an upgraded log, unless they
    are older than `penstock log check` says.
    """
    before = _status(log).versions
    with opened_log(log, must_exist=True, is_patient=True):
        pass
    after = _status(log).versions
    if before.version >= after.version:
        click.echo(f"the tables have version {after.version:d} already")
    else:
        click.echo(f"upgraded the tables from version {before.version:d} to {after.version:d}")


def _status(address: str | None) -> LogStatus:
    if not address:
        raise CommandError(f"no log is named: pass --log, as in --log runs.db, or set {VARIABLE}")
    if "://" not in address and not Path(address).exists():
        raise CommandError(f"there is no log {address}")
    try:
        return status_of(address)
    except PenstockError as error:
        raise store_error(error, address) from None


def _versions_text(status: LogStatus) -> str:
    versions = status.versions
    if not versions.version:
        return "no tables yet"
    own = "" if versions.version == versions.own else f" (this penstock has {versions.own})"
    return f"tables of version {versions.version}{own}, for versions from {versions.oldest} on"


def size_text(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
