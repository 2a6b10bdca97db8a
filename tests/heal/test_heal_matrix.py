"""The matrix of habits × SDKs and frameworks: with healing in process, all of them get the right calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.heal.matrix import CLIENTS, PAGE

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_the_right_calls_whatever_the_habit(client: str) -> None:
    """In a process of its own: frameworks are slow to import and leave connections open."""
    command = [sys.executable, "-m", "tests.heal.matrix", "--json", client]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [habits] = json.loads(done.stdout.splitlines()[-1]).values()
    wrong = {habit: [one for one in found["after"] if one] for habit, found in habits.items()}
    assert not {habit: problems for habit, problems in wrong.items() if problems}
    assert any(any(found["before"]) for found in habits.values()), "the habits do no harm: the test shows nothing"


def test_the_page_names_every_client() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for client, (package, _, _) in CLIENTS.items():
        assert client in page
        assert package in page
