"""`penstock run --state`: a run that waits for a person is kept in a file, and goes on from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from penstock.messages import decode_messages, encode_messages, user
from tests.cli.test_run_command import PATIENCE, Terminal
from tests.command import run_for_text

AGENT = '''
import pathlib
import penstock
from penstock.testing import Reply, Scripted, call


@penstock.tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    with pathlib.Path("paid").open("a") as book:
        book.write(f"{amount}\\n")
    return f"paid {amount}"


@penstock.tool(deferred=True)
def deliver(to: str) -> str:
    """Deliver something, elsewhere."""


@penstock.tool(approval=True)
def note(text: str) -> str:
    """Write this down."""
    return "written"


@penstock.tool(approval=True, parallel=False)
def commit() -> str:
    """Commit."""
    return "committed"


@penstock.tool(approval=True, parallel=False)
def push() -> str:
    """Push."""
    return "pushed"


def agent_of(answer, *tools):
    return penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(answer)), tools=list(tools))


def once(request):
    if request.results:
        return f"The tool says: {request.results[-1].text}"
    return Reply("I pay.", call("pay", {"amount": 5}))


def twice(request):
    if request.results and request.results[-1].text == "paid 5":
        return Reply("Again.", call("pay", {"amount": 6}))
    return once(request)


def both(request):
    if request.results:
        return "Told: " + ", ".join(result.text for result in request.results)
    return Reply("Both.", call("pay", {"amount": 5}), call("deliver", {"to": "Rome"}))


def committing(request):
    if request.results:
        return "Told: " + ", ".join(result.text for result in request.results)
    return Reply(call("commit", {}), call("push", {}))


def delivering(request):
    return "Delivered." if request.results else Reply("Off.", call("deliver", {"to": "Rome"}))


def hostile(request):
    return "Done." if request.results else Reply(call("note", {"text": "\\x1b[2J\\x9b\\u202e"}))


payer = agent_of(once, pay)
again = agent_of(twice, pay)
shipper = agent_of(both, pay, deliver)
porter = agent_of(delivering, deliver)
stranger = agent_of(once)
poor = penstock.Agent("openai:gpt-5", [pay])
sly = agent_of(hostile, note)
coder = agent_of(committing, commit, push)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENT)
    return tmp_path


def run(folder: Path, agent: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with a state file, and nobody to ask."""
    return run_for_text("run", f"agents.py:{agent}", "--state", "run.json", *arguments, cwd=folder)


def paid(folder: Path) -> list[str]:
    book = folder / "paid"
    return book.read_text().split() if book.exists() else []


def test_a_run_that_waits_is_saved_and_its_calls_are_reported(folder: Path) -> None:
    done = run(folder, "payer", "Pay.")
    assert done.returncode == 4
    assert done.stderr == (
        "Error: there is no terminal to ask a person: pay(amount=5) waits for approval; "
        "continue with --state run.json, at a terminal or with --yes or --no\n"
    )
    assert msgspec.json.decode((folder / "run.json").read_bytes())["penstock_run"] == 2
    assert [file.name for file in folder.glob("run.json*")] == ["run.json"], "nothing half written is left"
    assert paid(folder) == []


def test_without_state_a_run_that_waits_is_reported_as_not_saved(folder: Path) -> None:
    done = run_for_text("run", "agents.py:payer", "Pay.", "-q", cwd=folder)
    assert (done.returncode, done.stdout) == (4, "I pay.\n")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(
        "pay(amount=5) waits for approval; the run is not saved: use --state FILE to continue it later\n"
    )


