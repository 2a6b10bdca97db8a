"""Google Gemini, `streamGenerateContent` and its whole body, of the Gemini API and of Vertex AI: frames to events.

A whole body is one frame of the stream that it stands for. Nothing marks the stream's end, so that answers end with the
bytes; what the last frames say about the tokens is told then. Parts that Gemini wants back as they came, and that are
neither text nor calls (images, code that it ran, tools of its own), are opaque; what is said about the answer (sources,
ratings) is not part of it and comes out as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw, Struct, structs

from penstock.events import Error, FinishReason, Text
from penstock.jsontext.portable import as_json_value
from penstock.wires.gemini.calls import SIGNATURE, FunctionCall, GeminiCalls, camel, function_call_of
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.in_band_errors import bare_message, error_in
from penstock.wires.shared.loose import is_empty, items, take
from penstock.wires.shared.wire import INTERRUPTED, UNREADABLE, Wire


class Part(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(Struct, gc=False, forbid_unknown_fields=True):
    parts: list[Part] | None = None
    role: str | None = None


class Rating(Struct, gc=False):
    """A safety rating that says nothing worth telling."""

    probability: Literal["NEGLIGIBLE", "LOW"] | None = None
    blocked: None = None


class Candidate(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    index: int | None = None
    finish_message: str | None = None
    safety_ratings: list[Rating] | None = None
    avg_logprobs: float | None = None
    token_count: int | None = None


class Chunk(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: dict[str, int | str | list[Raw]] | None = None
    model_version: str | None = None
    response_id: str | None = None
    create_time: str | None = None
    sdk_http_response: Raw = Raw()


def _any_case(reasons: dict[str, FinishReason]) -> dict[str, FinishReason]:
    """Google's own client takes its reasons in any case, and so do those who imitate the wire."""
    lower: dict[str, FinishReason] = {reason.lower(): finish for reason, finish in reasons.items()}
    return reasons | lower


_UNSPECIFIED = ("FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED")
_CALM = (None, "NEGLIGIBLE", "LOW", "HARM_PROBABILITY_UNSPECIFIED")
_REPLAYED = ("inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall", "toolResponse")

_NOISE = {"modelVersion", "responseId", "createTime", "traceId", "sdkHttpResponse", "automaticFunctionCallingHistory",
          "parsed", "avgLogprobs", "tokenCount", "index", "role"}  # fmt: skip
MAX_ASIDES = 64
"""How many fields are remembered, so that they are told again only when they change."""


