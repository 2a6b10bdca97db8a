"""What the model of a walk says: the frames of its two responses, on Chat Completions."""

from __future__ import annotations

import json
import re
from typing import Any

PROSE = (
    "Before a quick answer: the quiet brown fox jumps over the lazy dog, and we check the weather in both cities. Rome"
    " is mild and hazy with a few extra clouds, while Oslo has just had a vivid, breezy and quiet morning of frost."
)
PIECES = re.findall(r" ?\w+|[^\w\s]", PROSE)
"""Prose with every letter of the alphabet, a word or a punctuation mark per chunk, as models stream it."""
MARKED_PIECES = [f" <b>{word}</b>" for word in PROSE.split()]
"""The same words as Markdown with HTML: each chunk contains a character with which marks of calls begin."""
WARM_UP = 8
"""How many texts come before those that are counted: the first ones import modules and start threads."""

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Look up the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [
    {"type": "function", "function": WEATHER | {"name": name}}
    for name in ("weather", "search", "read_file", "write_file", "run_command")
]
"""The five tools that the client of a gateway declares."""


def responses(pieces: list[str], *, has_calls: bool) -> list[list[dict[str, Any]]]:
    """The deltas of each response: text and two calls, then an answer; without calls only the text."""
    texts: list[dict[str, Any]] = [{"content": piece} for piece in pieces]
    if not has_calls:
        return [texts]
    return [[*texts, *_call_pieces(0, "Rome"), *_call_pieces(1, "Oslo")], [{"content": "Sunny in both."}]]


def _call_pieces(index: int, city: str) -> list[dict[str, Any]]:
    first: dict[str, Any] = {
        "index": index,
        "id": f"call_{index}",
        "type": "function",
        "function": {"name": "weather", "arguments": ""},
    }
    pieces = [{"index": index, "function": {"arguments": piece}} for piece in ('{"city": ', f'"{city}"}}')]
    return [{"tool_calls": [piece]} for piece in (first, *pieces)]


def frames(deltas: list[dict[str, Any]]) -> list[str]:
    """A Chat Completions stream with these deltas."""
    reason = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
    choices: list[dict[str, Any]] = [*({"delta": delta} for delta in deltas), {"delta": {}, "finish_reason": reason}]
    chunks = [{"id": "x", "model": "m", "choices": [{"index": 0, **choice}]} for choice in choices]
    return [*map(json.dumps, chunks), "[DONE]"]
