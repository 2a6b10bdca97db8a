"""`StreamingXMLParser`: a parser for calls in XML tags that returns text and calls instead of events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from penstock.dialects.parser import TextParser
from penstock.dialects.provenance import Provenance
from penstock.events import Error, Reasoning, StreamChunk, Text, ToolCall, ToolCallInvalid

ParserState = Literal["text", "maybe_tag", "in_tag", "in_call"]


class StreamingXMLParser:
    """A streaming parser for `<function_calls><invoke name="…"><parameter name="…">…`.

        parser = StreamingXMLParser(tools=[...])
        for token in tokens:
            text, calls = parser.feed(token)
        text, calls = parser.close()

    The text can be shown at once: it never contains a part of a tag. A call is returned when its `</invoke>` has
    arrived. Cut and malformed calls are never returned; they are in `invalid_calls`. If a returned call turns out to go
    on after that tag, because a value contains it, an error that names the call is added to `errors`.

    With `reasoning=True`, the text between `<think>` and `</think>` goes to the `reasoning` property, and calls in it
    are ignored. With `provenance`, a call that is a quotation from the conversation is in `invalid_calls`. `state` says
    whether a call is written.
    """

    def __init__(
        self, tools: Iterable[Any] | None = None, reasoning: bool = False, *, provenance: Provenance | None = None
    ) -> None:
        self._parser = TextParser("anthropic_xml", tools, reasoning, provenance=provenance, confirm="close")
        self._reasoning: list[str] = []
        self.invalid_calls: list[ToolCallInvalid] = []
        self.errors: list[Error] = []

    @property
    def state(self) -> ParserState:
        """What is being written: `text`, `maybe_tag` after a `<`, `in_tag`, or `in_call`, from its opening tag on."""
        if self._parser.is_in_call:
            return "in_call"
        held_back = self._parser.held_back.lstrip()
        if not held_back.startswith("<"):
            return "text"
        return "maybe_tag" if held_back == "<" else "in_tag"

    @property
    def reasoning(self) -> str:
        """The model's reasoning so far."""
        return "".join(self._reasoning)

    def feed(self, token: str) -> tuple[str, list[ToolCall]]:
        """Parses a piece of text, and returns the visible text and the calls that it completes."""
        return self._split(self._parser.feed(token))

    def close(self) -> tuple[str, list[ToolCall]]:
        """Ends the text, and returns what was held back."""
        return self._split(self._parser.close())

    def _split(self, events: list[StreamChunk]) -> tuple[str, list[ToolCall]]:
        self.invalid_calls += [event for event in events if isinstance(event, ToolCallInvalid)]
        self.errors += [event for event in events if isinstance(event, Error)]
        self._reasoning += [event.text for event in events if isinstance(event, Reasoning)]
        text = "".join(event.text for event in events if isinstance(event, Text))
        return text, [event for event in events if isinstance(event, ToolCall)]
