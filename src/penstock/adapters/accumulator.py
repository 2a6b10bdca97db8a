"""Accumulates tool calls from raw Chat Completions chunks, for code that iterates over its SDK's stream itself."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from penstock.adapters.chat_shapes import read_choices
from penstock.calls.numbering import Numbering
from penstock.declarations import tool_names
from penstock.events import ToolCall
from penstock.wires.openai_chat.choice import ChatChoice
from penstock.wires.openai_chat.decode_response import OpenAIChat
from penstock.wires.openai_chat.fragments import LEGACY
from penstock.wires.openai_chat.reasoning_details import ReasoningDetails
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.open_call import OpenCall


class StreamingToolCallAccumulator:
    """Accumulates the pieces of tool calls in Chat Completions chunks.

        calls = StreamingToolCallAccumulator()
        for chunk in stream:
            calls.add_chunk(chunk)  # or its choices[0].delta.tool_calls
        for call in calls.get_complete_tool_calls(): ...

    A call is complete when it has an id, a name, and arguments that are complete JSON. A call without arguments is
    complete when the finish reason has come, so pass whole chunks. The server may still send more of a complete call:
    run calls only when the stream has ended, or use `decode`, which waits for the protocol to confirm them.
    """

    def __init__(self, tools: Iterable[Any] | None = None) -> None:
        self._tools = tool_names(tools)
        self.clear()

    def add_chunk(self, deltas: Any) -> None:
        """Adds a chunk, or its deltas: a list of dicts or SDK objects, one of them, or None.

        Raises a `UsageError` for a chunk of another protocol.
        """
        for choice in read_choices(deltas):
            delta, message, reason = choice.get("delta"), choice.get("message"), choice.get("finish_reason")
            self._choice.loose_delta(delta)
            if not delta or reason:  # a message earlier in the stream may be incomplete (QUIRKS 75)
                self._choice.loose_message(message)
            if reason:
                self._answer.finish(str(reason))
        self._answer.out.clear()  # the events of these calls are not used

    @property
    def tool_calls(self) -> dict[int, dict[str, Any]]:
        """All calls so far by their index, complete or not; `missing` lists what a call still lacks.

        A call gets a free number if it came without an index, or with the index of an earlier call.
        """
        return {
            index: {"id": call.id if self._has_id(call) else "", "name": call.name, "arguments": call.raw(),
                    "missing": self._missing(call)}
            for index, call in self._by_index().items()
            if call.block not in self._forgotten
        }  # fmt: skip

    def has_complete_tool_calls(self) -> bool:
        """Whether any call is complete."""
        return bool(self._complete_calls())

    def get_complete_tool_calls(self) -> list[ToolCall]:
        """The complete calls, in order. A call that was sent again, with the same id, is in it once."""
        return [
            ToolCall(call.id, call.name, arguments, call.raw(), kind=call.kind, block=call.block)
            for call in self._complete_calls()
            if (arguments := call.whole_arguments()) is not None
        ]

    def clear(self, *, only_complete: bool = False) -> None:
        """Forgets all calls, or only the complete ones; further pieces of a call that is forgotten are ignored."""
        if only_complete:
            self._forgotten |= {call.block for call in self._complete_calls()}
            return
        self._forgotten: set[int] = set()  # the blocks of calls
        self._answer = AnswerWriter([], 0, Numbering("call_"), "openai-chat")
        self._choice = ChatChoice(self._answer, self._tools, ReasoningDetails(0), _ignore, self._damage_calls)

    def _by_index(self) -> dict[int, OpenCall]:
        calls: dict[int, OpenCall] = {}
        for call in self._answer.calls:
            label = self._choice.calls.first_label(call)
            if not isinstance(label, int) or label in calls:
                label = next(index for index in count() if index not in calls)
            calls[label] = call
        return calls

    def _complete_calls(self) -> list[OpenCall]:
        complete = self._answer.without_copies([call for call in self._answer.calls if not self._missing(call)])
        return [call for call in complete if call.block not in self._forgotten]

    def _missing(self, call: OpenCall) -> list[str]:
        parts = {"id": self._has_id(call), "name": bool(call.name), "arguments": self._has_whole_arguments(call)}
        return [part for part, is_there in parts.items() if not is_there]

    def _has_id(self, call: OpenCall) -> bool:
        """Whether the provider sent the id; the legacy protocol has none, so a generated one counts there."""
        calls = self._choice.calls
        return calls.has_provider_id(call) or calls.first_label(call) == LEGACY

    def _has_whole_arguments(self, call: OpenCall) -> bool:
        if call.is_damaged or call.is_too_large:
            return False
        if not (call.size and call.has_closed) and (call.has_arguments or not self._has_normal_end):
            return False
        return call.whole_arguments() is not None

    @property
    def _has_normal_end(self) -> bool:
        return OpenAIChat.FINISH.get(self._answer.raw_reason or "") in ("stop", "tool_calls")

    def _damage_calls(self) -> None:
        for call in self._answer.calls:
            call.damage()


def _ignore(raw: Any, note: str) -> None:
    """Drops what the decoder would report as unknown: it is not a piece of a call."""
