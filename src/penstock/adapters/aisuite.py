"""AISuite: an accumulator with calls in OpenAI's shape, and any provider's stream as Chat Completions chunks."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from penstock.adapters import accumulator
from penstock.adapters.responses import Failures, json_arguments
from penstock.events import Finish, Refusal, StreamChunk, Text, ToolCall
from penstock.turn import check_iterable


@dataclass(frozen=True)
class Function:
    """The name of the tool, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ChatCompletionMessageToolCall:
    """A complete call."""

    id: str
    function: Function
    type: Literal["function"] = "function"


class StreamingToolCallAccumulator:
    """Penstock's accumulator, with complete calls as `ChatCompletionMessageToolCall`s."""

    def __init__(self, tools: Iterable[Any] | None = None) -> None:
        self._calls = accumulator.StreamingToolCallAccumulator(tools)

    def add_chunk(self, tool_call_deltas: Any) -> None:
        """Adds the deltas of a chunk: its `choices[0].delta.tool_calls`, or the whole chunk."""
        self._calls.add_chunk(tool_call_deltas)

    @property
    def tool_calls(self) -> dict[int, dict[str, Any]]:
        """All calls so far by their index, complete or not."""
        return self._calls.tool_calls

    def has_complete_tool_calls(self) -> bool:
        """Whether any call is complete."""
        return self._calls.has_complete_tool_calls()

    def get_complete_tool_calls(self) -> list[ChatCompletionMessageToolCall]:
        """The complete calls, in order."""
        return [
            ChatCompletionMessageToolCall(call.id, Function(call.name, json_arguments(call)))
            for call in self._calls.get_complete_tool_calls()
        ]

    def clear(self) -> None:
        """Forgets the complete calls, and keeps those that are still being written."""
        self._calls.clear(only_complete=True)


@dataclass(frozen=True)
class ChoiceDeltaToolCall:
    """A call in a chunk."""

    index: int
    id: str
    function: Function
    type: Literal["function"] = "function"


@dataclass(frozen=True)
class ChoiceDelta:
    """The content of a chunk: text, or calls."""

    content: str | None = None
    tool_calls: list[ChoiceDeltaToolCall] | None = None


@dataclass(frozen=True)
class Choice:
    """The only choice of a chunk."""

    delta: ChoiceDelta
    finish_reason: str | None = None
    index: int = 0


@dataclass(frozen=True)
class ChatCompletionChunk:
    """A chunk in the shape of Chat Completions."""

    choices: list[Choice]


def chunks(events: Iterable[StreamChunk]) -> Iterator[ChatCompletionChunk]:
    """Any provider's events as chunks of Chat Completions; a call arrives in one chunk, when it is confirmed.

    Raises a `ProviderError` for an error in the stream, and for a response with nothing but invalid calls.
    """
    check_iterable(events, "stream")
    numbers, failures = count(), Failures()
    for event in events:
        failures.check(event)
        yield from _chunk(event, numbers)


async def achunks(events: AsyncIterable[StreamChunk]) -> AsyncIterator[ChatCompletionChunk]:
    """`chunks` for async events."""
    numbers, failures = count(), Failures()
    async for event in events:
        failures.check(event)
        for chunk in _chunk(event, numbers):
            yield chunk


def _chunk(event: StreamChunk, numbers: Iterator[int]) -> Iterator[ChatCompletionChunk]:
    match event:
        case Text() | Refusal():
            yield ChatCompletionChunk([Choice(ChoiceDelta(content=event.text))])
        case ToolCall():
            call = ChoiceDeltaToolCall(next(numbers), event.id, Function(event.name, json_arguments(event)))
            yield ChatCompletionChunk([Choice(ChoiceDelta(tool_calls=[call]))])
        case Finish():
            yield ChatCompletionChunk([Choice(ChoiceDelta(), event.reason)])
        case _:
            pass
