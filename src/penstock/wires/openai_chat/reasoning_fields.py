"""The vendors' fields for reasoning: its text, and the state that must be sent back with it.

A row says which servers send a field and what it holds: `text`, a `list` of details that arrive in pieces, or a
`token`, an opaque text. Lists and tokens become `Opaque` and go back to the server in their own field, a token together
with the text of its `text_field`. Text alone goes back only where the row of the provider says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

Detail = dict[str, Any]


class VendorField(Struct, frozen=True):
    """A field of a message or delta that holds reasoning."""

    name: str
    holds: Literal["text", "list", "token"]
    servers: str
    text_field: str = ""


VENDOR_FIELDS = (
    VendorField("reasoning_content", "text", "DeepSeek, DashScope, Z.ai, xAI, SGLang, llama.cpp, litellm"),
    VendorField("reasoning", "text", "Groq, Cerebras, OpenRouter, vLLM, StepFun"),
    VendorField("thinking", "text", "gateways"),
    VendorField("thought", "text", "gateways"),
    VendorField("reasoning_text", "text", "GitHub Copilot"),
    VendorField("cot_summary", "text", "GitHub Copilot"),
    VendorField("thoughts", "text", "gateways"),
    VendorField("thinking_content", "text", "gateways"),
    VendorField("reasoning_details", "list", "OpenRouter, MiniMax, Snowflake"),
    VendorField("thinking_blocks", "list", "litellm"),
    VendorField("reasoning_opaque", "token", "GitHub Copilot", "reasoning_text"),
    VendorField("cot_id", "token", "GitHub Copilot", "cot_summary"),
)
"""The fields; of those with text, the first that has any counts (QUIRKS 81, 82, 175)."""
TEXT_FIELDS = tuple(field.name for field in VENDOR_FIELDS if field.holds == "text")
LIST_FIELDS = tuple(field.name for field in VENDOR_FIELDS if field.holds == "list")
TOKEN_FIELDS = {field.name: field.text_field for field in VENDOR_FIELDS if field.holds == "token"}
"""The fields with a token, each with the field of the text that goes back with it."""
STATE_FIELDS = (*LIST_FIELDS, *TOKEN_FIELDS)
ECHOED_FIELDS = ("reasoning_content", "reasoning", *TOKEN_FIELDS.values())
"""The text fields that servers take back."""

_TEXT_KEYS = ("text", "summary", "thinking")
_ALONE = ("reasoning.encrypted", "redacted_thinking")
"""The types of details that are never continued."""


class ReasoningState:
    """The state on reasoning of all choices of a stream, up to a limit in characters."""

    __slots__ = ("_limit", "_size", "by_choice")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self.by_choice: dict[int, dict[str, Any]] = {}

    def add(self, choice: int, field: str, details: list[Detail]) -> bool:
        """Adds details; returns False if they go beyond the limit."""
        self._size += sum(_size(detail) for detail in details)
        if self._size > self._limit:
            return False
        _merge(self.by_choice.setdefault(choice, {}).setdefault(field, []), details)
        return True

    def set(self, choice: int, field: str, token: str) -> bool:
        """Sets a token, which comes once (QUIRKS 175); returns False beyond the limit, or if it has another value."""
        if not token:
            return True
        known = self.by_choice.setdefault(choice, {})
        if known.get(field, token) != token or self._size + len(token) > self._limit:
            return False
        if field not in known:
            self._size += len(token)
            known[field] = token
        return True


def detail_texts(details: Iterable[Any]) -> Iterator[str]:
    """Yields the text of each detail; some details are only a string."""
    for detail in details:
        yield detail if isinstance(detail, str) else _text(detail, *_TEXT_KEYS)


def _text(detail: Any, *keys: str) -> str:
    texts = (detail.get(key) for key in keys) if isinstance(detail, dict) else ()
    return next((text for text in texts if isinstance(text, str) and text), "")


def _size(detail: Detail) -> int:
    return sum(len(field) if isinstance(field, str) else 64 for field in detail.values())


def _merge(merged: list[Detail], details: list[Detail]) -> None:
    """Joins consecutive details of one type: text is joined, a signature ends it (QUIRKS 83)."""
    for detail in details:
        if not merged or _is_another(merged[-1], detail):
            merged.append(dict(detail))
            continue
        last = merged[-1]
        for key, value in detail.items():
            if key in _TEXT_KEYS and isinstance(value, str) and isinstance(last.get(key), str):
                text = last.pop(key)  # with one reference it grows in place (decision 6)
                text += value
                last[key] = text
            elif value is not None:
                last[key] = value


def _is_another(last: Detail, detail: Detail) -> bool:
    """Whether a detail does not continue the last one."""
    if last.get("type") != detail.get("type") or detail.get("type") in _ALONE:
        return True
    if last.get("signature") and _text(detail, *_TEXT_KEYS, "signature"):
        return True
    return any(not isinstance(entry.get(key) or "", str) for entry in (last, detail) for key in _TEXT_KEYS)
