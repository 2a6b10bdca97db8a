"""The outbox of a run: order, back-pressure, and reports that replace unread ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from penstock import ApprovalRequest, Done, Message, StreamEvent, Text, ToolProgress
from penstock.log.outbox import LoggedOutbox
from penstock.log.run_writer import RunWriter
from penstock.run.events import LogEvent
from penstock.run.machine import Run
from penstock.run.outbox import MAX_AHEAD, Outbox, UnreadOutbox


def report(key: str, data: Any) -> list[StreamEvent]:
    return [ToolProgress(key, f"call_{key}", "count", data)]


def text(count: int = 1) -> list[StreamEvent]:
    return [Text(0, str(number)) for number in range(count)]


def filled() -> Outbox:
    outbox = Outbox()
    outbox.put(text(MAX_AHEAD + 1))
    assert outbox.is_full
    return outbox


def unit(outbox: Outbox) -> list[StreamEvent]:
    """The next unit."""
    item = outbox.take()
    assert isinstance(item, Iterator)
    return list(item)


def taken(outbox: Outbox) -> list[StreamEvent]:
    return [event for _ in range(len(outbox.items)) for event in unit(outbox)]


def test_units_are_read_whole_and_in_order() -> None:
    outbox = Outbox()
    units = [text(2), report("a", 1), text(1), report("a", 2)]
    assert all(outbox.put(one[:]) for one in units)
    assert [unit(outbox) for _ in units] == units
    assert not outbox.items
    assert outbox.take() is None


def test_a_gate_is_taken_after_everything_that_was_put_before_it() -> None:
    outbox, reached = Outbox(), list[str]()
    outbox.put(text(2))
    outbox.hold(lambda: reached.append("gate"))
    outbox.put(text(1))
    assert (unit(outbox), reached) == (text(2), [])
    gate = outbox.take()
    assert callable(gate)
    gate()
    assert (unit(outbox), reached) == (text(1), ["gate"])


def test_what_is_dropped_is_what_the_reader_has_not_got() -> None:
    outbox = Outbox()
    outbox.put(text(3))
    outbox.hold(lambda: None)
    outbox.put(report("a", 1))
    events = outbox.take()
    assert isinstance(events, Iterator)
    assert next(events) == Text(0, "0")
    unread = [Text(0, "1"), Text(0, "2"), *report("a", 1)]
    assert outbox.unread_events == unread
    assert outbox.most_unread == 4
    assert outbox.drop() == unread
    assert (list(events), outbox.unread_events, outbox.take(), outbox.unread) == ([], [], None, 0)


def test_it_is_full_until_half_of_it_is_read() -> None:
    outbox = Outbox()
    for _ in range(MAX_AHEAD):
        outbox.put(text())
    assert not outbox.is_full
    outbox.put(text())
    assert outbox.is_full
    while outbox.unread > MAX_AHEAD // 2:
        assert outbox.is_full
        outbox.take()
    assert not outbox.is_full


def test_while_it_is_full_the_newest_report_replaces_the_unread_one_of_its_tool() -> None:
    outbox = filled()
    assert outbox.put(report("a", 1))
    assert outbox.put(report("b", 1))
    assert not outbox.put(report("a", 2))
    assert not outbox.put(report("b", 2))
    assert not outbox.put(report("a", 3))
    outbox.take()
    assert taken(outbox) == [*report("a", 3), *report("b", 2)]


def test_while_the_outbox_of_a_log_is_full_only_the_newest_report_of_each_tool_is_written() -> None:
    units: list[Sequence[LogEvent]] = []

    class Writer:
        def put(self, events: Sequence[LogEvent], inputs: Sequence[int] = ()) -> None:
            units.append(events)

    outbox = LoggedOutbox()
    outbox.writer = cast(RunWriter, Writer())
    outbox.put(text(MAX_AHEAD + 1))
    for number in range(3):
        outbox.put(report("a", number))
        outbox.put(report("b", number))
    assert len(units) == 1
    outbox.put(text())
    assert units[1:] == [report("a", 2), report("b", 2), text()]
    assert outbox.committed(4) == 4
    assert taken(outbox) == [*text(MAX_AHEAD + 1), *report("a", 2), *report("b", 2), *text()]


def test_what_only_the_reader_gets_comes_with_the_last_unit_and_is_not_written() -> None:
    units: list[Sequence[LogEvent]] = []

    class Writer:
        def put(self, events: Sequence[LogEvent], inputs: Sequence[int] = ()) -> None:
            units.append(events)

    outbox = LoggedOutbox()
    outbox.writer = cast(RunWriter, Writer())
    assert outbox.put(report("a", 0), ())  # nothing waits for the log
    outbox.put(text(2))
    outbox.hold(lambda: None)
    assert not outbox.put(report("a", 1), ())
    assert outbox.unread == 4
    assert outbox.committed(1) == 2
    assert units == [text(2)]
    assert (unit(outbox), unit(outbox)) == (report("a", 0), [*text(2), *report("a", 1)])
    assert callable(outbox.take())
    assert outbox.is_idle


def test_a_unit_that_cannot_be_written_does_not_take_the_place_of_the_next_one() -> None:
    class Writer:
        def put(self, events: Sequence[LogEvent], inputs: Sequence[int] = ()) -> None:
            if events == unwritable:
                raise ValueError("it cannot be encoded")

    unwritable = [Text(0, "x")]
    outbox = LoggedOutbox()
    outbox.writer = cast(RunWriter, Writer())
    with pytest.raises(ValueError, match="cannot be encoded"):
        outbox.put([*unwritable])
    outbox.put(text())
    assert outbox.committed(1) == 1
    assert taken(outbox) == text()


def test_a_drained_outbox_has_only_the_gates_and_room_for_what_was_dropped() -> None:
    class Writer:
        def put(self, events: Sequence[LogEvent], inputs: Sequence[int] = ()) -> None: ...

    opened: list[int] = []
    outbox = LoggedOutbox()
    outbox.writer = cast(RunWriter, Writer())
    outbox.is_drained = True
    outbox.put(text(MAX_AHEAD + 1))
    outbox.put(text())
    assert not outbox.hold(lambda: opened.append(1))
    assert outbox.is_full
    assert outbox.committed(1) == 0, "there is a unit before the gate that the log does not have"
    assert (outbox.unread, outbox.is_full) == (len(text()), False)
    assert outbox.committed(1) == 1
    gate = outbox.take()
    assert callable(gate)
    gate()
    assert (opened, outbox.unread, outbox.is_idle) == ([1], 0, True)


def test_a_newer_report_never_comes_before_an_older_one() -> None:
    outbox = Outbox()
    outbox.put(report("a", 1))
    outbox.put(text(MAX_AHEAD))
    outbox.put(report("a", 2)), outbox.put(report("a", 3))
    assert [event.data for event in taken(outbox) if isinstance(event, ToolProgress)] == [3]
    outbox.put(report("a", 4)), outbox.put(report("a", 5))
    assert [event.data for event in taken(outbox) if isinstance(event, ToolProgress)] == [4, 5]


def test_a_request_that_was_answered_before_it_was_read_is_not_read() -> None:
    outbox = Outbox()
    requests: list[StreamEvent] = [ApprovalRequest("a", "pay", {}), ApprovalRequest("b", "pay", {}, "deferred")]
    outbox.put(requests[:])
    outbox.withdraw("a", "deferred")
    outbox.withdraw("a", "approval")
    assert (outbox.unread, unit(outbox)) == (1, requests[1:])
    outbox.withdraw("a", "approval")
    outbox.put([requests[0]])
    outbox.withdraw("a", "approval")
    assert (outbox.unread, unit(outbox)) == (0, [])


def test_of_a_run_that_nobody_reads_only_gates_and_the_end_are_kept() -> None:
    run = Run([Message("user", (Text(0, "Hi."),))], {})
    outbox, done = UnreadOutbox(run.state), Done("answered", "", (), run.usage)
    assert not outbox.put(text(MAX_AHEAD + 1))
    assert (outbox.is_idle, outbox.is_full, outbox.most_unread) == (True, False, 0)
    run.state.phase = "tools"
    assert outbox.put(text()), "the calls may all wait: its reader wakes up to look"
    assert outbox.is_idle
    assert outbox.hold(print)
    assert outbox.put([*text(), done])
    assert outbox.take() is print
    assert unit(outbox) == [*text(), done]
