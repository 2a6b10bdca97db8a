"""Encodes requests for Amazon Bedrock's Converse.

Converse has one form for models of many makers; the settings of some go into `additionalModelRequestFields`. User and
assistant messages alternate, and results are user content. Bytes are base64 in JSON. There is no tool choice `none`:
`tool_choice="none"` declares no tools, unless the history has calls, which need declared tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.declarations import OutputDeclaration, ToolDeclaration
from penstock.errors import UsageError
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import PART_FIELDS, File, Image, Media, Message, ToolResult
from penstock.wires.bedrock.facts import FACTS
from penstock.wires.shared.claude import (
    is_claude,
    length_and_thinking,
    refused_options,
    takes_forced_choice,
    takes_format,
)
from penstock.wires.shared.encode_request.body import (
    Json,
    cache_lifetime,
    chosen_tool,
    function_description,
    merge,
    missing_options,
    missing_switch,
    pick_fields,
    rename_options,
)
from penstock.wires.shared.encode_request.media import check_type, media_type, write_or_note
from penstock.wires.shared.encode_request.message_writing import (
    alternating,
    called_tools,
    marked_system,
    misplaced_part,
    split_system,
)
from penstock.wires.shared.encode_request.output_format import enforced_schema
from penstock.wires.shared.encode_request.reasoning import effort_of, requested_reasoning
from penstock.wires.shared.encode_request.settle import settle
from penstock.wires.shared.encode_request.tool_schema import declared_schema, for_claude
from penstock.wires.shared.encode_request.vendor_state import nonblank_content, part_fields, result_fields
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
MAX_DOCUMENT_NAME = 200

_INFERENCE = {"max_tokens": "maxTokens", "temperature": "temperature", "top_p": "topP", "stop": "stopSequences"}
_ADDITIONAL = {"top_k": "top_k", "seed": "seed", "presence_penalty": "presence_penalty",
               "frequency_penalty": "frequency_penalty"}  # fmt: skip
GUARDED = "guardContent"
"""The kind of state of a text that the guardrail checks: the block that it was in."""
_ON_A_PART = (PART_FIELDS, "signature", "redactedContent", "citations")  # kinds of state that are not a block
_OFFICE = "application/vnd.openxmlformats-officedocument"
_FORMATS = {
    "image/jpg": "jpeg", "video/3gpp": "three_gp", "video/quicktime": "mov", "video/x-matroska": "mkv",
    "video/x-flv": "flv", "video/x-ms-wmv": "wmv", "audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav",
    "audio/x-m4a": "m4a", "application/msword": "doc", "application/vnd.ms-excel": "xls", "text/plain": "txt",
    "text/markdown": "md", f"{_OFFICE}.wordprocessingml.document": "docx", f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
}  # fmt: skip
"""The names of formats where they differ from the subtype."""
_ACCEPTED = {
    "image": ("png", "jpeg", "gif", "webp"),
    "video": ("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
    "audio": ("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg", "mpga", "pcm",
              "webm"),
    "document": ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
}  # fmt: skip
"""The accepted formats, by medium."""
_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}  # other models than Claude have three efforts
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9()\[\] -]+")


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request for ConverseStream, or for Converse if it is not streaming."""
    history = settle(request, FACTS, quirks)
    system, messages = split_system(history)
    written = alternating(messages, _Writer().blocks)
    body: Json = {"messages": [{**message, "content": _with_text(message["content"])} for message in written]}
    body |= {"system": marked_system(history, _Writer().blocks) or [{"text": system}]} if system else {}
    tools = _tools(request, messages)
    body |= {"toolConfig": tools} if tools else {}
    if (lifetime := cache_lifetime(request)) is not None:
        body = _with_cache_points(body, {"cachePoint": {"type": "default", **lifetime}})
    inference, additional = _settings(request, tools)
    body |= {"inferenceConfig": inference} if inference else {}
    body |= {"additionalModelRequestFields": additional} if additional else {}
    body |= {"outputConfig": _format(request.output)} if request.output else {}
    operation = "converse-stream" if request.is_streaming else "converse"
    return EncodedRequest(f"/model/{quote(request.model, safe='')}/{operation}", merge(body, request.extra))


