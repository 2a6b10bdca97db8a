"""Signals end a process and not its runs: SIGHUP as SIGTERM, ignored under `nohup`; `sys.exit()` of a handler."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest

import penstock
from penstock import Done
from penstock.log import Store
from penstock.log.take_up import read_log
from penstock.testing import Reply, Scripted, call

if not hasattr(signal, "SIGHUP"):
    pytest.skip("Windows has no SIGHUP", allow_module_level=True)

PENSTOCK = [sys.executable, "-m", "penstock"]
IGNORING = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]  # as `nohup` does
PATIENCE = 60.0

AGENT = '''
import time
from pathlib import Path
import penstock
from penstock.testing import Reply, Scripted, call

@penstock.tool
def hold() -> str:
    """Hold."""
    Path("held").touch()
    while not Path("gate").exists():
        time.sleep(0.02)
    return "held"

def answer(request):
    return "Done." if request.results else Reply(call("hold", {}))

agent = penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(answer)), [hold], name="desk")
'''


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    store = penstock.log.open(tmp_path / "runs.db")
    yield store
    store.close()


@contextmanager
def started(folder: Path, *command: str) -> Generator[subprocess.Popen[str]]:
    environment = os.environ | {"PENSTOCK_TOKEN": ""}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def begin_run(kind: str, process: subprocess.Popen[str], store: Store) -> None:
    """Let a process drive a run, in one of the ways in which it can."""
    if kind == "worker":
        penstock.Runs(store, {"desk": penstock.Agent("sim:fast", name="desk")}).start("desk", "Go.")
    elif kind == "serve":
        url = cast("IO[str]", process.stderr).readline().split()[3]
        request = urllib.request.Request(f"{url}/runs", b'{"prompt": "Go."}', {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            assert json.load(reply)["id"]


COMMANDS = {
    "run": ["run", "agent.py", "Go.", "--log", "runs.db"],
    "worker": ["worker", "agent.py", "--log", "runs.db"],
    "serve": ["serve", "agent.py", "--log", "runs.db", "--port", "0"],
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_sighup_leaves_the_run_to_other_processes(kind: str, store: Store, tmp_path: Path) -> None:
    with started(tmp_path, *PENSTOCK, *COMMANDS[kind]) as process:
        begin_run(kind, process, store)
        until((tmp_path / "held").exists)
        process.send_signal(signal.SIGHUP)
        if kind == "serve":  # which lets its runs end, if they do in time
            (tmp_path / "gate").touch()
        code = process.wait(PATIENCE)
    [row] = store.list()
    assert (row.state, code) == {
        "run": ("ready", 129),
        "worker": ("ready", 0),
        "serve": ("over", 129),
    }[kind]
    assert not any(isinstance(event, Done) and event.reason == "error" for _, _, event in read_log(store, row.id))


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_process_that_was_started_with_nohup_ignores_sighup(kind: str, store: Store, tmp_path: Path) -> None:
    with started(tmp_path, *IGNORING, *PENSTOCK, *COMMANDS[kind]) as process:
        begin_run(kind, process, store)
        until((tmp_path / "held").exists)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        (tmp_path / "gate").touch()
        until(lambda: store.list()[0].state == "over")
        if kind == "run":
            assert process.wait(PATIENCE) == 0
        assert process.poll() in (None, 0)


def test_sighup_stops_a_gateway_without_a_file(tmp_path: Path) -> None:
    options = ["--upstream", "http://127.0.0.1:9/v1", "--port", "0"]
    with started(tmp_path, *PENSTOCK, "gateway", *options) as process:
        assert "Ctrl-C stops" in cast("IO[str]", process.stderr).readline()
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE) == 129


def test_sighup_reloads_the_file_of_a_gateway_also_under_nohup(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[upstreams.one]\nurl = "http://127.0.0.1:9/v1"\n')
    with started(tmp_path, *IGNORING, *PENSTOCK, "gateway", "--port", "0") as process:
        lines = cast("IO[str]", process.stderr)
        assert "Ctrl-C stops" in lines.readline()
        file.write_text("[upstreams.one]\nwrong = 1\n")
        process.send_signal(signal.SIGHUP)
        assert "wrong" in lines.readline()
        assert process.poll() is None


# -- the exceptions of signal handlers ---------------------------------------------------------------------------------


def leave(_number: int, _frame: object) -> None:
    sys.exit("the program ends")


@pytest.fixture
def hang_up() -> Iterator[Callable[[], None]]:
    """Sends a signal whose handler raises `SystemExit`."""
    before = signal.signal(signal.SIGHUP, leave)
    yield lambda: signal.raise_signal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)


def interrupted_agent(place: str, interrupt: Callable[[], None]) -> penstock.Agent:
    """An agent that is interrupted in its tool, predicate, hook or request."""

    def at(here: str) -> None:
        if here == place:
            interrupt()

    async def needs_approval(arguments: Any) -> bool:
        at("predicate")
        return False

    def needs_approval_now(arguments: Any) -> bool:
        at("sync predicate")
        return False

    async def before_step(*_: Any) -> None:
        at("hook")

    def answer(request: Any) -> Any:
        at("request")
        return "Done." if request.results else Reply("Let me see.", call("pay", {}))

    approval = needs_approval_now if place == "sync predicate" else needs_approval

    @penstock.tool(approval=approval)
    async def pay() -> str:
        """Pay."""
        at("tool")
        return "paid"

    model = penstock.Model("openai-compatible:m", via=Scripted(answer))
    return penstock.Agent(model, [pay], name="desk", before_step=before_step)


@pytest.mark.parametrize("place", ["tool", "predicate", "sync predicate", "hook", "request"])
def test_the_exit_of_a_signal_handler_ends_the_program_and_not_the_run(
    place: str, store: Store, hang_up: Callable[[], None]
) -> None:
    runs = penstock.Runs(store, {"desk": interrupted_agent(place, hang_up)})
    run_id = runs.start("desk", "Go.")
    with pytest.raises(SystemExit, match="the program ends"):
        asyncio.run(runs.adrive(run_id))
    [row] = store.list()
    assert row.state == "ready"
    assert not any(isinstance(event, Done) for _, _, event in read_log(store, run_id))


@pytest.mark.parametrize("place", ["tool", "predicate", "hook", "request"])
def test_sys_exit_in_user_code_is_an_error_of_that_code(place: str, store: Store) -> None:
    runs = penstock.Runs(store, {"desk": interrupted_agent(place, lambda: sys.exit("mine"))})
    asyncio.run(runs.adrive(runs.start("desk", "Go.")))
    [row] = store.list()
    assert row.state in ("over", "waiting")
