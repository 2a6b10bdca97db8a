"""The rows of the providers."""

from __future__ import annotations

from penstock.providers.provider import COMPATIBLE, LOCAL, PLAIN, Provider, local

VERTEX = ("https://{{GOOGLE_CLOUD_LOCATION}}-aiplatform.googleapis.com/{}/projects/{{GOOGLE_CLOUD_PROJECT}}"
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
        base_url=f"{VERTEX.format('v1')}/publishers/google",
        other_wires=("gemini-interactions", "anthropic", "openai-chat"),
        wire_urls={"gemini-interactions": VERTEX.format("v1beta1"),
                   "anthropic": f"{VERTEX.format('v1')}/publishers/anthropic",
                   "openai-chat": f"{VERTEX.format('v1')}/endpoints/openapi"},
        quirks=COMPATIBLE | {"raw-predict"},
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
    "mantle": Provider(
        wire="openai-chat", other_wires=("openai-responses", "anthropic"), keys=("AWS_BEARER_TOKEN_BEDROCK",),
        base_url="https://bedrock-mantle.{AWS_REGION}.api.aws/v1", urls=("BEDROCK_MANTLE_BASE_URL",),
        wire_urls={"openai-responses": "https://bedrock-mantle.{AWS_REGION}.api.aws/openai/v1",
                   "anthropic": "https://bedrock-mantle.{AWS_REGION}.api.aws/anthropic/v1"},
        headers={"anthropic-version": "2023-06-01"}, quirks=PLAIN,
        about="Amazon Bedrock's endpoint for OpenAI's clients; not tried"),
    "vllm": local(8000, "VLLM_BASE_URL", keys=("VLLM_API_KEY",), quirks=LOCAL | {"echo-as-reasoning"},
                   has_native_calls=False, unparsed={"skip_special_tokens": False}),
    "sglang": local(30000, "SGLANG_BASE_URL", keys=("SGLANG_API_KEY",), quirks=LOCAL, has_native_calls=False),
    "llamacpp": local(8080, "LLAMACPP_BASE_URL", "LLAMA_API_BASE", keys=("LLAMACPP_API_KEY",), quirks=LOCAL,
                       unparsed={"reasoning_format": "none"}),
    "lmstudio": local(
        1234, "LMSTUDIO_BASE_URL", "LM_STUDIO_API_BASE", keys=("LMSTUDIO_API_KEY", "LM_API_TOKEN"), quirks=LOCAL),
    "openai-compatible": Provider(
        wire="openai-chat", keys=("OPENAI_COMPATIBLE_API_KEY",), urls=("OPENAI_COMPATIBLE_BASE_URL",),
        quirks=COMPATIBLE, needs_key=False, version="/v1", about="any other server: pass base_url"),
}  # fmt: skip
ALIASES = {"gemini": "google", "google-vertex": "vertex", "aws": "bedrock", "openai_compatible": "openai-compatible",
           "grok": "xai", "together_ai": "together", "fireworks_ai": "fireworks", "llama.cpp": "llamacpp",
           "lm_studio": "lmstudio", "nvidia_nim": "nvidia"}  # fmt: skip
