"""Forks of a process with a log: a child and its parent never share a connection, a thread or a lock.

Each test is a real process. Children have an alarm, so that one that waits for ever fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import drop, new_schema

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no forks")

PRELUDE = """
import asyncio, faulthandler, os, signal, subprocess, sys, threading, time
import penstock
from penstock.log.sqlite.file import SQLiteFile
from penstock.testing import Reply, Scripted, call

path = sys.argv[1]

@penstock.tool(read_only=True)
def look() -> str:
    "Look."
    return "seen"

agent = penstock.Agent(
    penstock.Model("openai:gpt-5", via=Scripted(lambda request: "Done." if request.results else Reply(call("look")))),
    [look], name="desk",
)

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        faulthandler.dump_traceback_later(15)
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def ended_well(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def run(code: str, path: str) -> str:
    """Run a program; it must end well and print nothing to standard error."""
    command = [sys.executable, "-W", "default::ResourceWarning"]
    command += ["-W", "ignore:This process:DeprecationWarning"]  # since 3.12, for the forks of these tests themselves
    command += ["-c", PRELUDE + code, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


def test_a_child_writes_to_a_log_to_which_threads_of_its_parent_write(path: str) -> None:
    """The parent forks while a transaction is open, and another write waits for it."""
    code = """
def prepare(connection, path):
    connection.execute("CREATE TABLE notes (text TEXT)")

def add(text, then=int):
    def operation(connection):
        connection.execute("INSERT INTO notes VALUES (?)", (text,))
        then()
    file.write(operation, durable=False)

def stay():
    is_inside.set()
    may_go_on.wait(30)

file = SQLiteFile(path, wait=5)
file.open(prepare)
is_inside, may_go_on = threading.Event(), threading.Event()
threads = [threading.Thread(target=add, args=("first", stay)), threading.Thread(target=add, args=("second",))]
threads[0].start()
assert is_inside.wait(30)
threads[1].start()
while len(file._writes.waiting) < 2:
    time.sleep(0.01)
threading.Timer(0.1, may_go_on.set).start()
assert ended_well(child(lambda: add("child")))
for thread in threads:
    thread.join(30)
texts = file.read(lambda connection: sorted(text for text, in connection.execute("SELECT text FROM notes")))
assert texts == ["child", "first", "second"], texts
"""
    run(code, path)


def test_a_child_uses_a_log_from_which_threads_of_its_parent_read(path: str) -> None:
    """SQLite has locks of its own, which a thread holds for a moment each time it reads."""
    code = """
store = penstock.log.open(path)
runs = penstock.Runs(store, {"desk": agent})
runs.drive(runs.start("desk", "Hi.", run_id="r"))
is_over = threading.Event()

def read():
    while not is_over.is_set():
        store.read("r")
        store.list()
        store.inputs(["r"])

def use(number):
    assert len(store.read("r")) > 5
    runs.start("desk", "Hi.", run_id=f"child {number}")

threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
assert all(ended_well(child(lambda: use(number))) for number in range(20))
is_over.set()
for thread in threads:
    thread.join()
assert len(store.list()) == 21
"""
    run(code, path)


LOOK = """
import sys, penstock
store = penstock.log.open(sys.argv[1])
print(*sorted(row.id for row in store.list()))
store.close()
"""


@pytest.mark.parametrize("ending", ["sys.exit()", "os._exit(0)"])
def test_what_the_child_of_a_process_that_has_ended_writes_is_kept(ending: str, path: str) -> None:
    """As a daemon does: SQLite deletes what is not yet in the file when a process closes it that seems to be alone."""
    code = f"""
LOOK = {LOOK!r}

def look():
    return subprocess.run([sys.executable, "-c", LOOK, path], capture_output=True, text=True, check=True).stdout

store = penstock.log.open(path)
runs = penstock.Runs(store, {{"desk": agent}})
runs.start("desk", "Hi.", run_id="parent")
read_end, write_end = os.pipe()
if os.fork() == 0:
    signal.alarm(60)
    os.close(write_end)
    os.read(read_end, 1)  # until the parent has ended
    runs.start("desk", "Hi.", run_id="first")
    assert look().split() == ["first", "parent"]
    runs.start("desk", "Hi.", run_id="second")
    print(look(), flush=True)
    os._exit(0)
{ending}
"""
    assert run(code, path).split() == ["first", "parent", "second"]


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are listed in /proc")
def test_a_child_inherits_no_connection_of_a_thread_that_ends_during_the_fork(path: str) -> None:
    code = """
from penstock.log.sqlite import file as sqlite_file

def read():
    store.list()
    has_read.set()

def look():
    files = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if number.isdigit()
             and os.path.exists(f"/proc/self/fd/{number}")]
    assert not any(path in file for file in files), files

store = penstock.log.open(path)
has_read = threading.Event()
with sqlite_file._closing.lock:  # as the fork has it
    thread = threading.Thread(target=read)
    thread.start()
    assert has_read.wait(30)
    while len([*store._file.connections]) > 1:
        time.sleep(0.001)
    pid = child(look)
assert ended_well(pid)
thread.join()
store.close()
"""
    run(code, path)


def test_a_child_drives_runs_of_a_log_while_its_parent_does(path: str) -> None:
    code = """
store = penstock.log.open(path)
runs = penstock.Runs(store, {"desk": agent})

def drive(who):
    for number in range(5):
        assert runs.drive(runs.start("desk", "Hi.", run_id=f"{who} {number}")).state == "over"

drive("first")  # imports everything: a child cannot import what another thread was importing
thread = threading.Thread(target=drive, args=("thread",))
thread.start()
children = [child(lambda: drive(f"child {number}")) for number in range(3)]
drive("parent")
assert all([ended_well(pid) for pid in children])
thread.join()
assert len(runs.list(state="over")) == 30
"""
    run(code, path)


def test_a_child_leaves_the_runs_of_its_parent_alone(path: str) -> None:
    """Also one that ends as a program does: by leaving the run, and giving back those that are detached."""
    code = """
store = penstock.log.open(path)
runs = penstock.Runs(store, {"desk": agent})
children = []
for number in range(10):
    with agent.stream("Hi.", log=store, run_id=f"run {number}") as run:
        for event in run:
            if event.type == "step_start":
                run.detach()
                def leave():
                    run.close()
                    run.cancel()
                children.append(child(leave))
    assert run.finish_reason == "answered", run.finish_reason
assert all([ended_well(pid) for pid in children])
assert {row.state for row in runs.list()} == {"over"}
assert {row.epoch for row in runs.list()} == {1}
"""
    run(code, path)


def test_a_child_has_none_of_the_runs_that_its_parent_keeps_in_memory(path: str) -> None:
    code = """
store = penstock.log.memory()
runs = penstock.Runs(store, {"desk": agent})
runs.start("desk", "Hi.", run_id="r")
waiting = threading.Thread(target=store.wait, args=("r", 1, 5.0))
waiting.start()

def use():
    assert runs.list() == []
    assert runs.drive(runs.start("desk", "Hi.", run_id="r")).state == "over"

assert ended_well(child(use))
assert [row.state for row in runs.list()] == ["ready"]
runs.drive("r")
waiting.join()
"""
    run(code, path)


def test_a_child_that_closes_a_log_does_not_close_that_of_its_parent(path: str) -> None:
    code = """
store = penstock.log.open(path)
assert ended_well(child(store.close))
assert store.list() == []
"""
    run(code, path)


def test_a_child_that_closes_a_log_leaves_the_connections_of_its_parent_alone(postgres_url: str) -> None:
    schema = new_schema()
    code = f"""
store = penstock.log.open(path, schema={schema!r})
runs = penstock.Runs(store, {{"desk": agent}})
runs.start("desk", "Hi.", run_id="r")

def connections():
    return [connection.info.backend_pid for connection in store._connections._idle if not connection.closed]

def use():
    assert runs.drive("r").state == "over"
    store.close()

before = connections()
assert ended_well(child(store.close))
assert ended_well(child(use))
assert [row.state for row in runs.list()] == ["over"]
assert connections() == before and before
store.close()
"""
    try:
        run(code, postgres_url)
    finally:
        drop(postgres_url, schema)
