"""Settings that point a client at a gateway: coding agents, and the SDKs of vendors.

A client is configured by a file, by variables of the environment, or by both. Files are JSON, TOML or YAML; a file that
exists keeps everything that it has, in addition to the settings of the gateway.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock.cli.kept_file import replace_file
from penstock.errors import UsageError
from penstock.model.recording import open_private

KEY = "penstock"
"""A placeholder key for clients that need one, although the gateway does not."""
CONTEXT, OUTPUT = 128_000, 8_192
"""The limits in the settings of clients if the window of the model is not known."""
Json = dict[str, Any]


class Gateway(Struct, frozen=True):
    """The gateway in the settings of a client."""

    url: str
    model: str
    key: str = KEY
    window: int = CONTEXT

    @property
    def output(self) -> int:
        """How many tokens of the window a response may have."""
        return min(OUTPUT, self.window // 2)


class ClientSettings(Struct, frozen=True, kw_only=True):
    """The settings of one client: variables of the environment, a file and its content, and a command to run."""

    variables: Mapping[str, str] = {}
    file: str = ""
    content: Mapping[str, Any] = {}
    command: str = ""


def settings_for(client: str, gateway: Gateway) -> ClientSettings:
    """The settings of a client."""
    if client not in CLIENTS:
        raise UsageError(f"{client!r} is not a known client; use one of {', '.join(CLIENTS)}")
    return CLIENTS[client](gateway)


def _codex(gateway: Gateway) -> ClientSettings:
    provider = {"name": "Penstock", "base_url": f"{gateway.url}/v1", "env_key": "PENSTOCK_KEY", "wire_api": "responses"}
    return ClientSettings(
        variables={"PENSTOCK_KEY": gateway.key},
        file="~/.codex/config.toml",
        content={"model": gateway.model, "model_provider": "penstock", "model_providers": {"penstock": provider}},
        command="codex",
    )


def _opencode(gateway: Gateway) -> ClientSettings:
    limit = {"context": gateway.window, "output": gateway.output}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Penstock",
        "options": {"baseURL": f"{gateway.url}/v1", "apiKey": gateway.key},
        "models": {gateway.model: {"name": gateway.model, "limit": limit}},
    }
    name = f"penstock/{gateway.model}"
    return ClientSettings(
        file="~/.config/opencode/opencode.json",
        content={"model": name, "small_model": name, "provider": {"penstock": provider}},
        command="opencode",
    )


def _pi(gateway: Gateway) -> ClientSettings:
    model = {
        "id": gateway.model, "name": gateway.model, "reasoning": False, "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": gateway.window,
        "maxTokens": gateway.output,
    }  # fmt: skip
    provider = {"baseUrl": f"{gateway.url}/v1", "api": "openai-completions", "apiKey": gateway.key, "models": [model]}
    return ClientSettings(
        file="~/.pi/agent/models.json",
        content={"providers": {"penstock": provider}},
        command=f"pi --provider penstock --model {gateway.model}",
    )


def _claude_code(gateway: Gateway) -> ClientSettings:
    """A file for `--settings`, so that the client without it still uses the account of its user."""
    file, models = "~/.claude/penstock.json", ("OPUS", "SONNET", "HAIKU")  # the last one is for small tasks
    variables = {
        "ANTHROPIC_BASE_URL": gateway.url,
        "ANTHROPIC_AUTH_TOKEN": gateway.key,
        "ANTHROPIC_API_KEY": "",  # which would be used instead of the token
        "ANTHROPIC_MODEL": gateway.model,
        **{f"ANTHROPIC_DEFAULT_{name}_MODEL": gateway.model for name in models},
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(gateway.window),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(OUTPUT),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
    }
    return ClientSettings(file=file, content={"env": variables}, command=f"claude --settings {file}")


def _gemini_cli(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        variables={"GEMINI_API_KEY": gateway.key, "GOOGLE_GEMINI_BASE_URL": gateway.url},
        file="~/.gemini/settings.json",
        content={"security": {"auth": {"selectedType": "gemini-api-key"}}},
        command=f"gemini -m {gateway.model}",
    )


def _qwen(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        variables=_openai_variables(gateway) | {"OPENAI_MODEL": gateway.model},
        file="~/.qwen/settings.json",
        content={"security": {"auth": {"selectedType": "openai"}}},
        command="qwen",
    )


def _cline(gateway: Gateway) -> ClientSettings:
    login = f"cline auth -p openai -k {gateway.key} -m {gateway.model} -b {gateway.url}/v1"
    return ClientSettings(command=f"{login} && cline")


def _continue(gateway: Gateway) -> ClientSettings:
    model = {
        "name": gateway.model, "provider": "openai", "model": gateway.model, "apiBase": f"{gateway.url}/v1/",
        "apiKey": gateway.key, "roles": ["chat", "edit", "apply"], "capabilities": ["tool_use"],
        "contextLength": gateway.window,
    }  # fmt: skip
    return ClientSettings(
        file="~/.continue/config.yaml",
        content={"name": "Penstock", "version": "0.0.1", "schema": "v1", "models": [model]},
        command="cn",
    )


def _aider(gateway: Gateway) -> ClientSettings:
    variables = {"OPENAI_API_BASE": f"{gateway.url}/v1", "OPENAI_API_KEY": gateway.key}
    return ClientSettings(variables=variables, command=f"aider --model openai/{gateway.model}")


def _openai(gateway: Gateway) -> ClientSettings:
    return ClientSettings(variables=_openai_variables(gateway))


def _anthropic(gateway: Gateway) -> ClientSettings:
    return ClientSettings(variables={"ANTHROPIC_BASE_URL": gateway.url, "ANTHROPIC_API_KEY": gateway.key})


def _openai_variables(gateway: Gateway) -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{gateway.url}/v1", "OPENAI_API_KEY": gateway.key}


CLIENTS: dict[str, Callable[[Gateway], ClientSettings]] = {
    "codex": _codex,
    "opencode": _opencode,
    "pi": _pi,
    "claude-code": _claude_code,
    "gemini-cli": _gemini_cli,
    "qwen": _qwen,
    "cline": _cline,
    "continue": _continue,
    "aider": _aider,
    "openai": _openai,
    "anthropic": _anthropic,
}
"""The clients that can be pointed at a gateway."""


# Files.


def merged_text(path: Path, content: Mapping[str, Any]) -> str:
    """The text of a file with these settings merged into it; raises if it cannot be done without losing something."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    match path.suffix:
        case ".json":
            return json.dumps(_merged(_read_json(path, text), content), indent=2, ensure_ascii=False) + "\n"
        case ".toml":
            return _merged_toml(path, text, content)
        case _:
            if text.strip() and not _is_own_yaml(text, content):
                raise UsageError(f"{path} exists: add the settings above to it yourself")
            return as_yaml(content)


