"""Encodes responses as Chat Completions: stream chunks, and whole completions.

Calls have no end of their own here: the finish reason confirms them. Reasoning is `reasoning_content`, the field that
most servers and clients know. Details of reasoning that contain the text of the reasoning are left out of a stream,
where the text has been sent already; a whole message has them.

Clients that declare `functions` instead of `tools` look for one `function_call`: the first call is written as that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text
from penstock.turn import Turn
from penstock.wires.openai_chat.completions import (
    DONE,
    FINISH_REASONS,
    MARK,
    Chunks,
    call_form,
    completion,
    known_reason,
    state_fields,
    whole_calls,
)
from penstock.wires.openai_chat.facts import FACTS, USAGE
from penstock.wires.openai_chat.fragments import FIELDS
from penstock.wires.openai_chat.reasoning_fields import LIST_FIELDS, STATE_FIELDS, TOKEN_FIELDS, detail_texts
from penstock.wires.shared.encode_response.json_writing import sse
from penstock.wires.shared.encode_response.openai_errors import OPENAI_ERRORS, OPENAI_OVERFLOW, openai_error
from penstock.wires.shared.encode_response.response_errors import error_status
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.response_turns import states_by_block
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall
from penstock.wires.shared.token_counts import written_usage

Json = dict[str, Any]
_FIELD = {Text: "content", Reasoning: "reasoning_content", Refusal: "refusal"}


class OpenAIChatFrames(ResponseFrames):
    """The frames of Chat Completions."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        has_choices=True,
        has_custom_calls=True,
        finish_reasons=FINISH_REASONS,
        error_codes=OPENAI_ERRORS,
        overflow=OPENAI_OVERFLOW,
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._chunks = Chunks(self.out, head, {"logprobs": None}, {"usage": None} if head.has_usage else {})

    # The stream.

    def opening(self) -> None:
        self._chunks.begin(0)

    def begin_content(self, event: Content) -> Write:
        self._chunks.begin(event.choice)
        return self._chunks.writer({_FIELD[type(event)]: MARK}, event.choice)

    def begin_call(self, call: WrittenCall) -> Write:
        chunks, choice = self._chunks, call.choice
        chunks.begin(choice)
        if self._is_old(call):
            chunks.delta({"function_call": {"name": call.name, "arguments": ""}}, choice)
            return chunks.writer({"function_call": {"arguments": MARK}}, choice)
        kind, field = call_form(call)
        entry = {"index": call.index, "id": call.id, "type": kind, kind: {"name": call.name, field: ""}}
        chunks.delta({"tool_calls": [entry | state_fields(call)]}, choice)
        return chunks.writer({"tool_calls": [{"index": call.index, kind: {field: MARK}}]}, choice)

    def _is_old(self, call: WrittenCall) -> bool:
        """Whether a call is written in the older form, which has no list and only functions."""
        return self.head.has_old_calls and not call.index and call.kind != "custom"

    def reason_of(self, finish: Finish) -> str:
        return known_reason(super().reason_of(finish), self.head)

    def call_state(self, call: WrittenCall, event: Opaque) -> None:
        if not self._is_old(call) and event.kind in ("extra_content", FIELDS):
            entry = {"index": call.index, "id": call.id, **state_fields(call)}
            self._chunks.delta({"tool_calls": [entry]}, call.choice)

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if event.kind in LIST_FIELDS and (details := _without_text(event.data)):
            self._chunks.delta({event.kind: details}, event.choice)
        elif event.kind in TOKEN_FIELDS:
            self._chunks.delta({event.kind: event.data}, event.choice)

    def failure(self, error: Error) -> None:
        self.out.append(sse(self.error_body(error, error_status(error, self.format.error_codes))))

    def finish(self, event: Finish) -> None:
        self._chunks.begin(event.choice)
        self._chunks.end({}, event.choice, self.reason_of(event))

    def closing(self) -> None:
        if self.head.has_usage and self.usage is not None:
            self._chunks.counts(written_usage(USAGE, self.usage))
        self.out.append(DONE)

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        choices = [(self._message(turn), self.reason_of(self.finish_of(turn))) for turn in turns]
        return completion(self.head, choices, USAGE, turns[0].usage)

    def _message(self, turn: Turn) -> Json:
        message: Json = {"role": "assistant", "content": turn.text or None, "refusal": turn.refusal or None}
        states = states_by_block(turn, FACTS.wire)
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        for field in STATE_FIELDS:
            if found := [state[field] for state in states.values() if state.get(field)]:
                message[field] = list(chain(*found)) if field in LIST_FIELDS else found[0]
        calls = whole_calls(turn, states, self.head, has_custom=True)
        if calls and self.head.has_old_calls and "function" in calls[0]:
            message["function_call"] = calls.pop(0)["function"]
        if calls:
            message["tool_calls"] = calls
        return message

    def error_body(self, error: Error, status: int) -> Json:
        return openai_error(self.code_of(error, status), error.message, status)


def _without_text(details: Any) -> list[Json]:
    """The details whose text has not been sent as reasoning: they have none."""
    entries = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    return [detail for detail in entries if not any(detail_texts([detail]))]
