"""`penstock runs export`, `import` and `archive`: runs of a log as files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.model_options import CommandError
from penstock.cli.runs.log_options import (
    STEERING_LEASE,
    count_text,
    expect_directory,
    find_run,
    of_log,
    opened_log,
    seconds_of,
)
from penstock.errors import PenstockError
from penstock.jsontext.shown_text import escape
from penstock.log.retention.run_files import lines_of, read_runs
from penstock.log.retention.sweep import count_old, owner_only, sweep
from penstock.log.store import Cutoff, RunRow, Store

PAGE = 1000
"""How many runs are listed at a time."""


@click.command("export", short_help="Write runs to a file, with every event as it was stored.")
@of_log
@click.option("-o", "--output", metavar="FILE", shell_complete=complete_file,
              help="Write to this file, compressed if it ends with .gz; without it, to standard output.")  # fmt: skip
@click.option("--thread", metavar="TEXT", help="All runs of this thread.")
@click.option("--tenant", metavar="TEXT", help="All runs of this tenant.")
@click.option("--agent", metavar="NAME", help="All runs of this agent.")
@click.option("--all", "is_all", is_flag=True, help="All runs.")
@click.option("--unfinished", is_flag=True,
              help="Unfinished runs too: they continue where they are imported, so stop the workers here.")  # fmt: skip
@click.argument("ids", metavar="[RUN]...", nargs=-1)
def export_runs(
    log: str, output: str | None, thread: str | None, tenant: str | None, agent: str | None, is_all: bool,
    unfinished: bool, ids: tuple[str, ...],
) -> None:  # fmt: skip
    """Write runs to a file: every event as it was stored, with images and files, and a checksum.

    `penstock runs import` adds them to another log, or to the same one after they were deleted.

    \b
      penstock runs --log runs.db export order-17 -o order-17.jsonl
      penstock runs --log runs.db export --all --unfinished -o runs.jsonl.gz
    """
    filters = {"thread": thread, "tenant": tenant, "agent": agent}
    if not (ids or is_all or any(filters.values())):
        raise CommandError("name the runs, or use --all, --thread, --tenant or --agent")
    if ids and (is_all or any(filters.values())):
        raise CommandError("name the runs, or use --all, --thread, --tenant or --agent, not both")
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        rows = [find_run(store, id) for id in ids] if ids else [*_all_runs(store, filters)]
        chosen = [row for row in rows if unfinished or row.state == "over"]
        try:
            with owner_only(Path(output)) if output else click.open_file("-", "wb") as file:
                for row in chosen:
                    file.writelines(lines_of(store, row))
        except OSError as error:
            raise CommandError(f"cannot write {output or 'to standard output'}: {error.strerror or error}") from None
        click.echo(f"{count_text(len(chosen))} exported", err=True)
        if skipped := len(rows) - len(chosen):
            click.echo(f"{count_text(skipped)} not finished, and left out: --unfinished exports them", err=True)


@click.command("import")
@of_log
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_file)
def import_runs(log: str, files: tuple[str, ...]) -> None:
    """Add runs from files of `penstock runs export` or from an archive. `-` is standard input.

    A run that the log has already is left as it is; if it differs, that is an error. A file that was cut or changed is
    refused at the run concerned: the runs before it are added.
    """
    added = known = 0
    with opened_log(log, lease=STEERING_LEASE) as store:
        for name in files:
            try:
                with click.open_file(name, "rb") as file:
                    for run in read_runs(file, "standard input" if name == "-" else name):
                        is_new = store.add(run.row, run.events, run.inputs, run.starts)
                        added, known = added + is_new, known + (not is_new)
            except OSError as error:
                raise CommandError(f"cannot read {name}: {error.strerror or error}") from None
            except PenstockError:
                _print_import(added, known)
                raise
        _print_import(added, known)


def _print_import(added: int, known: int) -> None:
    there = f", {known:,} {'was' if known == 1 else 'were'} there already" if known else ""
    click.echo(escape(f"{count_text(added)} imported{there}"), err=True)


@click.command("archive", short_help="Move finished runs from the log to files in DIRECTORY.")
@of_log
@click.option("--older-than", "age", required=True, metavar="AGE", help="The time since the end: 12h, 30d or 8w.")
@click.option("--dry-run", is_flag=True, help="Only count the runs that would be archived.")
@click.argument("directory", shell_complete=complete_file)
def archive_runs(log: str, age: str, dry_run: bool, directory: str) -> None:
    """Move finished runs from the log to files in DIRECTORY, one per run: TENANT/YEAR-MONTH/RUN.jsonl.gz.

    A run is deleted when its file is complete. The runs of a conversation (the same thread) are archived together, when
    the last one is old enough. `penstock runs import` brings them back.
    """
    expect_directory(directory)
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        cutoff = Cutoff(time.time() - seconds_of(age))
        count = count_old(store, cutoff) if dry_run else sweep(store, cutoff, Path(directory), _print_skipped)
        verb = "would be archived" if dry_run else f"archived in {escape(directory)}"
        click.echo(escape(f"{count_text(count)} {verb}"))


def _print_skipped(row: RunRow, error: Exception) -> None:
    click.echo(escape(f"the run {row.id} was not archived, and is kept: {error}"), err=True)


def _all_runs(store: Store, filters: dict[str, Any]) -> Iterator[RunRow]:
    """The runs with these properties, the newest first."""
    limit = PAGE
    while len(rows := store.list(**filters, limit=limit)) == limit:
        limit *= 4
    return iter(rows)
