"""The table of the dialects: `python -m tests.dialect_page` prints docs/dialects.md.

The calls in it are written by the prompt side itself, so that the page shows what is sent to a model.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from penstock.dialects.prompt import UNWRITTEN, prompts
from penstock.dialects.registry import ALIASES, FAMILIES
from penstock.dialects.rescue import LEAKS
from penstock.events import ToolCall

HEAD = """# Dialects

How models write calls into their text. `TextParser(name)` reads such text. `model.stream(..., calls=name)` asks a model
for it, if the dialect has a prompt side. All calls here say the same: `weather`, with the `city` Rome.

Use native calls where your server has them. `calls` is for models and servers that have none. If you do not know what
your model writes, try `xml`. How it works is in [in-text.md](in-text.md).

What counts as a call and what stays text is [decision 10](decisions/0010-what-counts-as-a-call-in-text.md). How to add
a dialect is in [add-a-dialect.md](add-a-dialect.md). This page is made by `python -m tests.dialect_page`.

| name | family | what a call looks like | who writes it | prompt | rescue |
|---|---|---|---|:-:|:-:|
"""
LEGEND = """
- **prompt**: penstock can ask a model for it. Why not for the others: {unwritten}.
- **rescue**: `Rescue` and `rescue=True` look for it. For others, name them: `rescue=["pythonic"]`.

The families:

