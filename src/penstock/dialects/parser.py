"""`TextParser`: a streaming parser for text that contains tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.calls.numbering import Numbering
from penstock.dialects.provenance import Provenance
from penstock.dialects.reading.reader import Reader
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.source import Source
from penstock.dialects.registry import find_dialects
from penstock.errors import UsageError, type_name
from penstock.events import Confirm, StreamChunk
from penstock.jsontext.surrogates import SurrogateJoiner


class TextParser:
    """A streaming parser that finds tool calls in a model's text.

        parser = TextParser("hermes", tools=[...])
        for piece in pieces:
            for event in parser.feed(piece): ...
        for event in parser.close(): ...

    The events do not depend on how the text is cut. `dialect` may be a list of several. `tools` (functions, or
    declarations in any provider's format) give raw values their types. With `reasoning`, text between reasoning
    marks becomes `Reasoning` events. With `inside_reasoning`, the text starts inside the reasoning: the prompt
    ended with the opening mark. With `provenance`, a call that is a quotation from the conversation is invalid.

    In dialects with raw values a call is confirmed by the end of the text or by another call right after it, because
    a value may contain the call's end tags. With `confirm="close"` it is returned at its end tags.
    """

    def __init__(
        self,
        dialect: str | Iterable[str],
        tools: Iterable[Any] | None = None,
        reasoning: bool = False,
        inside_reasoning: bool = False,
        *,
        id_prefix: str = "call_",
        provenance: Provenance | None = None,
        confirm: Confirm = "end",
    ) -> None:
        source = Source(Tools(tools), Numbering(id_prefix), provenance=provenance, confirm=confirm)
        self._reader = Reader(
            source,
            find_dialects(*([dialect] if isinstance(dialect, str) else dialect)),
            splits_reasoning=reasoning or inside_reasoning,
            starts_inside=inside_reasoning,
        )
        self._joiner = SurrogateJoiner()
        self._is_closed = False

    def feed(self, text: str) -> list[StreamChunk]:
        """Parses a piece of text, and returns the events that it completes."""
        if self._is_closed:
            raise UsageError("this parser is closed: create a new one for each text")
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
            raise UsageError(f"a parser reads text, not {type_name(text)}: skip chunks without text, and decode bytes")
        if not text.isascii() or self._joiner.pending:
            text = self._joiner.feed(text)
        return self._reader.feed(text)

    @property
    def is_in_call(self) -> bool:
        """Whether a call is being written, or the block around calls."""
        return not self._is_closed and self._reader.is_in_call

    @property
    def held_back(self) -> str:
        """The end of the text so far that is held back because it may begin a call."""
        return "" if self._is_closed else self._reader.held_back

    def close(self, *, cut: bool = False) -> list[StreamChunk]:
        """Ends the text, and returns the events that were held back: half a mark as text, an unfinished call.

        Pass `cut=True` if the model did not finish its text, for example because of a token limit or a lost connection.
        A call without a closing mark of its own is then invalid.
        """
        if self._is_closed:
            return []
        self._is_closed = True
        half = self._joiner.close()
        return (self._reader.feed(half) if half else []) + self._reader.close(is_cut=cut)
