"""The registry of providers: for each its wire, its base URL, and the environment variables of its API key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import MissingKeyError, UnknownProviderError, UsageError
from penstock.redaction import without_secrets

Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "aws"]

ProviderName = Literal[
    "anthropic", "aws", "azure", "bedrock", "cerebras", "cohere", "dashscope", "deepseek", "fireworks", "fireworks_ai",
    "gemini", "google", "google-vertex", "grok", "groq", "llama.cpp", "llamacpp", "lm_studio", "lmstudio",
    "minimax", "mistral", "moonshot", "nvidia", "nvidia_nim", "ollama", "openai", "openai-compatible",
    "openai_compatible", "openrouter", "sglang", "together", "together_ai", "vertex", "vllm", "xai", "zai",
]  # fmt: skip
"""The names of the providers in `PROVIDERS`, and their aliases."""


class Provider(Struct, frozen=True, kw_only=True):
    """A provider: its wire, its base URL, and how requests are authenticated.

    `base_url` may contain `{VARIABLE}`s of the environment. `other_wires` are available too, with `Model(..., wire=)`;
    `wire_urls` are their base URLs, if they have others.
    `keys` and `urls` are the environment variables for the API key and another base URL, the usual one first. `version`
    is the path for a base URL without one; where it `is_added`, it is added to other paths too, as the vendor's own
    client does. `has_native_calls`: tool calls are returned even if the server was started without a parser for them.
    `unparsed`: the fields with which a server returns the text of a model as it is, beside the tool choice `none`.
    """

    wire: str
    other_wires: tuple[str, ...] = ()
    base_url: str = ""
    wire_urls: Mapping[str, str] = {}
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    auth: Auth = "bearer"
    headers: Mapping[str, str] = {}
    quirks: frozenset[str] = frozenset()
    needs_key: bool = True
    version: str = ""
    is_added: bool = False
    has_native_calls: bool = True
    unparsed: Mapping[str, Any] | None = None
    about: str = ""


def _local(port: int, *urls: str, keys: tuple[str, ...], quirks: frozenset[str], **facts: Any) -> Provider:
    """A server on the user's machine that speaks Chat Completions; the key is optional."""
    url = f"http://localhost:{port}/v1"
    return Provider(
        wire="openai-chat", base_url=url, urls=urls, keys=keys, quirks=quirks, needs_key=False, version="/v1", **facts
    )  # fmt: skip


PLAIN = frozenset({"refusal-as-text", "no-custom-tools"})
COMPATIBLE = PLAIN | {"max-tokens", "format-or-tools"}
"""The quirks of nearly every provider that is compatible with Chat Completions: see `wires/openai_chat`."""
LOCAL = (COMPATIBLE - {"format-or-tools"}) | {"echo-reasoning", "system-only-first", "grammar-format"}
"""The quirks of servers that render the messages with the chat template of a model."""

_VERTEX = ("https://{{GOOGLE_CLOUD_LOCATION}}-aiplatform.googleapis.com/{}/projects/{{GOOGLE_CLOUD_PROJECT}}"
           "/locations/{{GOOGLE_CLOUD_LOCATION}}")  # fmt: skip

PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        wire="openai-responses", other_wires=("openai-chat",), base_url="https://api.openai.com/v1",
        keys=("OPENAI_API_KEY",), urls=("OPENAI_BASE_URL", "OPENAI_API_BASE"), version="/v1",
        quirks=frozenset({"known-fields"}), about="Responses; for Chat Completions, wire=\"openai-chat\""),
    "anthropic": Provider(
        wire="anthropic", base_url="https://api.anthropic.com/v1", keys=("ANTHROPIC_API_KEY",),
        urls=("ANTHROPIC_BASE_URL",), auth="x-api-key", headers={"anthropic-version": "2023-06-01"}, version="/v1",
        is_added=True),
    "google": Provider(
        wire="gemini", other_wires=("gemini-interactions",),
        base_url="https://generativelanguage.googleapis.com/v1beta", auth="x-goog-api-key",
        wire_urls={"gemini-interactions": "https://generativelanguage.googleapis.com/v1"},
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"), urls=("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
        version="/v1beta", is_added=True, about="generateContent; for Interactions, wire=\"gemini-interactions\""),
    "vertex": Provider(
        wire="gemini", keys=("GOOGLE_ACCESS_TOKEN", "VERTEX_ACCESS_TOKEN"), urls=("GOOGLE_VERTEX_BASE_URL",),
        base_url=f"{_VERTEX.format('v1')}/publishers/google", other_wires=("gemini-interactions",),
        wire_urls={"gemini-interactions": _VERTEX.format("v1beta1")},
        about="the key is an access token: gcloud auth print-access-token"),
    "openrouter": Provider(
        wire="openai-chat", base_url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",),
        urls=("OPENROUTER_BASE_URL",), quirks=frozenset({"max-tokens", "reasoning-object"})),
    "ollama": Provider(
        wire="ollama", base_url="http://localhost:11434", keys=("OLLAMA_API_KEY",),
        urls=("OLLAMA_HOST", "OLLAMA_BASE_URL"), needs_key=False),
    "mistral": Provider(
        wire="openai-chat", base_url="https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",), urls=("MISTRAL_BASE_URL",),
        quirks=COMPATIBLE | {"known-fields", "media-in-results", "name-in-results", "nine-letter-ids", "random-seed",
                             "no-stream-options", "answer-after-results", "system-only-first"}),
    "cohere": Provider(
        wire="cohere", base_url="https://api.cohere.com", keys=("CO_API_KEY", "COHERE_API_KEY"),
        urls=("CO_API_URL", "COHERE_BASE_URL")),
    "groq": Provider(
        wire="openai-chat", base_url="https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",), urls=("GROQ_BASE_URL",),
        quirks=PLAIN | {"known-fields", "no-response-format"}),
    "together": Provider(
        wire="openai-chat", base_url="https://api.together.ai/v1", keys=("TOGETHER_API_KEY",),
        urls=("TOGETHER_BASE_URL",), quirks=COMPATIBLE),
    "fireworks": Provider(
        wire="openai-chat", base_url="https://api.fireworks.ai/inference/v1", keys=("FIREWORKS_API_KEY",),
        urls=("FIREWORKS_BASE_URL",), quirks=COMPATIBLE | {"echo-reasoning"}),
    "nvidia": Provider(
        wire="openai-chat", base_url="https://integrate.api.nvidia.com/v1", keys=("NVIDIA_API_KEY",),
        urls=("NVIDIA_BASE_URL",), quirks=COMPATIBLE),
    "deepseek": Provider(
        wire="openai-chat", base_url="https://api.deepseek.com", keys=("DEEPSEEK_API_KEY",),
        urls=("DEEPSEEK_BASE_URL",),
        quirks=PLAIN | {"max-tokens", "echo-reasoning", "known-fields", "no-response-format", "thinking-off"}),
    "moonshot": Provider(
        wire="openai-chat", base_url="https://api.moonshot.ai/v1", keys=("MOONSHOT_API_KEY",),
        urls=("MOONSHOT_BASE_URL",), quirks=COMPATIBLE | {"echo-reasoning", "thinking-object"},
        about="refuses a call of a thinking model without its reasoning, and reads that since the last user message; "
              "`extra={\"thinking\": {\"type\": \"enabled\", \"keep\": \"all\"}}` lets newer models read all"),
    "zai": Provider(
        wire="openai-chat", base_url="https://api.z.ai/api/paas/v4", keys=("ZAI_API_KEY", "Z_AI_API_KEY"),
        urls=("ZAI_BASE_URL",), quirks=COMPATIBLE | {"echo-reasoning", "thinking-object"},
        about="reads the reasoning since the last user message; `extra={\"thinking\": {\"type\": \"enabled\", "
              "\"clear_thinking\": False}}` lets it read all"),
    "minimax": Provider(
        wire="openai-chat", base_url="https://api.minimax.io/v1", keys=("MINIMAX_API_KEY",), urls=("MINIMAX_BASE_URL",),
        quirks=PLAIN | {"no-response-format", "reasoning-split", "thinking-adaptive"}),
    "dashscope": Provider(
        wire="openai-chat", base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        keys=("DASHSCOPE_API_KEY",), urls=("DASHSCOPE_BASE_URL",),
        quirks=COMPATIBLE | {"echo-reasoning", "enable-thinking"},
        about="models of Qwen; in China, set the base URL to https://dashscope.aliyuncs.com/compatible-mode/v1. "
              "`extra={\"preserve_thinking\": True}` lets newer models read the reasoning of earlier turns"),
    "xai": Provider(
        wire="openai-chat", base_url="https://api.x.ai/v1", keys=("XAI_API_KEY",), urls=("XAI_BASE_URL",),
        quirks=PLAIN),
    "azure": Provider(
        wire="openai-chat", other_wires=("openai-responses",), base_url="{AZURE_OPENAI_ENDPOINT}/openai/v1",
        keys=("AZURE_OPENAI_API_KEY",),
        urls=("AZURE_OPENAI_BASE_URL",), auth="api-key", quirks=frozenset({"known-fields"}), version="/openai/v1",
        about="the model is the name of the deployment"),
    "cerebras": Provider(
        wire="openai-chat", base_url="https://api.cerebras.ai/v1", keys=("CEREBRAS_API_KEY",),
        urls=("CEREBRAS_BASE_URL",), quirks=PLAIN | {"known-fields", "format-or-tools"}),
    "bedrock": Provider(
        wire="bedrock", base_url="https://bedrock-runtime.{AWS_REGION}.amazonaws.com", auth="aws",
        keys=("AWS_BEARER_TOKEN_BEDROCK",), urls=("BEDROCK_BASE_URL", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
        needs_key=False,
        about="a bearer key, or, with penstock-llm[aws], the credentials that AWS's own tools find"),
    "vllm": _local(8000, "VLLM_BASE_URL", keys=("VLLM_API_KEY",), quirks=LOCAL | {"echo-as-reasoning"},
                   has_native_calls=False, unparsed={"skip_special_tokens": False}),
    "sglang": _local(30000, "SGLANG_BASE_URL", keys=("SGLANG_API_KEY",), quirks=LOCAL, has_native_calls=False),
    "llamacpp": _local(8080, "LLAMACPP_BASE_URL", "LLAMA_API_BASE", keys=("LLAMACPP_API_KEY",), quirks=LOCAL,
                       unparsed={"reasoning_format": "none"}),
    "lmstudio": _local(
        1234, "LMSTUDIO_BASE_URL", "LM_STUDIO_API_BASE", keys=("LMSTUDIO_API_KEY", "LM_API_TOKEN"), quirks=LOCAL),
    "openai-compatible": Provider(
        wire="openai-chat", keys=("OPENAI_COMPATIBLE_API_KEY",), urls=("OPENAI_COMPATIBLE_BASE_URL",),
        quirks=COMPATIBLE, needs_key=False, version="/v1", about="any other server: pass base_url"),
}  # fmt: skip
ALIASES = {"gemini": "google", "google-vertex": "vertex", "aws": "bedrock", "openai_compatible": "openai-compatible",
           "grok": "xai", "together_ai": "together", "fireworks_ai": "fireworks", "llama.cpp": "llamacpp",
           "lm_studio": "lmstudio", "nvidia_nim": "nvidia"}  # fmt: skip

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


