"""Encodes requests for OpenAI's Responses.

Every request has the whole history, and the provider stores nothing (`store` is false). For that, reasoning comes back
encrypted, and is sent again in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.events import CallKind, Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import PART_FIELDS, File, Image, Message, ToolResult
from penstock.schemas import without_lookaround
from penstock.wires.openai_responses.client_outputs import takes_result, write_output
from penstock.wires.openai_responses.facts import CLIENT_CALLS, FACTS
from penstock.wires.shared.encode_request.body import (
    Json,
    chosen_tool,
    grammar_of,
    merge,
    missing_options,
    pick_fields,
    rename_options,
)
from penstock.wires.shared.encode_request.media import audio_format, file_name, is_uploaded, write_or_note
from penstock.wires.shared.encode_request.message_writing import (
    arguments_text,
    misplaced_part,
    split_system,
    system_text,
)
from penstock.wires.shared.encode_request.output_format import json_schema_format
from penstock.wires.shared.encode_request.reasoning import effort_of, requested_reasoning
from penstock.wires.shared.encode_request.settle import settle
from penstock.wires.shared.encode_request.tool_schema import declared_schema
from penstock.wires.shared.encode_request.vendor_state import (
    message_fields,
    part_fields,
    parts_without_state,
    result_content,
    result_fields,
)
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
PATH = "/responses"
ENCRYPTED = "reasoning.encrypted_content"
CALLER = "caller"
CALLERS = ("direct", "programmatic")
"""Who may call a tool; the names of other providers are left out."""

_PLAIN_MODEL = re.compile(r"(^|[/:])(gpt-3|gpt-4|chatgpt-4)|-chat\b")
"""The models without reasoning: they refuse to include it."""

_OPTIONS = {"max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p"}
_FUNCTION = ("function_call", "arguments")
_CALLS: dict[CallKind, tuple[str, str]] = {"function": _FUNCTION, "custom": ("custom_tool_call", "input")}


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request for Responses; no provider has quirks on this wire."""
    messages = settle(request, FACTS, quirks)
    leading = list(takewhile(lambda message: message.role == "system", messages))
    instructions, _ = split_system(leading)
    items = list(_items(messages[len(leading) :], request.tools, is_stored=bool(request.extra.get("store"))))
    body: Json = {"model": request.model, "input": items, "store": False}
    body |= {"instructions": instructions} if instructions else {}
    body |= {"stream": True} if request.is_streaming else {}
    included = request.extra.get("include") or []
    if not _PLAIN_MODEL.search(request.model) and ENCRYPTED not in included:
        included = [*included, ENCRYPTED]
    if request.tools:
        body |= _tools(request)
    if request.output is not None:
        body["text"] = {"format": {"type": "json_schema", **json_schema_format(request.output, FACTS.output)}}
    written = merge(body | _options(request), request.extra)
    return EncodedRequest(PATH, written | ({"include": included} if included else {}))


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the provider does not have them."""
    return missing_options(request, *_OPTIONS, "reasoning")


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output."""
    return "native"


# Items.


def _items(messages: list[Message], tools: tuple[ToolDeclaration, ...], *, is_stored: bool) -> Iterator[Json]:
    kinds: dict[str, CallKind] = {}
    callers: dict[str, Any] = {}  # programs that made the calls, by call id
    results = {result.call_id: result for message in messages for result in message.results}
    client_items: dict[str, Json] = {}  # items of calls of OpenAI's own tools, by call id
    for message in messages:
        match message.role:
            case "system":
                fields = _without_nulls(message_fields(message))
                yield {**fields, "type": "message", "role": "system", "content": system_text(message)}
            case "user":
                fields = _without_nulls(message_fields(message))
                yield {**fields, "type": "message", "role": "user", "content": _content(message)}
            case "assistant":
                kinds |= {call.id: call.kind for call in message.tool_calls}
                client_items |= _client_items(message, results)
                callers |= _callers(message)
                yield from _assistant(message, client_items, is_stored=is_stored)
            case "tool":
                custom = {tool.name for tool in tools if tool.is_custom}
                yield from (_called(item, callers) for item in _results(message.results, kinds, client_items, custom))


