"""Outputs of web tools: pages in JSON, or any text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.gateway.hosted.uses import WebToolUse
from penstock.wires.shared.web_tools import SEARCH, WebResult, WebSource

MAX_PAGES = 20
"""How many pages of a search are passed on."""
TRUNCATED = "\n(The rest was left out.)"
NOTHING = "Nothing was found."
_URLS, _TITLES = ("url", "link", "href"), ("title", "name")
_TEXTS = ("content", "text", "snippet", "description", "excerpt")
_ADDRESS = re.compile(r"https?://[^\s<>\"'\])}]+")


def read_output(output: str, use: WebToolUse) -> WebResult:
    """The result in the output of a tool.

    A search may print a JSON list of pages, or an object with such a list in `results`. Of any other text, the
    addresses in it are the pages.
    """
    if use.name != SEARCH:
        return WebResult(_truncated(output.strip(), use))
    pages = _listed(output)
    if pages is None:
        found = [address.rstrip(".,;:") for address in _ADDRESS.findall(output)]
        sources = tuple(WebSource(url) for url in dict.fromkeys(found) if use.allows(url))
        return WebResult(_truncated(output.strip() or NOTHING, use), sources[:MAX_PAGES])
    allowed = [page for page in pages if use.allows(_field(page, _URLS))][:MAX_PAGES]
    sources = tuple(WebSource(_field(page, _URLS), _field(page, _TITLES)) for page in allowed)
    text = "\n\n".join(f"{number}. " + "\n".join(_lines(page)) for number, page in enumerate(allowed, 1))
    return WebResult(_truncated(text or NOTHING, use), sources)


def _listed(output: str) -> list[Mapping[str, Any]] | None:
    """The pages in JSON; None if the output is something else."""
    try:
        value: Any = msgspec.json.decode(output)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    pages = value.get("results") if isinstance(value, dict) else value
    if not isinstance(pages, list):
        return None
    return [page for page in pages if isinstance(page, dict) and _field(page, _URLS)]


def _field(page: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((page[name] for name in names if isinstance(page.get(name), str) and page[name]), "")


def _lines(page: Mapping[str, Any]) -> Iterator[str]:
    for names in (_TITLES, _URLS, _TEXTS):
        if line := _field(page, names).strip():
            yield line


def _truncated(text: str, use: WebToolUse) -> str:
    most = use.tool.characters
    return text if len(text) <= most else text[:most] + TRUNCATED
