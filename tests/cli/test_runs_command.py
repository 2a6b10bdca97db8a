"""Runs in a log on the command line: `penstock run --log`, `penstock worker`, `penstock runs`; with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click.testing
import psycopg
import pytest

import penstock.log
from penstock import Done, LostRunError, Runs, StoreError, ToolEnd
from penstock.cli.app import penstock as command
from penstock.cli.human_time import ago, duration_text, parse_duration
from penstock.cli.runs.lock_holder import find_lock_holder
from penstock.cli.runs.log_options import log_arguments
from penstock.cli.runs.logged_runs import next_id
from penstock.cli.runs.owners import Owner, parse_owner, process_condition
from penstock.cli.runs.run_table import short_ids
from penstock.log import RunRow, Store
from penstock.log.bodies import body_of
from penstock.log.store import Batch
from penstock.log.take_up import read_log
from penstock.messages import user
from penstock.run.events import RunStart
from tests.command import run_for_text
from tests.postgres import new_schema

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
PATIENCE = 60  # seconds until a test gives up; it waits for what it expects, not for the time

AGENT = '''
import os, time
from pathlib import Path
import penstock
from penstock.testing import Reply, Scripted, call

def note(text):
    with open("ledger", "a", encoding="utf-8") as file:
        file.write(text + "\\n")

@penstock.tool
def pay(amount: int) -> str:
    """Pay."""
    note(f"pay {amount}")
    while Path("wait").exists():
        time.sleep(0.02)
    return f"paid {amount}"

@penstock.tool(approval=True)
def sign() -> str:
    """Sign."""
    return "signed"

@penstock.tool(deferred=True)
def ask() -> str:
    """Ask."""

def answer(request):
    if request.results:
        return f"The tool says: {request.results[-1].text}"
    tool = request.prompt.split()[0]
    if tool not in ("pay", "sign", "ask"):
        return f"You said: {request.prompt}"
    return Reply("Let me see.", call(tool, {"amount": 5} if tool == "pay" else {}))

agent = penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(answer)), [pay, sign, ask], name="desk")
nameless = penstock.Agent("sim:fast")
other = penstock.Agent("sim:fast", name="desk")
'''


GRACE = """
import penstock.cli, penstock.cli.runs.logged_runs
penstock.cli.runs.logged_runs.GRACE = {seconds}
penstock.cli.main()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = penstock.log.open(folder / "runs.db")
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """A log of each kind."""
    if request.param == "sqlite":
        yield "runs.db"
        return
    url, name = request.getfixturevalue("postgres_url"), new_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return popen(folder, [*PENSTOCK, *arguments])


