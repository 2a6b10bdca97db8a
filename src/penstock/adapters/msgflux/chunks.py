"""The typed chunks of msgflux, and a model that streams them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from penstock.adapters.responses import Failures
from penstock.agent.config import checked_model
from penstock.errors import UsageError
from penstock.events import Reasoning, Refusal, Text, ToolCall, Usage
from penstock.events import StreamChunk as ModelChunk
from penstock.model.model import Model
from penstock.model.options import RequestOptions


@dataclass
class ToolCallBuffer:
    """A call in progress."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass
class ToolCallComplete:
    """A complete call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str

    def get_params(self) -> dict[str, Any]:
        """The parsed arguments."""
        params: dict[str, Any] = json.loads(self.arguments) if self.arguments else {}
        return params


@dataclass
class StreamChunk:
    """A chunk of a response."""

    type: Literal["text", "reasoning", "tool_call", "usage"]
    content: str | None = None
    tool_call: ToolCallComplete | None = None
    usage: dict[str, Any] | None = None


class ChatCompletionModel:
    """A model that streams typed chunks."""

    def __init__(self, model: Model | str, parallel_tool_calls: bool | None = None) -> None:
        self.model = checked_model(model)
        self.parallel_tool_calls = parallel_tool_calls

    def __repr__(self) -> str:
        return f"ChatCompletionModel({self.model.name!r})"

    def stream(
        self, messages: Any, *, tool_schemas: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
    ) -> Iterator[StreamChunk]:
        """Yields the chunks of a response: each call when it is confirmed, the usage at the end.

        Raises a `ProviderError` for an error in the stream, and for a response with nothing but invalid calls.
        """
        failures = Failures()
        with self.model.stream(messages, tool_schemas, **self._with_defaults(options)) as stream:
            for event in stream:
                failures.check(event)
                yield from _chunks(event)
            yield from _usage(stream.usage)

    async def astream(
        self, messages: Any, *, tool_schemas: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
    ) -> AsyncIterator[StreamChunk]:
        """`stream` for async code."""
        failures = Failures()
        async with self.model.astream(messages, tool_schemas, **self._with_defaults(options)) as stream:
            async for event in stream:
                failures.check(event)
                for chunk in _chunks(event):
                    yield chunk
            for chunk in _usage(stream.usage):
                yield chunk

    def _with_defaults(self, options: RequestOptions) -> RequestOptions:
        if "tools" in options:
            raise UsageError("tools are passed as tool_schemas= here, as in msgflux")
        return {"parallel": self.parallel_tool_calls, **options}


def _chunks(event: ModelChunk) -> Iterator[StreamChunk]:
    match event:
        case Text() | Refusal():
            yield StreamChunk("text", event.text)
        case Reasoning():
            yield StreamChunk("reasoning", event.text)
        case ToolCall():
            yield StreamChunk("tool_call", tool_call=ToolCallComplete(event.id, event.name, event.arguments_raw))
        case _:
            pass


def _usage(usage: Usage | None) -> Iterator[StreamChunk]:
    if usage is not None:
        yield StreamChunk("usage", usage=usage.raw)
