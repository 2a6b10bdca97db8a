"""Ollama: `/api/show` has the capabilities and parameters of a model, `/api/ps` the window of a loaded one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.servers.facts import ServerFacts
from penstock.servers.questions import Ask, Questions, Reply, count, rows, text, words

VERSION = "/api/version"

_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


def read(model: str, version: str) -> Questions[ServerFacts]:
    """The facts of a model."""
    shown = yield Ask("/api/show", {"model": model})
    if not shown.body.get("model_info") and not shown.body.get("details"):
        has_model = False if shown.status == 404 else None
        return ServerFacts(server="ollama", version=version, model=model, has_model=has_model, overflow="cut")
    loaded = _loaded((yield Ask("/api/ps")), model)
    longest = _longest(shown.body)
    capabilities = words(shown.body, "capabilities")
    return ServerFacts(
        server="ollama", version=version, model=model, has_model=True, is_loaded=loaded is not None,
        window=_window(shown.body, loaded, longest), longest_window=longest,
        tools=None if capabilities is None else "tools" in capabilities, tool_choices="none",
        thinking=None if capabilities is None else "thinking" in capabilities, overflow="cut",
    )  # fmt: skip


def _window(shown: Mapping[str, Any], loaded: Mapping[str, Any] | None, longest: int | None) -> int | None:
    """The window: of the loaded model, or of its parameters. The default depends on the memory of the machine."""
    if loaded is not None and (window := count(loaded, "context_length")):
        return window
    if text(shown, "remote_host"):
        return longest
    if setting := _NUM_CTX.search(text(shown, "parameters")):
        window = int(setting[1])
        return min(window, longest) if longest else window
    return None


def _longest(shown: Mapping[str, Any]) -> int | None:
    """The window that the model was trained with; its key has the name of the architecture."""
    info = shown.get("model_info")
    if not isinstance(info, dict):
        return None
    return next((count(info, key) for key in info if key.endswith(".context_length")), None)


def _loaded(reply: Reply, model: str) -> Mapping[str, Any] | None:
    names = (model, f"{model}:latest")
    return next((row for row in rows(reply.body, "models") if text(row, "name") in names), None)
