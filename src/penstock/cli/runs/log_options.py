"""The option `--log`, runs by the beginning of their ids, and errors about both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.human_time import parse_duration
from penstock.cli.model_options import CommandError, FailureError
from penstock.cli.runs.lock_holder import find_lock_holder
from penstock.errors import PenstockError
from penstock.jsontext.shown_text import escape
from penstock.log.opening import Show
from penstock.log.opening import open as open_store
from penstock.log.retention.keep import DAY, Keep
from penstock.log.store import LEASE, RunRow, Store, StoreError
from penstock.redaction import without_secrets

Command = TypeVar("Command", bound=Callable[..., Any])

VARIABLE = "PENSTOCK_LOG"
"""The environment variable that names a log, for commands without `--log`."""
STEERING_LEASE = 6.0
"""The lease for cancelling a run. A third of it is the wait for a blocked SQLite file."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 15.0
"""The seconds between two attempts to reach a database, from the first to the longest."""
MAX_CANDIDATES = 5
"""The number of runs listed in an error about an ambiguous id."""


def log_option(description: str) -> Callable[[Command], Command]:
    """The option `--log`."""
    return click.option("--log", "log", metavar="FILE_OR_URL", envvar=VARIABLE, shell_complete=complete_file,
                        help=f"{description} A SQLite file or postgresql://…; the default is ${VARIABLE}.")  # fmt: skip


show_option = click.option("--show", type=click.Choice(get_args(Show)), default="committed", show_default=True,
                           help="Which events readers get: all in the log, or only those on disk.")  # fmt: skip
"""The option `--show`."""


def keep_options(command: Command) -> Command:
    """The options `--keep` and `--archive`."""
    keep = click.option("--keep", "keep", metavar="AGE",
                        help="Delete runs that ended longer ago, as 30d; a conversation as a whole.")  # fmt: skip
    archive = click.option("--archive", "archive", metavar="DIRECTORY", shell_complete=complete_file,
                           help="Write each run to a file in this directory before --keep deletes it.")  # fmt: skip
    return keep(archive(command))


def keep_of(age: str | None, archive: str | None) -> Keep | None:
    """How long to keep runs, by these options."""
    if age is None:
        if archive is not None:
            raise CommandError("--archive needs --keep: it is for the runs that are deleted")
        return None
    if archive is not None:
        expect_directory(archive)
    return Keep(seconds_of(age) / DAY, archive=archive)


def expect_directory(archive: str) -> None:
    """A `CommandError` if an archive cannot be where it is named."""
    if Path(archive).exists() and not Path(archive).is_dir():
        raise CommandError(f"the archive {archive} is a file: name a directory")


def seconds_of(age: str) -> float:
    """The seconds of a duration; a `CommandError` if it is none."""
    seconds = parse_duration(age)
    if seconds is None:
        raise CommandError(f"{age!r} is not a duration: use a number and s, m, h, d or w, as in 30d")
    return seconds


def of_log(command: Command) -> Command:
    """Adds `--log`, which may also stand before the name of the command."""

    def either(context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        return value or context.obj

    option: Callable[[Command], Command] = click.option(
        "--log", metavar="FILE_OR_URL", callback=either, help="The log."
    )
    return option(command)


def log_arguments(address: str) -> list[str]:
    """The option for printed commands: without secrets, and without a log from the environment."""
    return [] if os.environ.get(VARIABLE) == address else ["--log", without_secrets(address)]


@contextmanager
def opened_log(
    address: str | None,
    *,
    lease: float = LEASE,
    must_exist: bool = False,
    is_patient: bool = False,
    show: Show = "committed",
) -> Generator[Store]:
    """The store at this address, as a context; its errors end the command with one line.

    A command that `is_patient` waits for a database that cannot be reached yet.
    """
    if not address:
        raise CommandError(f"no log is named: pass --log, as in --log runs.db, or set {VARIABLE}")
    is_file = "://" not in address
    if must_exist and is_file and not Path(address).exists():
        raise CommandError(f"there is no log {address}: `penstock run … --log {address}` creates it")
    try:
        store = wait_for_store(address, lease, show) if is_patient else open_store(address, lease=lease, show=show)
    except PenstockError as error:
        raise store_error(error, address) from None
    try:
        yield store
    except PenstockError as error:
        raise store_error(error, address) from None
    finally:
        store.close()


def wait_for_store(address: str, lease: float = LEASE, show: Show = "committed") -> Store:
    """The store at this address. If it is a database that is starting, full or away, wait for it, and say so."""
    pause = FIRST_PAUSE
    while True:
        try:
            store = open_store(address, lease=lease, show=show)
        except StoreError as error:
            if not error.is_temporary or "://" not in address:
                raise
            click.echo(f"waiting for the log, next attempt in {pause:g} s: {escape(str(error))}", err=True)
            time.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)
        else:
            if pause > FIRST_PAUSE:
                click.echo("the log can be used", err=True)
            return store


def store_error(error: PenstockError, address: str) -> CommandError:
    """The error as one line, with the process that blocks a SQLite file, if known."""
    is_busy = isinstance(error, StoreError) and error.is_temporary
    holder = find_lock_holder(address) if is_busy and "://" not in address else None
    message = f"{error}; {holder.advice(address)}" if holder else str(error)
    return FailureError(message) if is_busy else CommandError(message)


def find_run(store: Store, id: str) -> RunRow:
    """The run with this id, or the only one whose id begins with it."""
    if (row := store.find(id)) is not None:
        return row
    rows = store.list(prefix=id, limit=MAX_CANDIDATES + 1) if id else []
    match rows:
        case [row]:
            return row
        case []:
            similar = get_close_matches(id, [row.id for row in store.list()], n=1)
            raise CommandError(f"there is no run {id!r}{f', did you mean {similar[0]!r}?' if similar else ''}")
        case _:
            names = ", ".join(row.id for row in rows[:MAX_CANDIDATES]) + (" …" if len(rows) > MAX_CANDIDATES else "")
            raise CommandError(f"the ids of several runs begin with {id!r}: {names}; use a longer prefix")


def count_text(count: int) -> str:
    """A number of runs."""
    return f"{count:,} run{'' if count == 1 else 's'}"
