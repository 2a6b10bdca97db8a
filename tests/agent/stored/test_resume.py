"""A run that waits in one process and continues in another calls each tool once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
import sys
from pathlib import Path
import penstock
from penstock.testing import ReceivedRequest, Reply, Scripted, call

folder = Path(sys.argv[2])


def note(what):
    with (folder / "ran").open("a") as ran:
        ran.write(what + "\\n")
    return what


@penstock.tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return note(f"pay {amount}")


@penstock.tool
def look() -> str:
    """Look."""
    return note("look")


@penstock.tool(deferred=True)
def ask(question: str) -> str:
    """Ask somebody who is not here."""


def answer(request: ReceivedRequest) -> Reply | str:
    if request.results:
        return "; ".join(result.text for result in request.results)
    calls = call("look", {}, id="c2"), call("ask", {"question": "?"}, id="c3"), call("pay", {"amount": 500}, id="c1")
    return Reply(*calls)


agent = penstock.Agent(penstock.Model(sys.argv[1], via=Scripted(answer, strict=True)), tools=[pay, look, ask])
stored = folder / "run.json"
match sys.argv[3:]:
    case ["begin"]:
        with agent.stream("Go.") as run:
            print(*(event.kind for event in run if isinstance(event, penstock.ApprovalRequest)))
        assert run.finish_reason == "paused"
        assert penstock.check(run.messages) == []
        stored.write_bytes(run.dump())
    case ["approve", decision]:
        with agent.resume(stored.read_bytes()) as run:
            changed = {"amount": int(decision)} if decision.isdigit() else None
            run.decide("c1", decision != "no", changed, reason="too much")
            run.provide("c3", "forty-two")
            list(run)
        print(run.output)
        assert penstock.check(run.messages) == []
'''


def step(folder: Path, model: str, *what: str) -> str:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "program.py"), model, str(folder), *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DECISIONS = {
    "yes": (["look", "pay 500"], "pay 500"),
    "no": (["look"], "declined"),
    "5": (["look", "pay 5"], "pay 5"),
}
"""Answers to the approval request, the tools that ran in the end, and what the model read."""


@pytest.mark.parametrize("model", ["openai-compatible:m", "anthropic:claude-haiku-4-5", "google:gemini-3-flash"])
def test_each_tool_is_called_once(model: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    assert step(begun, model, "begin") == "approval deferred"
    assert (begun / "ran").read_text().split("\n")[:-1] == ["look"], "what needs nobody went on"
    for decision, (ran, text) in DECISIONS.items():
        folder = tmp_path / decision
        shutil.copytree(begun, folder)
        output = step(folder, model, "approve", decision)
        assert (folder / "ran").read_text().split("\n")[:-1] == ran, decision
        assert text in output
        assert "look" in output
        assert "forty-two" in output
