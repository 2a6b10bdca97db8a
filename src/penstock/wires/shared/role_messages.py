"""Messages of a role and a content: OpenAI's Chat Completions, Anthropic, Ollama, Cohere, Mistral and all their like.

Their parts tell themselves apart, so that the shapes may be mixed. Where only the whole tells whose a message is
(`cache_control` on a text), the wire is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from penstock.messages import FIELDS, MESSAGE, ToolResult
from penstock.wires.anthropic import decode_request as anthropic
from penstock.wires.ollama import decode_request as ollama
from penstock.wires.shared.content_parts import show
from penstock.wires.shared.fields import (
    ADVICE,
    Json,
    contents,
    kind_of,
    mapping,
    mappings,
    nested,
    refused,
    rest,
    string,
)
from penstock.wires.shared.message_parts import Parts, result
from penstock.wires.shared.places import Placed, answers
from penstock.wires.shared.unnamed_calls import Calls

WIRE = "openai-chat"

_SAID = (
    "role", "content", "tool_calls", "function_call", "refusal", "audio", "reasoning", "reasoning_content",
    "reasoning_details", "thinking", "tool_plan", "images", "container",
)  # fmt: skip
_REASONING = ("reasoning_content", "reasoning")
_RESULT = ("role", "content", "tool_call_id", "tool_name", "name", "is_error", "images")


def is_only_chat(message: Json) -> bool:
    """Whether a message is none that could be an item of Responses."""
    has_calls = bool(message.get("tool_calls") or message.get("function_call"))
    return has_calls or message.get("role") not in ("system", "developer", "user", "assistant")


def read(message: Json, place: str, calls: Calls, wire: str) -> Iterator[Placed]:
    """The messages that one message is; one with results among what the user says is several."""
    match message.get("role"):
        case "system" | "developer":
            yield system(message, place, wire)
        case "user":
            yield from _user(message, place, calls, wire)
        case "assistant":
            yield _assistant(message, place, calls, wire)
        case "tool" | "function":
            yield answers([(place, _result(message, place, calls, wire))], place, is_item=True)
        case None:
            raise refused(place, f"has no role, only: {', '.join(map(str, message)) or 'nothing'}: {ADVICE}")
        case role:
            raise refused(place, f"has the role {role!r}: give system, developer, user, assistant or tool")


def system(message: Json, place: str, wire: str) -> Placed:
    """What the model is told before all else."""
    parts = Parts(wire, Calls(), place)
    _told(parts, message.get("content"), f"{place}.content")
    _keep(parts, rest(message, ("role", "content")), place)
    return parts.build("system")


def system_field(content: Any, place: str) -> Placed:
    """The same, in a field of the request."""
    parts = Parts(anthropic.WIRE, Calls(), place)
    _told(parts, content, place)
    return parts.build("system")


def _told(parts: Parts, content: Any, place: str) -> None:
    for at, part in contents(content, place):
        parts.at = at
        match part:
            case {"type": "text" | "input_text", "text": str()}:
                show(parts, part, at)
            case _:
                raise refused(at, f"{kind_of(part)} has no place in a message of the system: give text")


def _keep(parts: Parts, beside: Json, place: str) -> None:
    """Keep the fields of a message that have no word of ours; Anthropic's have no others."""
    if beside:
        parts.at = place
        parts.whole(MESSAGE, beside, WIRE if parts.wire == anthropic.WIRE else "")


# What people and tools say.


def _user(message: Json, place: str, calls: Calls, wire: str) -> Iterator[Placed]:
    """What the user said; results among it, where Anthropic puts them, are messages of their own, in the order."""
    given = [*contents(message.get("content"), f"{place}.content"), *ollama.images(message, place)]
    beside = rest(message, ("role", "content", "images"))
    for is_result, group in groupby(given, key=lambda item: item[1].get("type") == "tool_result"):
        if is_result:
            yield answers([(at, anthropic.result_of(part, at, calls)) for at, part in group], place)
        else:
            yield _said([*group], beside, Parts(wire, calls, place), place)
    if not given:
        yield _said([], beside, Parts(wire, calls, place), place)


def _said(given: list[tuple[str, Json]], beside: Json, parts: Parts, place: str) -> Placed:
    for at, part in given:
        parts.at = at
        show(parts, part, at)
    _keep(parts, beside, place)
    return parts.build("user")


def _result(message: Json, place: str, calls: Calls, wire: str) -> ToolResult:
    """A result; the older way, and Ollama's, name the tool instead of the call."""
    content = message.get("content")
    shown = Parts(wire, calls, place)
    for at, part in [*contents(content, f"{place}.content"), *ollama.images(message, place)]:
        show(shown, part, at)
    if message["role"] == "function":
        call_id = calls.matching(string(message, "name", place))
    elif not message.get("tool_call_id") and (message.get("tool_name") or wire == ollama.WIRE):
        call_id = calls.matching(str(message.get("tool_name") or ""))
    else:
        call_id = string(message, "tool_call_id", place)
    named = string(message, "name", place) or string(message, "tool_name", place)
    name = named or ("" if message["role"] == "function" else None)
    is_error = bool(message.get("is_error"))
    fields = rest(message, _RESULT)
    return result(call_id, shown, calls, name=name, is_error=is_error, fields=fields, content=content)


