"""The coding agent of the examples: its folder, its commands, its questions, and its log. The model is scripted."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.log
from examples.coding_agent.agent import MAX_RESULT, coding_agent
from examples.coding_agent.conversation import NOBODY, Conversation
from examples.coding_agent.demo import END, FILES, NEW, OLD, PROMPT, create_project, demo_model
from examples.coding_agent.screen import Screen
from examples.coding_agent.shell import MAX_OUTPUT, run_command
from examples.coding_agent.tools import MAX_FOUND, SAFE_COMMANDS, coding_tools, planned_change
from examples.coding_agent.workspace import MAX_FILE, Workspace, matches
from penstock import ToolError
from penstock.testing import Crashed, FakeClock, Reply, Scripted, call, crash_at, say
from tests.project.test_examples import FOLDER, terminal

SOON = 30.0


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    folder = tmp_path / "project"
    create_project(folder)
    return Workspace(folder)


# -- the folder --------------------------------------------------------------------------------------------------------


def test_nothing_outside_of_the_folder_is_read_or_written(workspace: Workspace) -> None:
    secret = workspace.root.parent / "secret.txt"
    secret.write_text("secret")
    (workspace.root / "link").symlink_to(workspace.root.parent)
    names = ["../secret.txt", str(secret), "link/secret.txt", "a/../../secret.txt", "link/new.txt"]
    for name in names:
        with pytest.raises(ToolError, match="outside of the working folder"):
            workspace.text(name)
        with pytest.raises(ToolError, match="outside of the working folder"):
            workspace.plan_write(name, "x")
    assert not any("secret" in name for name in workspace.files())
    with pytest.raises(ToolError, match="files of git"):
        workspace.plan_write(".git/hooks/pre-commit", "x")


def test_files_that_cannot_be_read_as_text_say_why(workspace: Workspace) -> None:
    (workspace.root / "data.bin").write_bytes(b"\xff\x00")
    (workspace.root / "large.txt").write_text("x" * (MAX_FILE + 1))
    for name, problem in {
        "data.bin": "not a text file", "large.txt": "larger than", "none.py": "No such file", ".": "directory",
    }.items():  # fmt: skip
        with pytest.raises(ToolError, match=problem):
            workspace.text(name)


def test_a_change_is_what_was_planned_or_nothing(workspace: Workspace) -> None:
    with pytest.raises(ToolError, match="does not contain the old text"):
        workspace.plan_edit("basket.py", "nothing", "x")
    with pytest.raises(ToolError, match="3 times"):
        workspace.plan_edit("basket.py", "prices", "x")
    change = workspace.plan_edit("basket.py", OLD, NEW)
    assert change.difference.splitlines()[-2:] == [f"-    {OLD[:-1]}", f"+    {NEW[:-1]}"]
    (workspace.root / "basket.py").write_text("other")
    with pytest.raises(ToolError, match="has changed in the meantime"):
        workspace.apply(change)
    created = workspace.plan_write("new/file.txt", "one\r\ntwo")
    assert (
        created.difference
        == "--- /dev/null\n+++ b/new/file.txt\n@@ -0,0 +1,2 @@\n+one\r\n+two\n\\ No newline at end of file\n"
    )
    workspace.apply(created)
    assert (workspace.root / "new/file.txt").read_bytes() == b"one\r\ntwo"
    workspace.apply(workspace.plan_edit("new/file.txt", "two", "three\r\n"))
    assert (workspace.root / "new/file.txt").read_bytes() == b"one\r\nthree\r\n", "line ends were changed"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("**/*.py", ["a.py", "b/c.py"]), ("*.py", ["a.py"]), ("b/**", ["b/c.py", "b/d.txt"]), ("b/?.txt", ["b/d.txt"]),
     ("**/*", ["a.py", "b/c.py", "b/d.txt"]), ("a+py", [])],
)  # fmt: skip
def test_patterns(pattern: str, names: list[str]) -> None:
    assert [name for name in ("a.py", "b/c.py", "b/d.txt") if matches(name, pattern)] == names


# -- the tools ---------------------------------------------------------------------------------------------------------


def used(workspace: Workspace, name: str, **arguments: Any) -> str:
    """The result of a call, in a run in which nobody is asked."""
    script = Scripted([Reply(call(name, arguments)), "Done."])
    result = penstock.Agent(penstock.Model("openai:m", via=script), coding_tools(workspace)).run("Go.")
    return result.messages[2].results[0].text


def test_files_are_read_in_parts_and_found(workspace: Workspace) -> None:
    lines = [f"line {number}\n" for number in range(1, 1001)]
    (workspace.root / "long.txt").write_text("".join(lines))
    first = used(workspace, "read", path="long.txt")
    assert first.startswith("line 1\n")
    assert first.endswith("line 400\n[600 more lines; continue with first_line=401]")
    assert used(workspace, "read", path="long.txt", first_line=999) == "line 999\nline 1000\n"
    assert used(workspace, "glob", pattern="*.py") == "basket.py\ntest_basket.py"
    assert used(workspace, "grep", expression="^def ").startswith("basket.py:4: def total(")
    assert used(workspace, "grep", expression="nowhere") == "nothing found"
    assert used(workspace, "grep", expression="(").startswith("the expression is not valid")
    many = used(workspace, "grep", expression="line").splitlines()
    assert (len(many), many[-1]) == (MAX_FOUND + 1, "[more; use a narrower pattern]")


def test_the_model_pages_through_a_file_with_long_lines(workspace: Workspace) -> None:
    (workspace.root / "min.js").write_text("x" * 50_000 + "end")
    script = [Reply(call("read", {"path": "min.js"}, id="a")), Reply(call("read_result", {"id": "a", "start": 49_000}))]
    _, run, _ = talk(workspace, [*script, "Done."], [])
    first, rest = run.messages[2].results[0].text, run.messages[4].results[0].text
    assert len(first) < MAX_RESULT + 500
    assert "xend" in rest


def test_a_read_sees_what_the_calls_before_it_wrote(workspace: Workspace) -> None:
    script = [Reply(call("write", {"path": "a", "content": "new"}), call("read", {"path": "a"})), "Done."]
    _, run, _ = talk(workspace, script, [("run it?", "yes")])
    assert [result.text for result in run.messages[2].results] == ["a: created", "new"]


@pytest.mark.parametrize(
    "command", ["ls; rm -rf /", "ls && true", "git status --output=x", "cat ../x", "ls -la ..", "LS"]
)
def test_only_known_commands_run_without_approval(workspace: Workspace, command: str) -> None:
    bash = coding_tools(workspace, ["make test"])[-1]
    needs_approval: Any = bash.approval
    assert needs_approval({"command": command})
    assert not any(needs_approval({"command": known}) for known in [*SAFE_COMMANDS, " ls ", "make test"])


def run_in(folder: Path, command: str, seconds: float = SOON) -> str:
    return asyncio.run(run_command(command, folder, seconds))


def test_the_result_of_a_command_is_its_output_and_exit_code(tmp_path: Path) -> None:
    assert run_in(tmp_path, "echo one; echo two >&2; exit 3") == "one\ntwo\n[exit code 3]"
    assert run_in(tmp_path, "true") == "[exit code 0]"
    assert run_in(tmp_path, "cat") == "[exit code 0]", "a command must not read the terminal"
    long = run_in(tmp_path, f"\"{sys.executable}\" -c \"print('a' * 50000 + 'end')\"")
    assert "30004 bytes left out" in long
    assert len(long) < MAX_OUTPUT + 100
    assert long.endswith("end\n[exit code 0]")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # a process that has ended may wait for its parent
    return not status.exists() or status.read_text(encoding="utf-8").split()[2] != "Z"


def ends(pid: int) -> bool:
    deadline = time.monotonic() + SOON
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    result = run_in(tmp_path, "sleep 600 & echo $!; wait", 0.5)
    assert result.endswith("[ended after 0.5 seconds]")
    assert ends(int(result.splitlines()[0]))
    background = run_in(tmp_path, "sleep 600 >/dev/null 2>&1 & echo $!")
    assert background.endswith("[exit code 0]")
    assert ends(int(background.splitlines()[0])), "a process was left behind"


# -- conversations -----------------------------------------------------------------------------------------------------


class Person(io.StringIO):
    """A screen, and the person before it, who types each line when a text has been shown, and then leaves.

    The line `^C` calls `cancel`.
    """

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        super().__init__()
        self.cancel: Callable[[], object] = lambda: None
        self._todo = list(lines)
        self._seen = 0
        self._typed: asyncio.Queue[str | None] = asyncio.Queue()
        if not lines:
            self._typed.put_nowait(None)

    def write(self, text: str) -> int:
        count = super().write(text)
        while self._todo and self._todo[0][0] in self.getvalue()[self._seen :]:
            expected, line = self._todo.pop(0)
            self._seen = self.getvalue().index(expected, self._seen) + len(expected)
            if line == "^C":
                self.cancel()
            else:
                self._typed.put_nowait(line)
            if not self._todo:
                self._typed.put_nowait(None)
        return count

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self._typed.get()) is not None:
            yield line


def talk(
    workspace: Workspace,
    script: Any,
    lines: list[tuple[str, str]],
    store: Any = None,
    prompt: str | None = "Go.",
    person: type[Person] = Person,
) -> tuple[str, Any, Scripted]:
    """A conversation with one prompt, or one that is restored; returns the screen, the run and the played script."""
    played = Scripted(script)
    agent = coding_agent(penstock.Model("openai:m", via=played), workspace)

    async def converse() -> tuple[str, Any, Scripted]:
        someone = person(lines)
        screen, log = Screen(workspace, someone), store or penstock.log.memory()
        conversation = Conversation(agent, log, "thread", screen)
        someone.cancel = conversation.cancel
        async with asyncio.timeout(SOON):
            if prompt is None:
                assert await conversation.restore(someone.lines())
            else:
                await conversation.say(prompt, someone.lines())
        return someone.getvalue(), conversation.run, played

    return asyncio.run(converse())


EDIT = {"path": "basket.py", "old": OLD, "new": NEW}
EDITING = Reply(say("I change it."), call("edit", EDIT), call("bash", {"command": "echo tested"}))
QUESTION = "what to do instead"


def basket(workspace: Workspace) -> str:
    return (workspace.root / "basket.py").read_text()


def test_a_change_runs_when_its_difference_was_shown_and_approved(workspace: Workspace) -> None:
    shown, run, _ = talk(workspace, [EDITING, "Done."], [(QUESTION, "y"), (QUESTION, "Yes")])
    assert f"-    {OLD}+    {NEW}" in shown
    assert shown.index("+++ b/basket.py") < shown.index("run it?") < shown.index("basket.py: changed")
    assert shown.index("basket.py: changed") < shown.index("bash echo tested\n"), "the next question came too early"
    assert "tested\n  [exit code 0]" in shown
    assert (basket(workspace), run.output) == (FILES["basket.py"].replace(OLD, NEW), "Done.")


def test_a_declined_change_is_not_made_and_the_reason_goes_to_the_model(workspace: Workspace) -> None:
    shown, run, _ = talk(workspace, [EDITING, "I see."], [(QUESTION, "use round() instead")])
    edit, bash = run.messages[2].results
    assert "use round() instead" in edit.text
    assert bash.text.startswith("Not run: edit")
    assert (basket(workspace), run.output) == (FILES["basket.py"], "I see.")
    assert shown.count("run it?") == 1, "a person was asked about a call that cannot run"


def test_questions_come_in_the_order_of_the_calls(workspace: Workspace) -> None:
    """Though a predicate takes a moment to decide that it asks, and the second change needs the first one."""
    (workspace.root / ".env").write_text("s3cret")
    second = {"path": "basket.py", "old": "// 100", "new": "// 100  # cents"}
    calls = [
        call("bash", {"command": "echo one"}),
        call("edit", EDIT),
        call("edit", second),
        call("read", {"path": ".env"}),
    ]
    shown, run, _ = talk(workspace, [Reply(*calls), "Done."], [(QUESTION, "y")] * 4)
    assert [result.text.splitlines()[0] for result in run.messages[2].results] == [
        "one", "basket.py: changed", "basket.py: changed", "s3cret",
    ]  # fmt: skip
    assert f"-    {NEW}+    {NEW[:-1]}  # cents" in shown
    places = [shown.index(text) for text in ("bash echo one\n", f"-    {OLD}", f"-    {NEW}", "may hold secrets")]
    assert places == sorted(places)


def test_if_nobody_is_there_nothing_is_changed(workspace: Workspace) -> None:
    _, run, _ = talk(workspace, [EDITING, "I see."], [])
    assert NOBODY in run.messages[2].results[0].text
    assert basket(workspace) == FILES["basket.py"]


def test_a_line_that_is_typed_meanwhile_steers_the_run(workspace: Workspace) -> None:
    script = [Reply(say("I look."), call("bash", {"command": "git status"})), "I will keep it short."]
    shown, run, played = talk(workspace, script, [("→ bash", "keep it short")])
    assert "» keep it short" in shown
    assert played.requests[1].prompt == "keep it short"
    assert run.output == "I will keep it short."


@pytest.mark.parametrize("name", [".env", "deploy/prod.pem", "a/id_rsa", "aws-credentials.json"])
def test_files_that_may_hold_secrets_are_read_only_if_a_person_approves(workspace: Workspace, name: str) -> None:
    (workspace.root / name).parent.mkdir(exist_ok=True)
    (workspace.root / name).write_text("TOKEN=s3cret")
    script = [Reply(call("read", {"path": name}), call("grep", {"expression": "s3cret"})), "Done."]
    shown, run, _ = talk(workspace, script, [(QUESTION, "n")])
    assert "this file may hold secrets" in shown
    assert "s3cret" not in str([result.text for result in run.messages[2].results])
    _, run, _ = talk(workspace, script, [(QUESTION, "y")])
    assert run.messages[2].results[0].text == "TOKEN=s3cret"


def test_cancel_ends_the_command_and_the_run(workspace: Workspace) -> None:
    script = [Reply(call("bash", {"command": "echo $$ > pid; sleep 600"})), "Never."]
    shown, run, played = talk(workspace, script, [(QUESTION, "y"), ("→ bash", "^C")])
    assert (run.finish_reason, len(played.requests)) == ("cancelled", 1)
    assert "[cancelled] the user cancelled" in shown
    pid = workspace.root / "pid"
    assert not pid.exists() or ends(int(pid.read_text()))
    assert penstock.check(run.messages) == []


def test_a_conversation_continues_where_its_process_was_killed(workspace: Workspace, tmp_path: Path) -> None:
    clock, log = FakeClock(), tmp_path / "runs.db"
    store = penstock.log.SQLiteStore(log, clock=clock)
    with closing(store), pytest.raises(Crashed), crash_at("before_tool_start", "bash"):
        talk(workspace, [EDITING, "Never."], [(QUESTION, "y"), (QUESTION, "y")], store)
    changed = FILES["basket.py"].replace(OLD, NEW)
    assert basket(workspace) == changed
    clock.advance(60)
    with closing(penstock.log.SQLiteStore(log, clock=clock)) as store:
        shown, run, played = talk(workspace, ["Done."], [], store, prompt=None)
        assert (basket(workspace), run.output, len(played.requests)) == (changed, "Done.", 1)
        assert "run it?" not in shown, "an answered question was asked again"
        assert "← basket.py: changed" in shown
        assert penstock.check(run.messages) == []


def test_what_the_model_writes_cannot_control_the_terminal(workspace: Workspace) -> None:
    evil = "\x1b[2J\u202egnp.exe\r"
    script = [Reply(say(evil), call("write", {"path": "a", "content": evil}), call("bash", {"command": evil})), "Done."]
    shown, _, _ = talk(workspace, script, [(QUESTION, "y"), (QUESTION, "n")])
    assert not {"\x1b", "\u202e", "\r"} & set(shown)
    assert r"\x1b[2J\x202egnp.exe" in shown


def test_nobody_is_asked_about_a_change_that_would_fail(workspace: Workspace) -> None:
    script = [Reply(call("edit", {**EDIT, "old": "nothing"})), "Done."]
    shown, run, _ = talk(workspace, script, [])
    assert "run it?" not in shown
    assert run.messages[2].results[0].text == "basket.py does not contain the old text; read it again"
    assert planned_change(workspace, "bash", {"command": "ls"}) is None


def test_a_file_that_changes_after_the_question_is_not_changed(workspace: Workspace) -> None:
    class Careless(Person):
        """Changes the file before the answer."""

        def write(self, text: str) -> int:
            if QUESTION in text:
                (workspace.root / "basket.py").write_text(FILES["basket.py"] + "# mine\n")
            return super().write(text)

    _, run, _ = talk(workspace, [Reply(call("edit", EDIT)), "Done."], [(QUESTION, "y")], person=Careless)
    assert run.messages[2].results[0].text == "basket.py has changed in the meantime; read it again"
    assert basket(workspace).endswith("# mine\n")


# -- the program -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approved", "report"),
    [({"edit", "bash"}, "the test passes"), ({"edit"}, "not tested"), (set[str](), "nothing was changed")],
)
def test_the_demo_is_a_whole_session(workspace: Workspace, approved: set[str], report: str) -> None:
    agent = coding_agent(demo_model(), workspace)
    with agent.stream(PROMPT) as run:
        for event in run:
            if isinstance(event, penstock.ApprovalRequest) and event.call_id in {each.call_id for each in run.waiting}:
                run.decide(event.call_id, approved=event.name in approved)
    assert run.output.startswith(END)
    assert report in run.output
    assert basket(workspace) == (FILES["basket.py"].replace(OLD, NEW) if approved else FILES["basket.py"])


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_the_program_asks_steers_cancels_and_continues_after_kill(tmp_path: Path) -> None:
    root = FOLDER.parent
    env = {"XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": f"{root}:{root / 'src'}", "TERM": "dumb", "NO_COLOR": "1"}
    arguments = [str(tmp_path / "project")]
    with terminal(Path("-m"), "examples.coding_agent", *arguments, **env) as screen:
        screen.wait_for("I look at the project")
        screen.type("be careful\n")
        screen.wait_for("» be careful")
        screen.wait_for("+    return sum(prices) * (100 - discount) // 100")
        screen.wait_for("instead: ")
        screen.child.kill()  # as kill -9 does
        screen.child.wait()
    with terminal(Path("-m"), "examples.coding_agent", *arguments, **env) as screen:
        screen.wait_for(f"› {PROMPT}")
        screen.wait_for("» be careful")
        screen.wait_for("instead: ")
        screen.type("y\n")
        screen.wait_for("basket.py: changed")
        screen.wait_for("instead: ")
        screen.type("\x03")
        screen.wait_for("\n[cancelled] the user cancelled")
        screen.wait_for("› ")
        screen.type("\x03")
        assert screen.child.wait(SOON) == 0