def speaking(wire: str) -> frozenset[str]:
    """The names of the providers with this wire."""
    return frozenset(name for name, provider in PROVIDERS.items() if provider.wire == wire)


TEMPLATED = frozenset({"ollama", "vllm", "sglang", "llamacpp", "lmstudio"})
"""Servers that put the messages through the model's template; they do not match calls and results."""
OPENAI = frozenset({"openai", "azure"})
CLAUDE = frozenset({"anthropic", "bedrock"})
GEMINI = frozenset({"google", "vertex"})
ALL = frozenset(PROVIDERS)
MATCHING = ALL - TEMPLATED
"""The providers that match results with calls."""

ProblemKind = Literal[
    "call_without_result", "result_without_call", "duplicate_result", "misnamed_result", "misordered_results",
    "results_not_after_call", "split_results", "invalid_call", "repeated_id", "empty_id", "refused_id", "refused_name",
    "empty_part", "empty_message", "misplaced_part", "misplaced_state", "missing_signature", "refused_media",
    "roles_do_not_alternate", "does_not_begin_with_user", "user_after_results", "misplaced_system",
]  # fmt: skip
"""The kinds of problems of a history."""
ProblemCase = Literal[
    "repeated_id_of_earlier_turn", "repeated_item", "blank_part", "blank_result", "empty_last_answer",
    "reasoning_at_the_end", "unsigned_reasoning", "unsigned_first_call", "begins_with_call",
]  # fmt: skip
"""Cases of these kinds that fewer, or other, providers refuse."""

