"""The `AgentStreamer` of msgflux, and its events."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from penstock.adapters.msgflux.chunks import ChatCompletionModel
from penstock.agent import streamer
from penstock.agent.token_stream import Executor, Tokens
from penstock.errors import UsageError
from penstock.events import Refusal, Text
from penstock.jsontext.shown_text import escape
from penstock.messages import History
from penstock.model.model import Model
from penstock.run.events import Done, ToolEnd, ToolStart
from penstock.run.events import StreamEvent as RunEvent

OnText = Callable[[str], Any]


@dataclass
class StreamEvent:
    """An event of an `AgentStreamer`."""

    type: Literal["text", "tool_start", "tool_result", "done", "error"]
    content: str | None = None
    tool_name: str | None = None
    tool_params: dict[str, Any] | None = None
    tool_result: Any = None
    error: str | None = None


class AgentStreamer:
    """An agent whose model writes calls into its text.

    `AgentStreamer(name, model, tools=[…])` runs its own model; `AgentStreamer(tool_executor, on_text)` processes a
    stream of tokens. Without `on_text`, the text is printed.
    """

    def __init__(
        self,
        name: str | Executor = "",
        model: ChatCompletionModel | Model | str | OnText | None = None,
        tools: Iterable[Any] = (),
        instructions: str = "",
        *,
        tool_executor: Executor | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(name, str) and not callable(name):
            raise UsageError(f"the first argument must be the name of the agent, or a tool_executor, not {name!r}")
        self.name = name if isinstance(name, str) else ""
        self.tool_executor = tool_executor if isinstance(name, str) else name
        match model:
            case ChatCompletionModel():
                own_model: Model | str | None = model.model
            case Model() | str() | None:
                own_model = model
            case _:
                own_model, options["on_text"] = None, model
        options["on_text"] = options.get("on_text") or _print
        self.agent = streamer.AgentStreamer(own_model, tools, instructions, name=self.name, **options)

    def __repr__(self) -> str:
        return repr(self.agent)

    async def process_stream(self, token_stream: Tokens, *, messages: Any = None) -> History:
        """Shows the text of a stream at once, runs each call inline, and returns the messages to continue with."""
        return await self.agent.process_stream(token_stream, self.tool_executor, messages=messages)

    def stream(self, message: Any = None, **options: Any) -> Iterator[StreamEvent]:
        """Yields the events of a run."""
        with self.agent.stream(message, **options) as run:
            for event in run:
                yield from _events(event)

    async def astream(self, message: Any = None, **options: Any) -> AsyncIterator[StreamEvent]:
        """`stream` for async code."""
        async with self.agent.astream(message, **options) as run:
            async for event in run:
                for translated in _events(event):
                    yield translated


def _print(text: str) -> None:
    """The default of `on_text`."""
    sys.stdout.write(escape(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _events(event: RunEvent) -> Iterator[StreamEvent]:
    match event:
        case Text() | Refusal():
            yield StreamEvent("text", event.text)
        case ToolStart():
            yield StreamEvent("tool_start", tool_name=event.name, tool_params=event.arguments)
        case ToolEnd():
            is_returned = event.ending == "done" or event.data is not None
            result = event.data if is_returned else event.result.text
            yield StreamEvent("tool_result", tool_name=event.name, tool_result=result)
        case Done():
            if event.reason in ("error", "cut"):
                yield StreamEvent("error", error=event.why)
            yield StreamEvent("done", event.output)
        case _:
            pass
