"""Logs that are damaged, foreign, full or gone: a clear error or a bounded wait, and no tool starts."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import StoreError, StreamEvent, ToolEnd, UsageError
from penstock.log import PostgresStore, RunRow, SQLiteStore, Store, points, store_retries
from penstock.log.bodies import body_of
from penstock.log.follow import follow
from penstock.log.in_memory import MemoryStore
from penstock.log.store import VERSION, Batch, Input
from penstock.log.take_up import read_log
from penstock.messages import user
from penstock.run.events import RunStart
from penstock.runs.worker import Worker
from penstock.testing import FakeClock
from tests.log.sqlite.connections import connection_of
from tests.log_stores import Clock, Desk, interrupted_desk
from tests.postgres import NoServer, drop, new_schema, own_server

SOON = 30.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a store that fails."""
    monkeypatch.setattr(store_retries, "RETRY_SECONDS", 0.2)


# -- damaged and foreign logs ------------------------------------------------------------------------------------------


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Buy milk. " * 1000)
    with pytest.raises(StoreError, match=r"notes\.txt cannot be opened: file is not a database") as caught:
        SQLiteStore(path)
    assert not caught.value.is_temporary
    assert path.read_text() == "Buy milk. " * 1000
    with pytest.raises(StoreError, match="unable to open database file"):
        SQLiteStore(tmp_path)


def test_a_database_of_another_program_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "contacts.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE contacts (name TEXT)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"contacts\.db is a database of another program, not a log"):
        SQLiteStore(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    for number in range(100):
        store.create(RunRow(id=f"run {number}", agent="desk"), b"s" * 4000)
    store.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StoreError, match="database disk image is malformed") as caught:
        SQLiteStore(path).list()
    assert not caught.value.is_temporary


def forget_event(store: Store, run_id: str, seq: int) -> None:
    """Delete an event, which no operation of a store does."""
    match store:
        case SQLiteStore():
            connection_of(store._file).execute("DELETE FROM events WHERE run_id = ? AND seq = ?", (run_id, seq))
        case PostgresStore():
            store._execute("DELETE FROM {schema}.events WHERE run_id = %(run)s AND seq = %(seq)s", run=run_id, seq=seq)
        case MemoryStore():
            store._runs[run_id].events[seq - 1] = None  # type: ignore[call-overload]
        case _:
            raise AssertionError


@pytest.fixture
def interrupted(store: Store, clock: Clock) -> Desk:
    return interrupted_desk(store, clock)


@pytest.mark.parametrize("place", ["in the middle", "at the end"])
def test_a_log_with_a_hole_is_an_error_and_starts_no_tool(place: str, interrupted: Desk) -> None:
    store, runs = interrupted.store, interrupted.runs
    if isinstance(store, MemoryStore):
        pytest.skip("nobody else can change a log in memory")
    hole = 3 if place == "in the middle" else runs.find("r").seq
    forget_event(store, "r", hole)
    seen: list[int] = []
    with pytest.raises(StoreError, match=f"the log of the run r has no event {hole}: it was damaged"):
        seen.extend(number for number, _ in follow(store, "r"))
    assert seen == list(range(1, hole))
    with pytest.raises(StoreError, match=f"has no event {hole}: it was damaged"):
        runs.drive("r")
    assert interrupted.sent == []


def test_an_event_that_this_version_does_not_know_is_an_error_and_starts_no_tool(interrupted: Desk) -> None:
    store, runs = interrupted.store, interrupted.runs
    claim = store.claim("later", run_id="r")
    assert claim is not None
    store.append([Batch("r", claim.epoch, claim.seq, [b'{"type":"levitate","height":3}'], "ready")], durable=True)
    last = claim.seq + 1
    message = f"event {last} of the run r cannot be read: Invalid value 'levitate'"
    with pytest.raises(StoreError, match=message):
        list(runs.follow("r"))
    with pytest.raises(StoreError, match=message):
        runs.drive("r")
    assert interrupted.sent == []


def test_a_run_of_a_later_version_is_read_and_not_continued(store: Store) -> None:
    desk = Desk(store)
    start = body_of(RunStart((user("Send it."),), "desk"))
    store.create(RunRow(id="r", agent="desk", version=VERSION + 1), start)
    with pytest.raises(StoreError, match="the run r was started by a later version of penstock: upgrade this one"):
        desk.runs.drive("r")
    with (
        pytest.raises(StoreError, match="later version of penstock"),
        desk.agent.stream("Send it.", log=store, run_id="r") as run,
    ):
        list(run)
    assert next(desk.runs.follow("r"))[0] == 1
    assert (desk.log("r"), desk.sent) == (["run_start"], [])


