"""Declarations of tools, wherever tools are taken. A plain function is declared with the types of its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.declarations import FUNCTIONS, ToolDeclaration, check_tool_list, read_declarations


def declare(tools: Iterable[Any] | None) -> list[ToolDeclaration]:
    """Reads tools: functions, names, objects with a name and a schema, or declarations in any provider's format."""
    check_tool_list(tools)
    return read_declarations(_typed(tool) if _is_function(tool) else tool for tool in tools or ())


def _is_function(tool: Any) -> bool:
    """Whether this is a function, a method or a callable object that does not declare itself."""
    if type(tool) is ToolDeclaration:  # first, as the other checks are slow
        return False
    if isinstance(tool, FUNCTIONS):
        return True
    if isinstance(tool, str | Mapping) or hasattr(tool, "declaration") or getattr(tool, "name", None):
        return False
    if isinstance(tool, type):  # a class of callable objects
        return any("__call__" in vars(base) for base in tool.__mro__)
    return callable(tool)


def _typed(function: Any) -> Any:
    from penstock.tools.tool import as_tool  # imported only for functions, with pydantic

    return as_tool(function)
