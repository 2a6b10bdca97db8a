"""Encodes responses as Anthropic Messages: SSE events, and whole messages.

The end of its block confirms a call, so that block stays open until the call is confirmed. On wires that confirm calls
only at the end of the response, the next block begins before that; clients find blocks by their index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events import (
    Error,
    Finish,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolCallInvalid,
    Usage,
)
from penstock.turn import Turn
from penstock.wires.anthropic.facts import FACTS, USAGE
from penstock.wires.anthropic.toolsets import TOOLSET, own_name
from penstock.wires.shared.claude import PAUSES
from penstock.wires.shared.encode_response.json_writing import PieceWriter, named_sse, raw_json, split_around
from penstock.wires.shared.encode_response.response_errors import UNKNOWN_RESPONSE, error_status
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.response_turns import states_by_block
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall, final_text
from penstock.wires.shared.token_counts import written_usage

Json = dict[str, Any]
_MARK = "\x00"
_CALL_STATES = ("caller", "toolset_name")
_KEPT = {"stop_sequence", "model_context_window_exceeded"}
"""Reasons that say more than ours; they are kept if a response of this wire had them."""


THREAD_ERRORS = ("thread_not_found", "thread_already_continued", "thread_continue_in_flight")
"""Codes of errors about conversations that the server keeps. They are details of an error, not its type."""
FINISH_REASONS = {
    "stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal", "other": "other",
}  # fmt: skip
"""The provider's finish reasons by ours."""
ERROR_CODES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 503: "overloaded_error",
    529: "overloaded_error",
}  # fmt: skip
"""The provider's error codes by HTTP status."""


