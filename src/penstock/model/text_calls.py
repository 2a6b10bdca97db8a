"""Tool calls in the text of a response: the prompt that asks for them, and the stage that finds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.declarations import ToolDeclaration
from penstock.decoder import Decoder
from penstock.events import StreamChunk
from penstock.messages import Message
from penstock.transport.exchange import Decoding

if TYPE_CHECKING:
    from penstock.dialects.stage import TextCalls


def prompt_for_calls(
    dialect: str, messages: list[Message], tools: list[ToolDeclaration], options: dict[str, Any]
) -> tuple[list[Message], dict[str, Any]]:
    """The messages and the options for a model that writes its calls in a dialect."""
    from penstock.dialects.prompt import find_prompt, render

    stop = options.get("stop") or ()
    stops = [*([stop] if isinstance(stop, str) else stop), *(find_prompt(dialect).stop if tools else ())]
    return render(messages, tools, dialect), {**options, "stop": stops} if stops else options


def find_calls(
    decoder: Decoder, calls: str, rescue: bool | Iterable[str], tools: list[ToolDeclaration], id_prefix: str
) -> Decoding:
    """The decoder, with a stage behind it that finds calls in the text if `calls` or `rescue` asks for it."""
    if calls == "native" and not (rescue and tools):
        return decoder
    from penstock.dialects.rescue import LEAKS, Rescue
    from penstock.dialects.stage import TextCalls

    if calls != "native":
        return _TextCallDecoding(decoder, TextCalls(calls, tools, reasoning=True, id_prefix=id_prefix))
    dialects = LEAKS if rescue is True else rescue or ()
    return _TextCallDecoding(decoder, Rescue(tools, dialects, id_prefix=f"text_{id_prefix}"))


class _TextCallDecoding:
    """Two stages as one: bytes to chunks, and calls out of the text."""

    def __init__(self, decoder: Decoder, stage: TextCalls) -> None:
        self._decoder = decoder
        self._stage = stage

    def feed(self, data: bytes) -> list[StreamChunk]:
        return self._through(self._decoder.feed(data))

    def close(self) -> list[StreamChunk]:
        return self._through(self._decoder.close()) + self._stage.close()

    def _through(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        return [found for chunk in chunks for found in self._stage.feed(chunk)]