class Gemini(Wire):
    """Chunks of generateContent. A call is whole when its part is; `finishReason` never says that calls are meant."""

    name = "gemini"
    decode = staticmethod(msgspec.json.Decoder(Chunk).decode)
    FINISH: ClassVar[Mapping[str, FinishReason]] = _any_case({
        "STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length",
        "SAFETY": "content_filter", "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
        "PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter", "LANGUAGE": "content_filter",
        "IMAGE_SAFETY": "content_filter", "IMAGE_PROHIBITED_CONTENT": "content_filter",
        "IMAGE_RECITATION": "content_filter", "MODEL_ARMOR": "content_filter", "JAILBREAK": "content_filter",
        "MALFORMED_FUNCTION_CALL": "error", "UNEXPECTED_TOOL_CALL": "error", "TOO_MANY_TOOL_CALLS": "error",
        "MALFORMED_RESPONSE": "error",
    })  # fmt: skip

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._calls: dict[int, GeminiCalls] = {}
        self._counts: dict[str, Any] = {}
        self._asides: dict[tuple[int, str], Any] = {}
        self._is_blocked = False

    def read_loose(self, payload: bytes, event: str) -> None:
        self._loose_frames(self.parse_loosely(payload), event)

    def end(self, by_mark: bool = False) -> None:
        self.has_known_frames |= bool(self.answers or self._counts)
        self.answer_for()  # the first answer has an ending, even if only others were seen
        for choice, calls in self._calls.items():
            reason = self.FINISH.get(self.answer_for(choice).raw_reason or "")
            calls.settle(is_interrupted=bool(self._errors))
            calls.end(is_stop=reason == "stop" and not self._errors)
        if self._counts:
            counts = {key: _built(count) for key, count in self._counts.items()}
            self.usage(
                counts,
                input_tokens=counts.get("promptTokenCount"),
                output_tokens=counts.get("candidatesTokenCount"),
                cached_tokens=counts.get("cachedContentTokenCount"),
                reasoning_tokens=counts.get("thoughtsTokenCount"),
            )
        super().end(by_mark)

    def _reason(self, answer: AnswerWriter, is_whole: bool, by_mark: bool) -> FinishReason:
        reason = super()._reason(answer, is_whole, by_mark)
        return "content_filter" if self._is_blocked and reason != "error" else reason  # QUIRKS 99: whatever the reason

    def read_typed(self, values: list[Chunk], payloads: list[bytes], event: str) -> None:
        append, count, answers, calls = self.out.append, self._counts.update, self.answers, self._calls
        for chunk in values:
            for at, candidate in enumerate(chunk.candidates or ()):
                choice = at if candidate.index is None else candidate.index
                answer = answers.get(choice) or self.answer_for(choice)
                content = candidate.content
                for part in (content.parts if content is not None else None) or ():
                    text, call = part.text, part.function_call
                    if part.thought is not None or part.thought_signature is not None:
                        self._part(answer, part)
                    elif text and call is None and answer.open_kind == "text":  # what nearly all parts are
                        append(Text(answer.open_block, text, choice))
                    elif call is not None and not text and choice in calls:
                        calls[choice].add(call, "")
                    else:
                        self._part(answer, part)
                if candidate.finish_reason or candidate.finish_message:
                    self._finish(answer, candidate.finish_reason or "", candidate.finish_message or "")
            if chunk.usage_metadata is not None:  # each replaces the one before, field by field (QUIRKS 88)
                count(chunk.usage_metadata)

    def _part(self, answer: AnswerWriter, part: Part) -> None:
        text, signature, call = part.text or "", part.thought_signature or "", part.function_call
        calls = self._calls.get(answer.choice)
        if text and calls is not None:
            calls.settle()
        if call is not None:
            if text:
                answer.text(text)
            if calls is None:
                calls = self._calls[answer.choice] = GeminiCalls(answer, self.unknown)
            calls.add(call, signature)
        elif signature:
            self._signed(answer, text, bool(part.thought), signature)
        elif part.thought:
            answer.reasoning(text)
        else:
            answer.text(text)

    def _signed(self, answer: AnswerWriter, text: str, is_thought: bool, signature: str) -> None:
        """A signed part is a block of its own, which goes back as it came, neither merged nor split (QUIRKS 147)."""
        if is_thought and not text and answer.open_kind == "reasoning":
            answer.opaque(SIGNATURE, signature, answer.open_block)  # the end of the thought that was just told
        elif text:
            answer.open_kind = ""
            (answer.reasoning if is_thought else answer.text)(text)
            answer.opaque(SIGNATURE, signature, answer.open_block)
        else:
            answer.opaque(SIGNATURE, signature)
        answer.open_kind = ""

    def _finish(self, answer: AnswerWriter, reason: str, message: str) -> None:
        """Some translators stamp STOP on chunks before the end: it gives way to any other word (QUIRKS 154)."""
        if reason in _UNSPECIFIED or not reason:
            answer.message = answer.message or message
            return
        if self.FINISH.get(answer.raw_reason or "") == "stop":
            answer.raw_reason = None
        answer.finish(reason, message)
        if answer.choice in self._calls:
            self._calls[answer.choice].settle(is_interrupted=self.FINISH.get(reason) in INTERRUPTED)

    # The loose way: a frame that does not fit is taken apart, and what has no word of ours is told.

    def _loose_frames(self, value: Any, event: str) -> None:
        match value:
            case None:
                pass
            case dict():
                self._loose_frame(value, event)
            case list():
                for item in value:
                    self._loose_frames(item, event)
            case _:
                self.unknown(value, "a frame that is not an object")

    def _loose_frame(self, value: dict[str, Any], event: str) -> None:
        frame = camel(value)
        if "candidates" not in frame and (inner := take(frame, "response", dict)) is not None:
            frame |= camel(inner)  # Code Assist wraps it so
        error = _error_of(frame, event)
        if error is not None:
            self.error(structs.replace(error, raw=as_json_value(value)))
        for at, candidate in enumerate(items(frame.pop("candidates", None))):
            self._loose_candidate(candidate, at)
        if (counts := take(frame, "usageMetadata", dict)) is not None:
            self._counts.update((key, count) for key, count in camel(counts).items() if count is not None)
        if (feedback := take(frame, "promptFeedback", dict)) is not None:
            self._feedback(camel(feedback))
        if error is None:
            self._rest(0, frame)

    def _feedback(self, feedback: dict[str, Any]) -> None:
        """The prompt was refused, or not: then the ratings may still say something (QUIRKS 99)."""
        reason = take(feedback, "blockReason", str)
        if reason and reason not in _UNSPECIFIED:
            self._is_blocked = True
            self.answer_for().finish(reason, take(feedback, "blockReasonMessage", str) or "")
        self._ratings(0, feedback.pop("safetyRatings", None))
        self._rest(0, feedback)

    def _loose_candidate(self, value: Any, at: int) -> None:
        candidate = camel(value) if isinstance(value, dict) else {"candidates": value}
        index = take(candidate, "index", int)
        answer = self.answer_for(at if index is None else index)
        if (content := take(candidate, "content", dict)) is not None:
            for part in items(content.get("parts")):
                self._loose_part(answer, part)
            self._rest(answer.choice, {**content, "parts": None})
        reason, message = take(candidate, "finishReason", str), take(candidate, "finishMessage", str)
        if reason or message:
            self._finish(answer, reason or "", message or "")
        if token := candidate.pop("continuationToken", None):
            answer.opaque("continuationToken", token)
        self._ratings(answer.choice, candidate.pop("safetyRatings", None))
        self._rest(answer.choice, candidate)

    def _loose_part(self, answer: AnswerWriter, value: Any) -> None:
        if not isinstance(value, dict):
            self._odd(value, "a part that is not an object")
            return
        part = camel(value)
        kind = next((kind for kind in _REPLAYED if part.get(kind) is not None), None)
        if kind is not None:
            self._replayed(answer, kind, part)
            return
        call = take(part, "functionCall", dict)
        typed = Part(
            take(part, "text", str),
            take(part, "thought", bool),
            take(part, "thoughtSignature", str),
            None if call is None else function_call_of(camel(call), self.unknown),
        )
        self._part(answer, typed)
        self._odd(part, "a part, or fields of a part, that we do not know")

    def _replayed(self, answer: AnswerWriter, kind: str, part: dict[str, Any]) -> None:
        """What Gemini made or ran itself, and wants back: the part as it came, its signature beside it."""
        signature = part.pop("thoughtSignature", None)
        block = answer.new_block()
        answer.opaque(kind, part, block)
        if signature:
            answer.opaque(SIGNATURE, signature, block)

    def _ratings(self, choice: int, ratings: Any) -> None:
        """Ratings that are calm come with every answer of some models, and are left out."""
        for rating in items(ratings):
            if not isinstance(rating, dict) or rating.get("blocked") or rating.get("probability") not in _CALM:
                self._aside(choice, "safetyRatings", ratings)
                return

    def _rest(self, choice: int, fields: dict[str, Any]) -> None:
        for key, field in fields.items():
            if key not in _NOISE and not is_empty(field):
                self._aside(choice, key, field)

    def _aside(self, choice: int, key: str, field: Any) -> None:
        """What is said about the answer; it may come with every chunk, and is told when it changes."""
        if self._asides.get((choice, key)) == field:
            return
        if len(self._asides) >= MAX_ASIDES:
            self._asides.clear()
        self._asides[choice, key] = field
        self.unknown({key: field}, "a field that we have no word for")

    def _odd(self, value: Any, note: str) -> None:
        if not is_empty(value):
            self.unknown(value, note)


def _error_of(frame: dict[str, Any], event: str) -> Error | None:
    """The error that a frame is, or holds."""
    error = error_in(frame) or (error_in({"error": frame}) if event == "error" else None)
    return error or (None if "candidates" in frame else bare_message(frame))


def _built(count: Any) -> Any:
    """A count, with the details that were left unread until now."""
    return [_value(item) for item in count] if isinstance(count, list) else count


def _value(item: Any) -> Any:
    if not isinstance(item, Raw):
        return item
    try:
        return msgspec.json.decode(item)
    except UNREADABLE:
        return bytes(item).decode("utf-8", "replace")
