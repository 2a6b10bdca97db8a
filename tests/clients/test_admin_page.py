"""The page of an operator in headless Chromium, on a server with runs in every state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, Model, Runs
from penstock.log import SQLiteStore
from penstock.log.store import Batch
from penstock.log.suspects import park
from penstock.testing import Reply, Scripted, call
from tests.clients.conftest import run_node

TOKEN = "the-token-of-operators"
ODD = "<img src=x onerror=\"document.title='hacked'\">"
AGENT_FILE = """
import penstock
from penstock.testing import Scripted

agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(lambda request: "Hello.")), name="desk")
"""


def fill(path: Path) -> None:
    """A log with a run in each state. Only the agent `desk` is served."""

    def answer(request: Any) -> Reply | str:
        return "It is clear." if request.results else Reply("I look.", call("weather", {"city": "Rome"}))

    def weather(city: str) -> str:
        """The weather."""
        return "clear"

    agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[weather], name="support")
    with closing(SQLiteStore(path)) as store:
        runs = Runs(store, {"support": agent, "billing": agent, "desk": agent})
        runs.start("support", "Weather?", run_id="ended", tenant="acme", thread="t-1")
        runs.drive("ended")
        for run_id, name in (
            ("parked", "support"),
            ("parked-2", "billing"),
            ("waiting", "desk"),
            ("damaged", "billing"),
        ):
            runs.start(name, "Hi", run_id=run_id, tenant="acme")
            claim = store.claim("web-3:4711:0a1b2c3d", run_id=run_id)
            assert claim is not None
            if run_id.startswith("parked"):
                assert park(store, claim, "6 workers died in one step")
            elif run_id == "damaged":
                store.append([Batch(run_id, claim.epoch, claim.seq, [b"not json"], "damaged")], durable=True)
            else:
                store.append([Batch(run_id, claim.epoch, claim.seq, [], "waiting")], durable=True)
        runs.start("support", "Hi", run_id="odd", tenant=ODD)
        runs.start("support", "Hi", run_id="queued", tenant="zoo")


@contextmanager
def serving(folder: Path) -> Generator[str]:
    fill(folder / "runs.db")
    (folder / "agent.py").write_text(AGENT_FILE, encoding="utf-8")
    command = [sys.executable, "-m", "penstock", "serve", "agent.py", "--log", "runs.db", "--port", "0",
               "--log-format", "json"]  # fmt: skip
    environment = {**os.environ, "PENSTOCK_ADMIN_TOKEN": TOKEN}
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            yield json.loads(process.stderr.readline())["address"]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def seen(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a person has seen in every scenario."""
    pictures = Path(os.environ.get("ADMIN_PICTURES", tmp_path_factory.mktemp("pictures")))
    with serving(tmp_path_factory.mktemp("admin")) as url:
        return run_node("admin_page.mjs", url, str(chromium), TOKEN, str(pictures))


def of(seen: Any, name: str) -> Any:
    assert "error" not in seen[name], seen[name]
    return seen[name]


def test_the_page_has_no_errors_and_asks_nobody_else(seen: Any) -> None:
    assert (seen["problems"], seen["elsewhere"]) == ([], [])


def test_a_token_is_exchanged_for_a_cookie_that_the_page_cannot_read(seen: Any) -> None:
    found = of(seen, "signIn")
    assert (found["refused"], found["empty"]) == ("This is not the token of operators.", [])
    assert TOKEN not in found["kept"]
    assert "penstock_admin" not in found["kept"]


def test_runs_are_counted_listed_and_chosen(seen: Any) -> None:
    found = of(seen, "look")
    assert found["all"] == ["damaged", "ended", "odd", "parked", "parked-2", "queued", "waiting"]
    assert found["parked"] == ["parked", "parked-2"]
    assert found["counts"] == {"ready": 2, "running": 0, "waiting": 1, "parked": 2, "damaged": 1}
    assert found["none"].strip() == "No such runs."
    assert found["workers"] == ["serve"]
    assert "support: 2" in found["facts"]
    assert "1 process" in found["facts"]


def test_a_run_has_a_timeline(seen: Any) -> None:
    found = of(seen, "timeline")
    assert {"step_start", "text", "tool_call", "tool_start", "tool_end"} <= set(found["types"])
    assert (found["types"][0], found["types"][-1]) == ("run_start", "done")
    assert found["actions"] == ["close"]
    assert found["times"]


def test_names_of_others_are_text(seen: Any) -> None:
    found = of(seen, "html")
    assert (found["title"], found["images"]) == ("Penstock: runs", 0)
    assert ODD in found["tenant"]


def test_an_operator_retries_and_cancels_after_a_question(seen: Any) -> None:
    found = of(seen, "retryAndCancel")
    assert found == {"kept": "parked", "retried": "ready", "cancelled": "over", "cancelShown": False}


def test_it_fits_a_narrow_window_and_has_contrast_in_light_and_dark(seen: Any) -> None:
    assert of(seen, "appearance") == {"wide": [], "weak": [], "unnamed": []}
