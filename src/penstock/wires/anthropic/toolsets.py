"""Toolsets: a tool in one is known by two names, so that it is not taken for another tool of the same name."""

from __future__ import annotations

TOOLSET = "toolset_name"
"""The field, and the kind of state, with the name of the toolset of a called tool."""
SEPARATOR = "__"
"""Stands between the names of a toolset and of a tool in it."""


def flat_name(toolset: object, name: str) -> str:
    """Both names of a tool in a toolset as one; the name alone if it is in none."""
    return f"{toolset}{SEPARATOR}{name}" if toolset and isinstance(toolset, str) else name


def own_name(toolset: object, name: str) -> str:
    """The name of a tool within its toolset."""
    return name.removeprefix(f"{toolset}{SEPARATOR}") if toolset and isinstance(toolset, str) else name
