"""Encodes requests for Cohere's chat, version 2.

A message with calls has no text: the text before the calls is its `tool_plan`. The only tool choices are "a tool must
be used" and "none", so a required tool is the only one that is declared. Parallel calls cannot be switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import WHOLE_BLOCK, File, Image, Message, ToolResult
from penstock.wires.cohere.facts import FACTS
from penstock.wires.shared.encode_request.body import (
    Json,
    chosen_tool,
    merge,
    missing_options,
    missing_switch,
    rename_options,
)
from penstock.wires.shared.encode_request.media import media_note
from penstock.wires.shared.encode_request.message_writing import arguments_text, misplaced_part, system_text
from penstock.wires.shared.encode_request.output_format import enforced_schema, is_enforceable
from penstock.wires.shared.encode_request.reasoning import budget_of, requested_reasoning
from penstock.wires.shared.encode_request.settle import settle
from penstock.wires.shared.encode_request.tool_schema import function_tool
from penstock.wires.shared.encode_request.vendor_state import message_fields, part_fields, result_content, result_fields
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
PATH = "/v2/chat"

_OPTIONS = {
    "max_tokens": "max_tokens", "temperature": "temperature", "top_p": "p", "top_k": "k", "stop": "stop_sequences",
    "seed": "seed", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}  # fmt: skip
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 0, "xhigh": 0, "max": 0}  # 0 is no limit
_CHOICES = {"required": "REQUIRED", "none": "NONE"}


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request for /v2/chat."""
    takes_thinking = _takes_thinking(request)
    history = settle(request, FACTS, quirks)
    messages = [written for message in history for written in _message(message, takes_thinking)]
    body: Json = {"model": request.model, "messages": messages, "stream": request.is_streaming}
    body |= _tools(request)
    if request.output is not None:
        schema = enforced_schema(request.output, FACTS.output)
        body["response_format"] = {"type": "json_object", "json_schema": schema}
    return EncodedRequest(
        PATH, merge({**body, **rename_options(request, _OPTIONS), **_thinking(request)}, request.extra)
    )


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output: a format together with tools is refused."""
    return "native" if is_enforceable(request.output, FACTS.output) and not request.tools else "tool"


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the provider does not have them."""
    return [*missing_options(request, *_OPTIONS, "reasoning"), *missing_switch(request)]


def _takes_thinking(request: Request) -> bool:
    """Whether earlier thinking is accepted: only by a model that reasons, while it is switched on."""
    reasoning = requested_reasoning(request)
    return bool(reasoning) or (reasoning is None and "reasoning" in request.model)


def _thinking(request: Request) -> Json:
    reasoning = requested_reasoning(request)
    if reasoning is None:
        return {}
    if not reasoning:
        return {"thinking": {"type": "disabled"}}
    budget = budget_of(reasoning, _BUDGETS)
    return {"thinking": {"type": "enabled", **({"token_budget": budget} if budget else {})}}


# Messages.


def _message(message: Message, takes_thinking: bool) -> Iterator[Json]:
    match message.role:
        case "assistant":
            written = _assistant(message, takes_thinking)
            if len(written) > 1:
                yield message_fields(message) | written
        case "tool":
            yield from _results(message.results)
        case "system":
            yield message_fields(message) | {"role": "system", "content": system_text(message)}
        case role:
            yield message_fields(message) | {"role": role, "content": _content(message)}


def _content(message: Message) -> str | list[Json]:
    parts = [_write(part, message) for part in message.parts if not isinstance(part, Opaque) or _is_block(part)]
    match parts:
        case [{"type": "text", "text": str(text), **fields}] if not fields:
            return text
        case _:
            return parts


def _is_block(state: Opaque) -> bool:
    return state.kind == WHOLE_BLOCK and isinstance(state.data, dict)


def _write(part: Any, message: Message) -> Json:
    return dict(part.data) if isinstance(part, Opaque) else merge(_write_part(part), part_fields(part, message, WIRE))


def _write_part(part: Any) -> Json:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image_url", "image_url": {"url": part.url}}
        case _:
            raise misplaced_part(part, "user", "Cohere accepts only text and images, so send the text of a file")


def _assistant(message: Message, takes_thinking: bool) -> Json:
    texts = [part for part in message.parts if isinstance(part, Text | Refusal)]
    thinking = [part.text for part in message.parts if isinstance(part, Reasoning) and takes_thinking]
    states = [part for part in message.parts if isinstance(part, Opaque) and part.kind == "tool_plan"]
    plans = [state.data for state in states if isinstance(state.data, str)]
    calls = [merge(_call(call), part_fields(call, message, WIRE)) for call in message.tool_calls]
    for part in message.parts:
        if isinstance(part, Image | File):
            raise misplaced_part(part, "assistant", "put it into a user message")
    content: list[Json] = [{"type": "thinking", "thinking": text} for text in thinking]
    if not calls:
        content += [{"type": "text", "text": part.text, **part_fields(part, message, WIRE)} for part in texts]
    plan = "".join(plans) or ("".join(part.text for part in texts) if calls else "")  # QUIRKS 159
    written: Json = {"role": "assistant", "content": content, "tool_plan": plan, "tool_calls": calls}
    return {key: value for key, value in written.items() if value}


def _call(call: ToolCall) -> Json:
    """A call; free text becomes the argument `input`."""
    arguments = msgspec.json.encode(call.arguments).decode() if call.kind == "custom" else arguments_text(call)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _results(results: list[ToolResult]) -> Iterator[Json]:
    """One message per result, and a user message with the images, which results cannot hold."""
    images: list[Json] = []
    for result in results:
        content = result_content(result, WIRE) or _result(result)
        yield result_fields(result, WIRE) | {"role": "tool", "tool_call_id": result.call_id, "content": content}
        own_images = [_write_part(part) for part in result.content if isinstance(part, Image)]
        images += [_write_part(Text(0, f"From {result.name} ({result.call_id}):")), *own_images] if own_images else []
    if images:
        yield {"role": "user", "content": images}


def _result(result: ToolResult) -> str | list[Json]:
    """The text of a result; several texts become documents that can be cited."""
    parts = [media_note(part) if isinstance(part, File) else part for part in result.content]
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) > 1:
        return [{"type": "document", "document": {"data": {"text": text}}} for text in texts]
    return "".join(texts) or ("The result is in the next message." if parts else "")


# Tools.


def _tools(request: Request) -> Json:
    chosen = chosen_tool(request)
    tools = (chosen,) if chosen else request.tools
    if not tools:
        return {}
    choice = "REQUIRED" if chosen else _CHOICES.get(request.tool_choice, "")
    written: Json = {"tools": [function_tool(tool) for tool in tools]}
    written |= {"tool_choice": choice} if choice else {}
    return written | ({"strict_tools": True} if all(tool.extra.get("strict") for tool in tools) else {})


def output_fields(output: OutputFormat) -> Json:
    """The fields of a request that ask for an answer in this format."""
    schema = {} if output.schema is None else {"json_schema": output.schema}
    return {"response_format": {"type": "json_object", **schema}}
