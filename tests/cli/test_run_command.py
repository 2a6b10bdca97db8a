"""`penstock run`, the commands as a whole, and what they cost."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest

from penstock import Done
from penstock.cli.app import COMMANDS, penstock
from penstock.cli.questions import parse_approval, prompt_lines
from penstock.messages import decode_messages
from penstock.run.events import decode
from tests.command import PENSTOCK, run_command, run_for_text

PATIENCE = 30
AGENT = '''
import penstock
from penstock.testing import Reply, Scripted, Status, call

@penstock.tool(read_only=True)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"

@penstock.tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"

def scripted(*replies):
    return penstock.Model("openai-compatible:m", via=Scripted(list(replies)))

def answer(request):
    if request.results:
        return f"The tool says: {request.results[-1].text}"
    return Reply("Let me see.", call("weather", {"city": request.prompt.strip()}))

agent = penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(answer)), tools=[weather])
paying = scripted(Reply("I pay.", call("pay", {"amount": 5})), "All is paid.")
payer = penstock.Agent(paying, tools=[pay], approvals="wait")
cut = penstock.Agent(scripted(Reply("So", finish="length")))
busy = penstock.Agent(scripted(Status(401, "wrong key")))
number = 17

@penstock.tool
def clear() -> str:
    """Remove the folder in which the history is to be kept."""
    import os
    os.rmdir("talks")
    return "gone"

clearer = penstock.Agent(scripted(Reply(call("clear", {})), "Cleared."), tools=[clear])

def factory():
    return agent
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENT)
    return tmp_path


def run(folder: Path, *arguments: str, piped: str = "") -> subprocess.CompletedProcess[str]:
    return run_for_text("run", *arguments, cwd=folder, input=piped)


def test_an_agent_in_a_file_is_run(folder: Path) -> None:
    done = run(folder, "agents.py", "Rome")
    assert (done.returncode, done.stderr) == (0, "")
    assert "sunny in Rome" in done.stdout
    assert "The tool says: sunny in Rome" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    "target", ["agents.py:agent", "agents", "agents:agent", "agents:factory", "./agents.py:factory"]
)
def test_an_agent_can_be_named_by_file_module_or_factory(folder: Path, target: str) -> None:
    done = run(folder, target, piped="Oslo\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "sunny in Oslo" in done.stdout


def test_a_run_can_be_printed_as_json(folder: Path) -> None:
    done = run(folder, "agents.py", "Rome", "--json")
    events = [decode(line) for line in done.stdout.splitlines()]
    assert isinstance(events[-1], Done)
    assert events[-1].output == "The tool says: sunny in Rome"


def test_a_history_is_saved_and_continued(folder: Path) -> None:
    for count, city in enumerate(("Rome", "Oslo"), 1):
        assert run(folder, "agents.py", city, "--history", "talk.json").returncode == 0
        assert sum(message.role == "user" for message in decode_messages((folder / "talk.json").read_bytes())) == count
    (folder / "talk.json").write_text('{"half":')
    done = run(folder, "agents.py", "Rome", "--history", "talk.json")
    assert done.returncode == 2
    assert "this is not a history" in done.stderr
    assert (folder / "talk.json").read_text() == '{"half":', "what could not be read is not overwritten"


def test_a_history_file_that_cannot_be_written_is_reported_before_the_run(folder: Path) -> None:
    for place, output in (
        ("nowhere/talk.json", "there is no directory nowhere"),
        ("/dev/null", "is not a regular file"),
    ):
        done = run(folder, "agents.py", "Rome", "--history", place)
        assert (done.returncode, done.stdout) == (2, "")
        assert output in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_history_that_could_not_be_saved_is_reported_in_one_line(folder: Path) -> None:
    (folder / "talks").mkdir()
    done = run(folder, "agents.py:clearer", "Go.", "--history", "talks/talk.json")
    assert "Cleared." in done.stdout
    assert done.returncode == 1
    assert done.stderr == "Error: the history could not be saved in talks/talk.json: No such file or directory\n"


@pytest.mark.parametrize("arguments", [["run", "agents.py"], ["chat", "-m", "sim:demo"], ["record", "-m", "sim:demo"]])
@pytest.mark.parametrize("prompt", ["", " \n"])
def test_an_empty_prompt_is_refused(folder: Path, arguments: list[str], prompt: str) -> None:
    output = ["-o", "kept.jsonl"] if arguments[0] == "record" else []
    ways = [([prompt], "")] if output else [([prompt], ""), ([], prompt)]
    for words, piped in ways:
        done = run_for_text(*arguments, *output, *words, cwd=folder, input=piped)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "Error: there is nothing to ask: pass a prompt\n"


def test_quiet_prints_only_the_answer(folder: Path) -> None:
    done = run(folder, "agents.py", "Rome", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The tool says: sunny in Rome\n", "")


@pytest.mark.parametrize(("target", "code", "output", "expected"), [
    ("agents.py:cut", 1, "So\n", "length"), ("agents.py:busy", 3, "", "wrong key"),
    ("agents.py:payer", 4, "I pay.\n", "waits for approval"),
])  # fmt: skip
def test_quiet_reports_a_missing_answer_on_standard_error(
    folder: Path, target: str, code: int, output: str, expected: str
) -> None:
    done = run(folder, target, "Go.", "-q")
    assert (done.returncode, done.stdout) == (code, output)
    assert done.stderr.startswith("Error: ")
    assert expected in done.stderr


@pytest.mark.parametrize(("target", "code", "expected"), [
    ("agents.py:cut", 1, "length"), ("agents.py:busy", 3, "wrong key"), ("agents.py:payer", 4, "waits for approval"),
])  # fmt: skip
def test_the_exit_code_says_how_it_ended(folder: Path, target: str, code: int, expected: str) -> None:
    done = run(folder, target, "Go.")
    assert done.returncode == code
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


MISTAKES = {
    "missing.py": "there is no file missing.py",
    "no_such_module": "there is no file or module no_such_module",
    "agents.py:nobody": "there is no 'nobody' in agents.py; its agents are: agent, payer, cut, busy, clearer",
    "agents.py:number": "is not an Agent but a value of type int",
    "agents:weather": "is not an Agent",
    "broken.py": "broken.py, line 2: NameError: name 'nothing' is not defined",
    "syntax.py": "syntax.py, line 1: invalid syntax",
    "empty.py": "there is no agent in empty.py: write agent = penstock.Agent(",
    "exits.py": "exits.py, line 1: SystemExit: 3",
    "two.py": "there are several agents in two.py (one, two): name one, as in two.py:one",
    "needs.py": "needs.py, line 1: ModuleNotFoundError: No module named 'no_such_thing'",
    "tool.py": "tool.py, line 4",
    "tool": "tool.py, line 4",
    "uses_tool": "tool.py, line 4",
    "makes.py:make": "makes.py, line 3: UsageError",
    "gives.py": "agent() in gives.py returned None: it must return a penstock.Agent",
    "gives.py:seven": "seven() in gives.py returned a value of type int",
    ".": "'.' is a directory: use a Python file or a module",
    "some/folder": "use a Python file or a module",
    "notes.txt": "notes.txt is not a Python file",
}


@pytest.mark.parametrize("arguments", [["serve"], ["worker", "--log", "runs.db"]], ids=["serve", "worker"])
def test_a_command_for_many_agents_names_them_all_as_it_takes_them(
    folder: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "two.py").write_text("from penstock import Agent\none = Agent('sim:demo')\ntwo = Agent('sim:demo')\n")
    done = click.testing.CliRunner().invoke(penstock, [*arguments, "two.py"])
    assert done.exit_code == 2
    assert "two.py (one, two): name those that you want, as in two.py:one two.py:two\n" in done.stderr


@pytest.mark.parametrize("target", MISTAKES)
def test_a_wrong_target_is_reported_in_one_line(folder: Path, target: str) -> None:
    (folder / "broken.py").write_text("import penstock\nnothing\n")
    (folder / "syntax.py").write_text("def def\n")
    (folder / "empty.py").write_text("import penstock\n")
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "needs.py").write_text("import no_such_thing\n")
    (folder / "two.py").write_text("from penstock import Agent\none = Agent('sim:demo')\ntwo = Agent('sim:demo')\n")
    (folder / "tool.py").write_text(
        "import penstock\ndef bad(x: object()): ...\n\nagent = penstock.Agent('sim:demo', [bad])\n"
    )
    (folder / "uses_tool.py").write_text("import tool\n")
    (folder / "makes.py").write_text("import penstock\ndef make():\n    return penstock.Agent('sim:demo', 3)\n")
    (folder / "gives.py").write_text("def agent(): ...\ndef seven():\n    return 7\n")
    (folder / "notes.txt").write_text("Notes.")
    done = run(folder, target, "Go.")
    assert done.returncode == 2
    assert MISTAKES[target] in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


class Terminal:
    """A process with a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
        command = [*PENSTOCK, *arguments]
        self._unread = ""
        self.child = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.ours)

    def expect(self, words: str) -> str:
        """What is printed next, up to these words."""
        seen, end = self._unread, time.monotonic() + PATIENCE
        while words not in seen:
            assert select.select([self.ours], [], [], max(0.0, end - time.monotonic()))[0], seen
            seen += os.read(self.ours, 4096).decode()
        before, _, self._unread = seen.partition(words)
        return before + words

    def interrupt(self) -> None:
        """Ctrl-C, repeated until there is output: one between a prompt and the read has no effect until the next."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.child.send_signal(signal.SIGINT)
            if select.select([self.ours], [], [], 1.0)[0]:
                return
        raise AssertionError("Ctrl-C had no effect")

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("y\n", "paid 5"), ("n\n", "declined"), ("no, too much\n", "too much"), ("yes please\n", "paid 5")],
)
def test_an_approval_is_asked_for_at_a_terminal(folder: Path, typed: str, expected: str) -> None:
    with Terminal(folder, "run", "agents.py:payer", "Pay.") as terminal:
        terminal.expect("pay(amount=5): run it? [y/N] ")
        terminal.type(typed)
        seen = terminal.expect("All is paid.")
        assert expected in seen
        assert terminal.child.wait(PATIENCE) == 0


PUSHING = """\
import penstock
from penstock.testing import Reply, Scripted, call

