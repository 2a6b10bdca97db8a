"""Text to events: `TextParser`, for text in which a model writes its calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.calls.numbering import Numbering
from penstock.dialects.reading.reader import Reader
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.source import Source
from penstock.dialects.registry import find_dialect
from penstock.errors import UsageError
from penstock.events import StreamChunk
from penstock.jsontext.surrogates import SurrogateJoiner


class TextParser:
    """Finds the calls in a model's text while it streams: feed it pieces, close it when they are over.

        parser = TextParser("hermes", tools=[...])
        for piece in pieces:
            for event in parser.feed(piece): ...
        for event in parser.close(): ...

    However the text is cut, the events are the same. `tools` (declarations in any provider's shape) say how raw values
    are typed. With `reasoning`, what stands between reasoning marks comes out as `Reasoning`; with `inside_reasoning`
    the text starts within them, as it does where the prompt ends with the opening mark.
    """

    def __init__(
        self,
        dialect: str,
        tools: Iterable[Any] | None = None,
        reasoning: bool = False,
        inside_reasoning: bool = False,
        *,
        id_prefix: str = "call_",
    ) -> None:
        name, row = find_dialect(dialect)
        source = Source(Tools(tools), Numbering(id_prefix))
        is_split = reasoning or inside_reasoning
        self._reader = Reader(source, {name: row}, reasoning=is_split, inside=inside_reasoning)
        self._joiner = SurrogateJoiner()
        self._is_closed = False

    def feed(self, text: str) -> list[StreamChunk]:
        """The events that this piece completes."""
        if self._is_closed:
            raise UsageError("this parser is closed: make a new one for each text")
        if not text.isascii() or self._joiner.pending:
            text = self._joiner.feed(text)
        return self._reader.feed(text)

    def close(self, *, cut: bool = False) -> list[StreamChunk]:
        """The events that were still held back: text that might have been a mark, a call that was cut.

        Say `cut` if the model had not ended its text, as at a limit of tokens or a lost connection: a call that nothing
        but the end of the text ended is invalid then.
        """
        if self._is_closed:
            return []
        self._is_closed = True
        half = self._joiner.close()
        return (self._reader.feed(half) if half else []) + self._reader.close(is_cut=cut)
