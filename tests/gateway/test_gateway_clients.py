"""`penstock gateway --for CLIENT`: the settings of clients, and their files with these settings merged into them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.app import penstock as command_line
from penstock.cli.client_settings import CLIENTS, Gateway, as_toml, settings_for

GATEWAY = Gateway("http://127.0.0.1:4000", "qwen3")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


def gateway(*arguments: str, is_error: bool = False) -> str:
    result = CliRunner().invoke(command_line, ["gateway", *arguments])
    assert (result.exit_code != 0) == is_error, result.output
    return result.output


@pytest.mark.parametrize("client", CLIENTS)
def test_the_settings_of_a_client_name_the_gateway_and_the_model(client: str) -> None:
    output = gateway("--for", client, "--model", "qwen3", "--port", "4321", "--key", "k" * 20)
    assert "http://127.0.0.1:4321" in output
    assert "k" * 20 in output
    assert "qwen3" in output or client in ("openai", "anthropic")


def test_an_unknown_client_is_an_error_that_names_the_known_ones() -> None:
    assert "codex" in gateway("--for", "nobody", is_error=True)
    assert "--for" in gateway("--write", is_error=True)


@pytest.mark.parametrize("option", [("--no-rescue",), ("--repair", "off"), ("--model", "qwen3")])
def test_an_option_beside_a_file_that_has_it_is_refused(option: tuple[str, ...], tmp_path: Path) -> None:
    output = gateway("--config", str(tmp_path / "gateway.toml"), *option, is_error=True)
    assert f"{option[0].replace('no-', '')}" in output
    assert "set them in the file" in output


def test_claude_code_gets_its_window_and_its_small_model_and_sends_no_telemetry() -> None:
    settings = settings_for("claude-code", GATEWAY)
    variables = settings.content["env"]
    assert {variables[f"ANTHROPIC_DEFAULT_{name}_MODEL"] for name in ("OPUS", "SONNET", "HAIKU")} == {"qwen3"}
    assert int(variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"]) > int(variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"])
    assert variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert settings.file in settings.command  # a file of its own, so that the account of the user stays as it is


@pytest.mark.parametrize("client", [name for name in CLIENTS if settings_for(name, GATEWAY).file])
def test_settings_are_written_into_a_new_file(client: str, home: Path) -> None:
    gateway("--for", client, "--model", "qwen3", "--write")
    settings = settings_for(client, GATEWAY)
    path = Path(settings.file).expanduser()
    text = path.read_text()
    read: Any = {".json": json.loads, ".toml": tomllib.loads}.get(path.suffix)
    assert read is None or read(text) == settings.content
    assert home in path.parents
    assert "already" in gateway("--for", client, "--model", "qwen3", "--write")


@pytest.mark.parametrize("client", ["codex", "opencode", "pi", "continue"])
def test_settings_that_were_written_earlier_are_replaced(client: str, home: Path) -> None:
    gateway("--for", client, "--model", "qwen3", "--write")
    gateway("--for", client, "--model", "glm-5", "--port", "4321", "--write")
    text = Path(settings_for(client, GATEWAY).file).expanduser().read_text()
    assert "glm-5" in text
    assert "http://127.0.0.1:4321/v1" in text
    assert "4000" not in text
    assert "qwen3" not in text or client == "opencode"  # which has a list of models


@pytest.mark.parametrize(
    ("client", "file", "text"),
    [
        ("codex", ".codex/config.toml", '[model_providers]\npenstock = { name = "Mine" }\n'),
        ("codex", ".codex/config.toml", '[model_providers.penstock]\nname = "Mine"\n'),
        ("continue", ".continue/config.yaml", "name: Mine\n"),
        ("continue", ".continue/config.yaml", 'name: "Penstock"\nversion: "0.0.1"\nschema: "v1"\nmodels: []\n'),
    ],
)
def test_settings_of_somebody_else_are_left_alone(client: str, file: str, text: str, home: Path) -> None:
    path = home / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    gateway("--for", client, "--model", "qwen3", "--write", is_error=True)
    assert path.read_text() == text


def test_a_rewritten_toml_file_keeps_what_was_added_since(home: Path) -> None:
    path = home / ".codex/config.toml"
    gateway("--for", "codex", "--model", "qwen3", "--write")
    path.write_text(path.read_text() + 'retries = 3  # mine\n\n[mcp_servers.x]\nname = "y"\n')
    gateway("--for", "codex", "--model", "glm-5", "--write")
    new = tomllib.loads(path.read_text())
    assert (new["model"], new["mcp_servers"]) == ("glm-5", {"x": {"name": "y"}})
    assert new["model_providers"]["penstock"]["retries"] == 3
    assert "  # mine\n" in path.read_text()


def test_writing_needs_the_name_of_a_model(home: Path) -> None:
    assert "--write needs --model" in gateway("--for", "codex", "--write", is_error=True)
    assert not [*home.iterdir()]


def test_a_json_file_keeps_what_it_has_and_a_copy_of_it(home: Path) -> None:
    path = home / ".config/opencode/opencode.json"
    path.parent.mkdir(parents=True)
    old = {"theme": "dark", "model": "other", "provider": {"mine": {"name": "M"}}}
    path.write_text(json.dumps(old))
    output = gateway("--for", "opencode", "--model", "qwen3", "--write")
    new = json.loads(path.read_text())
    assert (new["theme"], new["model"], sorted(new["provider"])) == ("dark", "penstock/qwen3", ["mine", "penstock"])
    assert json.loads((home / ".config/opencode/opencode.json.bak").read_text()) == old
    assert '-{"theme": "dark"' in output
    assert '+  "model": "penstock/qwen3"' in output


def test_a_file_behind_a_link_is_written_and_the_link_stays(home: Path) -> None:
    target, link = home / "dotfiles/opencode.json", home / ".config/opencode/opencode.json"
    target.parent.mkdir()
    link.parent.mkdir(parents=True)
    target.write_text("{}")
    link.symlink_to(target)
    gateway("--for", "opencode", "--model", "qwen3", "--write")
    assert link.is_symlink()
    assert json.loads(target.read_text())["model"] == "penstock/qwen3"
    assert [path.name for path in target.parent.iterdir()] == ["opencode.json"]


def test_a_toml_file_keeps_its_lines_and_comments(home: Path) -> None:
    path = home / ".codex/config.toml"
    path.parent.mkdir()
    old = '# mine\nmodel = "gpt-5"\napproval_policy = "never"\n\n[mcp_servers.x]\ncommand = "y"\n'
    path.write_text(old)
    gateway("--for", "codex", "--model", "qwen3", "--write")
    text = path.read_text()
    new = tomllib.loads(text)
    assert (new["model"], new["model_provider"], new["approval_policy"]) == ("qwen3", "penstock", "never")
    assert new["mcp_servers"] == {"x": {"command": "y"}}
    assert new["model_providers"]["penstock"]["wire_api"] == "responses"
    assert "# mine\n" in text
    assert '# model = "gpt-5"\n' in text
    assert (home / ".codex/config.toml.bak").read_text() == old


@pytest.mark.parametrize(
    ("client", "file"), [("codex", ".codex/config.toml"), ("opencode", ".config/opencode/opencode.json")]
)
def test_a_file_that_cannot_be_read_is_left_alone(client: str, file: str, home: Path) -> None:
    path = home / file
    path.parent.mkdir(parents=True)
    path.write_text("{ not [ valid")
    assert "yourself" in gateway("--for", client, "--model", "qwen3", "--write", is_error=True)
    assert path.read_text() == "{ not [ valid"
    assert [*path.parent.iterdir()] == [path]


def test_tables_are_toml() -> None:
    content = {"a": 1, "b": "x", "c": {"d": {"e": True}, "f": [1, 2]}}
    assert tomllib.loads(as_toml(content)) == content
