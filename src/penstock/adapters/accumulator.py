"""Accumulates tool calls from raw Chat Completions chunks, for code that iterates over its SDK's stream itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.calls.numbering import Numbering
from penstock.declarations import tool_names
from penstock.errors import UsageError
from penstock.events import ToolCall
from penstock.framing.sdk_objects import as_mapping
from penstock.wires.openai_chat.calls import ChatCalls
from penstock.wires.openai_chat.fragments import fragment_of
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.open_call import OpenCall


class StreamingToolCallAccumulator:
    """Accumulates the pieces of tool calls in Chat Completions chunks.

        calls = StreamingToolCallAccumulator()
        for chunk in stream:
            calls.add_chunk(chunk)  # or its choices[0].delta.tool_calls
        for call in calls.get_complete_tool_calls(): ...

    A call is complete when it has an id, a name, and arguments that are complete JSON. The server may still send more
    of it, so run calls only when the stream has ended, or use `decode`, which waits for the protocol to confirm them.
    """

    def __init__(self, tools: Iterable[Any] | None = None) -> None:
        self._tools = tool_names(tools)
        self.clear()

    def add_chunk(self, deltas: Any) -> None:
        """Adds the deltas of a chunk: a list of dicts or SDK objects, one of them, a whole chunk, or None."""
        self._calls.add([fragment_of(delta) for delta in _fragments(deltas)])
        self._answer.out.clear()  # the events of these calls are not used

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """All calls so far, complete or not."""
        return [
            {"id": call.id, "name": call.name, "arguments": call.raw(), "is_complete": self._is_complete(call)}
            for call in self._answer.calls
        ]

    def has_complete_tool_calls(self) -> bool:
        """Whether any call is complete."""
        return bool(self.get_complete_tool_calls())

    def get_complete_tool_calls(self) -> list[ToolCall]:
        """The complete calls, in order. A call that was sent again, with the same id, is in it once."""
        return [
            ToolCall(call.id, call.name, arguments, call.raw(), kind=call.kind, block=call.block)
            for call in self._answer.without_copies([call for call in self._answer.calls if self._is_complete(call)])
            if (arguments := call.whole_arguments()) is not None
        ]

    def clear(self) -> None:
        """Forgets all calls; further pieces of them are ignored."""
        self._answer = AnswerWriter([], 0, Numbering("call_"), "openai-chat")
        self._calls = ChatCalls(self._answer, self._tools)

    def _is_complete(self, call: OpenCall) -> bool:
        has_head = self._calls.has_provider_id(call) and bool(call.name)
        return has_head and call.has_closed and bool(call.size) and call.whole_arguments() is not None


def _fragments(deltas: Any) -> Iterator[dict[str, Any]]:
    """The tool-call fragments in a chunk, or in any part of one."""
    if deltas is None:
        return
    value = as_mapping(deltas)
    match value:
        case None:
            if isinstance(deltas, str | bytes) or not isinstance(deltas, Iterable):
                raise UsageError(f"deltas must be a list of dicts or SDK objects, not a {type(deltas).__name__}")
            for delta in deltas:
                yield from _fragments(delta)
        case {"choices": choices}:
            for choice in map(as_mapping, choices or ()):
                if choice and not choice.get("index"):  # only the first of several choices
                    yield from _fragments(choice.get("delta"))
        case {"delta": delta}:
            yield from _fragments(delta)
        case {"tool_calls": entries}:
            yield from _fragments(entries)
        case {"function": _} | {"custom": _} | {"id": _}:
            yield {key: as_mapping(field) or field for key, field in value.items()}
