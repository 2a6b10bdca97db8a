"""The callbacks of a Go client: `OnMessage` with content or with the call so far, `OnComplete`, `OnError`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any, Unpack

from msgspec import Struct

from penstock.adapters.consume import check_callbacks, consume
from penstock.adapters.responses import find_error, json_arguments
from penstock.agent.config import checked_model
from penstock.errors import UsageError
from penstock.events import Error, Refusal, StreamChunk, Text, ToolCallDelta, ToolCallStart
from penstock.model.model import Model
from penstock.model.options import RequestOptions
from penstock.turn import Turn, TurnBuilder


class MCPFunctionCall:
    """The name of a tool, and the JSON text of its arguments so far."""

    def __init__(self, Name: str = "", Arguments: str | Sequence[str] = "") -> None:
        self.Name = Name
        self._pieces = [Arguments] if isinstance(Arguments, str) else Arguments
        self._count = len(self._pieces)

    @property
    def Arguments(self) -> str:
        """The arguments so far; joined when they are read, so that an update costs what is new in it."""
        return "".join(self._pieces[: self._count])

    def __repr__(self) -> str:
        return f"MCPFunctionCall({self.Name!r}, {self.Arguments!r})"


class MCPToolCall(Struct, frozen=True):
    """A tool call."""

    ID: str
    Type: str
    Function: MCPFunctionCall


class Message(Struct, frozen=True):
    """A message."""

    Role: str
    Content: str = ""
    ToolCalls: list[MCPToolCall] = []


class StreamResponseCallback(Struct, frozen=True):
    """The callbacks of a request; each may be missing."""

    OnMessage: Callable[[Message], Any] | None = None
    OnComplete: Callable[[Message], Any] | None = None
    OnError: Callable[[Error | Exception], Any] | None = None

    def __post_init__(self) -> None:
        check_callbacks(OnMessage=self.OnMessage, OnComplete=self.OnComplete, OnError=self.OnError)


class StreamingState:
    """The calls of one response so far."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[str, str, list[str]]] = {}  # by block: id, name, pieces of the arguments

    def update(self, event: StreamChunk) -> Message | None:
        """The message for an event: a piece of content, or a call so far."""
        match event:
            case Text() | Refusal():
                return Message("assistant", event.text)
            case ToolCallStart():
                self._calls[event.block] = event.id, event.name, []
            case ToolCallDelta() if event.block in self._calls:
                self._calls[event.block][2].append(event.piece)
            case _:
                return None
        return Message("assistant", "", [_tool_call(*self._calls[event.block])])


class AIClient:
    """Sends messages to a model and passes its response to callbacks."""

    def __init__(self, model: Model | str) -> None:
        self.model = checked_model(model)

    def SendMessageStreamWithCallback(
        self,
        messages: Iterable[Any] | str,
        callback: StreamResponseCallback,
        *,
        tools: Iterable[Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Error | Exception | None:
        """Sends a request and calls back; returns the error, as Go does. An exception in a callback is raised.

        A response with nothing but invalid calls is an error too: a message has no place for them. Of several choices
        (`n=2`), each ends with a callback of its own, in their order.
        """
        if not isinstance(callback, StreamResponseCallback):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"the callback must be a StreamResponseCallback, not {callback!r}")
        state, errors = StreamingState(), list[Error | Exception]()
        others: dict[int, TurnBuilder] = {}  # the choices after the first

        def on_message(event: StreamChunk) -> None:
            _add_to_others(others, event)
            message = state.update(event)
            if message is not None and callback.OnMessage:
                callback.OnMessage(message)

        def on_error(error: Error | Exception) -> None:
            errors.append(error)
            if callback.OnError:
                callback.OnError(error)

        def on_complete(turn: Turn) -> None:
            if (error := find_error(turn)) is not None:
                on_error(error)
            elif callback.OnComplete:
                callback.OnComplete(_message(turn))

        history = messages if isinstance(messages, str) else [_as_chat(message) for message in messages]
        with closing(self.model.stream(history, tools, **options)) as stream:
            first = consume(stream, on_message, on_complete, on_error)
        for _, other in sorted(others.items()) if first.error is None else ():
            on_complete(other.build())
        return errors[0] if errors else None


def _add_to_others(others: dict[int, TurnBuilder], event: StreamChunk) -> None:
    """Adds an event to the choice that it belongs to, if that is not the first; one of no choice belongs to all."""
    choice = getattr(event, "choice", None)
    if choice:
        others.setdefault(choice, TurnBuilder(choice)).add(event)
    elif choice is None:
        for builder in others.values():
            builder.add(event)


def _message(turn: Turn) -> Message:
    calls = [_tool_call(call.id, call.name, json_arguments(call)) for call in turn.tool_calls]
    return Message("assistant", turn.text + turn.refusal, calls)


def _tool_call(id: str, name: str, arguments: str | Sequence[str]) -> MCPToolCall:
    return MCPToolCall(id, "function", MCPFunctionCall(name, arguments))


def _as_chat(message: Any) -> Any:
    """A message in OpenAI's shape; messages of other kinds are passed on."""
    if not isinstance(message, Message):
        return message
    calls = [
        {
            "id": call.ID,
            "type": call.Type,
            "function": {"name": call.Function.Name, "arguments": call.Function.Arguments},
        }
        for call in message.ToolCalls
    ]
    return {"role": message.Role, "content": message.Content, **({"tool_calls": calls} if calls else {})}
