"""Settles the history of a request: what every encoder does first, before it writes the history for its provider."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from msgspec.structs import replace

from penstock.errors import UsageError
from penstock.events import Opaque, Refusal, Text, ToolCall
from penstock.messages import MESSAGE_FIELDS, File, Image, Message, Part, ToolResult, last_block
from penstock.wires.shared.encode_request.foreign_blocks import parts_for
from penstock.wires.shared.encode_request.history_steps import ALLOWED, HistorySteps
from penstock.wires.shared.encode_request.ids import Ids, fit_name, id_rules
from penstock.wires.shared.encode_request.pairing import CallResults
from penstock.wires.shared.encode_request.states import without_unsendable
from penstock.wires.shared.facts import WireFacts
from penstock.wires.shared.request import Request

NO_ANSWER = "(no answer)"
"""The text of an assistant message that has no content, where one must have some."""


def settle(request: Request, facts: WireFacts, quirks: frozenset[str]) -> list[Message]:
    """The messages of a request in the form that the provider accepts, with the parts that its encoder writes.

    Besides the `HistorySteps`, it turns blocks of other wires into text, and leaves out messages without content.
    """
    for index, message in enumerate(request.messages):
        _check(index, message)
    is_continued = any(request.extra.get(field) for field in facts.continued_by)
    steps = _RequestSteps(request, facts, quirks, is_continued=is_continued)
    messages = steps.finish_hosted_calls(without_unsendable(request.messages, facts), is_continued=is_continued)
    messages = [Message(message.role, tuple(parts_for(message, facts.wire))) for message in messages]
    messages = steps.remove_empty_parts(messages, takes_blank=facts.takes_blank)
    messages = steps.place_results(messages)
    if facts.needs_answers:
        messages = [*_with_answers(messages)]
    return [message for message in messages if any(map(_is_content, message.parts))]


class _RequestSteps(HistorySteps):
    """The steps, with the ids and names that the provider accepts."""

    def __init__(self, request: Request, facts: WireFacts, quirks: frozenset[str], *, is_continued: bool) -> None:
        super().__init__({facts.wire: facts})
        self._wire = facts
        self._ids = Ids(id_rules(facts, quirks))
        self._is_continued = is_continued
        self._declared = {tool.name for tool in request.tools}

    def hosted_orphan(self, index: int, message: Message, result: Opaque) -> Part | None:
        """None if its call was lost with a part of the response, and is not in a history that the provider keeps."""
        return result if self._is_continued or message.role != "assistant" else None

    def fit_call(self, pair: CallResults) -> tuple[str, str]:
        return self._ids.take(pair.call.id), self._name(pair.call.name)

    def fit_orphan(self, result: ToolResult) -> ToolResult:
        return replace(result, call_id=self._ids.keep(result.call_id), name=self._name(result.name))

    def _name(self, name: str) -> str:
        return name if name in self._declared else fit_name(name, self._wire)


def _check(index: int, message: Message) -> None:
    for part in message.parts:
        if not isinstance(part, ALLOWED[message.role]):
            names = ", ".join(kind.__name__ for kind in ALLOWED[message.role])
            what = f"{type(part).__name__} is not allowed in a message of the role {message.role}"
            raise UsageError(f"messages[{index}]: {what}; allowed are {names}")


def _with_answers(messages: list[Message]) -> Iterator[Message]:
    """The messages; an assistant message without content gets a text that says so, if the user speaks next."""
    kept = [message for message in messages if message.role == "assistant" or any(map(_is_content, message.parts))]
    for message, following in zip_longest(kept, kept[1:]):
        is_empty = not any(isinstance(part, Text | Refusal | ToolCall | Image | File) for part in message.parts)
        if message.role == "assistant" and is_empty and following is not None and following.role == "user":
            yield Message("assistant", (*message.parts, Text(last_block(message) + 1, NO_ANSWER)))
        else:
            yield message


def _is_content(part: Part) -> bool:
    """Whether a part is content, and not only the fields of the message."""
    return not (isinstance(part, Opaque) and part.kind == MESSAGE_FIELDS)
