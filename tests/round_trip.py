"""The round trip of responses: decoded, encoded and decoded again, and the normalisation under which both are compared.

Two lists of events are equal if their `records` are. A record is one block of content (its pieces joined, with its
vendor state), in the order in which the blocks began; then the error, the token counts, and how each choice ended.
Numbers of blocks, `sealed_by`, `origin`, `raw_reason`, `usage.raw`, the wording of a fault, code and raw form of an
error, and `ToolCallClosed` (which the pieces decide) are left out. A call without arguments has the arguments `{}`.

`as_written` applies what holds for every wire; `BEFORE` and `AFTER` have a rule for each loss in the facts of a wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import msgspec

from penstock import (
    Error,
    Finish,
    Opaque,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.calls.arguments import WITHOUT_ARGUMENTS, strict_object
from penstock.wires import RESPONSE_FRAMES, find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_errors import (
    changed_call,
    incomplete,
    malformed_call,
    seeming_call,
    withdrawn,
)
from penstock.wires.shared.encode_response.response_head import EncodedResponse, ResponseHead
from penstock.wires.shared.encode_response.response_turns import unfinished
from penstock.wires.shared.facts import LossName

Events = list[StreamChunk]
Record = tuple[Any, ...]
Rule = Callable[[Events], Events]
PROTOCOLS = [*RESPONSE_FRAMES]
"""The protocols in which responses can be written."""
CONTENT = (Text, Reasoning, Refusal)
COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")


def head_for(events: Iterable[StreamChunk]) -> ResponseHead:
    """The head of a response with these events: its model, and which of its tools are custom."""
    listed = list(events)
    models = [event.model for event in listed if isinstance(event, Finish)]
    custom = {
        event.name for event in listed if isinstance(event, ToolCall | ToolCallInvalid) and event.kind == "custom"
    }
    tools = [{"type": "custom", "name": name} for name in [*sorted(custom), "another"]]
    model = models[0] if models else ""
    return ResponseHead(id="x1", model=model, created=1, custom_tools=frozenset(custom), echo={"tools": tools})


def encode_stream(protocol: str, events: Iterable[StreamChunk], size: int = 3) -> bytes:
    """A response as a stream, encoded in batches of this many events."""
    listed = list(events)
    encoder = ResponseEncoder(find_response_frames(protocol)(head_for(listed)))
    pieces = [encoder.feed(listed[at : at + size]) for at in range(0, len(listed), size)]
    return b"".join([*pieces, encoder.close()])


def encode_whole(protocol: str, events: Iterable[StreamChunk]) -> EncodedResponse:
    """A response as a whole body, with its status."""
    listed = list(events)
    return encode_body(find_response_frames(protocol), listed, head_for(listed))


def records(events: Iterable[StreamChunk]) -> list[Record]:
    """The events in the form in which they are compared."""
    blocks: dict[int, Record] = {}
    states: dict[int, list[Any]] = {}
    ends: list[Record] = []
    usage = Usage()
    for event in events:
        match event:
            case Text() | Reasoning() | Refusal():
                known = blocks.get(event.block, (event.type, event.choice, ""))
                blocks[event.block] = (*known[:2], known[2] + event.text)
            case ToolCallStart():
                blocks[event.block] = ("call", event.choice, event.id, event.name)
            case ToolCall():
                arguments = msgspec.json.encode(event.arguments)
                raw = "{}" if event.arguments_raw.strip() in WITHOUT_ARGUMENTS else event.arguments_raw
                blocks[event.block] = ("call", event.choice, event.id, event.name, event.kind, arguments, raw)
            case ToolCallInvalid():
                fields = event.kind, event.why, event.arguments_raw
                blocks[event.block] = ("invalid call", event.choice, event.id, event.name, *fields)
            case Opaque():
                blocks.setdefault(event.block, ("state", event.choice))
                states.setdefault(event.block, []).append((event.kind, msgspec.json.encode(event.data, order="sorted")))
            case Error():
                ends.append(("error", event.message))
            case Usage():
                usage = event
            case Finish():
                ends.append(("finish", event.choice, event.reason, event.message, event.client_work))
            case ToolCallDelta() | ToolCallClosed() | Unknown() | Retry():
                pass
    if any(record[0] == "error" for record in ends):
        usage = Usage()  # the counts of a failed response are not compared
    unnamed = [block for block, record in blocks.items() if record[0] == "invalid call" and not record[3]]
    blocks.update({block: blocks.pop(block) for block in unnamed})  # they are reported when they end, not begin
    parts = [(*record, *sorted(states.get(block, []))) for block, record in blocks.items()]
    return [*parts, ("usage", *(getattr(usage, name) for name in COUNTS)), *ends]


def across_wires(events: Iterable[StreamChunk]) -> Events:
    """The events without what is of use only on its own wire: vendor state, and work for the client."""

    def portable(event: StreamChunk) -> StreamChunk | None:
        match event:
            case Opaque():
                return None
            case Finish() if event.client_work:
                return unfinished(event)
            case _:
                return event

    return _each(portable)(list(events))


def in_order(events: Iterable[StreamChunk]) -> Events:
    """The events, with those of each call where the call began, for wires that write one block after the other."""
    calls: dict[int, Events] = {}
    groups: list[Events] = []
    for event in events:
        block = getattr(event, "block", None)
        if isinstance(event, Error | Retry | Finish):
            calls.clear()  # nothing is moved to before an end
        if block in calls:
            calls[block].append(event)
        else:
            groups.append([event])
            if isinstance(event, ToolCallStart):
                calls[event.block] = groups[-1]
    return [event for group in groups for event in group]


# What holds for every wire.


def as_written(events: Iterable[StreamChunk]) -> Events:
    """The events that an encoder of any wire writes."""
    written = (event for event in events if not isinstance(event, Unknown) and not _is_withdrawn(event))
    return _unnamed(list(_in_one_piece(_ended_by_errors(written))))


def _unnamed(events: Events) -> Events:
    """The events; a call without a name that was cut in a complete response is unnamed: only the name is missing."""
    if any(isinstance(event, Error) for event in events):
        return events

    def named(event: StreamChunk) -> StreamChunk:
        is_cut = isinstance(event, ToolCallInvalid) and event.why == "cut" and not event.name
        return msgspec.structs.replace(event, why="unnamed") if is_cut else event

    return [named(event) for event in events]


def _is_withdrawn(event: StreamChunk) -> bool:
    return isinstance(event, ToolCallInvalid) and event.why == "withdrawn"


def _in_one_piece(events: Iterable[StreamChunk]) -> Iterator[StreamChunk]:
    """The events, with a new block for a text that continues after another text or a call."""
    numbers: dict[int, int] = {}
    spare = count(1_000_000)
    last: dict[int, int] = {}  # by choice
    for event in events:
        match event:
            case Text() | Reasoning() | Refusal():
                if event.block != last.get(event.choice):
                    numbers[event.block] = next(spare) if event.block in numbers else event.block
                last[event.choice] = event.block
                yield msgspec.structs.replace(event, block=numbers[event.block])
            case Opaque() if event.block in numbers:
                yield msgspec.structs.replace(event, block=numbers[event.block])
            case ToolCallStart() | ToolCallDelta():
                last.pop(event.choice, None)
                yield event
            case _:
                yield event


def _ended_by_errors(events: Iterable[StreamChunk]) -> Iterator[StreamChunk]:
    """The events up to the first error; a failed response, a cut and a withdrawal of what was sent are errors."""
    open_calls: dict[int, ToolCallInvalid] = {}
    is_visible, choices = False, {0}
    for event in events:
        if (error := _error_in(event, is_visible)) is not None:
            yield from open_calls.values()
            yield error
            yield from (Finish("error", choice=choice) for choice in sorted(choices))
            return
        choices.add(getattr(event, "choice", 0))
        match event:
            case Retry():
                pass
            case ToolCallStart():
                fields = event.block, event.id, event.name, "", "cut"
                open_calls[event.block] = ToolCallInvalid(*fields, choice=event.choice)  # type: ignore[arg-type]
            case ToolCallDelta():
                call = open_calls[event.block]
                raw = call.arguments_raw + event.piece
                open_calls[event.block] = msgspec.structs.replace(call, arguments_raw=raw)
            case ToolCall() | ToolCallInvalid():
                open_calls.pop(event.block, None)
            case _:
                pass
        is_visible |= not isinstance(event, Usage | Retry)
        yield event


def _error_in(event: StreamChunk, is_visible: bool) -> Error | None:
    match event:
        case Error():
            return event
        case Finish(reason="error" | "cut"):
            return incomplete(event)
        case Retry() if is_visible:
            return withdrawn(event)
    return None


# What single wires cannot express: rules for the events before they are written, and for both sides after that.


def _insert_error(events: Events, find: Callable[[StreamChunk], Error | None]) -> Events:
    """The events, with an error before the first event for which `find` returns one."""
    for place, event in enumerate(events):
        if (error := find(event)) is not None:
            return [*events[:place], error]
    return events


def _each(change: Callable[[StreamChunk], StreamChunk | None]) -> Rule:
    def rule(events: Events) -> Events:
        return [changed for event in events if (changed := change(event)) is not None]

    return rule


def seeming_calls(events: Events) -> Events:
    invalid = [event for event in events if isinstance(event, ToolCallInvalid) and event.name]
    whole = [call for call in invalid if call.kind == "function" and strict_object(call.arguments_raw) is not None]

    def find(event: StreamChunk) -> Error | None:
        if not isinstance(event, Finish) or event.reason in ("error", "cut"):
            return None
        is_normal = event.reason not in ("length", "content_filter")
        calls = [call for call in whole if is_normal or call.arguments_raw.strip() not in WITHOUT_ARGUMENTS]
        return seeming_call(calls[0].name) if calls else None

    return _insert_error(events, find)


def changed_names(events: Events) -> Events:
    names = {event.block: event.name for event in events if isinstance(event, ToolCallStart)}

    def find(event: StreamChunk) -> Error | None:
        match event:
            case ToolCall() | ToolCallInvalid() if event.name != names.get(event.block, event.name):
                return changed_call(names[event.block])
            case _:
                return None

    return _insert_error(events, find)


def changed_arguments(events: Events) -> Events:
    sent: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            sent[event.block] = sent.get(event.block, "") + event.piece

    def find(event: StreamChunk) -> Error | None:
        match event:
            case ToolCall() | ToolCallInvalid() if not event.arguments_raw.startswith(sent.get(event.block, "")):
                return changed_call(event.name)
            case _:
                return None

    return _insert_error(events, find)


def failed_choices(events: Events) -> Events:
    """Every choice fails with the first that does."""
    failed = [event for event in events if isinstance(event, Finish) and event.reason in ("error", "cut")]
    if not failed or any(isinstance(event, Error) for event in events):
        return events
    return _insert_error(events, lambda event: incomplete(failed[0]) if isinstance(event, Finish) else None)


def late_ids(events: Events) -> Events:
    ids = {event.block: event.id for event in events if isinstance(event, ToolCallStart)}
    ends = (ToolCall, ToolCallInvalid)
    return [
        msgspec.structs.replace(event, id=ids.get(event.block, event.id)) if isinstance(event, ends) else event
        for event in events
    ]


def calls_before_errors(events: Events) -> Events:
    if not any(isinstance(event, Error) for event in events):
        return events

    def cut(event: StreamChunk) -> StreamChunk:
        if not isinstance(event, ToolCall | ToolCallInvalid):
            return event
        raw = "" if event.arguments_raw == "{}" else event.arguments_raw
        return ToolCallInvalid(event.block, event.id, event.name, raw, "cut", kind=event.kind, choice=event.choice)

    return _each(cut)(events)


def _reasoning_details(event: StreamChunk) -> StreamChunk | None:
    if not isinstance(event, Opaque) or event.kind not in ("reasoning_details", "thinking_blocks"):
        return event
    details = [entry for entry in event.data if not any(entry.get(key) for key in ("text", "summary", "thinking"))]
    return msgspec.structs.replace(event, data=details) if details else None


RESPONSE_ITEMS = ("reasoning", "message", "function_call", "custom_tool_call")


def _item_ids(event: StreamChunk) -> StreamChunk | None:
    """Without ids, and without a reasoning item that only repeats its text: one that never ended has none."""
    if not isinstance(event, Opaque) or event.kind not in RESPONSE_ITEMS:
        return event
    data = {key: value for key, value in event.data.items() if key != "id"}
    if event.kind == "reasoning" and data.keys() <= {"type", "summary", "status"}:
        return None
    return msgspec.structs.replace(event, data=data)


def _reasoning_text(event: StreamChunk) -> StreamChunk:
    if not isinstance(event, Opaque) or event.kind != "reasoning" or event.data.get("summary"):
        return event
    texts = [{"type": "summary_text", "text": part["text"]} for part in event.data.get("content") or ()]
    return msgspec.structs.replace(event, data=event.data | {"summary": texts})


def _custom_calls(event: StreamChunk) -> StreamChunk:
    if isinstance(event, ToolCall) and event.kind == "custom":
        raw = msgspec.json.encode(event.arguments).decode()
        return msgspec.structs.replace(event, kind="function", arguments_raw=raw)
    return msgspec.structs.replace(event, kind="function") if isinstance(event, ToolCallInvalid) else event


def _vendor_calls(event: StreamChunk) -> StreamChunk | None:
    return None if isinstance(event, ToolCall) and event.kind in ("vendor", "approval") else event


def _refusals(event: StreamChunk) -> StreamChunk:
    return Text(event.block, event.text, event.choice) if isinstance(event, Refusal) else event


def _choices(event: StreamChunk) -> StreamChunk | None:
    return None if getattr(event, "choice", 0) else event


def _finish_messages(event: StreamChunk) -> StreamChunk:
    is_end = isinstance(event, Finish) and event.reason not in ("error", "cut")
    return msgspec.structs.replace(event, message="") if is_end else event


def _explanations(event: StreamChunk) -> StreamChunk:
    is_kept = not isinstance(event, Finish) or event.reason == "content_filter" or event.raw_reason == "stop_sequence"
    return event if is_kept else _finish_messages(event)


def call_reasons(events: Events) -> Events:
    """Without a whole call, `tool_calls` is `stop`."""
    if any(isinstance(event, ToolCall) for event in events):
        return events
    return [
        msgspec.structs.replace(event, reason="stop")
        if isinstance(event, Finish) and event.reason == "tool_calls"
        else event
        for event in events
    ]


def held_custom_calls(events: Events) -> Events:
    """Custom calls begin when they are whole: they are written as functions."""
    ends = [event for event in events if isinstance(event, ToolCall | ToolCallInvalid) and event.kind == "custom"]
    blocks = {event.block for event in ends}
    pieces = (ToolCallStart, ToolCallDelta)
    return [event for event in events if not isinstance(event, pieces) or event.block not in blocks]


def _content_filters(event: StreamChunk) -> StreamChunk:
    is_filtered = isinstance(event, Finish) and event.reason == "content_filter"
    return msgspec.structs.replace(event, reason="other") if is_filtered else event


def _without(count: str) -> Rule:
    return _each(lambda event: msgspec.structs.replace(event, **{count: 0}) if isinstance(event, Usage) else event)


def cut_calls(events: Events) -> Events:
    """Cut calls are left out; at a normal end that is an error."""
    cut = [event for event in events if isinstance(event, ToolCallInvalid) and event.why == "cut"]
    blocks = {call.block for call in cut}

    def find(event: StreamChunk) -> Error | None:
        is_normal = isinstance(event, Finish) and event.reason not in ("error", "cut", "length", "content_filter")
        return seeming_call(cut[0].name) if is_normal and cut else None

    return [event for event in _insert_error(events, find) if getattr(event, "block", None) not in blocks]


def invalid_calls(events: Events) -> Events:
    """Invalid calls end the response."""

    def find(event: StreamChunk) -> Error | None:
        if isinstance(event, ToolCallInvalid) and event.why not in ("cut", "withdrawn"):
            return malformed_call(event)
        return None

    return _insert_error(events, find)


def call_pieces(events: Events) -> Events:
    """Of a call that is not whole nothing is written."""
    pieces = (ToolCallStart, ToolCallDelta, ToolCallClosed)
    kept = [event for event in events if not isinstance(event, pieces)]
    calls = {event.block for event in events if isinstance(event, ToolCallStart | ToolCall)}
    whole = {event.block for event in kept if isinstance(event, ToolCall | ToolCallInvalid)}
    states = [event for event in kept if isinstance(event, Opaque) and event.block in calls]
    rest = [event for event in kept if not isinstance(event, Opaque) or event.block not in calls]
    return [*rest, *(state for state in states if state.block in whole)]


def _line_breaks(event: StreamChunk) -> StreamChunk:
    if not isinstance(event, ToolCall):
        return event
    raw = event.arguments_raw.replace("\r", " ").replace("\n", " ").strip()
    return msgspec.structs.replace(event, arguments_raw=raw)


def text_signatures(events: Events) -> Events:
    """The signature of a text is a block of its own."""
    texts = {event.block for event in events if isinstance(event, Text)}
    number = count(2_000_000)
    return [
        msgspec.structs.replace(event, block=next(number))
        if isinstance(event, Opaque) and event.block in texts
        else event
        for event in events
    ]


def block_borders(events: Events) -> Events:
    """Gives texts of one kind in a row the block of the first."""
    first: dict[int, int] = {}
    last: dict[int, tuple[str, int]] = {}  # the kind and number of the last block of each choice
    for event in events:
        if isinstance(event, Text | Reasoning | Refusal):
            kind, block = last.get(event.choice, ("", -1))
            if kind == event.type and block != event.block and event.block not in first:
                first[event.block] = first.get(block, block)
            last[event.choice] = event.type, event.block
        elif isinstance(event, ToolCallStart | ToolCall):
            last[event.choice] = event.type, event.block
    return [
        msgspec.structs.replace(event, block=first.get(event.block, event.block))
        if isinstance(event, Text | Reasoning | Refusal | Opaque)
        else event
        for event in events
    ]


BEFORE: dict[LossName, Rule] = {
    "choices": _each(_choices),
    "refusals": _each(_refusals),
    "call_reasons": call_reasons,
    "custom_calls": held_custom_calls,
    "explanations": _each(_explanations),
    "finish_messages": _each(_finish_messages),
    "changed_arguments": changed_arguments,
    "changed_names": changed_names,
    "seeming_calls": seeming_calls,
    "cut_calls": cut_calls,
    "invalid_calls": invalid_calls,
    "call_pieces": call_pieces,
    "text_signatures": text_signatures,
    "failed_choices": failed_choices,
    "late_ids": late_ids,
}
"""What becomes of events when they are written, by what the wire cannot express."""
AFTER: dict[LossName, Rule] = {
    "line_breaks": _each(_line_breaks),
    "block_borders": block_borders,
    "content_filters": _each(_content_filters),
    "cache_counts": _without("cached_tokens"),
    "cache_write_counts": _without("cache_write_tokens"),
    "reasoning_counts": _without("reasoning_tokens"),
    "custom_calls": _each(_custom_calls),
    "vendor_calls": _each(_vendor_calls),
    "calls_before_errors": calls_before_errors,
    "item_ids": _each(_item_ids),
    "reasoning_details": _each(_reasoning_details),
    "reasoning_text": _each(_reasoning_text),
}
"""What is left out of the comparison, on both sides."""


def expected(events: Events, losses: Iterable[LossName]) -> list[Record]:
    """The records of events after a round trip through a wire with these losses."""
    listed = set(losses)
    for name, rule in BEFORE.items():
        events = rule(events) if name in listed else events
    return compared(as_written(events), listed)


def compared(events: Events, losses: Iterable[LossName]) -> list[Record]:
    """The records of events without what the losses leave out."""
    listed = set(losses)
    for name, rule in AFTER.items():
        events = rule(events) if name in listed else events
    return records(events)


def without_faults(written: list[Record]) -> list[Record]:
    """The records without the names of faults: on another wire, the same text may be judged in another way."""
    return [(*record[:5], *record[6:]) if record[0] == "invalid call" else record for record in written]
