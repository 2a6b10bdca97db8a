"""One choice of a Chat Completions response: its deltas, or its whole message, to events.

`loose_delta` takes a delta of any shape and is the reference; `delta` takes one of the narrow shape. test_laws decodes
every vector by both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.events import Error
from penstock.wires.openai_chat.calls import ChatCalls
from penstock.wires.openai_chat.fragments import (
    LEGACY,
    Fragment,
    fragment_of,
    is_call,
    is_misshapen,
    label_and_id,
    read_entry,
)
from penstock.wires.openai_chat.frames import Delta
from penstock.wires.openai_chat.reasoning_fields import (
    LIST_FIELDS,
    STATE_FIELDS,
    TEXT_FIELDS,
    TOKEN_FIELDS,
    ReasoningState,
    detail_texts,
)
from penstock.wires.openai_chat.text_fields import text_in, unread_fields
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.loose import is_empty, items

Add = Callable[[Fragment], Fragment | None]
"""A method of `ChatCalls` that adds a fragment and returns what belongs to no call."""
Unknown = Callable[[Any, str], None]
"""Reports something unknown, with a note."""

_READ = {"content", "tool_calls", "function_call", "refusal", *TEXT_FIELDS, *STATE_FIELDS}
_IGNORED = {"role", "channel", "token_id", "index", "type", "id", "object"}

BEYOND = "a piece of state beyond MAX_STATE, or another token than before"


class ChatChoice:
    """The state of one choice. `damage_calls` is called for a piece that may belong to any call."""

    __slots__ = ("_damage_calls", "_state", "_unknown", "answer", "calls", "error", "reasoning_block")

    def __init__(
        self, answer: AnswerWriter, tools: Sequence[str], state: ReasoningState, unknown: Unknown,
        damage_calls: Callable[[], None],
    ) -> None:  # fmt: skip
        self.answer = answer
        self.calls = ChatCalls(answer, tools)
        self.reasoning_block: int | None = None  # the block of the last reasoning, to which its details belong
        self.error: Error | None = None  # the last error of this choice alone
        self._state = state
        self._unknown = unknown
        self._damage_calls = damage_calls

    # Deltas of the narrow shape.

    def delta(self, delta: Delta) -> None:
        details = {"reasoning_details": [*delta.reasoning_details]} if delta.reasoning_details else {}
        self._reasoning(details, delta.reasoning_content or delta.reasoning or "")
        if delta.content:
            self.answer.text(delta.content)
        if delta.refusal:
            self.answer.refusal(delta.refusal)
        if delta.tool_calls:
            self.report_orphans(self.calls.add(delta.tool_calls))

    def report_orphans(self, orphans: list[Fragment]) -> None:
        """Reports fragments that belong to no known call."""
        for orphan in orphans:
            self._unknown(_content_of(msgspec.to_builtins(orphan)), "a piece of an unknown call")

    def _reasoning(self, details: dict[str, list[Any]], text: str) -> None:
        """Takes one source per chunk: some servers send the same text under two names (QUIRKS 82)."""
        texts = ("".join(detail_texts(pieces)) for pieces in details.values())
        self.answer.reasoning(next(filter(None, texts), text))
        if self.answer.open_kind == "reasoning":
            self.reasoning_block = self.answer.open_block
        for field, pieces in details.items():
            state = [detail for detail in pieces if isinstance(detail, dict)]
            if state and not self._state.add(self.answer.choice, field, state):
                self._unknown({field: state}, BEYOND)

    # Deltas and messages of any shape.

    def loose_delta(self, delta: Any) -> None:
        if isinstance(delta, dict):
            self._loose_fields(delta)
            for entry in self._loose_calls(delta.get("tool_calls"), self.calls.add_one):
                if is_misshapen(entry):
                    self.calls.lose_piece(*label_and_id(entry))
                else:
                    self.calls.add_unknown(*label_and_id(entry))
            self._legacy_call(delta)
        elif delta:
            self._damage_calls()
            self._unknown({"delta": delta}, "a delta that is not an object")

    def loose_message(self, message: Any) -> None:
        """Reads a whole message, in a body or at the end of a stream: only what was not streamed before it."""
        if isinstance(message, dict):
            rest = self._not_streamed(message)
            self._loose_fields(rest)
            self._loose_calls(rest.get("tool_calls"), self.calls.add_whole)
            self._legacy_call(rest)
        elif message:
            self._unknown({"message": message}, "a message that is not an object")

    def _not_streamed(self, message: dict[str, Any]) -> dict[str, Any]:
        """The fields of a whole message whose kind of content was not streamed (QUIRKS 75)."""
        answer = self.answer
        streamed = {"content"} if "text" in answer.kinds else set[str]()
        if "reasoning" in answer.kinds:
            streamed |= {*LIST_FIELDS, *TEXT_FIELDS}
        if "refusal" in answer.kinds:
            streamed |= {"refusal"}
        if answer.calls:
            streamed |= {"tool_calls", "function_call"}
        return {key: value for key, value in message.items() if key not in streamed}

    def _loose_fields(self, delta: dict[str, Any]) -> None:
        """Reads all fields except the calls."""
        self._loose_reasoning(delta)
        self.loose_content(delta.get("content"))
        refusal, rest = text_in(delta.get("refusal"))
        self.answer.refusal(refusal)
        self._report_rest("refusal", rest)
        known = _IGNORED | _READ
        for key, value in delta.items():
            if key not in known and not is_empty(value):
                self._unknown({key: value}, "an unknown field of the delta")

    def _report_rest(self, key: str, rest: Any) -> None:
        if rest is not None:
            self._unknown({key: rest}, "unknown content of a text field")

    def _loose_reasoning(self, delta: dict[str, Any]) -> None:
        details = {field: items(delta[field]) for field in LIST_FIELDS if field in delta}
        reasoning = ""
        for key in TEXT_FIELDS:
            text, rest = text_in(delta.get(key))
            reasoning = reasoning or text
            self._report_rest(key, rest)
        self._reasoning(details, reasoning)
        for field, pieces in details.items():
            unknown = [detail for detail in pieces if not isinstance(detail, dict | str | None)]
            self._report_rest(field, unknown or None)
        for field in TOKEN_FIELDS:
            token = delta.get(field)
            is_kept = isinstance(token, str) and self._state.set(self.answer.choice, field, token)
            if not is_kept and not is_empty(token):
                self._unknown({field: token}, BEYOND)

    def _loose_calls(self, entries: Any, add: Add) -> list[Any]:
        """Adds the entries of `tool_calls`; reports and returns entries of an unknown kind, which never run."""
        unknown: list[Any] = []
        for entry in items(entries):
            if is_call(entry):
                self._loose_call(entry, add)
            elif entry:
                unknown.append(entry)
                self._unknown({"tool_calls": entry}, "a call of an unknown kind")
        return unknown

    def _loose_call(self, entry: dict[str, Any], add: Add) -> None:
        fragment, unknown = read_entry(entry)
        if unknown:
            self._unknown({"tool_calls": unknown}, "an unknown field of a call")
        orphan = add(fragment)
        if orphan is not None:
            self.report_orphans([orphan])

    def _legacy_call(self, delta: dict[str, Any]) -> None:
        """Reads `function_call`. Beside `tool_calls`, a repetition of one of these is ignored (QUIRKS 52)."""
        call = delta.get("function_call")
        if is_empty(call):
            return
        entry = {"function": call}
        if not self.calls.has_modern_calls and is_call(entry):
            self._loose_call(entry, self.calls.add_legacy)
        elif not any(_is_same(call, other) for other in items(delta.get("tool_calls"))):
            self._unknown({"function_call": call}, "a legacy function_call beside tool_calls")
            self.calls.lose_piece(LEGACY)

    def loose_content(self, content: Any) -> None:
        match content:
            case None | "" | []:
                pass
            case list():  # QUIRKS 68
                for part in content:
                    self._part(part)
            case str():
                self.answer.text(content)
            case bool() | int() | float():
                self.answer.text(json.dumps(content))
            case _:
                self._unknown({"content": content}, "content of an unknown type")

    def _part(self, part: Any) -> None:
        match part:
            case {"type": "thinking" | "reasoning"}:
                self._thinking_part(part)
            case str():
                self.answer.text(part)
            case {"text": str(text)}:
                self.answer.text(text)
                self._report_rest("content", unread_fields(part, "text"))
            case {"type": "refusal", "refusal": str(text)}:
                self.answer.refusal(text)
                self._report_rest("content", unread_fields(part, "refusal"))
            case _:
                self._unknown(part, "an unknown part of the content")

    def _thinking_part(self, part: dict[str, Any]) -> None:
        """Reads a thinking part of Mistral: a list of pieces, and a signature at the end of each thought."""
        key = next((key for key in ("thinking", "reasoning", "text") if not is_empty(part.get(key))), "thinking")
        text, rest = text_in(part.get(key))
        answer = self.answer
        answer.reasoning(text)
        self._report_rest(key, rest)
        signature = part.get("signature")
        if isinstance(signature, str) and signature:
            block = answer.open_block if answer.open_kind == "reasoning" else None
            answer.opaque("thinking", {"signature": signature}, block)
            answer.open_kind = ""  # the next piece begins another thought (QUIRKS 87)
        self._report_rest("content", unread_fields(part, key, "signature" if isinstance(signature, str) else None))


def _content_of(fragment: dict[str, Any]) -> dict[str, Any]:
    """The fields of a fragment that have content: some servers send the others as null, some as empty text."""
    fields = {key: _content_of(field) if isinstance(field, dict) else field for key, field in fragment.items()}
    return {key: field for key, field in fields.items() if not is_empty(field)}


def _is_same(call: Any, entry: Any) -> bool:
    """Whether a legacy `function_call` has the content of an entry of `tool_calls`."""
    if not isinstance(call, dict) or not is_call(entry):
        return False
    return fragment_of({"function": call}).function == fragment_of(entry).function
