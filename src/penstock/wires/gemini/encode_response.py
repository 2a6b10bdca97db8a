"""Encodes responses as Gemini's `generateContent`: chunks in the shape of the whole response, and whole responses.

Calls come whole, and their arguments are objects: an invalid call ends the response with an error, and a call that was
cut by the token limit is left out. The stream has no end mark; its last chunk has the finish reason. Every chunk has
the counts that are known when it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.turn import Turn
from penstock.wires.gemini.calls import SIGNATURE
from penstock.wires.gemini.facts import FACTS, STATE_PARTS, USAGE
from penstock.wires.shared.encode_response.json_writing import PieceWriter, raw_json, split_around, sse
from penstock.wires.shared.encode_response.response_errors import error_status
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
    "stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY", "other": "OTHER",
}  # fmt: skip
"""The provider's finish reasons by ours."""


class GeminiFrames(ResponseFrames):
    """The frames of Gemini. Its own clients cannot read comments, so a keep-alive is an event without data."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        keep_alive=b"\n\n",
        has_closed_errors=True,
        has_choices=True,
        streams_arguments=False,
        has_text_arguments=False,
        finish_reasons=FINISH_REASONS,
        error_codes=GOOGLE_ERRORS,
        overflow="The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window}).",
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._part: tuple[Opaque, Json] | None = None  # a part of vendor state, which may be signed yet

    # The stream.

    def begin_content(self, event: Content) -> Write:
        self._end_part()
        before, after = split_around(self._chunk(event.choice, _text_part(event, _MARK)), _MARK)
        return PieceWriter(self.out, b"data: " + before, after + b"\n\n")

    def begin_call(self, call: WrittenCall) -> Write:
        self._end_part()
        return _ignore

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        self._frame(call.choice, _call_part(call.id, call.name, arguments, call.states))

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if self._part is not None and self._part[0].block == event.block and event.kind == SIGNATURE:
            self._part[1]["thoughtSignature"] = event.data
            return
        self._end_part()
        if event.kind in STATE_PARTS:
            self._part = event, dict(event.data)
        elif event.kind == SIGNATURE:
            thought = {"thought": True} if open_kind is Reasoning else {}
            self._frame(event.choice, {"text": "", "thoughtSignature": event.data, **thought})
        elif event.kind == "continuationToken":
            self.out.append(sse(self._response([{"index": event.choice, "continuationToken": event.data}])))

    def _end_part(self) -> None:
        if self._part is not None:
            event, part = self._part
            self._part = None
            self._frame(event.choice, part)

    def failure(self, error: Error) -> None:
        self._end_part()
        self.out.append(sse(self.error_body(error, error_status(error, self.format.error_codes))))

    def finish(self, event: Finish) -> None:
        self._end_part()
        self.out.append(sse(self._chunk(event.choice, {"text": ""}, **self._ending(event))))

    def _frame(self, choice: int, part: Json) -> None:
        self.out.append(sse(self._chunk(choice, part)))

    def _chunk(self, choice: int, *parts: Json, **ending: str) -> Json:
        return self._response([_candidate(choice, list(parts), **ending)])

    def _response(self, candidates: list[Json]) -> Json:
        counts = {} if self.usage is None else {"usageMetadata": written_usage(USAGE, self.usage)}
        return {"candidates": candidates, **counts, "modelVersion": self.head.model, "responseId": self.head.id}

    def _ending(self, finish: Finish) -> Json:
        message = {"finishMessage": finish.message} if finish.message else {}
        return {"finishReason": self.reason_of(finish), **message}

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        candidates = [
            _candidate(choice, list(self._parts(turn)), **self._ending(self.finish_of(turn)))
            for choice, turn in enumerate(turns)
        ]
        self.usage = turns[0].usage
        return self._response(candidates)

    def _parts(self, turn: Turn) -> Iterator[Json]:
        states = states_by_block(turn, FACTS.wire)
        signatures = {block: state[SIGNATURE] for block, state in states.items() if SIGNATURE in state}
        blocks = {part.block for part in turn.parts if not isinstance(part, Opaque) or part.kind in STATE_PARTS}
        for part in turn.parts:
            signature = {"thoughtSignature": signatures[part.block]} if part.block in signatures else {}
            match part:
                case Text() | Refusal() | Reasoning():
                    yield _text_part(part, part.text) | signature
                case ToolCall():
                    text = final_text(part, part.kind, has_custom=False)
                    yield _call_part(part.id, part.name, text, states.get(part.block, {}))
                case Opaque() if part.wire == FACTS.wire and part.kind in STATE_PARTS:
                    yield {**part.data, **signature}
                case Opaque(kind=kind) if kind == SIGNATURE and part.wire == FACTS.wire and part.block not in blocks:
                    yield {"text": "", **signature}
                case _:
                    pass

    def error_body(self, error: Error, status: int) -> Json:
        fields: Json = {"code": status, "message": error.message, "status": self.code_of(error, status)}
        if self.head.retry_after is not None:  # clients look here, not at the header
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            fields["details"] = [{"@type": kind, "retryDelay": f"{self.head.retry_after:g}s"}]
        return {"error": fields}


def _ignore(piece: str) -> None:
    """Does nothing: a call is written when it is whole."""


def _candidate(choice: int, parts: list[Json], **ending: str) -> Json:
    return {"content": {"parts": parts, "role": "model"}, **ending, "index": choice}


def _text_part(event: Content, text: str) -> Json:
    return {"text": text, "thought": True} if isinstance(event, Reasoning) else {"text": text}


def _call_part(id: str, name: str, arguments: str, states: Json) -> Json:
    signature = {"thoughtSignature": states[SIGNATURE]} if SIGNATURE in states else {}
    named = {"id": id} if id else {}
    return {"functionCall": {**named, "name": name, "args": raw_json(arguments)}, **signature}
