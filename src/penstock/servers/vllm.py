"""vLLM, and SGLang, which has the same list of models: the window is in the list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.servers.facts import ServerFacts
from penstock.servers.questions import Ask, Json, Questions, count, row_of, text

OWNER = "vllm"
SGLANG_OWNER = "sglang"

_COUNTED = ("model", "messages", "tools", "chat_template_kwargs")  # the fields of a request that the tokenizer takes


def read(model: str, listed: list[Mapping[str, Any]]) -> Questions[ServerFacts]:
    """The facts of a model of vLLM. Nothing tells whether it was started with a parser of calls."""
    row = row_of(listed, model)
    version = (yield Ask("/version")).body
    return ServerFacts(
        server="vllm", version=text(version, "version"), model=model, has_model=row is not None, is_loaded=True,
        window=count(row or {}, "max_model_len"), tool_choices="all", overflow="refused",
    )  # fmt: skip


def read_sglang(model: str, listed: list[Mapping[str, Any]]) -> Questions[ServerFacts]:
    """The facts of a model of SGLang. Its page of server arguments is not read: it contains the key."""
    row = row_of(listed, model)
    reply = yield Ask("/model_info")
    if reply.is_missing:
        reply = yield Ask("/get_model_info")
    info = reply.body
    return ServerFacts(
        server="sglang", model=model, has_model=row is not None, is_loaded=True,
        window=count(row or {}, "max_model_len"), tool_choices="all", overflow="refused",
        tools=bool(info["tool_call_parser"]) if "tool_call_parser" in info else None,
        thinking=True if text(info, "reasoning_parser") else None,
    )  # fmt: skip


def count_prompt(body: Json) -> Questions[int | None]:
    """The tokens of a chat request, by vLLM's tokenizer."""
    reply = yield Ask("/tokenize", {key: body[key] for key in _COUNTED if key in body})
    return count(reply.body, "count")