REFUSED_BY: dict[ProblemKind | ProblemCase, frozenset[str]] = {
    "call_without_result": MATCHING,
    "result_without_call": MATCHING,
    "duplicate_result": MATCHING,
    "misnamed_result": GEMINI,
    "misordered_results": GEMINI,
    "results_not_after_call": MATCHING,
    "split_results": GEMINI | {"bedrock"},
    "invalid_call": ALL - OPENAI,  # they accept any text
    "repeated_id": CLAUDE | OPENAI | {"mistral", "cohere"},
    "repeated_id_of_earlier_turn": frozenset({"anthropic"}),
    "repeated_item": OPENAI,
    "empty_id": MATCHING - GEMINI,
    "refused_id": CLAUDE | OPENAI | {"mistral"},  # others accept the ids that they gave, and more
    "refused_name": CLAUDE | OPENAI | GEMINI | {"mistral"},
    "empty_part": CLAUDE | GEMINI,
    "blank_part": CLAUDE,
    "blank_result": CLAUDE,
    "empty_message": CLAUDE | GEMINI | {"mistral", "cohere"},
    "empty_last_answer": GEMINI | {"bedrock", "mistral", "cohere"},  # Anthropic lets the model begin it
    "misplaced_part": ALL,
    "misplaced_state": ALL,
    "reasoning_at_the_end": OPENAI,
    "missing_signature": CLAUDE | GEMINI,
    "unsigned_reasoning": CLAUDE,
    "unsigned_first_call": GEMINI,
    "refused_media": ALL,
    "roles_do_not_alternate": TEMPLATED | {"bedrock"},
    "does_not_begin_with_user": CLAUDE,
    "begins_with_call": CLAUDE | GEMINI,
    "user_after_results": frozenset({"mistral"}),
    "misplaced_system": frozenset(name for name, row in PROVIDERS.items() if "system-only-first" in row.quirks),
}
"""The providers that refuse a history, by what is wrong with it."""


def on_wire(provider: Provider, wire: str) -> Provider:
    """The provider with the base URL that it has for a wire."""
    if not (url := provider.wire_urls.get(wire)):
        return provider
    version = _VERSION.search(url)
    return replace(provider, base_url=url, version=version[0] if version else "")


ReasoningField = Literal["reasoning_content", "reasoning", "reasoning_text"]
_ECHOES: dict[ReasoningField, str] = {
    "reasoning_content": "echo-reasoning",
    "reasoning": "echo-as-reasoning",
    "reasoning_text": "echo-as-reasoning-text",
}


def with_reasoning_back(provider: Provider, wire: str, field: ReasoningField | bool | None) -> Provider:
    """The provider, with reasoning sent back in this field; False sends none, None and True do what its row says.

    Raises a `UsageError` for True if the row says nothing.
    """
    if field is None:
        return provider
    if wire != "openai-chat":
        raise UsageError(f"reasoning_back is for Chat Completions, and the wire is {wire}: leave it out")
    if field is True:
        if provider.quirks.isdisjoint(_ECHOES.values()):
            raise UsageError(
                "reasoning_back=True has no effect: this provider has no known field for reasoning; "
                "name it (reasoning_back='reasoning_content', say), or leave the option out"
            )
        return provider
    if field is not False and field not in _ECHOES:
        names = ", ".join(map(repr, _ECHOES))
        raise UsageError(f"reasoning_back must be {names}, True, False or None, not {field!r}")
    echo = "drop-reasoning" if field is False else _ECHOES[field]
    return replace(provider, quirks=provider.quirks - {*_ECHOES.values()} | {echo})


OutputChoice = Literal["native", "tool", "prompt"]
OUTPUT_FORMS: dict[str, OutputChoice] = {"output-by-tool": "tool", "output-by-prompt": "prompt"}
"""The quirks of a model that is asked for structured output in a form that its caller chose."""
_WITHOUT_FORMAT = frozenset({"no-response-format", "format-or-tools", "grammar-format"})


