"""Request bodies, validated by the vendors' own types."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

from penstock import Message, Text, ToolCall
from penstock.declarations import ToolDeclaration
from penstock.messages import assistant, image, result, system, tool_results, user
from penstock.wires import find_encoder
from penstock.wires.shared.request import EncodedRequest, Request

WIRES = ("anthropic", "bedrock", "gemini", "ollama", "cohere")
MODELS = {
    "anthropic": "claude-haiku-4-5", "bedrock": "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
    "gemini": "gemini-2.5-flash", "ollama": "qwen3", "cohere": "command-a-03-2025",
}  # fmt: skip

CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolDeclaration("weather", "The weather in a city.", CITY)
ROME = ToolCall("call_1", "weather", {"city": "Rome"}, block=1)
OSLO = ToolCall("call_2", "weather", {"city": "Oslo"}, block=2)
PICTURE = image(b"\x89PNG", "image/png")
HISTORY = (
    system("Be brief."),
    user("Where is this?", PICTURE),
    assistant(Text(0, "Let me look."), ROME, OSLO),
    tool_results(result(OSLO, "no such city", is_error=True)),
    tool_results(result(ROME, "sunny")),
    user("And now?"),
)


def sent(wire: str, *messages: Message, model: str = "", **fields: Any) -> EncodedRequest:
    """The request as it is sent, validated by the vendor's types."""
    request = Request(model=model or MODELS[wire], messages=messages or (user("Hi"),), **fields)
    written = find_encoder(wire)(request, frozenset())
    body = json.loads(json.dumps(written.body))
    JUDGES[wire](body)
    return EncodedRequest(written.path, body)


def body(wire: str, *messages: Message, **fields: Any) -> dict[str, Any]:
    return sent(wire, *messages, **fields).body


def answer(wire: str, *parts: Any, **fields: Any) -> Any:
    """The content of an assistant message as it is sent back."""
    return assistant_content(wire, body(wire, user("Hi"), Message("assistant", parts), **fields))


def assistant_content(wire: str, written: dict[str, Any]) -> Any:
    messages = written["contents" if wire == "gemini" else "messages"]
    turns = [message for message in messages if message["role"] in ("assistant", "model")]
    whole = turns[-1] if turns else {}
    return whole if wire in ("ollama", "cohere") else whole.get("parts" if wire == "gemini" else "content", [])


# The judges.


@functools.cache  # pydantic's lazy iterables need it alive
def anthropic_body(is_streaming: bool) -> Any:
    from anthropic.types.beta import message_create_params as params  # those of today, and MCP
    from pydantic import TypeAdapter

    kinds: Any = (params.MessageCreateParamsNonStreaming, params.MessageCreateParamsStreaming)
    return TypeAdapter(kinds[is_streaming])


def judge_anthropic(written: dict[str, Any]) -> None:
    known = {key: value for key, value in written.items() if key not in ("temperature", "top_p", "top_k")}
    taken = anthropic_body(written["stream"]).validate_python(known)  # the newest types know no sampling
    assert walked(taken) == walked(known)


def walked(value: Any) -> Any:
    """The fields that pydantic knows: iterables, which are lazy, as lists, and nulls left out."""
    if hasattr(value, "model_dump"):
        return walked(value.model_dump(exclude_unset=True))
    if isinstance(value, dict):
        return {key: walked(item) for key, item in value.items() if item is not None}
    return value if isinstance(value, str) or not hasattr(value, "__iter__") else [walked(item) for item in value]


@functools.cache
def converse() -> Any:
    import botocore.session

    return botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("ConverseStream")


def judge_bedrock(written: dict[str, Any]) -> None:
    from botocore.validate import ParamValidator

    for data in blobs(written):
        base64.b64decode(data, validate=True)
    report = ParamValidator().validate({"modelId": "m", **written}, converse().input_shape)
    assert not report.has_errors(), report.generate_report()


def blobs(value: Any) -> Iterator[str]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key in ("bytes", "redactedContent"):
            yield item
        else:
            yield from blobs(item)


def judge_gemini(written: dict[str, Any]) -> None:
    from google.genai import types

    kinds = {"contents": types.Content, "systemInstruction": types.Content, "tools": types.Tool,
             "toolConfig": types.ToolConfig, "generationConfig": types.GenerationConfig}  # fmt: skip
    for key, value in written.items():
        for item in value if isinstance(value, list) else [value]:
            if key != "continuationToken":
                kinds[key].model_validate_json(json.dumps(item))


def judge_ollama(written: dict[str, Any]) -> None:
    from ollama._types import ChatRequest, Image, Message

    ChatRequest.model_validate(written, strict=True)
    for message in written["messages"]:
        images = {"images": [Image(value=data) for data in message["images"]]} if "images" in message else {}
        taken = Message.model_validate({**message, **images}).model_dump(exclude_none=True)
        assert set(message) - set(taken) <= {"tool_call_id"}


def judge_cohere(written: dict[str, Any]) -> None:
    from cohere import ChatMessageV2, Thinking, ToolV2
    from pydantic import TypeAdapter

    for key, kind in (("messages", ChatMessageV2), ("tools", ToolV2)):
        for item in written.get(key, ()):
            taken: Any = TypeAdapter(kind).validate_python(item)
            assert not taken.model_extra
    if "thinking" in written:
        Thinking.model_validate(written["thinking"])


JUDGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "anthropic": judge_anthropic, "bedrock": judge_bedrock, "gemini": judge_gemini, "ollama": judge_ollama,
    "cohere": judge_cohere,
}  # fmt: skip
