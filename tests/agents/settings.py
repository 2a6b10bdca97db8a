"""The settings of coding agents: files in a fresh home, and environment variables, for a server at an address.

Each function writes the files and returns the variables. Telemetry, updates and reports are switched off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

MODEL = "local-model"
CONTEXT, OUTPUT = 400_000, 16_384
"""Tokens: long enough that no agent shortens a session of a hundred steps."""


def codex(home: Path, url: str, wire: str) -> Mapping[str, str]:
    text = f"""\
model = "{MODEL}"
model_provider = "penstock"
model_context_window = {CONTEXT}
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
    return {"PENSTOCK_KEY": "dummy"}


OPENCODE = {
    "openai-chat": ("@ai-sdk/openai-compatible", "/v1"),
    "openai-responses": ("@ai-sdk/openai", "/v1"),
    "anthropic": ("@ai-sdk/anthropic", "/v1"),
    "gemini": ("@ai-sdk/google", "/v1beta"),
}
"""The packages and paths of opencode's providers, by wire."""


def opencode(home: Path, url: str, wire: str) -> Mapping[str, str]:
    package, path = OPENCODE[wire]
    provider = {
        "npm": package,
        "name": "Penstock",
        "options": {"baseURL": url + path, "apiKey": "dummy"},
        "models": {MODEL: {"name": MODEL, "limit": {"context": CONTEXT, "output": OUTPUT}}},
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
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


PI = {
    "openai-chat": ("openai-completions", "/v1"),
    "openai-responses": ("openai-responses", "/v1"),
    "anthropic": ("anthropic-messages", ""),
    "gemini": ("google-generative-ai", "/v1beta"),
}
"""The APIs and paths of pi, by wire."""


def pi(home: Path, url: str, wire: str) -> Mapping[str, str]:
    api, path = PI[wire]
    costs = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    model = {"id": MODEL, "name": MODEL, "reasoning": False, "input": ["text"], "cost": costs}
    limits = {"contextWindow": CONTEXT, "maxTokens": OUTPUT}
    provider = {"baseUrl": url + path, "api": api, "apiKey": "dummy", "models": [{**model, **limits}]}
    _write(home / ".pi" / "agent" / "models.json", json.dumps({"providers": {"penstock": provider}}))
    return {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}


def claude(home: Path, url: str, wire: str) -> Mapping[str, str]:
    _write(home / ".claude.json", json.dumps({"hasCompletedOnboarding": True}))
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(CONTEXT),
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",  # it refuses to run every tool as root otherwise
    }


def gemini(home: Path, url: str, wire: str) -> Mapping[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        # From the thirtieth step on, it would ask the model whether it runs in circles, and wait for an answer as JSON.
        "model": {"maxSessionTurns": -1, "disableLoopDetection": True, "skipNextSpeakerCheck": True},
    }
    _write(home / ".gemini" / "settings.json", json.dumps(settings))
    return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def qwen(home: Path, url: str, wire: str) -> Mapping[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "model": {
            "name": MODEL,
            "generationConfig": {"contextWindowSize": CONTEXT},
            "maxSessionTurns": -1,
            "skipLoopDetection": True,
            "skipNextSpeakerCheck": True,
        },
    }
    _write(home / ".qwen" / "settings.json", json.dumps(settings))
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "dummy", "OPENAI_MODEL": MODEL}


def copilot(home: Path, url: str, wire: str) -> Mapping[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "dummy",
        "COPILOT_MODEL": MODEL,
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(CONTEXT),
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(OUTPUT),
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }


def cn(home: Path, url: str, wire: str) -> Mapping[str, str]:
    model = {
        "name": MODEL, "provider": "openai", "model": MODEL, "apiBase": f"{url}/v1/", "apiKey": "dummy",
        "roles": ["chat", "edit", "apply"], "capabilities": ["tool_use"], "contextLength": CONTEXT,
    }  # fmt: skip
    settings = {"name": "Penstock", "version": "0.0.1", "schema": "v1", "models": [model]}
    _write(home / ".continue" / "config.yaml", json.dumps(settings))  # JSON is YAML
    return {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_METRICS_ENABLED": "0"}


def cline(home: Path, url: str, wire: str) -> Mapping[str, str]:
    folder = home / ".cline" / "data" / "settings"
    provider = {"provider": "openai-compatible", "apiKey": "dummy", "model": MODEL, "baseUrl": f"{url}/v1"}
    entry = {"settings": provider, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    providers = {"version": 1, "lastUsedProvider": "openai-compatible", "providers": {"openai-compatible": entry}}
    _write(folder / "providers.json", json.dumps({**providers, "modes": {}}))
    _write(folder / "global-settings.json", json.dumps({"telemetryOptOut": True, "autoUpdateEnabled": False}))
    return {"CLINE_SESSION_BACKEND_MODE": "local"}  # no daemon that other runs would share


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
