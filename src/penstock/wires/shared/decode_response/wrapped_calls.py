"""Expands wrapper calls (`multi_tool_use.parallel`): one undeclared call with several calls inside (QUIRKS 30).

The events of a wrapper are held back until it ends. If its arguments are exactly a list of calls of known tools, each
of them is emitted as a call with its own id and block; otherwise the wrapper is emitted as the call that it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.calls.arguments import strict_object
from penstock.calls.numbering import Numbering
from penstock.events import Opaque, StreamChunk, ToolCall, ToolCallClosed, ToolCallDelta, ToolCallInvalid, ToolCallStart

WRAPPERS = frozenset({"multi_tool_use.parallel", "multi_tool_use", "parallel"})
_PREFIX = "functions."

InnerCall = tuple[str, str, dict[str, Any]]
"""The name, the text of the arguments, and the arguments of a call inside a wrapper."""


class _Use(Struct, forbid_unknown_fields=True):
    recipient_name: str
    parameters: Raw


class _Arguments(Struct, forbid_unknown_fields=True):
    tool_uses: list[_Use]


_decode = msgspec.json.Decoder(_Arguments).decode


class WrappedCalls:
    """A stage over the events of one response. `tools`: the declared ones, which are never wrappers.

    As long as the response has `settled` calls, nothing has to be looked at: all of them have started, and none of them
    is a wrapper. It is -1 once there was one.
    """

    __slots__ = ("_expanded", "_held", "_numbering", "_tools", "_wrappers", "settled")

    def __init__(self, tools: Collection[str], numbering: Numbering) -> None:
        self._tools = tools
        self._wrappers = WRAPPERS if WRAPPERS.isdisjoint(tools) else WRAPPERS.difference(tools)
        self._numbering = numbering
        self._held: dict[int, list[StreamChunk]] = {}  # the events of open wrappers by block
        self._expanded: dict[int, None] = {}  # the blocks of wrappers; an empty set takes more memory
        self.settled = 0

    def feed(self, events: list[StreamChunk]) -> list[StreamChunk]:
        started = [event.name for event in events if type(event) is ToolCallStart]
        if self.settled >= 0 and self._wrappers.isdisjoint(started):
            self.settled += len(started)
            return events
        self.settled = -1
        out: list[StreamChunk] = []
        for event in events:
            self._add(event, out)
        return out

    def _add(self, event: StreamChunk, out: list[StreamChunk]) -> None:
        match event:
            case ToolCallStart() if event.name in self._wrappers:
                self._held[event.block] = [event]
            case ToolCall() if event.block in self._held:
                held = self._held.pop(event.block)
                out += self._expand(event) or [*held, event]
            case ToolCallInvalid() if event.block in self._held:
                out += [*self._held.pop(event.block), event]
            case ToolCallDelta() | ToolCallClosed() | Opaque() if event.block in self._held:
                self._held[event.block].append(event)
            case Opaque() if event.block in self._expanded:
                pass  # the state of the wrapper, which is not sent back
            case _:
                out.append(event)

    def _expand(self, wrapper: ToolCall) -> list[StreamChunk]:
        """The events of the calls inside; none if it is not a wrapper after all."""
        events: list[StreamChunk] = []
        for call in self.calls_in(wrapper):
            block, id, name, raw, choice = call.block, call.id, call.name, call.arguments_raw, call.choice
            events += [
                ToolCallStart(block, id, name, choice),
                ToolCallDelta(block, raw, choice),
                ToolCallClosed(block, id, name, call.arguments, choice),
                call,
            ]
        if events:
            self._expanded[wrapper.block] = None
        return events

    def calls_in(self, wrapper: ToolCall) -> list[ToolCall]:
        """The calls inside of a call, each with its own id and block; none if it is not a wrapper.

        One with more calls than a response may have stays the call that it is, which no tool takes.
        """
        if wrapper.name not in self._wrappers:
            return []
        return [
            ToolCall(
                self._numbering.unique_id(f"{wrapper.id}_{number}"), name, arguments, raw, "native", wrapper.sealed_by,
                block=self._numbering.new_block(), choice=wrapper.choice,
            )
            for number, (name, raw, arguments) in enumerate(self._inner_calls(wrapper), 1)
        ]  # fmt: skip

    def _inner_calls(self, wrapper: ToolCall) -> list[InnerCall]:
        try:
            uses = _decode(wrapper.arguments_raw).tool_uses
        except msgspec.MsgspecError:
            return []
        if not self._numbering.has_room_for(len(uses)):
            return []
        calls: list[InnerCall] = []
        for use in uses:
            raw, name = bytes(use.parameters).decode(), self._tool(use.recipient_name)
            arguments = strict_object(raw)
            if not name or arguments is None:
                return []
            calls.append((name, raw, arguments))
        return calls

    def _tool(self, recipient: str) -> str:
        """The tool that a recipient names; empty if it is not a declared one."""
        name = recipient if recipient in self._tools else recipient.removeprefix(_PREFIX)
        return name if name in self._tools or not self._tools else ""
