"""What a provider would refuse in a history, found before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import UsageError
from penstock.history.problem import OPENAI, REFUSED_BY, Problem
from penstock.history.repaired import reading_of
from penstock.history.rules import AS_IT_STANDS, RULES, History
from penstock.messages import File, Image, Message
from penstock.providers import Provider, find_provider
from penstock.wires import find_encoder
from penstock.wires.openai_chat.encode_request import MEDIA_IN_RESULTS
from penstock.wires.shared.ids import fit_name, ids_for
from penstock.wires.shared.request import Request
from penstock.wires.shared.settle import ALLOWED


def check(messages: Any, provider: str | None = None) -> list[Problem]:
    """Every problem of a history, in its order; none, and every provider takes it.

    With a `provider`, only what that one refuses, and what it alone refuses too: kinds of media, and, in a history that
    is no list of `Message`s and may be sent as it stands, ids, names, missing signatures and orders of its own.
    (Messages of ours are written for each provider in its way.)
    """
    return problems_of(History(reading_of(messages)), provider)


def problems_of(history: History, provider: str | None) -> list[Problem]:
    """The problems of a history that was read."""
    problems = [problem for rule in RULES for problem in rule(history)]
    if provider is not None:
        name, row = find_provider(provider)
        problems = [problem for problem in (*problems, *_of_provider(history, name, row)) if name in problem.providers]
    return sorted(problems, key=lambda problem: (problem.message, -1 if problem.part is None else problem.part))


def wire_to(name: str, provider: Provider, history: History) -> str:
    """The wire on which a history goes to a provider: of those who speak two, the one whose shape it has."""
    return history.wire if name in OPENAI and history.wire.startswith("openai") else provider.wire


def _of_provider(history: History, name: str, provider: Provider) -> Iterator[Problem]:
    wire = wire_to(name, provider, history)
    yield from _media(history, name, wire, provider.quirks)
    if history.is_ours:
        return
    for rule in AS_IT_STANDS:
        yield from rule(history)
    yield from _shown_results(history, name, wire, provider.quirks)
    ids = ids_for(wire, provider.quirks)
    for pair in history.pairs:
        if pair.call.id and name in REFUSED_BY["refused_id"] and not ids.takes(pair.call.id):
            what = f"{name} does not take the id {pair.call.id!r}"
            yield history.problem("refused_id", pair.place, what, frozenset({name}))
        if pair.call.name != name_for(pair.call.name, name, wire):
            what = f"{name} does not take the name {pair.call.name!r}"
            yield history.problem("refused_name", pair.place, what, frozenset({name}))


def name_for(tool: str, provider: str, wire: str) -> str:
    """A tool's name as the provider takes it."""
    return fit_name(tool, wire) if provider in REFUSED_BY["refused_name"] else tool


def _media(history: History, name: str, wire: str, quirks: frozenset[str]) -> Iterator[Problem]:
    """Pictures and files that cannot be written for a provider: whoever writes them says why."""
    for at, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            if why := why_not_taken(part, message, wire, quirks):
                yield history.problem("refused_media", (at, number), why, frozenset({name}))


def _shown_results(history: History, name: str, wire: str, quirks: frozenset[str]) -> Iterator[Problem]:
    """Pictures and files in results, where the provider takes text there."""
    if wire not in ("openai-chat", "cohere") or MEDIA_IN_RESULTS in quirks:
        return
    for pair in history.pairs:
        for place, result in pair.results:
            if any(isinstance(part, Image | File) for part in result.content):
                yield history.problem("refused_media", place, f"{name} takes only text in results", frozenset({name}))


def why_not_taken(part: Any, message: Message, wire: str, quirks: frozenset[str]) -> str:
    """Why a provider does not take a picture or a file; empty if it does, or if it is neither.

    In results there is nothing that is not taken: what cannot be shown is told in a note.
    """
    if not isinstance(part, Image | File) or not isinstance(part, ALLOWED[message.role]):
        return ""
    try:
        find_encoder(wire)(Request(model="", messages=(Message(message.role, (part,)),)), quirks)
    except UsageError as error:
        return str(error)
    return ""
