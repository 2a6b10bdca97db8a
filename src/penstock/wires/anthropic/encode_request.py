"""Encodes requests for Anthropic's Messages.

User and assistant messages alternate, and results are user content, so neighbours are joined. Thinking goes back with
its signature, in order and unchanged (QUIRKS 126, 127); thinking without a signature is another vendor's and is left
out. `max_tokens` is required; `claude.DEFAULT_MAX_TOKENS` says why it is 16,000 by default. `seed` and the penalties do
not exist and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import quote

from penstock.declarations import ToolDeclaration
from penstock.errors import UsageError
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import PART_FIELDS, File, Image, Media, Message, ToolResult
from penstock.wires.anthropic.facts import FACTS
from penstock.wires.anthropic.toolsets import TOOLSET, own_name
from penstock.wires.shared.claude import length_and_thinking, refused_options, takes_forced_choice, takes_format
from penstock.wires.shared.encode_request.body import (
    Json,
    cache_lifetime,
    chosen_tool,
    function_description,
    merge,
    missing_options,
    pick_fields,
    rename_options,
)
from penstock.wires.shared.encode_request.media import IMAGE_TYPES, check_type, is_uploaded, media_type, write_or_note
from penstock.wires.shared.encode_request.message_writing import (
    alternating,
    called_tools,
    marked_system,
    misplaced_part,
    split_system,
)
from penstock.wires.shared.encode_request.output_format import enforced_schema
from penstock.wires.shared.encode_request.settle import settle
from penstock.wires.shared.encode_request.tool_schema import declared_schema, for_claude
from penstock.wires.shared.encode_request.vendor_state import nonblank_content, part_fields, result_fields
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
PATH = "/messages"

_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop": "stop_sequences"}
_TOOL_FIELDS = ("strict", "eager_input_streaming", "cache_control", "defer_loading", "input_examples")
_CALLERS = ("direct", "code_execution")
"""How the names of those begin who may call a tool; the names of other providers are left out."""
_CALL_FIELDS = ("caller", "toolset_name")
QUIRKS_IN_WORDS = {"raw-predict": "Messages are sent to `rawPredict`, with the model in the path"}
QUIRKS = frozenset(QUIRKS_IN_WORDS)
VERTEX_VERSION = "vertex-2023-10-16"
_ON_A_PART = ("signature", "citations", PART_FIELDS, *_CALL_FIELDS)  # kinds of state that are not a block
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request as a body for Messages."""
    history = settle(request, FACTS, quirks)
    leading = [message for message in history if not _changes_tools(message)]
    system, _ = split_system(leading)
    messages = [message for message in history if message.role != "system" or _changes_tools(message)]
    length, thinking = length_and_thinking(request)
    write = partial(_blocks, {})
    body: Json = {"model": request.model, "max_tokens": length, "messages": _turns(messages, write)}
    body |= {"system": marked_system(leading, write) or system} if system else {}
    body |= {"container": container} if (container := _container(messages)) else {}
    body |= _tools(request) or _stubs(messages)
    options = rename_options(
        request, {name: _OPTIONS[name] for name in _OPTIONS if name not in refused_options(request)}
    )
    lifetime = cache_lifetime(request)
    body |= {} if lifetime is None else {"cache_control": {"type": "ephemeral", **lifetime}}
    settings = merge({**body, **options, **thinking, "stream": request.is_streaming}, _format(request))
    written = merge(settings, request.extra)
    return _raw_prediction(written, request) if "raw-predict" in quirks else EncodedRequest(PATH, written)