class AnthropicFrames(ResponseFrames):
    """The frames of Messages. A refusal is written as text."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        has_closed_errors=True,
        waits_for_call_state=True,
        one_block_at_a_time=True,
        finish_reasons=FINISH_REASONS,
        error_codes=ERROR_CODES,
        overflow="prompt is too long: {tokens} tokens > {window} maximum",
        overflow_start="prompt is too long: ",
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._index = -1  # index of the last block
        self._open_index = -1  # index of the open text or reasoning
        self._indexes: dict[WrittenCall, int] = {}  # indexes of the open blocks of calls
        self._container: Any = None

    # The stream.

    def opening(self) -> None:
        counts = written_usage(USAGE, self.usage or Usage())
        ending = {"stop_reason": None, "stop_sequence": None}
        message = {**self._head(), "content": [], **ending, "usage": {**counts, "output_tokens": 1}}
        self._frame({"type": "message_start", "message": message})

    def begin_content(self, event: Content) -> Write:
        self._begin_block(_empty_block(event))
        self._open_index = self._index
        kind, field = ("thinking_delta", "thinking") if isinstance(event, Reasoning) else ("text_delta", "text")
        return self._writer(self._index, {"type": kind, field: _MARK})

    def end_content(self) -> None:
        self._stop(self._open_index)

    def begin_call(self, call: WrittenCall) -> Write:
        state = {kind: call.states[kind] for kind in _CALL_STATES if kind in call.states}
        name = own_name(call.states.get(TOOLSET), call.name)
        self._begin_block({"type": "tool_use", "id": call.id, "name": name, "input": {}, **state})
        self._indexes[call] = self._index
        return self._writer(self._index, {"type": "input_json_delta", "partial_json": _MARK})

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        self._stop(self._indexes.pop(call))

    def leave_call(self, call: WrittenCall, event: ToolCallInvalid) -> None:
        index = self._indexes.pop(call)
        if event.why != "cut":
            self._stop(index)

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if event.kind == "container":
            self._container = event.data
        elif event.kind in ("signature", "citations"):
            self._add_to_block(event, is_open=open_kind is not None)
        elif isinstance(event.data, dict):
            self._begin_block(event.data)
            self._stop(self._index)

    def _add_to_block(self, event: Opaque, is_open: bool) -> None:
        is_signature = event.kind == "signature"
        empty: Content = Reasoning(event.block, "") if is_signature else Text(event.block, "")
        if not is_open:
            self._begin_block(_empty_block(empty))
        if is_signature:
            self._delta({"type": "signature_delta", "signature": event.data})
        else:
            for citation in event.data:
                self._delta({"type": "citations_delta", "citation": citation})
        if not is_open:
            self._stop(self._index)

    def failure(self, error: Error) -> None:
        self._frame(self.error_body(error, error_status(error, self.format.error_codes)))

    def finish(self, event: Finish) -> None:
        counts = written_usage(USAGE, self.usage or Usage())
        delta = self._ending(event)
        container = {} if self._container is None else {"container": self._container}
        self._frame({"type": "message_delta", "delta": {**delta, **container}, "usage": counts})

    def _ending(self, finish: Finish) -> Json:
        word = self.reason_of(finish)
        stop = finish.message or None if word == "stop_sequence" else None
        ending: Json = {"stop_reason": word, "stop_sequence": stop}
        if finish.message and word == "refusal":
            ending["stop_details"] = {"type": "refusal", "category": None, "explanation": finish.message}
        return ending

    def reason_of(self, finish: Finish) -> str:
        if finish.client_work in PAUSES:
            return finish.client_work
        return finish.raw_reason if finish.raw_reason in _KEPT else super().reason_of(finish)

    def expresses_work(self, client_work: str) -> bool:
        return client_work in PAUSES

    def closing(self) -> None:
        self._frame({"type": "message_stop"})

    def _frame(self, frame: Json) -> None:
        self.out.append(named_sse(frame))

    def _begin_block(self, block: Json) -> None:
        self._index += 1
        self._frame({"type": "content_block_start", "index": self._index, "content_block": block})

    def _delta(self, delta: Json) -> None:
        self._frame({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _stop(self, index: int) -> None:
        self._frame({"type": "content_block_stop", "index": index})

    def _writer(self, index: int, delta: Json) -> Write:
        before, after = split_around({"type": "content_block_delta", "index": index, "delta": delta}, _MARK)
        return PieceWriter(self.out, b"event: content_block_delta\ndata: " + before, after + b"\n\n")

    def _head(self) -> Json:
        return {"id": f"msg_{self.head.id}", "type": "message", "role": "assistant", "model": self.head.model}

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        turn = turns[0]
        container = [part.data for part in turn.parts if isinstance(part, Opaque) and part.kind == "container"]
        return {
            **self._head(),
            "content": list(self._blocks(turn)),
            **self._ending(self.finish_of(turn)),
            **({"container": container[-1]} if container else {}),
            "usage": written_usage(USAGE, turn.usage or Usage()),
        }

    def _blocks(self, turn: Turn) -> Iterator[Json]:
        states = states_by_block(turn, FACTS.wire)
        blocks = {part.block for part in turn.parts if not isinstance(part, Opaque)}
        for part in turn.parts:
            state = states.get(part.block, {})
            match part:
                case Text() | Refusal():
                    citations = {"citations": state["citations"]} if "citations" in state else {}
                    yield {"type": "text", "text": part.text, **citations}
                case Reasoning():
                    yield {"type": "thinking", "thinking": part.text, "signature": state.get("signature", "")}
                case ToolCall() | ToolCallInvalid():
                    yield self._tool(part, state)
                case Opaque(kind="signature") if part.wire == FACTS.wire and part.block not in blocks:
                    yield {"type": "thinking", "thinking": "", "signature": part.data}
                case Opaque(data=dict()) if part.wire == FACTS.wire and part.kind not in ("container", *_CALL_STATES):
                    yield part.data
                case _:
                    pass

    def _tool(self, call: ToolCall | ToolCallInvalid, state: Json) -> Json:
        """A `tool_use` block. The arguments of an invalid call are text, as they came, and not an object."""
        text = final_text(call, call.kind, has_custom=False)
        input = raw_json(text) if isinstance(call, ToolCall) else text
        known = {kind: state[kind] for kind in _CALL_STATES if kind in state}
        name = own_name(known.get(TOOLSET), call.name)
        return {"type": "tool_use", "id": call.id, "name": name, "input": input, **known}

    def error_body(self, error: Error, status: int) -> Json:
        kind, details = self.code_of(error, status), {}
        kind = "thread_not_found" if kind == UNKNOWN_RESPONSE else kind
        if kind in THREAD_ERRORS:  # after which a client sends its whole history
            kind, details = self.format.error_codes[404], {"details": {"error_code": kind}}
        fields = {"type": kind, "message": error.message, **details}
        return {"type": "error", "error": fields, "request_id": f"req_{self.head.id}"}


def _empty_block(event: Content) -> Json:
    if isinstance(event, Reasoning):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}
