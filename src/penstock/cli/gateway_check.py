"""Prints the check of a gateway's upstreams: what each server is, what is wrong, and the settings that cure it."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.exit_codes import PROVIDER_FAILED, UNSUCCESSFUL
from penstock.jsontext.shown_text import one_line

if TYPE_CHECKING:
    from penstock.gateway.servers.check import CheckedModel
    from penstock.servers.advice import Advice
    from penstock.servers.facts import ServerFacts

WIDTH = 100
"""The longest line of the output, on wide terminals."""
INDENT = 2
LABELS = 15
"""The width of the first column, with the labels of facts and advice."""
_COLORS = {"problem": "red", "note": "yellow"}


def exit_code(checked: Sequence[CheckedModel]) -> int:
    """The exit code: 0 if nothing is wrong, 3 if a server could not be asked, 1 for other problems."""
    if any(one.has_failed for one in checked):
        return PROVIDER_FAILED
    return UNSUCCESSFUL if any(one.problems for one in checked) else 0


def check_lines(checked: Sequence[CheckedModel]) -> Iterator[str]:
    """The lines of the report."""
    width = min(WIDTH, shutil.get_terminal_size().columns)
    for one in checked:
        place = one.upstream.url or one.upstream.provider
        name = one.upstream.name if one.upstream.name in place else f"{one.upstream.name} ({place})"
        yield click.style(one_line(f"{one.model} on {name}" if one.model else name), bold=True)
        if not one.has_failed:
            yield from _rows(facts_rows(one.facts), width)
        for advice in one.advice:
            yield ""
            yield from _advice(advice, width)
        yield ""
    count = sum(len(one.problems) for one in checked)
    yield "no problems" if not count else "1 problem" if count == 1 else f"{count} problems"


def facts_rows(facts: ServerFacts) -> Iterator[tuple[str, str]]:
    """The facts of a server, by their labels."""
    if not facts.server and facts.window is None and facts.has_model is None:
        return
    yield "server", facts.label
    if facts.has_model is not None:
        loaded = {True: ", loaded", False: ", not loaded", None: ""}[facts.is_loaded]
        found = f"another one{loaded}: {facts.actual_model}" if facts.actual_model else f"found{loaded}"
        yield "model", found if facts.has_model else "not found"
    if facts.has_model is False:
        return
    yield "window", _window(facts)
    if facts.overflow:
        yield "longer prompts", {"cut": "lose their beginning", "refused": "are refused"}[facts.overflow]
    yield "tools", _known(facts.tools)
    if facts.tool_choices:
        choices = {"all": "words and names of tools", "words": "auto, none, required", "none": "ignored"}
        yield "tool choice", choices[facts.tool_choices]
    yield "thinking", _known(facts.thinking)


def _window(facts: ServerFacts) -> str:
    if facts.window is None:
        return f"unknown; the model has up to {facts.longest_window:,}" if facts.longest_window else "unknown"
    longest = f" of {facts.longest_window:,}" if facts.longest_window else ""
    return f"{facts.window:,}{longest} tokens"


def _known(fact: bool | None) -> str:
    return {True: "yes", False: "no", None: "not reported"}[fact]


def _rows(rows: Iterator[tuple[str, str]], width: int) -> Iterator[str]:
    for label, value in rows:
        yield from _row(label, value, width)


def _row(label: str, text: str, width: int, color: str | None = None) -> Iterator[str]:
    """A label, and its text in the second column."""
    first = f"{'':{INDENT}}{label:{LABELS}} "
    lines = textwrap.wrap(one_line(text), max(width - len(first), 20), break_long_words=False, break_on_hyphens=False)
    styled = f"{'':{INDENT}}{click.style(label, fg=color, bold=True)}{'':{LABELS - len(label) + 1}}" if color else first
    for number, line in enumerate(lines or [""]):
        yield f"{styled if not number else ' ' * len(first)}{line}"


def _advice(advice: Advice, width: int) -> Iterator[str]:
    kind = "problem" if advice.is_problem else "note"
    yield from _row(kind, advice.what, width, _COLORS[kind])
    if advice.cure:
        yield from _row("", advice.cure, width)
    for line in advice.lines:  # not wrapped: they are copied
        yield f"{'':{INDENT + LABELS + 1}}  {one_line(line)}"
