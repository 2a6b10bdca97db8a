"""The final tool as text: output by a call looks like output with a response format."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.events import (
    Finish,
    Opaque,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
)
from penstock.model.output_request import OUTPUT_TOOL


class OutputCall:
    """A stage: the arguments of the first call of the final tool become text, and other calls pass unchanged.

    The history has the output as the answer of the model, so that it is valid for every provider and the same for every
    form of output.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._blocks: set[tuple[int, int]] = set()  # calls of the final tool, by choice and block
        self._written: dict[int, int] = {}  # the block of the output by choice
        self._with_pieces: set[int] = set()  # the choices in which pieces of it have come
        self._with_calls: set[int] = set()  # the choices with other calls

    def feed(self, chunk: StreamChunk) -> list[StreamChunk]:
        match chunk:
            case ToolCallStart(name=name) if name == OUTPUT_TOOL:
                self._open(chunk)
                return []
            case ToolCallDelta() if (chunk.choice, chunk.block) in self._blocks:
                return self._text(chunk, chunk.piece) if self._is_first(chunk) else []
            case ToolCall(name=name) | ToolCallInvalid(name=name) if name == OUTPUT_TOOL:
                return self._whole(chunk)
            case ToolCallClosed() | Opaque() if (chunk.choice, chunk.block) in self._blocks:
                return []
            case ToolCall() | ToolCallInvalid():
                self._with_calls.add(chunk.choice)
            case Finish(reason="tool_calls") if chunk.choice in self._written and chunk.choice not in self._with_calls:
                return [replace(chunk, reason="stop")]
            case Retry():
                self._reset()
            case _:
                pass
        return [chunk]

    def close(self) -> list[StreamChunk]:
        return []

    def _open(self, chunk: ToolCallStart | ToolCall | ToolCallInvalid) -> None:
        self._blocks.add((chunk.choice, chunk.block))
        self._written.setdefault(chunk.choice, chunk.block)

    def _is_first(self, chunk: ToolCallDelta | ToolCall | ToolCallInvalid) -> bool:
        return self._written[chunk.choice] == chunk.block

    def _text(self, chunk: ToolCallDelta | ToolCall | ToolCallInvalid, text: str) -> list[StreamChunk]:
        self._with_pieces.add(chunk.choice)
        return [Text(chunk.block, text, chunk.choice)]

    def _whole(self, call: ToolCall | ToolCallInvalid) -> list[StreamChunk]:
        """The end of a call: its arguments, if they did not come in pieces."""
        self._open(call)
        if not self._is_first(call):
            return [Unknown({"name": call.name, "arguments": call.arguments_raw}, "a second call of the final tool")]
        return [] if call.choice in self._with_pieces else self._text(call, call.arguments_raw)
