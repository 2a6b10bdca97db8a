"""`Rescue`: finds tool calls that leaked into the text of a model with native calls.

It looks for many dialects at once, and only for calls to declared tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.dialects.provenance import Provenance
from penstock.dialects.reading.schema import Tools
from penstock.dialects.stage import TextCalls
from penstock.errors import UsageError

LEAKS = (
    "hermes", "functionary_v31", "qwen3_coder", "glm45", "anthropic_xml", "olmo3", "minimax_m2", "minimax_m3",
    "deepseek_dsml", "deepseek_dsml_v4", "deepseek_v3", "deepseek_v31", "kimi_k2", "harmony", "mistral_v11", "gemma4",
    "seed_oss", "granite3", "tool_calls_json_array", "hunyuan_v3", "longcat", "nemotron_v2", "step3", "cohere_action",
    "apertus", "internlm2", "lfm2", "functiongemma", "solar_open", "dots", "minicpm5",
)  # fmt: skip
"""The dialects with marks that ordinary prose does not contain, in the order in which they are tried."""


class Rescue(TextCalls):
    """Finds calls to declared tools that leaked into the text of a stream with native calls.

    Calls without marks, of dialects that were named, count only as the last thing of a message.

    rescue = Rescue(tools)
    rescued = [event for chunk in chunks for event in rescue.feed(chunk)] + rescue.close()
    """

    def __init__(
        self,
        tools: Iterable[Any],
        dialects: str | Iterable[str] = LEAKS,
        *,
        id_prefix: str = "text_call_",
        provenance: Provenance | None = None,
        is_structured: bool = False,
    ) -> None:
        tools = list(tools)
        super().__init__(
            dialects, tools, only_declared=True, id_prefix=id_prefix, provenance=provenance, unsettled=_ignore,
            is_structured=is_structured,
        )  # fmt: skip
        if not Tools(tools):
            raise UsageError("Rescue needs declared tools: without them, a call cannot be distinguished from prose")


def _ignore(name: str, why: str) -> None:
    """Ignores a call that stays text."""