def _raw_prediction(body: Json, request: Request) -> EncodedRequest:
    """The request for Vertex AI, which has the model in its path and the version in its body."""
    method = "streamRawPredict" if request.is_streaming else "rawPredict"
    fields = {key: value for key, value in body.items() if key != "model"}
    return EncodedRequest(f"/models/{quote(request.model)}:{method}", {"anthropic_version": VERTEX_VERSION, **fields})


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output."""
    return "native" if takes_format(request) else "tool"


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the provider or the model does not have them."""
    refused = [name for name in refused_options(request) if request.options.get(name) is not None]
    is_unforced = _is_forced(request) and not takes_forced_choice(request)
    known = missing_options(request, *_OPTIONS, "max_tokens", "reasoning", "cache")
    return [*known, *refused, *(["tool_choice"] if is_unforced else [])]


def _format(request: Request) -> Json:
    schema = None if request.output is None else enforced_schema(request.output, FACTS.output)
    return {} if schema is None else {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


# Messages.


def _changes_tools(message: Message) -> bool:
    """Whether a system message adds or removes tools from its place on; others are instructions for all messages."""
    return any(isinstance(part, Opaque) and part.kind in FACTS.system_blocks for part in message.parts)


def _turns(messages: list[Message], write: Callable[[Message], Iterator[Json]]) -> list[Json]:
    """The messages with alternating roles, and system messages in their places."""
    turns: list[Json] = []
    for is_system, group in groupby(messages, key=lambda message: message.role == "system"):
        if is_system:
            turns += ({"role": "system", "content": list(write(message))} for message in group)
        else:
            turns += alternating(group, write)
    return turns


def _blocks(toolsets: dict[str, Any], message: Message) -> Iterator[Json]:
    """The blocks of a message; `toolsets` maps call ids to the names of their toolsets."""
    write = _assistant if message.role == "assistant" else _user
    return write(message, toolsets)


def _user(message: Message, toolsets: Mapping[str, Any]) -> Iterator[Json]:
    for part in message.parts:
        match part:
            case Opaque(kind="fields"):
                pass  # written with the part that it belongs to
            case Opaque(data=dict()):
                yield part.data
            case Opaque():
                pass  # tampered with, not a block
            case ToolResult():
                toolset = {"toolset_name": toolsets[part.call_id]} if part.call_id in toolsets else {}
                yield _result(part) | toolset | result_fields(part, WIRE)
            case Text() | Image() | File():
                yield merge(_content(part), part_fields(part, message, WIRE))
            case _:
                raise misplaced_part(part, message.role, "put it into an assistant message")


def _assistant(message: Message, toolsets: dict[str, Any]) -> Iterator[Json]:
    blocks = {part.block for part in message.parts if isinstance(part, Text | Reasoning | ToolCall)}
    for part in message.parts:
        match part:
            case Text() | Refusal():
                fields = part_fields(part, message, WIRE)
                yield _text(part.text) | pick_fields(message.state_of(part.block, WIRE), ("citations",)) | fields
            case Reasoning():
                yield from _thinking(part.text, message.state_of(part.block, WIRE))
            case ToolCall():
                state = pick_fields(message.state_of(part.block, WIRE), _CALL_FIELDS)
                toolsets |= {part.id: state["toolset_name"]} if "toolset_name" in state else {}
                state |= part_fields(part, message, WIRE)
                name = own_name(state.get(TOOLSET), part.name)
                yield {"type": "tool_use", "id": part.id, "name": name, "input": part.arguments, **state}
            case Opaque(kind="container"):
                pass  # it is a field of the request
            case Opaque(data=dict()) if part.kind not in _ON_A_PART:
                yield part.data
            case Opaque() if part.kind in _ON_A_PART and part.block not in blocks:
                yield from _thinking("", {part.kind: part.data})
            case Image() | File():
                raise misplaced_part(part, "assistant", "put it into a user message")
            case _:
                pass


def _thinking(text: str, state: Mapping[str, Any]) -> Iterator[Json]:
    if "signature" in state:
        yield {"type": "thinking", "thinking": text, "signature": state["signature"], **state.get(PART_FIELDS, {})}


def _result(result: ToolResult) -> Json:
    """A result block; only an error must have content."""
    written: Json = {"type": "tool_result", "tool_use_id": result.call_id}
    if content := nonblank_content(result, WIRE) or _result_content(result):
        written["content"] = content
    elif result.is_error:
        written["content"] = "The tool failed and did not say why."
    return written | ({"is_error": True} if result.is_error else {})


def _result_content(result: ToolResult) -> str | list[Json]:
    match [part for part in result.content if not isinstance(part, Text) or part.text.strip()]:
        case [Text(text=text)]:
            return text
        case parts:
            return [write_or_note(_content, part) for part in parts]


def _container(messages: list[Message]) -> Any:
    """The container in which the model last ran code, to use it again."""
    states = [part for message in messages for part in message.parts if isinstance(part, Opaque)]
    last = next((state.data for state in reversed(states) if state.kind == "container"), None)
    return last.get("id") if isinstance(last, dict) else last


# Texts, images, documents.


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _content(part: Text | Image | File) -> Json:
    match part:
        case Text():
            return _text(part.text)
        case File() if not media_type(part).startswith("image/"):
            title = {"title": part.name} if part.name else {}
            return {"type": "document", "source": _document(part), **title}
        case Image() | File():
            check_type(part, media_type(part) in IMAGE_TYPES, "Anthropic accepts JPEG, PNG, GIF and WebP")
            return {"type": "image", "source": _source(part)}


def _document(file: File) -> Json:
    kind = media_type(file)
    if not file.is_inline or kind == "application/pdf":
        return _source(file)
    if kind.startswith("text/") or kind == "application/json":
        return {"type": "text", "media_type": "text/plain", "data": file.data.decode("utf-8", "replace")}
    raise UsageError(f"{file!r} is {kind or 'of an unknown type'}; Anthropic accepts images, PDF and text")


def _source(media: Media) -> Json:
    if media.is_inline:
        return {"type": "base64", "media_type": media_type(media), "data": media.base64}
    if media.url.startswith(("http://", "https://")):
        return {"type": "url", "url": media.url}
    if is_uploaded(media):
        return {"type": "file", "file_id": media.url}
    raise UsageError(f"{media!r} cannot be fetched by Anthropic; pass its bytes, or an http(s) URL")


# Tools.


def _tools(request: Request) -> Json:
    chosen = chosen_tool(request)
    if not request.tools:
        return {}
    choice: Json = {"type": "tool", "name": chosen.name} if chosen else {}
    if request.tool_choice and not chosen:
        choice = {"type": _CHOICES[request.tool_choice]}
    if _is_forced(request) and not takes_forced_choice(request):
        choice = {"type": "auto"}
    if request.is_parallel is False and request.tool_choice != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return {"tools": [_tool(tool) for tool in request.tools]} | ({"tool_choice": choice} if choice else {})


def _is_forced(request: Request) -> bool:
    """Whether a call is required."""
    return bool(request.tools) and request.tool_choice not in ("", "auto", "none")


def _stubs(messages: list[Message]) -> Json:
    """Declarations of the tools that were called: a history with calls needs some."""
    tools = [_tool(ToolDeclaration(name)) for name in called_tools(messages)]
    return {"tools": tools, "tool_choice": {"type": "none"}} if tools else {}


def _tool(tool: ToolDeclaration) -> Json:
    if tool.hosted is not None:
        return dict(tool.hosted)
    callers = [name for name in tool.extra.get("allowed_callers") or () if str(name).startswith(_CALLERS)]
    return {
        "name": tool.name,
        **function_description(tool),
        "input_schema": for_claude(declared_schema(tool)),
        **pick_fields(tool.extra, _TOOL_FIELDS),
        **({"allowed_callers": callers} if callers else {}),
    }


def output_fields(output: OutputFormat) -> Json:
    """The fields of a request that ask for an answer in this format; any JSON object cannot be asked for."""
    if output.schema is None:
        return {}
    return {"output_config": {"format": {"type": "json_schema", "schema": output.schema}}}