{families}
"""

FAMILY = {
    "marked": ("marked object", "a JSON object with the name and the arguments, between marks"),
    "bare": ("bare object", "the same object with no marks, or none that prose does not have"),
    "named": ("named", "a name between marks, then the JSON of the arguments"),
    "message": ("message", "a sequence of messages, and a call is one that goes to a tool"),
    "tags": ("tags", "tags with the names of tool and arguments as attributes, and raw values"),
    "elements": ("elements", "tags that are named like the tool or the arguments, and raw values"),
    "keys": ("keys", "each argument after a tag with its key, as a raw value"),
    "gemma": ("Gemma", "a notation of its own, with a token for quotes"),
    "python": ("Python", "a call of a function with keywords"),
}
"""What the families are called, and what they have in common."""

UNWRITTEN_CALLS = {
    "langchain_xml": "<tool>weather</tool><tool_input>Rome</tool_input>",
    "smol_code": '<code>\nweather(city="Rome")\n</code>',
}
"""Calls in the dialects that have no prompt side."""

WRITERS = {
    "anthropic_legacy": "Claude 2 and early Claude 3",
    "anthropic_xml": "Claude, and many that were told to write like it",
    "apertus": "Apertus",
    "bare_json": "small models under generic templates",
    "cline_xml": "any model under the older prompts of Cline and Roo Code",
    "cohere_action": "Command R7B, Command A",
    "cohere_r_plus": "Command R and R+ of 2024",
    "deepseek_dsml": "DeepSeek V3.2",
    "deepseek_dsml_v4": "DeepSeek V4",
    "deepseek_v3": "DeepSeek V3 and R1",
    "deepseek_v31": "DeepSeek V3.1",
    "dots": "dots",
    "ernie45": "ERNIE 4.5 Thinking",
    "functiongemma": "FunctionGemma",
    "functionary_v31": "Functionary 3.1, Llama 3.1 with custom tools",
    "functionary_v32": "Functionary 3.2",
    "functools": "Phi-4-mini, FireFunction v2",
    "gemma4": "Gemma 4",
    "gemma_tool_code": "Gemma 2 and 3",
    "gigachat3": "GigaChat 3",
    "glm45": "GLM 4.5 to 5, Ling 3",
    "granite3": "Granite 3",
    "granite_20b": "Granite 20B for function calls",
    "harmony": "gpt-oss",
    "hermes": "Hermes, Qwen 2.5 and 3, QwQ, Granite 4",
    "hunyuan_v3": "Hunyuan 3",
    "inkling": "Inkling",
    "internlm2": "InternLM 2.5, Intern-S1",
    "kimi_k2": "Kimi K2",
    "kimi_k3": "Kimi K3",
    "langchain_xml": "LangChain's XML agent",
    "lfm2": "LFM2",
    "llama3_json": "Llama 3, Llama 4",
    "longcat": "LongCat",
    "md_json_fence": "any model that is asked for JSON in Markdown",
    "minicpm5": "MiniCPM 5",
    "minimax_m1": "MiniMax M1",
    "minimax_m2": "MiniMax M2",
    "minimax_m3": "MiniMax M3",
    "mistral_array": "Mistral 7B v0.3, Nemo, Large 2, Small 3.0",
    "mistral_v11": "Mistral from Small 3.1 on, Devstral, Magistral",
    "muse_glimmer": "Muse Glimmer",
    "nemotron_v2": "Nemotron Nano 2",
    "olmo3": "Olmo 3",
    "plain": "nobody: it reads reasoning marks of all kinds, and no calls",
    "pythonic": "Llama 3.2 and 4, ToolACE",
    "qwen3_coder": "Qwen3-Coder, Qwen 3.5 and later, Nemotron 3",
    "react": "any model under a ReAct prompt",
    "seed_oss": "Seed-OSS",
    "smol_code": "smolagents, CodeAct",
    "solar_open": "Solar Open",
    "step3": "Step 3",
    "tool_calls_json_array": "Jamba, Hunyuan A13B, Apriel",
    "xlam": "xLAM 2",
}

CALL = ToolCall("call00001", "weather", {"city": "Rome"})


def page() -> str:
    """The page, from the tables of the dialects."""
    families = "\n".join(f"- **{name}**: {what}." for name, what in FAMILY.values())
    unwritten = ". ".join(f"`{name}`: {why.replace(chr(39), '`')}" for name, why in UNWRITTEN.items())
    rows = "".join(_row(family, name) for family, name in _names())
    return HEAD + rows + LEGEND.format(families=families, unwritten=unwritten)


def examples() -> dict[str, str]:
    """What a call looks like, by dialect."""
    return {name: prompt.calls([CALL]) for name, prompt in prompts().items()} | UNWRITTEN_CALLS


def example(name: str) -> str:
    """What a call looks like in this dialect, which has calls."""
    unwritten = "UNWRITTEN_CALLS in tests/dialect_page.py"
    return told(examples(), name, f"PROMPTS in src/penstock/dialects/prompts; if it has no prompt side, to {unwritten}")


def told(table: Mapping[str, Any], name: str, where: str) -> Any:
    """What a table says of a name; if it says nothing, where to add it."""
    if name not in table:
        raise LookupError(f"nothing is told of {name!r} yet: add it to {where}")
    return table[name]


def _names() -> Iterator[tuple[str, str]]:
    """The dialects, each after its family; families as they are told, and then what has no calls at all."""
    for family in FAMILIES:
        for name in import_module(f"penstock.dialects.grammars.{family}").DIALECTS:
            yield told(FAMILY, family, "FAMILY in tests/dialect_page.py")[0], name
    yield "–", "plain"


def _row(family: str, name: str) -> str:
    aliases = ", ".join(f"`{alias}`" for alias, own in ALIASES.items() if own == name)
    called = f"`{name}`, also {aliases}" if aliases else f"`{name}`"
    shown = "<br>".join(_code(line) for line in example(name).splitlines()) if name != "plain" else ""
    writers = told(WRITERS, name, "WRITERS in tests/dialect_page.py")
    marks = ("✓" if name in there else "" for there in (prompts(), LEAKS))
    return f"| {called} | {family} | {shown} | {writers} | {' | '.join(marks)} |\n"


def _code(line: str) -> str:
    """A line as code in a cell of a table, in which a bar and a backtick would mean something."""
    shown = html.escape(line, quote=False).replace("|", "&#124;").replace("`", "&#96;")
    return f"<code>{shown}</code>"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201  # its job
