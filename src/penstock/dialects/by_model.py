"""Which dialect a model writes: a table by the model's name, for `calls="auto"` and for the page in the documentation.

A name is that of a provider, a file or a repository: `Qwen/Qwen3-Coder-30B-A3B-Instruct`, `qwen3-coder:30b`,
`GLM-4.5-Air-Q4_K_M.gguf`. The first row whose pattern occurs in it, in any case, counts, so special models come first.
"""

from __future__ import annotations

import re

from msgspec import Struct


class ModelRow(Struct, frozen=True):
    """The models with a pattern in their names, and their dialect."""

    models: str
    pattern: str
    dialect: str


def _row(models: str, pattern: str, dialect: str) -> ModelRow:
    return ModelRow(models, rf"(?<![a-z0-9]){pattern}", dialect)


MODELS = (
    _row("Qwen3-Coder, Qwen 3.5 and later", r"qwen(-?3[-_.]?coder|-?3[.][5-9]|-?[4-9])", "qwen3_coder"),
    _row("Hermes, Nous", r"(nous[-_]?)?hermes", "hermes"),
    _row("Qwen 2.5, Qwen 3, QwQ", r"(qwen-?[23]|qwq)", "hermes"),
    _row("Granite 4", r"granite-?4", "hermes"),
    _row("Granite 20B Function Calling", r"granite-?20b", "granite_20b"),
    _row("Granite 3", r"granite-?3", "granite3"),
    _row("Nemotron 3", r"nemotron-?3", "qwen3_coder"),
    _row("Nemotron Nano 2", r"nemotron-?nano.*(v2|-2)", "nemotron_v2"),
    _row("GLM 4.5 to 5", r"glm-?(4[.][5-9]|[5-9])", "glm45"),
    _row("Ling 3", r"ling-?3", "glm45"),
    _row("Kimi K3", r"kimi-?k3", "kimi_k3"),
    _row("Kimi K2", r"kimi-?k2", "kimi_k2"),
    _row("DeepSeek V4", r"deepseek-?v4", "deepseek_dsml_v4"),
    _row("DeepSeek V3.2", r"deepseek-?v3[.]2", "deepseek_dsml"),
    _row("DeepSeek V3.1", r"deepseek-?v3[.]1", "deepseek_v31"),
    _row("DeepSeek V3 and R1", r"deepseek-?(v3|r1)", "deepseek_v3"),
    _row("MiniMax M3", r"minimax-?m3", "minimax_m3"),
    _row("MiniMax M2", r"minimax-?m2", "minimax_m2"),
    _row("MiniMax M1", r"minimax-?m1", "minimax_m1"),
    _row("MiniCPM 5", r"minicpm-?5", "minicpm5"),
    _row("gpt-oss", r"gpt-?oss", "harmony"),
    _row("Muse Glimmer", r"(muse-?)?glimmer", "muse_glimmer"),
    _row("FunctionGemma", r"functiongemma", "functiongemma"),
    _row("Gemma 4", r"gemma-?4", "gemma4"),
    _row("Gemma 2 and 3", r"gemma-?[23]", "gemma_tool_code"),
    _row("Functionary 3.2", r"functionary.*v3[.]2", "functionary_v32"),
    _row("Functionary 3.1", r"functionary", "functionary_v31"),
    _row("Llama 3.2 1B and 3B", r"llama-?3[.]2(:|-)(1|3)b", "pythonic"),
    _row("xLAM", r"(llama-)?xlam", "xlam"),
    _row("ToolACE", r"toolace", "pythonic"),
    _row("Llama 3, Llama 4", r"(meta-)?llama-?[34]", "llama3_json"),
    _row("Mistral 7B v0.3, Nemo, Large 2, Small 3.0", r"(mistral-(7b|nemo|large-2407|small-24b))", "mistral_array"),
    _row("Mistral, Devstral, Magistral, Ministral", r"(mistral|devstral|magistral|ministral)", "mistral_v11"),
    _row("Command A, Command R7B", r"command-?(a|r7b)", "cohere_action"),
    _row("Command R and R+", r"command-?r", "cohere_r_plus"),
    _row("Phi-4-mini", r"phi-?4-?mini", "functools"),
    _row("FireFunction v2", r"firefunction", "functools"),
    _row("InternLM 2.5, Intern-S1", r"intern(lm|-?s1)", "internlm2"),
    _row("Apertus", r"apertus", "apertus"),
    _row("ERNIE 4.5", r"ernie-?4[.]5", "ernie45"),
    _row("Hunyuan 3", r"(hunyuan|hy)-?(3|v3)", "hunyuan_v3"),
    _row("Hunyuan A13B", r"hunyuan-?a13b", "tool_calls_json_array"),
    _row("Jamba, Apriel", r"(jamba|apriel)", "tool_calls_json_array"),
    _row("LongCat", r"longcat", "longcat"),
    _row("LFM2", r"lfm-?2", "lfm2"),
    _row("Olmo 3", r"olmo-?3", "olmo3"),
    _row("Seed-OSS", r"seed-?oss", "seed_oss"),
    _row("Solar Open", r"solar-?open", "solar_open"),
    _row("Step 3", r"step-?3", "step3"),
    _row("dots", r"dots([.]|-)llm", "dots"),
    _row("GigaChat 3", r"gigachat-?3", "gigachat3"),
    _row("Claude", r"claude", "anthropic_xml"),
)
"""The models with a known dialect."""


def find_dialect_of(model: str) -> str | None:
    """Returns the dialect of a model, None if it is not known."""
    name = model.lower().replace("_", "-").replace(" ", "-")
    return next((row.dialect for row in MODELS if re.search(row.pattern, name)), None)
