"""What holds after a round, whatever was killed or frozen when."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from msgspec import Struct

from penstock import Done, ToolEnd, ToolStart, check
from penstock.log import Store
from penstock.log.take_up import read_log
from penstock.run.events import LogEvent, RunStart, Taken, Waiting, is_for_readers
from penstock.run.rebuild import rebuild
from tests.chaos.agents import EFFECTS
from tests.chaos.ledger import Note
from tests.chaos.processes import digest
from tests.chaos.round import Played


class Verdict(Struct):
    """The sum of some rounds."""

    runs: int = 0
    hits: int = 0
    takeovers: int = 0
    spurious: int = 0  # takeovers from a process that was not hit, which a busy machine causes
    starts: int = 0  # of tools that must not run twice
    again: int = 0  # starts of idempotent tools with a key that was used before
    reads: int = 0
    inside_a_write: int = 0
    parked: int = 0  # times that a run was set aside
    repeated: int = 0  # runs with an effect that a database which was restored knew nothing of
    seconds: list[float] = []  # from a hit to the takeover of a run of the process
    problems: list[str] = []

    def add(self, other: Verdict) -> None:
        """Add another one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def row(self, title: str) -> str:
        """A row of a table."""
        twice = sum("twice" in problem for problem in self.problems)
        times = f"{min(self.seconds):.2f}-{max(self.seconds):.2f}, {median(self.seconds):.2f}" if self.seconds else "-"
        return (
            f"| {title:22} | {self.runs:5} | {self.hits:5} | {self.takeovers:5} | {self.spurious:5} "
            f"| {twice:3} of {self.starts:6} "
            f"| {self.again:5} | {self.reads:7} | {self.inside_a_write:4} | {times:20} "
            f"| {self.parked:6} | {self.repeated:8} | {len(self.problems):5} |"
        )


