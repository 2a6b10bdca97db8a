"""The provider of a model whose caller chose how reasoning goes back, or how output is asked for."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from penstock.errors import UsageError
from penstock.providers.provider import Provider

ReasoningField = Literal["reasoning_content", "reasoning", "reasoning_text"]
_ECHOES: dict[ReasoningField, str] = {
    "reasoning_content": "echo-reasoning",
    "reasoning": "echo-as-reasoning",
    "reasoning_text": "echo-as-reasoning-text",
}


def with_reasoning_back(provider: Provider, wire: str, field: ReasoningField | bool | None) -> Provider:
    """The provider, with reasoning sent back in this field; False sends none, None and True do what its row says.

    Raises a `UsageError` for True if the row says nothing.
    """
    if field is None:
        return provider
    if wire != "openai-chat":
        raise UsageError(f"reasoning_back is for Chat Completions, and the wire is {wire}: leave it out")
    if field is True:
        if provider.quirks.isdisjoint(_ECHOES.values()):
            raise UsageError(
                "reasoning_back=True has no effect: this provider has no known field for reasoning; "
                "name it (reasoning_back='reasoning_content', say), or leave the option out"
            )
        return provider
    if field is not False and field not in _ECHOES:
        names = ", ".join(map(repr, _ECHOES))
        raise UsageError(f"reasoning_back must be {names}, True, False or None, not {field!r}")
    echo = "drop-reasoning" if field is False else _ECHOES[field]
    return replace(provider, quirks=provider.quirks - {*_ECHOES.values()} | {echo})


OutputChoice = Literal["native", "tool", "prompt"]
OUTPUT_FORMS: dict[str, OutputChoice] = {"output-by-tool": "tool", "output-by-prompt": "prompt"}
"""The quirks of a model that is asked for structured output in a form that its caller chose."""
_WITHOUT_FORMAT = frozenset({"no-response-format", "format-or-tools", "grammar-format"})


def with_output_form(provider: Provider, wire: str, form: OutputChoice | None) -> Provider:
    """The provider, with structured output asked for in this form; `native` says that it has response formats."""
    if form is None:
        return provider
    if form != "native":
        quirks = {quirk for quirk, choice in OUTPUT_FORMS.items() if choice == form}
        if not quirks:
            raise UsageError(f"output_form must be 'native', 'tool', 'prompt' or None, not {form!r}")
        return replace(provider, quirks=provider.quirks | quirks)
    if wire != "openai-chat":
        raise UsageError(f"output_form='native' is for Chat Completions, and the wire is {wire}: leave it out")
    return replace(provider, quirks=provider.quirks - _WITHOUT_FORMAT)
