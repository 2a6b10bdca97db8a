"""Reads what Chat Completions, and the servers that are compatible with it, write in messages."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.messages import PART_FIELDS, File, Image
from penstock.wires.openai_chat.facts import FACTS
from penstock.wires.openai_chat.reasoning_fields import (
    ECHOED_FIELDS,
    STATE_FIELDS,
    TEXT_FIELDS,
    TOKEN_FIELDS,
)
from penstock.wires.openai_chat.text_fields import text_in
from penstock.wires.shared.decode_request.fields import (
    Json,
    data_url,
    nested,
    other_fields,
    read_object,
    read_objects,
    read_text,
    refuse_unread,
    type_of_url,
    unreadable,
)
from penstock.wires.shared.decode_request.media_fields import FILE_FIELDS, read_file, without_usual_detail
from penstock.wires.shared.decode_request.message_builder import MessageBuilder
from penstock.wires.shared.decode_request.message_reader import MessageReader, ReadContext
from penstock.wires.shared.decode_request.request_settings import (
    NO_PROBABILITIES,
    Fields,
    RequestSettings,
    ToolChoice,
    check_tool_choice,
    read_schema_format,
    read_tools,
)

WIRE = FACTS.wire

_ROLES = ("system", "developer", "tool", "function")
_TYPES = ("text", "refusal", "image_url", "file", "input_audio", "document_url", "video_url", "audio_url")
_LANGCHAIN = ("human", "ai", "HumanMessageChunk", "AIMessageChunk")
_LANGCHAIN_TOO = ("system", "tool", "function", "chat")
"""The types of LangChain messages that other things have too: a tool declaration, say, which has no content."""
_FROM_LANGCHAIN = "load it with LangChain (messages_from_dict, load) and convert it with its convert_to_openai_messages"
_FIELDS = ("tool_calls", "function_call", "refusal", "audio", *STATE_FIELDS)


class ChatReader(MessageReader):
    """The parts and fields of Chat Completions."""

    wire = WIRE

    def is_typical(self, message: Json) -> bool:
        """Whether it is a message of Chat Completions, rather than of a protocol with system messages in a field."""
        return message.get("role") in _ROLES or bool(message.get("tool_calls"))

    def is_part(self, part: Json) -> bool:
        return part.get("type") in _TYPES

    def explain(self, item: Json) -> str:
        """LangChain has a conversion to this wire."""
        kind, has_content = item.get("type"), "data" in item or "content" in item
        if kind in _LANGCHAIN or (kind in _LANGCHAIN_TOO and has_content) or (kind == "constructor" and "lc" in item):
            return f"is a LangChain message of the type {kind!r}; {_FROM_LANGCHAIN}"
        return ""

    def read_content(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        wire = parts.wire if context.facts_of(parts.wire).has_chat_parts else WIRE
        match part:
            case {"type": "text", "text": str(text)}:
                parts.text(text, other_fields(part, ("type", "text")))
            case {"type": "image_url", "image_url": {"url": str(url), **more}}:
                fields = other_fields(part, ("type", "image_url")) | ({"image_url": more} if more else {})
                parts.media(Image(url, type_of_url(url, "image/png")), fields, wire)
            case {"type": "image_url", "image_url": str(url)}:
                fields = without_usual_detail(other_fields(part, ("type", "image_url", "file_id")))
                parts.media(Image(url, type_of_url(url, "image/png")), fields, wire)
            case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(format)}}:
                media_type = mimetypes.guess_type(f"sound.{format}")[0] or f"audio/{format}"
                parts.media(
                    File(data_url(media_type, data), media_type), other_fields(part, ("type", "input_audio")), wire
                )
            case {"type": "video_url", "video_url": {"url": str(url), **more}}:  # vLLM's, as the next one
                fields = other_fields(part, ("type", "video_url")) | ({"video_url": more} if more else {})
                parts.media(File(url, type_of_url(url, "video/mp4")), fields, wire)
            case {"type": "audio_url", "audio_url": {"url": str(url), **more}}:
                fields = other_fields(part, ("type", "audio_url")) | ({"audio_url": more} if more else {})
                parts.media(File(url, type_of_url(url, "audio/mpeg")), fields, wire)
            case {"type": "document_url", "document_url": str(url)}:  # Mistral's
                parts.media(File(url, type_of_url(url, "application/pdf"), str(part.get("document_name") or "")))
            case {"type": "file", "file": Mapping() as file}:
                parts.media(read_file(file, place), other_fields(part, FILE_FIELDS), wire)
            case _:
                return False
        return True

    def read_answer(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        match part:
            case {"type": "text", "text": str(text)} if not part.get("citations"):  # which other wires have
                parts.text(text, other_fields(part, ("type", "text", "parsed")))
            case {"type": "refusal", "refusal": str(text)}:
                parts.refusal(text)
            case {"type": "thinking", "thinking": [*pieces]}:  # Mistral's
                parts.reasoning("".join(_reasoning_text(piece, place) for piece in pieces))
            case _:
                return False
        return True

    def read_before_content(self, parts: MessageBuilder, message: Json, place: str) -> None:
        """The reasoning, which may stand in two fields (QUIRKS 81, 82)."""
        if message.get("audio"):
            raise unreadable(f"{place}.audio", "audio of the assistant cannot be kept; send its transcript as content")
        states = {field: state for field in STATE_FIELDS if (state := message.get(field))}
        for field, state in states.items():
            if not isinstance(state, str if field in TOKEN_FIELDS else list):
                expected = "text" if field in TOKEN_FIELDS else "a list"
                raise unreadable(f"{place}.{field}", f"expected {expected}, got {type(state).__name__}")
        text, field = _reasoning(message)
        if states or text:
            parts.place = f"{place}.{field or next(iter(states))}"
            block = parts.reasoning(text)
            sources = [field for field in ECHOED_FIELDS if text and message.get(field) == text]
            parts.state(block, "reasoning_fields", sources, WIRE)
            for kind, state in states.items():
                parts.state(block, kind, state, WIRE)

    def read_after_content(self, parts: MessageBuilder, message: Json, place: str) -> None:
        if message.get("refusal"):
            parts.place = f"{place}.refusal"
            parts.refusal(str(message["refusal"]))
        for part_place, call in read_objects(message.get("tool_calls") or (), f"{place}.tool_calls"):
            parts.place = part_place
            _read_call(parts, call, part_place)
        if message.get("function_call"):
            parts.place = part_place = f"{place}.function_call"
            function = read_object(message["function_call"], part_place)
            name = read_text(function, "name", part_place)
            _refuse_unread_arguments(function, "arguments", part_place)
            parts.call(parts.calls.new_id(name), name, function.get("arguments"), part_place)

    def known_fields(self, message: Json) -> Iterator[str]:
        yield from _FIELDS
        text, _ = _reasoning(message)
        yield from (field for field in TEXT_FIELDS if message.get(field) in (None, "", text))


READER = ChatReader()


def _reasoning(message: Json) -> tuple[str, str]:
    """The reasoning and its field, which is the first that has text."""
    texts = ((text_in(message.get(field))[0], field) for field in TEXT_FIELDS)
    return next((pair for pair in texts if pair[0]), ("", ""))


def _reasoning_text(piece: Any, place: str) -> str:
    match piece if isinstance(piece, str) else read_object(piece, place):
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case _:
            raise unreadable(place, "its thinking may contain only text")


def _refuse_unread_arguments(function: Json, field: str, place: str) -> None:
    if function.get(field) in (None, ""):
        refuse_unread(function, ("name", field), place, field)


def _read_call(parts: MessageBuilder, call: Json, place: str) -> None:
    match call:
        case {"function": function}:
            inner = read_object(function, f"{place}.function")
            name, arguments = read_text(inner, "name", f"{place}.function"), inner.get("arguments")
            _refuse_unread_arguments(inner, "arguments", f"{place}.function")
            has_no_id = not call.get("id") and isinstance(arguments, Mapping)  # as some servers write it
            id = parts.calls.new_id(name) if has_no_id else read_text(call, "id", place)
            block = parts.call(id, name, arguments, place)
        case {"custom": custom}:
            inner = read_object(custom, f"{place}.custom")
            id, name = read_text(call, "id", place), read_text(inner, "name", f"{place}.custom")
            _refuse_unread_arguments(inner, "input", f"{place}.custom")
            block = parts.call(id, name, inner.get("input"), place, "custom")
        case _:
            raise unreadable(place, "is neither a function call nor a custom call")
    parts.state(block, "extra_content", call.get("extra_content"), WIRE)  # QUIRKS 149
    fields = other_fields(call, ("id", "type", "function", "custom", "extra_content"))
    kind = "function" if "function" in call else "custom"
    parts.state(block, PART_FIELDS, fields | nested(kind, other_fields(inner, ("name", "arguments", "input"))))


# Settings.

_OPTIONS = {
    "max_completion_tokens": "max_tokens", "max_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p",
    "top_k": "top_k", "stop": "stop", "seed": "seed", "random_seed": "seed", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}  # fmt: skip


def read_settings(body: Mapping[str, Any], model: str = "", is_streaming: bool | None = None) -> RequestSettings:
    """The settings of a request body."""
    fields = Fields(body)
    fields.rest.pop("messages", None)
    named, is_stream = model or fields.required_text("model", "the name of a model"), bool(fields.flag("stream"))
    fields.rest.pop("model", None)
    options = fields.options(_OPTIONS) | _read_reasoning(fields)
    has_old_calls = bool(fields.rest.get("functions")) and not fields.rest.get("tools")
    tools = read_tools([*fields.objects("tools"), *fields.objects("functions")])
    choice = _tool_choice(fields)
    unsent = fields.leave_out("logprobs", "top_logprobs", why=NO_PROBABILITIES)
    format = fields.rest.pop("response_format", None)
    stream_options = fields.inner("stream_options")
    has_usage = bool(stream_options.flag("include_usage"))
    return RequestSettings(
        model=named,
        tools=tools,
        tool_choice=check_tool_choice(choice.choice, tools, "tool_choice"),
        is_parallel=False if has_old_calls else fields.flag("parallel_tool_calls"),
        is_streaming=is_stream if is_streaming is None else is_streaming,
        options=options,
        output=None if format is None else read_schema_format(format, "response_format"),
        has_usage=has_usage,
        has_old_calls=has_old_calls,
        allowed_tools=choice.allowed,
        exact={"tool_choice": choice.exact} if choice.exact else {},
        extra=fields.rest,
        partial=frozenset(fields.partial),
        dropped=(*unsent, *stream_options.unread("only token counts can be asked for")),
    )


def _read_reasoning(fields: Fields) -> dict[str, Any]:
    """The effort, or the budget of the providers that take an object."""
    effort = fields.effort("reasoning_effort")
    inner = fields.inner("reasoning") if isinstance(fields.rest.get("reasoning"), dict) else None
    if inner is not None:
        effort = effort or inner.effort("effort")
        budget = inner.take("max_tokens", int, "a whole number")
        fields.put_back("reasoning", inner)
        if budget is not None:
            return {"reasoning": budget}
    return {"reasoning": effort} if effort else {}


def _tool_choice(fields: Fields) -> ToolChoice:
    choice: Any = fields.rest.pop("tool_choice", None)
    choice = fields.rest.pop("function_call", None) if choice is None else choice
    match choice:
        case None:
            return ToolChoice()
        case str():
            return ToolChoice("required" if choice == "any" else choice)
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
            return ToolChoice(name)
        case {"type": "allowed_tools", "allowed_tools": {"mode": str(mode), "tools": [*tools]}}:
            return ToolChoice(mode, tuple(map(_allowed_name, tools)), {"tool_choice": choice})
        case _:
            raise unreadable(
                "tool_choice", 'send auto, none, required, or {"type": "function", "function": {"name": …}}'
            )


def _allowed_name(tool: Any) -> str:
    match tool:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
            return name
        case _:
            raise unreadable("tool_choice.allowed_tools", 'send {"type": "function", "function": {"name": …}}')
