"""`StreamingXMLParser`: the XML form of calls, for those who want the text and the calls and no events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.dialects.parser import TextParser
from penstock.events import Reasoning, StreamChunk, Text, ToolCall, ToolCallInvalid


class StreamingXMLParser:
    """Finds `<function_calls><invoke name="…"><parameter name="…">…` in text while it streams.

        parser = StreamingXMLParser(tools=[...])
        for token in tokens:
            text, calls = parser.feed(token)
        text, calls = parser.close()

    The text can be shown at once: no piece of a tag is ever in it. A call is given when its `</invoke>` has come; one
    that was cut or broken is never given, it is in `invalid_calls`. With `reasoning`, what stands between `<think>` and
    `</think>` is in the property of that name and not in the text, and calls in it are talk.
    """

    def __init__(self, tools: Iterable[Any] | None = None, reasoning: bool = False) -> None:
        self._parser = TextParser("anthropic_xml", tools, reasoning)
        self._thoughts: list[str] = []
        self.invalid_calls: list[ToolCallInvalid] = []

    @property
    def reasoning(self) -> str:
        """The model's reasoning so far."""
        return "".join(self._thoughts)

    def feed(self, token: str) -> tuple[str, list[ToolCall]]:
        """The text that can be shown, and the calls that have become whole."""
        return self._sorted(self._parser.feed(token))

    def close(self) -> tuple[str, list[ToolCall]]:
        """What was still held back."""
        return self._sorted(self._parser.close())

    def _sorted(self, events: list[StreamChunk]) -> tuple[str, list[ToolCall]]:
        self.invalid_calls += [event for event in events if isinstance(event, ToolCallInvalid)]
        self._thoughts += [event.text for event in events if isinstance(event, Reasoning)]
        text = "".join(event.text for event in events if isinstance(event, Text))
        return text, [event for event in events if isinstance(event, ToolCall)]
