"""Deferred tools for providers that do not know them: left out until the history loads them.

A client marks deferred tools with a flag. Its provider keeps them out of the prompt until the result of a search refers
to one by its name, or a system message adds one. For other providers the request is rewritten:

| in the request | for another provider |
|---|---|
| a deferred tool that nothing has loaded | left out |
| a loaded tool | after all others, in the order of loading, so that the list only grows at its end |
| a reference in a result | text with the declaration of the tool |
| a change of the tools in a system message | the tool is declared or left out, and a sentence says so |

A tool that was called, or that the tool choice names, counts as loaded. If the provider was to run the search, nobody
can: then all deferred tools are declared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.errors import UsageError
from penstock.events import Opaque, Text, ToolCall
from penstock.messages import RESULT_CONTENT, Message, Part, ToolResult
from penstock.wires.shared.facts import Deferral

DECLARED = "<functions>\n{}\n</functions>"
"""The form of declarations in a result, as the search tools of clients describe it to the model."""
FUNCTION = "<function>{}</function>"
UNKNOWN = "The tool {} is not declared."
ADDED = "The tool {} is now available."
REMOVED = "The tool {} is no longer available."

Declared = Mapping[str, ToolDeclaration]


class LoadedTools(Struct, frozen=True):
    """The tools and messages of a request without deferral, and the names of the deferred tools that are left out."""

    tools: tuple[ToolDeclaration, ...]
    messages: tuple[Message, ...]
    left_out: tuple[str, ...] = ()


def load_tools(
    tools: tuple[ToolDeclaration, ...],
    messages: tuple[Message, ...],
    deferral: Deferral,
    tool_choice: str = "",
    *,
    loads_all: bool = False,
) -> LoadedTools:
    """The loaded tools, and the messages with text in place of references and changes."""
    changes = ToolChanges(deferral)
    for message in messages:
        changes.add(message)
    deferred = {tool.name for tool in tools if tool.extra.get(deferral.flag) is True}
    declared = {tool.name: tool for tool in tools} | changes.defined
    written = tuple(_written(message, deferral, declared) for message in messages) if changes.has_any else messages
    early = [tool.name for tool in tools if loads_all or tool.name not in deferred]
    late = [name for name in (*changes.loaded, tool_choice) if name in deferred or name in changes.defined]
    kept = [name for name in dict.fromkeys([*early, *late]) if name not in changes.removed]
    left_out = tuple(tool.name for tool in tools if tool.name in deferred and tool.name not in kept)
    return LoadedTools(tuple(_loaded(declared[name], deferral) for name in kept), written, left_out)


class ToolChanges:
    """The tools that a history loads, defines and removes, in its order."""

    def __init__(self, deferral: Deferral) -> None:
        self._deferral = deferral
        self.loaded: dict[str, None] = {}
        self.removed: set[str] = set()
        self.defined: dict[str, ToolDeclaration] = {}
        self.has_any = False  # whether there are references or changes

    def add(self, message: Message) -> None:
        """Read the next message."""
        for part in message.parts:
            match part:
                case ToolCall():
                    self.loaded.setdefault(part.name)
                case ToolResult() | Opaque():
                    self._add(part)
                case _:
                    pass

    def _add(self, part: ToolResult | Opaque) -> None:
        for name in referred_tools(part, self._deferral):
            self.has_any = True
            self.loaded.setdefault(name)
        if isinstance(part, Opaque) and (name := changed_tool(part, self._deferral)):
            self.has_any = True
            self._change(name, part)

    def _change(self, name: str, part: Opaque) -> None:
        if part.kind == self._deferral.removal:
            self.removed.add(name)
            self.loaded.pop(name, None)
            return
        self.removed.discard(name)
        self.loaded.setdefault(name)
        if (tool := _definition(part.data)) is not None:
            self.defined[name] = tool


def referred_tools(part: ToolResult | Opaque, deferral: Deferral) -> list[str]:
    """The names of the tools that a result, or a block of the provider's own search, refers to."""
    states = [part] if isinstance(part, Opaque) else [state for state in part.state if state.kind == RESULT_CONTENT]
    return [name for state in states for name in _names(state.data, deferral)]


def _names(value: Any, deferral: Deferral) -> Iterator[str]:
    match value:
        case {"type": deferral.reference}:
            yield from [value[deferral.name]] if isinstance(value.get(deferral.name), str) else []
        case {"type": str(kind), "content": content} if kind.endswith(deferral.results):
            yield from _names(content, deferral)
        case {deferral.references: list(references)}:
            yield from _names(references, deferral)
        case [*items]:
            for item in items:
                yield from _names(item, deferral)
        case _:
            pass


def changed_tool(part: Opaque, deferral: Deferral) -> str:
    """The name of the tool that a block of a system message adds or removes; empty if it does not name one."""
    if part.kind not in (deferral.addition, deferral.removal):
        return ""
    match part.data:
        case {"tool": {"definition": {"name": str(name)}}} | {"tool": {"type": deferral.reference, "name": str(name)}}:
            return name
        case _:
            return ""


def _definition(data: Any) -> ToolDeclaration | None:
    match data:
        case {"tool": {"definition": Mapping() as definition}}:
            try:
                return read_declarations([definition])[0]
            except UsageError:
                return None
        case _:
            return None


def is_searched_by_provider(tools: Iterable[ToolDeclaration], deferral: Deferral) -> bool:
    """Whether a hosted tool searches among the deferred ones."""
    return any(tool.hosted is not None and tool.name in deferral.searches for tool in tools)


def _loaded(tool: ToolDeclaration, deferral: Deferral) -> ToolDeclaration:
    """The tool without its flag."""
    if deferral.flag not in tool.extra:
        return tool
    return replace(tool, extra={name: value for name, value in tool.extra.items() if name != deferral.flag})


# Messages.


def _written(message: Message, deferral: Deferral, declared: Declared) -> Message:
    parts = tuple(_written_part(part, deferral, declared) for part in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _written_part(part: Part, deferral: Deferral, declared: Declared) -> Part:
    match part:
        case ToolResult() if names := referred_tools(part, deferral):
            state = tuple(one for one in part.state if one.kind != RESULT_CONTENT)
            return replace(part, content=(*part.content, Text(0, _declarations(names, declared))), state=state)
        case Opaque() if name := changed_tool(part, deferral):
            return Text(part.block, (REMOVED if part.kind == deferral.removal else ADDED).format(name))
        case _:
            return part


def _declarations(names: Iterable[str], declared: Declared) -> str:
    """The declarations of tools as text, and a sentence for each that there is not."""
    known = [FUNCTION.format(_declaration(declared[name])) for name in names if name in declared]
    texts = [DECLARED.format("\n".join(known))] if known else []
    return "\n".join([*texts, *(UNKNOWN.format(name) for name in names if name not in declared)])


def _declaration(tool: ToolDeclaration) -> str:
    fields = {"description": tool.description, "name": tool.name, "parameters": tool.parameters}
    return json.dumps(fields, ensure_ascii=False)