# -- disks -------------------------------------------------------------------------------------------------------------

FULL = """
import resource, sys
from pathlib import Path
import penstock
from penstock.log import store_retries
from penstock.runs.runs import Runs
from penstock.testing import Reply, Scripted, call

path, sent = sys.argv[1:]
store_retries.RETRY_SECONDS = 0.5

@penstock.tool
def send() -> str:
    Path(sent).write_text("sent")
    return "sent"

agent = penstock.Agent(
    penstock.Model("openai:gpt-5", via=Scripted([Reply("Long. " * 100_000, call("send"))])), tools=[send], name="desk"
)
store = penstock.log.open(path)
size = Path(path + "-wal").stat().st_size + 262_144
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
shown = 0
try:
    with agent.stream("Send it.", log=store, run_id="r") as run:
        for shown, event in enumerate(run, 1):
            pass
except penstock.StoreError as error:
    print(shown, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_on_a_full_disk_a_run_fails_and_is_continued_when_there_is_room(tmp_path: Path) -> None:
    path, sent = tmp_path / "runs.db", tmp_path / "sent"
    SQLiteStore(path).close()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(sent)], capture_output=True, text=True, check=False, timeout=120
    )
    assert "cannot be written" in done.stdout, done.stderr
    assert not sent.exists()
    clock = FakeClock()
    clock.advance(60)
    desk = Desk(SQLiteStore(path, clock=clock))
    shown, logged = int(done.stdout.split()[0]), desk.log("r")
    assert 0 < shown <= len(logged)
    assert "tool_start" not in logged
    assert desk.runs.drive("r").state == "over"
    assert desk.sent == ["sent"]
    desk.store.close()


READ_ONLY = """
import os, sys, penstock, penstock.log.sqlite.store
if os.geteuid() == 0:  # root may write everything
    os.setgid(65534)
    os.setuid(65534)
try:
    penstock.log.open(sys.argv[1]).list()
