"""Windows and macOS: penstock uses no signal, module, encoding or event loop that only Linux has.

Windows is simulated: a process without the names that Windows lacks, with pipes in the code page 1252.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
import penstock.log
from penstock.cli.agent_target import _split  # pyright: ignore[reportPrivateUsage]
from penstock.log import RunRow
from penstock.log.bodies import body_of
from penstock.messages import user
from penstock.run.events import RunStart
from penstock.testing import Reply, Scripted, call
from tests.architecture import SOURCE, tree_of

POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"}

WITHOUT_POSIX = """
import asyncio, asyncio.selector_events, multiprocessing, os, shutil, signal, socket, ssl, subprocess, sys, tempfile
import aiohttp, click, click.testing, httpx2, rich.console, rich.progress

def kill(self, number=signal.SIGKILL):
    os.kill(self.pid, number)


subprocess.Popen.kill = kill  # which Windows has, without a signal
for name in dir(signal):
    if name.startswith(("SIG", "ITIMER")) and name not in (
        "SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"
    ):
        delattr(signal, name)
for name in ("alarm", "setitimer", "getitimer", "pause", "pthread_kill", "pthread_sigmask", "sigwait", "siginterrupt"):
    delattr(signal, name)
for name in (
    "fork", "forkpty", "openpty", "getuid", "geteuid", "getgid", "getegid", "getpgid", "killpg", "setsid", "uname",
    "mkfifo", "wait", "chown", "fchmod", "fchown", "nice", "getloadavg", "sysconf", "pread", "pwrite", "O_NONBLOCK",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SO_REUSEPORT", "MSG_DONTWAIT", "MSG_NOSIGNAL"):
    if hasattr(socket, name):
        delattr(socket, name)
shutil._use_fd_functions = False  # as on Windows: elsewhere Python 3.13 deletes folders with O_NONBLOCK
sys.modules |= dict.fromkeys(POSIX_MODULES)


def refused(self, *_):
    raise NotImplementedError("the event loop of Windows does not have this")


for name in ("add_reader", "add_writer"):
    setattr(asyncio.selector_events.BaseSelectorEventLoop, name, refused)
asyncio.SelectorEventLoop.add_signal_handler = refused
"""
"""Removes what Windows lacks, after the standard library and our dependencies have used it."""

MAIN = "from penstock.cli import main\nsys.argv[1:] = {arguments!r}\nmain()\n"

AGENT = '''
import asyncio
import penstock
from penstock.testing import Reply, Scripted, call

@penstock.tool(read_only=True)
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city} \u2192 \u2600"

def answer(request):
    return f"It is {request.results[-1].text}" if request.results else Reply("Hm.", call("weather", {"city": "Rome"}))

agent = penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(answer)), [weather], name="desk")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    tools = [{"name": "weather", "description": "→ ☀ é", "parameters": {"type": "object", "properties": {}}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools, ensure_ascii=False), encoding="utf-8")
    body = 'data: {"choices": [{"index": 0, "delta": {"content": "a → b"}, "finish_reason": "stop"}]}\n\n'
    (tmp_path / "body.sse").write_text(body + "data: [DONE]\n\n", encoding="utf-8")
    store = penstock.log.open(tmp_path / "runs.db")
    store.create(RunRow(id="dead-1", agent="desk"), body_of(RunStart((user("Hi."),), "desk")))
    store.close()
    (tmp_path / "history.json").write_text('[{"role": "user", "content": "→"}]', encoding="utf-8")
    return tmp_path


def windows(folder: Path, code: str, piped: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    """Runs code where nothing is left that Windows lacks; an open file without an encoding is an error."""
    settings = {**os.environ, "PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "PYTHONUTF8": "0", **env}
    settings["PYTHONCOERCECLOCALE"] = "0"
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning:penstock"]
    return subprocess.run(
        [*command, "-c", f"{POSIX_MODULES=}\n{WITHOUT_POSIX}{code}"],
        cwd=folder,
        input=piped,
        capture_output=True,
        check=False,
        env=settings,
    )


def run(folder: Path, *arguments: str, piped: bytes = b"", **env: str) -> str:
    done = windows(folder, MAIN.format(arguments=list(arguments)), piped, **env)
    assert (done.returncode, done.stderr) == (0, b""), (arguments, done.stderr.decode())
    return done.stdout.decode(env.get("PYTHONIOENCODING", "cp1252"), "replace")  # JSON is always UTF-8


@pytest.mark.parametrize(("arguments", "expected"), [
    (["--help"], "Start here"),
    (["decode", "--help"], "Exit code"),
    (["demo", "--speed", "100"], "The early start"),
    (["demo", "--speed", "100", "--json"], '"type":"done"'),
    (["demo", "--crash", "--speed", "10", "--json"], '"reason":"answered"'),
    (["decode", "--wire", "openai-chat", "body.sse"], "a \\u2192 b"),
    (["chat", "-m", "sim:fast", "--tools", "tools.json", "--history", "talk.json"], "Let me ask weather."),
    (["record", "-m", "sim:fast", "-o", "kept.jsonl", "Hi."], "recorded in kept.jsonl"),
    (["run", "agent.py", "-q"], "It is sunny in Rome \\u2192 \\u2600"),
    (["run", "agent.py:agent", "--state", "run.json"], "It is sunny in Rome"),
    (["run", "agent.py", "-q", "--log", "runs.db"], "It is sunny in Rome"),
    (["runs", "--log", "runs.db"], "dead-1"),
    (["runs", "--log", "runs.db", "cancel", "dead-1"], "cancelled dead-1"),
    (["check", "history.json"], "no problems found"),
    (["models"], "openai"),
    (["completion", "bash"], "_PENSTOCK_COMPLETE"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_each_command_runs_without_what_windows_lacks(folder: Path, arguments: list[str], expected: str) -> None:
    assert expected in run(folder, *arguments, piped="What → now?".encode())


def test_symbols_become_ascii_where_the_encoding_has_none(folder: Path) -> None:
    for arguments in (["demo", "--speed", "100"], ["models"], ["decode", "body.sse", "--wire", "openai-chat"]):
        shown = run(folder, *arguments, OPENAI_API_KEY="k")
        assert "\\u2713" not in shown
        assert "\\u25a0" not in shown


def test_pipes_are_utf8_on_windows(folder: Path) -> None:
    code = "import penstock.cli; penstock.cli.IS_WINDOWS = True\n" + MAIN.format(arguments=["run", "agent.py", "-q"])
    del_encoding = "import os; os.environ.pop('PYTHONIOENCODING')\n"
    done = windows(folder, del_encoding + code, piped="→".encode())
    assert (done.returncode, done.stdout.decode()) == (0, "It is sunny in Rome → ☀\n")


def test_input_that_is_not_text_is_no_traceback(folder: Path) -> None:
    assert "You said" in run(folder, "chat", "-m", "sim:fast", piped=b"\xff\x81", PYTHONIOENCODING="utf-8")


def test_a_reader_that_goes_away_is_an_invalid_argument_on_windows(folder: Path) -> None:
    code = """
import errno, penstock.cli.app as app
for app.IS_WINDOWS in (True, False):
    try:
        with app.quiet_exit():
            raise OSError(errno.EINVAL, "Invalid argument")
    except SystemExit as end:
        print("exit", end.code, file=sys.stderr)
    except OSError as error:
        print("error", file=sys.stderr)
"""
    assert windows(folder, code).stderr.split() == [b"exit", b"141", b"error"]


def test_an_async_agent_runs_on_the_event_loop_of_windows(folder: Path) -> None:
    code = """
sys.path.insert(0, "")
from agent import agent
from penstock.testing import Loopback
import penstock

async def main():
    print(ascii((await agent.arun("Hi.")).output))
    with Loopback(["Over a socket."]) as server:
        model = penstock.Model("openai-compatible:m", server.base_url("openai-chat"), "-")
        async with model.astream("Hi.") as stream:
            async for _ in stream:
                pass
        print(stream.turn.text)

asyncio.run(main())
"""
    done = windows(folder, code)
    assert done.stderr.decode() == ""
    assert done.stdout.split(b"\n")[:2] == [b"'It is sunny in Rome \\u2192 \\u2600'", b"Over a socket."]


@pytest.mark.parametrize(("target", "parts"), [
    (r"C:\agents\agent.py", (r"C:\agents\agent.py", "")),
    (r"C:\agents\agent.py:agent", (r"C:\agents\agent.py", "agent")),
    ("agents:", ("agents", "")),
    ("package.agents:agent", ("package.agents", "agent")),
])  # fmt: skip
def test_the_drive_of_a_path_is_not_a_module(target: str, parts: tuple[str, str]) -> None:
    assert _split(target) == parts


def test_a_reader_that_wakes_up_for_ctrl_c_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.agent.driver.sync_driver._MAX_BLOCKED", 0.0001)

    @penstock.tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    model = penstock.Model("openai-compatible:m", via=Scripted([Reply("Hm.", call("look", {})), "Done."]))
    assert penstock.Agent(model, [look]).run("Hi.").output == "Done."


def text_calls(tree: ast.Module) -> list[ast.Call]:
    """The calls that open a file as text without naming its encoding."""
    found: list[ast.Call] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and "encoding" not in {keyword.arg for keyword in node.keywords}:
            modes = [value.value for value in ast.walk(node) if isinstance(value, ast.Constant)]
            is_binary = any(isinstance(mode, str) and "b" in mode and len(mode) <= 3 for mode in modes)
            function = ast.unparse(node.func)
            is_file = function == "open" or function.endswith((".read_text", ".write_text"))
            is_file = is_file or (
                function.endswith(".open")
                and not function.startswith(
                    ("os.", "self.", "penstock.log.", "state.connection.", "encoder.", "inspections.", "connections.")
                )
            )
            if is_file and not is_binary:
                found.append(node)
    return found


def test_every_text_file_is_opened_with_an_encoding() -> None:
    for path, tree in ((path, tree_of(path)) for path in SOURCE.rglob("*.py")):
        assert [ast.unparse(call) for call in text_calls(tree)] == [], path


def test_no_module_that_only_posix_has_is_imported() -> None:
    for path, tree in ((path, tree_of(path)) for path in SOURCE.rglob("*.py")):
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert not POSIX_MODULES & {name.partition(".")[0] for name in names}, path
