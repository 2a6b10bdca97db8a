"""Encodes requests for Google's Interactions.

Every request has the whole history as steps, and the provider stores nothing (`store` is false): so thoughts go back
with their signatures, before the calls that they belong to. Thoughts without a signature are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.errors import UsageError
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, File, Image, Message, ToolResult
from penstock.wires.gemini_interactions.facts import ANNOTATIONS, CONTINUATION, FACTS, MEDIA, SIGNATURE
from penstock.wires.shared.encode_request.body import (
    Json,
    chosen_tool,
    function_description,
    merge,
    missing_options,
    missing_switch,
    rename_options,
)
from penstock.wires.shared.encode_request.media import media_type, write_or_note
from penstock.wires.shared.encode_request.message_writing import misplaced_part, split_system
from penstock.wires.shared.encode_request.openapi_schemas import json_schema
from penstock.wires.shared.encode_request.output_format import enforced_schema, is_enforceable
from penstock.wires.shared.encode_request.reasoning import effort_of, requested_reasoning
from penstock.wires.shared.encode_request.settle import settle
from penstock.wires.shared.encode_request.tool_schema import declared_schema
from penstock.wires.shared.encode_request.vendor_state import (
    part_fields,
    parts_without_state,
    result_content,
    result_fields,
)
from penstock.wires.shared.google import model_version
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
PATH = "/interactions"
JSON = "application/json"

_OPTIONS = {
    "max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p", "stop": "stop_sequences",
    "seed": "seed",
}  # fmt: skip
_MODES = {"auto": "auto", "none": "none", "required": "any"}
_LEVELS = {"max": "xhigh"}
"""The levels of thinking that are called otherwise than our efforts."""


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request for an interaction; no provider has quirks on this wire."""
    system, messages = split_system(settle(request, FACTS, quirks))
    body: Json = {"model": request.model}
    if token := _continuation(messages):
        body[CONTINUATION] = token
        messages = messages[:-1]
    body |= {"input": [step for message in messages for step in _steps(message)], "store": False}
    body |= {"system_instruction": system} if system else {}
    body |= {"stream": True} if request.is_streaming else {}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.output is not None:
        body["response_format"] = _format(enforced_schema(request.output, FACTS.output))
    config = rename_options(request, _OPTIONS) | _thinking(request) | _choice(request)
    body |= {"generation_config": config} if config else {}
    return EncodedRequest(PATH, merge(body, request.extra))


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output: a format together with tools is refused before Gemini 3."""
    takes_format = not request.tools or model_version(request.model) >= 3
    return "native" if takes_format and is_enforceable(request.output, FACTS.output) else "tool"


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the provider does not have them."""
    return [*missing_options(request, *_OPTIONS, "reasoning"), *missing_switch(request)]


def output_fields(output: OutputFormat) -> Json:
    """The fields of a request that ask for an answer in this format."""
    return {"response_format": _format(None if output.schema is None else json_schema(output.schema))}


def _format(schema: Any) -> Json:
    return {"type": "text", "mime_type": JSON, **({} if schema is None else {"schema": dict(schema)})}


def _continuation(messages: list[Message]) -> Any:
    """The token of a response that is to be continued; it is sent instead of that response."""
    parts = messages[-1].parts if messages and messages[-1].role == "assistant" else ()
    tokens = [part.data for part in parts if isinstance(part, Opaque) and part.kind == CONTINUATION]
    return tokens[-1] if tokens else None


# Steps.


def _steps(message: Message) -> Iterator[Json]:
    match message.role:
        case "assistant":
            blocks = {part.block for part in message.parts if isinstance(part, Text | Refusal | Reasoning | ToolCall)}
            for part in message.parts:
                yield from _model_steps(part, message, blocks)
        case "tool":
            yield from map(_result, message.results)
        case _:
            parts = [merge(_content(part), part_fields(part, message, WIRE)) for part in parts_without_state(message)]
            yield {"type": "user_input", "content": parts}


def _model_steps(part: Any, message: Message, blocks: set[int]) -> Iterator[Json]:
    """The steps that a part becomes; `blocks` have a part that can hold state."""
    state = {} if isinstance(part, Image | File) else message.state_of(part.block, WIRE)
    signed = {SIGNATURE: state[SIGNATURE]} if SIGNATURE in state else {}
    match part:
        case Text() | Refusal():
            noted = {ANNOTATIONS: state[ANNOTATIONS]} if ANNOTATIONS in state else {}
            text = {"type": "text", "text": part.text, **noted, **part_fields(part, message, WIRE)}
            yield {"type": "model_output", "content": [text]}
        case Reasoning() if signed:
            yield {"type": "thought", **signed, "summary": [{"type": "text", "text": part.text}]}
        case ToolCall():
            call = {"type": "function_call", "id": part.id, "name": part.name, "arguments": part.arguments, **signed}
            yield call | part_fields(part, message, WIRE)
        case Opaque(kind="signature"):
            yield from [] if part.block in blocks else [{"type": "thought", **signed}]
        case Opaque(kind=kind) if kind in (ANNOTATIONS, CONTINUATION, PART_FIELDS, MESSAGE_FIELDS):
            pass
        case Opaque(data=dict()) if part.kind in MEDIA:
            yield {"type": "model_output", "content": [part.data]}
        case Opaque(data=dict()):
            yield part.data
        case Opaque() | Reasoning():
            pass
        case _:
            yield {"type": "model_output", "content": [_content(part)]}


def _content(part: Any) -> Json:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image() | File():
            return _media(part)
        case _:
            raise misplaced_part(part, "user", "put it into an assistant message")


def _media(media: Image | File) -> Json:
    kind = media_type(media)
    family = kind.partition("/")[0]
    written: Json = {"type": family if family in MEDIA else "image" if isinstance(media, Image) else "document"}
    written |= {"mime_type": kind} if kind else {}
    if media.is_inline:
        return written | {"data": media.base64}
    if "://" not in media.url:
        raise UsageError(f"{media!r} is not a URL; pass the bytes of the file, or the URI that Google gave it")
    return written | {"uri": media.url}


def _result(result: ToolResult) -> Json:
    is_text = len(result.content) < 2 and all(isinstance(part, Text) for part in result.content)
    content = result.text if is_text else [write_or_note(_content, part) for part in result.content]
    kept = result_content(result, WIRE)
    written: Json = {"type": "function_result", "call_id": result.call_id, "name": result.name}
    written |= {"result": content if kept is None else kept} | ({"is_error": True} if result.is_error else {})
    return written | result_fields(result, WIRE)


# Tools and settings.


def _tool(tool: ToolDeclaration) -> Json:
    if tool.hosted is not None:
        return dict(tool.hosted)
    function: Json = {"type": "function", "name": tool.name, **function_description(tool)}
    return function | ({"parameters": declared_schema(tool)} if tool.parameters or tool.is_custom else {})


def _choice(request: Request) -> Json:
    chosen = chosen_tool(request)
    if chosen is not None:
        return {"tool_choice": {"allowed_tools": {"mode": "any", "tools": [chosen.name]}}}
    return {"tool_choice": _MODES[request.tool_choice]} if request.tool_choice and request.tools else {}


def _thinking(request: Request) -> Json:
    """The level of thinking, which cannot be switched off, and summaries of it."""
    reasoning = requested_reasoning(request)
    if reasoning is None:
        return {}
    effort = effort_of(reasoning)
    level = "low" if effort == "minimal" and "pro" in request.model else _LEVELS.get(effort, effort)
    return {"thinking_level": level} | ({"thinking_summaries": "auto"} if reasoning else {})