# What the model said.


def _assistant(message: Json, place: str, calls: Calls, wire: str) -> Placed:
    parts = Parts(wire, calls, place)
    if message.get("audio"):
        raise refused(f"{place}.audio", "what the model spoke has no place here: give its transcript as content")
    _reasoning(parts, message, place)
    for at, part in contents(message.get("content"), f"{place}.content"):
        parts.at = at
        _part(parts, part, at)
    if message.get("refusal"):
        parts.at = f"{place}.refusal"
        parts.refusal(str(message["refusal"]))
    if message.get("tool_plan"):
        parts.at = f"{place}.tool_plan"
        parts.whole("tool_plan", str(message["tool_plan"]), "cohere")
    for at, call in mappings(message.get("tool_calls") or (), f"{place}.tool_calls"):
        parts.at = at
        _call(parts, call, at, calls)
    if message.get("function_call"):
        parts.at = at = f"{place}.function_call"
        function = mapping(message["function_call"], at)
        name = string(function, "name", at)
        parts.call(calls.made_up(name), name, function.get("arguments"), at)
    if message.get("container"):
        parts.at = f"{place}.container"
        parts.whole("container", message["container"], anthropic.WIRE)
    if (
        "stop_reason" not in message and message.get("type") != "message"
    ):  # an answer of Anthropic's client, whose other fields are about that answer
        others = {
            field: message[field] for field in _REASONING if message.get(field) not in (None, "", _thinking(message))
        }
        _keep(parts, {**rest(message, _SAID), **others}, place)
    return parts.build("assistant")


def _reasoning(parts: Parts, message: Json, place: str) -> None:
    """The fields in which those who speak Chat Completions have it; its words may stand in two (QUIRKS 81, 82)."""
    details: Any = message.get("reasoning_details")
    if details and not isinstance(details, list):
        raise refused(f"{place}.reasoning_details", f"is a {type(details).__name__}: give a list")
    told = _thinking(message)
    if details or told:
        fields = (*_REASONING, "thinking", "reasoning_details")
        parts.at = f"{place}.{next(field for field in fields if message.get(field))}"
        block = parts.reasoning(told)
        parts.state(
            block, "reasoning_fields", [field for field in _REASONING if told and message.get(field) == told], WIRE
        )
        parts.state(block, "reasoning_details", details, WIRE)


def _thinking(message: Json) -> str:
    """What the model thought, in the first field that has it."""
    return next((str(message[field]) for field in (*_REASONING, "thinking") if message.get(field)), "")


def _part(parts: Parts, part: Json, at: str) -> None:
    match part:
        case {"type": "text", "text": str(text)}:
            block = parts.text(text)
            parts.state(block, "citations", part.get("citations"), anthropic.WIRE)
            parts.state(block, FIELDS, rest(part, ("type", "text", "citations", "parsed")))
        case {"type": "output_text", "text": str(text)}:
            parts.text(text, rest(part, ("type", "text", "parsed")), "openai-responses")
        case {"type": "refusal", "refusal": str(text)}:
            parts.refusal(text)
        case {"type": "thinking", "thinking": [*pieces]}:  # Mistral's
            parts.reasoning("".join(_thought(piece, at) for piece in pieces))
        case _:
            if not anthropic.said(parts, part, at):
                raise refused(at, f"{kind_of(part)} is no part of an answer that is known")


def _thought(piece: Any, at: str) -> str:
    match piece if isinstance(piece, str) else mapping(piece, at):
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case _:
            raise refused(at, "a thought holds text only")


def _call(parts: Parts, call: Json, at: str, calls: Calls) -> None:
    match call:
        case {"function": function}:
            inner = mapping(function, f"{at}.function")
            is_unnamed = not call.get("id") and ollama.is_call(call)
            name = string(inner, "name", f"{at}.function")
            id = calls.made_up(name) if is_unnamed else string(call, "id", at)
            block = parts.call(id, name, inner.get("arguments"), at)
        case {"custom": custom}:
            inner = mapping(custom, f"{at}.custom")
            id, name = string(call, "id", at), string(inner, "name", f"{at}.custom")
            block = parts.call(id, name, inner.get("input"), at, "custom")
        case _:
            raise refused(at, "is neither a function's call nor a custom one")
    parts.state(block, "extra_content", call.get("extra_content"), WIRE)  # QUIRKS 149
    beside = rest(call, ("id", "type", "function", "custom", "extra_content"))
    kind = "function" if "function" in call else "custom"
    parts.state(block, FIELDS, beside | nested(kind, rest(inner, ("name", "arguments", "input"))))
