"""LM Studio: its own lists of models, of version 1 and of version 0, which older releases have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.servers.facts import ServerFacts
from penstock.servers.questions import Ask, Questions, count, row_of, rows, switch, table, text, words


def read(model: str) -> Questions[ServerFacts | None]:
    """The facts of a model; None if the server is not LM Studio, which answers unknown paths with the status 200."""
    listed = [row for row in rows((yield Ask("/api/v1/models")).body, "models") if "loaded_instances" in row]
    if listed:
        row = row_of(listed, model, "key") or next((one for one in listed if _instance(one, model)), None)
        return _facts(model) if row is None else _first_version(model, row)
    listed = [row for row in rows((yield Ask("/api/v0/models")).body, "data") if "max_context_length" in row]
    if not listed:
        return None
    row = row_of(listed, model)
    return _facts(model) if row is None else _older_version(model, row)


def _first_version(model: str, row: Mapping[str, Any]) -> ServerFacts:
    instances = rows(row, "loaded_instances")
    instance = _instance(row, model) or (instances[0] if instances else {})
    capabilities = table(row, "capabilities")
    return _facts(
        model, has_model=True, is_loaded=bool(instances), window=count(table(instance, "config"), "context_length"),
        longest_window=count(row, "max_context_length"), tools=switch(capabilities, "trained_for_tool_use") or None,
        thinking="reasoning" in capabilities if capabilities else None,
    )  # fmt: skip


def _older_version(model: str, row: Mapping[str, Any]) -> ServerFacts:
    is_loaded = text(row, "state") == "loaded"
    return _facts(
        model, has_model=True, is_loaded=is_loaded, longest_window=count(row, "max_context_length"),
        window=count(row, "loaded_context_length") if is_loaded else None,
        tools="tool_use" in (words(row, "capabilities") or ()) or None,
    )  # fmt: skip


def _instance(row: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    return row_of(rows(row, "loaded_instances"), model) or {}


def _facts(model: str, *, has_model: bool = False, **facts: Any) -> ServerFacts:
    """Tools: other models get them by a general prompt, so that only True is known."""
    return ServerFacts(server="lmstudio", model=model, has_model=has_model, tool_choices="words", **facts)
