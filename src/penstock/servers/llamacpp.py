"""llama.cpp's server: `/props` has the window, the chat template and the build; a router has several models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from penstock.servers.facts import ServerFacts
from penstock.servers.questions import Ask, Json, Questions, count, row_of, switch, table, text

OWNER = "llamacpp"
HEADER = "llama.cpp"

_THINKING = ("enable_thinking", "<think>", "reasoning_content")  # in chat templates


def read(model: str, listed: list[Mapping[str, Any]]) -> Questions[ServerFacts]:
    """The facts of a model. A server with one model answers for every name."""
    own = row_of(listed, model)
    row = own or (listed[0] if len(listed) == 1 and "status" not in listed[0] else None)
    is_router = any("status" in one for one in listed)
    path = f"/props?model={quote(model, safe='')}&autoload=false" if is_router else "/props"
    props = (yield Ask(path)).body if row is not None else {}
    meta = table(row or {}, "meta")
    template = text(props, "chat_template")
    return ServerFacts(
        server="llamacpp", version=text(props, "build_info"), model=model,
        actual_model=text(row, "id") if own is None and row is not None else "", has_model=row is not None,
        is_loaded=bool(props) if is_router else True,
        window=count(table(props, "default_generation_settings"), "n_ctx") or count(meta, "n_ctx"),
        longest_window=count(meta, "n_ctx_train"), tools=_tools(props, template), tool_choices="words",
        thinking=any(mark in template for mark in _THINKING) if template else None, overflow="refused",
    )  # fmt: skip


def _tools(props: Mapping[str, Any], template: str) -> bool | None:
    """Whether the chat template has tools; servers without its capabilities only show the template."""
    known = switch(table(props, "chat_template_caps"), "supports_tools")
    if known is not None or not template:
        return known
    return "tools" in template or bool(text(props, "chat_template_tool_use"))


def count_prompt(body: Json) -> Questions[int | None]:
    """The tokens of a chat request: by the endpoint for it, or on older servers by the template."""
    reply = yield Ask("/v1/chat/completions/input_tokens", body)
    return (yield from count_by_template(body)) if reply.is_missing else count(reply.body, "input_tokens")


def count_by_template(body: Json) -> Questions[int | None]:
    """The tokens of a chat request, by the chat template and the tokenizer."""
    prompt = text((yield Ask("/apply-template", body)).body, "prompt")
    if not prompt:
        return None
    tokens = (yield Ask("/tokenize", {"content": prompt, "add_special": True})).body.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None
