"""`penstock gateway --for CLIENT`: the settings of clients, and their files with these settings merged into them."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace

from penstock.cli.app import penstock as command_line
from penstock.cli.client_settings import CLIENTS, Gateway, settings_for, settings_text
from penstock.cli.settings_files.merging import Rows, plain

READERS: dict[str, Any] = {".json": json.loads, ".toml": tomllib.loads, ".yaml": yaml.safe_load}
GATEWAY = Gateway("http://127.0.0.1:4000", "qwen3")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for name in ("CODEX_HOME", "XDG_CONFIG_HOME", "LLM_USER_PATH", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
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


def test_settings_without_a_model_say_that_its_name_is_a_placeholder() -> None:
    assert "note: local-model stands for the model" in gateway("--for", "opencode")
    assert "note" not in gateway("--for", "opencode", "--model", "qwen3")


def test_an_unknown_client_is_an_error_that_names_the_known_ones() -> None:
    assert "codex" in gateway("--for", "nobody", is_error=True)
    assert "did you mean 'codex'?" in gateway("--for", "Codex", is_error=True)
    assert "did you mean 'claude-code'?" in gateway("--for", "claude", is_error=True)
    assert "--for" in gateway("--write", is_error=True)


@pytest.mark.parametrize("option", [("--no-rescue",), ("--repair", "off"), ("--model", "qwen3")])
def test_an_option_beside_a_file_that_has_it_is_refused(option: tuple[str, ...], tmp_path: Path) -> None:
    output = gateway("--config", str(tmp_path / "gateway.toml"), *option, is_error=True)
    assert f"{option[0].replace('no-', '')}" in output
    assert "set them in the file" in output


def test_claude_code_gets_its_window_and_its_small_model_and_sends_no_telemetry() -> None:
    settings = settings_for("claude-code", GATEWAY)
    assert isinstance(settings.content, dict)
    variables = settings.content["env"]
    assert {variables[f"ANTHROPIC_DEFAULT_{name}_MODEL"] for name in ("OPUS", "SONNET", "HAIKU")} == {"qwen3"}
    assert int(variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"]) > int(variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"])
    assert variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert settings.file in settings.command  # a file of its own, so that the account of the user stays as it is


def test_codex_gets_the_window_of_the_model() -> None:
    settings = settings_for("codex", Gateway("http://127.0.0.1:4000", "qwen3", window=32_768))
    assert isinstance(settings.content, dict)
    assert settings.content["model_context_window"] == 32_768


@pytest.mark.parametrize("client", [name for name in CLIENTS if settings_for(name, GATEWAY).file])
def test_settings_are_written_into_a_new_file(client: str, home: Path) -> None:
    gateway("--for", client, "--model", "qwen3", "--write")
    settings = settings_for(client, GATEWAY)
    path = Path(settings.file).expanduser()
    text = path.read_text()
    content = settings.content if isinstance(settings.content, Rows) else {**settings.defaults, **settings.content}
    assert READERS[path.suffix](text) == plain(content)
    assert home in path.parents
    assert "already" in gateway("--for", client, "--model", "qwen3", "--write")


@pytest.mark.parametrize("client", ["codex", "opencode", "pi", "crush", "goose", "kilo", "vscode", "zed"])
def test_settings_that_were_written_earlier_are_replaced(client: str, home: Path) -> None:
    gateway("--for", client, "--model", "qwen3", "--write")
    gateway("--for", client, "--model", "glm-5", "--port", "4321", "--write")
    text = Path(settings_for(client, GATEWAY).file).expanduser().read_text()
    assert "glm-5" in text
    assert "http://127.0.0.1:4321/v1" in text
    assert "4000" not in text
    assert "qwen3" not in text or client in ("opencode", "kilo")  # which have lists of models


@pytest.mark.parametrize("client", ["continue", "llm"])
def test_models_of_others_in_a_list_are_kept(client: str) -> None:
    path = Path(settings_for(client, GATEWAY).file).expanduser()
    path.parent.mkdir(parents=True)
    model = {"name": "mine", "model_id": "mine", "model_name": "x"}
    path.write_text(f"# kept\n{yaml.safe_dump([model] if client == 'llm' else {'name': 'Mine', 'models': [model]})}")
    for name in ("qwen3", "glm-5", "qwen3"):
        gateway("--for", client, "--model", name, "--write")
    new = yaml.safe_load(path.read_text())
    rows = new if client == "llm" else new["models"]
    assert [row["model_name" if client == "llm" else "name"] for row in rows] in (
        ["x", "qwen3", "glm-5"], ["mine", "qwen3", "glm-5"],
    )  # fmt: skip
    assert client == "llm" or new["name"] == "Mine"
    assert path.read_text().startswith("# kept\n")


PLACES = {
    "codex": ("CODEX_HOME", "config.toml"),
    "opencode": ("XDG_CONFIG_HOME", "opencode/opencode.json"),
    "kilo": ("XDG_CONFIG_HOME", "kilo/kilo.json"),
    "crush": ("XDG_CONFIG_HOME", "crush/crush.json"),
    "goose": ("XDG_CONFIG_HOME", "goose/custom_providers/penstock.json"),
    "zed": ("XDG_CONFIG_HOME", "zed/settings.json"),
    "llm": ("LLM_USER_PATH", "extra-openai-models.yaml"),
}


@pytest.mark.parametrize("client", PLACES)
def test_a_file_is_where_the_client_reads_it(client: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable, file = PLACES[client]
    monkeypatch.setenv(variable, str(home / "elsewhere"))
    gateway("--for", client, "--model", "qwen3", "--write")
    assert "qwen3" in (home / "elsewhere" / file).read_text()
    assert [path.name for path in home.iterdir()] == ["elsewhere"]


@pytest.mark.parametrize(
    ("system", "place"), [("darwin", "Library/Application Support"), ("win32", "AppData/Roaming"), ("linux", ".config")]
)
def test_the_file_of_vs_code_is_where_the_system_has_it(
    system: str, place: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert settings_for("vscode", GATEWAY).file == f"~/{place}/Code/User/chatLanguageModels.json"


@pytest.mark.parametrize("client", ["opencode", "kilo"])
def test_a_file_with_comments_is_changed_in_its_place(client: str, home: Path) -> None:
    path = home / f".config/{client}/{client}.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text('{\n  // mine\n  "theme": "dark", // x\n}\n')
    gateway("--for", client, "--model", "qwen3", "--write")
    text = path.read_text()
    assert text.startswith('{\n  // mine\n  "theme": "dark", // x\n')
    assert '"model": "penstock/qwen3"' in text
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}.bak"]


CONTEXT_FIELDS = {
    "claude-code": '"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "65536"',
    "opencode": '"context": 65536', "kilo": '"context": 65536', "pi": '"contextWindow": 65536',
    "continue": "contextLength: 65536", "crush": '"context_window": 65536', "goose": '"context_limit": 65536',
    "vscode": f'"maxInputTokens": {65536 - 8192}', "zed": '"max_tokens": 65536',
    "copilot": f"COPILOT_PROVIDER_MAX_PROMPT_TOKENS={65536 - 8192}",
}  # fmt: skip


@pytest.mark.parametrize("client", CONTEXT_FIELDS)
def test_the_window_of_the_model_is_in_the_settings(client: str) -> None:
    text = settings_text(settings_for(client, replace(GATEWAY, window=65536)))
    assert CONTEXT_FIELDS[client] in text
    assert CONTEXT_FIELDS[client] not in settings_text(settings_for(client, GATEWAY))


def test_names_with_signs_are_quoted_for_the_shell() -> None:
    output = gateway("--for", "llm", "--model", "my model", "--key", "k$(date)" * 3)
    assert "'penstock/my model'" in output
    assert "'k$(date)k$(date)k$(date)'" in output


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
