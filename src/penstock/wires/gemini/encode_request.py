"""Encodes requests for Google's Gemini, on the Gemini API and on Vertex AI.

All calls of a turn are in one content and all responses in the next, in the same order, because they are matched by
order (QUIRKS 148). An id is sent only if Gemini sent one, since some endpoints refuse the field. A signature goes back
on the part that it came with (QUIRKS 147). Thinking without a signature is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.declarations import ToolDeclaration
from penstock.errors import UsageError
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import File, Image, Media, Message, ToolResult
from penstock.wires.gemini.facts import FACTS
from penstock.wires.shared.encode_request.body import (
    Json,
    chosen_tool,
    function_description,
    merge,
    missing_options,
    missing_switch,
    pick_fields,
    rename_options,
)
from penstock.wires.shared.encode_request.media import check_type, media_type, write_or_note
from penstock.wires.shared.encode_request.message_writing import misplaced_part, split_system
from penstock.wires.shared.encode_request.openapi_schemas import has_capital_types
from penstock.wires.shared.encode_request.output_format import enforced_schema, is_enforceable
from penstock.wires.shared.encode_request.reasoning import budget_of, effort_of, requested_reasoning
from penstock.wires.shared.encode_request.settle import settle
from penstock.wires.shared.encode_request.tool_schema import declared_schema
from penstock.wires.shared.encode_request.vendor_state import (
    part_fields,
    parts_without_state,
    result_fields,
    result_text,
)
from penstock.wires.shared.google import model_version
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
SIGNATURE = "thought_signature"
PARTS = "parts"
"""The kind of state of a result that contained its images and files: the other fields of each of them."""
UNSIGNED = "skip_thought_signature_validator"
"""The placeholder for the signature of a call that Gemini did not make, as Google documents it."""

_OPTIONS = {
    "max_tokens": "maxOutputTokens", "temperature": "temperature", "top_p": "topP", "top_k": "topK",
    "stop": "stopSequences", "seed": "seed", "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}  # fmt: skip
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "HIGH", "max": "HIGH"}
_BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
"""The budgets that Google's Chat Completions endpoint uses for the efforts."""
_TOOL_FIELDS = ("response", "responseJsonSchema", "behavior")

_REFUSED_TYPES = re.compile(
    r"application/(?!pdf|json|xml|javascript|x-javascript|x-python|rtf).*|image/(bmp|tiff|svg\+xml|gif)"
)
"""The types that Gemini refuses."""


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request for streamGenerateContent, or for generateContent if it is not streaming."""
    system, messages = split_system(settle(request, FACTS, quirks))
    body: Json = {}
    if token := _continuation(messages):
        body["continuationToken"] = token
        messages = messages[:-1]
    body["contents"] = _Contents(request.model).all(messages)
    body |= {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
    body |= _tools(request)
    config = rename_options(request, _OPTIONS) | _thinking(request) | _format(request)
    body |= {"generationConfig": config} if config else {}
    model = request.model if "/" in request.model else f"models/{request.model}"
    method = "streamGenerateContent?alt=sse" if request.is_streaming else "generateContent"
    return EncodedRequest(f"/{quote(model)}:{method}", merge(body, request.extra))


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output: a format together with tools is refused before Gemini 3."""
    takes_format = not request.tools or model_version(request.model) >= 3
    return "native" if takes_format and is_enforceable(request.output, FACTS.output) else "tool"


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the provider does not have them."""
    return [*missing_options(request, *_OPTIONS, "reasoning"), *missing_switch(request)]


def _format(request: Request) -> Json:
    if request.output is None:
        return {}
    schema = enforced_schema(request.output, FACTS.output)
    return {"responseMimeType": "application/json", "responseJsonSchema": schema}


def _continuation(messages: list[Message]) -> Any:
    """The token of a response that is to be continued; it is sent instead of that response."""
    parts = messages[-1].parts if messages and messages[-1].role == "assistant" else ()
    tokens = [part.data for part in parts if isinstance(part, Opaque) and part.kind == "continuationToken"]
    return tokens[-1] if tokens else None


# Contents.


class _Contents:
    """Writes the messages of one request, and remembers the ids that Gemini gave its calls."""

    def __init__(self, model: str) -> None:
        self._is_version_3 = model_version(model) >= 3
        self._is_version_2 = 0 < model_version(model) < 3
        self._vendor_ids: dict[str, Any] = {}

    def all(self, messages: list[Message]) -> list[Json]:
        last_user = max((index for index, message in enumerate(messages) if message.role == "user"), default=-1)
        written: list[Json] = []
        for index, message in enumerate(messages):
            match message.role:
                case "assistant":
                    parts = self._model(message, is_current=index > last_user)
                case "tool":
                    parts = self._responses(message.results)
                case _:
                    parts = [
                        merge(_write_part(part, message.role), part_fields(part, message, WIRE))
                        for part in parts_without_state(message)
                    ]
            if parts:
                written.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
        return written

    def _model(self, message: Message, is_current: bool) -> list[Json]:
        blocks = {
            part.block
            for part in message.parts
            if not isinstance(part, Image | File | ToolResult) and not _is_signature(part)
        }
        parts = [written for part in message.parts for written in self._model_parts(message, part, blocks)]
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and is_current and self._is_version_3:  # Gemini 3 checks the current turn
            first.setdefault("thoughtSignature", UNSIGNED)
        return parts

    def _model_parts(self, message: Message, part: Any, blocks: set[int]) -> Iterator[Json]:
        """The parts that a part becomes; `blocks` have a part that can hold a signature."""
        state = {} if isinstance(part, Image | File) else message.state_of(part.block, WIRE)
        signed = {"thoughtSignature": state[SIGNATURE]} if SIGNATURE in state else {}
        match part:
            case Text() | Refusal():
                yield {"text": part.text, **signed, **part_fields(part, message, WIRE)}
            case Reasoning() if signed:
                yield {"text": part.text, "thought": True, **signed, **part_fields(part, message, WIRE)}
            case ToolCall():
                vendor_id = pick_fields(state, ("id",))
                self._vendor_ids |= {part.id: vendor_id}
                call = {"functionCall": {**vendor_id, "name": part.name, "args": part.arguments}, **signed}
                yield merge(call, part_fields(part, message, WIRE))
            case Opaque(kind="thought_signature"):
                if part.block not in blocks:
                    yield {"text": "", "thoughtSignature": part.data}
            case Opaque(kind="id" | "continuationToken" | "fields") | Reasoning():
                pass
            case Opaque(data=dict()):
                yield {**part.data, **signed}
            case Opaque():
                pass  # tampered with; `check` reports it
            case _:
                yield _write_part(part, "assistant")

    def _responses(self, results: list[ToolResult]) -> list[Json]:
        """One response per call, in order; media that older models do not accept inside a response follow them."""
        written: list[Json] = []
        media_parts: list[Json] = []
        for result in results:
            media = [
                write_or_note(_write_result_part, part) for part in result.content if isinstance(part, Image | File)
            ]
            parts = {"parts": within} if (within := self._within(result, media)) else {}
            media_parts += [] if parts else media
            response = {"name": result.name, "response": _response(result), **parts}
            answer = {"functionResponse": {**self._vendor_ids.get(result.call_id, {}), **response}}
            written.append(merge(answer, result_fields(result, WIRE)))
        return written + media_parts

    def _within(self, result: ToolResult, media: list[Json]) -> list[Json]:
        """The media inside a function response: all if the model accepts media there, or as they were before."""
        match result.state_of(WIRE).get(PARTS):
            case [*fields] if len(fields) == len(media) and all(isinstance(field, dict) for field in fields):
                return [] if self._is_version_2 else [*map(merge, media, fields)]
            case _:
                return media if self._is_version_3 else []


def _is_signature(part: Any) -> bool:
    return isinstance(part, Opaque) and part.kind == SIGNATURE


def _response(result: ToolResult) -> Json:
    """A result as an object, which it must be; text that is an object stays one, as in Google's own agents."""
    text = result_text(result)
    if result.is_error:
        return {"error": text}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"result": text}