def popen(folder: Path, command: list[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def penstock_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_for_text(*arguments, cwd=folder)


def ledger(folder: Path) -> list[str]:
    path = folder / "ledger"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def tool_of(process: subprocess.Popen[str], folder: Path) -> None:
    """Wait until the tool runs."""
    until(lambda: process.poll() is not None or ledger(folder))
    assert process.poll() is None, process.communicate()


def runs(*arguments: str, piped: str = "") -> click.testing.Result:
    return click.testing.CliRunner().invoke(command, ["runs", "--log", "runs.db", *arguments], input=piped)


def runs_in(store: Store) -> Runs:
    from penstock.cli.agent_target import find_agent

    return Runs(store, {"desk": find_agent("agent.py")})


# -- penstock run --log --------------------------------------------------------------------------------------------


def test_the_same_command_continues_a_run_that_was_killed(folder: Path, address: str) -> None:
    (folder / "wait").touch()
    arguments = ("run", "agent.py", "pay", "--log", address)
    killed = begin(folder, *arguments)
    tool_of(killed, folder)
    killed.kill()
    killed.communicate()
    (folder / "wait").unlink()
    done = penstock_command(folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"run \w{10}-1, started (now|.* ago)", done.stdout)
    assert "interrupted" in done.stdout
    assert ledger(folder) == ["pay 5"], "a tool with side effects does not run again"
    store = penstock.log.open(address)
    [row] = store.list()
    assert (row.state, row.epoch) == ("over", 2)
    store.close()


def test_a_run_is_cancelled_by_ctrl_c_and_left_by_two(folder: Path, store: Store) -> None:
    (folder / "wait").touch()
    arguments = ("run", "agent.py", "pay", "--log", "runs.db")
    states = []
    for count in (1, 2):
        (folder / "ledger").unlink(missing_ok=True)
        grace = PATIENCE if count == 2 else 0  # a busy machine may take a while to send the second
        process = popen(folder, [sys.executable, "-c", GRACE.format(seconds=grace), *arguments])
        tool_of(process, folder)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline() == "Cancelling the run; Ctrl-C again leaves it, to be resumed later.\n"
        if count == 2:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        states.append(store.list()[0].state)
        assert ("penstock run agent.py --log runs.db --resume" in errors) == (count == 2), errors
    assert states == ["over", "ready"]
    cancelled, left = sorted(store.list(), key=lambda row: row.id)
    assert left.id == cancelled.id.replace("-1", "-2")
    [*_, (_, _, last)] = read_log(store, cancelled.id)
    assert isinstance(last, Done)
    assert (last.reason, last.why) == ("cancelled", "Ctrl-C")
    (folder / "wait").unlink()
    done = penstock_command(folder, "run", "agent.py", "--log", "runs.db", "--resume", left.id[:11] + "2", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert "interrupted" in done.stdout
    found = store.find(left.id)
    assert found is not None
    assert found.state == "over"
    assert ledger(folder) == ["pay 5"]


def test_sigterm_leaves_a_run_to_be_resumed(folder: Path, store: Store) -> None:
    (folder / "wait").touch()
    process = begin(folder, "run", "agent.py", "pay", "--log", "runs.db", "--run-id", "order-1")
    tool_of(process, folder)
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert "--resume order-1" in errors
    found = store.find("order-1")
    assert found is not None
    assert found.state == "ready"


def test_a_run_that_waits_names_the_command_that_answers_its_call(folder: Path, store: Store) -> None:
    done = penstock_command(folder, "run", "agent.py", "ask", "--log", "runs.db", "--run-id", "ask-1")
    assert done.returncode == 4
    assert "repeat the command at a terminal, or use `penstock runs --log runs.db provide ask-1 RESULT`" in done.stderr


def test_a_call_that_waits_is_answered_by_the_same_command(folder: Path, store: Store) -> None:
    arguments = ("run", "agent.py", "sign", "--log", "runs.db")
    first = penstock_command(folder, *arguments)
    assert first.returncode == 4
    [row] = store.list()
    assert f"penstock runs --log runs.db decide {row.id} --yes" in first.stderr
    second = penstock_command(folder, *arguments, "--yes", "-q")
    assert (second.returncode, second.stdout) == (0, "The tool says: signed\n")
    assert [one.state for one in store.list()] == ["over"]
    shown = penstock_command(folder, "runs", "--log", "runs.db", "show", row.id).stdout
    assert "owners     2 so far" in shown
    resumed = penstock_command(folder, "run", "agent.py", "--log", "runs.db", "--resume", row.id, "--yes")
    assert f"--yes and --no are for a run that waits: the run {row.id} is over" in resumed.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "agent.py:nameless", "Hi.", "--log", "runs.db"], "the agent in agent.py:nameless needs a name"),
    (["worker", "agent.py:nameless", "--log", "runs.db"], "the agent in agent.py:nameless needs a name"),
    (["worker", "agent.py", "agent.py:other", "--log", "runs.db"], "two agents have the name 'desk'"),
    (["worker", "agent.py"], "no log is named: pass --log"),
    (["worker", "agent.py", "--log", "nowhere/runs.db"], "its folder does not exist"),
    (["worker", "agent.py", "--log", "agent.py"], "file is not a database"),
    (["run", "agent.py", "Hi.", "--run-id", "a"], "--run-id needs a log"),
    (["run", "agent.py", "Hi.", "--log", "runs.db", "--resume", "a"], "--resume cannot be combined with a prompt"),
    (["run", "agent.py", "--log", "runs.db", "--resume", "a"], "there is no run 'a'"),
    (["run", "agent.py", "Hi.", "--log", "runs.db", "--state", "s.json"], "omit --state"),
    (["run", "agent.py", "Hi.", "--log", "runs.db", "--yes"],
     "--yes and --no are for a run that waits: there is none with this prompt yet"),
    (["runs", "list"], "no log is named: pass --log"),
    (["runs", "--log", "none.db"], "there is no log none.db"),
    (["runs", "--log", "runs.db", "lst"], "did you mean 'list'?"),
    (["runs", "--log", "runs.db", "--json", "show", "a"], "write --json after the command: penstock runs show --json"),
])  # fmt: skip
def test_a_wrong_command_is_reported_in_one_line(folder: Path, arguments: list[str], message: str) -> None:
    result = click.testing.CliRunner().invoke(command, arguments, env={"PENSTOCK_LOG": None})
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "none.db").exists()


