"""Settings that point a client at a gateway: coding agents, chat clients, and the SDKs of vendors.

A client is configured by a file, by variables of the environment, or by both. Files are JSON, TOML or YAML; a file that
exists keeps everything that it has, in addition to the settings of the gateway.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from penstock.cli.settings_files.file import format_of, write_file
from penstock.cli.settings_files.merging import Rows
from penstock.cli.settings_files.places import app_folder, config_home, first_of
from penstock.errors import UsageError

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
    """The settings of one client: variables of the environment, a file and its content, and a command to run.

    `defaults` are settings that a new file needs, and an existing one may have with other values. `notes` are for the
    person who uses the client.
    """

    variables: Mapping[str, str] = {}
    file: str = ""
    content: Mapping[str, Any] | Rows = {}
    defaults: Mapping[str, Any] = {}
    command: str = ""
    notes: tuple[str, ...] = ()


def settings_for(client: str, gateway: Gateway) -> ClientSettings:
    """The settings of a client."""
    if client not in CLIENTS:
        from difflib import get_close_matches

        similar = get_close_matches(client.lower(), CLIENTS, n=1)
        advice = f", did you mean {similar[0]!r}?" if similar else f"; use one of {', '.join(CLIENTS)}"
        raise UsageError(f"{client!r} is not a known client{advice}")
    return CLIENTS[client](gateway)


def _codex(gateway: Gateway) -> ClientSettings:
    provider = {"name": "Penstock", "base_url": f"{gateway.url}/v1", "env_key": "PENSTOCK_KEY", "wire_api": "responses"}
    return ClientSettings(
        variables={"PENSTOCK_KEY": gateway.key},
        file=f"{os.environ.get('CODEX_HOME') or '~/.codex'}/config.toml",
        content={
            "model": gateway.model,
            "model_provider": "penstock",
            "model_context_window": gateway.window,  # without it, a model that Codex does not know has 272,000 tokens
            "model_providers": {"penstock": provider},
        },
        command="codex",
    )


def _opencode(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        file=first_of(f"{config_home()}/opencode", "opencode.jsonc", "opencode.json"),
        content=_opencode_content(gateway),
        command="opencode",
    )


def _opencode_content(gateway: Gateway) -> Json:
    """The settings of opencode, and of clients that are built on it."""
    limit = {"context": gateway.window, "output": gateway.output}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Penstock",
        "options": {"baseURL": f"{gateway.url}/v1", "apiKey": gateway.key},
        "models": {gateway.model: {"name": gateway.model, "limit": limit}},
    }
    name = f"penstock/{gateway.model}"
    return {"model": name, "small_model": name, "provider": {"penstock": provider}}


def _kilo(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        file=first_of(f"{config_home()}/kilo", "kilo.jsonc", "kilo.json"),
        content=_opencode_content(gateway),
        command="kilo",
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
        command=f"pi --provider penstock --model {quote(gateway.model)}",
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
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(gateway.output),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
    }
    return ClientSettings(file=file, content={"env": variables}, command=f"claude --settings {file}")


def _gemini_cli(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        variables={"GEMINI_API_KEY": gateway.key, "GOOGLE_GEMINI_BASE_URL": gateway.url},
        file="~/.gemini/settings.json",
        content={"security": {"auth": {"selectedType": "gemini-api-key"}}},
        command=f"gemini -m {quote(gateway.model)}",
    )


def _qwen(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        variables=_openai_variables(gateway) | {"OPENAI_MODEL": gateway.model},
        file="~/.qwen/settings.json",
        content={"security": {"auth": {"selectedType": "openai"}}},
        command="qwen",
    )


def _copilot(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        variables={
            "COPILOT_PROVIDER_BASE_URL": f"{gateway.url}/v1",
            "COPILOT_PROVIDER_API_KEY": gateway.key,
            "COPILOT_MODEL": gateway.model,
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(gateway.window - gateway.output),
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(gateway.output),
        },
        command="copilot",
    )


def _cline(gateway: Gateway) -> ClientSettings:
    login = f"cline auth -p openai -k {quote(gateway.key)} -m {quote(gateway.model)} -b {gateway.url}/v1"
    return ClientSettings(command=f"{login} && cline")


def _continue(gateway: Gateway) -> ClientSettings:
    model = {
        "name": gateway.model, "provider": "openai", "model": gateway.model, "apiBase": f"{gateway.url}/v1/",
        "apiKey": gateway.key, "roles": ["chat", "edit", "apply"], "capabilities": ["tool_use"],
        "contextLength": gateway.window,
    }  # fmt: skip
    return ClientSettings(
        file="~/.continue/config.yaml",
        content={"models": Rows("name", (model,))},
        defaults={"name": "Penstock", "version": "0.0.1", "schema": "v1"},
        command="cn",
    )


def _crush(gateway: Gateway) -> ClientSettings:
    model = {
        "id": gateway.model, "name": gateway.model, "context_window": gateway.window,
        "default_max_tokens": gateway.output,
    }  # fmt: skip
    provider = {
        "name": "Penstock", "type": "openai-compat", "base_url": f"{gateway.url}/v1", "api_key": gateway.key,
        "models": [model],
    }  # fmt: skip
    chosen = {"provider": "penstock", "model": gateway.model}
    return ClientSettings(
        file=f"{config_home()}/crush/crush.json",
        content={"providers": {"penstock": provider}, "models": {"large": chosen, "small": chosen}},
        command="crush",
    )


def _goose(gateway: Gateway) -> ClientSettings:
    provider = {
        "name": "penstock", "engine": "openai", "display_name": "Penstock", "api_key_env": "PENSTOCK_KEY",
        "base_url": f"{gateway.url}/v1/chat/completions", "supports_streaming": True,
        "models": [{"name": gateway.model, "context_limit": gateway.window}],
    }  # fmt: skip
    return ClientSettings(
        variables={"PENSTOCK_KEY": gateway.key, "GOOSE_PROVIDER": "penstock", "GOOSE_MODEL": gateway.model},
        file=f"{config_home()}/goose/custom_providers/penstock.json",
        content=provider,
        command="goose session",
    )


def _vscode(gateway: Gateway) -> ClientSettings:
    model = {
        "id": gateway.model, "name": gateway.model, "url": f"{gateway.url}/v1/chat/completions", "toolCalling": True,
        "vision": False, "maxInputTokens": gateway.window - gateway.output, "maxOutputTokens": gateway.output,
    }  # fmt: skip
    group = {
        "name": "Penstock", "vendor": "customendpoint", "apiKey": gateway.key, "apiType": "chat-completions",
        "models": [model],
    }  # fmt: skip
    return ClientSettings(
        file=f"{app_folder('Code')}/User/chatLanguageModels.json",
        content=Rows("name", (group,)),
        notes=(f"or, in VS Code: Manage Language Models, Add Models, Ollama, and the address {gateway.url}",),
        command="code .",
    )


def _zed(gateway: Gateway) -> ClientSettings:
    model = {
        "name": gateway.model, "display_name": gateway.model, "max_tokens": gateway.window,
        "max_output_tokens": gateway.output,
        "capabilities": {"tools": True, "images": False, "parallel_tool_calls": True, "prompt_cache_key": False},
    }  # fmt: skip
    provider = {"api_url": f"{gateway.url}/v1", "available_models": [model]}
    return ClientSettings(
        variables={"PENSTOCK_API_KEY": gateway.key},
        file=f"{config_home()}/zed/settings.json",
        content={
            "language_models": {"openai_compatible": {"Penstock": provider}},
            "agent": {"default_model": {"provider": "Penstock", "model": gateway.model}},
        },
        command="zed .",
    )


def _open_webui(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        variables={
            "OPENAI_API_BASE_URL": f"{gateway.url}/v1",
            "OPENAI_API_KEY": gateway.key,
            "OLLAMA_BASE_URL": gateway.url,
            "DEFAULT_MODELS": gateway.model,
        },
        command="open-webui serve",
        notes=("a database that exists keeps its connections: change them in Admin Settings, Connections",),
    )


def _llm(gateway: Gateway) -> ClientSettings:
    name = f"penstock/{gateway.model}"
    model = {
        "model_id": name, "model_name": gateway.model, "api_base": f"{gateway.url}/v1", "api_key_name": "penstock",
        "supports_tools": True, "supports_schema": True,
    }  # fmt: skip
    return ClientSettings(
        file=f"{os.environ.get('LLM_USER_PATH') or app_folder('io.datasette.llm')}/extra-openai-models.yaml",
        content=Rows("model_id", (model,)),
        command=f"llm keys set penstock --value {quote(gateway.key)} && llm chat -m {quote(name)}",
    )


def _mini_swe_agent(gateway: Gateway) -> ClientSettings:
    return ClientSettings(
        variables={
            "OPENAI_API_BASE": f"{gateway.url}/v1",
            "OPENAI_API_KEY": gateway.key,
            "MSWEA_MODEL_NAME": f"openai/{gateway.model}",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_CONFIGURED": "true",
        },
        command="mini",
    )


def _smolagents(gateway: Gateway) -> ClientSettings:
    options = f"--model-id {quote(gateway.model)} --api-base {gateway.url}/v1 --api-key {quote(gateway.key)}"
    return ClientSettings(
        command=f"smolagent --model-type OpenAIModel --action-type tool_calling {options} 'your question'",
        notes=(
            "in Python: smolagents.OpenAIModel("
            f"model_id={gateway.model!r}, api_base={gateway.url + '/v1'!r}, api_key={gateway.key!r})",
        ),
    )


def _aider(gateway: Gateway) -> ClientSettings:
    variables = {"OPENAI_API_BASE": f"{gateway.url}/v1", "OPENAI_API_KEY": gateway.key}
    return ClientSettings(variables=variables, command=f"aider --model {quote(f'openai/{gateway.model}')}")


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
    "copilot": _copilot,
    "cline": _cline,
    "continue": _continue,
    "crush": _crush,
    "goose": _goose,
    "kilo": _kilo,
    "vscode": _vscode,
    "zed": _zed,
    "open-webui": _open_webui,
    "llm": _llm,
    "mini-swe-agent": _mini_swe_agent,
    "smolagents": _smolagents,
    "aider": _aider,
    "openai": _openai,
    "anthropic": _anthropic,
}
"""The clients that can be pointed at a gateway."""


def settings_text(settings: ClientSettings) -> str:
    """The settings as text for a person: what to put where, and what to run."""
    lines: list[str] = []
    if settings.file:
        content = format_of(Path(settings.file)).show(_new_content(settings))
        lines += [f"# {settings.file}", content.rstrip("\n"), ""]
    lines += [f"# {note}" for note in settings.notes]
    lines += [f"export {name}={quote(value)}" for name, value in settings.variables.items()]
    lines += [settings.command] if settings.command else []
    return "\n".join(lines) + "\n"


def _new_content(settings: ClientSettings) -> Mapping[str, Any] | Rows:
    """The content of a new file."""
    content = settings.content
    return content if isinstance(content, Rows) else {**settings.defaults, **content}


def write(settings: ClientSettings) -> Iterator[str]:
    """Merges the settings into the client's file; yields lines that say what changed."""
    if not settings.file:
        raise UsageError("this client has no file for these settings: use the variables and the command above")
    yield from write_file(Path(settings.file).expanduser(), settings.content, settings.defaults)
