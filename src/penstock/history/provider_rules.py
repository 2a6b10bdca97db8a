"""The rules of single providers, and all problems of a history by its rules."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from penstock.errors import UsageError
from penstock.history.problem import Problem
from penstock.history.rules import AS_IT_STANDS, RULES, CheckedHistory
from penstock.messages import File, Image, Message, Part
from penstock.providers import REFUSED_BY, find_provider
from penstock.wires import find_encoder, find_facts
from penstock.wires.shared.encode_request.history_steps import ALLOWED
from penstock.wires.shared.encode_request.ids import fit_id, fit_name, id_rules
from penstock.wires.shared.facts import MEDIA_IN_RESULTS
from penstock.wires.shared.request import Request


def find_problems(history: CheckedHistory, provider: str | None) -> list[Problem]:
    """The problems of a history, in order; with `provider`, only those that this provider rejects."""
    problems = [problem for rule in RULES for problem in rule(history)]
    if provider is not None:
        target = Target.of(history, provider)
        problems = [
            problem for problem in (*problems, *_of_provider(history, target)) if target.name in problem.providers
        ]
    return sorted(problems, key=lambda problem: (problem.message, -1 if problem.part is None else problem.part))


class Target(Struct, frozen=True):
    """The provider and the wire of a history."""

    name: str
    wire: str
    quirks: frozenset[str]

    @classmethod
    def of(cls, history: CheckedHistory, provider: str) -> Target:
        """The target. For a provider with several wires, it has the wire that the history was written for."""
        name, row = find_provider(provider)
        return cls(name, history.wire if history.wire in row.other_wires else row.wire, row.quirks)

    def fit_name(self, tool: str) -> str:
        """A tool's name as the provider accepts it."""
        return fit_name(tool, find_facts(self.wire)) if self.name in REFUSED_BY["refused_name"] else tool

    def refusal(self, part: Part, message: Message) -> str:
        """Why the provider rejects an image or a file; empty if it accepts it.

        Media in results are always accepted: the encoder replaces unsupported ones by a note.
        """
        if not isinstance(part, Image | File) or not isinstance(part, ALLOWED[message.role]):
            return ""
        try:
            find_encoder(self.wire)(Request(model="", messages=(Message(message.role, (part,)),)), self.quirks)
        except UsageError as error:
            return str(error)
        return ""


def _of_provider(history: CheckedHistory, target: Target) -> Iterator[Problem]:
    """The problems that depend on the provider; if messages are ours, its encoder takes care of most of them."""
    yield from _refused_media(history, target)
    if history.is_ours:
        return
    for rule in AS_IT_STANDS:
        yield from rule(history)
    yield from _media_in_results(history, target)
    yield from _refused_ids_and_names(history, target)


def _refused_ids_and_names(history: CheckedHistory, target: Target) -> Iterator[Problem]:
    rules, name = id_rules(find_facts(target.wire), target.quirks), target.name
    for pair in history.pairs:
        id = pair.call.id
        if id and name in REFUSED_BY["refused_id"] and fit_id(id, rules) != id:
            yield history.problem("refused_id", pair.place, f"{name} does not accept the id {id!r}", frozenset({name}))
        if pair.call.name != target.fit_name(pair.call.name):
            what = f"{name} does not accept the name {pair.call.name!r}"
            yield history.problem("refused_name", pair.place, what, frozenset({name}))


def _refused_media(history: CheckedHistory, target: Target) -> Iterator[Problem]:
    for index, message in enumerate(history.messages):
        for number, part in enumerate(message.parts):
            if why := target.refusal(part, message):
                yield history.problem("refused_media", (index, number), why, frozenset({target.name}))


def _media_in_results(history: CheckedHistory, target: Target) -> Iterator[Problem]:
    """Images and files in results, where the provider accepts only text."""
    if not find_facts(target.wire).results_are_text or MEDIA_IN_RESULTS in target.quirks:
        return
    for pair in history.pairs:
        for place, result in pair.results:
            if any(isinstance(part, Image | File) for part in result.content):
                what = f"{target.name} accepts only text in results"
                yield history.problem("refused_media", place, what, frozenset({target.name}))