def _read_json(path: Path, text: str) -> Json:
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}): add the settings yourself") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} is not a JSON object: add the settings yourself")
    return value


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    merged = dict(old)
    for key, value in new.items():
        inner = merged.get(key)
        both = isinstance(inner, dict) and isinstance(value, Mapping)
        merged[key] = _merged(inner, value) if both and isinstance(inner, dict) else value
    return merged


def _merged_toml(path: Path, text: str, content: Mapping[str, Any]) -> str:
    """The text with the settings in it. Other lines stay as they are; replaced lines become comments."""
    try:
        old = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML ({error}): add the settings yourself") from None
    plain = {key: value for key, value in content.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    if not any(isinstance(old.get(name), dict) and set(table) & set(old[name]) for name, table in tables.items()):
        return _extended_toml(text, plain, tables)
    new = _rewritten_toml(text, content)
    with suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(new) == _merged(old, content):
            return new
    raise UsageError(f"{path} has settings of a gateway already: change them there")


def _extended_toml(text: str, plain: Json, tables: Json) -> str:
    lines, is_top = [], True
    for line in text.splitlines():
        is_top = is_top and not line.lstrip().startswith("[")
        replaced = is_top and line.partition("=")[0].strip() in plain
        lines.append(f"# {line}" if replaced else line)
    return "\n".join([as_toml(plain).rstrip("\n"), *lines, "", as_toml(tables)]).rstrip("\n") + "\n"


def _rewritten_toml(text: str, content: Mapping[str, Any]) -> str:
    """The text with new values in place of earlier ones."""
    values = {name: table for name, table in _tables(content) if table}
    lines, place = [], ""
    for line in text.splitlines():
        key = line.partition("=")[0].strip()
        if key.startswith("["):
            place = key.strip("[]")
        is_own = key in values.get(place, {})
        lines.append(f"{key} = {json.dumps(values[place][key])}" if is_own else line)
    return "\n".join(lines).rstrip("\n") + "\n"


def _tables(content: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Json]]:
    yield place, {key: value for key, value in content.items() if not isinstance(value, Mapping)}
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _tables(value, f"{place}.{key}" if place else key)