except penstock.StoreError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_a_file_that_may_not_be_written_is_an_error() -> None:
    with tempfile.TemporaryDirectory() as folder:  # one that other users may enter
        path = Path(folder) / "runs.db"
        SQLiteStore(path).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        command = [sys.executable, "-c", READ_ONLY, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        Path(folder).chmod(0o755)
    assert "runs.db cannot be opened: " in done.stdout, done.stderr


def test_a_database_that_may_not_be_written_is_an_error_after_a_bounded_wait(
    postgres_url: str, impatient: None
) -> None:
    schema = new_schema()
    desk = Desk(PostgresStore(postgres_url, schema=schema))
    desk.runs.start("desk", "Send it.", run_id="r")
    separator = "&" if "?" in postgres_url else "?"
    store = PostgresStore(f"{postgres_url}{separator}options=-cdefault_transaction_read_only%3Don", schema=schema)
    standby = Desk(store)
    for operation in (lambda: standby.runs.drive("r"), lambda: standby.runs.start("desk", "Again.")):
        with pytest.raises(StoreError, match="in a read-only transaction") as caught:
            operation()
        assert caught.value.is_temporary
    assert [event.type for _, _, event in read_log(store, "r")] == ["run_start"]
    assert standby.sent == []
    assert desk.runs.drive("r").state == "over"
    for one in (store, desk.store):
        one.close()
    drop(postgres_url, schema)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps files that are open")
@pytest.mark.parametrize("way", ["deleted", "replaced"])
def test_a_file_that_is_gone_ends_a_run_before_its_tool_starts(way: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    desk = Desk(SQLiteStore(path))
    shown: list[str] = []

    def hook(point: points.Point, details: Iterable[str], writer: Any) -> None:
        if point == "before_append" and "tool_start" in details:
            path.rename(tmp_path / "kept.db")
            if way == "replaced":
                path.touch()

    points.hook = hook
    try:
        with (
            pytest.raises(StoreError, match="was deleted or replaced since it was opened: restart this process"),
            desk.agent.stream("Send it.", log=desk.store, run_id="r") as run,
        ):
            shown.extend(event.type for event in run)
    finally:
        points.hook = None
    assert "tool_start" not in shown
    with pytest.raises(StoreError, match="was deleted or replaced"):
        next(desk.runs.follow("r"))
    assert desk.sent == []
    desk.store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps files that are open")
def test_a_file_that_is_gone_is_not_created_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    path.rename(tmp_path / "kept.db")
    errors: list[Exception] = []

    def read() -> None:
        try:
            store.list()
        except StoreError as error:
            errors.append(error)

    thread = threading.Thread(target=read)  # which has no connection yet
    thread.start()
    thread.join()
    assert "was deleted or replaced" in str(errors[0])
    assert not path.exists()
    store.close()


# -- stores that go away -----------------------------------------------------------------------------------------------


class Outage:
    """Makes all operations of a store fail while `is_down`."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_down = False
        self.failures = 0
        for name in ("create", "claim", "append", "renew", "read", "put", "inputs", "find", "list"):
            monkeypatch.setattr(store, name, self._failing(getattr(store, name)))

    def _failing(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def attempt(*arguments: Any, **options: Any) -> Any:
            if self.is_down:
                self.failures += 1
                raise StoreError("the store is away", is_temporary=True)
            return operation(*arguments, **options)

        return attempt

    def begin_at(self, event: str) -> points.Hook:
        """A hook that lets the store go away right before an event is appended."""

        def hook(point: points.Point, details: Iterable[str], writer: Any) -> None:
            if point == "before_append" and event in details:
                self.is_down = True

        return hook

    def end_after(self, failures: int) -> None:
        """Let the store come back after it has failed this often."""
        end = time.monotonic() + SOON
        while self.failures < failures and time.monotonic() < end:
            time.sleep(0.005)
        points.hook = None
        self.is_down = False


@pytest.fixture
def outage(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    yield Outage(store, monkeypatch)
    points.hook = None


@pytest.mark.parametrize("event", ["step_start", "tool_start", "tool_end", "done"])
def test_a_run_outlasts_a_store_that_is_away_for_a_while(event: str, store: Store, outage: Outage) -> None:
    desk = Desk(store)
    shown: list[tuple[StreamEvent, bool]] = []
    points.hook = outage.begin_at(event)
    back = threading.Thread(target=outage.end_after, args=(4,))
    back.start()
    with desk.agent.stream("Send it.", log=store, run_id="r") as run:
        shown.extend((one, outage.is_down) for one in run)
    back.join(SOON)
    assert outage.failures >= 4
    assert run.finish_reason == "answered"
    assert not any(was_down for one, was_down in shown if one.type == event)
    assert desk.sent == ["sent"]
    assert desk.log("r").count("taken") == 1
    assert [one.type for one, _ in shown if one.type != "tool_results"] == desk.log("r")[2:]


def test_while_a_store_is_away_no_tool_starts_and_nothing_is_shown(
    store: Store, outage: Outage, clock: Clock, impatient: None
) -> None:
    desk = Desk(store)
    shown: list[str] = []
    points.hook = outage.begin_at("tool_start")
    with (
        pytest.raises(StoreError, match="the store is away"),
        desk.agent.stream("Send it.", log=store, run_id="r") as run,
    ):
        shown.extend(event.type for event in run)
    assert desk.sent == []
    assert "tool_start" not in shown
    outage.end_after(0)
    assert shown == desk.log("r")[2:]
    clock.now += store.lease + 1
    assert desk.runs.drive("r").state == "over"
    assert desk.sent == ["sent"]


def test_a_run_goes_on_after_an_outage_that_is_longer_than_its_lease(
    store: Store, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "lease", 0.2)
    desk = Desk(store)
    points.hook = outage.begin_at("tool_start")

    def end_late() -> None:
        time.sleep(0.5)
        outage.end_after(1)

    back = threading.Thread(target=end_late)
    back.start()
    with desk.agent.stream("Send it.", log=store, run_id="r") as run:
        assert [event.type for event in run][-1] == "done"
    back.join(SOON)
    assert desk.sent == ["sent"]
    assert desk.log("r").count("taken") == 1


def test_a_run_is_started_and_steered_although_the_store_fails_for_a_moment(store: Store, outage: Outage) -> None:
    desk = Desk(store)
    for attempt in (
        lambda: desk.runs.start("desk", "Send it.", run_id="r") == "r",
        lambda: desk.runs.say("r", "At once."),
        lambda: desk.runs.provide("r", "a", "1"),
        lambda: desk.runs.decide("r", "a", approved=True),
        lambda: desk.runs.cancel("r"),
    ):
        outage.failures, outage.is_down = 0, True
        back = threading.Thread(target=outage.end_after, args=(2,))
        back.start()
        assert attempt()
        back.join(SOON)
        assert outage.failures >= 2


def test_an_input_that_was_added_before_the_connection_broke_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    put, broken = store.put, list[Input]()

    def break_once(input: Input) -> bool:
        counts = put(input)
        if not broken:
            broken.append(input)
            raise StoreError("the connection broke", is_temporary=True)
        return counts

    monkeypatch.setattr(store, "put", break_once)
    assert desk.runs.decide("r", "a", approved=True)
    assert not desk.runs.decide("r", "a", approved=False), "the first one counts"
    assert len(store.inputs(["r"])) == 1


def test_a_worker_does_not_take_a_run_from_itself_after_an_outage(store: Store, clock: Clock, outage: Outage) -> None:
    desk = Desk(store)
    points.hook = outage.begin_at("tool_end")
    desk.runs.start("desk", "Send it.", run_id="r")
    driving = threading.Thread(target=desk.runs.drive, args=("r",))
    driving.start()
    while outage.failures < 4:
        time.sleep(0.001)
    clock.now += store.lease + 1
    outage.end_after(0)
    claims = Worker(store, lambda limit: store.claim_next("two", limit=limit), desk.runs._go_on).take(1)
    assert not claims, "the end of the tool waits to be written"
    driving.join(SOON)
    assert desk.sent == ["sent"]
    [end] = [event for _, _, event in read_log(store, "r") if isinstance(event, ToolEnd)]
    assert (end.ending, end.result.text) == ("done", "sent")
    assert desk.log("r").count("taken") == 1


def test_runs_outlast_a_server_that_is_stopped_and_started() -> None:
    try:
        server = own_server()
    except NoServer as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server:
        desk = Desk(PostgresStore(server.get_uri(), lease=1.0))
        seen: list[int] = []
        stopped = threading.Event()

        def stop(point: points.Point, details: Iterable[str], writer: Any) -> None:
            if point == "before_append" and "tool_start" in details and not stopped.is_set():
                server.stop()
                stopped.set()

        def restart() -> None:
            assert stopped.wait(SOON)
            time.sleep(2 * desk.store.lease)  # so that the lease has ended
            assert desk.sent == []
            server.start()

        desk.runs.start("desk", "Send it.", run_id="r")
        threads = [
            threading.Thread(target=restart),
            threading.Thread(target=lambda: seen.extend(number for number, _ in desk.runs.follow("r"))),
        ]
        for thread in threads:
            thread.start()
        points.hook = stop
        try:
            assert desk.runs.drive("r").state == "over"
        finally:
            points.hook = None
            for thread in threads:
                thread.join(SOON)
        assert desk.sent == ["sent"]
        assert seen == list(range(1, len(desk.log("r")) + 1))
        desk.store.close()


HALF = "a\ud800b"


def test_text_with_half_of_a_character_is_a_clear_error(store: Store) -> None:
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    wrong: list[Callable[[], object]] = [
        lambda: desk.runs.start("desk", "Send it.", run_id=HALF),
        lambda: desk.runs.start("desk", "Send it.", thread=HALF),
        lambda: desk.runs.start("desk", "Send it.", tenant=HALF),
        lambda: desk.runs.find(HALF),
        lambda: list(desk.runs.follow(HALF)),
        lambda: desk.runs.drive(HALF),
        lambda: desk.runs.cancel(HALF),
        lambda: desk.runs.say(HALF, "Hello."),
        lambda: desk.runs.decide("r", "c", True, reason=HALF),
        lambda: desk.runs.decide("r", "c", True, {"city": HALF}),
        lambda: desk.runs.provide("r", "c", {"city": HALF}),
    ]
    if not isinstance(store, MemoryStore):
        wrong += [lambda: desk.runs.list(thread=HALF), lambda: desk.runs.decide("r", HALF, True)]
    for call in wrong:
        with pytest.raises(UsageError):
            call()
    assert desk.runs.cancel("r", HALF)
    assert desk.runs.drive("r").state == "over"
    assert [row.id for row in desk.runs.list()] == ["r"]
