"""`penstock gateway --check`: what the servers are, what is wrong with them, and the settings that cure it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from penstock.cli.app import penstock as command_line
from penstock.gateway import upstream_models
from penstock.gateway.config.file import settings_from
from penstock.gateway.servers import check
from penstock.servers import asking
from penstock.servers.advice import AGENT_WINDOW, USUAL_WINDOW
from tests.servers import faces
from tests.servers.faces import Face
from tests.servers.test_windows import in_thread

QWEN = "Qwen/Qwen3-8B"
GEMMA = "google/gemma-4-26b-a4b"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")


def run(*options: str) -> Result:
    return CliRunner().invoke(command_line, ["gateway", "--check", *options])


def on(face: Face, model: str, base: str = "/v1", name: str = "local") -> Result:
    with in_thread(face) as url:
        return run("--upstream", f"{name}={url}{base}", *(["--model", model] if model else []))


CASES: dict[str, tuple[Callable[[], Face], str, int, list[str]]] = {
    "ollama with a short window": (faces.ollama, "qwen3", 1, [
        "server          Ollama 0.24.1", "window          4,096 of 40,960 tokens",
        "longer prompts  lose their beginning", "tool choice     ignored", "[upstreams.local]", 'url = "http://127.',
        'provider = "ollama"', "context = 32768", "1 problem"]),
    "ollama without tools": (lambda: faces.ollama(window=32768, capabilities=["completion"]), "qwen3", 1, [
        "tools           no", "The server refuses tools for this model.", 'calls = "auto"', "1 problem"]),
    "ollama, all right": (lambda: faces.ollama(window=32768), "qwen3", 0, [
        "window          32,768 of 40,960 tokens", "drops the beginning", "no problems"]),
    "ollama, not loaded": (lambda: faces.ollama(window=None), "qwen3", 1, [
        "model           found, not loaded", "window          unknown; the model has up to 40,960", "is not loaded"]),
    "ollama without the model": (faces.ollama, "llama9", 1, ["model           not found", "ollama pull llama9"]),
    "vllm": (faces.vllm, QWEN, 0, [
        "server          vLLM 0.12.0", "tools           not reported", "--enable-auto-tool-choice", "no problems"]),
    "vllm with a short window": (lambda: faces.vllm(window=8192), QWEN, 1, [
        f"vllm serve {QWEN} --max-model-len 32768", "1 problem"]),
    "sglang without a parser": (lambda: faces.sglang(parser=None), QWEN, 1, ["--tool-call-parser NAME"]),
    "sglang": (faces.sglang, QWEN, 0, ["window          16,384 tokens", "no problems"]),
    "lm studio": (faces.lmstudio, GEMMA, 1, [
        f"lms load {GEMMA} --context-length 32768", "does not take a tool choice by name"]),
    "llama.cpp and another name": (lambda: faces.llamacpp(window=32768), "nosuch", 0, [
        "model           another one, loaded: qwen3-8b", "no model 'nosuch'", "'qwen3-8b'.", "no problems"]),
    "llama.cpp": (faces.llamacpp, "", 1, ["qwen3-8b on local", "llama-server --ctx-size 32768", "1 problem"]),
    "another server": (lambda: Face(pages={"/v1/models": {"data": [{"id": "m"}]}}), "m", 0, [
        "unknown server", "Declare it in gateway.toml:", "context = 32768", "no problems"]),
    "a server that refuses the key": (lambda: Face(pages={}, refused={"/v1/models": (401, {})}), "m", 3, [
        "The server cannot be asked: the server refused the key (status 401).", "OLLAMA_API_KEY", "1 problem"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_report_names_what_is_wrong_and_what_cures_it(name: str) -> None:
    new, model, code, lines = CASES[name]
    result = on(new(), model, name="ollama" if "OLLAMA_API_KEY" in lines else "local")
    for line in lines:
        assert line in result.output
    assert result.exit_code == code


def test_no_request_goes_to_a_model() -> None:
    face = faces.ollama()
    on(face, "qwen3")
    assert face.chats == []
    assert {one.path for one in face.asked} == {"/v1/models", "/api/version", "/api/show", "/api/ps"}


def test_the_cure_is_a_file_that_cures() -> None:
    """The lines for gateway.toml, used: the window is set, and the check finds nothing wrong."""
    with in_thread(faces.ollama()) as url:
        output = run("--upstream", f"local={url}/v1", "--model", "qwen3").output
        lines = [line.strip() for line in output.splitlines() if line.startswith(" " * 20)]
        Path("gateway.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        cured = run("--model", "qwen3")
    assert lines[0] == "[upstreams.local]"
    assert "32,768 of 40,960 tokens" in cured.output
    assert cured.exit_code == 0


def test_a_model_whose_calls_are_read_from_its_text_needs_no_tools() -> None:
    with in_thread(faces.ollama(window=32768, capabilities=["completion"])) as url:
        result = run("--upstream", f"local={url}/v1", "--model", "qwen3", "--calls", "auto")
    assert (result.exit_code, "no problems" in result.output) == (0, True), result.output


def test_a_server_that_is_down_and_a_provider_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    result = run("--upstream", "local=http://127.0.0.1:1/v1", "--upstream", "anthropic")
    assert result.exit_code == 3
    assert "The server cannot be asked: Connection refused." in result.output
    assert "Set ANTHROPIC_API_KEY where the gateway runs." in result.output
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")
    only = run("--upstream", "anthropic")
    assert (only.exit_code, "no problems" in only.output) == (0, True)
    assert "key-of-anthropic" not in only.output


def test_models_of_routes_are_checked_with_their_fallbacks() -> None:
    with in_thread(faces.vllm()) as url:
        Path("gateway.toml").write_text(
            f'[upstreams.a]\nurl = "{url}/v1"\n[upstreams.b]\nurl = "{url}/v1"\n'
            f'[models."gpt-*"]\nto = "a/{QWEN}"\nfallbacks = ["b/{QWEN}"]\n',
            encoding="utf-8",
        )
        result = run()
        named = run("--model", "gpt-5")
    for output in (result.output, named.output):
        assert re.findall(r"^.* on (\w)", output, re.MULTILINE) == ["a", "b"]


def test_the_number_of_checked_models_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MAX_CHECKED", 2)
    rows = [{"id": f"m{number}", "owned_by": "vllm", "max_model_len": 32768} for number in range(5)]
    result = on(Face(pages={"/v1/models": {"data": rows}}), "")
    assert re.findall(r"^(m\d) on ", result.output, re.MULTILINE) == ["m0", "m1"]


def test_lines_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, most in (("60", 60), ("300", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        output = on(faces.ollama(), "qwen3").output
        wrapped = [line for line in output.splitlines() if not line.startswith(" " * 20)]
        assert max(map(len, wrapped)) <= most
        assert {len(line) - len(line.lstrip()) for line in wrapped if line.startswith("  ")} == {2, 18}


def test_the_times_of_a_check_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent server: the list, then the facts, in less than ten seconds together."""
    assert upstream_models.WAIT_SECONDS + min(check.SECONDS, asking.READ_SECONDS) < 8

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    monkeypatch.setattr(upstream_models, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(asking.server_facts, "__defaults__", (0.1,))
    face: Any = type("Silent", (), {"answer": staticmethod(silent)})
    with in_thread(face) as url:
        result = run("--upstream", f"local={url}/v1")
    assert result.exit_code == 3
    assert "no answer within 0.1 seconds" in result.output


def test_the_command_ends_with_the_code_in_a_process() -> None:
    command = [sys.executable, "-m", "penstock.cli", "gateway", "--check", "--upstream", "http://127.0.0.1:1/v1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert "\x1b" not in done.stdout
    assert run("--upstream", "nothing").exit_code == 2


def test_windows_are_those_that_agents_need() -> None:
    assert AGENT_WINDOW < USUAL_WINDOW
    assert settings_from({"upstreams": {"a": {"url": "http://x/v1", "context": 5}}}).upstreams["a"].context == 5


def test_a_name_that_a_server_lists_controls_no_terminal_and_no_shell() -> None:
    """The server may be anybody's, and the lines of a cure are copied into a shell."""
    name = "m\x1b]0;title\x07\nno problems; rm -rf ~"
    rows = [{"id": name, "owned_by": "vllm", "max_model_len": 4096}]
    output = on(Face(pages={"/v1/models": {"data": rows}}), "").output
    assert all(line.isprintable() for line in output.split("\n"))
    assert output.startswith(r"m\x1b]0;title\x07\nno problems; rm -rf ~ on ")
    assert r"vllm serve 'm\x1b]0;title\x07\nno problems; rm -rf ~' --max-model-len" in output
