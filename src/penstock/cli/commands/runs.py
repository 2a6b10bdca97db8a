"""`penstock runs`: lists, shows, follows and steers the runs of a log."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import get_args

import click

from penstock.cli.app import SuggestingGroup
from penstock.cli.commands.run_branches import diff_command, fork_command
from penstock.cli.commands.run_bulk import cancel_runs, list_workers, print_stats, retry_runs
from penstock.cli.commands.run_files import archive_runs, export_runs, import_runs
from penstock.cli.conversation import exit_code
from penstock.cli.model_options import CommandError, read_prompt
from penstock.cli.questions import call_text
from penstock.cli.runs.lock_holder import find_lock_holder
from penstock.cli.runs.log_options import (
    STEERING_LEASE,
    count_text,
    find_run,
    log_arguments,
    log_option,
    of_log,
    opened_log,
    seconds_of,
)
from penstock.cli.runs.logged_events import end_of, follow_events, past_events, waiting_calls
from penstock.cli.runs.numbered_events import numbered_lines
from penstock.cli.runs.run_table import as_json, details_of, print_details, print_table
from penstock.cli.runs.waiting import (
    answer_commands,
    answered_text,
    check_open,
    find_call,
    put_answer,
    read_arguments,
    run_json,
    waiting_text,
)
from penstock.cli.screen.output import render_run
from penstock.cli.screen.terminal import open_console, write_lines
from penstock.jsontext.shown_text import escape
from penstock.log.follower import parked_reason
from penstock.log.inputs import decision_input, message_input, result_input
from penstock.log.retention.sweep import count_old, sweep
from penstock.log.store import Cutoff, DamagedRunError, RunPhase, RunRow, Store
from penstock.log.take_up import read_run
from penstock.messages import user
from penstock.run.events import encode
from penstock.runs.bulk import EVERY


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@log_option("The log.")
@click.option("--json", "is_json", is_flag=True, help="Print one run per line as JSON.")
@click.pass_context
def runs(context: click.Context, log: str | None, is_json: bool) -> None:
    """List, show, follow and steer the runs of a log.

    RUN is the id of a run, or the beginning of it. Without a command, the runs are listed.

    \b
      penstock runs --log runs.db
      penstock runs --log runs.db list --state waiting
      penstock runs --log runs.db follow order-17
      penstock runs --log runs.db decide order-17 --yes
      penstock runs --log runs.db cancel --agent support --older-than 2d --dry-run
      penstock runs --log runs.db prune --older-than 30d
    """
    context.obj = log
    if context.invoked_subcommand is None:
        context.invoke(list_runs, log=log, is_json=is_json)
    elif is_json:
        raise click.UsageError(f"write --json after the command: penstock runs {context.invoked_subcommand} --json")


json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


@runs.command("list")
@of_log
@click.option("--state", type=click.Choice(get_args(RunPhase)), help="Only runs in this state.")
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option("--thread", metavar="TEXT", help="Only runs of this thread.")
@click.option("--tenant", metavar="TEXT", help="Only runs of this tenant.")
@click.option("--older-than", "age", metavar="AGE", help="Only runs without an event for so long: 45m, 12h or 30d.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    metavar="N",
    help="The maximum number of runs to list.",
)
@json_option
@click.argument("prefix", metavar="[RUN]", default="")
def list_runs(
    log: str, state: RunPhase | None, agent: str | None, thread: str | None, tenant: str | None, age: str | None,
    limit: int, is_json: bool, prefix: str,
) -> None:  # fmt: skip
    """List runs, the newest first, with the process that owns each.

    The state of a run is ready (for any worker), running, waiting (for a decision or a result), over, damaged (no
    worker takes it until its log is repaired), or parked (it may have ended its workers, and none takes it until it is
    retried). With RUN, the list has only the runs whose id begins with it. --json
    prints one run per line.
    """
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        now, most = time.time(), limit + 1 if age is None else EVERY
        rows = store.list(state=state, agent=agent, thread=thread, tenant=tenant, prefix=prefix, limit=most)
        if age is not None:
            seconds = seconds_of(age)
            rows = [row for row in rows if now - row.updated >= seconds]
        shown = rows[:limit]
        if is_json:
            write_lines(json.dumps(as_json(row)).encode() for row in shown)
        elif shown:
            print_table(open_console(), shown, now)
        else:
            click.echo("no such runs" if any((state, agent, thread, tenant, prefix, age)) else "no runs", err=True)
        for hint in hints(shown, log):
            click.secho(escape(hint), err=True, fg="yellow")
        if len(rows) > limit:
            click.echo(f"There are more runs: --limit {limit * 10:d} lists them.", err=True)
        warn_if_blocked(log)


def warn_if_blocked(log: str) -> None:
    """Names a frozen process that blocks all other writers of a SQLite file."""
    if (holder := find_lock_holder(log)) is not None and holder.condition:
        click.secho(escape(f"Warning: {holder.advice(log)}"), err=True, fg="yellow")


@runs.command("show", short_help="Show a run: its state, the calls that wait, and its events.")
@of_log
@json_option
@click.option("--plain", is_flag=True, help="Print one line per event, without colours.")
@click.option("--numbers", is_flag=True, help="Print one line per event, with its number and the id of its call.")
@click.argument("run")
def show_run(log: str, is_json: bool, plain: bool, numbers: bool, run: str) -> None:
    """Show a run: its state, the calls that wait, and its events so far.

    --json prints one object, with the calls that wait and how the run ended.
    """
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        row = find_run(store, run)
        damage = damage_text(store, row)
        waiting = [] if damage else waiting_calls(store, row)
        if is_json:
            write_lines([json.dumps(run_json(store, row, waiting, damage)).encode()])
            return
        console = open_console(is_plain=plain)
        print_details(console, {**details_of(row, time.time()), "waits for": waiting_text(waiting)})
        advice = repair_advice(row, log) if damage else answer_commands(row.id, log, waiting)
        if not damage and row.state == "parked":
            advice = retry_advice(row, log)
        print_details(console, {"damage": damage, "parked": parked_reason(store, row), "continue": advice})
        console.print()
        known = suppress(DamagedRunError) if damage else nullcontext()
        if numbers:
            with known:
                for line in numbered_lines((number, event) for number, _, event in past_events(store, row.id)):
                    click.echo(escape(line))
            return
        with known, render_run(console, is_plain=plain, is_past=True) as print_event:
            for _, at, event in past_events(store, row.id):
                print_event(event, at)
        warn_if_blocked(log)


@runs.command("follow", short_help="Print the events of a run until it finishes.")
@of_log
@click.option("--after", default="0", metavar="N", help="Start after the event with this number or position.")
@click.option("--plain", is_flag=True, help="Print one line per event, without colours or redrawing.")
@click.option("--json", "is_json", is_flag=True, help="Print one event per line as JSON, with its number.")
@click.argument("run")
def follow_run(log: str, after: str, plain: bool, is_json: bool, run: str) -> None:
    """Print the events of a run until it finishes: first the logged ones, then each new one.

    Following does not affect the run, and neither does Ctrl-C. The exit code says how the run ended, as that of
    `penstock run` does.
    """
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        row = find_run(store, run)
        console = open_console(is_plain=plain)
        if is_json:
            for position, _, event in follow_events(store, row.id, after):
                fields = position, position.token.encode(), encode(event)
                write_lines([b'{"number":%d,"position":"%b","event":%b}' % fields])
        else:
            with render_run(console, is_plain=plain) as print_event:
                for _, at, event in follow_events(store, row.id, after):
                    print_event(event, at)
        code = exit_code(end_of(store, row.id), None)
    raise SystemExit(code)


call_option = click.option("--call", metavar="ID", help="The id of the call, needed if several calls wait.")


@runs.command("decide")
@of_log
@click.option("--yes/--no", "is_approved", required=True, default=None, help="Approve or decline the call.")
@click.option("--reason", default="", metavar="TEXT", help="The reason, which the model reads.")
@click.option("--arguments", metavar="JSON", help="Run the call with these arguments instead of the model's.")
@call_option
@click.argument("run")
def decide_run(
    log: str, is_approved: bool | None, reason: str, arguments: str | None, call: str | None, run: str
) -> None:
    """Approve or decline a call that waits for approval. Only the first decision counts."""
    if is_approved is None:  # click does not require a flag whose default is None
        raise click.UsageError("Missing option '--yes' or '--no'.")
    replaced = read_arguments(arguments)
    if replaced is not None and not is_approved:
        raise CommandError("--arguments needs --yes: a call that is declined does not run")
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        row = find_run(store, run)
        request = find_call(store, row, call, "decide")
        put_answer(store, decision_input(row.id, request.call_id, is_approved, replaced, reason))
        called = call_text(request.name, request.arguments if replaced is None else replaced)
        what = f"{'approved' if is_approved else 'declined'} {called} of {row.id}"
        if replaced is not None:
            what += ", if these arguments fit the tool; otherwise the call keeps waiting"
        click.echo(escape(answered_text(row, what)))


@runs.command("provide")
@of_log
@click.option("--error", "is_error", is_flag=True, help="The call failed, and RESULT says why.")
@call_option
@click.argument("run")
@click.argument("result", required=False)
def provide_run(log: str, is_error: bool, call: str | None, run: str, result: str | None) -> None:
    """Provide the result of a call that runs outside the agent. Without RESULT, it is read from standard input."""
    text = read_prompt(result)
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        row = find_run(store, run)
        request = find_call(store, row, call, "provide")
        put_answer(store, result_input(row.id, request.call_id, text, is_error))
        what = f"{call_text(request.name, request.arguments)} of {row.id} has its result"
        click.echo(escape(answered_text(row, what)))


@runs.command("say")
@of_log
@click.argument("run")
@click.argument("message", required=False)
def say_to_run(log: str, run: str, message: str | None) -> None:
    """Add a user message, which the model gets with its next request. Without MESSAGE, standard input is read."""
    text = read_prompt(message)
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        row = find_run(store, run)
        check_open(row)
        store.put(message_input(row.id, user(text)))
        click.echo(escape(f"the model gets it with the next request of {row.id}"))


@runs.command("prune")
@of_log
@click.option(
    "--older-than", "age", required=True, metavar="AGE", help="The time since the last event: 45m, 12h, 30d or 8w."
)
@click.option("--dry-run", is_flag=True, help="Only count the runs that would be deleted.")
def prune_runs(log: str, age: str, dry_run: bool) -> None:
    """Delete finished runs, with their events and media. Unfinished runs are kept, however old.

    The runs of a conversation (the same thread) are deleted together, when the last one is old enough.
    """
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        cutoff = Cutoff(time.time() - seconds_of(age))
        count = count_old(store, cutoff) if dry_run else sweep(store, cutoff)
        click.echo(f"{count_text(count)} {'would be deleted' if dry_run else 'deleted'}")


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


def retry_advice(row: RunRow, log: str) -> str:
    """How to continue a parked run."""
    head = shlex.join(["penstock", "runs", *log_arguments(log)])
    return f"no worker takes it. Try it again, alone: `{head} retry {row.id}`. Or end it: `{head} cancel {row.id}`"


def hints(rows: Sequence[RunRow], log: str) -> Iterator[str]:
    """Hints for lists with damaged or parked runs."""
    reasons = {"damaged": "until its log is repaired", "parked": "until it is retried"}
    for state, reason in reasons.items():
        if ids := [row.id for row in rows if row.state == state]:
            command = shlex.join(["penstock", "runs", *log_arguments(log), "show", ids[0]])
            yield f"Workers skip a {state} run {reason}: `{command}` says what is wrong."


for command in (
    fork_command, diff_command, export_runs, import_runs, archive_runs, cancel_runs, retry_runs, list_workers,
    print_stats,
):  # fmt: skip
    runs.add_command(command)
