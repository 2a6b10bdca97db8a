"""`penstock runs fork`, `diff` and `show --numbers`, and the option `--show`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest

import penstock.log
from penstock.cli.app import penstock as command
from penstock.log.in_memory import MemoryStore
from tests.log.branches.test_forks import Shop, ask_to_send


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    store = penstock.log.open(tmp_path / "runs.db")
    shop = Shop(store)
    shop.run()
    yield shop
    store.close()


def runs(tmp_path: Path, *words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(command, ["runs", "--log", str(tmp_path / "runs.db"), *words])


def test_events_have_numbers_and_calls_have_ids(shop: Shop, tmp_path: Path) -> None:
    lines = runs(tmp_path, "show", "r", "--numbers").stdout.splitlines()
    [result] = [line for line in lines if "paid 3" in line and "[c1]" in line]
    number = int(result.split()[0])
    assert shop.events("r")[number - 1].type == "tool_end"
    assert any("I pay." in line for line in lines)


def test_a_fork_and_its_difference(shop: Shop, tmp_path: Path) -> None:
    forked = runs(tmp_path, "fork", "r", "--at", "16", "--result", 'c1={"paid": 0}', "--id", "f")
    assert forked.stdout.startswith("f is a fork of r at event 16; a worker continues it, or `penstock run agent.py")
    assert runs(tmp_path, "fork", "r", "--at", "16", "--result", 'c1={"paid": 0}', "--id", "f").exit_code == 0
    assert shop.finish("f") == 'Done: {"paid":0}'
    found = runs(tmp_path, "diff", "r", "f")
    assert found.exit_code == 1
    assert "paid 3" in found.stdout
    assert '{"paid":0}' in found.stdout
    sides = json.loads(runs(tmp_path, "diff", "r", "f", "--json").stdout)
    assert (sides["is_same"], sides["runs"][1]["event"]["type"]) == (False, "tool_end")
    assert runs(tmp_path, "diff", "r", "r").stdout == "r and r are the same\n"
    assert "forked from r at event 16" in runs(tmp_path, "show", "f", "--plain").stdout


def test_a_fork_is_made_once_also_if_its_parent_was_deleted(shop: Shop, tmp_path: Path) -> None:
    words = "fork", "r", "--at", "16", "--id", "f"
    assert runs(tmp_path, *words).exit_code == 0
    assert shop.store.prune(before=time.time() + 1) == 1
    assert runs(tmp_path, *words).stdout.startswith("f is a fork of r at event 16")
    assert runs(tmp_path, "fork", "r", "--at", "16", "--id", "g").exit_code != 0


def test_a_fork_that_nobody_has_continued_has_not_ended(shop: Shop, tmp_path: Path) -> None:
    runs(tmp_path, "fork", "r", "--at", "16", "--id", "f")
    assert runs(tmp_path, "diff", "r", "f").stdout.endswith("\n  f has no more events yet (its state is ready)\n")


def test_options_of_a_fork(shop: Shop, tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    for name, words in {
        "said": ("--at", "20", "--say", "Thank you."), "failed": ("--at", "16", "--failure", "c1=no money"),
        "text": ("--at", "16", "--result", "c1=nothing"), "again": ("--at", "1", "--repeat-effects"),
        "model": ("--at", "16", "--model", "other", "--thread", "mine"),
    }.items():  # fmt: skip
        made[name] = json.loads(runs(tmp_path, "fork", "r", *words, "--json").stdout)
    assert made["model"]["thread"] == "mine"
    outputs = {name: shop.finish(row["id"]) for name, row in made.items()}
    assert outputs["failed"] == "Done: no money"
    assert outputs["text"] == "Done: nothing"
    assert outputs["model"] == "The other model: 1."
    assert shop.effects == ["pay 3"] * 3  # of the parent, of `again`, and of a new call after `said`


def test_a_finished_fork_says_so(shop: Shop, tmp_path: Path) -> None:
    last = str(len(shop.events("r")))
    assert "nothing is left to do" in runs(tmp_path, "fork", "r", "--at", last).stdout


def test_decisions(tmp_path: Path) -> None:
    store = penstock.log.open(tmp_path / "runs.db")
    shop = Shop(store, ask_to_send)
    events = shop.run()
    made = runs(tmp_path, "fork", "r", "--at", str(len(events)), "--decide", "c1=no", "--id", "f")
    assert made.exit_code == 0, made.output
    assert "declined" in shop.finish("f")
    store.close()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--at", "99"), "the run r has no event 99"),
        (("--at", "x"), "at must be the number of an event"),
        (("--at", "16", "--result", "c1"), "use CALL=VALUE"),
        (("--at", "16", "--result", "c9=1"), "the run has no call 'c9'"),
        (("--at", "16", "--decide", "c1=maybe"), "--decide takes CALL=yes or CALL=no"),
        (("--at", "16", "--decide", "c1=yes"), "does not wait for a decision"),
        (("--at", "16", "--say", " "), "the message is empty"),
        (("--at", "16", "--id", "r"), "a run with the id 'r' exists"),
        ((), "Missing option '--at'"),
    ],
)
def test_bad_input(shop: Shop, tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    result = runs(tmp_path, "fork", "r", *words)
    assert result.exit_code == 2
    assert problem in result.output
    assert [row.id for row in shop.store.list()] == ["r"]


@pytest.mark.parametrize("name", ["run", "worker", "serve"])
def test_logs_are_opened_as_the_option_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def open_store(path: str, **options: Any) -> MemoryStore:
        opened.append((path, options["show"]))
        raise penstock.UsageError("seen")

    monkeypatch.setattr("penstock.cli.runs.log_options.open_store", open_store)
    agent = tmp_path / "agent.py"
    agent.write_text('import penstock\nagent = penstock.Agent("sim:demo", name="a")\n', encoding="utf-8")
    for words, show in (((), "committed"), (("--show", "flushed"), "flushed")):
        prompt = ("Hi.",) if name == "run" else ()
        result = click.testing.CliRunner().invoke(command, [name, str(agent), *prompt, "--log", "x.db", *words])
        assert "seen" in result.output
        assert opened.pop() == ("x.db", show)