@pytest.mark.parametrize(("verdict", "answer", "book"), [
    ("--yes", "The tool says: paid 5\n", ["5"]), ("--no", "declined", []),
])  # fmt: skip
def test_a_saved_run_continues_with_a_verdict(folder: Path, verdict: str, answer: str, book: list[str]) -> None:
    assert run(folder, "payer", "Pay.").returncode == 4
    done = run(folder, "payer", verdict, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert answer in done.stdout
    assert paid(folder) == book
    assert not (folder / "run.json").exists(), "the run is over"


@pytest.mark.parametrize(("verdict", "answer"), [
    ("--yes", "Told: committed, pushed"), ("--no", "This tool runs only after the calls before it have succeeded."),
])  # fmt: skip
def test_a_verdict_answers_calls_that_run_one_after_the_other(folder: Path, verdict: str, answer: str) -> None:
    assert run(folder, "coder", "Go.").returncode == 4
    done = run(folder, "coder", verdict, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert answer in done.stdout


def test_without_a_verdict_a_saved_run_still_waits(folder: Path) -> None:
    run(folder, "payer", "Pay.")
    kept = (folder / "run.json").read_bytes()
    done = run(folder, "payer")
    assert (done.returncode, done.stdout) == (4, "")
    assert "pay(amount=5) waits for approval" in done.stderr
    assert (folder / "run.json").read_bytes() == kept


def test_a_verdict_does_not_apply_to_later_calls(folder: Path) -> None:
    run(folder, "again", "Pay.")
    done = run(folder, "again", "--yes")
    assert done.returncode == 4
    assert "pay(amount=6) waits for approval" in done.stderr
    assert paid(folder) == ["5"]
    assert run(folder, "again", "--yes").returncode == 0
    assert paid(folder) == ["5", "6"]


def test_a_deferred_call_waits_for_its_result(folder: Path) -> None:
    done = run(folder, "porter", "Go.")
    assert done.returncode == 4
    assert "deliver(to='Rome') waits for its result; continue with --state run.json at a terminal\n" in done.stderr
    assert run(folder, "porter", "--yes").returncode == 4, "a verdict is no result"
    assert (folder / "run.json").exists()


def test_a_verdict_does_not_answer_a_deferred_call(folder: Path) -> None:
    run(folder, "shipper", "Go.")
    done = run(folder, "shipper", "--yes")
    assert done.returncode == 4
    assert "Error: there is no terminal to ask a person: deliver(to='Rome') waits for its result;" in done.stderr
    assert paid(folder) == ["5"]
    with Terminal(folder, "run", "agents.py:shipper", "--state", "run.json") as terminal:
        terminal.expect("deliver(to='Rome') returns › ")
        terminal.type("it came\n")
        terminal.expect("Told: paid 5, it came")
        assert terminal.child.wait(PATIENCE) == 0
    assert paid(folder) == ["5"], "it was paid once"


@pytest.mark.parametrize(("typed", "expected"), [("y\n", "paid 5"), ("n too much\n", "too much")])
def test_a_saved_run_asks_for_approval_at_a_terminal(folder: Path, typed: str, expected: str) -> None:
    run(folder, "payer", "Pay.")
    with Terminal(folder, "run", "agents.py:payer", "--state", "run.json") as terminal:
        terminal.expect("pay(amount=5): run it? [y/N] ")
        terminal.type(typed)
        assert expected in terminal.expect("The tool says:")
        assert terminal.child.wait(PATIENCE) == 0
    assert not (folder / "run.json").exists()


def test_ctrl_c_at_an_approval_keeps_the_saved_run(folder: Path) -> None:
    with Terminal(folder, "run", "agents.py:payer", "Pay.", "--state", "run.json") as terminal:
        terminal.expect("run it? ")
        terminal.interrupt()
        assert terminal.child.wait(PATIENCE) == 130
    assert run(folder, "payer", "--yes").returncode == 0
    assert paid(folder) == ["5"]


def test_a_call_that_was_approved_does_not_run_again_after_a_crash(folder: Path) -> None:
    run(folder, "payer", "Pay.")
    with (folder / "agents.py").open("a") as file:
        file.write('\n\n@penstock.tool(approval=True)\ndef pay(amount: int) -> str:\n    """Pay."""\n')
        file.write("    import os\n    os._exit(9)\n\n\npayer = agent_of(once, pay)\n")
    assert run(folder, "payer", "--yes").returncode == 9
    assert not (folder / "run.json").exists()


def test_a_run_that_does_not_wait_leaves_no_state_file(folder: Path) -> None:
    run(folder, "payer", "Pay.")
    env = {**os.environ, "OPENAI_API_KEY": ""}
    done = run_for_text("run", "agents.py:poor", "--state", "run.json", "--yes", cwd=folder, env=env)
    assert done.returncode == 2
    assert done.stdout.count("OPENAI_API_KEY") == 1
    assert not (folder / "run.json").exists()
    assert paid(folder) == ["5"]


def test_a_history_is_saved_beside_the_state(folder: Path) -> None:
    history = folder / "talk.json"
    assert run(folder, "payer", "Pay.", "--history", "talk.json").returncode == 4
    assert run(folder, "payer", "--yes", "--history", "talk.json").returncode == 0
    messages = decode_messages(history.read_bytes())
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert "paid 5" in history.read_text()


def test_a_history_that_was_continued_is_not_overwritten(folder: Path) -> None:
    run(folder, "payer", "Pay.", "--history", "talk.json")
    longer = [*decode_messages((folder / "talk.json").read_bytes()), user("Well?")]
    (folder / "talk.json").write_bytes(encode_messages(longer))
    done = run(folder, "payer", "--yes", "--history", "talk.json")
    assert done.returncode == 2
    assert "the history in talk.json was continued without the run in run.json" in done.stderr
    assert decode_messages((folder / "talk.json").read_bytes()) == longer
    assert (folder / "run.json").exists()
    assert paid(folder) == []


MISTAKES: dict[str, tuple[list[str], bytes | None, str]] = {
    "a prompt": (["Pay."], b"{}", "a run waits in run.json: omit the prompt to continue it, or remove the file"),
    "no run": (["--yes"], None, "--yes and --no are for a run that waits: there is no run.json"),
    "empty": ([], b"", "run.json: this is not a stored run"),
    "no JSON": ([], b"\xff\xfe", "run.json: this is not a stored run"),
    "another JSON": ([], b"[1, 2]", "run.json: this is not a stored run"),
    "cut": ([], b'{"penstock_run":1,"messages":[', "run.json: this is not a stored run"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_target_is_reported_in_one_line(folder: Path, name: str) -> None:
    arguments, content, output = MISTAKES[name]
    if content is not None:
        (folder / "run.json").write_bytes(content)
    done = run(folder, "payer", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert output in done.stderr
    assert done.stderr.count("\n") == 1
    assert content is None or (folder / "run.json").read_bytes() == content, "what could not be read is not removed"


def test_a_verdict_needs_a_state_file(folder: Path) -> None:
    done = run_for_text("run", "agents.py:payer", "--yes", "Pay.", cwd=folder)
    assert done.returncode == 2
    assert done.stderr == "Error: --yes and --no are for a run that waits: name its file with --state\n"


def test_the_run_of_another_agent_is_refused(folder: Path) -> None:
    run(folder, "payer", "Pay.")
    done = run(folder, "stranger", "--yes")
    assert done.returncode == 2
    assert "the run in run.json calls 'pay', which this agent does not have: run its own agent" in done.stderr
    assert (folder / "run.json").exists()


def test_a_state_file_that_cannot_be_written_is_reported_before_the_run(folder: Path) -> None:
    for place, output in (
        ("nowhere/run.json", "there is no directory nowhere"),
        ("/dev/null", "is not a regular file"),
    ):
        done = run(folder, "payer", "Pay.", "--state", place)
        assert (done.returncode, done.stdout) == (2, "")
        assert output in done.stderr


def test_a_run_that_could_not_be_saved_is_reported(folder: Path) -> None:
    (folder / "runs").mkdir()
    with (folder / "agents.py").open("a") as file:
        file.write("\n\ndef leaving(request):\n    import os\n    os.rmdir('runs')\n    return once(request)\n")
        file.write("\n\npayer = agent_of(leaving, pay)\n")
    done = run(folder, "payer", "Pay.", "--state", "runs/run.json")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first == "Error: the run could not be saved in runs/run.json: No such file or directory"
    assert second.endswith("waits for approval; the run is not saved")


def test_control_characters_in_a_waiting_call_are_escaped(folder: Path) -> None:
    done = run(folder, "sly", "Pay.")
    assert (done.returncode, "waits for approval" in done.stderr) == (4, True)
    assert set("\x1b\x9b\u202e").isdisjoint(done.stderr + done.stdout)


def test_the_help_explains_state() -> None:
    output = run_for_text("run", "--help")
    words = " ".join(output.stdout.split())
    assert "Save a run that waits for a person to this file; without PROMPT, continue it." in words
    assert "--yes / --no" in words