def _with_cache_points(body: Json, point: Json) -> Json:
    """The body with a cache point after the system prompt, after the tools and after the last two user messages.

    The first of these two was the last one in the request before, so that its cache is found however much came since.
    """
    users = [index for index, message in enumerate(body["messages"]) if message["role"] == "user"][
        -FACTS.marked_messages :
    ]
    marked: Json = {
        "messages": [
            {**message, "content": [*message["content"], point]} if index in users else message
            for index, message in enumerate(body["messages"])
        ]
    }
    if "system" in body:
        marked["system"] = [*body["system"], point]
    if "toolConfig" in body:
        marked["toolConfig"] = {**body["toolConfig"], "tools": [*body["toolConfig"]["tools"], point]}
    return {**body, **marked}


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output: only Anthropic's models have response formats."""
    return "native" if takes_format(request) else "tool"


def _format(output: OutputDeclaration) -> Json:
    """The response format; its schema is JSON text."""
    schema = msgspec.json.encode(enforced_schema(output, FACTS.output)).decode()
    described = {"description": output.description} if output.description else {}
    definition = {"name": output.name, **described, "schema": schema}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}


# Messages.


class _Writer:
    """Writes the messages of one request, in which each document needs a unique name."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def blocks(self, message: Message) -> Iterator[Json]:
        return _assistant(message) if message.role == "assistant" else self._user(message)

    def _user(self, message: Message) -> Iterator[Json]:
        for part in message.parts:
            match part:
                case ToolResult():
                    yield self._result(part)
                case Text() if guarded := message.state_of(part.block, WIRE).get(GUARDED):
                    yield {GUARDED: guarded}
                case Text() | Image() | File():
                    yield merge(self._content(part), part_fields(part, message, WIRE))
                case Opaque(kind="guardContent", data={"text": _}):
                    pass  # written with its text
                case Opaque(data=dict()):
                    yield part.data
                case Opaque():
                    pass  # tampered with, not a block
                case _:
                    raise misplaced_part(part, message.role, "put it into an assistant message")

    def _result(self, result: ToolResult) -> Json:
        """A result block; blank text is refused."""
        parts = [part for part in result.content if not isinstance(part, Text) or part.text.strip()]
        written = [write_or_note(self._content, part) for part in parts] or [{"text": "(no output)"}]
        status = "error" if result.is_error else "success"
        content = nonblank_content(result, WIRE) or written
        answer = {"toolResult": {"toolUseId": result.call_id, "content": content, "status": status}}
        return merge(answer, result_fields(result, WIRE))

    def _content(self, part: Text | Image | File) -> Json:
        if isinstance(part, Text):
            return {"text": part.text}
        kind = media_type(part)
        medium = "image" if isinstance(part, Image) else kind.partition("/")[0]
        format = _FORMATS.get(kind, kind.partition("/")[2])
        accepted = _ACCEPTED.get(medium, _ACCEPTED["document"])
        check_type(part, format in accepted, f"Bedrock accepts {', '.join(accepted)}")
        block = {"format": format, "source": _source(part)}
        return {medium: block} if medium in _ACCEPTED else {"document": {**block, "name": self._name(part)}}

    def _name(self, file: Media) -> str:
        plain = " ".join(_NOT_IN_NAMES.sub("-", file.name).split())[:MAX_DOCUMENT_NAME] or "document"
        name, times = plain, 1
        while name in self._names:
            times += 1
            name = f"{plain[: MAX_DOCUMENT_NAME - 8]}-{times}"
        self._names.add(name)
        return name


def _with_text(blocks: list[Json]) -> list[Json]:
    """The blocks, with a text added if there is only a document, which Bedrock refuses."""
    needs_text = any("document" in block for block in blocks) and not any("text" in block for block in blocks)
    return [*blocks, {"text": "(See the document.)"}] if needs_text else blocks


def _source(media: Media) -> Json:
    if media.url.startswith("s3://"):
        return {"s3Location": {"uri": media.url}}
    if not media.is_inline:
        raise UsageError(f"{media!r} cannot be fetched by Bedrock; pass its bytes, or an s3:// URI")
    return {"bytes": media.base64}


def _assistant(message: Message) -> Iterator[Json]:
    blocks = {part.block for part in message.parts if isinstance(part, Text | Reasoning)}
    for part in message.parts:
        match part:
            case Text() | Refusal():
                yield _text(part.text, message.state_of(part.block, WIRE))
            case Reasoning():
                yield from _reasoning(part.text, message.state_of(part.block, WIRE))
            case ToolCall():
                call = {"toolUse": {"toolUseId": part.id, "name": part.name, "input": part.arguments}}
                yield merge(call, part_fields(part, message, WIRE))
            case Opaque(data=dict()) if part.kind not in _ON_A_PART:
                yield part.data
            case Opaque() if part.kind in _ON_A_PART and part.block not in blocks:
                yield from _reasoning("", {part.kind: part.data})
            case Image() | File():
                raise misplaced_part(part, "assistant", "put it into a user message")
            case _:
                pass


def _text(text: str, state: Mapping[str, Any]) -> Json:
    if "citations" in state:
        return {"citationsContent": {"content": [{"text": text}], "citations": state["citations"]}}
    return {"text": text}


def _reasoning(text: str, state: Mapping[str, Any]) -> Iterator[Json]:
    """Reasoning goes back signed or encrypted; other reasoning is another vendor's."""
    if "signature" in state:
        yield {"reasoningContent": {"reasoningText": {"text": text, "signature": state["signature"]}}}
    if "redactedContent" in state:
        yield {"reasoningContent": {"redactedContent": state["redactedContent"]}}


