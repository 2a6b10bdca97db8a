"""The facts of a server and one of its models, as the server reports them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ServerKind = Literal["", "llamacpp", "lmstudio", "ollama", "sglang", "vllm"]
"""The servers whose own endpoints are read; empty for any other server."""
ToolChoices = Literal["", "all", "words", "none"]
"""Which tool choices a server honours: also the name of a tool, only the words, or none; empty if that is unknown."""
Overflow = Literal["", "refused", "cut"]
"""What a server does with a prompt that exceeds its window: an error, or a prompt without its first messages."""


class ServerFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server reports about itself and a model; None and empty values are unknown.

    `window` is how many tokens a prompt and its response may have now, `longest_window` how many the model can have if
    the server is set up for it. `actual_model` is the model that answers, if the server has not this one and answers
    for every name. `failure` says why nothing is known: the server does not answer, or refuses the key.
    """

    server: ServerKind = ""
    version: str = ""
    model: str = ""
    actual_model: str = ""
    has_model: bool | None = None
    is_loaded: bool | None = None
    window: int | None = None
    longest_window: int | None = None
    tools: bool | None = None
    tool_choices: ToolChoices = ""
    thinking: bool | None = None
    overflow: Overflow = ""
    failure: str = ""

    @property
    def label(self) -> str:
        """The name of the server, with its version."""
        name = LABELS[self.server]
        return f"{name} {self.version}" if self.version else name


LABELS: dict[ServerKind, str] = {
    "": "unknown server",
    "llamacpp": "llama.cpp",
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
    "sglang": "SGLang",
    "vllm": "vLLM",
}
"""The names of the servers."""
