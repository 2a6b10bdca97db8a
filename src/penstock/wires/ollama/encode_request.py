"""Encodes requests for Ollama's `/api/chat`.

Messages are similar to OpenAI's, but the arguments of calls are objects, and images are base64 beside the text. There
is no tool choice: for "none" no tools are declared, and for a tool's name only that tool; "required" and the switch for
parallel calls are ignored. The `context` of `/api/generate` is not sent, because the messages are the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.events import Reasoning, Refusal, Text, ToolCall
from penstock.messages import File, Image, Message
from penstock.wires.ollama.facts import FACTS
from penstock.wires.shared.encode_request.body import (
    Json,
    chosen_tool,
    merge,
    missing_options,
    missing_switch,
    rename_options,
)
from penstock.wires.shared.encode_request.media import media_note
from penstock.wires.shared.encode_request.message_writing import misplaced_part, system_text
from penstock.wires.shared.encode_request.output_format import enforced_schema
from penstock.wires.shared.encode_request.reasoning import requested_reasoning
from penstock.wires.shared.encode_request.settle import settle
from penstock.wires.shared.encode_request.tool_schema import function_tool
from penstock.wires.shared.encode_request.vendor_state import (
    message_fields,
    part_fields,
    parts_without_state,
    result_fields,
)
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
PATH = "/api/chat"

_OPTIONS = {
    "max_tokens": "num_predict", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop": "stop",
    "seed": "seed", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}  # fmt: skip
_LEVELS = {"minimal": "low", "xhigh": "max"}  # where Ollama's level has another name


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request for /api/chat."""
    history = settle(request, FACTS, quirks)
    messages = [written for message in history for written in _message(message)]
    body: Json = {"model": request.model, "messages": messages, "stream": request.is_streaming}
    tools = [function_tool(tool) for tool in _declared(request)]
    body |= {"tools": tools} if tools else {}
    options = rename_options(request, _OPTIONS)
    body |= {"options": options} if options else {}
    if request.output is not None:
        body["format"] = enforced_schema(request.output, FACTS.output)
    reasoning = requested_reasoning(request)
    if request.options.get("reasoning") is True:
        body["think"] = True  # many models have no levels
    elif reasoning is not None:
        body["think"] = _LEVELS.get(reasoning, reasoning) if isinstance(reasoning, str) else reasoning > 0
    return EncodedRequest(PATH, merge(body, request.extra))


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output: a format is a grammar, which would prevent calls."""
    return "tool" if request.tools else "grammar"


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the provider does not have them."""
    choice = ["tool_choice"] if request.tools and request.tool_choice == "required" else []
    return [*missing_options(request, *_OPTIONS, "reasoning"), *choice, *missing_switch(request)]


def _message(message: Message) -> Iterator[Json]:
    match message.role:
        case "assistant":
            yield message_fields(message) | _assistant(message)
        case "tool":
            for result in message.results:
                written = {"role": "tool", **_content(map(_or_note, result.content), "tool")}
                fields = result_fields(result, WIRE)
                yield {**fields, **written, "tool_name": result.name, "tool_call_id": result.call_id}
        case "system":
            yield message_fields(message) | {"role": "system", "content": system_text(message)}
        case role:
            yield message_fields(message) | {"role": role, **_content(parts_without_state(message), role)}


def _content(parts: Iterable[Any], role: str) -> Json:
    """The text and the images; texts are joined, with a line break unless the assistant wrote them."""
    texts: list[str] = []
    images: list[str] = []
    for part in parts:
        match part:
            case Text() | Refusal():
                texts.append(part.text)
            case Image():
                images.append(part.base64)
            case _:
                raise misplaced_part(part, role, "Ollama accepts only text and images, so send the text of a file")
    between = "" if role == "assistant" else "\n"
    return {"content": between.join(texts), **({"images": images} if images else {})}


def _or_note(part: Text | Image | File) -> Text | Image:
    """A part of a result, or a note if Ollama does not accept it."""
    if isinstance(part, File) or (isinstance(part, Image) and not part.is_inline):
        return media_note(part)
    return part


def _assistant(message: Message) -> Json:
    parts = [part for part in message.parts if isinstance(part, Text | Refusal | Image | File)]
    written: Json = {"role": "assistant", **_content(parts, "assistant")}
    thinking = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    written |= {"thinking": thinking} if thinking else {}
    calls = [merge(_call(call), part_fields(call, message, WIRE)) for call in message.tool_calls]
    return written | ({"tool_calls": calls} if calls else {})


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}


def _declared(request: Request) -> tuple[ToolDeclaration, ...]:
    chosen = chosen_tool(request)
    if request.tool_choice == "none":
        return ()
    return (chosen,) if chosen else request.tools


def output_fields(output: OutputFormat) -> Json:
    """The fields of a request that ask for an answer in this format."""
    return {"format": "json" if output.schema is None else output.schema}
