"""Accumulates tool calls from raw Chat Completions chunks, for code that iterates over its SDK's stream itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from penstock.adapters.wire_detector import WireDetector
from penstock.calls.numbering import Numbering
from penstock.declarations import read_declarations, tool_names
from penstock.errors import UsageError, type_name
from penstock.events import ToolCall
from penstock.framing.sdk_objects import DERIVED_EVENTS, as_mapping
from penstock.healing.names import ToolNames
from penstock.healing.repairs import RepairedArguments, repair_arguments
from penstock.healing.settings import Healing, Repair
from penstock.wires.openai_chat.choice import ChatChoice
from penstock.wires.openai_chat.decode_response import OpenAIChat
from penstock.wires.openai_chat.fragments import LEGACY
from penstock.wires.openai_chat.reasoning_fields import TEXT_FIELDS, ReasoningState
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.loose import items
from penstock.wires.shared.decode_response.open_call import OpenCall, diagnosed
from penstock.wires.shared.decode_response.wrapped_calls import WrappedCalls


class StreamingToolCallAccumulator:
    """Accumulates the pieces of tool calls in Chat Completions chunks.

        calls = StreamingToolCallAccumulator()
        for chunk in stream:
            calls.add_chunk(chunk)  # or its choices[0].delta.tool_calls
        for call in calls.get_complete_tool_calls(): ...

    A call is complete when it has an id, a name, and arguments that are complete JSON. A call without arguments is
    complete when the finish reason has come, so pass whole chunks. The server may still send more of a complete call:
    run calls only when the stream has ended, or use `decode`, which waits for the protocol to confirm them.

    With `healing`, damaged arguments are repaired once the finish reason has come, and names are those of the declared
    tools. An accumulator sees no text, so `rescue` needs `decode`.
    """

    def __init__(self, tools: Iterable[Any] | None = None, *, healing: Healing | None = None) -> None:
        declared = tuple(read_declarations(tools))
        self._tools = tool_names(declared)
        self._repair: Repair = "off" if healing is None else healing.repair
        self._names = ToolNames(declared)
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
        """The complete calls, in order. A call that was sent again, with the same id, is in it once.

        A wrapper call (`multi_tool_use.parallel`) is replaced by the calls inside it, as `decode` does.
        """
        calls = [self._call(call) for call in self._complete_calls()]
        numbering = Numbering("call_", is_capped=False)  # a new one: a wrapper may be asked for its calls again
        numbering.next_block = len(self._answer.calls) and self._answer.calls[-1].block + 1
        for known in self._answer.calls:
            numbering.unique_id(known.id)
        wrapped = WrappedCalls(self._tools, numbering)
        return [inner for call in calls for inner in wrapped.calls_in(call) or [call]]

    def _call(self, call: OpenCall) -> ToolCall:
        """A complete call, repaired if it has to be."""
        name, quirk = (call.name, 0) if self._repair == "off" else self._names.declared_name(call.name)
        arguments, raw, quirks = call.whole_arguments(), call.raw(), (quirk,) if quirk else ()
        if arguments is None:
            repair = self._repaired(call)
            assert repair is not None, "or the call would not be complete"
            arguments, raw, quirks = repair.arguments, repair.text, (*quirks, *repair.quirks)
        return ToolCall(call.id, name, arguments, raw, kind=call.kind, block=call.block, quirks=quirks)

    def _repaired(self, call: OpenCall) -> RepairedArguments | None:
        """The arguments of a damaged call that has ended, repaired."""
        if self._repair == "off" or not self._has_normal_end or call.kind != "function":
            return None
        return repair_arguments(diagnosed(call), self._repair)

    def clear(self, *, only_complete: bool = False) -> None:
        """Forgets all calls, or only the complete ones; further pieces of a call that is forgotten are ignored."""
        if only_complete:
            self._forgotten |= {call.block for call in self._complete_calls()}
            return
        self._forgotten: set[int] = set()  # the blocks of calls
        self._answer = AnswerWriter([], 0, Numbering("call_", is_capped=False), "openai-chat")
        self._choice = ChatChoice(self._answer, self._tools, ReasoningState(0), _ignore, self._damage_calls)

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
        is_open = not (call.size and call.has_closed) and (call.has_arguments or not self._has_normal_end)
        if is_open and (self._repair == "off" or not self._has_normal_end):
            return False
        return call.whole_arguments() is not None or self._repaired(call) is not None

    @property
    def _has_normal_end(self) -> bool:
        return OpenAIChat.FINISH.get(self._answer.raw_reason or "") in ("stop", "tool_calls")

    def _damage_calls(self) -> None:
        for call in self._answer.calls:
            call.damage()


def _ignore(raw: Any, note: str) -> None:
    """Drops what the decoder would report as unknown: it is not a piece of a call."""


Choice = Mapping[str, Any]
"""A choice of a chunk: its `delta`, `message` and `finish_reason`. Of the first two only the calls are kept."""

_CALLS = ("tool_calls", "function_call")
_DELTA = (*_CALLS, "content", "role", "refusal", *TEXT_FIELDS)
_ENTRY_TYPES = ("function", "custom", "", None)


def read_choices(item: Any) -> Iterator[Choice]:
    """Yields the first choice of a chunk. `item` is a chunk, a part of one, a list of these, or None."""
    if item is None:
        return
    value = as_mapping(item)
    if value is None:
        if isinstance(item, str | bytes) or not isinstance(item, Iterable):
            raise UsageError(f"deltas must be a list of dicts or SDK objects, not {type_name(item)}")
        for part in item:
            yield from read_choices(part)
    else:
        yield from _read_mapping(value)


def _read_mapping(value: Mapping[str, Any]) -> Iterator[Choice]:
    kind = value.get("type")
    match value:
        case {"choices": choices}:
            for choice in map(as_mapping, choices or ()):
                if choice and not choice.get("index"):  # only the first of several choices
                    yield _with_plain_calls(choice)
        case {"type": "chunk", "chunk": chunk}:  # openai's `chat.completions.stream`
            yield from read_choices(chunk)
        case {"data": data, **rest} if not rest:  # mistralai wraps each chunk
            yield from read_choices(data)
        case {"function": _} | {"custom": _}:
            yield {"delta": {"tool_calls": [_plain(value)]}}
        case {"id": _} if kind in _ENTRY_TYPES and not value.keys() & {"object", "role", "created"}:
            yield {"delta": {"tool_calls": [_plain(value)]}}
        case {"delta": _} | {"message": _, "finish_reason": _} if kind is None:
            yield _with_plain_calls(value)
        case _ if kind is None and any(key in value for key in _DELTA):
            yield {"delta": _calls_in(value)}
        case _ if not (_is_derived(kind) or value.keys() <= {"usage", "error"}):
            raise UsageError(_refusal(value))
        case _:
            pass


def _with_plain_calls(choice: Mapping[str, Any]) -> Choice:
    return {**choice, "delta": _calls_in(choice.get("delta")), "message": _calls_in(choice.get("message"))}


def _calls_in(delta: Any) -> dict[str, Any]:
    """The calls of a delta or a message, as dicts."""
    fields = as_mapping(delta) or {}
    calls = {"tool_calls": [_plain(entry) for entry in items(fields.get("tool_calls"))]}
    return {**calls, "function_call": _plain(fields.get("function_call"))}


def _plain(entry: Any) -> Any:
    """An entry as a dict of dicts, if it is an SDK object."""
    fields = as_mapping(entry)
    return entry if fields is None else {key: as_mapping(field) or field for key, field in fields.items()}


def _is_derived(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith(DERIVED_EVENTS)


def _refusal(value: Mapping[str, Any]) -> str:
    detector = WireDetector()
    wire = detector.feed(value) or detector.close()
    name = f'"{wire}"' if wire else "..."
    return f"this is not a Chat Completions chunk: pass the stream to penstock.decode(stream, wire={name})"
