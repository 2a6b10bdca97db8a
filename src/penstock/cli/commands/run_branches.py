"""`penstock runs fork` and `diff`: another course of a run from any event on, and where two runs part."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click
import msgspec

from penstock.cli.model_options import CommandError
from penstock.cli.runs.log_options import STEERING_LEASE, find_run, log_arguments, of_log, opened_log
from penstock.cli.runs.numbered_events import numbered_line
from penstock.cli.runs.run_table import as_json
from penstock.cli.screen.terminal import write_lines
from penstock.errors import ToolError
from penstock.jsontext.shown_text import escape
from penstock.log.branches.difference import PartingEvent, difference
from penstock.log.branches.fork import ForkRequest, fork_of, fork_run
from penstock.log.store import RunRow, Store
from penstock.messages import user

_DECISIONS = {"yes": True, "no": False}


@click.command("fork", short_help="Start a run with the events of another one, until any of them.")
@of_log
@click.option("--at", required=True, metavar="EVENT", help="The last event to take, by its number or position.")
@click.option("--model", default="", metavar="NAME",
              help="Continue with this model: provider:model, or one of the agent's models=.")  # fmt: skip
@click.option("--result", "results", multiple=True, metavar="CALL=JSON",
              help="The result of a call, instead of its own; text that is not JSON is taken as it is.")  # fmt: skip
@click.option("--failure", "failures", multiple=True, metavar="CALL=TEXT", help="The call fails, with this message.")
@click.option("--say", metavar="TEXT", help="Add a user message, which the model gets with its next request.")
@click.option("--decide", "decisions", multiple=True, metavar="CALL=yes|no",
              help="Approve or decline a call that waits at this event.")  # fmt: skip
@click.option("--repeat-effects", is_flag=True,
              help="Run tools again for calls that the other run has made after this event.")  # fmt: skip
@click.option("--id", "fork_id", metavar="ID", help="The id of the fork; the same fork with the same id is made once.")
@click.option("--thread", metavar="TEXT",
              help="The thread of the fork; without it, a fork of a run in a thread begins its own.")  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print the fork as JSON.")
@click.argument("run")
def fork_command(
    log: str, at: str, model: str, results: tuple[str, ...], failures: tuple[str, ...], say: str | None,
    decisions: tuple[str, ...], repeat_effects: bool, fork_id: str | None, thread: str | None, is_json: bool, run: str,
) -> None:  # fmt: skip
    """Start a run with the events of another one until an event, which continues with another model, result or message.

    The other run does not change. Calls that it has made keep their results, and their tools do not run again, also if
    the fork makes the same calls as the other run did after the event. A result is replaced at the event `answered` of
    its response, or later, until the next request.

    \b
      penstock runs show order-17 --numbers
      penstock runs fork order-17 --at 12 --model anthropic:claude-sonnet-4-5
      penstock runs fork order-17 --at 21 --result call_1='{"balance": 0}'
    """
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        request = ForkRequest(
            run_id=_parent_id(store, run, fork_id), at=at, model=model,
            results={**_by_call("--result", results, _value), **_by_call("--failure", failures, ToolError)},
            say=None if say is None else user(say), decisions=_by_call("--decide", decisions, _decision),
            repeats_effects=repeat_effects,
        )  # fmt: skip
        row = fork_run(store, request, fork_id=fork_id, thread=thread)
        if is_json:
            write_lines([json.dumps(as_json(row)).encode()])
            return
        click.echo(escape(_forked_text(row, request, log)))


@click.command("diff", short_help="Show the first event where two runs part.")
@of_log
@click.option("--json", "is_json", is_flag=True, help="Print one object, with the numbers and the events.")
@click.argument("first")
@click.argument("second")
def diff_command(log: str, is_json: bool, first: str, second: str) -> None:
    """Show the first event where two runs part: what a model said or called, a result, or what a person did.

    Times, usage, ids of calls and workers are not compared. The exit code is 0 if the runs are the same, and 1 if they
    part.
    """
    with opened_log(log, lease=STEERING_LEASE, must_exist=True) as store:
        rows = [find_run(store, id) for id in (first, second)]
        found = difference(store, rows[0].id, rows[1].id)
        events = dict(zip((row.id for row in rows), (found.first, found.second), strict=True))
        if is_json:
            sides = [{"run": id, **_side_json(event)} for id, event in events.items()]
            write_lines([json.dumps({"is_same": found.is_same, "common": found.common, "runs": sides}).encode()])
        elif found.is_same:
            click.echo(escape(f"{rows[0].id} and {rows[1].id} are the same"))
        else:
            click.echo(escape(f"the same until event {found.common} of {rows[0].id}, then:"))
            for row, event in zip(rows, (found.first, found.second), strict=True):
                click.echo(escape(f"  {row.id}{_side_text(row, event)}"))
    raise SystemExit(0 if found.is_same else 1)


def _side_text(row: RunRow, event: PartingEvent | None) -> str:
    """How a run differs: the event where it parts, or that it has no more events."""
    if event is not None:
        return f": event {numbered_line(event.number, event.event).strip()}"
    return " has ended" if row.state == "over" else f" has no more events yet (its state is {row.state})"


def _parent_id(store: Store, run: str, fork_id: str | None) -> str:
    """The id of the run to fork. If the fork exists, that run may have been deleted since."""
    known = fork_of(store, fork_id) if fork_id else None
    if known is not None and known.run.startswith(run) and store.find(known.run) is None:
        return known.run
    return find_run(store, run).id


def _forked_text(row: RunRow, request: ForkRequest, log: str) -> str:
    head = f"{row.id} is a fork of {request.run_id} at event {request.at}"
    if row.state == "over":
        return f"{head}, where that has ended: nothing is left to do"
    command = shlex.join(["penstock", "run", "agent.py", *log_arguments(log), "--resume", row.id])
    return f"{head}; a worker continues it, or `{command}`"


def _by_call(option: str, values: tuple[str, ...], read: Any) -> dict[str, Any]:
    """The values of an option, by the ids of calls."""
    read_values: dict[str, Any] = {}
    for text in values:
        call, separator, value = text.partition("=")
        if not separator or not call:
            raise CommandError(f"{option} {text!r:.60} has no call: use CALL=VALUE, with the id of a call")
        read_values[call] = read(value)
    return read_values


def _value(text: str) -> Any:
    """JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _decision(text: str) -> bool:
    if text not in _DECISIONS:
        raise CommandError(f"--decide takes CALL=yes or CALL=no, not {text!r:.60}")
    return _DECISIONS[text]


def _side_json(event: PartingEvent | None) -> dict[str, Any]:
    if event is None:
        return {"number": None, "event": None}
    return {"number": event.number, "event": msgspec.to_builtins(event.event, enc_hook=str)}
