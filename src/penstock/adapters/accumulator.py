"""Raw Chat Completions deltas to calls, for those who loop over their SDK's chunks themselves."""

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
    """Puts the pieces of tool calls together, as they come in Chat Completions chunks.

        calls = StreamingToolCallAccumulator()
        for chunk in stream:
            calls.add_chunk(chunk)  # or its choices[0].delta.tool_calls
        for call in calls.get_complete_tool_calls(): ...

    A call is complete when it has an id, a name, and arguments that are whole JSON. That is all that deltas can tell: a
    server may still go on, so act when the stream has ended, or use `decode`, which waits for the protocol's word.
    """

    def __init__(self, tools: Iterable[Any] | None = None) -> None:
        self._tools = tool_names(tools)
        self.clear()

    def add_chunk(self, deltas: Any) -> None:
        """Take in the deltas of a chunk: a list of dicts or SDK objects, one of them, a whole chunk, or None."""
        self._calls.add([fragment_of(delta) for delta in _fragments(deltas)])
        self._answer.out.clear()  # the events of these calls are nobody's business here

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """All calls so far, complete or not, for looking at."""
        return [
            {"id": call.id, "name": call.name, "arguments": call.raw(), "is_complete": self._is_complete(call)}
            for call in self._answer.calls
        ]

    def has_complete_tool_calls(self) -> bool:
        """Whether any call is complete."""
        return any(self._is_complete(call) for call in self._answer.calls)

    def get_complete_tool_calls(self) -> list[ToolCall]:
        """The calls that are complete, in order."""
        return [
            ToolCall(call.id, call.name, arguments, call.raw(), kind=call.kind, block=call.block)
            for call in self._answer.calls
            if self._is_complete(call) and (arguments := call.whole_arguments()) is not None
        ]

    def clear(self) -> None:
        """Forget all calls; pieces that still come for one of them are ignored."""
        self._answer = AnswerWriter([], 0, Numbering("call_"), "openai-chat")
        self._calls = ChatCalls(self._answer, self._tools)

    def _is_complete(self, call: OpenCall) -> bool:
        has_head = self._calls.has_provider_id(call) and bool(call.name)
        return has_head and call.has_closed and bool(call.size) and call.whole_arguments() is not None


def _fragments(deltas: Any) -> Iterator[dict[str, Any]]:
    """The fragments in whatever a caller holds of a chunk."""
    if deltas is None:
        return
    value = as_mapping(deltas)
    match value:
        case None:
            if isinstance(deltas, str | bytes) or not isinstance(deltas, Iterable):
                raise UsageError(
                    f"cannot take a {type(deltas).__name__} for deltas: give a list of dicts or SDK objects"
                )
            for delta in deltas:
                yield from _fragments(delta)
        case {"choices": choices}:
            for choice in map(as_mapping, choices or ()):
                if choice and not choice.get("index"):  # of several answers, the first
                    yield from _fragments(choice.get("delta"))
        case {"delta": delta}:
            yield from _fragments(delta)
        case {"tool_calls": entries}:
            yield from _fragments(entries)
        case {"function": _} | {"custom": _} | {"id": _}:
            yield {key: as_mapping(field) or field for key, field in value.items()}
