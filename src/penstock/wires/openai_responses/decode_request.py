"""Reads items of OpenAI's Responses; the items of one turn of the model are joined to one message.

The id, status and phase of an item are kept as vendor state. Items of hosted tools, references to stored items, and
items of unknown types are kept whole, in the order of the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.events import CallKind, Opaque
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, Image, ToolResult
from penstock.wires.openai_responses.client_calls import arguments_of, checks_of, kind_of, runs_here, tool_of
from penstock.wires.openai_responses.client_outputs import read_output
from penstock.wires.openai_responses.facts import CLIENT_CALLS, ECHOED, FACTS, OUTPUT_ITEMS
from penstock.wires.shared.decode_request.fields import (
    WHAT_TO_SEND,
    Json,
    describe_part,
    other_fields,
    read_objects,
    read_parts,
    read_text,
    refuse_unread,
    to_json,
    type_of_url,
    unreadable,
)
from penstock.wires.shared.decode_request.media_fields import FILE_FIELDS, read_file, without_usual_detail
from penstock.wires.shared.decode_request.message_builder import MessageBuilder, build_result
from penstock.wires.shared.decode_request.message_reader import MessageReader, ReadContext
from penstock.wires.shared.decode_request.places import PlacedMessage, place_results
from penstock.wires.shared.decode_request.request_settings import (
    NO_PROBABILITIES,
    Dropped,
    Fields,
    RequestSettings,
    ToolChoice,
    check_tool_choice,
    read_schema_format,
    read_tools,
)
from penstock.wires.shared.decode_request.role_messages import has_call_fields
from penstock.wires.shared.encode_response.response_head import ToolPath

WIRE = FACTS.wire

_CALLS: dict[str, tuple[CallKind, str]] = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}
_PARTS = ("input_text", "output_text", "input_image", "input_file")
_ITEMS = {
    "message", "reasoning", "item_reference", "compaction", "compaction_trigger", "additional_tools",
    "configuration_update", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call", "computer_call",
    "computer_call_output", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response", "tool_search_call", "tool_search_output", "program", "program_output",
}  # fmt: skip


class ResponsesReader(MessageReader):
    """The items of Responses, and its content parts in messages that are not items."""

    wire = WIRE
    history_field = "input"
    system_fields = ("instructions",)

    def is_request(self, body: Json) -> bool:
        return True  # no other wire has its history in this field

    def is_continued(self, body: Json) -> bool:
        return any(body.get(field) for field in FACTS.continued_by)

    def is_own(self, message: Json) -> bool:
        """Whether this is an item: it has a type. Many other things have one; `is_typical` looks at the type."""
        kind = message.get("type")
        return isinstance(kind, str) and ("role" not in message or kind == "message")

    def is_typical(self, message: Json) -> bool:
        content: Any = message.get("content")
        parts: Any = content if isinstance(content, list) else ()
        has_part = any(isinstance(part, Mapping) and self.is_part(part) for part in parts)
        return has_part or (self.is_own(message) and message["type"] in _ITEMS)

    def takes(self, message: Json) -> bool:
        return not has_call_fields(message)

    def is_part(self, part: Json) -> bool:
        return part.get("type") in _PARTS

    def read(self, message: Json, place: str, context: ReadContext, wire: str) -> Iterator[PlacedMessage]:
        kind = message.get("type")
        if isinstance(kind, str) and kind not in _ITEMS:
            context.refuse_known(message, place)
        return _read(message, place, context, is_among_items=wire == WIRE)

    def read_content(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        match part:
            case {"type": "input_text" | "output_text", "text": str(text)}:
                parts.text(text, other_fields(part, ("type", "text")), WIRE)
            case {"type": "input_image", "image_url": str(url)}:
                fields = without_usual_detail(other_fields(part, ("type", "image_url", "file_id")))
                parts.media(Image(url, type_of_url(url, "image/png")), fields, WIRE)
            case {"type": "input_image", "file_id": str(id)}:
                parts.media(Image(id), without_usual_detail(other_fields(part, ("type", "file_id"))), WIRE)
            case {"type": "input_file"}:
                parts.media(read_file(part, place), other_fields(part, FILE_FIELDS), WIRE)
            case _:
                return False
        return True

    def read_answer(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        match part:
            case {"type": "output_text", "text": str(text)}:
                parts.text(text, other_fields(part, ("type", "text", "parsed")), WIRE)
                return True
            case _:
                return False


READER = ResponsesReader()


def _read(item: Json, place: str, context: ReadContext, *, is_among_items: bool) -> Iterator[PlacedMessage]:
    """The message that an item is, or is a part of. Among known items, one of an unknown type is a new kind of item."""
    match item.get("type", "message"):
        case "message":
            yield _message(item, place, context)
        case "function_call_output" | "custom_tool_call_output":
            yield place_results([(place, _result(item, place, context))], place, joins="item")
        case str(kind) if kind in OUTPUT_ITEMS and context.calls.knows(_output_id(item, OUTPUT_ITEMS[kind])):
            yield place_results([(place, _client_result(item, context))], place, joins="item")
        case str(kind) if kind not in _ITEMS and not is_among_items:
            raise unreadable(place, f"has no role, and {kind!r} is not a type of Responses items; {WHAT_TO_SEND}")
        case str(kind):
            parts = MessageBuilder(WIRE, context.calls, place)
            _read_output(parts, kind, item, place)
            yield parts.build("assistant", joins="item")
        case _:
            raise unreadable(place, "needs a 'type' that is a string")


def _read_output(parts: MessageBuilder, kind: str, item: Json, place: str) -> None:
    """Add an output item that is not a message."""
    if kind in _CALLS:
        call, field = _CALLS[kind]
        id, name = read_text(item, "call_id", place), read_text(item, "name", place)
        if item.get(field) in (None, ""):
            refuse_unread(item, ("type", "call_id", "name", field, "parsed_arguments"), place, field)
        block = parts.call(id, name, item.get(field), place, call)
        fields = other_fields(item, ("type", "call_id", "name", field, "parsed_arguments"))
        parts.state(block, kind, fields and {key: item[key] for key in item if key != field})
    elif kind == "reasoning":
        texts = [
            str(part.get("text") or "")
            for field in ("summary", "content")
            for _, part in read_objects(item.get(field) or (), f"{place}.{field}")
        ]
        blocks = [parts.reasoning(text) for text in texts if text] or [parts.reasoning("")]
        parts.state(blocks[-1], kind, item)
    elif kind in CLIENT_CALLS and runs_here(item) is not False:
        id = read_text(item, CLIENT_CALLS[kind].id, place)
        arguments = arguments_of(to_json(item))
        block = parts.call(id, tool_of(item), arguments, place, kind_of(item), checks_of(item))
        parts.state(block, kind, item)
    else:
        parts.opaque(kind, item)


def _message(item: Json, place: str, context: ReadContext) -> PlacedMessage:
    parts = MessageBuilder(WIRE, context.calls, place)
    fields = other_fields(item, ("role", "content", "type"))
    match item.get("role"):
        case "assistant":
            _read_answer(parts, item, fields, place)
            if parts.is_empty:
                refuse_unread(fields, (), place, "content")
            return parts.build("assistant", joins="item")
        case "user" | "system" | "developer" as role:
            for part_place, part in read_parts(item.get("content"), f"{place}.content"):
                parts.place = part_place
                context.read_content(parts, part, part_place)
            if parts.is_empty:
                refuse_unread(fields, (), place, "content")
            if fields:
                parts.place = place
                parts.opaque(MESSAGE_FIELDS, fields)
            return parts.build("user" if role == "user" else "system")
        case role:
            raise unreadable(place, f"has the role {role!r}; expected system, developer, user or assistant")


def _read_answer(parts: MessageBuilder, item: Json, fields: Json, place: str) -> None:
    for part_place, part in read_parts(item.get("content"), f"{place}.content"):
        parts.place = part_place
        match part:
            case {"type": "text" | "output_text", "text": str(text)}:
                block = parts.text(text, other_fields(part, ("type", "text", "parsed")))
            case {"type": "refusal", "refusal": str(text)}:
                block = parts.refusal(text, other_fields(part, ("type", "refusal")))
            case _:
                raise unreadable(part_place, f"{describe_part(part)} is not a known part of an assistant message")
        parts.state(block, MESSAGE_FIELDS, fields and {"type": "message", "role": "assistant", **fields})


def _result(item: Json, place: str, context: ReadContext) -> ToolResult:
    output = item.get("output")
    if output in (None, ""):
        refuse_unread(item, ("type", "call_id", "output"), place, "output")
    content = MessageBuilder(WIRE, context.calls, place)
    for part_place, part in read_parts(output, f"{place}.output"):
        context.read_content(content, part, part_place)
    call_id = read_text(item, "call_id", place)
    fields = other_fields(item, ("type", "call_id", "output"))
    fields |= {"type": item["type"]} if item["type"] != "function_call_output" else {}
    return build_result(call_id, content, context.calls, fields=fields, content=output)


def _output_id(item: Json, kind: str) -> str:
    """The id of the call that an item with a result answers; local shells have it in either field."""
    id: Any = item.get(CLIENT_CALLS[kind].output_id) or item.get("id")
    return id if isinstance(id, str) else ""


def _client_result(item: Json, context: ReadContext) -> ToolResult:
    kind = OUTPUT_ITEMS[item["type"]]
    content, is_error, fields = read_output(kind, item)
    state = (Opaque(0, WIRE, PART_FIELDS, to_json(fields)),) if fields else ()
    id = _output_id(item, kind)
    return ToolResult(id, context.calls.answer(id), tuple(content), is_error, state)


# Settings.

_OPTIONS = {"max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p"}
PROBABILITIES = "message.output_text.logprobs"
SEPARATOR = "__"
"""Stands between a namespace and the name of a tool in its flat name."""


def flat_name(namespace: str, name: str) -> str:
    """The name of a tool in a namespace, for protocols without namespaces."""
    return f"{namespace}{SEPARATOR}{name}"


def read_settings(body: Mapping[str, Any], model: str = "", is_streaming: bool | None = None) -> RequestSettings:
    """The settings of a request body."""
    fields = Fields(body)
    for name in ("input", "instructions"):
        fields.rest.pop(name, None)
    named, is_stream = model or fields.required_text("model", "the name of a model"), bool(fields.flag("stream"))
    fields.rest.pop("model", None)
    placed, namespaces = _flattened(fields.objects("tools"))
    tools = read_tools(placed)
    choice = _tool_choice(fields)
    reasoning = fields.inner("reasoning")
    effort = reasoning.effort("effort")
    fields.put_back("reasoning", reasoning)
    text = fields.inner("text")
    format = text.rest.pop("format", None)
    fields.put_back("text", text)
    return RequestSettings(
        model=named,
        tools=tools,
        tool_choice=check_tool_choice(choice.choice, tools, "tool_choice"),
        is_parallel=fields.flag("parallel_tool_calls"),
        is_streaming=is_stream if is_streaming is None else is_streaming,
        options=fields.options(_OPTIONS) | ({"reasoning": effort} if effort else {}),
        output=None if format is None else read_schema_format(format, "text.format"),
        namespaces=namespaces,
        previous_response=fields.text("previous_response_id"),
        is_kept=body.get("store") is not False,
        has_instructions=bool(body.get("instructions")),
        echo={key: body[key] for key in ECHOED if body.get(key) is not None},
        allowed_tools=choice.allowed,
        dropped=_without_probabilities(fields),
        exact={"tool_choice": choice.exact} if choice.exact else {},
        extra=fields.rest,
        partial=frozenset(fields.partial),
    )


def _without_probabilities(fields: Fields) -> tuple[Dropped, ...]:
    """Removes what asks for the probabilities of tokens."""
    dropped = fields.leave_out("top_logprobs", why=NO_PROBABILITIES)
    included: list[Any] = fields.take("include", list, "a list") or []
    if PROBABILITIES in included:
        dropped += (Dropped("include", NO_PROBABILITIES),)
    if kept := [name for name in included if name != PROBABILITIES]:
        fields.rest["include"] = kept
    return dropped


def _flattened(
    placed: list[tuple[str, dict[str, Any]]],
) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, ToolPath]]:
    """The tools, with flat names for tools in namespaces, and the paths of these."""
    tools: list[tuple[str, dict[str, Any]]] = []
    paths: dict[str, ToolPath] = {}
    for place, tool in placed:
        if tool.get("type") != "namespace":
            tools.append((place, tool))
            continue
        fields = Fields(tool, place)
        namespace = fields.required_text("name", "the name of the namespace")
        for tool_place, inner in fields.objects("tools"):
            name = Fields(inner, tool_place).required_text("name", "the name of the tool")
            paths[flat_name(namespace, name)] = ToolPath(namespace, name)
            tools.append((tool_place, {**inner, "name": flat_name(namespace, name)}))
    return tools, paths


def _tool_choice(fields: Fields) -> ToolChoice:
    match fields.rest.pop("tool_choice", None):
        case None:
            return ToolChoice()
        case str(choice):
            return ToolChoice(choice)
        case {"type": "allowed_tools", "mode": str(mode), "tools": [*tools]}:
            named = [(_chosen_name(tool), tool) for tool in tools]
            flat = [{**_without_namespace(tool), "name": name} if "name" in tool else tool for name, tool in named]
            exact = {"type": "allowed_tools", "mode": mode, "tools": flat}
            return ToolChoice(mode, tuple(name for name, _ in named), {"tool_choice": exact})
        case tool:
            return ToolChoice(_chosen_name(tool))


def _chosen_name(tool: Any) -> str:
    """The name under which a tool is declared."""
    match tool:
        case {"server_label": str(label)}:
            return label
        case {"namespace": str(namespace), "name": str(name)}:
            return flat_name(namespace, name)
        case {"name": str(name)} | {"function": {"name": str(name)}}:
            return name
        case {"type": str(kind)}:
            return kind  # a hosted tool, which has the name of its type
        case _:
            raise unreadable("tool_choice", 'send auto, none, required, or {"type": "function", "name": …}')


def _without_namespace(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tool.items() if key != "namespace"}