def _write_part(part: Any, role: str) -> Json:
    match part:
        case Text():
            return {"text": part.text}
        case Image() | File():
            return _media(part)
        case _:
            raise misplaced_part(part, role, "put it into an assistant message")


def _write_result_part(part: Text | Image | File) -> Json:
    return _write_part(part, "tool")


def _media(media: Media) -> Json:
    check_type(
        media, not _REFUSED_TYPES.fullmatch(media_type(media)), "Gemini accepts images, audio, video, PDF and text"
    )
    kind = {"mimeType": media_type(media)} if media_type(media) else {}
    if media.is_inline:
        return {"inlineData": {**kind, "data": media.base64}}
    if "://" not in media.url:
        raise UsageError(f"{media!r} is not a URL; pass the bytes of the file, or the URI that Google gave it")
    return {"fileData": {**kind, "fileUri": media.url}}


# Tools and thinking.


def _tools(request: Request) -> Json:
    chosen = chosen_tool(request)
    functions = [_function(tool) for tool in request.tools if tool.hosted is None]
    tools = [{"functionDeclarations": functions}] if functions else []
    tools += [dict(tool.hosted) for tool in request.tools if tool.hosted is not None]
    if not tools:
        return {}
    config: Json = {"mode": "ANY", "allowedFunctionNames": [chosen.name]} if chosen else {}
    if request.tool_choice and not chosen:
        config = {"mode": _MODES[request.tool_choice]}
    return {"tools": tools} | ({"toolConfig": {"functionCallingConfig": config}} if config else {})


def _function(tool: ToolDeclaration) -> Json:
    """A declaration; a schema in Google's own spelling (`OBJECT`) has a field of its own."""
    written: Json = {"name": tool.name, **function_description(tool)}
    if has_capital_types(tool.parameters):
        written["parameters"] = tool.parameters
    elif tool.parameters or tool.is_custom:
        written["parametersJsonSchema"] = declared_schema(tool)
    return written | pick_fields(tool.extra, _TOOL_FIELDS)


def _thinking(request: Request) -> Json:
    """The thinking settings: a level from Gemini 3 on, which cannot be switched off; a budget before."""
    reasoning = requested_reasoning(request)
    if reasoning is None:
        return {}
    config: Json = {"includeThoughts": True} if reasoning else {}
    if model_version(request.model) < 3:
        return {"thinkingConfig": {**config, "thinkingBudget": budget_of(reasoning, _BUDGETS)}}
    level = _LEVELS[effort_of(reasoning)]
    if level == "MINIMAL" and "pro" in request.model:
        level = "LOW"
    return {"thinkingConfig": {**config, "thinkingLevel": level}}


def output_fields(output: OutputFormat) -> Json:
    """The fields of a request that ask for an answer in this format; a schema in Google's spelling has its own."""
    config: Json = {"responseMimeType": "application/json"}
    if output.schema is not None:
        config["responseSchema" if has_capital_types(output.schema) else "responseJsonSchema"] = output.schema
    return {"generationConfig": config}
