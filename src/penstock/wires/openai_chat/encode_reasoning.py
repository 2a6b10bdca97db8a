"""Writes reasoning into assistant messages of Chat Completions: which fields a provider gets back."""

from __future__ import annotations

from itertools import chain

from penstock.events import Opaque, Reasoning
from penstock.messages import Message
from penstock.wires.openai_chat.reasoning_fields import LIST_FIELDS, TOKEN_FIELDS
from penstock.wires.shared.encode_request.body import Json
from penstock.wires.shared.encode_request.vendor_state import states_of_kind

ECHO_REASONING = "echo-reasoning"
ECHO_AS_REASONING = "echo-as-reasoning"
ECHO_AS_REASONING_TEXT = "echo-as-reasoning-text"
DROP_REASONING = "drop-reasoning"
"""Quirks; `encode_request.py` describes them."""


def written_reasoning(message: Message, quirks: frozenset[str], *, has_calls: bool, takes_state: bool) -> Json:
    """The reasoning, in the fields in which the provider wants it back."""
    text = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    written: Json = {}
    if DROP_REASONING in quirks:
        return written
    if ECHO_REASONING in quirks and (text or has_calls):
        written["reasoning_content"] = text
    if ECHO_AS_REASONING in quirks and text:
        written["reasoning"] = text
    if ECHO_AS_REASONING_TEXT in quirks and text:
        written["reasoning_text"] = text
    if takes_state and any(isinstance(part, Opaque) for part in message.parts):
        fields = [name for name in chain(*states_of_kind(message, "reasoning_fields", list)) if isinstance(name, str)]
        written |= dict.fromkeys(fields, text)  # the fields that the history had
        written |= _state(message, text)
    return written


def _state(message: Message, text: str) -> Json:
    """The state on reasoning as it came (QUIRKS 83); a token needs its text beside it (QUIRKS 175)."""
    written: Json = {}
    for field in LIST_FIELDS:
        states = states_of_kind(message, field, list)
        written |= {field: list(chain(*states))} if states else {}
    for field, text_field in TOKEN_FIELDS.items():
        if tokens := states_of_kind(message, field, str):
            written |= {text_field: text, field: tokens[0]} if text else {field: tokens[0]}
    return written
