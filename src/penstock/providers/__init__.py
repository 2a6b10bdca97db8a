"""The registry of providers: for each its wire, its base URL, and the environment variables of its API key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, cast

from penstock.errors import MissingKeyError, UnknownProviderError, UsageError
from penstock.providers.base_urls import complete_url, find_base_url, first_set, join_url, on_wire
from penstock.providers.forms import OUTPUT_FORMS, OutputChoice, ReasoningField, with_output_form, with_reasoning_back
from penstock.providers.provider import COMPATIBLE, LOCAL, PLAIN, Auth, Provider
from penstock.providers.refusals import (
    ALL,
    CLAUDE,
    GEMINI,
    MATCHING,
    OPENAI,
    REFUSED_BY,
    TEMPLATED,
    ProblemCase,
    ProblemKind,
    speaking,
)
from penstock.providers.rows import ALIASES, PROVIDERS

ProviderName = Literal[
    "anthropic", "aws", "azure", "bedrock", "cerebras", "cohere", "dashscope", "deepseek", "fireworks", "fireworks_ai",
    "gemini", "google", "google-vertex", "grok", "groq", "llama.cpp", "llamacpp", "lm_studio", "lmstudio", "mantle",
    "minimax", "mistral", "moonshot", "nvidia", "nvidia_nim", "ollama", "openai", "openai-compatible",
    "openai_compatible", "openrouter", "sglang", "together", "together_ai", "vertex", "vllm", "xai", "zai",
]  # fmt: skip
"""The names of the providers in `PROVIDERS`, and their aliases."""

PRICE_PROVIDERS = {"bedrock": "aws", "moonshot": "moonshotai", "vertex": "google", "xai": "x-ai"}
"""The providers that have another name in the package `genai-prices`."""

MODEL_PREFIXES = {
    "claude": "anthropic", "gpt-": "openai", "o3": "openai", "o4": "openai", "chatgpt": "openai", "gemini": "google",
    "mistral": "mistral", "magistral": "mistral", "codestral": "mistral", "command": "cohere", "grok": "xai",
    "deepseek": "deepseek", "kimi": "moonshot", "glm": "zai", "MiniMax": "minimax",
}  # fmt: skip
"""How the names of models begin, and the provider to suggest for them."""

ANY_SERVER: ProviderName = "openai-compatible"
"""The provider that a server without a name is taken for."""
TEMPLATE_SERVER: ProviderName = "llamacpp"
"""The same for one that puts the messages through a template, as servers on the user's machine do."""


def find_provider(name: str) -> tuple[ProviderName, Provider]:
    """The own name and the row of the provider with this name or alias."""
    known = ALIASES.get(name, name)
    if known not in PROVIDERS:
        raise UnknownProviderError(name, (*PROVIDERS, *ALIASES))
    return cast("ProviderName", known), PROVIDERS[known]


def split_model(name: str) -> tuple[str, str]:
    """The provider and the model of `provider:model`, or of `provider/model` if the first part is a provider."""
    for delimiter in (":", "/"):
        provider, separator, model = name.partition(delimiter)
        if separator and (provider in PROVIDERS or provider in ALIASES):
            if not model:
                raise UsageError(f"{name!r} has no model after the provider; use {provider}:model")
            return provider, model
    provider, separator, _ = name.partition(":")
    if separator:
        raise UnknownProviderError(provider, (*PROVIDERS, *ALIASES))
    known = next((vendor for prefix, vendor in MODEL_PREFIXES.items() if name.startswith(prefix)), "")
    example = f"did you mean {known}:{name}?" if known else "use provider:model, for example openai:gpt-5"
    raise UsageError(f"{name!r} has no provider prefix; {example}")


def find_key(name: str, provider: Provider, environment: Mapping[str, str] = os.environ) -> str:
    """The API key of a provider from the environment; empty if it needs none."""
    key = first_set(provider.keys, environment)
    if not key and provider.needs_key:
        raise MissingKeyError(name, provider.keys)
    return key


__all__ = [
    "ALIASES", "ALL", "ANY_SERVER", "CLAUDE", "COMPATIBLE", "GEMINI", "LOCAL", "MATCHING", "MODEL_PREFIXES", "OPENAI",
    "OUTPUT_FORMS", "PLAIN", "PRICE_PROVIDERS", "PROVIDERS", "REFUSED_BY",
    "TEMPLATED", "TEMPLATE_SERVER", "Auth", "OutputChoice", "ProblemCase", "ProblemKind",
    "Provider", "ProviderName", "ReasoningField", "complete_url", "find_base_url", "find_key", "find_provider",
    "join_url", "on_wire", "speaking", "split_model", "with_output_form", "with_reasoning_back",
]  # fmt: skip