def as_toml(content: Mapping[str, Any], place: str = "") -> str:
    """Settings as TOML: values first, then tables."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, Mapping)]
    parts = ["\n".join(plain)] if plain else []
    for key, value in content.items():
        if isinstance(value, Mapping):
            inner = f"{place}.{key}" if place else key
            has_values = any(not isinstance(inner_value, Mapping) for inner_value in value.values())
            parts.append(f"[{inner}]\n{as_toml(value, inner)}" if has_values else as_toml(value, inner))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _is_own_yaml(text: str, content: Mapping[str, Any]) -> bool:
    """Whether this command wrote the file earlier, with other values."""
    try:
        old = {key: json.loads(value) for key, _, value in (line.partition(": ") for line in text.splitlines())}
    except ValueError:
        return False
    return as_yaml(old) == text and _has_shape(old, content)


def _has_shape(old: Any, new: Any) -> bool:
    match old, new:
        case dict(), Mapping():
            return old.keys() == new.keys() and all(_has_shape(old[key], new[key]) for key in old)
        case list(), list():
            return len(old) == len(new) and all(map(_has_shape, old, new))
        case _:
            return type(old) is type(new)


def as_yaml(content: Mapping[str, Any]) -> str:
    """Settings as YAML: one key per line, values as JSON, which YAML contains."""
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in content.items())


def settings_text(settings: ClientSettings) -> str:
    """The settings as text for a person: what to put where, and what to run."""
    lines: list[str] = []
    if settings.file:
        lines += [f"# {settings.file}", _content(settings).rstrip("\n"), ""]
    lines += [f"export {name}={value}" for name, value in settings.variables.items()]
    lines += [settings.command] if settings.command else []
    return "\n".join(lines) + "\n"


def _content(settings: ClientSettings) -> str:
    match Path(settings.file).suffix:
        case ".json":
            return json.dumps(settings.content, indent=2)
        case ".toml":
            return as_toml(settings.content)
        case _:
            return as_yaml(settings.content)


def write(settings: ClientSettings) -> Iterator[str]:
    """Merges the settings into the client's file; yields lines that say what changed."""
    if not settings.file:
        raise UsageError("this client has no file for these settings: use the variables and the command above")
    path = Path(settings.file).expanduser()
    new = merged_text(path, settings.content)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if new == old:
        yield f"{path} has these settings already"
        return
    try:
        if path.exists():
            yield f"kept the old file as {_back_up(path, old)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, new.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    yield from difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), str(path), lineterm="")


def _back_up(path: Path, text: str) -> Path:
    """Writes a backup copy under an unused name."""
    number = 0
    while True:
        copy = path.with_name(f"{path.name}.bak{number or ''}")
        try:
            with open(copy, "x", encoding="utf-8", opener=open_private) as file:
                file.write(text)
        except FileExistsError:
            number += 1
        else:
            copy.chmod(path.stat().st_mode)
            return copy
