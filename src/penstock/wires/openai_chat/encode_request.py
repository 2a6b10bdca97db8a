"""Encodes requests for OpenAI's Chat Completions, and for the providers that are compatible with it.

They agree on the form and differ in what else they accept. Each difference is a quirk with a name; the table of
providers says which provider has which.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.events import Opaque, Refusal, Text, ToolCall
from penstock.messages import File, Image, Message, ToolResult
from penstock.schemas import without_lookaround
from penstock.wires.openai_chat.encode_reasoning import (
    DROP_REASONING,
    ECHO_AS_REASONING,
    ECHO_AS_REASONING_TEXT,
    ECHO_REASONING,
    written_reasoning,
)
from penstock.wires.openai_chat.facts import FACTS, NINE_LETTER_IDS
from penstock.wires.shared.encode_request.body import (
    Json,
    chosen_tool,
    function_description,
    grammar_of,
    merge,
    missing_options,
    missing_switch,
    pick_fields,
    rename_options,
)
from penstock.wires.shared.encode_request.media import (
    audio_format,
    file_name,
    inline_url,
    is_uploaded,
    media_type,
    write_or_note,
)
from penstock.wires.shared.encode_request.message_writing import (
    arguments_text,
    misplaced_part,
    split_system,
    system_text,
)
from penstock.wires.shared.encode_request.output_format import GRAMMAR_SCHEMAS, json_schema_format
from penstock.wires.shared.encode_request.reasoning import effort_of, requested_reasoning
from penstock.wires.shared.encode_request.settle import NO_ANSWER, settle
from penstock.wires.shared.encode_request.tool_schema import declared_schema, for_grammar
from penstock.wires.shared.encode_request.vendor_state import (
    message_fields,
    part_fields,
    parts_without_state,
    result_content,
    result_fields,
    result_text,
)
from penstock.wires.shared.facts import MEDIA_IN_RESULTS
from penstock.wires.shared.request import EncodedRequest, OutputForm, OutputFormat, Request

WIRE = FACTS.wire
PATH = "/chat/completions"

NAME_IN_RESULTS = "name-in-results"
MAX_TOKENS = "max-tokens"
NO_STREAM_OPTIONS = "no-stream-options"
RANDOM_SEED = "random-seed"
REASONING_SPLIT = "reasoning-split"
REASONING_OBJECT = "reasoning-object"
THINKING_OBJECT = "thinking-object"
THINKING_ADAPTIVE = "thinking-adaptive"
THINKING_OFF = "thinking-off"
ENABLE_THINKING = "enable-thinking"
KNOWN_FIELDS = "known-fields"
REFUSAL_AS_TEXT = "refusal-as-text"
SYSTEM_FIRST = "system-only-first"
NO_PARALLEL_SWITCH = "no-parallel-switch"
ANSWER_AFTER_RESULTS = "answer-after-results"
NO_CUSTOM_TOOLS = "no-custom-tools"
NO_FORMAT = "no-response-format"
FORMAT_OR_TOOLS = "format-or-tools"
GRAMMAR_FORMAT = "grammar-format"

QUIRKS_IN_WORDS = {
    MAX_TOKENS: "The limit is called `max_tokens`; the newer `max_completion_tokens` is refused or ignored.",
    RANDOM_SEED: "The seed is called `random_seed`.",
    REASONING_OBJECT: 'The reasoning effort is an object: `{"effort": …}` or `{"max_tokens": …}`.',
    THINKING_OBJECT: 'Reasoning is only on or off: `thinking` is `{"type": "enabled"}` or `{"type": "disabled"}`.',
    THINKING_ADAPTIVE: 'Reasoning is only on or off: `thinking` is `{"type": "adaptive"}` or `{"type": "disabled"}`.',
    THINKING_OFF: 'Reasoning is turned off by `thinking`: `{"type": "disabled"}`; there is no effort `none`.',
    ENABLE_THINKING: "Reasoning is on or off: `enable_thinking`; a number of tokens is `thinking_budget`.",
    REASONING_SPLIT: "`reasoning_split` asks for reasoning as `reasoning_details`, which are sent back as they came.",
    NO_STREAM_OPTIONS: "`stream_options` is refused; the usage is sent without it.",
    NO_PARALLEL_SWITCH: "`parallel_tool_calls` is refused.",
    NO_CUSTOM_TOOLS: "Custom tools (free text) are declared as functions with an argument `input`.",
    NINE_LETTER_IDS: "Call ids must have exactly nine letters and digits; others are rewritten.",  # QUIRKS 165
    NAME_IN_RESULTS: "A result needs the name of its tool.",
    MEDIA_IN_RESULTS: "A result may contain images and files; for other providers they follow in a user message.",
    ANSWER_AFTER_RESULTS:
        "Results must be followed by an assistant message; a placeholder is inserted if there is none.",
    SYSTEM_FIRST: "Only the first message may be a system message; all system messages are joined there.",
    ECHO_REASONING:  # QUIRKS 84
        "Reasoning is sent back as `reasoning_content`; on a message with calls even if it is empty.",
    ECHO_AS_REASONING: "Reasoning is sent back as `reasoning`.",
    ECHO_AS_REASONING_TEXT: "Reasoning is sent back as `reasoning_text`.",
    DROP_REASONING: "Reasoning is not sent back in any field.",
    REFUSAL_AS_TEXT: "The field `refusal` is not accepted; refusals are sent back as text.",
    NO_FORMAT: "There is no response format with a schema for streams; output is asked for by a tool.",
    FORMAT_OR_TOOLS: "A response format together with tools is refused or ignored; then output is asked for by a tool.",
    GRAMMAR_FORMAT:
        "A response format is a grammar that the model does not see: the schema is in the prompt too. Together with "
        "tools it would prevent calls; then output is asked for by a tool. Schemas, also of tools, have no patterns "
        "and no long repetitions, which have no grammar.",
    KNOWN_FIELDS: "Fields that are not OpenAI's own are refused; state of other providers is left out.",
}  # fmt: skip
"""The description of each quirk, for docs/providers.md."""
QUIRKS = frozenset(QUIRKS_IN_WORDS)

_OWN_FIELDS = ("name", "image_url")  # OpenAI's own fields that our parts do not have
_OPTIONS = ("temperature", "top_p", "top_k", "stop", "seed", "presence_penalty", "frequency_penalty")


def encode(request: Request, quirks: frozenset[str]) -> EncodedRequest:
    """The request for Chat Completions."""
    body: Json = {"model": request.model, "messages": list(_messages(request, quirks))}
    if ANSWER_AFTER_RESULTS in quirks:
        body["messages"] = list(_with_answers(body["messages"]))
    if request.is_streaming:
        body["stream"] = True
        if NO_STREAM_OPTIONS not in quirks:
            body["stream_options"] = {"include_usage": True}
    if REASONING_SPLIT in quirks:
        body["reasoning_split"] = True
    if request.tools:
        body |= _tools(request, quirks)
    if request.output is not None:
        rules = GRAMMAR_SCHEMAS if GRAMMAR_FORMAT in quirks else FACTS.output
        body["response_format"] = {"type": "json_schema", "json_schema": json_schema_format(request.output, rules)}
    return EncodedRequest(PATH, merge(body | _options(request, quirks), request.extra))


def output_form(request: Request, quirks: frozenset[str]) -> OutputForm:
    """How the model is asked for structured output."""
    is_grammar = GRAMMAR_FORMAT in quirks
    if NO_FORMAT in quirks or (request.tools and (is_grammar or FORMAT_OR_TOOLS in quirks)):
        return "tool"
    return "grammar" if is_grammar else "native"


# Messages.


def _messages(request: Request, quirks: frozenset[str]) -> Iterator[Json]:
    messages = settle(request, FACTS, quirks)
    if SYSTEM_FIRST in quirks:
        system, messages = split_system(messages)
        if system:
            yield {"role": "system", "content": system}
    for message in messages:
        match message.role:
            case "system":
                yield _message_fields(message, quirks) | {"role": "system", "content": _system(message, quirks)}
            case "user":
                yield _message_fields(message, quirks) | {"role": "user", "content": _content(message, quirks)}
            case "assistant":
                yield from _assistant(message, quirks)
            case "tool":
                yield from _results(message, quirks)


def _with_answers(messages: list[Json]) -> Iterator[Json]:
    """The messages, with an assistant message between results and the next user message."""
    last = ""
    for message in messages:
        if (last, message["role"]) == ("tool", "user"):
            yield {"role": "assistant", "content": NO_ANSWER}
        yield message
        last = message["role"]


def _system(message: Message, quirks: frozenset[str]) -> str | list[Json]:
    """The content of a system message: parts if they have other fields, else one text."""
    content = _content(message, quirks)
    return content if isinstance(content, list) and any(len(part) > 2 for part in content) else system_text(message)


def _content(message: Message, quirks: frozenset[str]) -> str | list[Json]:
    parts = [
        merge(_part(part), _known(part_fields(part, message, WIRE), quirks)) for part in parts_without_state(message)
    ]
    match parts:
        case [{"type": "text", "text": str(text), **fields}] if not fields:
            return text
        case _:
            return parts


def _message_fields(message: Message, quirks: frozenset[str]) -> Json:
    """The fields of a message except its content, `cache_control` for example."""
    return _known(message_fields(message), quirks)


def _known(fields: Json, quirks: frozenset[str]) -> Json:
    return pick_fields(fields, _OWN_FIELDS) if KNOWN_FIELDS in quirks else fields


def _part(part: Text | Image | File) -> Json:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image_url", "image_url": {"url": part.url}}
        case File() if is_uploaded(part):
            return {"type": "file", "file": {"file_id": part.url}}
        case File() if media_type(part).startswith("video/"):
            return {"type": "video_url", "video_url": {"url": part.url}}
        case File() if audio_format(part) and not part.is_inline:
            return {"type": "audio_url", "audio_url": {"url": part.url}}
        case File() if format := audio_format(part):
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": format}}
        case File():
            return {"type": "file", "file": {"filename": file_name(part), "file_data": inline_url(part)}}


def _assistant(message: Message, quirks: frozenset[str]) -> Iterator[Json]:
    """An assistant message; none if only reasoning is left of a truncated response and no user message follows."""
    for part in message.parts:
        if isinstance(part, Image | File):
            raise misplaced_part(part, "assistant", "put it into a user message")
    text, refusal = message.text, "".join(part.text for part in message.parts if isinstance(part, Refusal))
    if REFUSAL_AS_TEXT in quirks:
        text, refusal = text + refusal, ""
    calls = [_call(part, message, quirks) for part in message.parts if isinstance(part, ToolCall)]
    if text or refusal or calls:
        written: Json = _message_fields(message, quirks) | {"role": "assistant", "content": text or None}
        if any(_known(part_fields(part, message, WIRE), quirks) for part in _texts(message)):
            written["content"] = _content(Message("assistant", _texts(message, Opaque)), quirks)
        written |= {"refusal": refusal} if refusal else {}
        written |= written_reasoning(message, quirks, has_calls=bool(calls), takes_state=KNOWN_FIELDS not in quirks)
        yield written | ({"tool_calls": calls} if calls else {})


def _texts(message: Message, *others: type[Opaque]) -> tuple[Any, ...]:
    return tuple(part for part in message.parts if isinstance(part, (Text, *others)))


def _call(call: ToolCall, message: Message, quirks: frozenset[str]) -> Json:
    if call.kind != "custom":
        written = _function_call(call, arguments_text(call))
    elif NO_CUSTOM_TOOLS in quirks:
        written = _function_call(call, json.dumps({"input": arguments_text(call)}, ensure_ascii=False))
    else:
        written = {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": arguments_text(call)}}
    state = {} if KNOWN_FIELDS in quirks else message.state_of(call.block, WIRE)
    written |= pick_fields(state, ["extra_content"])  # QUIRKS 149
    return merge(written, _known(part_fields(call, message, WIRE), quirks))


def _function_call(call: ToolCall, arguments: str) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


# Results.


def _results(message: Message, quirks: frozenset[str]) -> Iterator[Json]:
    """One message per result, and a user message with the media that results cannot hold."""
    media_parts: list[Json] = []
    for result in message.results:
        media = [part for part in result.content if not isinstance(part, Text)]
        written: Json = {"role": "tool", "tool_call_id": result.call_id}
        written |= {"name": result.name} if NAME_IN_RESULTS in quirks else {}
        written |= _known(result_fields(result, WIRE), quirks)
        if media and MEDIA_IN_RESULTS not in quirks:
            yield written | {"content": result_text(result) or "The result is in the next message."}
            media_parts += [
                _part(Text(0, f"From {result.name} ({result.call_id}):")),
                *(write_or_note(_part, part) for part in media),
            ]
        else:
            content = None if KNOWN_FIELDS in quirks else result_content(result, WIRE)
            yield written | {"content": content or _result(result, quirks)}
    if media_parts:
        yield {"role": "user", "content": media_parts}


def _result(result: ToolResult, quirks: frozenset[str]) -> str | list[Json]:
    """The content of a result: a string if it is one text, or if the provider accepts only known fields."""
    is_text = all(isinstance(part, Text) for part in result.content)
    is_string = is_text and (len(result.content) < 2 or KNOWN_FIELDS in quirks)
    return result_text(result) if is_string else [write_or_note(_part, part) for part in result.content]


# Tools and options.


def _tools(request: Request, quirks: frozenset[str]) -> Json:
    written: Json = {"tools": [_tool(tool, quirks) for tool in request.tools]}
    if request.tool_choice:
        written["tool_choice"] = _choice(request, quirks)
    if request.is_parallel is not None and NO_PARALLEL_SWITCH not in quirks:
        written["parallel_tool_calls"] = request.is_parallel
    return written


def _tool(tool: ToolDeclaration, quirks: frozenset[str]) -> Json:
    if tool.hosted is not None:
        return dict(tool.hosted)
    if tool.is_custom and NO_CUSTOM_TOOLS not in quirks:
        declaration: Json = {"name": tool.name} | ({"description": tool.description} if tool.description else {})
        grammar = grammar_of(tool)
        format = {"format": {"type": "grammar", "grammar": grammar}} if grammar else pick_fields(tool.extra, ["format"])
        return {"type": "custom", "custom": declaration | format}
    schema = declared_schema(tool)
    parameters = for_grammar(schema) if GRAMMAR_FORMAT in quirks else without_lookaround(schema)
    function = {"name": tool.name, **function_description(tool), "parameters": parameters}
    return {"type": "function", "function": function | pick_fields(tool.extra, ["strict"])}


def _choice(request: Request, quirks: frozenset[str]) -> str | Json:
    tool = chosen_tool(request)
    if tool is None:
        return request.tool_choice
    kind = "custom" if tool.is_custom and NO_CUSTOM_TOOLS not in quirks else "function"
    return {"type": kind, kind: {"name": tool.name}}


def _options(request: Request, quirks: frozenset[str]) -> Json:
    names = {name: name for name in _taken(quirks)}
    names["max_tokens"] = "max_tokens" if MAX_TOKENS in quirks else "max_completion_tokens"
    names["seed"] = "random_seed" if RANDOM_SEED in quirks else "seed"
    return rename_options(request, names) | _effort(request, quirks)


def _taken(quirks: frozenset[str]) -> list[str]:
    """The options that the provider takes; `top_k` is not one of OpenAI's own."""
    return [name for name in _OPTIONS if name != "top_k" or KNOWN_FIELDS not in quirks]


