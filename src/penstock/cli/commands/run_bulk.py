"""`penstock runs cancel`, `retry`, `workers` and `stats`: many runs at once, and who drives them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, get_args

import click
import msgspec
from msgspec import Struct

from penstock.cli.commands.log import size_text
from penstock.cli.human_time import ago, duration_text
from penstock.cli.model_options import CommandError
from penstock.cli.runs.log_options import STEERING_LEASE, count_text, find_run, of_log, opened_log, seconds_of
from penstock.cli.runs.owners import parse_owner
from penstock.cli.runs.waiting import check_open
from penstock.cli.screen.terminal import write_lines
from penstock.errors import UsageError
from penstock.jsontext.shown_text import escape
from penstock.log.ending import cancel_claimed
from penstock.log.follower import new_owner
from penstock.log.inputs import cancel_input
from penstock.log.retention.survey import WorkerRow
from penstock.log.store import RunPhase, RunRow, Store
from penstock.log.take_up import read_run
from penstock.runs.bulk import CANCELLABLE, RETRIABLE, RunFilter, retry_run

CANCELLED = "the run was cancelled"
Command = TypeVar("Command", bound=Callable[..., object])


class Chosen(Struct, frozen=True, kw_only=True):
    """The options that choose runs, and whether to ask before anything is done."""

    run: tuple[str, ...]
    is_all: bool
    agent: str | None
    tenant: str | None
    state: RunPhase | None
    age: str | None
    dry_run: bool
    yes: bool

    @property
    def is_bulk(self) -> bool:
        return self.is_all or any(each is not None for each in (self.agent, self.tenant, self.state, self.age))

    def rows(self, store: Store, states: Sequence[RunPhase]) -> list[RunRow]:
        """The runs that are meant: by their ids, or by the options."""
        if self.run and self.is_bulk:
            raise CommandError("name runs, or choose them by options: both at once are not clear")
        if not self.run and not self.is_bulk:
            raise CommandError("name a run, or choose runs: --all, --agent, --tenant, --state or --older-than")
        if self.run:
            return [find_run(store, id) for id in self.run]
        older_than = None if self.age is None else seconds_of(self.age)
        try:
            chosen = RunFilter(state=self.state, agent=self.agent, tenant=self.tenant, older_than=older_than)
            return chosen.rows(store, states)
        except UsageError as error:
            raise CommandError(str(error)) from None

    def confirm(self, rows: Sequence[RunRow], verb: str, past: str) -> bool:
        """Whether to go on; says what would be done, or asks, if the runs were chosen by options."""
        if self.dry_run:
            by_state = {state: sum(row.state == state for row in rows) for state in get_args(RunPhase)}
            counts = ", ".join(f"{count:,} {state}" for state, count in by_state.items() if count)
            click.echo(escape(f"{count_text(len(rows))} would be {past}{f': {counts}' if counts else ''}"))
            return False
        if not self.is_bulk or self.yes:
            return True
        if not rows:
            click.echo("no such runs", err=True)
            return False
        if not is_asked():
            raise CommandError(f"{verb} {count_text(len(rows))}? Add --yes, or --dry-run to count them only")
        return click.confirm(f"{verb} {count_text(len(rows))}?", err=True)


def is_asked() -> bool:
    """Whether somebody is there who can be asked."""
    return sys.stdin.isatty()


def choosing(command: Command) -> Command:
    """Adds the options that choose runs."""
    options: list[Callable[[Command], Command]] = [
        of_log,
        click.option("--all", "is_all", is_flag=True, help="Choose all runs for which this is possible."),
        click.option("--agent", metavar="NAME", help="Choose runs of this agent."),
        click.option("--tenant", metavar="TEXT", help="Choose runs of this tenant."),
        click.option("--state", type=click.Choice(get_args(RunPhase)), help="Choose runs in this state."),
        click.option("--older-than", "age", metavar="AGE",
                     help="Choose runs without an event for so long: 45m, 12h or 30d."),
        click.option("--dry-run", is_flag=True, help="Only count the runs."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask before many runs are changed."),
        click.argument("run", nargs=-1),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command("cancel")
@choosing
@click.option("--why", default=CANCELLED, metavar="TEXT", help="The reason, which is recorded at the end of the run.")
def cancel_runs(log: str, why: str, **options: object) -> None:
    """Cancel runs. A run that no process owns ends at once; any other is ended by the process that owns it.

    Name the runs, or choose unfinished ones by options, which are combined. --dry-run counts them.

    \b
      penstock runs --log runs.db cancel order-17
      penstock runs --log runs.db cancel --agent support --older-than 2d --dry-run
    """
    chosen = Chosen(**options)  # type: ignore[arg-type]
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        rows = chosen.rows(store, CANCELLABLE)
        if chosen.confirm(rows, "Cancel", "cancelled"):
            for row in rows:
                click.echo(escape(_cancel(store, row, why)))


def _cancel(store: Store, row: RunRow, why: str) -> str:
    """Cancels a run; returns what happens."""
    check_open(row)
    store.put(cancel_input(row.id, why))
    claim = store.claim(new_owner(), run_id=row.id)
    if claim is not None and cancel_claimed(store, claim, why):
        return f"cancelled {row.id}"
    row = find_run(store, row.id)
    if row.state == "over":
        return f"{row.id} has finished meanwhile"
    owner = parse_owner(row.owner)
    if owner.condition:
        left = duration_text(max(0.0, row.lease_until - time.time()) + 1)
        return f"{owner.text} is {owner.condition}: a worker ends {row.id} in {left}, or cancel it again then"
    return f"{owner.text} cancels {row.id}"


@click.command("retry", short_help="Let workers continue parked or repaired runs.")
@choosing
def retry_runs(log: str, **options: object) -> None:
    """Let workers continue parked runs, and damaged runs whose logs were repaired.

    A parked run continues alone on a worker, and is parked again if it ends that worker too. Name the runs, or choose
    them by options, which are combined.

    \b
      penstock runs --log runs.db retry order-17
      penstock runs --log runs.db retry --all --state parked
    """
    chosen = Chosen(**options)  # type: ignore[arg-type]
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        rows = chosen.rows(store, RETRIABLE)
        if chosen.confirm(rows, "Retry", "retried"):
            for row in rows:
                click.echo(escape(_retry(store, row, is_bulk=chosen.is_bulk)))


def _retry(store: Store, row: RunRow, *, is_bulk: bool) -> str:
    """Makes a damaged or parked run available to workers, if its log is readable; returns a message."""
    if row.state not in RETRIABLE:
        raise CommandError(f"only a damaged or parked run can be retried, and {row.id} is {row.state}")
    if row.state == "damaged" and not is_bulk:
        read_run(store, row)  # which says what is wrong
    if not retry_run(store, row):
        return f"{row.id} is still {row.state}, or somebody else has retried it"
    if row.state == "parked":
        return f"a worker continues {row.id} alone; if it ends that worker too, it is parked again"
    return f"{row.id} can be read again: the next worker continues it"


json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


@click.command("workers", short_help="List the processes that drive runs.")
@of_log
@json_option
def list_workers(log: str, is_json: bool) -> None:
    """List the processes that drive runs: workers and servers, also those without runs.

    One that has not stopped by itself, and has given no sign of life for 30 seconds, is gone; it is listed for an hour.
    """
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        workers = store.survey.workers()
    if is_json:
        write_lines(json.dumps(msgspec.to_builtins(worker)).encode() for worker in workers)
        return
    for worker in workers:
        click.echo(escape(_worker_line(worker, time.time())))
    if not workers:
        click.echo("no process drives runs of this log", err=True)


def _worker_line(worker: WorkerRow, now: float) -> str:
    owner = parse_owner(worker.owner)
    condition = owner.condition or ("alive" if worker.is_alive else "gone")
    agents = f", agents {', '.join(worker.agents)}" if worker.agents else ""
    seen = f", last seen {ago(worker.seen, now)}" if worker.seen and not worker.is_alive else ""
    since = f", since {ago(worker.started, now)}" if worker.started and worker.is_alive else ""
    return f"{condition:7} {worker.kind:7} {owner.text}: {count_text(worker.runs)}{agents}{since}{seen}"


@click.command("stats", short_help="Print the queue, who is alive, and the size of the log.")
@of_log
@json_option
def print_stats(log: str, is_json: bool) -> None:
    """Print how many unfinished runs there are, how long the queue is, who is alive, and the size of the log."""
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        counts, size = store.survey.counts(), store.survey.size()
    if is_json:
        write_lines([json.dumps({**msgspec.to_builtins(counts), "size": size}).encode()])
        return
    states = ", ".join(f"{counts.runs[state]:,} {state}" for state in CANCELLABLE if counts.runs.get(state))
    agents = ", ".join(f"{count:,} of {agent}" for agent, count in sorted(counts.ready.items()))
    click.echo(escape(f"unfinished: {states or 'no runs'}"))
    if agents:
        click.echo(escape(f"ready: {agents}; the first waits for {duration_text(counts.oldest_ready)}"))
    if counts.expired:
        click.echo(f"{count_text(counts.expired)} lost their owner, and nobody has taken them over yet")
    click.echo(f"alive: {counts.workers:,} process{'' if counts.workers == 1 else 'es'}")
    click.echo(escape(f"size: {size_text(size)}"))
