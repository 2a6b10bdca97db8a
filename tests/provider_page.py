"""The page of the providers: `python -m tests.provider_page` prints docs/providers.md.

What a provider does not support is found by encoding: each option and each kind of file is put into a request, and
either changes it, or is left out, or is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock import UsageError
from penstock.declarations import read_declarations
from penstock.messages import file, image, user
from penstock.providers import ALIASES, PROVIDERS, Provider
from penstock.wires import find_encoder
from penstock.wires.anthropic.encode_request import QUIRKS_IN_WORDS as ANTHROPIC_QUIRKS
from penstock.wires.openai_chat.encode_request import QUIRKS_IN_WORDS as CHAT_QUIRKS
from penstock.wires.shared.request import EncodedRequest, Request

HEAD = """# Providers

`Model` knows these providers by name: `Model("groq:some-model")` sends requests to Groq. The only thing to set up is
the environment variable with the API key.

- `penstock models` shows which providers are configured on your machine.
- For a server that speaks Chat Completions and is not in the list, use [`openai-compatible`](#openai-compatible) and
  pass its `base_url`. To give it a name, see [adding a provider](add-a-provider.md).
- If several variables are listed, the first that is set counts. A base URL may omit the scheme, the usual port and the
  usual path (`/v1`).
- This page is about requests. Quirks of the responses are on the page [quirks](quirks.md).

`python -m tests.provider_page` generates this page.

| provider | wire | key |
|---|---|---|
{rows}
## Quirks of requests

Providers with Chat Completions agree on the structure of a request and differ in details. Each difference has a name,
and each provider has a list of them. Requests are written accordingly; you need not know the quirks.

| quirk | meaning | providers |
|---|---|---|
{quirks}
## Settings of each provider

*Left out*: the provider does not have this option, so it is not sent. *Refused*: a `UsageError` is raised before
anything is sent, and says what to do instead. A provider, or one of its models, may refuse more.
"""

OPTIONS: dict[str, Any] = {
    "max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop": "END", "seed": 1, "presence_penalty": 0.1,
    "frequency_penalty": 0.1, "reasoning": "low", "cache": True,
}  # fmt: skip
"""A value for each option."""
SOURCES = {
    "deepseek": "https://api-docs.deepseek.com/guides/thinking_mode",
    "moonshot": "https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model",
    "zai": "https://docs.z.ai/guides/capabilities/thinking-mode",
    "minimax": "https://platform.minimax.io/docs/api-reference/text-openai-api",
    "dashscope": "https://docs.qwencloud.com/developer-guides/text-generation/thinking",
}
"""Where a provider documents its reasoning: how it is turned on and off, and how it goes back."""
CHOICES = {choice: f"`tool_choice={choice!r}`" for choice in ("none", "required", "weather")}
MEDIA = {
    "images": image(b"bytes", "image/png"),
    "images by URL": image("https://example.com/cat.png"),
    "PDF": file(b"bytes", "application/pdf", "report.pdf"),
    "PDF by URL": file("https://example.com/report.pdf", "application/pdf"),
    "text files": file(b"bytes", "text/plain", "notes.txt"),
    "audio": file(b"bytes", "audio/wav", "voice.wav"),
}
"""A sample of each kind of file."""
QUIRKS_IN_WORDS = CHAT_QUIRKS | ANTHROPIC_QUIRKS
TOOLS = tuple(read_declarations(["weather", "clock"]))


def page() -> str:
    """The page, from the tables and the encoders."""
    rows = "".join(_row(name, row) for name, row in PROVIDERS.items())
    quirks = "".join(f"| `{quirk}` | {words} | {_owners(quirk)} |\n" for quirk, words in QUIRKS_IN_WORDS.items())
    sections = "".join(f"\n### {name}\n\n{_section(name, row)}" for name, row in PROVIDERS.items())
    return HEAD.format(rows=rows, quirks=quirks) + sections


def _row(name: str, row: Provider) -> str:
    return f"| [`{name}`](#{name}) | `{row.wire}` | {_keys(row)} |\n"


def _keys(row: Provider) -> str:
    return _listed(row.keys) + ("" if row.needs_key else " (not needed)")


def _owners(quirk: str) -> str:
    return _listed(name for name, row in PROVIDERS.items() if quirk in row.quirks) or "none of these"


def _section(name: str, row: Provider) -> str:
    return "".join(f"- **{label}:** {value}\n" for label, value in _facts(name, row) if value)


def _facts(name: str, row: Provider) -> Iterator[tuple[str, str]]:
    """The facts about a provider, each with its label."""
    yield "also called", _listed(alias for alias, own in ALIASES.items() if own == name)
    yield "wire", f"`{row.wire}`"
    yield "other wires", _listed(row.other_wires)
    yield "base URL", f"`{row.base_url}`" if row.base_url else "none: pass one"
    yield from ((f"base URL of `{wire}`", f"`{url}`") for wire, url in row.wire_urls.items())
    yield "another base URL", _listed(row.urls)
    yield "key", _keys(row)
    yield "note", row.about
    yield "source for reasoning", f"<{SOURCES[name]}>" if name in SOURCES else ""
    condition = "" if row.wire == "openai-chat" else ' (with `wire="openai-chat"`)'
    yield (
        f"[quirks](#quirks-of-requests){condition}",
        _listed(quirk for quirk in QUIRKS_IN_WORDS if quirk in row.quirks),
    )
    yield "left out", ", ".join(_left_out(row))
    yield "refused", ", ".join(_refused(row))


def _left_out(row: Provider) -> Iterable[str]:
    """The options that change nothing in a request."""
    plain = _encoded(row, tools=TOOLS)
    fields: dict[str, dict[str, Any]] = {f"`{name}`": {"options": {name: value}} for name, value in OPTIONS.items()}
    fields |= {label: {"tool_choice": choice} for choice, label in CHOICES.items()}
    fields["`parallel`"] = {"is_parallel": False}
    return (label for label, field in fields.items() if _encoded(row, tools=TOOLS, **field) == plain)


def _refused(row: Provider) -> Iterator[str]:
    """The kinds of files that cannot be written into a request."""
    for kind, media in MEDIA.items():
        try:
            _encoded(row, media)
        except UsageError:
            yield kind


def _encoded(row: Provider, *parts: Any, **fields: Any) -> EncodedRequest:
    request = Request(model="some-model", messages=(user("Hi.", *parts),), **fields)
    return find_encoder(row.wire)(request, row.quirks)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201  # its job
