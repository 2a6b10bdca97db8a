"""Encodes responses as Google's Interactions: server-sent events, and whole interactions.

Each block is a step. The end of its step confirms a call. A signature without reasoning is a thought without a summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid, Usage
from penstock.turn import Turn
from penstock.wires.gemini_interactions.facts import ANNOTATIONS, CONTINUATION, FACTS, MEDIA, SIGNATURE, USAGE
from penstock.wires.shared.encode_response.json_writing import PieceWriter, encode_json, raw_json, split_around
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.response_turns import states_by_block
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall, final_text
from penstock.wires.shared.google import GOOGLE_ERRORS
from penstock.wires.shared.token_counts import written_usage

Json = dict[str, Any]
_MARK = "\x00"
FINISH_REASONS = {
    "stop": "completed", "tool_calls": "requires_action", "length": "incomplete", "content_filter": "cancelled",
    "other": "cancelled",
}  # fmt: skip
"""The statuses of interactions by our finish reasons."""


class GeminiInteractionsFrames(ResponseFrames):
    """The frames of Interactions."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        has_closed_errors=True,
        waits_for_call_state=True,
        one_block_at_a_time=True,
        finish_reasons=FINISH_REASONS,
        error_codes=GOOGLE_ERRORS,
        overflow="The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window}).",
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._index = -1  # index of the last step
        self._open_index = -1  # index of the open text or reasoning
        self._indexes: dict[WrittenCall, int] = {}  # indexes of the open steps of calls
        self._token: Any = None

    # The stream.

    def opening(self) -> None:
        status = {"status": "in_progress"}
        self._frame("interaction.created", interaction=self._head() | status)
        self._frame("interaction.status_update", interaction_id=self._id, **status)

    def begin_content(self, event: Content) -> Write:
        is_thought = isinstance(event, Reasoning)
        self._begin_step({"type": "thought" if is_thought else "model_output"})
        self._open_index = self._index
        text = {"type": "text", "text": _MARK}
        return self._writer(self._index, {"type": "thought_summary", "content": text} if is_thought else text)

    def end_content(self) -> None:
        self._stop(self._open_index)

    def begin_call(self, call: WrittenCall) -> Write:
        self._begin_step(_call_step(call.id, call.name, {}, call.states))
        self._indexes[call] = self._index
        return self._writer(self._index, {"type": "arguments_delta", "arguments": _MARK})

    def call_state(self, call: WrittenCall, event: Opaque) -> None:
        if event.kind == SIGNATURE:
            self._delta(self._indexes[call], {"type": "arguments_delta", "arguments": "", SIGNATURE: event.data})

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        self._stop(self._indexes.pop(call))

    def leave_call(self, call: WrittenCall, event: ToolCallInvalid) -> None:
        index = self._indexes.pop(call)
        if event.why != "cut":
            self._stop(index)

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if event.kind == CONTINUATION:
            self._token = event.data
        elif event.kind == SIGNATURE:
            self._add("thought", {"type": "thought_signature", SIGNATURE: event.data}, is_open=open_kind is Reasoning)
        elif event.kind == ANNOTATIONS:
            delta = {"type": "text_annotation_delta", ANNOTATIONS: event.data}
            self._add("model_output", delta, is_open=open_kind is Text)
        elif event.kind in MEDIA and isinstance(event.data, dict):
            self._add("model_output", {**event.data, "type": event.kind}, is_open=False)
        elif isinstance(event.data, dict):
            self._begin_step(event.data)
            self._stop(self._index)

    def _add(self, step: str, delta: Json, *, is_open: bool) -> None:
        """Writes a delta into the open step, or into a new one."""
        if is_open:
            self._delta(self._open_index, delta)
        else:
            self._begin_step({"type": step})
            self._delta(self._index, delta)
            self._stop(self._index)

    def failure(self, error: Error) -> None:
        self._frame("error", error={"code": self.in_band_code(error), "message": error.message})

    def finish(self, event: Finish) -> None:
        self._frame("interaction.completed", interaction=self._head() | self._ending(event, self.usage, self._token))

    def closing(self) -> None:
        self.out.append(b"event: done\ndata: [DONE]\n\n")

    def _frame(self, kind: str, **fields: Any) -> None:
        self.out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_json({"event_type": kind, **fields})))

    def _begin_step(self, step: Json) -> None:
        self._index += 1
        self._frame("step.start", index=self._index, step=step)

    def _delta(self, index: int, delta: Json) -> None:
        self._frame("step.delta", index=index, delta=delta)

    def _stop(self, index: int) -> None:
        self._frame("step.stop", index=index)

    def _writer(self, index: int, delta: Json) -> Write:
        before, after = split_around({"event_type": "step.delta", "index": index, "delta": delta}, _MARK)
        return PieceWriter(self.out, b"event: step.delta\ndata: " + before, after + b"\n\n")

    # The interaction itself.

    @property
    def _id(self) -> str:
        return f"v1_{self.head.id}"

    def _head(self) -> Json:
        return {"id": self._id, "object": "interaction", "model": self.head.model}

    def _ending(self, finish: Finish, usage: Usage | None, token: Any) -> Json:
        """The fields of the end; a response that another request continues has a token."""
        time = datetime.fromtimestamp(self.head.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = self.reason_of(finish) if token is None else "requires_continuation"
        continued = {} if token is None else {CONTINUATION: token}
        counts = written_usage(USAGE, usage or Usage())
        return {"status": status, **continued, "created": time, "updated": time, "usage": counts}

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        turn = turns[0]
        tokens = [part.data for part in turn.parts if isinstance(part, Opaque) and part.kind == CONTINUATION]
        ending = self._ending(self.finish_of(turn), turn.usage, tokens[-1] if tokens else None)
        return {**self._head(), **ending, "role": "model", "steps": list(_steps(turn))}

    def error_body(self, error: Error, status: int) -> Json:
        return {"error": {"code": status, "message": error.message, "status": self.code_of(error, status)}}


def _call_step(id: str, name: str, arguments: Any, states: Json) -> Json:
    signature = {SIGNATURE: states[SIGNATURE]} if SIGNATURE in states else {}
    return {"type": "function_call", "id": id, "name": name, "arguments": arguments, **signature}


def _steps(turn: Turn) -> Iterator[Json]:
    states = states_by_block(turn, FACTS.wire)
    blocks = {part.block for part in turn.parts if not isinstance(part, Opaque)}
    for part in turn.parts:
        state = states.get(part.block, {})
        signature = {SIGNATURE: state[SIGNATURE]} if SIGNATURE in state else {}
        annotations = {ANNOTATIONS: state[ANNOTATIONS]} if ANNOTATIONS in state else {}
        match part:
            case Text() | Refusal():
                yield {"type": "model_output", "content": [{"type": "text", "text": part.text, **annotations}]}
            case Reasoning():
                yield {"type": "thought", **signature, "summary": [{"type": "text", "text": part.text}]}
            case ToolCall() | ToolCallInvalid():
                text = final_text(part, part.kind, has_custom=False)  # that of an invalid call is no object
                yield _call_step(part.id, part.name, raw_json(text) if isinstance(part, ToolCall) else text, state)
            case Opaque(wire=FACTS.wire):
                yield from _state_steps(part, is_alone=part.block not in blocks)
            case _:
                pass


def _state_steps(state: Opaque, *, is_alone: bool) -> Iterator[Json]:
    """The steps of vendor state, if it is not on another part."""
    match state.kind, state.data:
        case "signature", data if is_alone:
            yield {"type": "thought", SIGNATURE: data}
        case "annotations", data if is_alone:
            yield {"type": "model_output", "content": [{"type": "text", "text": "", ANNOTATIONS: data}]}
        case kind, dict(data) if kind in MEDIA:
            yield {"type": "model_output", "content": [{**data, "type": kind}]}
        case kind, dict(data) if kind not in (SIGNATURE, ANNOTATIONS):
            yield data
        case _:
            pass
