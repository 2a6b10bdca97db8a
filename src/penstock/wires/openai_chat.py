"""OpenAI Chat Completions, and the many who speak it, Mistral included: frames to events.

A frame is decoded into a narrow struct: what nearly all frames are. One that does not fit (an error, a whole message, a
number where text should be, a field that we have not met) is read loosely and brought to the same shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from penstock.answer.text import plain
from penstock.events import FinishReason, Text
from penstock.wires.fragment import LEGACY, ChatCalls, Fragment, fragment_of
from penstock.wires.loose import is_empty
from penstock.wires.part import MAX_STATE
from penstock.wires.reply import Reply
from penstock.wires.wire import UNREADABLE, Wire


class Delta(Struct, gc=False, forbid_unknown_fields=True):
    """What a chunk adds. Typed as None: fields that come as null on every chunk and mean something only otherwise."""

    role: str | None = None
    content: str | None = None
    tool_calls: list[Fragment] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    channel: str | None = None
    token_id: int | None = None
    function_call: None = None
    annotations: None = None
    audio: None = None
    images: None = None


class Choice(Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    message: None = None
    text: None = None
    usage: None = None
    error: None = None


class Chunk(Struct, gc=False):
    choices: list[Choice] = []
    usage: dict[str, Any] | None = None
    error: None = None
    error_message: None = None
    detail: None = None
    x_groq: None = None
    citations: None = None


_NOISE = {"role", "channel", "token_id", "index", "type", "id", "object"}
_NUMBER = re.compile(rb'"content"\s*:\s*[0-9-]')


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
        self._details: dict[int, list[dict[str, Any]]] = {}
        self._details_size = 0
        self._thoughts: dict[int, int] = {}  # the block of the last reasoning, to which its details belong
        self._citations: Any = None

    def end(self, by_mark: bool = False) -> None:
        for choice, details in self._details.items():
            self.reply(choice).opaque("reasoning_details", details, self._thoughts.get(choice))
        super().end(by_mark)

    def typed(self, values: list[Chunk], payloads: list[bytes], event: str) -> None:
        if event == "error":
            for payload in payloads:
                self._error_event(payload)
            return
        append, replies, calls_of = self.out.append, self.replies, self._calls
        for at, chunk in enumerate(values):
            for choice in chunk.choices:
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
            if not chunk.choices:  # the usage, or an error in one of its shapes
                self._loose_chunk(payloads[at])
            elif chunk.usage is not None:
                self._usage_of(chunk.usage)

    def _delta(self, reply: Reply, delta: Delta) -> None:
        self._reason_out(reply, delta)
        if delta.content:
            reply.text(delta.content)
        if delta.refusal:
            reply.refusal(delta.refusal)
        if delta.tool_calls:
            self._fragments(reply, delta.tool_calls)

    def _reason_out(self, reply: Reply, delta: Delta) -> None:
        """One source a chunk: some send the same words under two names (QUIRKS 82)."""
        told = ""
        if delta.reasoning_details:
            told = "".join(_detail_texts(delta.reasoning_details))
            self._keep_details(reply.choice, delta.reasoning_details)
        reply.reasoning(told or delta.reasoning_content or delta.reasoning or "")
        if reply.open_kind == "reasoning":
            self._thoughts[reply.choice] = reply.open_block

    def _keep_details(self, choice: int, details: list[dict[str, Any]]) -> None:
        self._details_size += sum(_detail_size(detail) for detail in details)
        if self._details_size > MAX_STATE:
            self.unknown({"reasoning_details": details}, "a piece of state that goes beyond MAX_STATE")
        else:
            _merge_details(self._details.setdefault(choice, []), details)

    def _fragments(self, reply: Reply, fragments: list[Fragment]) -> None:
        self._tell_orphans(self._calls_of(reply).add(fragments))

    def _tell_orphans(self, orphans: list[Fragment]) -> None:
        for orphan in orphans:
            self.unknown(msgspec.to_builtins(orphan), "a piece of a call that is not known")

    def _calls_of(self, reply: Reply) -> ChatCalls:
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
            value = plain(json.loads(text, strict=False))
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
            self.unknown(value, "choices of a kind that we do not know")
            choices = []
        if _NUMBER.search(payload):
            _respell(choices, payload)
        for choice in choices:
            if isinstance(choice, dict):
                self._loose_choice(choice)
            elif choice:
                self.unknown(choice, "a choice of a kind that we do not know")
        self._loose_rest(value)
        if not is_error and not value.keys() & {"choices", "usage", "x_groq", "citations", "id", "object"}:
            self.bare_error(value)

    def _loose_rest(self, value: dict[str, Any]) -> None:
        usage = value.get("usage")
        if isinstance(groq := value.get("x_groq"), dict):
            usage = usage or groq.get("usage")  # QUIRKS 89
            if groq.get("error"):  # QUIRKS 97
                self.loose_error({"error": groq["error"]})
        if isinstance(usage, dict):
            self._usage_of(usage)
        if value.get("citations") and value["citations"] != self._citations:
            self._citations = value["citations"]
            self.unknown({"citations": self._citations}, "the sources that the provider names")

    def _loose_choice(self, choice: dict[str, Any]) -> None:
        index = choice.get("index")
        reply = self.reply(index if type(index) is int else 0)
        delta = choice.get("delta") or _unsaid(reply, choice.get("message"))
        if not delta and isinstance(choice.get("text"), str) and ("delta" not in choice or reply.is_untouched):
            delta = {"content": choice["text"]}
        if isinstance(delta, dict):
            self._loose_delta(reply, delta)
        elif delta:
            self.unknown({"delta": delta}, "a delta of a kind that we do not know")
        self.loose_error({"error": choice.get("error")})
        if isinstance(choice.get("usage"), dict):
            self._usage_of(choice["usage"])
        if reason := choice.get("finish_reason"):
            reply.finish(str(reason))

    def _loose_delta(self, reply: Reply, delta: dict[str, Any]) -> None:
        details = delta.get("reasoning_details")
        self._reason_out(
            reply,
            Delta(
                reasoning_details=[entry for entry in details if isinstance(entry, dict)]
                if isinstance(details, list)
                else None,
                reasoning_content=_first_text(delta, "reasoning_content", "reasoning", "thinking", "thought"),
            ),
        )
        self._loose_content(reply, delta.get("content"))
        reply.refusal(_first_text(delta, "refusal"))
        self._loose_calls(reply, delta.get("tool_calls"))
        self._legacy_call(reply, delta.get("function_call"))
        known = _NOISE | _READ
        for key, value in delta.items():
            if key not in known and not is_empty(value):
                self.unknown({key: value}, "a field of the delta that we do not know")

    def _loose_calls(self, reply: Reply, entries: Any) -> None:
        """Fragments of calls; an entry of a kind that we have not met is told, and is no call to run."""
        for entry in entries if isinstance(entries, list) else [entries]:
            known = {"index", "id", "type", "function", "custom", "extra_content"}
            if not isinstance(entry, dict):
                is_foreign = bool(entry)
            else:
                extra = {key: value for key, value in entry.items() if key not in known}
                is_foreign = not entry.get("function") and not entry.get("custom") and not is_empty(extra)
            if is_foreign:
                self.unknown({"tool_calls": entry}, "a call of a kind that we do not know")
            elif entry:
                self._fragments(reply, [fragment_of(entry)])

    def _loose_content(self, reply: Reply, content: Any) -> None:
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

    def _part(self, reply: Reply, part: Any) -> None:
        match part:
            case {"type": "thinking" | "reasoning", "thinking": list(inner)}:
                for piece in inner:
                    reply.reasoning(piece if isinstance(piece, str) else _first_text(piece, "text"))
            case {"type": "thinking" | "reasoning", **rest}:
                reply.reasoning(_first_text(rest, "thinking", "reasoning", "text"))
            case {"text": str(text)} | str(text):
                reply.text(text)
            case {"type": "refusal", "refusal": str(text)}:
                reply.refusal(text)
            case _:
                self.unknown(part, "a part of the content that we do not know")

    def _legacy_call(self, reply: Reply, call: Any) -> None:
        if isinstance(call, dict) and not is_empty(call):
            self._calls_of(reply).add_one(fragment_of({"function": call}), LEGACY)


_READ = {"content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning", "reasoning_details",
         "thinking", "thought"}  # fmt: skip


def _unsaid(reply: Reply, message: Any) -> Any:
    """What a whole message adds to what was streamed before it (QUIRKS 75): the kinds of things that were not."""
    if not isinstance(message, dict):
        return message
    said = {"content"} if "text" in reply.kinds else set[str]()
    if "reasoning" in reply.kinds:
        said |= {"reasoning_content", "reasoning", "reasoning_details", "thinking", "thought"}
    if reply.calls:
        said |= {"tool_calls", "function_call"}
    return {key: value for key, value in message.items() if key not in said}


def _first(value: Any, *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None) if isinstance(value, dict) else None


def _first_text(value: Any, *keys: str) -> str:
    texts = (value.get(key) for key in keys) if isinstance(value, dict) else ()
    return next((text for text in texts if isinstance(text, str) and text), "")


def _respell(choices: list[Any], payload: bytes) -> None:
    """Content that is a number keeps its digits as they were spelled (QUIRKS 67)."""
    text = payload.decode("utf-8", "replace")
    spelled: Any = json.loads(text, strict=False, parse_int=str, parse_float=str).get("choices")
    twins: list[Any] = spelled or []
    for choice, twin in zip(choices, twins, strict=False):
        match choice, twin:
            case {"delta": {"content": int() | float()} as delta}, {"delta": {"content": str(digits)}}:
                delta["content"] = digits


def _detail_size(detail: dict[str, Any]) -> int:
    return sum(len(field) if isinstance(field, str) else 64 for field in detail.values())


def _detail_texts(details: list[dict[str, Any]]) -> Iterator[str]:
    for detail in details:
        yield _first_text(detail, "text", "summary")


def _merge_details(merged: list[dict[str, Any]], details: list[dict[str, Any]]) -> None:
    """Neighbouring details of one type are one: text is joined, and a signature, the end of it, added (QUIRKS 83)."""
    for detail in details:
        last = merged[-1] if merged else {}
        is_signed = bool(last.get("signature")) and bool(_first_text(detail, "text", "summary", "signature"))
        is_another = is_signed or last.get("type") != detail.get("type")
        if is_another or detail.get("type") == "reasoning.encrypted":
            merged.append(dict(detail))
            continue
        for key, value in detail.items():
            if key in ("text", "summary") and isinstance(value, str) and isinstance(last.get(key), str):
                text = last.pop(key)  # alone in this name it grows in place (docs/decisions/0006)
                text += value
                last[key] = text
            elif value is not None:
                last[key] = value