def with_output_form(provider: Provider, wire: str, form: OutputChoice | None) -> Provider:
    """The provider, with structured output asked for in this form; `native` says that it has response formats."""
    if form is None:
        return provider
    if form != "native":
        quirks = {quirk for quirk, choice in OUTPUT_FORMS.items() if choice == form}
        if not quirks:
            raise UsageError(f"output_form must be 'native', 'tool', 'prompt' or None, not {form!r}")
        return replace(provider, quirks=provider.quirks | quirks)
    if wire != "openai-chat":
        raise UsageError(f"output_form='native' is for Chat Completions, and the wire is {wire}: leave it out")
    return replace(provider, quirks=provider.quirks - _WITHOUT_FORMAT)


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
    key = _first_set(provider.keys, environment)
    if not key and provider.needs_key:
        raise MissingKeyError(name, provider.keys)
    return key


def _first_set(variables: tuple[str, ...], environment: Mapping[str, str]) -> str:
    return next((value for variable in variables if (value := environment.get(variable, "").strip())), "")


def find_base_url(name: str, provider: Provider, environment: Mapping[str, str] = os.environ) -> str:
    """The base URL of a provider: from the environment, or its own."""
    if url := _first_set(provider.urls, environment):
        return complete_url(provider, url)
    if not provider.base_url:
        raise UsageError(f"{name} has no default base URL; pass Model(..., base_url=...) or set {provider.urls[0]}")
    url = _filled(name, provider.base_url, environment).rstrip("/")
    _refuse_user_info(url.partition("://")[2].partition("/")[0])
    return url


def complete_url(provider: Provider, base_url: str) -> str:
    """A base URL with the parts that people leave out: the scheme, the usual port, the version."""
    url = base_url.strip()
    try:
        parts = urlsplit(url) if "://" in url else _with_scheme(provider, urlsplit(f"//{url}"))
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        parts, is_valid = urlsplit(""), False
    if not is_valid:
        raise UsageError(f"{without_secrets(url)!r} is not a base URL; use one such as http://localhost:8000/v1")
    _refuse_user_info(parts.netloc)
    path = parts.path.rstrip("/")
    lacks_version = not path or (provider.is_added and not _VERSION.search(path))
    return parts._replace(path=path + provider.version if lacks_version else path).geturl()


def join_url(base_url: str, path: str) -> str:
    """The URL of a path below a base URL; the parameters of both are kept, and the path has precedence."""
    address, _, query = base_url.partition("?")
    path, _, own = path.partition("?")
    names = {pair.partition("=")[0] for pair in own.split("&")}
    pairs = [own, *(pair for pair in query.split("&") if pair.partition("=")[0] not in names)]
    parameters = "&".join(filter(None, pairs))
    return address.rstrip("/") + path + ("?" if parameters else "") + parameters


def _refuse_user_info(netloc: str) -> None:
    """Raise for a URL with a user name or password: logs would show it, and HTTP clients differ in what they send."""
    if "@" in netloc:
        host = netloc.rpartition("@")[2]
        raise UsageError(
            f"the base URL of {host} contains a user name or password; pass Model(..., api_key=...) or "
            'headers={"authorization": "Basic …"} instead'
        )


_VERSION = re.compile(r"/v\d+\w*$")


def _with_scheme(provider: Provider, parts: SplitResult) -> SplitResult:
    """The URL with a scheme (http for a server that seems to be local), a host and a port."""
    usual = urlsplit(provider.base_url)
    is_local = usual.scheme == "http" or bool(parts.port) or not re.search(r"\.[a-z]", parts.hostname or "")
    host = f"localhost{parts.netloc}" if parts.port and not parts.hostname else parts.netloc
    port = f":{usual.port}" if usual.port and not parts.port else ""
    return parts._replace(scheme="http" if is_local else "https", netloc=host + port)


def _filled(name: str, template: str, environment: Mapping[str, str]) -> str:
    """The URL with the variables of the environment filled in."""
    values = {**environment, "AWS_REGION": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION", "")}
    try:
        filled = template.format_map({key: value.rstrip("/") for key, value in values.items() if value})
    except KeyError as missing:
        raise UsageError(
            f"{name} needs a base URL: set {missing.args[0]} in the environment, or pass Model(..., base_url=...)"
        ) from None
    return filled.replace("//global-aiplatform", "//aiplatform")  # the global address of Vertex has no region