HEADER = (
    "| trial                  |  runs |  hits | taken | spur. | twice of starts | again | read    | lock "
    "| hit to taken, median | parked | repeated | wrong |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


class _Run:
    """The log of a run, and the notes about it."""

    def __init__(self, run_id: str, store: Store, played: Played) -> None:
        self.id = run_id
        rows = list(read_log(store, run_id))
        self.times = [at for _, at, _ in rows]
        self.events: list[LogEvent] = [event for _, _, event in rows]
        self.notes = [note for note in played.notes if note.run_id == run_id]
        self.owners = [(at, event) for _, at, event in rows if isinstance(event, Taken)]
        self.waited = {  # the epochs of owners who found the run waiting, or new
            event.epoch
            for before, event in pairwise(self.events)
            if isinstance(event, Taken) and isinstance(before, RunStart | Waiting)
        }

    def owner_at(self, at: float) -> Taken | None:
        """Who owned the run at a time, or had owned it last."""
        place = bisect_right([taken for taken, _ in self.owners], at)
        return self.owners[place - 1][1] if place else None

    def epoch_of(self, seq: int) -> int:
        """The epoch of the event with this number."""
        return max((event.epoch for event in self.events[:seq] if isinstance(event, Taken)), default=0)

    def noted(self, what: str) -> list[Note]:
        return [note for note in self.notes if note.what == what]


def judge(played: Played, store: Store) -> Verdict:
    """Check a round."""
    verdict = Verdict(
        hits=len(played.hits),
        inside_a_write=played.frozen_inside_a_write,
        parked=played.parked,
        problems=[*played.problems],
    )
    for run_id in played.run_ids:
        run = _Run(run_id, store, played)
        verdict.runs += 1
        verdict.takeovers += sum(taken.epoch not in run.waited for _, taken in run.owners)
        verdict.starts += sum(note.name in EFFECTS for note in run.noted("start"))
        keys = Counter(note.key for note in run.noted("start") if note.name == "put")
        verdict.again += keys.total() - len(keys)
        verdict.reads += len(run.noted("read"))
        seconds = list(_takeovers(run, played))
        verdict.seconds += [waited for waited in seconds if waited is not None]
        verdict.spurious += seconds.count(None)
        checks = [_ended, _pairs, _read]
        if played.may_repeat_effects:
            verdict.repeated += any(_effects(run))
        else:
            checks += [_effects, _ran, _owners]
        if not played.may_lose_events:
            checks += [_appends, _shown]
        verdict.problems += [f"{run_id}: {problem}" for check_one in checks for problem in check_one(run)]
    return verdict


def _ended(run: _Run) -> Iterator[str]:
    if not isinstance(run.events[-1], Done):
        yield f"unfinished: the last event is {run.events[-1]}"
    elif run.events[-1].reason != "answered":
        yield f"unfinished: it ended as {run.events[-1]}"
    for problem in check(rebuild(run.events, {}).state.messages):
        yield f"the history is not valid: {problem}"


def _effects(run: _Run) -> Iterator[str]:
    started = Counter(note.name for note in run.noted("start"))
    for name in EFFECTS:
        if started[name] > 1:
            yield f"{name} ran twice: {[note for note in run.noted('start') if note.name == name]}"
    if len({note.key for note in run.noted("start") if note.name == "put"}) > 1:
        yield "put ran under two keys"


def _pairs(run: _Run) -> Iterator[str]:
    starts = Counter(event.key for event in run.events if isinstance(event, ToolStart))
    ends = Counter(event.key for event in run.events if isinstance(event, ToolEnd))
    for key, count in starts.items():
        if count > 1 or ends[key] != 1:
            yield f"{key} has {count} starts and {ends[key]} ends"


def _ran(run: _Run) -> Iterator[str]:
    starts = {event.key for event in run.events if isinstance(event, ToolStart)}
    for note in run.noted("start"):
        if note.name != "look" and note.key.split(":")[1] not in starts:
            yield f"{note.name} ran, and the log does not have its start"
    returned = {note.key.split(":")[1] for note in run.noted("end")}
    for event in run.events:
        if (
            isinstance(event, ToolEnd)
            and event.ending == "done"
            and event.key not in returned
            and not event.result.is_error
        ):
            yield f"{event.name} is done in the log, and has not returned"


def _owners(run: _Run) -> Iterator[str]:
    for note in run.noted("start"):
        owner = run.owner_at(note.at)
        if owner is None or f":{note.pid}:" not in owner.owner:
            yield f"{note.name} started in the process {note.pid}, which did not own the run: {owner}"


def _appends(run: _Run) -> Iterator[str]:
    for note in run.noted("append"):
        if run.epoch_of(note.seq + note.count) != note.epoch:
            yield f"a process that was replaced has written: {note}"


def _read(run: _Run) -> Iterator[str]:
    expected = [(seq, digest(event)) for seq, event in enumerate(run.events, 1)]
    notes = [note for note in run.notes if note.what in ("read", "reset")]
    last_reset = max((place for place, note in enumerate(notes) if note.what == "reset"), default=-1)
    read = [(note.seq, note.name) for note in notes[last_reset + 1 :]]
    if read != expected:
        numbers = [seq for seq, _ in read]
        yield f"the reader got {numbers} of {len(expected)} events"


def _shown(run: _Run) -> Iterator[str]:
    own = RunStart | Taken | Waiting
    logged = [digest(event) for event in run.events if is_for_readers(event) and not isinstance(event, own)]
    shown: dict[str, list[str]] = {}
    for note in run.noted("shown"):
        shown.setdefault(note.key, []).append(note.name)
    for reader, names in shown.items():
        if names != logged[: len(names)]:
            yield f"the reader {reader} was shown what the log does not have"


def _takeovers(run: _Run, played: Played) -> Iterator[float | None]:
    """How long after the hit on its owner a run was taken over; None if the owner was not hit."""
    for (since, before), (at, taken) in pairwise(run.owners):
        pid = int(before.owner.split(":")[1])
        hit = next((hit for hit in played.hits if hit.pid == pid and since <= hit.at < at), None)
        if taken.epoch not in run.waited:
            yield None if hit is None else at - hit.at
