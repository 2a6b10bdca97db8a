"""The field `reasoning_details`: reasoning with signatures, merged from pieces into the form that must be sent back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Detail = dict[str, Any]
_TEXT_KEYS = ("text", "summary")


class ReasoningDetails:
    """The details of all choices of a stream, up to a limit in characters."""

    __slots__ = ("_limit", "_size", "by_choice")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.by_choice: dict[int, list[Detail]] = {}
        self._size = 0

    def add(self, choice: int, details: list[Detail]) -> bool:
        """Adds details; returns False if they go beyond the limit."""
        self._size += sum(_size(detail) for detail in details)
        if self._size > self._limit:
            return False
        _merge(self.by_choice.setdefault(choice, []), details)
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
    if last.get("type") != detail.get("type") or detail.get("type") == "reasoning.encrypted":
        return True
    if last.get("signature") and _text(detail, *_TEXT_KEYS, "signature"):
        return True
    return any(not isinstance(entry.get(key) or "", str) for entry in (last, detail) for key in _TEXT_KEYS)
