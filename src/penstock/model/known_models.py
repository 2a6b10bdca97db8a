"""Names of models, for completion in editors. Any other name is accepted too: providers add models at any time.

`KnownModel` is written from `MODELS` by `make format`.
"""

from __future__ import annotations

from typing import Literal

from penstock.providers import ProviderName

MODELS: dict[ProviderName, tuple[str, ...]] = {
    "openai": ("gpt-6.1-sol", "gpt-6-sol", "gpt-6-luna", "gpt-5.5", "gpt-5.5-pro", "gpt-5.4", "gpt-5.4-mini", "gpt-5.2",
               "gpt-5.1", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5-codex", "gpt-4.1", "gpt-4.1-mini", "gpt-4o"),
    "anthropic": ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5", "claude-sonnet-5",
                  "claude-fable-5", "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5"),
    "google": ("gemini-3.8-flash", "gemini-3.5-flash", "gemini-3.1-pro-preview", "gemini-3-pro-preview",
               "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-flash-latest"),
    "mistral": ("mistral-large-latest", "mistral-small-latest", "codestral-latest"),
    "cohere": ("command-r-plus-08-2024", "command-r7b-12-2024"),
    "deepseek": ("deepseek-chat", "deepseek-reasoner", "deepseek-v4-pro", "deepseek-v4-flash"),
    "groq": ("llama-3.3-70b-versatile", "llama-3.1-8b-instant", "openai/gpt-oss-120b", "openai/gpt-oss-20b"),
    "xai": ("grok-4.7", "grok-4.5", "grok-4", "grok-4-fast", "grok-code-fast-1", "grok-3", "grok-3-mini"),
    "moonshot": ("kimi-k3", "kimi-k2.6", "kimi-k2.5", "kimi-latest"),
    "zai": ("glm-5.3", "glm-5", "glm-4.7", "glm-4.6", "glm-4.5", "glm-4.5-air"),
    "cerebras": ("gpt-oss-120b", "zai-glm-4.7"),
}  # fmt: skip
"""Models of providers, which have many more."""

KnownModel = Literal[
    "sim:demo", "sim:fast", "openai:gpt-6.1-sol", "openai:gpt-6-sol", "openai:gpt-6-luna", "openai:gpt-5.5",
    "openai:gpt-5.5-pro", "openai:gpt-5.4", "openai:gpt-5.4-mini", "openai:gpt-5.2", "openai:gpt-5.1", "openai:gpt-5",
    "openai:gpt-5-mini", "openai:gpt-5-nano", "openai:gpt-5-codex", "openai:gpt-4.1", "openai:gpt-4.1-mini",
    "openai:gpt-4o", "anthropic:claude-opus-5-5", "anthropic:claude-sonnet-5-5", "anthropic:claude-haiku-5-5",
    "anthropic:claude-opus-5", "anthropic:claude-sonnet-5", "anthropic:claude-fable-5", "anthropic:claude-opus-4-8",
    "anthropic:claude-sonnet-4-6", "anthropic:claude-haiku-4-5", "google:gemini-3.8-flash", "google:gemini-3.5-flash",
    "google:gemini-3.1-pro-preview", "google:gemini-3-pro-preview", "google:gemini-2.5-pro", "google:gemini-2.5-flash",
    "google:gemini-2.5-flash-lite", "google:gemini-flash-latest", "mistral:mistral-large-latest",
    "mistral:mistral-small-latest", "mistral:codestral-latest", "cohere:command-r-plus-08-2024",
    "cohere:command-r7b-12-2024", "deepseek:deepseek-chat", "deepseek:deepseek-reasoner", "deepseek:deepseek-v4-pro",
    "deepseek:deepseek-v4-flash", "groq:llama-3.3-70b-versatile", "groq:llama-3.1-8b-instant",
    "groq:openai/gpt-oss-120b", "groq:openai/gpt-oss-20b", "xai:grok-4.7", "xai:grok-4.5", "xai:grok-4",
    "xai:grok-4-fast", "xai:grok-code-fast-1", "xai:grok-3", "xai:grok-3-mini", "moonshot:kimi-k3",
    "moonshot:kimi-k2.6", "moonshot:kimi-k2.5", "moonshot:kimi-latest", "zai:glm-5.3", "zai:glm-5", "zai:glm-4.7",
    "zai:glm-4.6", "zai:glm-4.5", "zai:glm-4.5-air", "cerebras:gpt-oss-120b", "cerebras:zai-glm-4.7",
]  # fmt: skip
"""The same as `Model` takes them."""