def test_a_run_that_was_lost_is_left_with_the_command_that_resumes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(_ownership: Any) -> None:
        raise LostRunError("another worker has taken over the run")

    monkeypatch.setattr("penstock.agent.driver.ownership.Ownership.check_lease", lose)
    result = click.testing.CliRunner().invoke(command, ["run", "agent.py", "pay", "--log", "runs.db"])
    assert result.exit_code == 1
    assert "another worker has taken over the run" in result.stderr
    assert "to resume it: penstock run agent.py --log runs.db --resume" in result.stderr
    assert ledger(folder) == []


def test_a_run_that_cannot_be_started_has_nothing_to_resume(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise StoreError("the log runs.db cannot be written: attempt to write a readonly database")

    monkeypatch.setattr("penstock.log.sqlite.store.SQLiteStore.create", refuse)
    result = click.testing.CliRunner().invoke(command, ["run", "agent.py", "pay", "--log", "runs.db"])
    assert result.exit_code == 1
    assert "attempt to write a readonly database" in result.stderr
    assert "--resume" not in result.stderr


@pytest.mark.parametrize(("variable", "option"), [("", " --log runs.db"), ("runs.db", "")])
def test_commands_to_copy_name_the_log_unless_the_environment_does(
    variable: str, option: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", variable)
    runner = click.testing.CliRunner()
    waits = runner.invoke(command, ["run", "agent.py", "sign", "--log", "runs.db", "--run-id", "a"])
    assert f"`penstock runs{option} decide a --yes`" in waits.stderr
    shown = runner.invoke(command, ["runs", "--log", "runs.db", "show", "a"])
    assert f"penstock runs{option} decide a --yes" in shown.output


def test_the_password_of_a_log_is_not_in_commands_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_LOG", raising=False)
    assert log_arguments("postgresql://bob:hidden@db.example/runs") == ["--log", "postgresql://***@db.example/runs"]


def test_the_run_of_another_agent_is_not_resumed(folder: Path, store: Store) -> None:
    store.create(RunRow(id="a", agent="sales"), body_of(RunStart((user("Hi."),), "sales")))
    result = click.testing.CliRunner().invoke(command, ["run", "agent.py", "--log", "runs.db", "--resume", "a"])
    assert result.exit_code == 2
    assert "belongs to the agent 'sales', and agent.py is 'desk'" in result.stderr


def test_the_next_run_of_a_command_has_the_next_number(store: Store) -> None:
    start = RunStart((user("Hi."),), "desk")
    first = next_id(store, start)
    assert re.fullmatch(r"[0-9a-f]{10}-1", first)
    store.create(RunRow(id=first, agent="desk"), body_of(start))
    assert next_id(store, start) == first, "it is not over"
    store.claim("me", run_id=first)
    store.append([Batch(first, 1, 2, [b"{}"], "over")], durable=True)
    assert next_id(store, start) == first.replace("-1", "-2")
    assert next_id(store, RunStart((user("Hi!"),), "desk")) != first
    assert next_id(store, RunStart((user("Hi."),), "sales")).partition("-")[0] != first.partition("-")[0]


# -- penstock worker -----------------------------------------------------------------------------------------------


def test_a_worker_takes_over_from_one_that_was_killed_and_gives_back_at_sigterm(folder: Path, address: str) -> None:
    (folder / "wait").touch()
    store = penstock.log.open(address)
    desk = runs_in(store)
    run_id = desk.start("desk", "pay")
    killed = begin(folder, "worker", "agent.py", "--log", address, "--lease", "1")
    tool_of(killed, folder)
    second = desk.start("desk", "pay again")
    killed.kill()
    killed.communicate()
    worker = begin(folder, "worker", "agent.py", "--log", address, "--lease", "1", "--parallel", "2")
    until(lambda: desk.find(run_id).state == "over" and len(ledger(folder)) == 2)
    worker.terminate()
    out, errors = worker.communicate(timeout=PATIENCE)
    assert (worker.returncode, out) == (0, "")
    lines = errors.splitlines()
    assert re.fullmatch(r"worker pid \d+ on \S+: desk on \S+, up to 2 runs at a time; Ctrl-C stops it", lines[0])
    assert "hunter2" not in lines[0]
    taken = "taken over from a worker that has died or did not renew its lease, agent desk"
    assert any(re.fullmatch(rf"[\d:]+ run {run_id}: {taken}", line) for line in lines)
    assert any(line.endswith(f"run {run_id}: ended, answered") for line in lines)
    assert any(line.endswith(f"run {second}: given back, so that another worker can continue it") for line in lines)
    assert lines[-1] == "stopped"
    assert desk.find(second).state == "ready"
    assert ledger(folder) == ["pay 5", "pay 5"], "one for each run"
    [interrupted] = [event for _, _, event in read_log(store, run_id) if isinstance(event, ToolEnd)]
    assert "interrupted" in interrupted.result.text
    store.close()


# -- penstock runs -------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(store: Store) -> Runs:
    """Runs that wait for a decision (`sign-1`), for a result (`ask-1`), and for a worker (`ask-2`)."""
    desk = runs_in(store)
    for id, prompt in (("sign-1", "sign"), ("ask-1", "ask")):
        desk.start("desk", prompt, run_id=id, thread="chat-5", tenant="acme")
        desk.drive(id)
    desk.start("desk", "ask", run_id="ask-2")
    return desk


def test_runs_are_listed_as_a_table_and_as_json(desk: Runs) -> None:
    lines = runs().stdout.splitlines()
    assert lines[0].split() == ["id", "state", "agent", "thread", "tenant", "events", "last", "event"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["ask-2", "ready"], ["ask-1", "waiting"], ["sign-1", "waiting"]
    ]  # fmt: skip
    waiting = runs("list", "--state", "waiting", "--thread", "chat-5").stdout.splitlines()
    assert [line.split()[0] for line in waiting] == ["id", "ask-1", "sign-1"]
    assert runs("list", "--tenant", "nobody").stderr == "no such runs\n"
    found = [json.loads(line) for line in runs("list", "ask", "--json").stdout.splitlines()]
    assert [(one["id"], one["state"], one["owner"]) for one in found] == [
        ("ask-2", "ready", None), ("ask-1", "waiting", None)
    ]  # fmt: skip
    assert runs("--json").stdout == runs("list", "--json").stdout
    limited = runs("list", "--limit", "1")
    assert len(limited.stdout.splitlines()) == 2
    assert "--limit 10" in limited.stderr


def test_the_owner_of_a_run_is_named(desk: Runs, store: Store) -> None:
    store.claim(f"elsewhere:4711:{'0' * 8}", run_id="ask-2")
    assert "pid 4711 on elsewhere" in runs("list").stdout
    assert json.loads(runs("show", "ask-2", "--json").stdout)["owner"] == {"host": "elsewhere", "pid": 4711}
    assert "pid 4711 on elsewhere, for 1" in runs("show", "ask-2").stdout
    assert runs("cancel", "ask-2").stdout == "pid 4711 on elsewhere cancels ask-2\n"


def test_a_run_is_shown_with_its_calls_that_wait_and_its_events(desk: Runs) -> None:
    shown = runs("show", "sign").stdout
    assert "waits for  approval of sign()" in shown
    assert "continue   penstock runs --log runs.db decide sign-1 --yes" in shown
    assert re.search(r"prompt +sign\n", shown)
    assert re.search(r"waits +sign for approval", shown)
    found = json.loads(runs("show", "ask-1", "--json").stdout)
    assert [(one["name"], one["kind"]) for one in found["waiting"]] == [("ask", "deferred")]


def test_an_id_may_be_its_beginning_if_that_is_clear(desk: Runs) -> None:
    assert "the ids of several runs begin with 'ask-': ask-2, ask-1" in runs("show", "ask-").stderr
    assert "there is no run 'sing-1', did you mean 'sign-1'?" in runs("show", "sing-1").stderr
    desk.start("desk", "ask", run_id="ask-11")
    assert runs("show", "ask-1").exit_code == 0, "the whole id is clear"


def test_calls_are_decided_and_provided(desk: Runs, store: Store) -> None:
    assert "no call of sign-1 waits for a result; `penstock runs decide`" in runs("provide", "sign-1", "x").stderr
    assert "Error: Missing option '--yes' or '--no'." in runs("decide", "sign-1").stderr
    assert runs("decide", "sign-1", "--yes").stdout.startswith("approved sign() of sign-1; the next worker, or ")
    assert "the call of sign-1 was answered already: the next worker" in runs("decide", "sign-1", "--no").stderr
    assert runs("provide", "ask-1", piped="Yes.\n").exit_code == 0
    assert runs("say", "ask-1", "Hurry.").exit_code == 0
    assert [desk.drive(id).state for id in ("sign-1", "ask-1")] == ["over", "over"]
    followed = runs("follow", "ask-1", "--json")
    assert followed.exit_code == 0
    lines = [json.loads(line) for line in followed.stdout.splitlines()]
    assert [line["number"] for line in lines] == [*range(1, len(lines) + 1)]
    assert "said" in [line["event"]["type"] for line in lines]
    assert ["Yes." in json.dumps(line) for line in lines if line["event"]["type"] == "tool_end"] == [True]
    after = runs("follow", "ask-1", "--json", "--after", str(len(lines) - 1)).stdout
    assert [json.loads(line) for line in after.splitlines()] == lines[-1:]
    at_the_end = runs("follow", "ask-1", "--after", str(len(lines)))
    assert (at_the_end.exit_code, at_the_end.stdout.strip()) == (0, "")
    beyond = runs("follow", "ask-1", "--after", str(len(lines) + 1))
    assert f"the run 'ask-1' has {len(lines)} events: none can be read after event {len(lines) + 1}" in beyond.stderr
    assert "done       answered" in runs("follow", "sign-1").stdout
    for arguments in (["say", "sign-1", "Hi."], ["cancel", "sign-1"], ["decide", "sign-1", "--yes"]):
        assert "the run sign-1 is over" in runs(*arguments).stderr


def test_a_decision_may_change_the_arguments(desk: Runs, store: Store) -> None:
    assert "must be a JSON object" in runs("decide", "sign-1", "--yes", "--arguments", "5").stderr
    assert "--arguments needs --yes" in runs("decide", "sign-1", "--no", "--arguments", "{}").stderr
    wrong = runs("decide", "sign-1", "--yes", "--arguments", '{"where": 5}').stdout
    assert wrong.startswith("approved sign(where=5) of sign-1, if these arguments fit the tool; otherwise the call")
    assert desk.drive("sign-1").state == "waiting"
    assert runs("decide", "sign-1", "--no", "--reason", "too late").exit_code == 0
    desk.drive("sign-1")
    [end] = [event for _, _, event in read_log(store, "sign-1") if isinstance(event, ToolEnd)]
    assert (end.ending, "too late" in end.result.text) == ("declined", True)


def test_runs_without_an_owner_are_cancelled_at_once_and_pruned(desk: Runs, store: Store) -> None:
    assert runs("cancel", "ask-1", "ask-2", "--why", "enough").stdout == "cancelled ask-1\ncancelled ask-2\n"
    assert json.loads(runs("show", "ask-1", "--json").stdout)["end"]["why"] == "enough"
    assert runs("follow", "ask-2").exit_code == 130
    assert "is not a duration" in runs("prune", "--older-than", "soon").stderr
    assert runs("prune", "--older-than", "1d").stdout == "0 runs deleted\n"
    assert runs("prune", "--older-than", "0s", "--dry-run").stdout == "1 run would be deleted\n"
    assert runs("prune", "--older-than", "0s").stdout == "1 run deleted\n"
    assert {row.id for row in store.list()} == {"sign-1", "ask-1"}  # a conversation is kept as a whole


HOLD = """
import sqlite3, sys, os, signal
connection = sqlite3.connect("runs.db", isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
connection.execute("COMMIT")
"""


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux says who holds a lock")
def test_the_process_that_blocks_a_sqlite_file_is_named(desk: Runs, folder: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        until(lambda: process_condition(pid) == "stopped")
        listed = runs("list")
        assert (listed.exit_code, "sign-1" in listed.stdout) == (0, True), "readers go on"
        advice = f"process {pid} is stopped and holds the write lock of runs.db"
        assert advice in listed.stderr
        blocked = runs("cancel", "ask-2")
        assert blocked.exit_code == 1
        assert "database is locked" in blocked.stderr
        assert advice in blocked.stderr
        os.kill(pid, signal.SIGCONT)
        assert holder.wait(PATIENCE) == 0
        assert runs("cancel", "ask-2").exit_code == 0
        assert find_lock_holder("runs.db") is None
    finally:
        holder.kill()
        holder.communicate()


def test_a_writer_that_works_is_not_reported(desk: Runs, folder: Path) -> None:
    connection = sqlite3.connect(folder / "runs.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert runs("list").stderr == ""
    connection.close()


# -- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "text"), [
    (0.2, "now"), (1, "1 second ago"), (59, "59 seconds ago"), (61, "1 minute ago"), (7300, "2 hours ago"),
    (90_000, "1 day ago"), (13 * 86_400, "13 days ago"),
])  # fmt: skip
def test_times_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert ago(1_000_000_000 - seconds, 1_000_000_000) == text
    assert ago(1_000_000_000 - 20 * 86_400, 1_000_000_000) == time.strftime(
        "%d %b %Y", time.localtime(1_000_000_000 - 20 * 86_400)
    )
    assert duration_text(30 * 86_400) == "4 weeks"


@pytest.mark.parametrize(("text", "seconds"), [
    ("30d", 2_592_000), ("1.5h", 5400), ("2w", 1_209_600), ("10 m", 600), ("5", None), ("-1d", None), ("d", None),
])  # fmt: skip
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


def test_long_ids_are_shortened_as_far_as_they_stay_unique() -> None:
    long = ["a" * 12 + "b" * 20, "a" * 12 + "c" * 20, "d" * 32]
    assert short_ids([*long, "order-17"]) == ["a" * 12 + "b", "a" * 12 + "c", "d" * 8, "order-17"]


def test_owners_are_named_by_machine_and_process() -> None:
    assert parse_owner("host:12:abcd") == Owner("host", 12)
    assert parse_owner("fe80::1:12:abcd").host == "fe80::1"
    assert parse_owner("worker").text == "worker"
    assert Owner("elsewhere", os.getpid()).condition == ""