@penstock.tool(approval=True, parallel=False)
def commit() -> str:
    "Commit."
    return "committed"

@penstock.tool(approval=True, parallel=False)
def push() -> str:
    "Push."
    return "pushed"

model = penstock.Model("openai-compatible:m", via=Scripted([Reply(call("commit", {}), call("push", {})), "All done."]))
agent = penstock.Agent(model, tools=[commit, push], name="pusher")
"""


@pytest.mark.parametrize("options", [[], ["--log", "runs.db"], ["--state", "run.json"]])
def test_a_question_that_an_answer_withdraws_is_not_asked(folder: Path, options: list[str]) -> None:
    (folder / "pushing.py").write_text(PUSHING)
    with Terminal(folder, "run", "pushing.py", "Push.", *options) as terminal:
        terminal.expect("commit(): run it? [y/N] ")
        terminal.type("n\n")
        seen = terminal.expect("All done.")
        assert "push(): run it?" not in seen
        assert "pushed" not in seen
        assert terminal.child.wait(PATIENCE) == 0
    with Terminal(folder, "run", "pushing.py", "Push.", *options) as terminal:
        for name in ("commit", "push"):
            terminal.expect(f"{name}(): run it? [y/N] ")
            terminal.type("y\n")
        seen = terminal.expect("All done.")
        assert "committed" in seen
        assert "pushed" in seen


EDITING = """\
import penstock
from penstock.testing import Reply, Scripted, call