def left_out(request: Request, quirks: frozenset[str]) -> list[str]:
    """The settings that are left out, because the provider does not have them."""
    switch = missing_switch(request) if NO_PARALLEL_SWITCH in quirks else []
    return [*missing_options(request, *_taken(quirks), "max_tokens", "reasoning"), *switch]


def _effort(request: Request, quirks: frozenset[str]) -> Json:
    reasoning = requested_reasoning(request)
    if reasoning is None:
        return {}
    is_budget = isinstance(reasoning, int) and reasoning > 0
    if not reasoning and not quirks.isdisjoint((THINKING_OBJECT, THINKING_ADAPTIVE, THINKING_OFF)):
        return {"thinking": {"type": "disabled"}}
    if THINKING_OBJECT in quirks:
        return {"thinking": {"type": "enabled"}}
    if THINKING_ADAPTIVE in quirks:
        return {"thinking": {"type": "adaptive"}}
    if ENABLE_THINKING in quirks:
        return {"enable_thinking": bool(reasoning)} | ({"thinking_budget": reasoning} if is_budget else {})
    effort = effort_of(reasoning) if reasoning else "none"
    if REASONING_OBJECT not in quirks:
        return {"reasoning_effort": effort}
    return {"reasoning": {"max_tokens": reasoning} if is_budget else {"effort": effort}}


def output_fields(output: OutputFormat) -> Json:
    """The fields of a request that ask for an answer in this format."""
    if output.schema is None:
        return {"response_format": {"type": "json_object"}}
    strict = {} if output.is_strict is None else {"strict": output.is_strict}
    described = {"description": output.description} if output.description else {}
    schema = {"name": output.name or "answer", **described, "schema": output.schema, **strict}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
