"""What hooks changed of a step: compact enough for a log, and complete enough to send the same request again.

Messages are described by their differences from the history, models and tools by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Usage
from penstock.messages import Message


class ModelUsage(Struct, frozen=True):
    """The usage of a hook's own request, and the name of its model."""

    model: str
    usage: Usage


class Splice(Struct, frozen=True, omit_defaults=True):
    """Replaces the messages of a history from the number `start` to before `stop` by others."""

    start: int
    stop: int
    messages: tuple[Message, ...] = ()


class StepChanges(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What hooks changed for one request; None for what they left as it is in the agent.

    `messages` are the differences from the history of the run. `options` are those that were changed, also
    `tool_choice`; None leaves one to the provider. `fallbacks` are the models that are asked, in order, if the request
    fails. `usage` are tokens that the hooks have used themselves, which count for the run. `brought_models` and
    `brought_tools` are the names of those that hooks have made themselves: in another process, a name is not enough.
    """

    messages: tuple[Splice, ...] | None = None
    tools: tuple[str, ...] | None = None
    instructions: str | None = None
    model: str | None = None
    fallbacks: tuple[str, ...] | None = None
    options: dict[str, Any] | None = None
    usage: Usage | None = None
    brought_models: tuple[str, ...] | None = None
    brought_tools: tuple[str, ...] | None = None

    def model_for(self, attempt: int) -> str:
        """The name of the model for this attempt, which counts from 0; empty for the agent's own.

        After the last fallback it is the model for all further attempts: a stored run may count more of them.
        """
        models = (self.model or "", *(self.fallbacks or ()))
        return models[max(0, min(attempt, len(models) - 1))]


UNCHANGED = StepChanges()
"""A step without changes."""


class StepDecision(Struct, frozen=True):
    """What the hooks decided on the next step: what they changed for its request, or why the run stops before it.

    `history` are the differences between the history of the run and what replaces it, for good.
    """

    changes: StepChanges = UNCHANGED
    history: tuple[Splice, ...] = ()
    stop: str | None = None


def splices_between(before: Sequence[Message], after: Sequence[Message]) -> tuple[Splice, ...]:
    """The splices that turn one history into another. Messages are the same if they are the same objects."""
    if len(before) == len(after) and all(map(is_, before, after)):
        return ()  # most steps; `map` is faster than a loop
    return tuple(_splices(before, after))


def _splices(before: Sequence[Message], after: Sequence[Message]) -> Iterator[Splice]:
    places = {id(message): index for index, message in enumerate(before)}
    start, new = 0, list[Message]()
    for message in after:
        index = places.get(id(message), -1)
        if index < start:  # a new, repeated or moved message
            new.append(message)
            continue
        if new or index > start:
            yield Splice(start, index, tuple(new))
        start, new = index + 1, []
    if new or start < len(before):
        yield Splice(start, len(before), tuple(new))


def spliced(messages: Sequence[Message], splices: Sequence[Splice]) -> list[Message]:
    """The messages with these replacements; a `UsageError` if they do not fit the history."""
    result: list[Message] = []
    index = 0
    for splice in splices:
        if not index <= splice.start <= splice.stop <= len(messages):
            raise UsageError(f"the log of a run replaces messages {splice.start} to {splice.stop} of {len(messages)}")
        result += [*messages[index : splice.start], *splice.messages]
        index = splice.stop
    return [*result, *messages[index:]]
