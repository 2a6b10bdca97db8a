"""Requests that a server receives: read in the protocol of the client, and converted for any provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.errors import UsageError
from penstock.events import Opaque, Text, ToolCall
from penstock.history.read import read_request
from penstock.messages import Message
from penstock.wires import find_facts, find_output_fields, find_settings_reader, wire_name
from penstock.wires.shared.decode_request.request_settings import Dropped, RequestSettings, check_depth
from penstock.wires.shared.encode_request.body import merge
from penstock.wires.shared.encode_request.deferred_tools import LoadedTools, is_searched_by_provider, load_tools
from penstock.wires.shared.encode_request.foreign_blocks import own_parts
from penstock.wires.shared.encode_request.openapi_schemas import json_schema
from penstock.wires.shared.encode_request.states import item_id_of
from penstock.wires.shared.encode_request.tool_schema import for_grammar
from penstock.wires.shared.encode_response.response_head import ResponseHead, ToolPath
from penstock.wires.shared.request import Request

ONLY_HERE = "only the protocol of the request has this field"
KEPT_ELSEWHERE = "it refers to something that another provider keeps; send the content itself"
MAX_NAMED = 5
"""How many tools that are left out are named."""
_NO_TOOLS: frozenset[str] = frozenset()


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A request in the protocol of its client: its messages, and what it asks for."""

    wire: str
    messages: tuple[Message, ...]
    settings: RequestSettings

    def foreign_tools(self, wire: str, *, has_hosted: bool = True) -> tuple[ToolDeclaration, ...]:
        """The hosted tools that a server on this wire does not have."""
        is_known = has_hosted and wire_name(wire) == self.wire
        return () if is_known else tuple(tool for tool in self.settings.tools if tool.hosted is not None)

    def request_for(
        self, wire: str, *, has_hosted: bool = True, has_exact: bool = True, is_grammar: bool = False
    ) -> tuple[Request, tuple[Dropped, ...]]:
        """The request for a provider on this wire, and the dropped parts with the reasons.

        Protocol-specific fields and hosted tools are forwarded only to an upstream on the same wire. Hosted tools also
        need `has_hosted`, and settings in a form that only the vendor's own provider knows need `has_exact`. If schemas
        become a grammar (`is_grammar`), the output format has what a grammar can express.
        """
        settings, is_same = self.settings, wire_name(wire) == self.wire
        if not is_same:
            self._refuse_kept_elsewhere()
        hosted = self.foreign_tools(wire, has_hosted=has_hosted)
        headers = "" if is_same and has_hosted else find_facts(self.wire).system_headers
        messages = tuple(_without_headers(one, headers) for one in self.messages) if headers else self.messages
        exact = settings.exact if is_same and has_exact else {}
        tools = settings.tools if "tool_choice" in exact else tuple(self._callable_tools(hosted))
        loaded = LoadedTools(tools, messages) if is_same and has_hosted else self._loaded(tools, messages)
        names = {tool.name for tool in hosted}
        request = Request(
            model=settings.model,
            messages=loaded.messages,
            tools=loaded.tools if is_same else tuple(map(_portable, loaded.tools)),
            tool_choice="" if settings.tool_choice in names or "tool_choice" in exact else settings.tool_choice,
            is_parallel=settings.is_parallel,
            options={name: value for name, value in settings.options.items() if name not in exact},
            extra=self._extra_for(wire, exact, is_grammar=is_grammar),
            is_streaming=settings.is_streaming,
        )
        dropped = [*settings.dropped, *self._dropped_for(wire, hosted, loaded.messages)]
        if loaded.left_out:
            dropped.append(Dropped("tools", f"{_listed(loaded.left_out)}: deferred, and not loaded yet"))
        if messages != self.messages:
            dropped.append(Dropped("system", f"lines that begin with {headers} are for the provider of the request"))
        return request, tuple(dropped)

    def _loaded(self, tools: tuple[ToolDeclaration, ...], messages: tuple[Message, ...]) -> LoadedTools:
        """The tools that are not deferred or have been loaded, for a server that does not know deferred tools."""
        deferral = find_facts(self.wire).deferral
        if deferral is None:
            return LoadedTools(tools, messages)
        loads_all = is_searched_by_provider(self.settings.tools, deferral)
        return load_tools(tools, messages, deferral, self.settings.tool_choice, loads_all=loads_all)

    def _extra_for(
        self, wire: str, exact: Mapping[str, Mapping[str, Any]], *, is_grammar: bool = False
    ) -> dict[str, Any]:
        """The fields that only this wire has."""
        extra: dict[str, Any] = dict(self.settings.extra) if wire_name(wire) == self.wire else {}
        for fields in exact.values():
            extra = merge(extra, fields)
        return extra if "output" in exact else merge(extra, self._output_for(wire, is_grammar=is_grammar))

    def _output_for(self, wire: str, *, is_grammar: bool = False) -> dict[str, Any]:
        """The fields for the output format; empty if there is no format, or this wire has no field for it."""
        output = self.settings.output
        if output is not None and output.schema is not None and wire_name(wire) != self.wire:
            output = replace(output, schema=json_schema(output.schema))
        if is_grammar and output is not None and output.schema is not None:
            output = replace(output, schema=for_grammar(dict(output.schema)))
        return {} if output is None else find_output_fields(wire_name(wire))(output)

    def _dropped_for(
        self, wire: str, hosted: tuple[ToolDeclaration, ...], messages: tuple[Message, ...]
    ) -> Iterator[Dropped]:
        """The settings that this wire cannot express."""
        if wire_name(wire) != self.wire:
            yield from (Dropped(name, ONLY_HERE) for name in self.settings.own_fields)
            if names := own_parts(messages, self.wire):
                yield Dropped("messages", f"only the protocol of the request has {', '.join(names)}")
        if self.settings.output is not None and not self._output_for(wire):
            yield Dropped("the output format", "the provider cannot be asked for it")
        for tool in hosted:
            yield Dropped("tools", f"{hosted_name(tool)} runs at its provider; there is no such tool here")

    def _callable_tools(self, hosted: tuple[ToolDeclaration, ...]) -> Iterator[ToolDeclaration]:
        """The allowed tools, for servers without an `allowed_tools` setting."""
        allowed = self.settings.allowed_tools
        for tool in self.settings.tools:
            if tool not in hosted and (not allowed or tool.name in allowed):
                yield tool

    def _refuse_kept_elsewhere(self) -> None:
        """Raises if a part of the prompt is stored at the provider of the client's protocol: it would be missing."""
        facts = find_facts(self.wire)
        for name in facts.kept_fields:
            if name in self.settings.extra:
                raise UsageError(f"{name}: {KEPT_ELSEWHERE}")
        for message in self.messages:
            for part in message.parts:
                if isinstance(part, Opaque) and facts.reference and part.kind == facts.reference:
                    raise UsageError(f"{part.kind} {item_id_of(part, facts)!r}: {KEPT_ELSEWHERE}")

    def head(self, id: str, created: int, *, has_custom_tools: bool) -> ResponseHead:
        """The head of the response; `has_custom_tools` if the provider takes custom tools as such."""
        tools = self.settings.tools
        custom = frozenset(tool.name for tool in tools if tool.is_custom) if tools else _NO_TOOLS
        return ResponseHead(
            id=id,
            model=self.settings.model,
            created=created,
            has_usage=self.settings.has_usage,
            custom_tools=custom if has_custom_tools else _NO_TOOLS,
            unwrapped_tools=_NO_TOOLS if has_custom_tools else custom,
            namespaces=self.settings.namespaces,
            echo=self.settings.echo,
            has_old_calls=self.settings.has_old_calls,
        )


