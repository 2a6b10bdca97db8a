"""Approval by origin: asks a person about calls whose arguments came from a tool result, and not from the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from penstock.agent.pending_call import PendingCall
from penstock.calls.sources import Source, SourceKind, argument_values, described
from penstock.errors import UsageError
from penstock.messages import Message

MIN_CHARACTERS = 4
"""The characters of a string whose origin counts; numbers always count."""

_OWN: frozenset[SourceKind] = frozenset({"user", "instructions", "call"})
_KINDS: tuple[SourceKind, ...] = get_args(SourceKind)


def ask_if_from(*kinds: SourceKind) -> Callable[[PendingCall], PendingCall | None]:
    """A `before_call` hook that asks for approval of calls with side effects, if a value came from there alone.

    A value is a string of four characters or more, or a number. It came from `tool` if a tool result contains it, or
    the summary of a compacted history, and no user message, instruction or earlier call that ran does. Other kinds
    are those of `Source`: `ask_if_from("tool", "file")` also counts files that the user attached.
    """
    if not kinds or not {*kinds} <= {*_KINDS} - _OWN:
        raise UsageError(
            f"ask_if_from takes kinds of sources such as 'tool' and 'file', not {', '.join(map(repr, kinds))}"
        )
    asked = frozenset[SourceKind]((*kinds, "summary") if "tool" in kinds else kinds)

    def ask_about_origin(call: PendingCall) -> PendingCall | None:
        if call.tool is not None and call.tool.read_only:
            return None
        values = dict(argument_values(call.raw_arguments))
        for path, sources in call.sources.items():
            value = values[path]
            if isinstance(value, str) and len(value) < MIN_CHARACTERS:
                continue
            origin = _foreign(call, sources, asked)
            if origin is not None:
                return call.ask(f"{path[:80]} is from {described(origin)}, and not from the user.")
        return None

    return ask_about_origin


def _foreign(call: PendingCall, sources: tuple[Source, ...], asked: frozenset[SourceKind]) -> Source | None:
    """The source to ask about; None if the value is not from there, or also from the user or the model."""
    origin = next((source for source in sources if source.kind in asked), None)
    if origin is None or any(source.kind in ("user", "instructions") for source in sources):
        return None
    earlier = {source.call_id for source in sources if source.kind == "call"}
    return None if earlier and any(_has_run(message, earlier) for message in call.messages) else origin


def _has_run(message: Message, calls: set[str]) -> bool:
    """Whether a message has a result of one of these calls. One that was declined or failed is not the model's own."""
    return any(result.call_id in calls and not result.is_error for result in message.results)
