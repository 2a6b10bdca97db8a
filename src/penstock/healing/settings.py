"""`Healing`: what is healed in the responses of a model server."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration

Repair = Literal["off", "safe", "guess"]
READ_ONLY: Literal["read_only"] = "read_only"


class Healing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is healed in the responses of a model server. Each part can be switched off.

    | switch | what it does |
    |---|---|
    | `rescue` | calls of declared tools in the text become calls; a list names the dialects; `read_only`: see below |
    | `read_only` | names of tools without side effects, or patterns such as `get_*`, for `rescue="read_only"` |
    | `quoted` | also calls that repeat a user message or a tool result: they may be injected |
    | `reasoning` | `<think>` marks in the text become reasoning |
    | `inside_reasoning` | the text begins inside of reasoning, as the prompt has the opening mark |
    | `reasoning_calls` | a call that ends the reasoning of a response without text and calls becomes a call |
    | `repair` | damaged arguments: `safe` if there is only one repair and it changes no value, `guess` also others |
    | `finish_reasons` | a response with calls ends with the reason for calls, whatever reason the server sent |
    | `usage` | token counts are estimated where the server sends none |

    Ids, indexes, names in pieces, arguments that are objects, missing finish reasons and the fields of reasoning are
    always healed: a response is decoded, and encoded again.

    With `rescue="read_only"`, only calls of tools without side effects are rescued: those in `read_only`, those whose
    declaration says so (`annotations`, with the `readOnlyHint` of MCP), and in `Model` and `Agent` the tools with
    `read_only=True`. Others stay text.
    """

    rescue: bool | Literal["read_only"] | tuple[str, ...] = True
    read_only: tuple[str, ...] = ()
    quoted: bool = False
    reasoning: bool = True
    inside_reasoning: bool = False
    reasoning_calls: bool = False
    repair: Repair = "safe"
    finish_reasons: bool = True
    usage: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.rescue, tuple):
            from penstock.dialects.registry import find_dialect  # most programs heal nothing, and need no dialect

            for name in self.rescue:
                find_dialect(name)  # raises if there is none

    def with_tools(self, tools: Any) -> Healing:
        """The same, where the tools of a list that are read-only count as such."""
        if self.rescue != READ_ONLY or not isinstance(tools, list | tuple):
            return self
        names = (tool.name for tool in tools if getattr(tool, "read_only", False) is True)
        return replace(self, read_only=(*self.read_only, *names))

    def refused_tools(self, tools: Iterable[ToolDeclaration]) -> frozenset[str]:
        """The tools whose calls are not rescued, because they may have side effects."""
        if self.rescue != READ_ONLY:
            return frozenset()
        return frozenset(tool.name for tool in tools if not self._is_read_only(tool))

    def _is_read_only(self, tool: ToolDeclaration) -> bool:
        match tool.extra.get("annotations"):
            case {"readOnlyHint": True}:
                return True
            case _:
                return any(fnmatchcase(tool.name, pattern) for pattern in self.read_only)

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects to search for calls."""
        if isinstance(self.rescue, tuple):
            return self.rescue
        if not self.rescue:
            return ()
        from penstock.healing.rescued import RESCUED

        return RESCUED
