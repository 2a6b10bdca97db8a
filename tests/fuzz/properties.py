"""What holds for the events of every stream, however damaged: see "Laws" in docs/architecture.md."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import penstock
from penstock import (
    Error,
    Finish,
    Message,
    Opaque,
    Retry,
    StreamChunk,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    ToolResult,
    Usage,
    events,
)
from penstock.messages import result, tool_results, user
from penstock.providers import PROVIDERS
from penstock.wires import find_wire
from tests.fuzz.cases import Case
from tests.support import decode_pieces, joined, pieces_of, random_pieces

MAX_BYTEWISE = 6_000
"""How long a body may be that is also fed byte by byte."""

END_MARKS = (b"[DONE]", b"message_stop", b"message-end", b'"type":"message"', b'"bytes"')
"""What ends a stream, or is a whole body: calls that it confirms need no finish reason."""

Found = Iterator[tuple[str, str]]
"""The properties that do not hold, and what was seen."""


def broken_properties(case: Case) -> dict[str, str]:
    """The properties that do not hold for a case, with what was seen. Empty if all is well."""
    found: dict[str, str] = {}
    try:
        reads = case.reads()
        body = b"".join(reads)
        whole = decode_pieces(case.wire, [body])
    except Exception:  # noqa: BLE001  # that is what is looked for
        return {"never raises": traceback.format_exc(limit=-4)}
    for check in CHECKS:
        try:
            for name, seen in check(case, whole, body):
                found.setdefault(name, seen)
        except Exception:  # noqa: BLE001
            found.setdefault("never raises", traceback.format_exc(limit=-4))
    return found


# Laws of one decoding.


def order(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """One finish per choice, at the end; nothing for a block whose call has ended."""
    finished: set[int] = set()
    ended: dict[int, str] = {}
    started: set[int] = set()
    for event in whole:
        if isinstance(event, Finish):
            if event.choice in finished:
                yield "one finish", f"{event}"
            finished.add(event.choice)
            continue
        if finished and getattr(event, "choice", None) in {None, *finished}:
            yield "nothing after the finish", f"{event}"
        block = getattr(event, "block", None)
        if block in ended and not (isinstance(event, Opaque) and ended[block] == "tool_call"):
            yield "nothing after the end of a call", f"{ended[block]}, then {event}"
        if isinstance(event, ToolCallStart):
            if event.block in started:
                yield "one start", f"{event}"
            started.add(event.block)
        is_item = isinstance(event, ToolCall) and event.kind in ("vendor", "approval")  # which comes in one piece
        is_piece = isinstance(event, ToolCall | ToolCallClosed | ToolCallDelta) and not is_item
        if is_piece and block not in started:
            yield "a start first", f"{event}"
        if isinstance(event, ToolCall | ToolCallInvalid):
            ended[event.block] = event.type
    choices = {event.choice for event in whole if hasattr(event, "choice")}
    if choices != finished or not finished:
        yield "one finish", f"choices {choices}, finished {finished}"
    if not started <= ended.keys():
        yield "every call ends", f"started {started}, ended {set(ended)}"


def strictness(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """The arguments of a call are the strict JSON of its raw text."""
    for call in whole:
        if isinstance(call, ToolCall) and not is_strict(call):
            yield "calls are strict", f"{call}"
        if isinstance(call, ToolCall) and (not call.id or not call.name):
            yield "calls are identified", f"{call}"
    ids = [(event.choice, event.id) for event in whole if isinstance(event, ToolCall | ToolCallInvalid) and event.id]
    if len(ids) != len(set(ids)) and not any(isinstance(event, Retry) for event in whole):
        yield "calls are identified", f"{ids}"


def is_strict(call: ToolCall) -> bool:
    if call.kind == "custom":
        return call.arguments == {"input": call.arguments_raw}
    if call.arguments_raw.strip() in ("", "null", '"null"'):  # QUIRKS 32-34
        return call.arguments == {}
    try:
        return json.loads(call.arguments_raw, object_pairs_hook=_unique_keys, parse_constant=_refuse) == call.arguments
    except ValueError:
        return False


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def storable(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    for event in whole:
        if events.decode(events.encode(event)) != event:
            yield "events survive JSON", f"{event}"


def history(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """The answer as a message, with a result for every call, is a history that providers accept."""
    for choice in sorted({event.choice for event in whole if isinstance(event, Finish)})[:2]:
        turn = penstock.collect(whole, choice)
        calls = [part for part in turn.parts if isinstance(part, ToolCall | ToolCallInvalid)]
        messages = [user("Go."), *([Message("assistant", turn.parts)] if turn.parts else [])]
        messages += [tool_results(*(_result_of(call) for call in calls))] if calls else []
        providers = [None, Random(case.seed).choice(sorted(PROVIDERS))]
        for provider in providers:
            problems = penstock.check(messages, provider)  # type: ignore[arg-type]
            if problems:
                yield "the history is valid", f"{provider}: {problems[0]}"


def _result_of(call: ToolCall | ToolCallInvalid) -> ToolResult:
    return result(call, "ok") if isinstance(call, ToolCall) else result(call, "Not run.", is_error=True)


# Laws of several decodings.


def cuttings(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """However the bytes are cut, the events are the same."""
    expected = joined(whole)
    ways: list[tuple[str, list[bytes]]] = [("frame by frame", case.reads())]
    ways += [(f"at random ({seed})", random_pieces(body, seed)) for seed in (case.seed, case.seed + 1)]
    if len(body) <= MAX_BYTEWISE:
        ways.append(("byte by byte", list(pieces_of(body, 1))))
    for name, pieces in ways:
        other = joined(decode_pieces(case.wire, pieces))
        if other != expected:
            at = next(
                (at for at, (one, two) in enumerate(zip(expected, other, strict=False)) if one != two),
                min(len(expected), len(other)),
            )
            yield "cuts do not show", f"{name}: {other[at : at + 2]} instead of {expected[at : at + 2]}"


def prefixes(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """Every call of a prefix is a call of the whole, and a prefix says that it was cut."""
    is_withdrawn = any(isinstance(event, Retry) for event in whole)
    known, reads = calls_of(whole), case.reads()
    chance = Random(case.seed)
    ends, end = list[int](), 0
    for read in reads:
        end += len(read)
        ends.append(end)
    ends = chance.sample(ends, min(len(ends), 8)) + [chance.randrange(len(body) + 1) for _ in range(3)]
    inner = [match.end() for match in re.finditer(rb"\}(?=[^]},])|[\r\n]", body)]  # of objects and lines in a frame
    ends += chance.sample(inner, min(len(inner), 4))
    for end in ends:
        prefix = decode_pieces(case.wire, [body[:end]])
        settled = [event for event in prefix if not may_get_arguments(event, case.wire)]
        for call in [] if is_withdrawn else calls_of(settled):
            if call not in known:
                seen = f"{call} after {end} of {len(body)} bytes, not in {known}"
                yield "calls of a prefix are calls of the whole", seen
        turn = penstock.collect(prefix)
        is_by_mark = turn.finish_reason == "tool_calls" and any(mark in body[:end] for mark in END_MARKS)
        is_by_mark |= case.style == "body" or (end == len(body) and is_object(body))  # a whole body is its own end
        if turn.raw_finish_reason is None and turn.finish_reason not in ("cut", "error") and not is_by_mark:
            yield "a prefix is cut", f"{turn.finish_reason} after {end} of {len(body)} bytes"
        for name, seen in order(case, prefix, body):
            yield name, f"after {end} of {len(body)} bytes: {seen}"


def is_object(body: bytes) -> bool:
    """Whether a body is one JSON object."""
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def may_get_arguments(event: StreamChunk, wire: str) -> bool:
    """Whether only the reason for the end confirms a call to which arguments may still be added (decision 43).

    It has none, they are free text, or, on Gemini, it said that it continues.
    """
    if not isinstance(event, ToolCall) or event.sealed_by != "finish":
        return False
    return wire == "gemini" or event.kind == "custom" or event.arguments_raw.strip() in ("", "null", '"null"')


Identity = tuple[int, str, str, dict[str, Any]]


def calls_of(stream: list[StreamChunk]) -> list[Identity]:
    return [(event.choice, event.id, event.name, event.arguments) for event in stream if isinstance(event, ToolCall)]


def lanes(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """The loose path, which reads frames of any shape, gives the same answer as the narrow one."""
    wire = find_wire(case.wire)

    def refuse(payload: bytes) -> None:
        raise ValueError("not of the narrow shape")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("decode", "decode_wide"):  # the second one only on a wire that has two typed shapes
            patch.setattr(wire, name, staticmethod(refuse), raising=False)
        loose = decode_pieces(case.wire, [body])
    one, other = summary(whole), summary(loose)
    if one != other:
        key = next(key for key in one if one[key] != other[key])
        yield "the loose path gives the same", f"{key}: {other[key]!r} instead of {one[key]!r}"


def summary(stream: list[StreamChunk]) -> dict[str, Any]:
    """What a reader learns, without spellings and numbers of blocks."""
    turn = penstock.collect(stream)
    return {
        "text": turn.text, "reasoning": turn.reasoning, "refusal": turn.refusal, "calls": calls_of(stream),
        "invalid": [(call.name, call.why) for call in turn.invalid_calls], "reason": turn.finish_reason,
        "error": turn.error.message if turn.error else None,
        "state": [part.kind for part in turn.parts if isinstance(part, Opaque)],
    }  # fmt: skip


# Laws of a mutation.


def meaning(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """What was done to a valid stream does what it must, and no more."""
    if case.kind == "valid" and case.answer is not None:
        yield from _valid(case, whole)
    elif case.kind in ("harmless", "repeated"):
        yield from _unchanged(case, whole)
    elif case.kind in ("unreadable", "garbled"):
        yield from _lost(case, whole)


def _valid(case: Case, whole: list[StreamChunk]) -> Found:
    answer, turn = case.answer, penstock.collect(whole)
    assert answer is not None
    calls = sorted(turn.tool_calls, key=lambda call: call.id)  # those that are mixed have the order of their starts
    is_apart = case.wire in ("openai-chat", "openai-responses")  # where a refusal is not a text
    is_apart |= case.wire == "mistral" and case.style == "body"
    text = answer.text("text") + ("" if is_apart else answer.text("refusal"))
    expected = {
        "text": text, "reasoning": answer.text("reasoning"), "refusal": answer.text("refusal") if is_apart else "",
        "calls": [(call.id, call.name, call.arguments) for call in answer.calls], "reason": answer.reason,
        "error": None,
    }  # fmt: skip
    seen = {
        "text": turn.text, "reasoning": turn.reasoning, "refusal": turn.refusal,
        "calls": [(call.id, call.name, call.arguments) for call in calls], "reason": turn.finish_reason,
        "error": turn.error,
    }  # fmt: skip
    if answer.reason == "length":
        del expected["calls"]  # the last one may have been cut
    for key, value in expected.items():
        if seen[key] != value:
            yield "a valid stream is understood", f"{key}: {seen[key]!r} instead of {value!r}"


def _unchanged(case: Case, whole: list[StreamChunk]) -> Found:
    undamaged = decode_pieces(case.wire, [case.undamaged_body()])
    before, after = summary(undamaged), summary(whole)
    for summarized in (before, after):
        summarized["calls"].sort(key=lambda call: call[:2])
    if case.kind == "repeated":
        if before["calls"] and (before["calls"] != after["calls"] or before["invalid"] != after["invalid"]):
            seen = f"{after['calls']} {after['invalid']} instead of {before['calls']}"
            yield "a call that comes twice is one", seen
        return
    if any(isinstance(event, ToolCall) and not event.arguments for event in undamaged):
        return  # what is unknown may have been the arguments
    for key, value in before.items():
        if value != after[key]:
            yield "what is unknown changes nothing", f"{key}: {after[key]!r} instead of {value!r}"


def _lost(case: Case, whole: list[StreamChunk]) -> Found:
    known = [call[2:] for call in calls_of(decode_pieces(case.wire, [case.undamaged_body()]))]
    for call in calls_of(whole):
        if call[2:] not in known:
            yield "no call with a hole", f"{call}"
    reason = penstock.collect(whole).finish_reason
    if reason != "cut" and not any(isinstance(event, Error) for event in whole):
        yield "a hole is an error", f"finish {reason}"
    if reason in ("stop", "tool_calls"):
        yield "a hole is no plain stop", f"finish {reason}"


def tokens(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    for event in whole:
        if isinstance(event, Usage):
            counts = [getattr(event, name) for name in event.__struct_fields__ if name.endswith("_tokens")]
            if any(type(count) is not int or count < 0 for count in counts):
                yield "token counts are whole numbers", f"{event}"


def parsed(case: Case, whole: list[StreamChunk], body: bytes) -> Found:
    """Frames that were parsed by somebody else, as SDKs do it, give the same answer."""
    frames = case.frames
    if case.style not in ("usual", "crlf", "unnamed") or not all(isinstance(frame, dict) and frame for frame in frames):
        return
    if any("$bytes" in frame or "exception" in frame for frame in frames):
        return
    if case.wire == "bedrock" and case.kind == "wild":  # the name of an event is not a key of its payload
        return
    try:
        portable = json.loads(body.decode() and json.dumps(frames), parse_constant=_refuse)
    except ValueError:  # a lone surrogate, or a number that JSON does not have
        return
    one, other = summary(whole), summary(list(penstock.decode(portable, find_wire(case.wire).name)))  # type: ignore[call-overload]
    if one != other:
        key = next(key for key in one if one[key] != other[key])
        yield "parsed frames give the same", f"{key}: {other[key]!r} instead of {one[key]!r}"


Check = Callable[[Case, list[StreamChunk], bytes], Found]

CHECKS: list[Check] = [order, strictness, storable, history, cuttings, prefixes, lanes, meaning, tokens, parsed]