def _callers(message: Message) -> dict[str, Any]:
    """Who made the calls of a message, by call id: a program, or None for the model itself."""
    callers: dict[str, Any] = {}
    for call in message.tool_calls:
        states = [state for state in message.state_of(call.block, WIRE).values() if isinstance(state, dict)]
        callers[call.id] = next((state[CALLER] for state in states if isinstance(state.get(CALLER), dict)), None)
    return callers


def _called(item: Json, callers: Mapping[str, Any]) -> Json:
    """The output of a call with the caller of that call, which OpenAI wants repeated."""
    id = item.get("call_id", "")
    if id not in callers:
        return item  # its call is in a history that the provider keeps
    caller = {CALLER: callers[id]} if callers[id] else {}
    return {key: value for key, value in item.items() if key != CALLER} | caller


def _client_items(message: Message, results: dict[str, ToolResult]) -> dict[str, Json]:
    """The items of the calls of tools that OpenAI defines, by their id, if they can have their results."""
    items: dict[str, Json] = {}
    for call in message.tool_calls:
        state = message.state_of(call.block, WIRE)
        for kind in CLIENT_CALLS:
            if isinstance(state.get(kind), dict) and takes_result(state[kind], results.get(call.id)):
                items[call.id] = {**_without_nulls(state[kind]), "type": kind, CLIENT_CALLS[kind].id: call.id}
    return items


def _content(message: Message) -> str | list[Json]:
    parts = [_part(part) | part_fields(part, message, WIRE) for part in parts_without_state(message)]
    match parts:
        case [{"type": "input_text", "text": str(text), **fields}] if not fields:
            return text
        case _:
            return parts


def _part(part: Text | Image | File) -> Json:
    match part:
        case Text():
            return {"type": "input_text", "text": part.text}
        case Image():
            place = "file_id" if is_uploaded(part) else "image_url"
            return {"type": "input_image", "detail": "auto", place: part.url}
        case File() if audio_format(part):
            raise misplaced_part(part, "user", 'Responses does not accept audio; use wire="openai-chat"')
        case File() if is_uploaded(part):
            return {"type": "input_file", "file_id": part.url}
        case File() if part.is_inline:
            return {"type": "input_file", "filename": file_name(part), "file_data": part.url}
        case File():
            return {"type": "input_file", "file_url": part.url}


def _assistant(message: Message, client_items: Mapping[str, Json], *, is_stored: bool) -> list[Json]:
    """The items of an assistant message. A reasoning item needs one after it, so the last ones are left out."""
    items: list[Json] = []
    calls = {call.block for call in message.tool_calls}
    for part in message.parts:
        if isinstance(part, Opaque) and part.kind in CLIENT_CALLS and part.block in calls:
            continue  # written with its call
        written = client_items.get(part.id) if isinstance(part, ToolCall) else None
        for item in [written] if written else _item(part, message, is_stored=is_stored):
            if items and _is_same_message(items[-1], item):
                items[-1]["content"] += item["content"]
            else:
                items.append(item)
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items


def _is_same_message(before: Json, item: Json) -> bool:
    """Whether both are parts of one message, by its id."""
    return item.get("type") == before.get("type") == "message" and "id" in item and item["id"] == before.get("id")


def _item(part: Any, message: Message, *, is_stored: bool) -> Iterator[Json]:
    match part:
        case Text() | Refusal():
            state = message.state_of(part.block, WIRE)
            item = state.get("message")
            yield _message(part, item if isinstance(item, dict) else None, state.get(PART_FIELDS) or {})
        case ToolCall():
            yield _call(part, message)
        case Opaque(kind="custom_tool_call", data={"input": _}):
            yield part.data  # a call that the provider ran; the state of other calls has no input
        case Opaque(kind="message" | "fields" | "function_call" | "custom_tool_call") | Reasoning():
            pass  # written with the part that it belongs to
        case Opaque() if not isinstance(part.data, dict):
            pass  # tampered with, not an item
        case Opaque(kind="reasoning"):
            if is_stored or part.data.get("encrypted_content") or part.data.get("content"):
                yield _without_nulls(part.data)
        case Opaque():
            yield part.data
        case _:
            raise misplaced_part(part, "assistant", "put it into a user message")


def _message(part: Text | Refusal, state: Any, fields: Json) -> Json:
    written: Json = {"type": "message", "role": "assistant"}
    match part, state:
        case _, None if not fields:
            return written | {"content": part.text}
        case Text(), _:
            content: Json = {"type": "output_text", "text": part.text, "annotations": [], **fields}
        case _:
            content = {"type": "refusal", "refusal": part.text, **fields}
    return written | {"status": "completed", **_without_nulls(state or {}), "content": [content]}


