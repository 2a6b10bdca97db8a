"""Damaged runs: what is wrong with their logs, and how to retry them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from penstock.cli.model_options import CommandError
from penstock.cli.runs.log_options import log_arguments
from penstock.log.ending import release_claimed
from penstock.log.follower import new_owner
from penstock.log.store import DamagedRunError, RunRow, Store
from penstock.log.take_up import read_run, take_up


def damage_text(store: Store, row: RunRow) -> str:
    """The damage of a run's log, also before a worker has found it; empty if there is none."""
    try:
        read_run(store, row)
    except DamagedRunError as error:
        return str(error)
    return "nothing any more: the log was repaired" if row.state == "damaged" else ""


def repair_advice(row: RunRow, log: str) -> str:
    """How to continue a damaged run; empty if it has finished."""
    if row.state == "over":
        return ""
    if row.state != "damaged":
        return "restore the log from a backup, or upgrade penstock if a later version wrote it: no worker can read it"
    head = shlex.join(["penstock", "runs", *log_arguments(log)])
    return (
        f"no worker takes it. Restore the log from a backup, or upgrade penstock if a later version wrote it; then "
        f"`{head} retry {row.id}`. Or end it: `{head} cancel {row.id}`"
    )


def damaged_hint(rows: Sequence[RunRow], log: str) -> str:
    """A hint for lists with damaged runs; empty if there are none."""
    damaged = [row for row in rows if row.state == "damaged"]
    if not damaged:
        return ""
    command = shlex.join(["penstock", "runs", *log_arguments(log), "show", damaged[0].id])
    return f"Workers skip a damaged run until its log is repaired: `{command}` says what is wrong."


def retry(store: Store, row: RunRow) -> str:
    """Makes a damaged run available to workers, if its log is readable again; returns a message."""
    if row.state != "damaged":
        raise CommandError(f"only a damaged run can be retried, and {row.id} is {row.state}")
    read_run(store, row)
    claim = store.claim(new_owner(), run_id=row.id)
    if claim is not None:
        take_up(store, claim, {})
        release_claimed(store, claim)
    return f"{row.id} can be read again: the next worker continues it"
