"""Anthropic's blocks: what they hold beside what OpenAI's parts hold, in answers and in what the user says."""

from __future__ import annotations

from penstock.messages import FIELDS, ToolResult
from penstock.wires.shared.content_parts import show
from penstock.wires.shared.fields import Json, contents, rest, string
from penstock.wires.shared.message_parts import Parts, result
from penstock.wires.shared.unnamed_calls import Calls

WIRE = "anthropic"

# The blocks that the wire keeps whole, and the fields of a call that it keeps beside it.
_STATE_BLOCKS = ("redacted_thinking", "compaction", "container_upload", "fallback", "mcp_tool_listing", "search_result")
_STATE_ENDINGS = ("_tool_use", "_tool_result")
_CALL_STATES = ("caller", "toolset_name")
_USUAL_CALLER = {"type": "direct"}
_RESULT = ("type", "tool_use_id", "content", "is_error", "name", "toolset_name")

BLOCKS = {"tool_use", "tool_result", *_STATE_BLOCKS}


def is_block(part: Json) -> bool:
    """Whether a part is one that only Anthropic writes."""
    kind = part.get("type")
    if not isinstance(kind, str):
        return False
    if kind == "thinking":
        return "signature" in part  # others think too
    return kind in BLOCKS or kind.endswith(_STATE_ENDINGS) or (kind in ("image", "document") and "source" in part)


def said(parts: Parts, part: Json, at: str) -> bool:
    """Add a block of an answer; whether it is one of Anthropic's."""
    match part:
        case {"type": "thinking", "thinking": str(text)}:
            block = parts.reasoning(text)
            parts.state(block, "signature", part.get("signature"), WIRE)
            parts.state(block, FIELDS, rest(part, ("type", "thinking", "signature")), WIRE)
        case {"type": "tool_use"}:
            block = parts.call(string(part, "id", at), string(part, "name", at), part.get("input"), at)
            for kind in _CALL_STATES:
                if part.get(kind) != _USUAL_CALLER:
                    parts.state(block, kind, part.get(kind), WIRE)
            parts.state(block, FIELDS, rest(part, ("type", "id", "name", "input", *_CALL_STATES)), WIRE)
        case {"type": "tool_result"}:
            parts.answer(result_of(part, at, parts.calls))
        case {"type": str(kind)} if kind in _STATE_BLOCKS or kind.endswith(_STATE_ENDINGS):
            parts.whole(kind, part, WIRE)
        case _:
            return False
    return True


def result_of(part: Json, at: str, calls: Calls) -> ToolResult:
    """A result, which is a block of the user's."""
    content = part.get("content")
    shown = Parts(WIRE, calls, at)
    for place, inner in contents(content, f"{at}.content"):
        show(shown, inner, place)
    call_id = string(part, "tool_use_id", at)
    name, is_error = string(part, "name", at) or None, bool(part.get("is_error"))
    return result(call_id, shown, calls, name=name, is_error=is_error, fields=rest(part, _RESULT), content=content)
