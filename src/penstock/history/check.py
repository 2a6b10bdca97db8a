"""What a provider would refuse in a history, found before it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.errors import UsageError
from penstock.history.problem import REFUSED_BY, Problem
from penstock.history.rules import AS_IT_STANDS, RULES, History, found
from penstock.messages import MARK, File, Image, Message
from penstock.providers import Provider, find_provider
from penstock.requests import Request, find_encoder
from penstock.requests.history import ALLOWED
from penstock.requests.ids import ids_for
from penstock.shapes import as_messages


def check(messages: Any, provider: str | None = None) -> list[Problem]:
    """Every problem of a history, in its order; none, and every provider takes it.

    With a `provider`, only what that one refuses, and what it alone refuses too: kinds of media, and, in a history that
    is no list of `Message`s and may be sent as it stands, ids, missing signatures and orders of its own. (Messages of
    ours are written for each provider in its way.)
    """
    history = read(messages)
    problems = [problem for rule in RULES for problem in rule(history)]
    if provider is not None:
        name, row = find_provider(provider)
        problems = [problem for problem in problems if name in problem.providers]
        problems += _of_provider(history, name, row)
    return sorted(problems, key=lambda problem: (problem.message, -1 if problem.part is None else problem.part))


def read(messages: Any) -> History:
    """The history that these are, in whatever shape."""
    if isinstance(messages, Mapping) and MARK in messages:
        return History(as_messages(messages))
    given = (
        list(messages) if isinstance(messages, Sequence | Iterator) and not isinstance(messages, str) else [messages]
    )
    if all(isinstance(message, Message) for message in given):
        return History(given)
    return History(as_messages(messages if isinstance(messages, Mapping) else given), is_ours=False)


def _of_provider(history: History, name: str, provider: Provider) -> Iterator[Problem]:
    yield from _media(history, name, provider)
    if history.is_ours:
        return
    for rule in AS_IT_STANDS:
        yield from (problem for problem in rule(history) if name in problem.providers)
    ids = ids_for(provider.wire, provider.quirks)
    for pair in (pair for pairs in history.pairing.of for pair in pairs):
        if pair.call.id and name in REFUSED_BY["refused_id"] and not ids.takes(pair.call.id):
            what = f"{name} does not take the id {pair.call.id!r}"
            yield found("refused_id", pair.place, what, frozenset({name}))


def _media(history: History, name: str, provider: Provider) -> Iterator[Problem]:
    """Pictures and files that cannot be written for a provider: whoever writes them says why."""
    for at, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            if why := why_not_taken(part, message, provider):
                yield found("refused_media", (at, number), why, frozenset({name}))


def why_not_taken(part: Any, message: Message, provider: Provider) -> str:
    """Why a provider does not take a picture or a file; empty if it does, or if it is neither.

    In results there is nothing that is not taken: what cannot be shown is told in a note.
    """
    if not isinstance(part, Image | File) or not isinstance(part, ALLOWED[message.role]):
        return ""
    try:
        request = Request(model="", messages=(Message(message.role, (part,)),))
        find_encoder(provider.wire)(request, provider.quirks)
    except UsageError as error:
        return str(error)
    return ""
