"""Decodes Google Gemini: chunks of `streamGenerateContent`, and whole responses, which are one such chunk.

The stream has no end mark: answers end with the bytes, and the token counts are emitted then. Parts that must be sent
back as they came and are neither text nor calls (images, executed code, hosted tools) are `Opaque`. Fields about the
answer (sources, ratings) are not part of it and are `Unknown`.

The loose path is the reference for `read_typed` and for chunks of the wide shape; test_laws decodes every vector by
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw, Struct, structs

from penstock.events import Error, FinishReason, Text
from penstock.jsontext.portable import as_json_value
from penstock.wires.gemini.calls import SIGNATURE, FunctionCall, GeminiCalls, camel_case, read_function_call
from penstock.wires.gemini.counts import Counts, LastCounts
from penstock.wires.gemini.facts import STATE_PARTS, USAGE
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.in_band_errors import bare_message, error_in
from penstock.wires.shared.decode_response.indexes import Index, take_index
from penstock.wires.shared.decode_response.loose import items, take, whole_number
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE
from penstock.wires.shared.decode_response.wire import Wire


class Part(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(Struct, gc=False, forbid_unknown_fields=True):
    parts: list[Part] | None = None
    role: str | None = None


class Rating(Struct, gc=False):
    """A harmless safety rating, which is not reported."""

    probability: Literal["NEGLIGIBLE", "LOW"] | None = None
    blocked: None = None


class Candidate(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    index: Index | None = None
    finish_message: str | None = None
    safety_ratings: list[Rating] | None = None
    avg_logprobs: float | None = None
    token_count: int | None = None


class Chunk(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: Counts | None = None
    model_version: str | None = None
    response_id: str | None = None
    create_time: str | None = None
    sdk_http_response: Raw = Raw()


class WideChunk(Struct, forbid_unknown_fields=True, rename="camel"):
    """A chunk with unusual counts. It has the spelling of arguments, which the loose path does not keep."""

    usage_metadata: dict[str, int | str | list[Any]]
    candidates: list[Candidate] | None = None
    model_version: str | None = None
    response_id: str | None = None
    create_time: str | None = None
    sdk_http_response: Raw = Raw()


def _any_case(reasons: dict[str, FinishReason]) -> dict[str, FinishReason]:
    """The reasons in upper and lower case: imitations of this API use both."""
    lower: dict[str, FinishReason] = {reason.lower(): finish for reason, finish in reasons.items()}
    return reasons | lower


_UNSPECIFIED = ("FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED", "0")
_HARMLESS = (None, "NEGLIGIBLE", "LOW", "HARM_PROBABILITY_UNSPECIFIED", 0, 1, 2)

_FIELD = "an unknown field"
_IGNORED = {"modelVersion", "responseId", "createTime", "traceId", "sdkHttpResponse", "automaticFunctionCallingHistory",
          "parsed", "avgLogprobs", "tokenCount", "index", "role"}  # fmt: skip


class Gemini(Wire):
    """The decoder of Gemini. A call is confirmed by its part; `finishReason` does not distinguish calls."""

    name = "gemini"
    USAGE = USAGE
    has_object_arguments: ClassVar[bool] = True
    decode = staticmethod(msgspec.json.Decoder(Chunk).decode)
    decode_wide = staticmethod(msgspec.json.Decoder(WideChunk).decode)
    FINISH: ClassVar[Mapping[str, FinishReason]] = _any_case({
        "STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length",
        "SAFETY": "content_filter", "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
        "PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter", "LANGUAGE": "content_filter",
        "IMAGE_SAFETY": "content_filter", "IMAGE_PROHIBITED_CONTENT": "content_filter",
        "IMAGE_RECITATION": "content_filter", "MODEL_ARMOR": "content_filter", "JAILBREAK": "content_filter",
        "MALFORMED_FUNCTION_CALL": "error", "UNEXPECTED_TOOL_CALL": "error", "TOO_MANY_TOOL_CALLS": "error",
        "MALFORMED_RESPONSE": "error",
        "1": "stop", "2": "length", "3": "content_filter", "4": "content_filter", "5": "other",
        "6": "content_filter", "7": "content_filter", "8": "content_filter",  # the numbers of the enum
    })  # fmt: skip

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._calls: dict[int, GeminiCalls] = {}
        self._counts = LastCounts()
        self._is_blocked = False

    def read_loose(self, payload: bytes, event: str) -> None:
        if event == "error":  # it is one, whatever its shape
            self._loose_frames(self.loose.parse(payload), event)
            return
        try:
            chunk = self.decode_wide(payload)
        except UNREADABLE:
            self._loose_frames(self.loose.parse(payload), event)
        else:
            self._counts.add_fields(chunk.usage_metadata)
            self._read_candidates(chunk.candidates or [])

    def end(self, by_mark: bool = False) -> None:
        counts = self._counts.fields()
        self.reports.has_known_frames |= bool(self.answers.writers or counts)
        self.answer_for()  # so that the first answer has an end even if only others came
        for choice, calls in self._calls.items():
            reason = self.FINISH.get(self.answer_for(choice).raw_reason or "")
            calls.end(is_stop=reason == "stop" and not self.reports.errors)
        for answer in self.answers.writers.values():
            answer.cut_unconfirmed()
        if counts:
            self.usage.add(counts)
        super().end(by_mark)

    def _reason(self, answer: AnswerWriter, is_whole: bool, by_mark: bool) -> FinishReason:
        reason = super()._reason(answer, is_whole, by_mark)
        return "content_filter" if self._is_blocked and reason != "error" else reason  # QUIRKS 99

    def read_typed(self, values: list[Chunk], payloads: list[bytes], event: str) -> None:
        append, count, answers = self.out.append, self._counts.add, self.answers.writers
        if event == "error":
            for payload in payloads:
                self.read_loose(payload, event)
            return
        for chunk in values:
            candidates, usage = chunk.candidates, chunk.usage_metadata
            if usage is not None:
                count(usage)
            if not candidates:
                continue
            candidate = candidates[0]
            content = candidate.content
            if content is not None and len(candidates) == 1 and not candidate.finish_reason:
                parts = content.parts
                if parts is not None and len(parts) == 1 and not candidate.finish_message:
                    part = parts[0]
                    text = part.text
                    if text and part.thought is None and part.thought_signature is None and part.function_call is None:
                        choice = candidate.index or 0
                        answer = answers.get(choice)
                        if answer is not None and answer.open_kind == "text":  # nearly all chunks
                            append(Text(answer.open_block, text, choice))
                            continue
            self._read_candidates(candidates)
        self._counts.settle(len(values))

    def _read_candidates(self, candidates: list[Candidate]) -> None:
        for position, candidate in enumerate(candidates):
            choice = position if candidate.index is None else candidate.index
            answer = self.answer_for(choice)
            for part in (candidate.content.parts if candidate.content is not None else None) or ():
                self._part(answer, part)
            if candidate.finish_reason or candidate.finish_message:
                self._finish(answer, candidate.finish_reason or "", candidate.finish_message or "")

    def _part(self, answer: AnswerWriter, part: Part) -> None:
        text, signature, call = part.text or "", part.thought_signature or "", part.function_call
        calls = self._calls.get(answer.choice)
        if call is not None:
            if text:
                answer.text(text)
            if calls is None:
                calls = self._calls[answer.choice] = GeminiCalls(answer, self.reports.unknown)
            calls.add(call, signature)
        elif signature:
            self._signed(answer, text, bool(part.thought), signature)
        elif part.thought:
            answer.reasoning(text)
        else:
            answer.text(text)

    def _signed(self, answer: AnswerWriter, text: str, is_thought: bool, signature: str) -> None:
        """Emits a signed part as a block of its own: it must be sent back neither merged nor split (QUIRKS 147)."""
        if is_thought and not text and answer.open_kind == "reasoning":
            answer.opaque(SIGNATURE, signature, answer.open_block)  # the end of the open reasoning
        elif text:
            answer.open_kind = ""
            (answer.reasoning if is_thought else answer.text)(text)
            answer.opaque(SIGNATURE, signature, answer.open_block)
        else:
            answer.opaque(SIGNATURE, signature)
        answer.open_kind = ""

    def _finish(self, answer: AnswerWriter, reason: str, message: str) -> None:
        """Records the reason. Some gateways send STOP before the end: any other reason replaces it (QUIRKS 154)."""
        if reason in _UNSPECIFIED or not reason:
            answer.message = answer.message or message
            return
        if self.FINISH.get(answer.raw_reason or "") == "stop":
            answer.raw_reason = None
        answer.finish(reason, message)
        self.confirm_calls(answer)

    # Frames of any shape.

    def _loose_frames(self, value: Any, event: str) -> None:
        match value:
            case dict():
                self._loose_frame(value, event)
            case list():
                for item in value:
                    self._loose_frames(item, event)
            case _:
                self.reports.no_object(value)

    def _loose_frame(self, value: dict[str, Any], event: str) -> None:
        frame = camel_case(value)
        if "candidates" not in frame and (inner := take(frame, "response", dict)) is not None:
            frame |= camel_case(inner)  # Code Assist wraps the response
        error = _error_of(frame, event)
        for position, candidate in enumerate(items(frame.pop("candidates", None))):
            self._loose_candidate(candidate, position)
        if error is not None:  # after the candidates: a stream that is cut before a late name has only these
            self.reports.error(structs.replace(error, raw=as_json_value(value)))
        if (counts := take(frame, "usageMetadata", dict)) is not None:
            self._counts.add_fields(camel_case(counts))
        if (feedback := take(frame, "promptFeedback", dict)) is not None:
            self._feedback(camel_case(feedback))
        if error is None:
            self.reports.fields(frame, _IGNORED, _FIELD)

    def _feedback(self, feedback: dict[str, Any]) -> None:
        """Reads the feedback on the prompt: it may have been blocked (QUIRKS 99), or have ratings only."""
        reason = _take_enum(feedback, "blockReason")
        if reason and reason not in _UNSPECIFIED:
            self._is_blocked = True
            self.answer_for().finish(reason, take(feedback, "blockReasonMessage", str) or "")
        self._ratings(0, feedback.pop("safetyRatings", None))
        self.reports.fields(feedback, _IGNORED, _FIELD)

    def _loose_candidate(self, value: Any, position: int) -> None:
        candidate = camel_case(value) if isinstance(value, dict) else {"candidates": value}
        index = take_index(candidate, "index")
        answer = self.answer_for(position if index is None else index)
        if (content := take(candidate, "content", dict)) is not None:
            for part in items(content.get("parts")):
                self._loose_part(answer, part)
            self.reports.fields({**content, "parts": None}, _IGNORED, _FIELD, answer.choice)
        reason, message = _take_enum(candidate, "finishReason"), take(candidate, "finishMessage", str)
        if reason or message:
            self._finish(answer, reason or "", message or "")
        if token := take(candidate, "continuationToken", str):
            answer.opaque("continuationToken", token)
        self._ratings(answer.choice, candidate.pop("safetyRatings", None))
        self.reports.fields(candidate, _IGNORED, _FIELD, answer.choice)

    def _loose_part(self, answer: AnswerWriter, value: Any) -> None:
        if not isinstance(value, dict):
            self.reports.rest(value, "a part that is not an object")
            return
        part = camel_case(value)
        kind = next((kind for kind in STATE_PARTS if part.get(kind) is not None), None)
        if kind is not None:
            self._opaque_part(answer, kind, part)
            return
        call = take(part, "functionCall", dict)
        typed = Part(
            take(part, "text", str),
            take(part, "thought", bool),
            take(part, "thoughtSignature", str),
            None if call is None else read_function_call(camel_case(call), self.reports.unknown),
        )
        self._part(answer, typed)
        self.reports.rest(part, "an unknown part, or unknown fields of a part")

    def _opaque_part(self, answer: AnswerWriter, kind: str, part: dict[str, Any]) -> None:
        """Emits a part that must be sent back as it came, with its signature."""
        signature = part.pop("thoughtSignature", None)
        block = answer.new_block()
        answer.opaque(kind, part, block)
        if signature:
            answer.opaque(SIGNATURE, signature, block)

    def _ratings(self, choice: int, ratings: Any) -> None:
        """Reports safety ratings, unless all are harmless, as they are in every answer of some models."""
        for rating in items(ratings):
            if not isinstance(rating, dict) or rating.get("blocked") or rating.get("probability") not in _HARMLESS:
                self.reports.field("safetyRatings", ratings, _FIELD, choice)
                return


def _error_of(frame: dict[str, Any], event: str) -> Error | None:
    """The error that a frame is or contains."""
    error = error_in(frame) or (error_in({"error": frame}) if event == "error" else None)
    return error or (None if "candidates" in frame else bare_message(frame))


def _take_enum(fields: dict[str, Any], key: str) -> str | None:
    """Removes and returns a value of an enum: its name, or its number as text."""
    fields[key] = whole_number(fields.get(key))
    number = take(fields, key, int)
    return take(fields, key, str) if number is None else str(number)