# Tools and settings.


def _tools(request: Request, messages: Iterable[Message]) -> Json:
    chosen = chosen_tool(request)
    called = called_tools(messages)
    if request.tool_choice == "none" and not called:
        return {}
    written = [_tool(tool) for tool in request.tools] or [_tool(ToolDeclaration(name)) for name in called]
    choice: Json = {"toolChoice": {"tool": {"name": chosen.name}}} if chosen else {}
    if not chosen and request.tools and request.tool_choice in ("auto", "required"):
        choice = {"toolChoice": {"any" if request.tool_choice == "required" else "auto": {}}}
    if choice and is_claude(request.model) and not takes_forced_choice(request):
        choice = {"toolChoice": {"auto": {}}}
    return {"tools": written, **choice} if written else {}


def _tool(tool: ToolDeclaration) -> Json:
    if tool.hosted is not None:
        return dict(tool.hosted)
    schema = {"inputSchema": {"json": for_claude(declared_schema(tool))}}
    return {
        "toolSpec": {"name": tool.name, **function_description(tool), **schema, **pick_fields(tool.extra, ("strict",))}
    }


def _settings(request: Request, tools: Json) -> tuple[Json, Json]:
    """The settings of all models, and of some models."""
    if not is_claude(request.model):
        return rename_options(request, _INFERENCE), _additional(request) | _effort(request)
    refused = refused_options(request)
    inference = rename_options(request, {name: _INFERENCE[name] for name in _INFERENCE if name not in refused})
    additional = rename_options(request, {} if "top_k" in refused else {"top_k": "top_k"})
    length, thinking = length_and_thinking(request)
    if "budget_tokens" in thinking.get("thinking", {}):
        inference["maxTokens"] = length  # which includes the budget
    if tools and request.is_parallel is False:  # Bedrock merges it with its own tool choice
        written = {} if "toolChoice" in tools else {"type": "auto"}
        additional["tool_choice"] = {**written, "disable_parallel_tool_use": True}
    return inference, additional | thinking


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the model does not have them."""
    common = (*_INFERENCE, "reasoning", "cache")
    if not is_claude(request.model):
        return [*missing_options(request, *common, *_ADDITIONAL), *missing_switch(request)]
    refused = [name for name in refused_options(request) if request.options.get(name) is not None]
    return [*missing_options(request, *common, "top_k"), *refused]


def _additional(request: Request) -> Json:
    fields = rename_options(request, _ADDITIONAL)
    if "top_k" in fields and "nova" in request.model:
        fields["inferenceConfig"] = {"topK": fields.pop("top_k")}
    return fields


def _effort(request: Request) -> Json:
    """The reasoning effort for models other than Claude."""
    reasoning = requested_reasoning(request)
    if reasoning is None:
        return {}
    effort = effort_of(reasoning)
    effort = _EFFORTS.get(effort, effort)
    if "nova" not in request.model:
        return {"reasoning_effort": effort} if reasoning else {}
    config = {"type": "enabled", "maxReasoningEffort": effort} if reasoning else {"type": "disabled"}
    return {"reasoningConfig": config}


def output_fields(output: OutputFormat) -> Json:
    """No fields: Converse cannot ask for a format."""
    return {}