def plan(new: str) -> penstock.Prepared:
    return penstock.Prepared(preview="@@ -1 +1 @@\\n-\\told\\n+" + new + "\\x1b[2J")

@penstock.tool(approval=True, prepare=plan)
def edit(new: str) -> str:
    "Edit."
    return "changed"

model = penstock.Model("openai-compatible:m", via=Scripted([Reply(call("edit", {"new": "hello"})), "All done."]))
agent = penstock.Agent(model, tools=[edit], name="editor")
"""


def test_the_preview_of_a_call_stands_above_its_question_line_by_line(folder: Path) -> None:
    (folder / "editing.py").write_text(EDITING)
    with Terminal(folder, "run", "editing.py", "Edit.") as terminal:
        seen = re.sub(r"\x1b\[\d+m", "", terminal.expect("edit(new='hello'): run it? [y/N] "))
        assert "  @@ -1 +1 @@\r\n  -       old\r\n  +hello\\x1b[2J\r\n" in seen
        terminal.type("y\n")
        assert "changed" in terminal.expect("All done.")


def test_a_call_that_waited_is_shown_again_with_its_arguments(folder: Path) -> None:
    with Terminal(folder, "run", "agents.py:payer", "Pay.") as terminal:
        seen = terminal.expect("run it? ")
        assert "waits for your approval" in seen
        assert "interrupted" not in seen
        assert "paused" not in seen
        terminal.type("y\n")
        seen = terminal.expect("paid 5")
        assert "amount" in seen


def test_ctrl_c_at_an_approval_ends_the_run_with_a_valid_history(folder: Path) -> None:
    with Terminal(folder, "run", "agents.py:payer", "Pay.", "--history", "talk.json") as terminal:
        terminal.expect("run it? ")
        terminal.interrupt()
        assert terminal.child.wait(PATIENCE) == 130
    roles = [message.role for message in decode_messages((folder / "talk.json").read_bytes())]
    assert roles == ["user", "assistant", "tool"], "the model was not asked again"


def test_ctrl_c_at_an_approval_of_a_run_with_a_log_says_how_to_resume_it(folder: Path) -> None:
    named = "penstock.Agent(agents.paying, tools=[agents.pay], approvals='wait', name='payer')"
    (folder / "named.py").write_text(f"import agents, penstock\nagent = {named}\n")
    with Terminal(folder, "run", "named.py", "Pay.", "--log", "runs.db") as terminal:
        terminal.expect("run it? ")
        terminal.interrupt()
        terminal.expect("The run is left; to resume it: penstock run named.py --log runs.db --resume ")
        assert terminal.child.wait(PATIENCE) == 130


@pytest.mark.parametrize("options", [[], ["--plain"], ["-q"]])
def test_a_missing_key_is_reported_once(folder: Path, options: list[str]) -> None:
    (folder / "keyless.py").write_text("import penstock\nagent = penstock.Agent('openai:gpt-5')\n")
    env = {**os.environ, "OPENAI_API_KEY": ""}
    done = run_for_text("run", "keyless.py", "Hi.", *options, cwd=folder, env=env)
    assert done.returncode == 2
    assert (done.stdout + done.stderr).count("set OPENAI_API_KEY") == 1


@pytest.mark.parametrize("command", [["chat", "-m", "openai:gpt-5"], ["run", "keyless.py"]])
def test_a_missing_key_is_reported_before_the_first_prompt(
    folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    (folder / "keyless.py").write_text("import penstock\nagent = penstock.Agent('openai:gpt-5')\n")
    with Terminal(folder, *command) as terminal:
        printed = terminal.expect("set OPENAI_API_KEY in the environment")
        assert "›" not in printed
        assert terminal.child.wait(PATIENCE) == 2


@pytest.mark.parametrize("name", ["sim:demo", "anthropic:claude-sonnet-5"])
def test_a_model_in_place_of_the_prompt_is_recognised(name: str) -> None:
    done = run_for_text("chat", name)
    assert done.returncode == 2
    assert f"{name} is a model, not a prompt: penstock chat -m {name}" in done.stderr


def test_of_two_output_options_the_last_counts(folder: Path) -> None:
    assert run(folder, "agents.py", "Rome", "--json", "-q").stdout == "The tool says: sunny in Rome\n"
    assert run(folder, "agents.py", "Rome", "-q", "--json").stdout.startswith('{"type":"step_start"')


def test_a_local_server_that_is_down_gets_a_question(folder: Path) -> None:
    near = "penstock.Model('vllm:m', 'http://127.0.0.1:9', retries=penstock.Retries(attempts=1))"
    (folder / "near.py").write_text(f"import penstock\nagent = penstock.Agent({near})\n")
    done = run(folder, "near.py", "Hi.")
    assert (done.returncode, done.stderr) == (3, "Is it running?\n")
    for url, is_near in (("http://localhost:9", True), ("http://nowhere.invalid", False)):
        done = run_for_text("chat", "-m", "vllm:m", "--base-url", url, "Hi.")
        assert done.returncode == 3
        assert ("(is it running?)" in done.stderr) is is_near


@pytest.mark.parametrize("command", [["chat"], ["chat", "Hi."], ["record", "-o", "kept.jsonl", "Hi."]])
def test_a_missing_model_gets_an_example_without_a_key(folder: Path, command: list[str]) -> None:
    done = run_for_text(*command, cwd=folder)
    assert done.returncode == 2
    assert "Missing option '-m' / '--model'. Name a model, as in -m sim:demo, which needs no key." in done.stderr


TOOLS = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]


@pytest.mark.parametrize("prompt", [["Rome"], []])
def test_ctrl_c_at_a_result_ends_the_response(folder: Path, prompt: list[str]) -> None:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    with Terminal(folder, "chat", "-m", "sim:fast", "--tools", "tools.json", *prompt) as terminal:
        if not prompt:
            terminal.expect("› ")
            terminal.type("Rome\n")
        terminal.expect("returns › ")
        terminal.interrupt()
        if not prompt:
            assert "no answer" not in terminal.expect("› ")
            terminal.type("\x04")
        assert terminal.child.wait(PATIENCE) == 130


DECLARED = f"""
import penstock
agent = penstock.Agent(penstock.Model("sim:fast", record="kept.jsonl"), {TOOLS!r})
"""


@pytest.mark.parametrize(("typed", "expected"), [("fine\n", "fine"), ("\n", "(no answer)"), ("\x04", "(no answer)")])
def test_chat_and_run_ask_for_a_result_in_the_same_way(folder: Path, typed: str, expected: str) -> None:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    (folder / "declared.py").write_text(DECLARED)
    kept = folder / "kept.jsonl"
    chat = ["chat", "-m", "sim:fast", "--tools", "tools.json", "--record", "kept.jsonl"]
    for command in (chat, ["run", "declared.py"]):
        kept.unlink(missing_ok=True)
        with Terminal(folder, *command, "Rome") as terminal:
            terminal.expect("returns › ")
            terminal.type(typed)
            assert terminal.child.wait(PATIENCE) == 0
        assert f'"content":"{expected}"' in kept.read_text()


@pytest.mark.parametrize(("answer", "decision"), [
    *[(yes, (True, "")) for yes in ("y", "Yes", "ok", "OK!", "sure", "yes please", "ok, go ahead", "go ahead")],
    *[(no, (False, "")) for no in ("", "n", "No.", "nope", "NO")],
    ("no, too much", (False, "too much")), ("n: not today", (False, "not today")), ("don't", (False, "")),
    *[(neither, None) for neither in ("maybe", "too much", "yes but only 3", "yesterday", "okra", "?")],
])  # fmt: skip
def test_an_approval_is_parsed_as_yes_no_or_unclear(answer: str, decision: tuple[bool, str] | None) -> None:
    assert parse_approval(answer) == decision


def test_an_unclear_approval_is_asked_again(folder: Path) -> None:
    with Terminal(folder, "run", "agents.py:payer", "Pay.") as terminal:
        terminal.expect("run it? [y/N] ")
        terminal.type("hm\n")
        assert "Answer y or n" in terminal.expect("run it? [y/N] ")
        terminal.type("ok\n")
        terminal.expect("paid 5")


@pytest.mark.parametrize(("typed", "lines"), [
    (["one", KeyboardInterrupt, "two", EOFError], ["one", "two"]),
    (["one", KeyboardInterrupt, KeyboardInterrupt], ["one"]),
    ([KeyboardInterrupt, "one", KeyboardInterrupt, " ", KeyboardInterrupt, "two", EOFError], ["one", "two"]),
    (["/help", "one", "/quit"], ["one"]),
    (["/etc/hosts is empty", "/", EOFError], ["/etc/hosts is empty", "/"]),
])  # fmt: skip
def test_ctrl_c_clears_the_line_and_twice_leaves(
    monkeypatch: pytest.MonkeyPatch, typed: list[Any], lines: list[str]
) -> None:
    answers = iter(typed)

    def answer(_question: str) -> str:
        line = next(answers)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", answer)
    assert list(prompt_lines("› ")) == lines
    assert list(answers) == []


def test_the_prompt_has_help_and_knows_its_commands(folder: Path) -> None:
    with Terminal(folder, "chat", "-m", "sim:fast") as terminal:
        terminal.expect("› ")
        terminal.type("/help\n")
        assert "Ctrl-C  clears the line" in terminal.expect("› ")
        terminal.type("/hlep\n")
        terminal.expect("unknown command /hlep; /help lists the commands")
        terminal.type("/exit\n")
        assert terminal.child.wait(PATIENCE) == 0


def test_a_chat_continues_its_history(folder: Path) -> None:
    for count, city in enumerate(("Rome", "Oslo"), 1):
        command = ["chat", "-m", "sim:fast", "--history", "talk.json", city]
        assert run_command(*command, cwd=folder).returncode == 0
        roles = [message.role for message in decode_messages((folder / "talk.json").read_bytes())]
        assert roles == ["user", "assistant"] * count
    done = run_for_text("chat", "-m", "sim:fast", "--history", "nowhere/talk.json", "Hi.", cwd=folder)
    assert (done.returncode, done.stderr) == (2, "Error: there is no directory nowhere to save the history in\n")


@pytest.mark.parametrize("command", [["chat", "-m", "sim:fast"], ["run", "agents.py"]])
def test_the_messages_of_a_history_are_counted(folder: Path, command: list[str]) -> None:
    (folder / "talk.json").write_text('[{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}]')
    with Terminal(folder, *command, "--history", "talk.json") as terminal:
        assert "2 messages from talk.json" in terminal.expect("› ")


@pytest.mark.parametrize("command", [["chat", "-m", "sim:fast"], ["run", "agents.py"]])
def test_a_broken_history_is_reported_with_its_file(folder: Path, command: list[str]) -> None:
    (folder / "talk.json").write_text('[{"role": "us')
    done = run_for_text(*command, "--history", "talk.json", "Hi.", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: the history in talk.json cannot be read: ")


def test_a_conversation_alternates_until_ctrl_d(folder: Path) -> None:
    with Terminal(folder, "run", "agents.py") as terminal:
        terminal.expect("› ")
        for city in ("Rome", "Oslo"):
            terminal.type(f"{city}\n")
            terminal.expect(f"The tool says: sunny in {city}")
        terminal.type("\x04")
        assert terminal.child.wait(PATIENCE) == 0


# All commands.


def test_the_list_of_commands_has_the_short_help_of_each() -> None:
    context = click.Context(penstock)
    for name in penstock.list_commands(context):
        command = penstock.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(200) == COMMANDS[name][1], name
    assert penstock.get_command(context, "no-such-command") is None


@pytest.mark.parametrize("group", ["runs", "log"])
def test_the_lists_of_inner_commands_have_whole_sentences(group: str) -> None:
    commands = (
        click.testing.CliRunner().invoke(penstock, [group, "--help"]).stdout.partition("Commands:\n")[2].splitlines()
    )
    assert commands
    assert [line for line in commands if line.endswith("...")] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_the_commands(shell: str) -> None:
    script = run_for_text("completion", shell).stdout
    assert "_PENSTOCK_COMPLETE" in script
    env = {**os.environ, "_PENSTOCK_COMPLETE": f"{shell}_complete", "COMP_WORDS": "penstock de", "COMP_CWORD": "1"}
    if shell == "fish":
        env["COMP_WORDS"], env["COMP_CWORD"] = "penstock de", "de"
    found = run_for_text(env=env).stdout
    assert "decode" in found
    assert "demo" in found


@pytest.mark.parametrize(("words", "offered"), [
    (["run", "ag"], ["file,ag"]),
    (["chat", "-m", "open"], ["plain,openrouter:", "plain,openai:", "plain,openai-compatible:"]),
    (["chat", "-m", "si"], ["plain,sim:demo"]),
    (["chat", "--calls", "na"], ["plain,native"]),
    (["chat", "--calls", "au"], ["plain,auto"]),
    (["chat", "--calls", "xml,qwen3"], ["plain,xml,qwen3_coder"]),
    (["decode", "--calls", "qwen3"], ["plain,qwen3_coder"]),
    (["chat", "--wire", "ge"], ["plain,gemini", "plain,gemini-interactions"]),
    (["demo", "--dialect", "herm"], ["plain,hermes"]),
    (["check", "--provider", "mis"], ["plain,mistral"]),
    (["check", "--to", "anth"], ["plain,anthropic"]),
])  # fmt: skip
def test_shells_complete_names(words: list[str], offered: list[str]) -> None:
    typed = {"COMP_WORDS": " ".join(["penstock", *words]), "COMP_CWORD": str(len(words))}
    env = {**os.environ, "_PENSTOCK_COMPLETE": "bash_complete", **typed}
    found = run_for_text(env=env).stdout
    assert set(found.split()) == set(offered)


@pytest.mark.parametrize(("name", "expected"), [
    ("openai:gpt-5", "no API key for openai: set OPENAI_API_KEY in the environment"),
    ("openai-compatible:x", "pass --base-url or set OPENAI_COMPATIBLE_BASE_URL"),
])  # fmt: skip
def test_errors_name_options_and_not_python_arguments(name: str, expected: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    done = run_for_text("chat", "-m", name, "Hi.", env=env)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Model(" not in done.stderr


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_models_truncates_nothing_at_any_width(width: int) -> None:
    env = {**os.environ, "COLUMNS": str(width)}
    shown = run_for_text("models", env=env).stdout
    assert "…" not in shown
    assert width < 60 or "GOOGLE_ACCESS_TOKEN" in shown


def models(width: int, **settings: str) -> dict[str, str]:
    """The key column of each provider, with only these variables set."""
    mine = ("OPENAI", "AZURE", "AWS", "GOOGLE", "BEDROCK")
    env = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    env |= {"COLUMNS": str(width), **settings}
    output = run_for_text("models", env=env).stdout
    begin, end = output.index(" key") - output.index(" provider"), re.search("key +", output)
    assert end is not None
    keys: dict[str, str] = {}
    for line in output.splitlines()[3:-2]:
        name = line[:begin].strip() or list(keys)[-1]
        keys[name] = f"{keys.get(name, '')} {line[begin : begin + len(end[0])].strip()}".strip()
    return keys


@pytest.mark.parametrize("width", [60, 80])
def test_models_names_the_variables_of_an_address_that_is_not_shown(width: int) -> None:
    output = models(width)
    assert output["openai-compatible"] == "missing: OPENAI_COMPATIBLE_BASE_URL"
    assert output["azure"] == "missing: AZURE_OPENAI_API_KEY, AZURE_OPENAI_ENDPOINT"
    assert output["vertex"] == "missing: GOOGLE_ACCESS_TOKEN, GOOGLE_CLOUD_LOCATION, GOOGLE_CLOUD_PROJECT"
    assert output["bedrock"] == "missing: AWS_BEARER_TOKEN_BEDROCK (or AWS credentials), AWS_REGION"
    output = models(width, AZURE_OPENAI_API_KEY="k", GOOGLE_CLOUD_LOCATION="global")
    assert output["azure"] == "✓ AZURE_OPENAI_API_KEY, missing: AZURE_OPENAI_ENDPOINT"
    assert output["vertex"] == "missing: GOOGLE_ACCESS_TOKEN, GOOGLE_CLOUD_PROJECT"


@pytest.mark.parametrize("width", [80, 140])
def test_models_names_the_key_of_bedrock(width: int) -> None:
    region = {"AWS_DEFAULT_REGION": "eu-north-1"}
    assert models(width, **region)["bedrock"] == "missing: AWS_BEARER_TOKEN_BEDROCK (or AWS credentials)"
    for variable in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"):
        assert models(width, **region, **{variable: "k"})["bedrock"] == f"✓ {variable}"


@pytest.mark.parametrize("name", ["gemini", "google:gemini-3"])
def test_models_shows_how_to_name_the_models_of_one_provider(name: str) -> None:
    shown = run_for_text("models", name).stdout
    assert "google:MODEL" in shown
    assert "GEMINI_API_KEY or GOOGLE_API_KEY" in shown
    assert "anthropic" not in shown


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai", ["missing: OPENAI_API_KEY\n", "--wire openai-chat", "penstock chat -m openai:MODEL\n"]),
        ("openai-compatible", ["optional: OPENAI_COMPATIBLE_API_KEY\n", "-m openai-compatible:MODEL --base-url URL\n"]),
        ("google", ["missing: GEMINI_API_KEY or GOOGLE_API_KEY\n"]),
        ("sim", ["sim:demo", "sim:fast", "penstock chat -m sim:demo\n"]),
        ("sim:demo", ["sim:demo", "sim:fast"]),
    ],
)
def test_models_shows_the_details_of_one_provider(name: str, expected: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "GEMINI", "GOOGLE"))}
    shown = run_for_text("models", name, env=env).stdout
    assert all(text in shown for text in expected), shown
    assert "base_url" not in shown
    assert 'wire="' not in shown


def test_models_lists_the_dialects() -> None:
    shown = run_for_text("models", "--dialects").stdout
    assert {"xml", "hermes", "qwen3_coder"} <= set(shown.splitlines())


def test_models_suggests_a_similar_provider() -> None:
    done = run_for_text("models", "opnai")
    assert (done.returncode, done.stderr) == (2, "Error: unknown provider 'opnai', did you mean 'openai'?\n")


def test_a_provider_without_an_address_has_none_in_json() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "AZURE"))}
    output = run_command("models", "--json", env=env).stdout
    urls = {row["provider"]: row["url"] for row in json.loads(output)}
    assert (urls["openai-compatible"], urls["azure"]) == (None, None)
    assert urls["openai"] == "https://api.openai.com/v1"


def test_help_imports_only_what_it_needs() -> None:
    command = "import sys; from penstock.cli import main; sys.argv[1:] = ['--help']"
    code = f"{command}\ntry: main()\nfinally: print(*sys.modules)"
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"rich", "msgspec", "asyncio", "aiohttp", "httpx2", "pydantic"}
    assert len([name for name in loaded if name.partition(".")[0] == "penstock"]) <= 6, (
        "help costs little more than click"
    )


def test_events_of_commands_are_json(folder: Path) -> None:
    done = run(folder, "agents.py", "Rome", "--json")
    assert all("type" in json.loads(line) for line in done.stdout.splitlines())
