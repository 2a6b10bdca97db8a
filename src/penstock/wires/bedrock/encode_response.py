"""Encodes responses as Bedrock's ConverseStream and Converse: numbered blocks in binary frames, and whole responses.

Text and reasoning have no start event. The end of its block confirms a call; on wires that confirm calls only at the
end of the response, the next block begins before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, assert_never

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid, Usage
from penstock.framing.aws import encode_frame, encode_headers
from penstock.turn import Turn
from penstock.wires.bedrock.facts import FACTS, USAGE
from penstock.wires.shared.claude import PAUSES
from penstock.wires.shared.encode_response.json_writing import encode_json, quote, raw_json, split_around
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.response_turns import states_by_block
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall, final_text
from penstock.wires.shared.token_counts import written_usage

Json = dict[str, Any]
_MARK = "\x00"
_IN_REASONING = ("signature", "redactedContent")


@cache
def _headers(event: str) -> bytes:
    fields = {":event-type": event, ":content-type": "application/json", ":message-type": "event"}
    return encode_headers(fields)


_DELTA = _headers("contentBlockDelta")
FINISH_REASONS = {
    "stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "content_filtered",
    "other": "other",
}  # fmt: skip
"""The provider's finish reasons by ours."""
ERROR_CODES = {
    400: "ValidationException", 401: "UnrecognizedClientException", 403: "AccessDeniedException",
    404: "ResourceNotFoundException", 408: "ModelTimeoutException", 424: "ModelErrorException",
    429: "ThrottlingException", 500: "InternalServerException", 503: "ServiceUnavailableException",
}  # fmt: skip
"""The provider's error codes by HTTP status."""


class BedrockFrames(ResponseFrames):
    """The frames of Converse. There are no keep-alives: clients read every frame."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        content_type="application/vnd.amazon.eventstream",
        keep_alive=b"",
        one_block_at_a_time=True,
        finish_reasons=FINISH_REASONS,
        error_codes=ERROR_CODES,
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._index = -1  # index of the last block
        self._open_index = -1  # index of the open text or reasoning
        self._indexes: dict[WrittenCall, int] = {}  # indexes of the open blocks of calls

    # The stream.

    def opening(self) -> None:
        self._frame("messageStart", {"role": "assistant"})

    def begin_content(self, event: Content) -> Write:
        self._index += 1
        self._open_index = self._index
        is_reasoning = isinstance(event, Reasoning)
        return self._writer({"reasoningContent": {"text": _MARK}} if is_reasoning else {"text": _MARK})

    def end_content(self) -> None:
        self._stop(self._open_index)

    def begin_call(self, call: WrittenCall) -> Write:
        self._begin_block({"toolUse": {"toolUseId": call.id, "name": call.name}})
        self._indexes[call] = self._index
        return self._writer({"toolUse": {"input": _MARK}})

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        self._stop(self._indexes.pop(call))

    def leave_call(self, call: WrittenCall, event: ToolCallInvalid) -> None:
        index = self._indexes.pop(call)
        if event.why != "cut":
            self._stop(index)

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if event.kind not in (*_IN_REASONING, "citations"):
            self._begin_block(event.data)
            self._stop(self._index)
            return
        if open_kind is None:
            self._index += 1
        for delta in _state_deltas(event):
            self._frame("contentBlockDelta", {"contentBlockIndex": self._index, "delta": delta})
        if open_kind is None:
            self._stop(self._index)

    def failure(self, error: Error) -> None:
        code = self.in_band_code(error)
        code = code if code.endswith("Exception") else "ModelStreamErrorException"
        name = code[:1].lower() + code[1:]
        headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
        self.out.append(encode_frame(encode_headers(headers), encode_json({"message": error.message})))

    def expresses_work(self, client_work: str) -> bool:
        return client_work in PAUSES

    def finish(self, event: Finish) -> None:
        self._frame("messageStop", {"stopReason": self._reason(event)})

    def closing(self) -> None:
        self._frame("metadata", metadata(self.usage or Usage()))

    def _reason(self, finish: Finish) -> str:
        return finish.client_work if finish.client_work in PAUSES else self.reason_of(finish)

    def _frame(self, event: str, payload: Json) -> None:
        self.out.append(encode_frame(_headers(event), encode_json(payload)))

    def _begin_block(self, start: Json) -> None:
        self._index += 1
        self._frame("contentBlockStart", {"contentBlockIndex": self._index, "start": start})

    def _stop(self, index: int) -> None:
        self._frame("contentBlockStop", {"contentBlockIndex": index})

    def _writer(self, delta: Json) -> Write:
        before, after = split_around({"contentBlockIndex": self._index, "delta": delta}, _MARK)
        append = self.out.append

        def write(piece: str) -> None:
            append(encode_frame(_DELTA, before + quote(piece) + after))

        return write

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        [turn] = turns
        message = {"role": "assistant", "content": list(self._blocks(turn))}
        reason = self._reason(self.finish_of(turn))
        return {"output": {"message": message}, "stopReason": reason, **metadata(turn.usage or Usage())}

    def _blocks(self, turn: Turn) -> Iterator[Json]:
        states = states_by_block(turn, FACTS.wire)
        blocks = {part.block for part in turn.parts if not isinstance(part, Opaque)}
        for part in turn.parts:
            state = states.get(part.block, {})
            match part:
                case Text() | Refusal() if "citations" in state:
                    yield {"citationsContent": {"content": [{"text": part.text}], "citations": state["citations"]}}
                case Text() | Refusal():
                    yield {"text": part.text}
                case Reasoning():
                    signature = {"signature": state["signature"]} if "signature" in state else {}
                    yield {"reasoningContent": {"reasoningText": {"text": part.text, **signature}}}
                case ToolCall() | ToolCallInvalid():
                    text = final_text(part, part.kind, has_custom=False)
                    input = raw_json(text) if isinstance(part, ToolCall) else text
                    yield {"toolUse": {"toolUseId": part.id, "name": part.name, "input": input}}
                case Opaque() if part.wire != FACTS.wire or part.block in blocks or part.kind == "citations":
                    pass
                case Opaque(kind="signature"):
                    yield {"reasoningContent": {"reasoningText": {"text": "", "signature": part.data}}}
                case Opaque(kind="redactedContent"):
                    yield {"reasoningContent": {"redactedContent": part.data}}
                case Opaque():
                    yield part.data
                case _:
                    assert_never(part)

    def error_body(self, error: Error, status: int) -> Json:
        return {"message": error.message}

    def error_headers(self, error: Error, status: int) -> dict[str, str]:
        return {
            "x-amzn-ErrorType": f"{self.code_of(error, status)}:http://internal.amazon.com/coral/com.amazon.bedrock/"
        }


def _state_deltas(event: Opaque) -> Iterator[Json]:
    if event.kind == "citations":
        for citation in event.data:
            yield {"citation": citation}
    else:
        yield {"reasoningContent": {event.kind: event.data}}


def metadata(counts: Usage) -> Json:
    """The last event of a stream: its token counts, and a latency, which is not known here."""
    return {"usage": written_usage(USAGE, counts), "metrics": {"latencyMs": 0}}