def decode_request(
    body: bytes | Mapping[str, Any],
    wire: str,
    model: str = "",
    is_streaming: bool | None = None,
    *,
    is_clean: bool = False,
) -> ClientRequest:
    """Reads the body of a request in the protocol of a wire.

    Raises a `UsageError` that says where the body is wrong and what to send. `model` and `is_streaming` are for
    protocols that have them in the path. A body that `is_clean` was decoded from strict JSON of at most `MAX_DEPTH`
    levels, and does not change: it is neither checked nor copied.
    """
    wire = wire_name(wire)
    fields = _parse(body, is_clean=is_clean)
    settings = find_settings_reader(wire)(fields, model, is_streaming)
    messages = read_request(fields, wire, is_clean=is_clean).messages
    if settings.namespaces:
        messages = [_with_flat_names(message, settings.namespaces) for message in messages]
    return ClientRequest(wire=wire, messages=tuple(messages), settings=settings)


def hosted_name(tool: ToolDeclaration) -> str:
    """The name of a hosted tool; some are declared only by a field of their own."""
    return tool.name or next(iter(tool.hosted or ()), "a tool")


def _listed(names: tuple[str, ...]) -> str:
    """The first names of a list, and how many there are besides."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _without_headers(message: Message, start: str) -> Message:
    """The message without leading lines that begin so: they change with every request."""
    if message.role != "system" or not any(
        isinstance(part, Text) and part.text.startswith(start) for part in message.parts
    ):
        return message
    parts = [_without_first_lines(part, start) if isinstance(part, Text) else part for part in message.parts]
    return replace(message, parts=tuple(part for part in parts if not isinstance(part, Text) or part.text))


def _without_first_lines(part: Text, start: str) -> Text:
    text = part.text
    while text.startswith(start):
        text = text.partition("\n")[2]
    return part if text == part.text else replace(part, text=text)


def _portable(tool: ToolDeclaration) -> ToolDeclaration:
    """The tool with a schema that every provider understands."""
    schema = json_schema(tool.parameters)
    return tool if schema is tool.parameters else replace(tool, parameters=schema)


def _parse(body: bytes | Mapping[str, Any], *, is_clean: bool) -> Mapping[str, Any]:
    value: Any = body
    if isinstance(body, bytes):
        try:
            value = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UsageError(f"the body is not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise UsageError("the body must be a JSON object")
    if not is_clean:
        check_depth(value)
    return value


def _with_flat_names(message: Message, namespaces: Mapping[str, ToolPath]) -> Message:
    """The message with flat names for calls in a namespace, as their tools are declared."""
    flat = {path: name for name, path in namespaces.items()}
    spaces = {
        part.block: part.data["namespace"]
        for part in message.parts
        if isinstance(part, Opaque) and isinstance(part.data, dict) and isinstance(part.data.get("namespace"), str)
    }
    if not spaces:
        return message
    parts = [
        replace(part, name=flat.get(ToolPath(spaces[part.block], part.name), part.name))
        if isinstance(part, ToolCall) and part.block in spaces
        else part
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))
