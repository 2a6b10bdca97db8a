"""OpenAI Chat Completions, and the many who speak it, Mistral included: frames to events.

A frame is decoded into a narrow struct: what nearly all frames are. One that does not fit (an error, a whole message, a
number where text should be, a field that we have not met) is read loosely and brought to the same shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from penstock.events import Error, FinishReason, Text
from penstock.jsontext.portable import as_json_value
from penstock.wires.openai_chat.fragments import LEGACY, ChatCalls, Fragment, fragment_of, is_call, place_of, read_entry
from penstock.wires.openai_chat.frames import Chunk, Delta
from penstock.wires.openai_chat.reasoning_details import ReasoningDetails, detail_texts
from penstock.wires.openai_chat.words import SOURCES, has_number, left_of, respell, words_of
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.in_band_errors import bare_message, error_in
from penstock.wires.shared.loose import is_empty, items
from penstock.wires.shared.open_block import MAX_STATE
from penstock.wires.shared.wire import UNREADABLE, Wire

Take = Callable[[Fragment], Fragment | None]
"""How fragments are taken in; what belongs to no call is given back."""

_READ = {"content", "tool_calls", "function_call", "refusal", "reasoning_details", *SOURCES}
_NOISE = {"role", "channel", "token_id", "index", "type", "id", "object"}
_FRAME_NOISE = {"choices", "usage", "id", "object", "created", "model", "system_fingerprint", "service_tier",
                "provider", "obfuscation", "x_groq", "citations", "timings", "prompt_filter_results"}  # fmt: skip


class OpenAIChat(Wire):
    """Chat Completions chunks, or a whole completion. Calls are confirmed by the finish, told when the stream ends."""

    name = "openai-chat"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "stop": "stop", "eos": "stop", "end_turn": "stop", "stop_sequence": "stop",
        "tool_calls": "tool_calls", "function_call": "tool_calls", "tool_use": "tool_calls",
        "length": "length", "max_tokens": "length", "model_length": "length",
        "content_filter": "content_filter", "sensitive": "content_filter", "safety": "content_filter",
        "error": "error", "insufficient_system_resource": "error", "network_error": "error", "abort": "error",
    }  # fmt: skip

    decode = staticmethod(msgspec.json.Decoder(Chunk).decode)

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._calls: dict[int, ChatCalls] = {}
        self._details = ReasoningDetails(MAX_STATE)
        self._thoughts: dict[int, int] = {}  # the block of the last reasoning, to which its details belong
        self._citations: Any = None
        self._failed: dict[int, str] = {}  # the answers that had an error of their own, and the last it said

    def end(self, by_mark: bool = False) -> None:
        self.has_understood |= bool(self.replies)
        for choice, details in self._details.by_choice.items():
            self.reply(choice).opaque("reasoning_details", details, self._thoughts.get(choice))
        for calls in self._calls.values():
            calls.close()
        for choice in self._failed:
            reply = self.reply(choice)
            reply.is_short = True
            if not self.is_whole(reply):  # an end mark confirms nothing here
                reply.end_calls(None)
        super().end(by_mark)

    def _reason(self, reply: AnswerWriter, is_whole: bool, by_mark: bool) -> FinishReason:
        return "error" if reply.choice in self._failed else super()._reason(reply, is_whole, by_mark)

    def typed(self, values: list[Chunk], payloads: list[bytes], event: str) -> None:
        if event == "error":
            for payload in payloads:
                self._error_event(payload)
            return
        append, replies, calls_of = self.out.append, self.replies, self._calls
        for at, chunk in enumerate(values):
            if len(chunk.choices) != 1:  # none: the usage, or an error in one of its shapes; several are seldom
                self._loose_chunk(payloads[at])
                continue
            choice = chunk.choices[0]
            index, delta = choice.index, choice.delta
            reply = replies.get(index) or self.reply(index)
            if delta is not None:
                content, fragments = delta.content, delta.tool_calls
                if not (delta.reasoning_content or delta.reasoning or delta.reasoning_details or delta.refusal):
                    if content:
                        if reply.open_kind == "text":
                            append(Text(reply.open_block, content, index))
                        else:
                            reply.text(content)
                    if fragments:
                        orphans = (calls_of.get(index) or self._calls_of(reply)).add(fragments)
                        if orphans:
                            self._tell_orphans(orphans)
                else:
                    self._delta(reply, delta)
            if choice.finish_reason:  # an empty one is none (QUIRKS 56)
                reply.finish(choice.finish_reason)
            if chunk.usage is not None:
                self._usage_of(chunk.usage)

    def _delta(self, reply: AnswerWriter, delta: Delta) -> None:
        self._reason_out(reply, delta.reasoning_details or [], delta.reasoning_content or delta.reasoning or "")
        if delta.content:
            reply.text(delta.content)
        if delta.refusal:
            reply.refusal(delta.refusal)
        if delta.tool_calls:
            self._tell_orphans(self._calls_of(reply).add(delta.tool_calls))

    def _reason_out(self, reply: AnswerWriter, details: list[Any], words: str) -> None:
        """One source a chunk: some send the same words under two names (QUIRKS 82)."""
        reply.reasoning("".join(detail_texts(details)) or words)
        if reply.open_kind == "reasoning":
            self._thoughts[reply.choice] = reply.open_block
        state = [detail for detail in details if isinstance(detail, dict)]
        if state and not self._details.add(reply.choice, state):
            self.unknown({"reasoning_details": state}, "a piece of state that goes beyond MAX_STATE")

    def _tell_orphans(self, orphans: list[Fragment]) -> None:
        for orphan in orphans:
            self.unknown(msgspec.to_builtins(orphan), "a piece of a call that is not known")

    def _calls_of(self, reply: AnswerWriter) -> ChatCalls:
        calls = self._calls.get(reply.choice)
        if calls is None:
            calls = self._calls[reply.choice] = ChatCalls(reply, self.tools)
        return calls

    def _usage_of(self, usage: dict[str, Any]) -> None:
        prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        self.usage(
            usage,
            input_tokens=_first(usage, "prompt_tokens", "input_tokens"),
            output_tokens=_first(usage, "completion_tokens", "output_tokens"),
            cached_tokens=_first(prompt, "cached_tokens") or _first(usage, "prompt_cache_hit_tokens", "cached_tokens"),
            reasoning_tokens=_first(completion, "reasoning_tokens") or _first(usage, "reasoning_tokens"),
        )

    # The loose way: a frame that does not fit is brought to the usual shape.

    def _error_event(self, payload: bytes) -> None:
        """What an event of this name says is an error, in whatever words (QUIRKS 95, 96)."""
        text = payload.decode("utf-8", "replace")
        try:
            value = as_json_value(json.loads(text, strict=False))
        except UNREADABLE:
            value = text
        if not self.loose_error(value):
            said = value if isinstance(value, dict) and value else value if isinstance(value, str) else text
            self.loose_error({"error": said or "the provider sent an error without a word"})

    def odd(self, payload: bytes, event: str) -> None:
        if event == "error":
            self._error_event(payload)
        else:
            self._loose_chunk(payload)

    def _loose_chunk(self, payload: bytes) -> None:
        value = self.loose(payload)
        if value is None:
            return
        if not isinstance(value, dict):
            self.unknown(value, "a frame that is no object")
            return
        is_error = self.loose_error(value)
        choices = value.get("choices") or []
        if not isinstance(choices, list):
            self._lose(value, "choices of a kind that we do not know")
            choices, value = [], {"choices": None, "usage": _object(value.get("usage"))}
        if has_number(payload):
            respell(choices, payload)
        at = 0
        for choice in choices:
            if isinstance(choice, dict):
                self._loose_choice(choice, at)
                at += 1
            elif choice:
                self._lose(choice, "a choice of a kind that we do not know")
        has_more = self._loose_rest(value)
        if not is_error and not choices and not has_more:
            self._wordless(value)

    def _loose_rest(self, value: dict[str, Any]) -> bool:
        """What stands beside the choices; whether there is anything."""
        usage, groq, citations = value.get("usage"), _object(value.get("x_groq")), value.get("citations")
        usage = usage or groq.get("usage")  # QUIRKS 89
        self._loose_usage(usage)
        is_error = self.loose_error({"error": groq.get("error")})  # QUIRKS 97
        if citations and citations != self._citations:
            self._citations = citations
            self.unknown({"citations": citations}, "the sources that the provider names")
        return bool(usage or is_error or citations)

    def _loose_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage_of(usage)
        elif usage:
            self.unknown({"usage": usage}, "usage of a kind that we do not know")

    def _wordless(self, value: dict[str, Any]) -> None:
        """A frame without an answer, its usage, or an error that we know: what it says beside the noise is told."""
        left = {key: field for key, field in value.items() if key not in _FRAME_NOISE and not is_empty(field)}
        if left.keys() & {"delta", "tool_calls"}:
            self._lose(left, "a piece that is in no choice")
        elif left or not value.keys() & _FRAME_NOISE:
            self.error_or_unknown(bare_message(value), left or value, "a frame that says nothing known")

    def _lose(self, raw: Any, note: str) -> None:
        """Tell what may have held a piece of any call."""
        self.lose()
        self.unknown(raw, note)

    def _loose_choice(self, choice: dict[str, Any], at: int) -> None:
        delta, message = choice.get("delta"), choice.get("message")
        says_something = any(isinstance(said, dict) and said for said in (delta, message))
        reply = self.reply(_number(choice.get("index"), at if says_something else 0))
        self._loose_delta(reply, delta)
        if not delta or choice.get("finish_reason"):  # before that, what streams may run after it (QUIRKS 75)
            self._loose_message(reply, message)
        if not delta and not message and ("delta" not in choice or reply.is_untouched):
            self._loose_content(reply, choice.get("text"))
        error = error_in({"error": choice.get("error")})
        if error is not None:
            self._fail(reply, error)
        self._loose_usage(choice.get("usage"))
        if reason := choice.get("finish_reason"):
            reply.finish(str(reason))

    def _fail(self, reply: AnswerWriter, error: Error) -> None:
        """An error of one answer; the others go on."""
        if error.message not in self._errors and self._failed.get(reply.choice) != error.message:
            self.out.append(error)
        self._failed[reply.choice] = error.message

    def _loose_delta(self, reply: AnswerWriter, delta: Any) -> None:
        if isinstance(delta, dict):
            calls = self._calls_of(reply)
            self._loose_words(reply, delta)
            for entry in self._loose_calls(delta.get("tool_calls"), calls.add_one):
                calls.lose(*place_of(entry))
            self._older_call(calls, delta)
        elif delta:
            self._lose({"delta": delta}, "a delta of a kind that we do not know")

    def _loose_message(self, reply: AnswerWriter, message: Any) -> None:
        """A whole message, in a body or at the end of a stream: what was not streamed before it."""
        if isinstance(message, dict):
            calls, unsaid = self._calls_of(reply), _unsaid(reply, message)
            self._loose_words(reply, unsaid)
            self._loose_calls(unsaid.get("tool_calls"), calls.add_whole)
            self._older_call(calls, unsaid)
        elif message:
            self.unknown({"message": message}, "a message of a kind that we do not know")

    def _loose_words(self, reply: AnswerWriter, delta: dict[str, Any]) -> None:
        """What a delta or a message says, but for its calls."""
        self._loose_reasoning(reply, delta)
        self._loose_content(reply, delta.get("content"))
        refusal, left = words_of(delta.get("refusal"))
        reply.refusal(refusal)
        self._tell_left("refusal", left)
        known = _NOISE | _READ
        for key, value in delta.items():
            if key not in known and not is_empty(value):
                self.unknown({key: value}, "a field of the delta that we do not know")

    def _tell_left(self, key: str, left: Any) -> None:
        if left is not None:
            self.unknown({key: left}, "a kind of words that we do not know")

    def _loose_reasoning(self, reply: AnswerWriter, delta: dict[str, Any]) -> None:
        details = items(delta.get("reasoning_details"))
        found = ""
        for key in SOURCES:
            words, left = words_of(delta.get(key))
            found = found or words
            self._tell_left(key, left)
        self._reason_out(reply, details, found)
        odd = [detail for detail in details if not isinstance(detail, dict | str | None)]
        self._tell_left("reasoning_details", odd or None)

    def _loose_calls(self, entries: Any, take: Take) -> list[Any]:
        """Fragments of calls. An entry of a kind that we have not met is told, given back, and no call to run."""
        foreign: list[Any] = []
        for entry in items(entries):
            if is_call(entry):
                self._loose_call(entry, take)
            elif entry:
                foreign.append(entry)
                self.unknown({"tool_calls": entry}, "a call of a kind that we do not know")
        return foreign

    def _loose_call(self, entry: dict[str, Any], take: Take) -> None:
        fragment, left = read_entry(entry)
        if left:
            self.unknown({"tool_calls": left}, "a field of a call that we do not know")
        orphan = take(fragment)
        if orphan is not None:
            self._tell_orphans([orphan])

    def _older_call(self, calls: ChatCalls, delta: dict[str, Any]) -> None:
        """The one call of the older protocol. Beside newer ones it is the same call again, or told (QUIRKS 52)."""
        call = delta.get("function_call")
        if is_empty(call):
            return
        entry = {"function": call}
        if not calls.has_newer and is_call(entry):
            self._loose_call(entry, calls.add_older)
        elif not any(_is_same(call, other) for other in items(delta.get("tool_calls"))):
            self.unknown({"function_call": call}, "a call of the older protocol that we cannot take")
            calls.lose(LEGACY)

    def _loose_content(self, reply: AnswerWriter, content: Any) -> None:
        match content:
            case None | "" | []:
                pass
            case list():  # QUIRKS 68
                for part in content:
                    self._part(reply, part)
            case str():
                reply.text(content)
            case bool() | int() | float():
                reply.text(json.dumps(content))
            case _:
                self.unknown({"content": content}, "content of a kind that we do not know")

    def _part(self, reply: AnswerWriter, part: Any) -> None:
        match part:
            case {"type": "thinking" | "reasoning"}:
                self._thought(reply, part)
            case str():
                reply.text(part)
            case {"text": str(text)}:
                reply.text(text)
                self._tell_left("content", left_of(part, "text"))
            case {"type": "refusal", "refusal": str(text)}:
                reply.refusal(text)
                self._tell_left("content", left_of(part, "refusal"))
            case _:
                self.unknown(part, "a part of the content that we do not know")

    def _thought(self, reply: AnswerWriter, part: dict[str, Any]) -> None:
        """Mistral's thoughts: a list of pieces, and a signature when one is over."""
        key = next((key for key in ("thinking", "reasoning", "text") if not is_empty(part.get(key))), "thinking")
        words, left = words_of(part.get(key))
        reply.reasoning(words)
        self._tell_left(key, left)
        signature = part.get("signature")
        if isinstance(signature, str) and signature:
            block = reply.open_block if reply.open_kind == "reasoning" else None
            reply.opaque("thinking", {"signature": signature}, block)
            reply.open_kind = ""  # what comes next is another thought (QUIRKS 87)
        self._tell_left("content", left_of(part, key, "signature" if isinstance(signature, str) else None))


def _unsaid(reply: AnswerWriter, message: dict[str, Any]) -> dict[str, Any]:
    """What a whole message adds to what was streamed before it (QUIRKS 75): the kinds of things that were not."""
    said = {"content"} if "text" in reply.kinds else set[str]()
    if "reasoning" in reply.kinds:
        said |= {"reasoning_details", *SOURCES}
    if "refusal" in reply.kinds:
        said |= {"refusal"}
    if reply.calls:
        said |= {"tool_calls", "function_call"}
    return {key: value for key, value in message.items() if key not in said}


def _is_same(call: Any, entry: Any) -> bool:
    """Whether a call of the older protocol says what an entry of `tool_calls` says."""
    if not isinstance(call, dict) or not is_call(entry):
        return False
    return fragment_of({"function": call}).function == fragment_of(entry).function


def _number(index: Any, at: int) -> int:
    """The number of a choice, which may be spelled as text; without one, its place counts (QUIRKS 66)."""
    if isinstance(index, float) or (isinstance(index, str) and len(index) < 10):
        try:
            index = int(index)
        except (ValueError, OverflowError):
            return at
    return index if type(index) is int else at


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(value: Any, *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None) if isinstance(value, dict) else None
