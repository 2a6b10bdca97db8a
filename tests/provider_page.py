"""The page of the providers: `python -m tests.provider_page` prints docs/providers.md.

What a provider does not take is found by asking: each setting and each kind of file is written into a request, and
either changes it, or is left out, or is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.declarations import read_declarations
from penstock.errors import UsageError
from penstock.messages import file, image, user
from penstock.providers import ALIASES, PROVIDERS, Provider
from penstock.wires import find_encoder
from penstock.wires.openai_chat.encode_request import QUIRKS_IN_WORDS
from penstock.wires.shared.request import Request, Sent

HEAD = """# Providers

The {count} providers that a `Model` knows by name: `Model("groq:some-model")` asks Groq. Set the key's variable: that
is all there is to set up.

- `penstock models` shows which of them are set up on your machine.
- A server that is not here and speaks Chat Completions is [`openai-compatible`](#openai-compatible): give its
  `base_url`. To give it a name, see [add-a-provider.md](add-a-provider.md).
- Where there are several variables, the first that is set counts. A base URL may leave out what people leave out of it:
  the scheme, the usual port, the path (`/v1`).
- What their streams do that no documentation says is in [quirks.md](quirks.md). Here is what they want in a request.

This page is made by `python -m tests.provider_page`.

| provider | wire | key |
|---|---|---|
{rows}
## Quirks of requests

All who speak Chat Completions agree on the shape of a request and differ in the rest. Each difference has a name, and
each provider's row says which it has. You need not know them: requests are written accordingly.

| quirk | what it is | who has it |
|---|---|---|
{quirks}
## One by one

*Left out*: the provider has no word for the setting, so it is not sent, and one set of options serves all. *Refused*:
penstock says so before anything is sent, and what to do instead. A provider, or one of its models, may refuse more.
"""

OPTIONS: dict[str, Any] = {
    "max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop": "END", "seed": 1, "presence_penalty": 0.1,
    "frequency_penalty": 0.1, "reasoning": "low",
}  # fmt: skip
"""A value for each of the settings."""
CHOICES = {choice: f"`tool_choice={choice!r}`" for choice in ("none", "required", "weather")}
MEDIA = {
    "pictures": image(b"bytes", "image/png"),
    "pictures by URL": image("https://example.com/cat.png"),
    "PDF": file(b"bytes", "application/pdf", "report.pdf"),
    "PDF by URL": file("https://example.com/report.pdf", "application/pdf"),
    "text files": file(b"bytes", "text/plain", "notes.txt"),
    "sound": file(b"bytes", "audio/wav", "voice.wav"),
}
"""A sample of each kind that is asked about."""
TOOLS = tuple(read_declarations(["weather", "clock"]))


def page() -> str:
    """The page, from the tables and the encoders."""
    rows = "".join(_row(name, row) for name, row in PROVIDERS.items())
    quirks = "".join(f"| `{quirk}` | {words} | {_owners(quirk)} |\n" for quirk, words in QUIRKS_IN_WORDS.items())
    sections = "".join(f"\n### {name}\n\n{_section(name, row)}" for name, row in PROVIDERS.items())
    return HEAD.format(count=len(PROVIDERS), rows=rows, quirks=quirks) + sections


def _row(name: str, row: Provider) -> str:
    return f"| [`{name}`](#{name}) | `{row.wire}` | {_keys(row)} |\n"


def _keys(row: Provider) -> str:
    return _listed(row.keys) + ("" if row.needs_key else " (not needed)")


def _owners(quirk: str) -> str:
    return _listed(name for name, row in PROVIDERS.items() if quirk in row.quirks) or "nobody in this table"


def _section(name: str, row: Provider) -> str:
    return "".join(f"- **{what}:** {told}\n" for what, told in _facts(name, row) if told)


def _facts(name: str, row: Provider) -> Iterator[tuple[str, str]]:
    """What there is to say of a provider, with a word for what it is about."""
    yield "also called", _listed(alias for alias, own in ALIASES.items() if own == name)
    yield "wire", f"`{row.wire}`"
    yield "base URL", f"`{row.base_url}`" if row.base_url else "none: give one"
    yield "another base URL", _listed(row.urls)
    yield "key", _keys(row)
    yield "note", row.about
    condition = "" if row.wire == "openai-chat" else ' (with `wire="openai-chat"`)'
    yield (
        f"[quirks](#quirks-of-requests){condition}",
        _listed(quirk for quirk in QUIRKS_IN_WORDS if quirk in row.quirks),
    )
    yield "left out", ", ".join(_left_out(row))
    yield "refused", ", ".join(_refused(row))


def _left_out(row: Provider) -> Iterable[str]:
    """The settings that change nothing in a request."""
    plain = _written(row, tools=TOOLS)
    asked: dict[str, dict[str, Any]] = {f"`{name}`": {"options": {name: value}} for name, value in OPTIONS.items()}
    asked |= {told: {"tool_choice": choice} for choice, told in CHOICES.items()}
    asked["`parallel`"] = {"is_parallel": False}
    return (told for told, setting in asked.items() if _written(row, tools=TOOLS, **setting) == plain)


def _refused(row: Provider) -> Iterator[str]:
    """The kinds of files that cannot be written into a request."""
    for kind, media in MEDIA.items():
        try:
            _written(row, media)
        except UsageError:
            yield kind


def _written(row: Provider, *parts: Any, **asked: Any) -> Sent:
    request = Request(model="some-model", messages=(user("Hi.", *parts),), **asked)
    return find_encoder(row.wire)(request, row.quirks)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201  # its job