def _call(call: ToolCall, message: Message) -> Json:
    type, field = _CALLS.get(call.kind, _FUNCTION)
    state: Any = message.state_of(call.block, WIRE).get(type)
    fields = _without_nulls(state) if isinstance(state, dict) else {}
    return fields | {"type": type, "call_id": call.id, "name": call.name, field: arguments_text(call)}


def _results(
    results: list[ToolResult], kinds: Mapping[str, CallKind], client_items: Mapping[str, Json], custom: set[str]
) -> Iterator[Json]:
    """The items of results, and a user message with what the items have no place for."""
    rest: list[Json] = []
    for result in results:
        if item := client_items.get(result.call_id):
            written, others = write_output(item, result, _tool)
            yield written
            if others:
                rest += [_part(Text(0, f"From {result.name} ({result.call_id}):"))]
                rest += [write_or_note(_part, part) for part in others]
        else:
            orphan: CallKind = "custom" if result.name in custom else "function"
            yield _result(result, kinds.get(result.call_id, orphan))
    if rest:
        yield {"type": "message", "role": "user", "content": rest}


def _result(result: ToolResult, kind: CallKind) -> Json:
    is_text = len(result.content) < 2 and all(isinstance(part, Text) for part in result.content)
    output = result.text if is_text else [write_or_note(_part, part) for part in result.content]
    written = {"type": f"{_CALLS.get(kind, _FUNCTION)[0]}_output", "call_id": result.call_id}
    return written | _without_nulls(result_fields(result, WIRE)) | {"output": result_content(result, WIRE) or output}


def _without_nulls(item: Json) -> Json:
    """The item without null fields, which Responses sends but refuses."""
    return {key: value for key, value in item.items() if value is not None}


# Tools and options.


def _tools(request: Request) -> Json:
    written: Json = {"tools": [_tool(tool) for tool in request.tools]}
    if request.tool_choice:
        written["tool_choice"] = _choice(request)
    if request.is_parallel is not None:
        written["parallel_tool_calls"] = request.is_parallel
    return written


def _tool(tool: ToolDeclaration) -> Json:
    if tool.hosted is not None:
        return dict(tool.hosted)
    declaration: Json = {"name": tool.name} | ({"description": tool.description} if tool.description else {})
    callers = [name for name in tool.extra.get("allowed_callers") or () if name in CALLERS]
    programmatic = {"allowed_callers": callers} if callers else {}
    if callers and not tool.is_custom:
        programmatic |= pick_fields(tool.extra, ["output_schema"])
    if tool.is_custom:
        grammar = grammar_of(tool)
        format = {"format": {"type": "grammar", **grammar}} if grammar else pick_fields(tool.extra, ["format"])
        return {"type": "custom"} | declaration | format | programmatic
    # Unlike Chat Completions, Responses is strict by default.
    strict, parameters = bool(tool.extra.get("strict")), without_lookaround(declared_schema(tool))
    return {"type": "function"} | declaration | {"parameters": parameters, "strict": strict} | programmatic


def _choice(request: Request) -> str | Json:
    tool = chosen_tool(request)
    if tool is None:
        return request.tool_choice
    if tool.hosted is not None:
        return {"type": tool.hosted.get("type", tool.name), **pick_fields(tool.hosted, ["server_label"])}
    return {"type": "custom" if tool.is_custom else "function", "name": tool.name}


def _options(request: Request) -> Json:
    reasoning = requested_reasoning(request)
    effort = None if reasoning is None else effort_of(reasoning) if reasoning else "none"
    return rename_options(request, _OPTIONS) | ({"reasoning": {"effort": effort}} if effort else {})


def output_fields(output: OutputFormat) -> Json:
    """The fields of a request that ask for an answer in this format."""
    if output.schema is None:
        return {"text": {"format": {"type": "json_object"}}}
    strict = {} if output.is_strict is None else {"strict": output.is_strict}
    described = {"description": output.description} if output.description else {}
    schema = {
        "type": "json_schema", "name": output.name or "answer", **described, "schema": output.schema, **strict,
    }  # fmt: skip
    return {"text": {"format": schema}}
